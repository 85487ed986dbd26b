"""From ranges of numbers to scales and zero points, and from numbers to codes.

real = scale * (code - zero_point). Zero is always a code, so that padding with zeros is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.base.conversion import rounded
from sardonyx.quantization.enums import QuantType

Array = np.ndarray[Any, np.dtype[Any]]

#: Lowest and highest code.
_WHOLE = {
    QuantType.QInt8: (-128, 127),
    QuantType.QUInt8: (0, 255),
    QuantType.QInt16: (-32768, 32767),
    QuantType.QUInt16: (0, 65535),
    QuantType.QInt4: (-8, 7),
    QuantType.QUInt4: (0, 15),
}
#: The same where the range is symmetric: products of two such codes fit more sums.
_SYMMETRIC = {QuantType.QInt8: (-127, 127), QuantType.QInt16: (-32767, 32767)}
#: The same with one bit less: processors without VNNI add pairs of products in 16 bits.
_REDUCED = {
    QuantType.QInt8: (-64, 64),
    QuantType.QUInt8: (0, 127),
    QuantType.QInt16: (-16384, 16384),
    QuantType.QUInt16: (0, 32767),
    QuantType.QInt4: (-4, 3),
    QuantType.QUInt4: (0, 7),
}
#: A bias of 32 bits must not leave them; the margin is for the rounding of its scale.
_BIAS_MARGIN = 1.0001
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Parameters:
    """How numbers become codes.

    Attributes:
        scale: () for a tensor, (channels,) along `axis`, or the tensor's shape with blocks along
            `axis`; of the tensor's own float type.
        zero_point: Of the same shape, and of the type of codes.
        type: Which codes.
        axis: The axis of channels or blocks; None where one scale serves the tensor.
        block: Elements of a block; 0 where there are no blocks.
    """

    scale: Array
    zero_point: Array
    type: QuantType
    axis: int | None = None
    block: int = 0


def code_range(
    type: QuantType, *, reduce: bool = False, symmetric: bool = False
) -> tuple[int, int]:
    """Lowest and highest code that numbers are mapped to."""
    if reduce:
        return _REDUCED[type]
    return _SYMMETRIC.get(type, _WHOLE[type]) if symmetric else _WHOLE[type]


def parameters_of_range(
    low: Any,
    high: Any,
    type: QuantType,
    float_type: Any = np.float32,
    *,
    symmetric: bool = False,
    reduce: bool = False,
    least: float | None = None,
    axis: int | None = None,
    block: int = 0,
) -> Parameters:
    """Scale and zero point for numbers from `low` to `high`.

    Args:
        low: Lowest number, or one for each channel or block; positive ones count as 0.
        high: Highest number, of the same shape; negative ones count as 0.
        type: Type of codes.
        float_type: Element type of the tensor, which the scale gets.
        symmetric: Whether the range is made symmetric first: then zero is the middle code.
        reduce: Use one bit less.
        least: The smallest width that the range may have.
        axis: What the parameters are to say of their axis.
        block: What they are to say of their blocks.
    """
    low_code, high_code = code_range(type, reduce=reduce, symmetric=symmetric)
    low = np.minimum(np.asarray(low, np.float64), 0)
    high = np.maximum(np.asarray(high, np.float64), 0)
    if least is not None:
        high = np.maximum(high, low + least)
    if symmetric:
        high = np.maximum(-low, high)
        low = -high
    scale = (high - low) / (high_code - low_code)
    is_flat = scale < np.finfo(float_type).tiny
    scale = np.where(is_flat, 1.0, scale)
    if symmetric:
        zero = np.full(scale.shape, np.round((low_code + high_code) / 2))
    else:
        zero = np.clip(np.round(low_code - low / scale), low_code, high_code)
        zero = np.where(is_flat, 0, zero)
    scale, zero = rounded(scale, np.dtype(float_type)), zero.astype(type.dtype.numpy)
    return Parameters(scale, zero, type, axis, block)


def restricted_parameters(
    low: float, high: float, float_type: Any = np.float32, *, least: float | None = None
) -> Parameters:
    """Codes of uint8 whose zero point is 0, or 128 where there are negative numbers."""
    low, high = min(low, 0.0), max(high, 0.0)
    if least is not None:
        high = max(high, low + least)
    zero = 128 if low < 0 else 0
    scale = max(-low / 128, high / 127) if low < 0 else high / 255
    if scale < np.finfo(float_type).tiny:
        scale = 1 / 255
    return Parameters(np.array(scale, float_type), np.array(zero, np.uint8), QuantType.QUInt8)


def parameters_of_weights(
    weights: Array,
    type: QuantType,
    *,
    symmetric: bool,
    axis: int | None = None,
    block: int = 0,
    reduce: bool = False,
    least: float | None = None,
    low: Any = None,
    high: Any = None,
) -> Parameters:
    """Scales and zero points for weights: for all, for each channel, or for each block.

    Args:
        weights: The numbers.
        type: Type of codes.
        symmetric: Whether zero is the middle code.
        axis: The axis of channels, or along which blocks lie.
        block: Elements in a block; 0 for none. The last block may be shorter.
        reduce: Use one bit less.
        least: The smallest width of a range.
        low: The lowest number, or one for each channel, instead of those of the weights.
        high: The highest number, or one for each channel.
    """
    options: dict[str, Any] = {"symmetric": symmetric, "reduce": reduce, "least": least}
    if not weights.size:
        lowest = highest = np.zeros(())
        axis, block = None, 0
    elif axis is None:
        lowest, highest = weights.min(), weights.max()
    elif block:
        starts = range(0, weights.shape[axis], block)
        lowest = np.minimum.reduceat(weights, starts, axis)
        highest = np.maximum.reduceat(weights, starts, axis)
    else:
        others = tuple(k for k in range(weights.ndim) if k != axis)
        lowest, highest = weights.min(others), weights.max(others)
    lowest = lowest if low is None else np.broadcast_to(low, np.shape(lowest))
    highest = highest if high is None else np.broadcast_to(high, np.shape(highest))
    return parameters_of_range(
        lowest, highest, type, weights.dtype, axis=axis, block=block, **options
    )


def quantise(numbers: Array, parameters: Parameters) -> Array:
    """Codes of numbers: halves round to even, what lies outside is clipped."""
    scale, zero = (
        _spread(p, numbers, parameters) for p in (parameters.scale, parameters.zero_point)
    )
    low, high = _WHOLE[parameters.type]
    codes = np.round(numbers.astype(np.float32) / scale) + zero.astype(np.float32)
    return np.clip(codes, low, high).astype(parameters.type.dtype.numpy)


def _spread(parameter: Array, numbers: Array, parameters: Parameters) -> Array:
    """A scale or zero point, in a shape that broadcasts with the numbers."""
    axis = parameters.axis
    if axis is None:
        return parameter
    if parameters.block:
        whole = np.repeat(parameter, parameters.block, axis)
        return whole.take(range(numbers.shape[axis]), axis)
    shape = [1] * numbers.ndim
    shape[axis] = -1
    return parameter.reshape(shape)


def widened_for_bias(scale: Array, input_scale: Array, bias: Array) -> Array:
    """Scales of weights, made larger where a bias would not fit in 32 bits otherwise.

    Args:
        scale: Scales of the weights, () or (channels,).
        input_scale: The scale of what the weights are multiplied with, ().
        bias: The bias, (channels,), which is to have the scale `scale * input_scale`.
    """
    peaks = np.abs(bias.astype(np.float64)).reshape(-1)
    if not peaks.size:
        return scale
    if scale.ndim == 0:
        peaks = peaks.max()
    elif scale.shape != peaks.shape:
        return scale
    found = scale.astype(np.float64) * float(input_scale)
    needed = _BIAS_MARGIN * peaks / _INT32_MAX
    ratio = np.where((found > 0) & (found < needed), needed / np.where(found > 0, found, 1), 1)
    return (scale.astype(np.float64) * ratio).astype(scale.dtype)


def quantise_bias(bias: Array, scale: Array) -> Array:
    """A bias in 32 bits, for a scale of () or (channels,)."""
    codes = np.round(bias.astype(np.float64) / scale.astype(np.float64))
    return np.clip(codes, -math.ldexp(1, 31), _INT32_MAX).astype(np.int32)
