"""Items of kernels that order things: one or two whole numbers each, compared in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

from sardonyx.base.records import dataclass
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I32, I64

Item = tuple[Operand, ...]
#: `Builder.for_` or `Builder.long_for`.
Loop: TypeAlias = Callable[[Operand, Operand], AbstractContextManager[Operand]]

#: Where an item is one number, its low bits are a position.
POSITION_BITS = 32


def ordered_key(b: Builder, value: Operand) -> Operand:
    """A signed integer that is ordered as the values are: NaN on top, -0.0 equal to 0.0."""
    kind = value.type
    if kind.is_float:
        whole = (I32 if kind.bits == 32 else I64).with_lanes(kind.lanes)
        highest = (1 << (kind.bits - 1)) - 1
        bits = b.bitcast(value + 0.0, whole)  # -0.0 + 0.0 is 0.0
        flipped = (bits >> (kind.bits - 1)) & highest
        return b.select(b.ne(value, value), highest, bits ^ flipped)
    if kind.is_unsigned and kind.bits >= 32:
        whole = I32 if kind.bits == 32 else I64
        return b.bitcast(value, whole) ^ -(1 << (kind.bits - 1))
    return b.convert(value, I64)


#: Runs of so many items take long enough to merge that a cancelled one breaks off inside.
_LONG_RUN = 1 << 16


def both_merges(b: Builder, count: Operand, run: Operand) -> Iterator[tuple[Operand, Loop]]:
    """Places where two runs of a merge sort begin, each to be merged in the loop that comes along.

    The body is written twice: many short runs look at the cancel flag now and then between two
    merges, long ones inside. `run` is a power of two.
    """
    step, most = run * 2, 2 * _LONG_RUN
    with b.if_(run < _LONG_RUN), b.long_for(0, count, step, most) as low:
        yield low, b.for_
    with b.else_(), b.for_(0, count, step) as low:
        yield low, b.long_for


@dataclass(frozen=True, slots=True)
class MergedRuns:
    """Two runs of a merge sort that lie side by side, and become one.

    Attributes:
        items: Where they lie.
        merged: Where the one goes, at the same place.
        low, middle, high: Where the first and the second begin, and where the second ends.
        loop: The loop to merge them in.
    """

    items: Operand
    merged: Operand
    low: Operand
    middle: Operand
    high: Operand
    loop: Loop


def merge_sort(
    b: Builder,
    places: tuple[Operand, Operand],
    count: Operand,
    merge: Callable[[MergedRuns], None],
) -> Operand:
    """Merge runs of 1, 2, 4 ... items, to and fro; gives where the result lies.

    Args:
        b: Where statements go.
        places: Where the items lie, and room for as many.
        count: How many.
        merge: Writes what merges two runs.
    """
    source, target = (
        b.variable(place, name=name)
        for place, name in zip(places, ("source", "target"), strict=True)
    )
    width = b.variable(b.value(I64, 1), name="width")
    with b.while_(lambda: width.get() < count):
        run, items, merged = width.get(), source.get(), target.get()
        for low, loop in both_merges(b, count, run):
            middle = b.min(low + run, count)
            high = b.min(middle + run, count)
            merge(MergedRuns(items, merged, low, middle, high, loop))
        source.set(merged)
        target.set(items)
        width.set(run * 2)
    return source.get()


class SortedItems:
    """Reads, writes and piles up items that lie side by side.

    Args:
        b: The kernel's builder.
        words: How many int64 numbers an item is.
    """

    def __init__(self, b: Builder, words: int) -> None:
        self.b, self.words = b, words

    def get(self, items: Operand, i: Operand) -> Item:
        """Item number `i`."""
        first = i * self.words
        return tuple(self.b.load(I64, items, first + word) for word in range(self.words))

    def put(self, items: Operand, i: Operand, item: Item) -> None:
        """Write item number `i`."""
        first = i * self.words
        for word, part in enumerate(item):
            self.b.store(part, items, first + word)

    def less(self, left: Item, right: Item) -> Operand:
        """Whether an item comes before another one."""
        b = self.b
        less = left[-1] < right[-1]
        if self.words == 1:
            return less
        tie = b.eq(left[0], right[0]) & less
        return (left[0] < right[0]) | tie

    def pile(self, items: Operand, count: Operand) -> None:
        """Make a heap of the first `count` items, the greatest on top (Floyd)."""
        b = self.b
        half = count // 2
        with b.long_for(0, half) as i:
            start = half - 1 - i
            self.sift(items, start, count, self.get(items, start))

    def sift(self, items: Operand, start: Operand, count: Operand, item: Item) -> None:
        """Put `item` at `start` or below it, so that no parent is less than its children."""
        b = self.b
        at = b.variable(start, name="at")
        child = b.variable(start * 2 + 1, name="child")
        with b.while_(lambda: child.get() < count):
            greatest = self._greater_child(items, child.get(), count)
            low = self.get(items, greatest)
            with b.if_(self.less(item, low)):
                self.put(items, at.get(), low)
                at.set(greatest)
                child.set(greatest * 2 + 1)
            with b.else_():
                child.set(count)
        self.put(items, at.get(), item)

    def _greater_child(self, items: Operand, left: Operand, count: Operand) -> Operand:
        b = self.b
        right = b.min(left + 1, count - 1)
        less = self.less(self.get(items, left), self.get(items, right))
        return b.select(less, right, left)
