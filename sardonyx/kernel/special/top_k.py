"""The k largest (or smallest) of each row, in order (ONNX operator spec: TopK).

Every element becomes an item: whole numbers that are compared in order, the lower the better, the
position last, so that no two items are equal and of equal values the one at the lower position
wins. Values of at most 32 bits and their position share one number. As in NumPy a NaN is above
every number, and -0.0 equals 0.0.

If k is a small part of the row, a heap keeps the best k, the worst of them on top; else all items
are taken. A merge sort orders what was taken: O(n log k) in all. `sorted` is not needed.
"""

from __future__ import annotations

from sardonyx.base import integer, sizes
from sardonyx.kernel.builder import Builder, Register
from sardonyx.kernel.compiled import Kernel
from sardonyx.kernel.program import Operand
from sardonyx.kernel.representation import value_type
from sardonyx.kernel.special.frame import KernelFrame, volume, without
from sardonyx.kernel.special.task import SpecialTask, special
from sardonyx.kernel.types import I32, I64

Item = tuple[Operand, ...]

#: Rows of up to this many times k are sorted whole.
_WHOLE = 4
_POSITION_BITS = 32


@special("top_k")
def build_top_k(task: SpecialTask, symbol: str) -> Kernel:
    """x, axis, largest -> values, int64 positions; k is the outputs' extent. A block is a row."""
    return _TopK(task, symbol).build()


class _TopK:
    def __init__(self, task: SpecialTask, symbol: str) -> None:
        self.frame = KernelFrame(task, symbol)
        self.b: Builder = self.frame.builder
        self.x = task.operands[0]
        self.values, self.positions = task.outputs
        self.axis = int(task.attribute("axis")) % len(self.x.shape)  # type: ignore[call-overload]  # ONNX declares it an int
        self.largest = bool(task.attribute("largest"))
        self.words = 2 if value_type(self.x.dtype).bits == 64 else 1

    def build(self) -> Kernel:
        b, frame, x = self.b, self.frame, self.x
        given = next(v for v in (self.values, self.positions) if v is not None)
        wanted, extent = given.shape[self.axis], x.shape[self.axis]
        rows = without(x.shape, self.axis)
        n, k = (b.variable(frame.dim(d), I64).get() for d in (extent, wanted))
        room = integer.minimum(extent, sizes.multiply(wanted, _WHOLE))
        room_items = frame.dim(room)  # before the loop: it is computed once
        first = b.context("scratch")
        second = b.offset(first, room_items, 8 * self.words)
        with b.parallel() as row:
            lead = frame.coordinates(row, rows)
            fits = b.compare("le", k, n)
            if self.words == 1:
                fits = b.binary("and", fits, b.compare("lt", n, 1 << _POSITION_BITS))
            with b.if_(b.binary("xor", fits, True)):
                b.fault(1, k, n)
            with b.else_(), b.if_(b.compare("gt", k, 0)):
                count = b.variable(n, name="count")
                with b.if_(b.compare("le", n, b.binary("mul", k, _WHOLE))):
                    self._take(lead, first, n)
                with b.else_():
                    count.set(k)
                    self._select(lead, first, n, k)
                result = self._sort(first, second, count.get())
                with b.for_(0, k) as i:
                    self._give(lead, i, self._place(self._item(result, i)))
        cost = sizes.multiply(volume(x.shape), 6)
        return frame.kernel(volume(rows), cost, sizes.multiply(room, 16 * self.words))

    # -- items --------------------------------------------------------------------------------

    def _at(self, lead: list[Operand], i: Operand) -> list[Operand]:
        return [*lead[: self.axis], i, *lead[self.axis :]]

    def _element(self, lead: list[Operand], i: Operand) -> Item:
        """The item of element `i` of the row."""
        b = self.b
        key = self._key(self.frame.load(self.x, self._at(lead, i)))
        if self.largest:
            key = b.binary("xor", key, -1)
        if self.words == 2:
            return (key, i)
        high = b.binary("shl", b.convert(key, I64), _POSITION_BITS)
        return (b.binary("or", high, i),)

    def _key(self, value: Operand) -> Operand:
        """A signed integer that is ordered as the values are."""
        b, kind = self.b, value.type
        if kind.is_float:
            whole = I32 if kind.bits == 32 else I64
            highest = (1 << (kind.bits - 1)) - 1
            bits = b.bitcast(b.binary("add", value, 0.0), whole)  # -0.0 + 0.0 is 0.0
            flipped = b.binary("and", b.binary("shr", bits, kind.bits - 1), highest)
            return b.select(b.compare("ne", value, value), highest, b.binary("xor", bits, flipped))
        if kind.is_unsigned and kind.bits >= 32:
            whole = I32 if kind.bits == 32 else I64
            return b.binary("xor", b.bitcast(value, whole), -(1 << (kind.bits - 1)))
        return b.convert(value, I64)

    def _place(self, item: Item) -> Operand:
        if self.words == 2:
            return item[1]
        return self.b.binary("and", item[0], (1 << _POSITION_BITS) - 1)

    def _item(self, items: Operand, i: Operand) -> Item:
        first = self.b.binary("mul", i, self.words)
        return tuple(
            self.b.load(I64, items, self.b.binary("add", first, word)) for word in range(self.words)
        )

    def _put(self, items: Operand, i: Operand, item: Item) -> None:
        first = self.b.binary("mul", i, self.words)
        for word, part in enumerate(item):
            self.b.store(part, items, self.b.binary("add", first, word))

    def _better(self, left: Item, right: Item) -> Operand:
        b = self.b
        better = b.compare("lt", left[-1], right[-1])
        if self.words == 1:
            return better
        tie = b.binary("and", b.eq(left[0], right[0]), better)
        return b.binary("or", b.compare("lt", left[0], right[0]), tie)

    # -- which elements -----------------------------------------------------------------------

    def _take(self, lead: list[Operand], items: Operand, count: Operand) -> None:
        with self.b.for_(0, count) as i:
            self._put(items, i, self._element(lead, i))

    def _select(self, lead: list[Operand], items: Operand, n: Operand, k: Operand) -> None:
        """Leave the best k, as a heap."""
        b = self.b
        self._take(lead, items, k)
        half = b.binary("div", k, 2)
        with b.for_(0, half) as i:
            start = b.binary("sub", b.binary("sub", half, 1), i)
            self._sift(items, start, k, self._item(items, start))
        zero = b.value(I64, 0)
        with b.for_(k, n) as i:
            item = self._element(lead, i)
            with b.if_(self._better(item, self._item(items, zero))):
                self._sift(items, zero, k, item)

    def _sift(self, items: Operand, start: Operand, count: Operand, item: Item) -> None:
        """Put `item` at `start` or below it, so that no parent is better than its children."""
        b = self.b
        at = b.variable(start, name="at")
        child = b.variable(b.binary("add", b.binary("mul", start, 2), 1), name="child")
        with b.while_(lambda: b.compare("lt", child.get(), count)):
            worst = self._worst_child(items, child.get(), count)
            low = self._item(items, worst)
            with b.if_(self._better(item, low)):
                self._put(items, at.get(), low)
                at.set(worst)
                child.set(b.binary("add", b.binary("mul", worst, 2), 1))
            with b.else_():
                child.set(count)
        self._put(items, at.get(), item)

    def _worst_child(self, items: Operand, left: Operand, count: Operand) -> Operand:
        b = self.b
        right = b.min(b.binary("add", left, 1), b.binary("sub", count, 1))
        better = self._better(self._item(items, left), self._item(items, right))
        return b.select(better, right, left)

    # -- order --------------------------------------------------------------------------------

    def _sort(self, first: Operand, second: Operand, count: Operand) -> Operand:
        """Merge runs of 1, 2, 4 ... items, to and fro; gives where the result lies."""
        b = self.b
        source, target = b.variable(first, name="source"), b.variable(second, name="target")
        width = b.variable(b.value(I64, 1), name="width")
        with b.while_(lambda: b.compare("lt", width.get(), count)):
            run = width.get()
            items, merged = source.get(), target.get()
            with b.for_(0, count, b.binary("mul", run, 2)) as low:
                middle = b.min(b.binary("add", low, run), count)
                high = b.min(b.binary("add", middle, run), count)
                self._merge(items, merged, low, middle, high)
            source.set(merged)
            target.set(items)
            width.set(b.binary("mul", run, 2))
        return source.get()

    def _merge(
        self, items: Operand, merged: Operand, low: Operand, middle: Operand, high: Operand
    ) -> None:
        b = self.b
        left, right = b.variable(low, name="left"), b.variable(middle, name="right")
        last_left, last_right = b.binary("sub", middle, 1), b.binary("sub", high, 1)
        with b.for_(low, high) as i:
            at_left, at_right = left.get(), right.get()
            one = self._item(items, b.min(at_left, last_left))
            other = self._item(items, b.min(at_right, last_right))
            wins = b.binary("and", b.compare("lt", at_left, middle), self._better(one, other))
            wins = b.binary("or", wins, b.compare("ge", at_right, high))
            pairs = zip(one, other, strict=True)
            self._put(merged, i, tuple(b.select(wins, x, y) for x, y in pairs))
            self._step(left, wins)
            self._step(right, b.binary("xor", wins, True))

    def _step(self, at: Register, forward: Operand) -> None:
        at.set(self.b.binary("add", at.get(), self.b.convert(forward, I64)))

    # -- results ------------------------------------------------------------------------------

    def _give(self, lead: list[Operand], i: Operand, place: Operand) -> None:
        at = self._at(lead, i)
        if self.values is not None:
            value = self.frame.load(self.x, self._at(lead, place))
            self.frame.store(self.values, at, value)
        if self.positions is not None:
            self.frame.store(self.positions, at, place)
