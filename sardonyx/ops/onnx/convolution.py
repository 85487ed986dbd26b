"""Convolutions and their transposes: one contraction over window taps and channels each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import dtypes, integer
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.quantise import is_zero
from sardonyx.ops.onnx.windows import Window, WindowAttributes, make_window
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_equal,
    assume_shape,
    cast,
    compute,
    reshape,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Shape, indices, make_contract, reduced_indices

#: What is done to an element of the image (or of the weight) before it is multiplied.
Prepare = Callable[[Scalar], Scalar]


def convolve(
    x: Tensor,
    w: Tensor,
    window: Window,
    groups: int,
    dtype: DType,
    *,
    left: Prepare = lambda e: e,
    right: Callable[[Scalar, Dim], Scalar] = lambda e, _: e,
) -> Tensor:
    """The sums of products, (N, M, ...) in `dtype`, without a bias.

    Args:
        x: (N, C, ...).
        w: (M, C / groups, taps...).
        window: How the taps lie on the image.
        groups: Into how many groups both kinds of channels fall.
        dtype: Type of the result; sums are kept in it, or in float if it is a half float.
        left: Makes factors of elements of `x`; the padding stays 0.
        right: Makes factors of elements of `w`, given the output channel.
    """
    batch, channels = x.shape[:2]
    features, depth = w.shape[:2]
    check_channels(x, w, groups)
    window, skipped = window.cropped()
    depthwise = groups > 1 and depth == 1
    grouped = groups > 1 and not depthwise
    per_group = integer.floordiv(features, groups)
    outer: Shape = (batch, groups, per_group) if grouped else (batch, features)
    extents: Shape = window.kernel if depthwise else (*window.kernel, depth)
    shape = (*outer, *window.outputs)
    at, over = indices(shape), reduced_indices(extents)
    space, taps = at[len(outer) :], over[: window.rank]
    inner: Dim = 0 if depthwise else over[window.rank]
    if grouped:
        feature, channel = at[1] * per_group + at[2], at[1] * depth + inner
    else:
        feature, channel = at[1], inner
        if depthwise:
            channel = integer.floordiv(feature, per_group)
    positions = window.positions(space, taps)
    factor = left(scalar.load(x, (at[0], channel, *positions)))
    inside = window.inside(positions)
    if inside is not None:
        factor = scalar.select(inside, factor, 0)
    moved = (tap + first for tap, first in zip(taps, skipped, strict=True))
    other = right(scalar.load(w, (feature, inner, *moved)), feature)
    result = make_contract(shape, extents, factor, other, dtype, accumulator(dtype))
    return reshape(result, (batch, features, *window.outputs)) if grouped else result


def check_channels(x: Tensor, w: Tensor, groups: int) -> None:
    """Refuse channels that do not fall into groups, or weights of other channels.

    Raises:
        InvalidGraph: They do not fit.
    """
    channels, features, depth = x.shape[1], w.shape[0], w.shape[1]
    if groups < 1:
        raise InvalidGraph(message("convolution", f"There are {groups} groups"))
    assume_equal(channels, depth * groups, "convolution", "The channels of image and weight differ")
    if isinstance(features, int) and features % groups:
        raise InvalidGraph(
            message("convolution", f"{features} output channels are not {groups} equal groups")
        )


def add_bias(x: Tensor, bias: Tensor | None, dtype: DType) -> Tensor:
    """`x`, (N, M, ...), with one number added per channel, in the type `dtype`."""
    if bias is None:
        return cast(x, dtype)
    assume_shape(bias.shape, x.shape[1:2], "convolution", "The bias")

    def body(*at: Dim) -> Scalar:
        value = scalar.load(x, at)
        return value + scalar.cast(scalar.load(bias, (at[1],)), x.dtype)

    return compute(x.shape, body, dtype)


def check_kernel_shape(where: str, given: Sequence[int] | None, taps: Shape) -> None:
    """Take the attribute, if it is given, as the weight's own sizes.

    Raises:
        InvalidGraph: It is not.
    """
    if given:
        assume_shape(taps, given, where, "The weight, whose taps kernel_shape tells,")


def window_of(
    where: str,
    x: Tensor,
    w: Tensor,
    given: WindowAttributes,
) -> Window:
    """The window that a convolution's attributes describe."""
    if x.rank < 3 or w.rank != x.rank:
        raise InvalidGraph(
            message(where, f"An image of rank {x.rank} and a weight of rank {w.rank} do not fit")
        )
    taps = w.shape[2:]
    check_kernel_shape(where, given.kernel_shape, taps)
    return make_window(where, x.shape[2:], taps, given)


@op("Conv", 1, 11, 22)
def conv(
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
    """Convolution of (N, C, ...) with (M, C / group, ...)."""
    given = WindowAttributes(kernel_shape, strides, pads, dilations, auto_pad)
    window = window_of("Conv", x, w, given)
    dtype = x.dtype if bias is None else accumulator(x.dtype)
    return add_bias(convolve(x, w, window, group, dtype), bias, x.dtype)


# -- integers ---------------------------------------------------------------------------------


def less_zero_point(e: Scalar, zero: Tensor | None, channel: Dim | None = None) -> Scalar:
    """An 8-bit element as int32, less its zero point: one number, or one per `channel`."""
    wide = scalar.cast(e, dtypes.INT32)
    if zero is None or is_zero(zero):
        return wide
    if zero.rank == 0:
        point = scalar.load(zero, ())
    else:
        per_channel = zero.shape[0] != 1 and channel is not None
        point = scalar.load(zero, (channel if per_channel else 0,))  # type: ignore[arg-type]  # `per_channel` says that it is not None
    return wide - scalar.cast(point, dtypes.INT32)


def convolve_integers(
    x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None, window: Window, groups: int
) -> Tensor:
    """The int32 sums of products of 8-bit elements less their zero points."""
    for zero, count, what in ((x_zero, 1, "image"), (w_zero, w.shape[0], "weight")):
        if zero is not None and zero.rank and zero.shape[0] != 1:
            assume_shape(zero.shape, (count,), "convolution", f"The zero point of the {what}")
    return convolve(
        x,
        w,
        window,
        groups,
        dtypes.INT32,
        left=lambda e: less_zero_point(e, x_zero),
        right=lambda e, feature: less_zero_point(e, w_zero, feature),
    )


@op("ConvInteger", 10)
def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Convolution of 8-bit integers into int32."""
    given = WindowAttributes(kernel_shape, strides, pads, dilations, auto_pad)
    window = window_of("ConvInteger", x, w, given)
    return convolve_integers(x, w, x_zero, w_zero, window, group)
