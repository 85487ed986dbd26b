"""DeformConv: a convolution whose taps read between the elements, where a tensor says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.convolution import add_bias, check_channels, window_of
from sardonyx.ops.onnx.taps import corners, linear_taps, total
from sardonyx.ops.onnx.windows import Window, WindowAttributes
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, accumulator, assume_equal, assume_shape, compute
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_contract, reduced_indices


def _columns(x: Tensor, offset: Tensor, mask: Tensor | None, window: Window, groups: int) -> Tensor:
    """What the taps read: (N, C, taps..., outputs...), zero outside of the image."""
    rank = window.rank
    wide = accumulator(x.dtype)
    per_group = integer.floordiv(x.shape[1], groups)
    shape = (x.shape[0], groups, *window.kernel, *window.outputs)

    def row(group: Dim, tap: Sequence[Dim]) -> Dim:
        for k, extent in zip(tap, window.kernel, strict=True):
            group = group * extent + k
        return group

    def position(axis: int) -> Callable[..., Scalar]:
        def body(n: Dim, group: Dim, *at: Dim) -> Scalar:
            tap, o = at[:rank], at[rank:]
            start = scalar.size(window.positions(o, tap)[axis])
            place = row(group, tap) * rank + axis
            return scalar.cast(start, wide) + scalar.cast(scalar.load(offset, (n, place, *o)), wide)

        return body

    taps = [linear_taps(shape, window.inputs[axis], position(axis)) for axis in range(rank)]

    def body(n: Dim, channel: Dim, *at: Dim) -> Scalar:
        group = integer.floordiv(channel, per_group)
        place = (n, group, *at)
        value = total(corners(x, (n, channel), [(along, place) for along in taps], wide))
        if mask is None:
            return value
        tap, o = at[:rank], at[rank:]
        return value * scalar.cast(scalar.load(mask, (n, row(group, tap), *o)), wide)

    return compute((*x.shape[:2], *window.kernel, *window.outputs), body, x.dtype)


@op("DeformConv", 19, 22)
def deform_conv_19(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    offset_group: int = 1,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Deformable convolution of (N, C, ...) with (M, C / group, ...) (Dai 2017, Zhu 2018)."""
    where = "DeformConv"
    given = WindowAttributes(kernel_shape, strides, pads, dilations)
    window = window_of(where, x, w, given)
    check_channels(x, w, group)
    if offset_group < 1:
        raise InvalidGraph(message(where, f"There are {offset_group} groups of offsets"))
    parts = integer.floordiv(x.shape[1], offset_group) * offset_group
    assume_equal(x.shape[1], parts, where, f"The channels are no {offset_group} equal groups")
    rows = sizes.product(window.kernel) * offset_group
    outer = x.shape[:1]
    wanted = (*outer, rows * window.rank, *window.outputs)
    assume_shape(offset.shape, wanted, where, "The tensor of offsets")
    if mask is not None:
        assume_shape(mask.shape, (*outer, rows, *window.outputs), where, "The mask")
    columns = _columns(x, offset, mask, window, offset_group)
    features, depth = w.shape[:2]
    per_group = integer.floordiv(features, group)
    wide = accumulator(x.dtype)
    shape = (*outer, group, per_group, *window.outputs)
    extents = (*window.kernel, depth)
    (n, g, m, *o), (*taps, inner) = indices(shape), reduced_indices(extents)
    channel = g * depth + inner
    feature = g * per_group + m
    left = scalar.load(columns, (n, channel, *taps, *o))
    right = scalar.load(w, (feature, inner, *taps))
    result = make_contract(shape, extents, left, right, wide, wide)
    return add_bias(result.reshape(*outer, features, *window.outputs), bias, x.dtype)
