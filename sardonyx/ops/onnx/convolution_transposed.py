"""ConvTranspose: an image spread by strides, as one contraction over taps and channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.base import integer
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.convolution import add_bias, check_kernel_shape
from sardonyx.ops.onnx.windows import check_counts
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_equal,
    cast,
    compute,
    reshape,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import (
    Buffer,
    Shape,
    indices,
    make_contract,
    make_reduce,
    reduced_indices,
)


@op("ConvTranspose", 1, 11, 22)
def conv_transpose(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """What has Conv as its gradient: (N, C, ...) with (C, M / group, ...)."""
    rank = x.rank - 2
    if rank < 1 or w.rank != x.rank:
        raise InvalidGraph(
            message("ConvTranspose", f"Ranks {x.rank} and {w.rank} of image and weight do not fit")
        )
    for name, given, count in (
        ("strides", strides, rank),
        ("dilations", dilations, rank),
        ("output_padding", output_padding, rank),
        ("pads", pads, 2 * rank),
    ):
        if given and (len(given) != count or (count == rank and min(given) < 0)):
            raise InvalidGraph(
                message("ConvTranspose", f"Its {name} do not fit", expected=f"{count} items")
            )
    check_kernel_shape("ConvTranspose", kernel_shape, w.shape[2:])
    if output_shape and len(output_shape) not in (rank, x.rank):
        what = "Its output_shape does not fit"
        raise InvalidGraph(message("ConvTranspose", what, expected=f"{rank} items"))
    check_counts("ConvTranspose", strides=strides or (), dilations=dilations or ())
    axes = [
        _TransposedAxis(length, taps, step, apart)
        for length, taps, step, apart in zip(
            x.shape[2:],
            w.shape[2:],
            strides or (1,) * rank,
            dilations or (1,) * rank,
            strict=True,
        )
    ]
    extra = output_padding or (0,) * rank
    edges = pads or (0,) * (2 * rank)
    for k, axis in enumerate(axes):
        wanted = output_shape[len(output_shape) - rank + k] if output_shape else None
        axis.place(extra[k], edges[k], edges[rank + k], auto_pad, wanted)
    dtype = x.dtype if bias is None else accumulator(x.dtype)
    return add_bias(_transposed(x, w, axes, group, dtype), bias, x.dtype)


class _TransposedAxis:
    """One spatial axis of a transposed convolution, in one of three forms.

    The output element o gathers the taps k and inputs i where o + before is
    i * stride + k * dilation.

    - stride 1: i = o + before - k, for every tap.
    - dilation 1: o + before = stride * q + p. The taps of phase p are k = stride * t + p, and
      i = q - t: no tap is visited in vain (but the last, where stride does not divide the taps).
    - otherwise: every tap, on condition that stride divides o + before - k * dilation.
    """

    def __init__(self, length: Dim, taps: Dim, stride: int, dilation: int) -> None:
        self.length, self.taps, self.stride, self.dilation = length, taps, stride, dilation
        self.phased = stride > 1 and dilation == 1
        self.before: Dim = 0
        self.output: Dim = 0

    def place(self, extra: int, low: int, high: int, auto_pad: str, wanted: int | None) -> None:
        """Set padding and output size from the attributes."""
        full = (self.length - 1) * self.stride + (self.taps - 1) * self.dilation + 1 + extra
        target: Dim | None = wanted
        if target is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            target = self.length * self.stride
        if target is None:
            self.before = 0 if auto_pad == "VALID" else low
            self.output = full - self.before - (0 if auto_pad == "VALID" else high)
            return
        total = integer.maximum(full - target, 0)
        half = total // 2
        self.before = half if auto_pad == "SAME_UPPER" else total - half
        # Padding cannot be negative: without a size that is asked for, the output stays shorter.
        self.output = full - total if wanted is None else target

    @property
    def first(self) -> Dim:
        """The first block q of outputs, of the phased form."""
        return integer.floordiv(self.before, self.stride)

    @property
    def shape(self) -> Shape:
        """Extents of the contraction's axes for this one."""
        if not self.phased:
            return (self.output,)
        last = integer.floordiv(self.output + self.before - 1, self.stride)
        return (last - self.first + 1, self.stride)

    @property
    def steps(self) -> Dim:
        """Taps that one output gathers."""
        return integer.ceildiv(self.taps, self.stride) if self.phased else self.taps

    def source(self, at: Sequence[Dim], step: Dim) -> tuple[Dim, Dim, list[Scalar]]:
        """(input, tap, conditions) for an output of the contraction and one of its steps."""
        tests = []
        if self.phased:
            tap = step * self.stride + at[1]
            position = at[0] + self.first - step
            if not isinstance(self.taps, int) or self.taps % self.stride:
                tests.append(scalar.size(tap) < scalar.size(self.taps))
        else:
            tap = step
            distance = at[0] + self.before - step * self.dilation
            position = integer.floordiv(distance, self.stride)
            if self.stride > 1:
                rest = scalar.size(integer.modulo(distance, self.stride))
                tests.append(scalar.compare("eq", rest, 0))
        tests.append(scalar.size(position) >= 0)
        tests.append(scalar.size(position) < scalar.size(self.length))
        return position, tap, [t for t in tests if t.op != "constant" or not t.payload]

    def result(self, o: Dim) -> Shape:
        """Where the contraction has the output element `o`."""
        if not self.phased:
            return (o,)
        moved = o + self.before
        return integer.floordiv(moved, self.stride) - self.first, integer.modulo(moved, self.stride)


def _transposed(
    x: Tensor, w: Tensor, axes: list[_TransposedAxis], groups: int, dtype: DType
) -> Tensor:
    batch, channels = x.shape[:2]
    if groups < 1:
        raise InvalidGraph(message("ConvTranspose", f"There are {groups} groups"))
    depth, per_group = integer.floordiv(channels, groups), w.shape[1]
    assume_equal(channels, w.shape[0], "ConvTranspose", "The channels of image and weight differ")
    if isinstance(channels, int) and channels % groups:
        raise InvalidGraph(
            message("ConvTranspose", f"{channels} channels are not {groups} equal groups")
        )
    head: Shape = (batch, groups, per_group) if groups > 1 else (batch, per_group)
    shape = head + tuple(d for axis in axes for d in axis.shape)
    extents = (*[axis.steps for axis in axes], depth)
    at, over = indices(shape), reduced_indices(extents)
    inner = over[-1]
    channel = at[1] * depth + inner if groups > 1 else inner
    positions, taps, condition = [], [], None
    begin = len(head)
    for axis, step in zip(axes, over[:-1], strict=True):
        position, tap, tests = axis.source(at[begin : begin + len(axis.shape)], step)
        begin += len(axis.shape)
        positions.append(position)
        taps.append(tap)
        for test in tests:
            condition = test if condition is None else condition & test
    left = scalar.load(x, (at[0], channel, *positions))
    right = scalar.load(w, (channel, at[len(head) - 1], *taps))
    if condition is not None and _has_infinities(w):
        # What meets a product with 0 would be no number.
        wide = accumulator(dtype)
        products = scalar.cast(left, wide) * scalar.cast(right, wide)
        chosen = scalar.select(condition, products, 0)
        result = cast(make_reduce(shape, extents, "sum", chosen, wide), dtype)
    else:
        if condition is not None:
            left, right = scalar.select(condition, left, 0), _guarded(right, axes, taps)
        result = make_contract(shape, extents, left, right, dtype, accumulator(dtype))
    final = (batch, per_group * groups, *[axis.output for axis in axes])
    if not any(axis.phased for axis in axes):
        return reshape(result, final)
    if all(_aligned(axis) for axis in axes):
        return reshape(result, final)

    def body(*o: Dim) -> Scalar:
        front = o[:1] if groups == 1 else (o[0], integer.floordiv(o[1], per_group))
        feature = o[1] if groups == 1 else integer.modulo(o[1], per_group)
        space = (p for axis, k in zip(axes, o[2:], strict=True) for p in axis.result(k))
        return scalar.load(result, (*front, feature, *space))

    return compute(final, body)


def _has_infinities(w: Tensor) -> bool:
    """Whether constant weights are known not to be all finite."""
    if not isinstance(w, Buffer) or not isinstance(w.constant, Constant) or not w.dtype.is_float:
        return False
    if not w.constant.has_data:
        return False
    return not bool(np.isfinite(w.constant.array().astype(np.float32)).all())


def _aligned(axis: _TransposedAxis) -> bool:
    """Whether blocks and phases side by side are exactly the output."""
    if not axis.phased:
        return True
    blocks = integer.known_equal(axis.shape[0] * axis.stride, axis.output)
    return bool(blocks) and integer.modulo(axis.before, axis.stride) == 0


def _guarded(right: Scalar, axes: list[_TransposedAxis], taps: list[Dim]) -> Scalar:
    """The weight's element, or 0 where a phase has no such tap."""
    for axis, tap in zip(axes, taps, strict=True):
        if axis.phased and (not isinstance(axis.taps, int) or axis.taps % axis.stride):
            exists = scalar.size(tap) < scalar.size(axis.taps)
            right = scalar.select(exists, right, 0)
    return right
