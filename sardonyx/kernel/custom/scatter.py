"""Copies of a tensor with some elements replaced (ONNX operator spec: Scatter*).

Every block owns a part of the result, copies it, then applies in order the updates that fall into
it: no two blocks write the same element, so results do not depend on the number of threads.

Loop nest::

    parallel block in 0..blocks:
        y[start..end] = x[start..end]
        for which in updates:
            flat = place of positions[which]
            where start <= flat < end: y[flat] = reduction(y[flat], updates[which])
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer
from sardonyx.base.sizes import Dim
from sardonyx.kernel.custom.frame import KernelFrame, volume
from sardonyx.kernel.custom.lines import Element, Line, combine, copy_line
from sardonyx.kernel.custom.task import CustomTask, View, special
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I64
from sardonyx.plan.layout import row_major

#: Elements of the last axis that a block of scatter_elements owns, if it scatters along another.
_CHUNK = 512
#: Elements that a block of scatter_nd owns at least.
_PART = 1 << 16


@special("scatter_elements")
def build_scatter_elements(task: CustomTask, symbol: str) -> Kernel:
    """x, int64 positions, updates; axis, reduction -> y like x.

    A block is one index of every axis but two: all of `axis`, and a piece of the last axis.
    """
    x, positions, updates = task.operands
    y = _result(task)
    rank = len(x.shape)
    axis = task.integer("axis") % rank
    reduction = str(task.attribute("reduction", "none"))
    frame = KernelFrame(task, symbol)
    b = frame.builder
    lead_axes = [a for a in range(rank - 1) if a != axis]
    chunks: Dim = 1 if axis == rank - 1 else integer.ceildiv(x.shape[-1], _CHUNK)
    block_shape = (*(x.shape[a] for a in lead_axes), chunks)
    length, count, width, touched = map(
        frame.dim, (x.shape[axis], positions.shape[axis], x.shape[-1], positions.shape[-1])
    )
    frame.dims((*block_shape, *positions.shape))
    with b.parallel() as block:
        *lead, chunk = frame.coordinates(block, block_shape)
        coordinates: list[Operand] = [b.value(I64, 0)] * rank
        inside: Operand = block >= 0
        for a, coordinate in zip(lead_axes, lead, strict=True):
            coordinates[a] = coordinate
            within = coordinate < frame.dim(positions.shape[a])
            inside = inside & within

        def at(place: Operand, column: Operand | None = None) -> list[Operand]:
            found = list(coordinates)
            if column is not None:
                found[-1] = column
            found[axis] = place
            return found

        def update(i: Operand, column: Operand | None) -> None:
            place, valid = frame.checked(frame.load(positions, at(i, column)), length)
            with b.if_(valid):
                target, source = Element(y, at(place, column)), Element(updates, at(i, column))
                combine(frame, target, source, reduction)

        if axis == rank - 1:
            copy_line(frame, Line(y, coordinates), Line(x, coordinates), 0, width, "none")
            with b.if_(inside), b.for_(0, count) as i:
                update(i, None)
        else:
            low = chunk * _CHUNK
            high = b.min(low + _CHUNK, width)
            with b.for_(0, length) as i:
                copy_line(frame, Line(y, at(i)), Line(x, at(i)), low, high, "none")
            last = b.min(high, touched)
            with b.if_(inside), b.for_(0, count) as i, b.for_(low, last) as column:
                update(i, column)
    cost = volume(x.shape) + volume(positions.shape) * 3
    return frame.kernel(volume(block_shape), integer.ceildiv(cost, 2))


@special("scatter_nd")
def build_scatter_nd(task: CustomTask, symbol: str) -> Kernel:
    """x, int64 positions (..., depth), updates; depth, reduction -> y like x."""
    return _ScatterND(task, symbol).build()


class _ScatterND:
    """A block owns slices of consecutive index tuples, and looks at all updates.

    The more updates there are, the more a block owns: looking at them costs no more than copying.
    """

    def __init__(self, task: CustomTask, symbol: str) -> None:
        self.x, self.positions, self.updates = task.operands
        self.y = _result(task)
        depth = task.integer("depth")
        self.reduction = str(task.attribute("reduction", "none"))
        self.frame = KernelFrame(task, symbol)
        self.b = self.frame.builder
        self.outer, self.slice = self.x.shape[:depth], self.x.shape[depth:]
        self.count = volume(self.positions.shape[:-1])

    def build(self) -> Kernel:
        b, frame = self.b, self.frame
        everything = volume(self.x.shape)
        owned = _PART + self.count * 4
        # One block at least, so that positions in a tensor of no elements are still checked.
        blocks = integer.maximum(1, integer.ceildiv(everything, owned))
        tuples = frame.dim(volume(self.outer))
        parts = frame.dim(blocks)
        frame.dims((*self.x.shape, *self.positions.shape, volume(self.slice)))
        with b.parallel() as block:
            start = block * tuples // parts
            following = (block + 1) * tuples
            end = following // parts
            self._copy(start, end)
            for which in frame.loops(self.positions.shape[:-1]):
                target, flat, valid = self._target(which)
                mine = (flat >= start) & (flat < end)
                with b.if_(valid & mine):
                    self._apply(target, which)
        cost = self.count * 4 + volume(self.updates.shape)
        return frame.kernel(blocks, integer.ceildiv(everything + cost, 2))

    def _copy(self, start: Operand, end: Operand) -> None:
        """Copy the slices from number `start` to `end`."""
        b, frame, x, y = self.b, self.frame, self.x, self.y
        if row_major(x.shape) == x.strides == y.strides and x.shape:
            inside = frame.dim(volume(self.slice))
            flat = [View(v.buffer, v.dtype, (volume(v.shape),), (1,), v.offset) for v in (x, y)]
            source, target = (Line(v, [start]) for v in flat)
            low, high = (n * inside for n in (start, end))
            copy_line(frame, target, source, low, high, "none")
            return
        with b.for_(start, end) as flat_tuple:
            outer = frame.coordinates(flat_tuple, self.outer)
            for rest in frame.loops(self.slice):
                at = [*outer, *rest]
                combine(frame, Element(y, at), Element(x, at), "none")

    def _target(self, which: Sequence[Operand]) -> tuple[list[Operand], Operand, Operand]:
        """The index tuple of an update, its number, and whether it is inside the tensor."""
        b, frame = self.b, self.frame
        target: list[Operand] = []
        flat: Operand = b.value(I64, 0)
        valid: Operand = flat >= 0
        for k, extent in enumerate(map(frame.dim, self.outer)):
            index = frame.load(self.positions, [*which, b.value(I64, k)])
            moved, inside = frame.checked(index, extent)
            target.append(moved)
            flat = flat * extent + moved
            valid = valid & inside
        return target, flat, valid

    def _apply(self, target: list[Operand], which: list[Operand]) -> None:
        frame, y, updates = self.frame, self.y, self.updates
        if not self.slice:
            combine(frame, Element(y, target), Element(updates, which), self.reduction)
            return
        zero, width = self.b.value(I64, 0), frame.dim(self.slice[-1])
        for rest in frame.loops(self.slice[:-1]):
            to = Line(y, [*target, *rest, zero])
            copy_line(frame, to, Line(updates, [*which, *rest, zero]), 0, width, self.reduction)


def _result(task: CustomTask) -> View:
    result = task.outputs[0]
    assert result is not None  # noqa: S101 - a kernel without result is never planned
    return result
