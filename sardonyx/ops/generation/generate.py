"""Tensors out of little: Constant, Range, EyeLike; and Trilu, which keeps a triangle."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.base import dtypes, errors, integer
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.tensor import language as t
from sardonyx.tensor import scalar
from sardonyx.tensor.measuring import LARGEST
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.symbolic import ELEMENTS_LIMIT, elements_of
from sardonyx.tensor.tensor import Buffer, Tensor, buffer

_BEYOND_ALL = 1 << 60


def constant_tensor(constant: Constant, key: object = None) -> Buffer:
    """A constant as a tensor; small ones show their contents to lowerings.

    Args:
        constant: The constant.
        key: Identifies the buffer; the constant itself by default.
    """
    known = None
    value = None
    if (
        constant.element_count <= ELEMENTS_LIMIT
        and constant.dtype.kind in "iubf"
        and constant.has_data
        and (constant.element_count <= 8 or not constant.dtype.is_float)
    ):
        known = tuple(constant.array().reshape(-1).tolist())
        if len(known) == 1:
            value = known[0]
    where = constant if key is None else key
    return buffer(
        where, constant.shape, constant.dtype, value=value, known=known, constant=constant
    )


@op(
    "Constant", 1, 9, 11, 12, 13, 19, 21, 23, 24,
    added={
        "sparse_value": 11, "value_int": 12, "value_ints": 12, "value_float": 12,
        "value_floats": 12, "value_string": 12, "value_strings": 12,
    },
)  # fmt: skip
def constant_1(
    *,
    value: Constant | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_string: str | bytes | None = None,
    value_strings: Sequence[str | bytes] | None = None,
    sparse_value: Constant | None = None,
) -> Tensor:
    """What an attribute holds."""
    for given, dtype in (
        (value, None),
        (sparse_value, None),
        (value_int, dtypes.INT64),
        (value_ints, dtypes.INT64),
        (value_float, dtypes.FLOAT),
        (value_floats, dtypes.FLOAT),
        (value_string, dtypes.STRING),
        (value_strings, dtypes.STRING),
    ):
        if given is not None:
            if not isinstance(given, Constant):
                given = Constant.from_array(given, dtype)
            return constant_tensor(given)
    raise InvalidGraph(message("Constant", "It has no value"))


def _range(start: Tensor, limit: Tensor, delta: Tensor, wide: DType) -> Tensor:
    if not start.dtype is limit.dtype is delta.dtype:
        raise InvalidGraph(message("Range", "The inputs differ in type"))
    start, limit, delta = (scalar_of(x, "Range") for x in (start, limit, delta))
    bounds = [elements_of(x) for x in (start, limit, delta)]
    if None in bounds:
        return _measured_range(start, limit, delta, wide)
    (first,), (last,), (step,) = bounds  # type: ignore[misc]  # each has one element
    if step == 0:
        raise InvalidGraph(message("Range", "The step is 0"))
    if start.dtype.is_float:
        count: Dim = max(_steps((last - first) / step), 0)  # type: ignore[operator]  # floats
    elif isinstance(step, int) and step < 0:
        count = integer.maximum(integer.ceildiv(first - last, -step), 0)
    else:
        count = integer.maximum(integer.ceildiv(last - first, step), 0)

    def body(i: Dim) -> Scalar:
        base, each = (scalar.lift_element(x, wide) for x in (first, step))
        position = scalar.cast(scalar.size(i), wide)
        return base + (position if step == 1 else position * each)

    return t.compute((count,), body, start.dtype)


def _steps(count: float) -> int:
    if not math.isfinite(count):
        raise InvalidGraph(message("Range", "It has no end", got=f"{count} steps"))
    return math.ceil(count)


def _measured_range(start: Tensor, limit: Tensor, delta: Tensor, wide: DType) -> Tensor:
    """A range whose bounds only a run knows; one without a length (a step of 0) is refused then."""
    if start.dtype.is_float:
        first, last, step = (t.cast(x, dtypes.DOUBLE) for x in (start, limit, delta))
        zero = t.equal(step, 0)
        steps = (last - first) / t.where(zero, 1, step)
        endless = zero | t.not_equal(steps, steps)
        count = t.maximum(t.cast(t.ceil(steps), dtypes.INT64), 0)
    else:
        first, last, step = (t.cast(x, dtypes.INT64) for x in (start, limit, delta))
        endless = t.equal(step, 0)
        count = _whole_steps(first, last, t.where(endless, 1, step))
    count = t.where(endless, -1, count)
    (length,) = contents(count, "The length", 0)

    def body(i: Dim) -> Scalar:
        position = scalar.cast(scalar.size(i), wide)
        base, distance = (scalar.cast(scalar.load(x, ()), wide) for x in (start, delta))
        return base + position * distance

    return t.compute((length,), body, start.dtype)


def _whole_steps(first: Tensor, last: Tensor, step: Tensor) -> Tensor:
    """How many steps lead from a number to before another; neither may be wrong by wrapping.

    A distance has as many as 64 bits, so it is computed without sign, where it cannot wrap.
    """
    upwards = step > 0
    leads = t.where(upwards, first < last, first > last)
    span = t.cast(t.where(upwards, last - first, first - last), dtypes.UINT64)
    each = t.cast(t.where(upwards, step, 0 - step), dtypes.UINT64)
    whole = span / each
    count = whole + t.cast(t.not_equal(whole * each, span), dtypes.UINT64)
    return t.where(leads, t.cast(t.minimum(count, LARGEST + 1), dtypes.INT64), 0)


@op("Range", 11)
def range_11(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    """From `start`, by steps of `delta`, until before `limit`."""
    return _range(start, limit, delta, start.dtype)


@op("Range", 27)
def range_27(start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int = 1) -> Tensor:
    """As before; half floats are computed in the type `stash_type`."""
    is_half = start.dtype.is_float and start.dtype.bits < 32
    return _range(start, limit, delta, _dtype(stash_type, start.dtype) if is_half else start.dtype)


def _dtype(number: int | None, default: DType) -> DType:
    if number is None:
        return default
    if number not in dtypes.BY_ONNX_ID:
        raise InvalidGraph(message("dtype", f"There is no element type {number}"))
    return dtypes.BY_ONNX_ID[number]


@op("EyeLike", 9, 22)
def eye_like_9(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    """1 on a diagonal, else 0."""
    if len(x.shape) != 2:
        raise InvalidGraph(message("EyeLike", f"A matrix is needed, not {list(x.shape)}"))
    target = _dtype(dtype, x.dtype)

    def body(i: Dim, j: Dim) -> Scalar:
        return scalar.cast(scalar.compare("eq", scalar.size(i + k), scalar.size(j)), target)

    return t.compute(x.shape, body)


def _diagonal(k: Scalar) -> Scalar:
    # Diagonals beyond all matrices are alike; sums with the largest integers would wrap.
    return scalar.clamp(k, -_BEYOND_ALL, _BEYOND_ALL)


@op("Trilu", 14)
def trilu_14(x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    """The triangle on and above a diagonal, or on and below it; 0 elsewhere."""
    if len(x.shape) < 2:
        raise InvalidGraph(message("Trilu", f"Matrices are needed, not {list(x.shape)}"))
    if x.dtype is dtypes.STRING:
        raise errors.NotImplemented(message("Trilu", "Strings are not supported"))
    shift = scalar.size(0) if k is None else _diagonal(t.reshape(k, ())[()])

    def body(*at: Dim) -> Scalar:
        diagonal = scalar.size(at[-2]) + shift
        kept = scalar.compare("ge" if upper else "le", scalar.size(at[-1]), diagonal)
        return scalar.select(kept, scalar.load(x, at), 0)

    return t.compute(x.shape, body)
