"""Between numbers and 8-bit (4-bit, float8) codes with a scale and a zero point."""

from __future__ import annotations

from sardonyx.base import dtypes, integer
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.registry import op
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    assume_shape,
    cast,
    compute,
    equal,
    maximum,
    minimum,
    normalise_axis,
    round_even,
    where,
)
from sardonyx.tensor.scalar import Scalar

#: The largest finite number of each small float type.
_LARGEST = {
    dtypes.FLOAT8E4M3FN: 448.0,
    dtypes.FLOAT8E4M3FNUZ: 240.0,
    dtypes.FLOAT8E5M2: 57344.0,
    dtypes.FLOAT8E5M2FNUZ: 57344.0,
    dtypes.FLOAT4E2M1: 6.0,
}


class Parameters:
    """Where the scale and the zero point of an element are: one for all, per axis, or per block."""

    def __init__(self, x: Tensor, scale: Tensor, axis: int, block_size: int) -> None:
        self.single = scale.rank == 0 or (scale.rank == 1 and scale.shape[0] == 1)
        self.rank, self.block_size = scale.rank, block_size
        self.axis = 0 if self.single else normalise_axis(axis, x.rank, "quantise")
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
    largest = _LARGEST.get(dtype)
    if largest is not None:
        bounded = scalar.binary("max", scalar.binary("min", value, largest), -largest)
        return scalar.cast(bounded, dtype)
    if dtype.bits <= 16:
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
) -> Tensor:
    """round(x / scale) + zero, halves to even, as codes of type `dtype`."""
    parameters = Parameters(x, scale, axis, block_size)
    parameters.check(zero, scale)
    wide = _arithmetic_type(scale)

    def body(*at: Dim) -> Scalar:
        value = scalar.cast(scalar.load(x, at), wide)
        value = value / scalar.cast(parameters.of(scale, at), wide)
        if dtype.is_float:
            return saturate(value, dtype) if saturated else scalar.cast(value, dtype)
        value = scalar.unary("round", value)
        if zero is not None:
            value = value + scalar.cast(parameters.of(zero, at), wide)
        return saturate(value, dtype)

    return compute(x.shape, body)


def dequantise(
    x: Tensor, scale: Tensor, zero: Tensor | None, dtype: DType, axis: int, block_size: int = 0
) -> Tensor:
    """(x - zero) * scale."""
    parameters = Parameters(x, scale, axis, block_size)
    parameters.check(zero, scale)
    wide = _arithmetic_type(scale)

    def body(*at: Dim) -> Scalar:
        value = scalar.load(x, at)
        if zero is not None and not x.dtype.is_float:
            point = scalar.cast(parameters.of(zero, at), dtypes.INT32)
            value = scalar.cast(value, dtypes.INT32) - point
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
) -> Tensor:
    """Codes of numbers; their type is that of the zero point, or uint8."""
    dtype = zero.dtype if zero is not None else dtypes.BY_ONNX_ID.get(output_dtype, dtypes.UINT8)
    return quantise(x, scale, zero, dtype, axis, block_size, bool(saturate))


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
    dtype = dtypes.BY_ONNX_ID.get(output_dtype, scale.dtype)
    return dequantise(x, scale, zero, dtype, axis, block_size)


@op("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(uint8 codes, scale, zero point), the range taken from the tensor and made to contain 0."""
    low, high = minimum(x.min(), 0.0), maximum(x.max(), 0.0)
    width = high - low
    scale = where(equal(width, 0.0), 1.0, width / 255.0)
    zero = round_even(maximum(minimum(-low / scale, 255.0), 0.0))
    codes = quantise(x, scale, zero, dtypes.UINT8, 0)
    return codes, scale, cast(zero, dtypes.UINT8)
