"""The k largest (or smallest) of each row, in order (ONNX operator spec: TopK).

Every element becomes an item: whole numbers that are compared in order, the lower the better, the
position last, so that no two items are equal and of equal values the one at the lower position
wins. Values of at most 32 bits and their position share one number. As in NumPy a NaN is above
every number, and -0.0 equals 0.0.

If k is a small part of the row, a heap keeps the best k, the worst of them on top; else all items
are taken. Where floats lie side by side a vector of them is compared with the worst at once: few
get into the heap, and of equal values the first has the better place. A merge sort orders what was
taken: O(n log k) in all. `sorted` is not needed.

Loop nest::

    parallel row in 0..rows:
        for i in 0..n: items[i] = item of x[row, i]       # where n <= _WHOLE * k
        for i in k..n step lanes:                         # else: a heap of the best k
            where any of x[row, i : i + lanes] is better than the worst: offer each
        for width in 1, 2, 4 .. count: merge runs of `width` items
        for i in 0..k: values[row, i], positions[row, i] = items[i]
"""

from __future__ import annotations

from sardonyx.base import integer
from sardonyx.kernel.custom.frame import KernelFrame, volume, without
from sardonyx.kernel.custom.items import (
    POSITION_BITS,
    Item,
    Loop,
    MergedRuns,
    SortedItems,
    merge_sort,
    ordered_key,
)
from sardonyx.kernel.custom.task import CustomTask, special
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.language.builder import Builder, Register
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import F32, I32, I64

#: Rows of up to this many times k are sorted whole.
_WHOLE = 4


@special("top_k")
def build_top_k(task: CustomTask, symbol: str) -> Kernel:
    """x, axis, largest -> values, int64 positions; k is the outputs' extent. A block is a row."""
    return _TopK(task, symbol).build()


class _TopK:
    def __init__(self, task: CustomTask, symbol: str) -> None:
        self.frame = KernelFrame(task, symbol)
        self.b: Builder = self.frame.builder
        self.x = task.operands[0]
        self.values, self.positions = task.outputs
        self.axis = task.integer("axis") % len(self.x.shape)
        self.largest = bool(task.attribute("largest"))
        self.words = 2 if value_type(self.x.dtype).bits == 64 else 1
        self.items = SortedItems(self.b, self.words)

    def build(self) -> Kernel:
        b, frame, x = self.b, self.frame, self.x
        given = next(v for v in (self.values, self.positions) if v is not None)
        wanted, extent = given.shape[self.axis], x.shape[self.axis]
        rows = without(x.shape, self.axis)
        n, k = (b.variable(frame.dim(d), I64).get() for d in (extent, wanted))
        most = integer.minimum(extent, wanted * _WHOLE)
        most_items = frame.dim(most)  # before the loop: it is computed once
        first = b.context("scratch")
        second = b.offset(first, most_items, 8 * self.words)
        with b.parallel() as row:
            lead = frame.coordinates(row, rows)
            fits = k <= n
            if self.words == 1:
                fits = fits & (n < 1 << POSITION_BITS)
            with b.if_(~fits):
                b.fault(1, k, n)
            with b.else_(), b.if_(k > 0):
                count = b.variable(n, name="count")
                with b.if_(n <= k * _WHOLE):
                    self._take(lead, first, n)
                with b.else_():
                    count.set(k)
                    self._select(lead, first, n, k)
                result = self._sort(first, second, count.get())
                with b.long_for(0, k) as i:
                    self._give(lead, i, self._place(self.items.get(result, i)))
        cost = volume(x.shape) * 6
        return frame.kernel(volume(rows), cost, most * (16 * self.words))

    # -- items --------------------------------------------------------------------------------

    def _at(self, lead: list[Operand], i: Operand) -> list[Operand]:
        return [*lead[: self.axis], i, *lead[self.axis :]]

    def _keys(self, lead: list[Operand], i: Operand, lanes: int = 1) -> Operand:
        """What orders an element, or as many side by side: the lower the better."""
        key = ordered_key(self.b, self.frame.load(self.x, self._at(lead, i), lanes))
        return key ^ -1 if self.largest else key

    def _element(self, lead: list[Operand], i: Operand) -> Item:
        """The item of element `i` of the row."""
        b = self.b
        key = self._keys(lead, i)
        if self.words == 2:
            return (key, i)
        high = b.convert(key, I64) << POSITION_BITS
        return (high | i,)

    def _place(self, item: Item) -> Operand:
        if self.words == 2:
            return item[1]
        return item[0] & ((1 << POSITION_BITS) - 1)

    # -- which elements -----------------------------------------------------------------------

    def _take(self, lead: list[Operand], items: Operand, count: Operand) -> None:
        with self.b.long_for(0, count) as i:
            self.items.put(items, i, self._element(lead, i))

    def _select(self, lead: list[Operand], items: Operand, n: Operand, k: Operand) -> None:
        """Leave the best k, as a heap."""
        b = self.b
        self._take(lead, items, k)
        self.items.pile(items, k)
        lanes = self.frame.task.lanes
        if not self._are_lanes:
            self._offer(lead, items, k, k, n, b.long_for)
            return
        whole = k + ((n - k) & -lanes)
        with b.long_for(k, whole, lanes) as i:
            keys = self._keys(lead, i, lanes)
            worst = self.items.get(items, b.value(I64, 0))[0] >> POSITION_BITS
            limit = b.splat(b.convert(worst, I32), lanes)
            with b.if_(b.reduce("reduce_or", keys < limit)):
                self._offer(lead, items, k, i, i + lanes, b.for_)
        self._offer(lead, items, k, whole, n, b.for_)

    @property
    def _are_lanes(self) -> bool:
        """Whether a vector of elements can be compared with the heap's worst at once."""
        dense = self.x.strides[self.axis] == 1
        return dense and value_type(self.x.dtype) == F32 and self.frame.task.lanes > 1

    def _offer(
        self,
        lead: list[Operand],
        items: Operand,
        k: Operand,
        first: Operand,
        end: Operand,
        loop: Loop,
    ) -> None:
        """Put the elements from `first` to before `end` into the heap that belong there."""
        b, zero = self.b, self.b.value(I64, 0)
        with loop(first, end) as i:
            item = self._element(lead, i)
            with b.if_(self.items.less(item, self.items.get(items, zero))):
                self.items.sift(items, zero, k, item)

    # -- order --------------------------------------------------------------------------------

    def _sort(self, first: Operand, second: Operand, count: Operand) -> Operand:
        """Merge runs of 1, 2, 4 ... items, to and fro; gives where the result lies."""
        return merge_sort(self.b, (first, second), count, self._merge)

    def _merge(self, runs: MergedRuns) -> None:
        b, items, middle, high = self.b, runs.items, runs.middle, runs.high
        left, right = b.variable(runs.low, name="left"), b.variable(middle, name="right")
        last_left, last_right = middle - 1, high - 1
        with runs.loop(runs.low, high) as i:
            at_left, at_right = left.get(), right.get()
            one = self.items.get(items, b.min(at_left, last_left))
            other = self.items.get(items, b.min(at_right, last_right))
            wins = (at_left < middle) & self.items.less(one, other)
            wins = wins | (at_right >= high)
            pairs = zip(one, other, strict=True)
            self.items.put(runs.merged, i, tuple(b.select(wins, x, y) for x, y in pairs))
            self._step(left, wins)
            self._step(right, ~wins)

    def _step(self, at: Register, forward: Operand) -> None:
        at.set(at.get() + self.b.convert(forward, I64))

    # -- results ------------------------------------------------------------------------------

    def _give(self, lead: list[Operand], i: Operand, place: Operand) -> None:
        at = self._at(lead, i)
        if self.values is not None:
            value = self.frame.load(self.x, self._at(lead, place))
            self.frame.store(self.values, at, value)
        if self.positions is not None:
            self.frame.store(self.positions, at, place)
