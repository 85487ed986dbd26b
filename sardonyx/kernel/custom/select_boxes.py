"""Non-maximum suppression: boxes that do not overlap better ones too much (ONNX operator spec).

A class of a batch is a block. Scores that are too low are dropped first; the others become a heap,
from which the best is taken until enough boxes are kept. Those lie in scratch, coordinate by
coordinate, so that a candidate is compared with a vector of them at once.

Loop nest::

    parallel block in 0..B * C:
        for i in 0..N: where scores[block, i] > least: items[left] = (score, i); left += 1
        make a heap of the items
        while found < wanted and left > 0:
            place = best of the heap
            for j in 0..found step lanes: covered |= overlap(box of place, boxes kept[j]) > limit
            where not covered: kept[block, found] = place; found += 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sardonyx.kernel.custom.frame import KernelFrame, volume
from sardonyx.kernel.custom.items import POSITION_BITS, SortedItems, ordered_key
from sardonyx.kernel.custom.task import CustomTask, special
from sardonyx.kernel.language.builder import Register
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import F32, I1, I64

_POSITIONS = (1 << POSITION_BITS) - 1


@special("select_boxes", needs_all=True)
def build_select_boxes(task: CustomTask, symbol: str) -> Kernel:
    """boxes (B, N, 4), scores (B, C, N), limits -> boxes kept (B, C, K), how many (B, C).

    The limits are scalars: how many boxes of a class, the largest overlap, and the score to be
    exceeded if the attribute `scored` says that there is one. Best boxes come first.
    """
    return _SelectBoxes(task, symbol).build()


class _Box(NamedTuple):
    """Lowest and highest first coordinate, those of the second one, and the area."""

    left: Operand
    right: Operand
    low: Operand
    high: Operand
    area: Operand


class _SelectBoxes:
    def __init__(self, task: CustomTask, symbol: str) -> None:
        self.frame = KernelFrame(task, symbol)
        self.b = self.frame.builder
        self.boxes, self.scores, *limits = task.operands
        self.most, self.overlap, self.least = limits
        kept, count = task.outputs
        assert kept is not None and count is not None  # noqa: S101, PT018 - both are read
        self.kept, self.count = kept, count
        self.scored = bool(task.attribute("scored"))
        self.centred = bool(task.attribute("centred"))
        self.lanes = task.lanes
        self.items = SortedItems(self.b, 1)

    def build(self) -> Kernel:
        b, frame = self.b, self.frame
        batches, classes, boxes = self.scores.shape
        slots = self.kept.shape[2] + self.lanes  # vectors may begin at the last box
        frame.dims([slots, boxes])
        limit = frame.load(self.overlap, [])
        least = frame.load(self.least, []) if self.scored else None
        wanted = b.min(frame.load(self.most, []), frame.dim(self.kept.shape[2]))
        items = b.context("scratch")
        first = b.offset(items, frame.dim(boxes), 8)
        columns = [b.offset(first, frame.dim(slots) * k, F32) for k in range(5)]
        with b.parallel() as block:
            at = frame.coordinates(block, (batches, classes))
            left = b.variable(0, I64, name="left")
            with b.if_(wanted > 0):
                self._candidates(at, items, least, left)
                self.items.pile(items, left.get())
            found = b.variable(0, I64, name="found")

            def more() -> Operand:
                lacks = found.get() < wanted
                some = left.get() > 0
                return lacks & some & b.may_go_on()

            with b.while_(more):
                place = self._best(items, left)
                box = self._box(at[0], place)
                with b.if_(~self._is_covered(box, columns, found.get(), limit)):
                    for column, number in zip(columns, box, strict=True):
                        b.store(number, column, found.get())
                    frame.store_raw(self.kept, [*at, found.get()], place)
                    found.set(found.get() + 1)
            frame.store_raw(self.count, at, found.get())
        cost = volume(self.scores.shape) * 3
        scratch = boxes * 8 + slots * 20
        return frame.kernel(volume((batches, classes)), cost, scratch)

    # -- candidates ---------------------------------------------------------------------------

    def _candidates(
        self, at: list[Operand], items: Operand, least: Operand | None, left: Register
    ) -> None:
        """Write the items of the scores that are high enough; the greater, the better."""
        b, frame = self.b, self.frame
        count = frame.dim(self.scores.shape[2])
        whole = b.lift(0, I64)
        if least is not None and self.scores.strides[2] == 1:
            whole = count & -self.lanes
            with b.for_(0, whole, self.lanes) as i:
                several = frame.load(self.scores, [*at, i], self.lanes)
                with b.if_(b.reduce("reduce_or", several > least)):
                    self._taken(at, items, i, i + self.lanes, least, left)
        self._taken(at, items, whole, count, least, left)

    def _taken(
        self,
        at: list[Operand],
        items: Operand,
        low: Operand,
        high: Operand,
        least: Operand | None,
        left: Register,
    ) -> None:
        b = self.b
        with b.for_(low, high) as i:
            score = self.frame.load(self.scores, [*at, i])
            passes = b.value(I1, True) if least is None else score > least
            with b.if_(passes):
                self._take(items, score, i, left)

    def _take(self, items: Operand, score: Operand, i: Operand, left: Register) -> None:
        b = self.b
        key = b.convert(ordered_key(b, score), I64) << POSITION_BITS
        # Of equal scores the one at the lower position is better.
        place = _POSITIONS - i
        self.items.put(items, left.get(), (key | place,))
        left.set(left.get() + 1)

    def _best(self, items: Operand, left: Register) -> Operand:
        """Take the best candidate off the heap; gives its position."""
        zero = self.b.value(I64, 0)
        (best,) = self.items.get(items, zero)
        left.set(left.get() - 1)
        last = self.items.get(items, left.get())
        self.items.sift(items, zero, left.get(), last)
        return _POSITIONS - (best & _POSITIONS)

    # -- overlaps -----------------------------------------------------------------------------

    def _box(self, batch: Operand, place: Operand) -> _Box:
        b, frame = self.b, self.frame
        given = [frame.load(self.boxes, [batch, place, b.value(I64, k)]) for k in range(4)]
        if self.centred:
            x, y, width, height = given
            half_x, half_y = (v * b.value(F32, 0.5) for v in (width, height))
            corners = [
                x - half_x, x + half_x,
                y - half_y, y + half_y,
            ]  # fmt: skip
        else:
            pairs = ((given[0], given[2]), (given[1], given[3]))
            corners = [b.binary(op, *pair) for pair in pairs for op in ("min", "max")]
        sides = [self._extent(corners[0], corners[1]), self._extent(corners[2], corners[3])]
        return _Box._make((*corners, b.binary("mul", *sides)))

    def _is_covered(
        self, box: _Box, columns: Sequence[Operand], count: Operand, limit: Operand
    ) -> Operand:
        """Whether the box overlaps one of the first `count` boxes that are kept too much."""
        b, lanes = self.b, self.lanes
        covered, at = b.variable(False, I1, name="covered"), b.variable(0, I64, name="compared")

        def going() -> Operand:
            rest = at.get() < count
            return rest & ~covered.get()

        with b.while_(going):
            i = at.get()
            several = F32.with_lanes(lanes)
            others = _Box._make(b.load(several, c, i, align_bytes=4) for c in columns)
            too_much = self._overlaps(box, others, limit)
            valid = b.tail_mask(count - i, lanes)
            covered.set(b.reduce("reduce_or", too_much & valid))
            at.set(i + lanes)
        return covered.get()

    def _extent(self, low: Operand, high: Operand) -> Operand:
        return self.b.max(high - low, 0.0)

    def _overlaps(self, one: _Box, others: _Box, limit: Operand) -> Operand:
        """Whether intersections, as parts of unions, exceed the limit."""
        b = self.b
        across = self._extent(b.max(others.left, one.left), b.min(others.right, one.right))
        along = self._extent(b.max(others.low, one.low), b.min(others.high, one.high))
        shared = across * along
        union = others.area + one.area - shared
        # Without a union there is nothing to divide by, and nothing overlaps.
        some = shared > 0.0
        return (shared / union > limit) & some


@special("list_boxes")
def build_list_boxes(task: CustomTask, symbol: str) -> Kernel:
    """boxes kept (B, C, K), how many (B, C) -> rows of batch, class, box (M, 3); in one block."""
    frame = KernelFrame(task, symbol)
    b, (kept, count) = frame.builder, task.operands
    rows = task.outputs[0]
    assert rows is not None  # noqa: S101 - a kernel without result is never planned
    batches, classes, _ = kept.shape
    with b.parallel() as _block:
        row, capacity = b.variable(0, I64, name="row"), frame.dim(rows.shape[0])
        with b.for_(0, frame.dim(batches)) as batch, b.for_(0, frame.dim(classes)) as kind:
            own = b.min(frame.load_raw(count, [batch, kind]), capacity - row.get())
            with b.for_(0, own) as i:
                box = frame.load_raw(kept, [batch, kind, i])
                for number, value in enumerate((batch, kind, box)):
                    frame.store_raw(rows, [row.get(), b.value(I64, number)], value)
                row.set(row.get() + 1)
    cost = volume(count.shape) * 2 + rows.shape[0] * 4
    return frame.kernel(1, cost)
