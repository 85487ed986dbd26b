"""Normalisations: statistics over some axes, then pointwise work on the same axes.

All are written as reduce, pointwise, reduce, pointwise over one set of axes, without a reshape in
between, so that each becomes one row kernel. Variances take two passes: the mean first, then the
mean of squared deviations. Half floats are computed in float.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import CONSUMED_INPUTS, op
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_broadcast,
    assume_equal,
    assume_shape,
    cast,
    compute,
    equal,
    exp,
    log,
    mean,
    normalise_axis,
    power,
    reshape,
    rsqrt,
    sqrt,
    unsqueeze,
    where,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices as indices_of
from sardonyx.tensor.tensor import make_reduce, reduced_indices


def wide_type(x: Tensor, stash_type: int = 1) -> DType:
    """The type that statistics of `x` are computed in."""
    asked = dtypes.BY_ONNX_ID.get(stash_type, dtypes.FLOAT)
    return asked if asked.is_float and asked.bits > x.dtype.bits else accumulator(x.dtype)


def last_axes(x: Tensor, axis: int) -> tuple[int, ...]:
    """The axes from `axis` to the last one."""
    return tuple(range(normalise_axis(axis, x.rank, "normalisation"), x.rank))


def deviations(x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, x - mean, 1 / standard deviation) over `axes`, which are kept with size 1."""
    average = mean(x, axes, keepdims=True)
    centred = x - average
    variance = mean(centred * centred, axes, keepdims=True)
    return average, centred, rsqrt(variance + epsilon)


def per_channel(values: Tensor, x: Tensor) -> Tensor:
    """A vector over channels as something that broadcasts over `x`, (N, C, ...)."""
    assume_shape(values.shape, x.shape[1:2], "normalisation", "A parameter per channel")
    return unsqueeze(values, range(1, x.rank - 1))


# -- layers -----------------------------------------------------------------------------------


def layer_norm(
    x: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    axis: int,
    epsilon: float,
    stash: int,
    result_type: DType | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(normalised in the type of `x` or `result_type`, mean, 1 / standard deviation)."""
    wide = wide_type(x, stash)
    average, centred, inverse = deviations(cast(x, wide), last_axes(x, axis), epsilon)
    result = centred * inverse
    for parameter in (scale, bias):
        if parameter is not None:
            assume_broadcast(parameter.shape, x.shape, "LayerNormalization", "A parameter")
    if scale is not None:
        result = result * cast(scale, wide)
    if bias is not None:
        result = result + cast(bias, wide)
    return cast(result, result_type or x.dtype), average, inverse


# onnxruntime had it in ONNX's own domain before ONNX: its optimizer writes it to older models.
@op("LayerNormalization", 1, 17)
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean 0 and variance 1 over the axes from `axis` on; also gives mean and inverse deviation.

    These two are of the type that `stash_type` names, even where more digits were computed; the
    result is of the scale's, which may be another than that of `x` before version 17.
    """
    result, average, inverse = layer_norm(x, scale, bias, axis, epsilon, stash_type, scale.dtype)
    kept = dtypes.BY_ONNX_ID.get(stash_type, dtypes.FLOAT)
    return result, cast(average, kept), cast(inverse, kept)


def rms_norm(
    x: Tensor,
    scale: Tensor | None,
    axis: int,
    epsilon: float,
    stash: int,
    result_type: DType | None = None,
) -> tuple[Tensor, Tensor]:
    """(normalised in the type of `x` or `result_type`, 1 / root mean square)."""
    wide = wide_type(x, stash)
    wider = cast(x, wide)
    inverse = rsqrt(mean(wider * wider, last_axes(x, axis), keepdims=True) + epsilon)
    result = wider * inverse
    if scale is not None:
        assume_broadcast(scale.shape, x.shape, "RMSNormalization", "The scale")
        result = result * cast(scale, wide)
    return cast(result, result_type or x.dtype), inverse


@op("RMSNormalization", 23)
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """Divided by the root of the mean square over the axes from `axis` on; of the scale's type."""
    if scale.dtype is x.dtype:
        return rms_norm(x, scale, axis, epsilon, stash_type)[0]
    normalised = rms_norm(x, None, axis, epsilon, stash_type)[0]
    assume_broadcast(scale.shape, x.shape, "RMSNormalization", "The scale")
    return cast(normalised, scale.dtype) * scale


# -- channels ---------------------------------------------------------------------------------


@op("InstanceNormalization", 1, 6, 22, removed=CONSUMED_INPUTS)
def instance_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 1e-5,
    consumed_inputs: Sequence[int] = (),
) -> Tensor:
    """Mean 0 and variance 1 over the space of every channel of every image."""
    wide = accumulator(x.dtype)
    _, centred, inverse = deviations(cast(x, wide), range(2, x.rank), epsilon)
    result = centred * inverse * per_channel(cast(scale, wide), x)
    return cast(result + per_channel(cast(bias, wide), x), x.dtype)


def group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, groups: int, epsilon: float, per_group: bool
) -> Tensor:
    """Mean 0 and variance 1 over groups of channels of (N, C, ...) and their space."""
    channels = x.shape[1]
    width = integer.floordiv(channels, groups)
    assume_equal(
        channels, width * groups, "GroupNormalization", f"{channels} channels in {groups} groups"
    )
    wide = accumulator(x.dtype)
    grouped = reshape(cast(x, wide), (x.shape[0], groups, width, *x.shape[2:]))
    _, centred, inverse = deviations(grouped, range(2, grouped.rank), epsilon)

    def affine(values: Tensor) -> Tensor:
        shape = (groups, 1 if per_group else width) + (1,) * (x.rank - 2)
        return reshape(cast(values, wide), shape)

    return reshape(cast(centred * inverse * affine(scale) + affine(bias), x.dtype), x.shape)


@op("GroupNormalization", 18)
def group_normalization_18(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5
) -> Tensor:
    """Scale and bias per group."""
    return group_norm(x, scale, bias, num_groups, epsilon, per_group=True)


@op("GroupNormalization", 21)
def group_normalization_21(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    """Scale and bias per channel."""
    return group_norm(x, scale, bias, num_groups, epsilon, per_group=False)


@op("MeanVarianceNormalization", 9, 13)
def mean_variance_normalization(x: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    """Mean 0 and variance 1 over `axes`."""
    wide = accumulator(x.dtype)
    wider = cast(x, wide)
    axes = [normalise_axis(a, x.rank, "MeanVarianceNormalization") for a in axes]
    centred = wider - mean(wider, axes, keepdims=True)
    deviation = sqrt(mean(centred * centred, axes, keepdims=True))
    return cast(centred / (deviation + 1e-9), x.dtype)


@op("LpNormalization", 1, 22)
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Divided by the 1- or 2-norm along an axis; 0 where the norm is 0."""
    if p not in (1, 2):
        raise InvalidGraph(
            message("LpNormalization", "No such norm", expected="p 1 or 2", got=str(p))
        )
    wide = accumulator(x.dtype)
    wider = cast(x, wide)
    if p == 1:
        norm = abs(wider).sum(axis, keepdims=True)
    else:
        norm = sqrt((wider * wider).sum(axis, keepdims=True))
    return cast(where(equal(norm, 0.0), 0.0, wider / norm), x.dtype)


@op("LRN", 1, 13)
def local_response(
    x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """Divided by a power of the sum of squares over neighbouring channels."""
    if size < 1:
        raise InvalidGraph(message("LRN", "Its size must be positive", got=str(size)))
    wide = accumulator(x.dtype)
    channels = x.shape[1]
    n, c, *space = indices_of(x.shape)
    (step,) = reduced_indices((size,))
    neighbour = c + step - ((size - 1) // 2)
    value = scalar.cast(scalar.load(x, (n, neighbour, *space)), wide)
    inside = scalar.size(neighbour) >= 0
    inside = inside & (scalar.size(neighbour) < scalar.size(channels))
    body = scalar.select(inside, value * value, 0.0)
    squares = make_reduce(x.shape, (size,), "sum", body, wide)
    return cast(cast(x, wide) / power(squares * (alpha / size) + bias, beta), x.dtype)


# -- softmax ----------------------------------------------------------------------------------


def softmax_over(x: Tensor, axes: Sequence[int]) -> Tensor:
    """exp(x) divided by its sum over `axes`."""
    wide = cast(x, accumulator(x.dtype))
    e = exp(wide - wide.max(axes, keepdims=True))
    return cast(e / e.sum(axes, keepdims=True), x.dtype)


def log_softmax_over(x: Tensor, axes: Sequence[int]) -> Tensor:
    """The logarithm of the softmax over `axes`, without taking that of small numbers."""
    wide = cast(x, accumulator(x.dtype))
    shifted = wide - wide.max(axes, keepdims=True)
    return cast(shifted - log(exp(shifted).sum(axes, keepdims=True)), x.dtype)


def hardmax_over(x: Tensor, axes: Sequence[int]) -> Tensor:
    """1 at the first largest element over `axes`, 0 elsewhere."""
    rank = x.rank
    first = first_position(x, tuple(axes))

    def body(*at: Dim) -> Scalar:
        position: Dim = 0
        for axis in axes:
            position = position * x.shape[axis] + at[axis]
        outer = tuple(at[k] for k in range(rank) if k not in axes)
        chosen = scalar.compare("eq", scalar.load(first, outer), scalar.size(position))
        one = scalar.constant(1, x.dtype)
        return scalar.select(chosen, one, scalar.constant(0, x.dtype))

    return compute(x.shape, body)


def first_position(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The row-major position of the first largest element over neighbouring `axes`."""
    shape = tuple(d for k, d in enumerate(x.shape) if k not in axes)
    outer = iter(indices_of(shape))
    extents = (sizes.product(x.shape[a] for a in axes),)
    rest: Dim = reduced_indices(extents)[0]
    at: list[Dim] = [0] * x.rank
    for axis in reversed(axes[1:]):
        at[axis] = integer.modulo(rest, x.shape[axis])
        rest = integer.floordiv(rest, x.shape[axis])
    if axes:
        at[axes[0]] = rest
    for axis in range(x.rank):
        if axis not in axes:
            at[axis] = next(outer)
    return make_reduce(shape, extents, "argmax", scalar.load(x, tuple(at)), dtypes.INT64)


def _register(name: str, over: Callable[[Tensor, Sequence[int]], Tensor]) -> None:
    def flat(x: Tensor, *, axis: int = 1) -> Tensor:
        return over(x, last_axes(x, axis))

    def along(x: Tensor, *, axis: int = -1) -> Tensor:
        return over(x, (normalise_axis(axis, x.rank, name),))

    op(name, 1)(flat)
    op(name, 13)(along)


_register("Softmax", softmax_over)
_register("LogSoftmax", log_softmax_over)
_register("Hardmax", hardmax_over)
