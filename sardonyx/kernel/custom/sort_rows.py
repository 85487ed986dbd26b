"""The order of the rows of a matrix: by their first elements, of equal ones by the next ...

Loop nest; items are row numbers::

    for width in 1, 2, 4 .. n:
        for low in 0..n step 2 * width:
            target[low:] = merge(source[low : middle], source[middle : high])
        source, target = target, source
"""

from __future__ import annotations

from sardonyx.kernel.custom.frame import KernelFrame
from sardonyx.kernel.custom.items import MergedRuns, merge_sort
from sardonyx.kernel.custom.task import CustomTask, special
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I64


@special("sort_rows")
def build_sort_rows(task: CustomTask, symbol: str) -> Kernel:
    """x (n, w) -> int64 row numbers (n), ascending; equal rows keep their order. One block.

    As in NumPy a NaN is above every number, and -0.0 equals 0.0.
    """
    return _SortRows(task, symbol).build()


class _SortRows:
    def __init__(self, task: CustomTask, symbol: str) -> None:
        self.frame = KernelFrame(task, symbol)
        self.b = self.frame.builder
        (self.x,) = task.operands
        result = task.outputs[0]
        assert result is not None  # noqa: S101 - a kernel without result is never planned
        self.result = result

    def build(self) -> Kernel:
        """A merge sort of row numbers: runs of 1, 2, 4 ... to and fro."""
        b, frame, x = self.b, self.frame, self.x
        rows = frame.dim(x.shape[0])
        first = b.context("scratch")
        second = b.offset(first, b.lift(rows, I64), 8)
        with b.parallel() as _:
            with b.for_(0, rows) as i:
                b.store(i, first, i)
            items = merge_sort(b, (first, second), rows, self._merge)
            with b.for_(0, rows) as i:
                frame.store_raw(self.result, [i], b.load(I64, items, i))
        cost = x.shape[0] * 60
        return frame.kernel(1, cost, x.shape[0] * 16)

    def _merge(self, runs: MergedRuns) -> None:
        b, items, merged = self.b, runs.items, runs.merged
        left, right = b.variable(runs.low, name="left"), b.variable(runs.middle, name="right")
        with runs.loop(runs.low, runs.high) as i:
            takes = b.variable(b.convert(left.get() < runs.middle, I64), name="takes")
            with b.if_(b.ne(takes.get(), 0) & (right.get() < runs.high)):
                one, two = b.load(I64, items, left.get()), b.load(I64, items, right.get())
                takes.set(b.convert(self._compared(one, two) <= 0, I64))
            with b.if_(b.ne(takes.get(), 0)):
                b.store(b.load(I64, items, left.get()), merged, i)
                left.set(left.get() + 1)
            with b.else_():
                b.store(b.load(I64, items, right.get()), merged, i)
                right.set(right.get() + 1)

    def _compared(self, one: Operand, two: Operand) -> Operand:
        """Below, at or above 0, as the first row is below, equal to or above the second one."""
        b, frame = self.b, self.frame
        width = frame.dim(self.x.shape[1])
        found, at = b.variable(0, I64, name="found"), b.variable(0, I64, name="at")

        def equal_so_far() -> Operand:
            return b.eq(found.get(), 0) & (at.get() < width)

        with b.while_(equal_so_far):
            left, right = (frame.load(self.x, [row, at.get()]) for row in (one, two))
            below, above = self._below(left, right), self._below(right, left)
            found.set(b.convert(above, I64) - b.convert(below, I64))
            at.set(at.get() + 1)
        return found.get()

    def _below(self, left: Operand, right: Operand) -> Operand:
        b = self.b
        below = left < right
        if not left.type.is_float:
            return below
        numbers = b.eq(left, left) & b.ne(right, right)
        return below | numbers
