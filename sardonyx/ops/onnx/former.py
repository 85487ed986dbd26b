"""Operators that ONNX had before its first release, and onnxruntime still has: Crop, Scale, ..."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import sizes
from sardonyx.base.dtypes import FLOAT, INT64, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.onnx.activation import thresholded_relu_10
from sardonyx.ops.onnx.elementwise import identity_1
from sardonyx.ops.onnx.normalisation import mean_variance_normalization
from sardonyx.ops.onnx.slicing import slice_10
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_at_most,
    assume_equal,
    assume_shape,
    cast,
    compute,
    exp,
    log,
    maximum,
    reshape,
    sigmoid,
    slice_axis,
    tanh,
)
from sardonyx.tensor.scalar import Scalar

# -- element by element -----------------------------------------------------------------------


@op("Affine", 1)
def affine(x: Tensor, *, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    """alpha * x + beta."""
    wide = cast(x, accumulator(x.dtype))
    return cast(wide * alpha + beta, x.dtype)


@op("Scale", 1)
def scale_1(x: Tensor, *, scale: float = 1.0) -> Tensor:
    """scale * x."""
    return affine(x, alpha=scale)


@op("ScaledTanh", 1)
def scaled_tanh(x: Tensor, *, alpha: float, beta: float) -> Tensor:
    """alpha * tanh(beta * x)."""
    wide = cast(x, accumulator(x.dtype))
    return cast(tanh(wide * beta) * alpha, x.dtype)


@op("ParametricSoftplus", 1)
def parametric_softplus(x: Tensor, *, alpha: float, beta: float) -> Tensor:
    """alpha * ln(exp(beta * x) + 1)."""
    wide = cast(x, accumulator(x.dtype)) * beta
    return cast((maximum(wide, 0.0) + log(exp(-abs(wide)) + 1.0)) * alpha, x.dtype)


@op("ThresholdedRelu", 1)
def thresholded_relu_1(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """See version 10."""
    return thresholded_relu_10(x, alpha=alpha)


@op("MemcpyFromHost", 1, flags=("strings", "objects"))
@op("MemcpyToHost", 1, flags=("strings", "objects"))
def memory_copy(x: Tensor) -> Tensor:
    """The same: onnxruntime writes these into models that it saves; here plans place tensors."""
    return identity_1(x)


# -- images -----------------------------------------------------------------------------------


def _check_image(where: str, x: Tensor) -> None:
    if x.rank != 4:  # noqa: PLR2004 - N, C, H, W
        what = "It needs an image of four axes"
        raise InvalidGraph(message(where, what, got=str(list(x.shape))))


@op("Crop", 1)
def crop(x: Tensor, *, border: Sequence[int], scale: Sequence[int] | None = None) -> Tensor:
    """An image (N, C, H, W) without borders (left, top, right, bottom), or `scale` (H, W) of it.

    With a scale the first two borders say where it begins, and the others do not count.
    """
    _check_image("Crop", x)
    if len(border) != 4 or (scale is not None and len(scale) != 2):  # noqa: PLR2004 - see above
        what = "It needs four borders, and two sizes or none"
        raise InvalidGraph(message("Crop", what, got=f"{list(border)}, {scale}"))
    left, top, right, bottom = border
    height, width = x.shape[2:]
    below, behind = height - bottom, width - right
    if scale is not None:
        below, behind = top + scale[0], left + scale[1]
        for axis, end in ((2, below), (3, behind)):
            assume_at_most(end, x.shape[axis], "Crop", f"Axis {axis} is too short")
    return slice_axis(slice_axis(x, 2, top, below), 3, left, behind)


@op("ImageScaler", 1)
def image_scaler(x: Tensor, *, scale: float = 1.0, bias: Sequence[float] = ()) -> Tensor:
    """An image (N, C, H, W) times a number, and for each channel one added."""
    _check_image("ImageScaler", x)
    channels = x.shape[1]
    assume_equal(channels, len(bias), "ImageScaler", "Each channel needs a bias")
    wide = accumulator(x.dtype)

    def added(n: Dim, c: Dim, h: Dim, w: Dim) -> Scalar:
        wider = scalar.cast(scalar.load(x, (n, c, h, w)), wide)
        return wider * scale + _listed(bias, c, wide)

    return compute(x.shape, added, x.dtype)


@op("MeanVarianceNormalization", 1)
def mean_variance_normalization_1(
    x: Tensor, *, across_channels: int = 0, normalize_variance: int = 1
) -> Tensor:
    """Mean 0, and variance 1 if asked for, of each channel of all images, or of all of them."""
    if x.rank < 2:  # noqa: PLR2004 - N, C
        what = "It needs batch and channels"
        raise InvalidGraph(message("MeanVarianceNormalization", what, got=str(list(x.shape))))
    axes = tuple(k for k in range(x.rank) if k != 1 or across_channels)
    if normalize_variance:
        return mean_variance_normalization(x, axes=axes)
    wide = cast(x, accumulator(x.dtype))
    return cast(wide - wide.mean(axes, keepdims=True), x.dtype)


# -- others -----------------------------------------------------------------------------------


@op("DynamicSlice", 1, flags=("strings", "linear"))
def dynamic_slice(x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None) -> Tensor:
    """From `starts` to `ends` along some axes, or all."""
    return slice_10(x, starts, ends, axes)


@op("GivenTensorFill", 1)
def given_tensor_fill(
    shape_of: Tensor | None = None,
    *,
    values: Sequence[float] = (),
    shape: Sequence[int] = (),
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
) -> Tensor:
    """Numbers that the node has, in the shape that it, or an input, says."""
    where = "GivenTensorFill"
    found: tuple[Dim, ...] = tuple(shape)
    if shape_of is not None and input_as_shape:
        found = contents(shape_of if shape_of.dtype.is_integer else cast(shape_of, INT64), where, 0)
    elif shape_of is not None:
        found = shape_of.shape
    found = (*found, *extra_shape)
    what = "Its values do not fill the shape"
    assume_equal(sizes.product(found), len(values), where, what)
    dtype = FLOAT if shape_of is None or shape_of.dtype.is_integer else shape_of.dtype
    filling = compute((len(values),), lambda at: _listed(values, at, FLOAT), dtype)
    return reshape(filling, found)


def _listed(values: Sequence[float], at: Dim, dtype: DType) -> Scalar:
    """One of a few numbers that a node has."""
    found = scalar.constant(0.0, dtype)
    for place, number in enumerate(values):
        here = scalar.compare("eq", scalar.size(at), place)
        found = scalar.select(here, scalar.constant(float(number), dtype), found)
    return found


@op("GRUUnit", 1)
def gru_unit(
    hidden: Tensor, gates: Tensor, lengths: Tensor, step: Tensor, *, drop_states: int = 0
) -> Tensor:
    """One step of a GRU from its gates, as Caffe2 has it; sequences that have ended keep theirs.

    Args:
        hidden: The state before, [1, batch, size] or [batch, size].
        gates: Reset, update and output of each, [1, batch, 3 * size]; reset has been applied.
        lengths: Of the sequences, [batch].
        step: The number of the step.
        drop_states: Whether what has ended gives zeros instead.
    """
    where = "GRUUnit"
    if hidden.rank not in (2, 3) or gates.rank != hidden.rank or lengths.rank != 1:
        what = "It needs states and gates of two or three axes, and lengths of one"
        got = f"{list(hidden.shape)}, {list(gates.shape)}, {list(lengths.shape)}"
        raise InvalidGraph(message(where, what, got=got))
    size = hidden.shape[-1]
    wanted = (*hidden.shape[:-1], size * 3)
    assume_shape(gates.shape, wanted, where, "The tensor of gates")
    assume_equal(lengths.shape[0], hidden.shape[-2], where, "Each sequence needs a length")
    wide = accumulator(hidden.dtype)
    last = gates.rank - 1
    ends = [size * k for k in range(4)]
    update, output = (cast(slice_axis(gates, last, ends[k], ends[k + 1]), wide) for k in (1, 2))
    kept = sigmoid(update)
    before = cast(hidden, wide)
    after = before * kept + tanh(output) * (1.0 - kept)
    now = cast(scalar_of(step, where), INT64)

    def body(*at: Dim) -> Scalar:
        length = scalar.cast(scalar.load(lengths, (at[-2],)), INT64)
        ended = scalar.constant(0.0, wide) if drop_states else scalar.load(before, at)
        return scalar.select(scalar.load(now, ()) < length, scalar.load(after, at), ended)

    return compute(hidden.shape, body, hidden.dtype)
