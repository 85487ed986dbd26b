"""Inverses of windows: Col2Im, MaxUnpool."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import contents, with_length
from sardonyx.ops.core.ranges import ranged
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.windows import WindowAttributes, make_window
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_shape,
    cast,
    constant,
    normalise_axis,
    pad,
    reshape,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_call, make_reduce, reduced_indices


@op("Col2Im", 18, flags=("linear",))
def col2im_18(
    x: Tensor,
    image_shape: Tensor,
    block_shape: Tensor,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Columns of blocks, (N, C * taps, blocks), added up to images."""
    if x.rank != 3:
        raise InvalidGraph(message("Col2Im", "Three axes are needed", got=f"rank {x.rank}"))
    image = contents(image_shape, "The shape of the image", 0)
    block = contents(block_shape, "The shape of a block", 1)
    window = make_window("Col2Im", image, block, WindowAttributes(None, strides, pads, dilations))
    batch, columns, count = x.shape
    taps = sizes.product(block)
    channels = integer.floordiv(columns, taps)
    wanted = (batch, channels * taps, sizes.product(window.outputs))
    assume_shape((batch, columns, count), wanted, "Col2Im", "The tensor of columns")
    shape = (batch, channels, *image)
    at, over = indices(shape), reduced_indices(block)
    tap: Dim = 0
    number: Dim = 0
    inside: Scalar | None = None
    for axis, position in enumerate(at[2:]):
        # The tap of block `o` lies at o * stride + tap * dilation - before.
        distance = sizes.total(
            (position, window.before[axis], -over[axis] * window.dilations[axis])
        )
        stride, blocks = window.strides[axis], window.outputs[axis]
        o = integer.floordiv(distance, stride)
        tests = [
            scalar.size(distance) >= 0,
            scalar.size(o) < scalar.size(blocks),
        ]
        if stride != 1:
            rest = integer.modulo(distance, stride)
            tests.append(scalar.compare("eq", scalar.size(rest), 0))
        for test in tests:
            inside = test if inside is None else inside & test
        tap = tap * block[axis] + over[axis]
        number = number * blocks + o
    wide = accumulator(x.dtype)
    row = at[1] * taps + tap
    value = scalar.cast(scalar.load(x, (at[0], row, number)), wide)
    if inside is not None:
        value = scalar.select(inside, value, 0)
    return cast(make_reduce(shape, block, "sum", value, wide), x.dtype)


@op("MaxUnpool", 9, 11, 22)
def max_unpool_9(
    x: Tensor,
    positions: Tensor,
    output_shape: Tensor | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """The largest of windows put back where they were, at flat positions; 0 elsewhere.

    Positions count in the smallest image that has these windows, which lies at the front of a
    larger one if a shape is given.
    """
    where = "MaxUnpool"
    rank = x.rank - 2
    steps, edges = strides or (1,) * rank, pads or (0,) * (2 * rank)
    if rank < 1 or len(kernel_shape) != rank or len(steps) != rank or len(edges) != 2 * rank:
        raise InvalidGraph(message(where, f"Its attributes do not fit {rank} spatial axes"))
    assume_shape(positions.shape, x.shape, where, "The tensor of positions")
    space = [
        sizes.total(((d - 1) * steps[k], kernel_shape[k], -edges[k], -edges[k + rank]))
        for k, d in enumerate(x.shape[2:])
    ]
    inferred = (*x.shape[:2], *space)
    everything = sizes.product(inferred)
    count = sizes.product(x.shape)
    (flat,) = make_call(
        "scatter_elements",
        (
            constant(0, x.dtype, (everything,)),
            ranged(reshape(positions, (count,)), "I", 0, everything - 1),
            reshape(x, (count,)),
        ),
        (((everything,), x.dtype),),
        axis=0,
        reduction="none",
    )
    result = reshape(flat, inferred)
    if output_shape is None:
        return result
    wanted = contents(with_length(output_shape, x.rank, "The shape"), "The shape", 0)
    if len(wanted) != x.rank:
        raise InvalidGraph(message(where, f"A shape of {len(wanted)} sizes for {x.rank} axes"))
    more = [w - d for w, d in zip(wanted, inferred, strict=True)]
    return pad(result, (0,) * x.rank, more)


@op("CenterCropPad", 18, flags=("strings",))
def center_crop_pad_18(x: Tensor, shape: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    """Cut, or filled up with zeros, on both sides alike."""
    chosen = [
        normalise_axis(a, x.rank, "CenterCropPad")
        for a in (range(x.rank) if axes is None else axes)
    ]
    wanted = contents(with_length(shape, len(chosen), "The shape"), "The shape", 0)
    if len(wanted) != len(chosen):
        what = f"{len(wanted)} sizes do not fit {len(chosen)} axes"
        raise InvalidGraph(message("CenterCropPad", what))
    before: list[Dim] = [0] * x.rank
    after: list[Dim] = [0] * x.rank
    for axis, size in zip(chosen, wanted, strict=True):
        more = size - x.shape[axis]
        less = -more
        added = integer.maximum(more, 0) // 2
        cut = integer.maximum(less, 0) // 2
        before[axis] = added - cut
        after[axis] = more - before[axis]
    return pad(x, before, after)
