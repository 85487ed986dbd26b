"""Images, normalisations and what cannot run, of onnxruntime's own domain."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import dtypes, errors, integer
from sardonyx.base.dtypes import INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.qlinear import channels_first, channels_last
from sardonyx.ops.core.contents import integers
from sardonyx.ops.core.ranges import row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.onnx.convolution import conv
from sardonyx.ops.onnx.normalisation import group_norm, softmax_over
from sardonyx.ops.onnx.pooling import max_pool
from sardonyx.ops.onnx.random import dropout_12
from sardonyx.ops.onnx.sampling import grid_sample
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_shape,
    cast,
    compute,
    normalise_axis,
    reshape,
    sigmoid,
    sqrt,
    unsqueeze,
)
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"


# -- models that other devices run ------------------------------------------------------------


@op("EPContext", 1, domain=DOMAIN, flags=("strings", "objects"))
def ep_context(
    *inputs: Tensor,
    embed_mode: int = 1,
    ep_cache_context: str = "",
    ep_sdk_version: str = "",
    hardware_architecture: str = "",
    main_context: int = 1,
    max_size: int = 0,
    notes: str = "",
    onnx_model_filename: str = "",
    partition_name: str = "",
    source: str = "",
) -> Tensor:
    """Refused: what it holds is machine code of another provider.

    Raises:
        NotImplemented: Always.
    """
    who = f" by {source}" if source else ""
    what = f"It holds a part of a model that was compiled{who} for one device, and nothing else"
    do = "Load the ONNX model that it was made from"
    if onnx_model_filename:
        do += f", {onnx_model_filename}"
    raise errors.NotImplemented(message("EPContext", what, do=do))


# -- additions and normalisations -------------------------------------------------------------


@op("BiasAdd", 1, domain=DOMAIN)
def bias_add(x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """The sum of (N, S, C), (C) and (N, S, C)."""
    return x + bias + skip


@op("SkipGroupNorm", 1, domain=DOMAIN)
def skip_group_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    skip: Tensor,
    bias: Tensor | None = None,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Group normalisation of a sum, and SiLU if `activation` is 1; also gives the sum."""
    last = x.rank - 1
    space = tuple(range(1, last)) if channels_last else tuple(range(2, x.rank))
    total = x + (unsqueeze(skip, space) if skip.rank == 2 else skip)
    if bias is not None:
        total = total + (bias if channels_last else unsqueeze(bias, tuple(range(1, last))))
    first = channels_first(total) if channels_last else total
    result = group_norm(first, gamma, beta, groups, epsilon, per_group=False)
    if activation:
        wide = cast(result, accumulator(x.dtype))
        result = cast(wide * sigmoid(wide), x.dtype)
    return (_last(result) if channels_last else result), total


_last = channels_last  # under a name that no attribute has


@op("BiasSoftmax", 1, domain=DOMAIN)
def bias_softmax(x: Tensor, bias: Tensor, *, is_inner_broadcast: int, axis: int = 1) -> Tensor:
    """Softmax of a sum over the axes from `axis` on."""
    first = normalise_axis(axis, x.rank, "BiasSoftmax")
    return softmax_over(x + bias, tuple(range(first, x.rank)))


@op("BiasDropout", 1, domain=DOMAIN)
def bias_dropout(
    x: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    ratio: Tensor | None = None,
    training: Tensor | None = None,
    *,
    seed: int | None = None,
    scope: Scope,
) -> tuple[Tensor, Tensor]:
    """Dropout of a sum, and a further summand."""
    result, kept = dropout_12(x + bias, ratio, training, seed=seed, scope=scope)
    return (result if residual is None else result + residual), kept


@op("GatedRMSNorm", 1, domain=DOMAIN)
def gated_rms_norm(
    x: Tensor, scale: Tensor, gate: Tensor, *, activation: str = "silu", epsilon: float = 1e-5
) -> Tensor:
    """Groups along the last axis by their root mean square, times a function of the gate."""
    if activation not in ("silu", "swish", "sigmoid"):
        what = "Bad activation"
        raise InvalidGraph(
            message("GatedRMSNorm", what, expected="silu, swish or sigmoid", got=activation)
        )
    assume_shape(gate.shape, x.shape, "GatedRMSNorm", "The gate")
    width = scale.shape[0]
    count = integer.floordiv(x.shape[-1], width)
    wide = cast(reshape(x, (*x.shape[:-1], count, width)), dtypes.FLOAT)
    mean_square = (wide * wide).mean(-1, keepdims=True)
    normal = wide / sqrt(mean_square + epsilon) * cast(scale, dtypes.FLOAT)
    z = cast(gate, dtypes.FLOAT)
    factor = sigmoid(z) if activation == "sigmoid" else z * sigmoid(z)
    return cast(reshape(normal, x.shape) * factor, x.dtype)


# -- images -----------------------------------------------------------------------------------


@op("NhwcConv", 1, domain=DOMAIN)
def nhwc_conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Convolution with channels last, those of the weight (M, ..., C / group) too."""
    result = conv(
        channels_first(x), channels_first(w), bias, auto_pad=auto_pad, dilations=dilations,
        group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return channels_last(result)


@op("NhwcMaxPool", 1, domain=DOMAIN)
def nhwc_max_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """The largest of every window of an image with channels last."""
    result, _ = max_pool(
        channels_first(x), kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode,
        dilations=dilations, pads=pads, strides=strides,
    )  # fmt: skip
    return channels_last(result)


@op("GridSample", 1, domain=DOMAIN)
def grid_sample_contrib(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Tensor:
    """ONNX's GridSample as it was before it was ONNX's."""
    return grid_sample(x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@op("CropAndResize", 1, domain=DOMAIN)
def crop_and_resize(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    crop_size: Tensor,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Tensor:
    """Boxes (y1, x1, y2, x2), from 0 to 1, of images (N, C, H, W), all brought to one size."""
    if mode not in ("bilinear", "nearest"):
        raise InvalidGraph(
            message("CropAndResize", "Bad mode", expected="bilinear or nearest", got=mode)
        )
    assume_shape(rois.shape, (batch_indices.shape[0], 4), "CropAndResize", "The tensor of boxes")
    crop = integers(crop_size, "The size of crops")
    images, image = x.shape[0], x.shape[2:]

    def place(roi: Dim, axis: int, at: Dim) -> Scalar:
        low, high = (scalar.load(rois, (roi, axis + part)) for part in (0, 2))
        last = scalar.cast(scalar.size(image[axis] - 1), x.dtype)
        if crop[axis] == 1:
            return (low + high) * 0.5 * last
        step = (high - low) * last / float(crop[axis] - 1)
        return low * last + scalar.cast(scalar.size(at), x.dtype) * step

    def index(value: Scalar, axis: int) -> Dim:
        extent = image[axis]
        whole = scalar.cast(value, INT64)
        inner = scalar.binary("max", scalar.binary("min", whole, scalar.size(extent - 1)), 0)
        return scalar.as_index(inner, extent)

    def body(roi: Dim, channel: Dim, i: Dim, j: Dim) -> Scalar:
        batch = row_in(scalar.load(batch_indices, (roi,)), "batch_indices", images)
        y, z = place(roi, 0, i), place(roi, 1, j)
        inside: Scalar | None = None
        for value, extent in ((y, image[0]), (z, image[1])):
            last = scalar.cast(scalar.size(extent - 1), x.dtype)
            here = (value >= 0.0) & (value <= last)
            inside = here if inside is None else inside & here

        def pixel(row: Scalar, column: Scalar) -> Scalar:
            return scalar.load(x, (batch, channel, index(row, 0), index(column, 1)))

        if mode == "nearest":
            found = pixel(_half_up(y), _half_up(z))
        else:
            top, left = scalar.unary("floor", y), scalar.unary("floor", z)
            bottom, right = scalar.unary("ceil", y), scalar.unary("ceil", z)
            above = pixel(top, left) + (pixel(top, right) - pixel(top, left)) * (z - left)
            below = pixel(bottom, left) + (pixel(bottom, right) - pixel(bottom, left)) * (z - left)
            found = above + (below - above) * (y - top)
        assert inside is not None  # noqa: S101 - narrows the type for the checker
        return scalar.select(inside, found, extrapolation_value)

    return compute((rois.shape[0], x.shape[1], *crop), body)


def _half_up(x: Scalar) -> Scalar:
    return scalar.unary("floor", x + 0.5)
