"""Conversions between element types, of numbers, text, or bits."""

from __future__ import annotations

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ops.core.registry import op
from sardonyx.tensor import language as t
from sardonyx.tensor.host import Result, host_call
from sardonyx.tensor.rounding import NEAREST, Rounding
from sardonyx.tensor.tensor import Tensor


def _cast(x: Tensor, target: DType, rounding: Rounding = NEAREST) -> Tensor:
    if x.dtype is target:
        return x
    if target is dtypes.STRING:
        return host_call("text.from_numbers", [x], [Result(target, x.shape)])[0]
    if x.dtype is dtypes.STRING:
        read = _read_as(target)
        facts = {"to": read.name} | ({"again": True} if target.is_narrow_float else {})
        x = host_call("text.to_numbers", [x], [Result(read, x.shape)], **facts)[0]
        return x if read is target else _cast(x, target, rounding)
    if x.dtype.is_float and target.is_integer and target.bits < 8:
        x = x.cast(dtypes.INT32)  # ONNX keeps the low bits, as of integers
    return t.cast(x, target, rounding)


def _read_as(target: DType) -> DType:
    """What text is read as: a wide type where the target rounds or wraps in a way of its own."""
    if target.is_narrow_float:
        return dtypes.DOUBLE
    return dtypes.INT64 if target.is_integer and target.bits < 8 else target


def _cast_24(x: Tensor, target: DType, saturate: int, round_mode: str) -> Tensor:
    if round_mode not in ("up", "down", "nearest"):
        raise InvalidGraph(
            message("Cast", "Bad round_mode", expected="up, down or nearest", got=repr(round_mode))
        )
    is_power = target is dtypes.FLOAT8E8M0
    return _cast(x, target, Rounding(bool(saturate), round_mode if is_power else "nearest"))


def _element_type(number: int) -> DType:
    if number not in dtypes.BY_ONNX_ID:
        raise InvalidGraph(message("Cast", f"There is no element type {number}"))
    return dtypes.BY_ONNX_ID[number]


@op("Cast", 1)
def cast_1(x: Tensor, *, to: str) -> Tensor:
    """Converted to an element type given by name, such as FLOAT."""
    for target in dtypes.BY_ONNX_ID.values():
        if target.name.upper() == to.upper():
            return _cast(x, target)
    raise InvalidGraph(message("Cast", f"There is no element type {to!r}"))


@op("Cast", 6, 9, 13, flags=("strings",))
def cast_6(x: Tensor, *, to: int) -> Tensor:
    """Converted to an element type given by number."""
    return _cast(x, _element_type(to))


@op("Cast", 19, flags=("strings",))
def cast_19(x: Tensor, *, to: int, saturate: int = 1) -> Tensor:
    """As before, with saturation of float8 as a choice.

    Saturated infinities are the largest number in all types. The text of versions 19 to 23 has NaN
    for FNUZ, which that of 24 mends, and no implementation gives.
    """
    return _cast(x, _element_type(to), Rounding(bool(saturate)))


@op("Cast", 24, flags=("strings",))
def cast_24(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """As before, with rounding to float8e8m0 as a choice."""
    return _cast_24(x, _element_type(to), saturate, round_mode)


@op("CastLike", 15, flags=("strings",))
def cast_like_15(x: Tensor, like: Tensor) -> Tensor:
    """Converted to the element type of another tensor."""
    return _cast(x, like.dtype)


@op("CastLike", 19, flags=("strings",))
def cast_like_19(x: Tensor, like: Tensor, *, saturate: int = 1) -> Tensor:
    """As before, with saturation of float8 as a choice."""
    return _cast(x, like.dtype, Rounding(bool(saturate)))


@op("CastLike", 24, flags=("strings",))
def cast_like_24(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """As before, with rounding to float8e8m0 as a choice."""
    return _cast_24(x, like.dtype, saturate, round_mode)


@op("BitCast", 26)
def bitcast_26(x: Tensor, *, to: int) -> Tensor:
    """The same bits as an element type given by number, of the same number of bits."""
    target = _element_type(to)
    if target.bits != x.dtype.bits or target.is_code:
        raise InvalidGraph(
            message("BitCast", "The element types differ in size", got=target.name,
                    expected=f"a type of {x.dtype.bits} bits, as {x.dtype} is")
        )  # fmt: skip
    return t.bitcast(x, target)
