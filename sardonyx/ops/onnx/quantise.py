"""Between numbers and 8-bit (4-bit, float8) codes with a scale and a zero point."""

from __future__ import annotations

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim, Size
from sardonyx.ir.constant import Constant
from sardonyx.ops.core.registry import op
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_equal,
    assume_shape,
    cast,
    compute,
    equal,
    maximum,
    minimum,
    normalise_axis,
    reduce,
    round_even,
    where,
)
from sardonyx.tensor.rounding import Rounding
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.symbolic import elements_of
from sardonyx.tensor.tensor import Buffer

#: More zero points than this are not looked at, to see whether all of them are 0.
_MOST_POINTS = 1 << 16
#: Codes are integers of as many bits at most.
_MOST_BITS = 16


class QuantiseParameters:
    """Where the scale and the zero point of an element are: one for all, per axis, or per block."""

    def __init__(self, x: Tensor, scale: Tensor, axis: int, block_size: int) -> None:
        self.single = scale.rank == 0 or (scale.rank == 1 and scale.shape[0] == 1)
        self.rank, self.block_size = scale.rank, block_size
        self.axis = 0 if self.single else normalise_axis(axis, x.rank, "quantise")
        if block_size < 0:
            raise InvalidGraph(message("quantise", "Bad block_size", got=str(block_size)))
        if self.single:
            return
        if block_size:
            if scale.rank != x.rank:
                raise InvalidGraph(
                    message("quantise", "A blocked scale has the rank of the input",
                            expected=str(x.rank), got=str(scale.rank))
                )  # fmt: skip
            blocks = integer.ceildiv(x.shape[self.axis], block_size)
            wanted = (*x.shape[: self.axis], blocks, *x.shape[self.axis + 1 :])
            assume_shape(scale.shape, wanted, "quantise", "The scale")
        elif scale.rank != 1:
            raise InvalidGraph(
                message("quantise", "The scale has the wrong rank", expected="0 or 1",
                        got=str(scale.rank), do="Give block_size for blocks")
            )  # fmt: skip
        else:
            assume_equal(scale.shape[0], x.shape[self.axis], "quantise", "The number of scales")

    def check(self, zero: Tensor | None, scale: Tensor) -> None:
        """Take the zero points as lying as the scales do."""
        if zero is not None:
            wanted = (1,) * zero.rank if self.single else scale.shape
            assume_shape(zero.shape, wanted, "quantise", "The zero point")

    def of(self, values: Tensor, at: tuple[Dim, ...]) -> Scalar:
        """The scale or zero point that holds for the element `at`."""
        if self.single:
            return scalar.load(values, (0,) * values.rank)
        if not self.block_size:
            return scalar.load(values, (at[self.axis],))
        block = integer.floordiv(at[self.axis], self.block_size)
        return scalar.load(values, (*at[: self.axis], block, *at[self.axis + 1 :]))


def saturate(value: Scalar, dtype: DType) -> Scalar:
    """A rounded float as a code of type `dtype`, at its ends where it lies outside."""
    if dtype.is_integer and dtype.bits < 8:  # other casts of floats saturate
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
        high = low + (1 << dtype.bits) - 1
        value = scalar.binary("max", scalar.binary("min", value, float(high)), float(low))
    return scalar.cast(value, dtype)


def _arithmetic_type(scale: Tensor) -> DType:
    return dtypes.DOUBLE if scale.dtype is dtypes.DOUBLE else dtypes.FLOAT


def quantise(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    dtype: DType,
    axis: int,
    block_size: int = 0,
    saturated: bool = True,
    precision: DType | None = None,
) -> Tensor:
    """round(x / scale) + zero, halves to even, as codes of type `dtype`.

    `precision`: what the quotient is rounded to before; float or double if it is None.
    """
    parameters = QuantiseParameters(x, scale, axis, block_size)
    parameters.check(zero, scale)
    wide = _arithmetic_type(scale) if precision is None else accumulator(precision)
    rounded = wide if precision is None else precision
    shift = None if zero is None or is_zero(zero) else zero

    def body(*at: Dim) -> Scalar:
        value = scalar.cast(scalar.load(x, at), wide)
        value = value / scalar.cast(parameters.of(scale, at), wide)
        value = scalar.cast(scalar.cast(value, rounded), wide)
        if not dtype.is_float:
            value = scalar.unary("round", value)
        if shift is not None:
            value = value + scalar.cast(parameters.of(shift, at), wide)
        if dtype.is_float:
            return scalar.cast(value, dtype, Rounding(saturated))
        return saturate(value, dtype)

    return compute(x.shape, body)


def is_zero(x: Tensor) -> bool:
    """Whether all elements are known to be 0."""
    known = elements_of(x)
    if known is not None:
        return all(not isinstance(e, Size) and float(e) == 0 for e in known)
    held = x.constant if isinstance(x, Buffer) else None
    if not isinstance(held, Constant) or not held.has_data or held.element_count > _MOST_POINTS:
        return False
    return held.dtype.is_integer and not held.array().any()


def dequantise(
    x: Tensor, scale: Tensor, zero: Tensor | None, dtype: DType, axis: int, block_size: int = 0
) -> Tensor:
    """(x - zero) * scale."""
    parameters = QuantiseParameters(x, scale, axis, block_size)
    parameters.check(zero, scale)
    wide = _arithmetic_type(scale)
    exact = dtypes.FLOAT if x.dtype.is_float else dtypes.INT32

    def body(*at: Dim) -> Scalar:
        value = scalar.load(x, at)
        if zero is not None and not is_zero(zero):
            value = scalar.cast(value, exact) - scalar.cast(parameters.of(zero, at), exact)
        return scalar.cast(value, wide) * scalar.cast(parameters.of(scale, at), wide)

    return compute(x.shape, body, dtype)


@op(
    "QuantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28,
    added={"axis": 13, "saturate": 19, "block_size": 21, "output_dtype": 21, "precision": 23},
)  # fmt: skip
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    version: int,
) -> Tensor:
    """Codes of numbers; their type is that of the zero point, or uint8.

    Since version 23 the quotient has the precision of the scale's type, or of one given by number.
    """
    dtype = zero.dtype if zero is not None else _type_of(output_dtype, dtypes.UINT8)
    if not (dtype.is_narrow_float or (dtype.is_integer and dtype.bits <= _MOST_BITS)):
        raise InvalidGraph(message("QuantizeLinear", f"There are no codes of type {dtype.name}"))
    if output_dtype and output_dtype != dtype.onnx_id:
        raise InvalidGraph(
            message("QuantizeLinear", "output_dtype contradicts the type of the zero point",
                    expected=dtype.name, got=_type_of(output_dtype, dtype).name)
        )  # fmt: skip
    asked = _type_of(precision, scale.dtype)
    if precision and not _is_wide(asked):
        what = f"A quotient has no precision {asked.name}"
        raise InvalidGraph(message("QuantizeLinear", what, expected="a float type"))
    if version < 23 or not _is_wide(asked):
        return quantise(x, scale, zero, dtype, axis, block_size, bool(saturate))
    return quantise(x, scale, zero, dtype, axis, block_size, bool(saturate), asked)


def _is_wide(dtype: DType) -> bool:
    """Whether numbers of the type are computed with, rather than stored."""
    return dtype.is_float and not dtype.is_narrow_float


def _type_of(number: int, default: DType) -> DType:
    if number and number not in dtypes.BY_ONNX_ID:
        raise InvalidGraph(message("quantise", f"There is no element type {number}"))
    return dtypes.BY_ONNX_ID[number] if number else default


@op(
    "DequantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28,
    added={"axis": 13, "block_size": 21, "output_dtype": 23},
)  # fmt: skip
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    """Numbers of codes; their type is that of the scale."""
    dtype = _type_of(output_dtype, scale.dtype)
    if output_dtype and not _is_wide(dtype):
        what = f"The result has no type {dtype.name}"
        raise InvalidGraph(message("DequantizeLinear", what, expected="a float type"))
    return dequantise(x, scale, zero, dtype, axis, block_size)


def _extreme(kind: str, x: Tensor) -> Tensor:
    """The least or the largest element: of rows first, which threads can share."""
    rows = min(2, x.rank - 1)
    if rows > 0 and sizes.product(x.shape[:rows]) != 1:
        x = reduce(kind, x, range(rows, x.rank))
    return reduce(kind, x)


@op("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(uint8 codes, scale, zero point), the range taken from the tensor and made to contain 0."""
    low, high = minimum(_extreme("min", x), 0.0), maximum(_extreme("max", x), 0.0)
    width = high - low
    scale = where(equal(width, 0.0), 1.0, width / 255.0)
    zero = round_even(maximum(minimum(-low / scale, 255.0), 0.0))
    codes = quantise(x, scale, zero, dtypes.UINT8, 0)
    return codes, scale, cast(zero, dtypes.UINT8)
