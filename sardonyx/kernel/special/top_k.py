"""The k largest (or smallest) of each row, in order (ONNX operator spec: TopK).

A heap of the best k so far, the worst of them on top, then sorted in place: O(n log k). Of equal
values the one at the lower position is better. A NaN is never better than a number.
"""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.kernel.builder import Builder, Register
from sardonyx.kernel.compiled import Kernel
from sardonyx.kernel.expression import value_type
from sardonyx.kernel.program import Operand
from sardonyx.kernel.special.frame import KernelFrame, volume, without
from sardonyx.kernel.special.task import SpecialTask, special
from sardonyx.kernel.types import I64


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
        self.axis = int(task.attribute("axis")) % len(self.x.shape)  # type: ignore[call-overload]
        self.better_op = "gt" if task.attribute("largest") else "lt"
        self.kind = value_type(self.x.dtype)
        if self.kind.scalar == "i1":
            self.kind = I64

    def build(self) -> Kernel:
        b, frame, x = self.b, self.frame, self.x
        given = next(v for v in (self.values, self.positions) if v is not None)
        wanted = given.shape[self.axis]
        rows = without(x.shape, self.axis)
        n, k = frame.dim(x.shape[self.axis]), b.variable(frame.dim(wanted), I64).get()
        keys_at = b.context("scratch")
        places_at = b.offset(keys_at, k, 8)
        self.keys, self.places = keys_at, places_at
        with b.parallel() as row:
            lead = frame.coordinates(row, rows)
            with b.if_(b.compare("gt", k, n)):
                b.fault(1, k, n)
            with b.else_(), b.if_(b.compare("gt", k, 0)):
                self._select(lead, n, k)
                self._sort(k)
                with b.for_(0, k) as i:
                    self._give(lead, i)
        cost = sizes.multiply(volume(x.shape), 6)
        return frame.kernel(volume(rows), cost, sizes.multiply(wanted, 16))

    def _at(self, lead: list[Operand], i: Operand) -> list[Operand]:
        return [*lead[: self.axis], i, *lead[self.axis :]]

    def _key(self, i: Operand) -> Operand:
        return self.b.load(self.kind, self.keys, self.b.binary("mul", i, 8 // self.kind.size_bytes))

    def _place(self, i: Operand) -> Operand:
        return self.b.load(I64, self.places, i)

    def _put(self, i: Operand, key: Operand, place: Operand) -> None:
        self.b.store(key, self.keys, self.b.binary("mul", i, 8 // self.kind.size_bytes))
        self.b.store(place, self.places, i)

    def _better(
        self, key: Operand, place: Operand, other: Operand, other_place: Operand
    ) -> Operand:
        b = self.b
        first = b.binary("and", b.eq(key, other), b.compare("lt", place, other_place))
        return b.binary("or", b.compare(self.better_op, key, other), first)

    def _select(self, lead: list[Operand], n: Operand, k: Operand) -> None:
        """Leave the best k in the heap."""
        b = self.b
        with b.for_(0, k) as i:
            self._put(i, self._element(lead, i), i)
        half = b.binary("div", k, 2)
        with b.for_(0, half) as i:
            self._sift(b.binary("sub", b.binary("sub", half, 1), i), k)
        zero = b.value(I64, 0)
        with b.for_(k, n) as i:
            key = self._element(lead, i)
            with b.if_(self._better(key, i, self._key(zero), self._place(zero))):
                self._put(zero, key, i)
                self._sift(zero, k)

    def _element(self, lead: list[Operand], i: Operand) -> Operand:
        return self.b.convert(self.frame.load(self.x, self._at(lead, i)), self.kind)

    def _sort(self, k: Operand) -> None:
        """Move the worst to the end, again and again."""
        b, zero = self.b, self.b.value(I64, 0)
        with b.for_(1, k) as done:
            last = b.binary("sub", k, done)
            key, place = self._key(last), self._place(last)
            self._put(last, self._key(zero), self._place(zero))
            self._put(zero, key, place)
            self._sift(zero, last)

    def _sift(self, start: Operand, count: Operand) -> None:
        """Restore the heap below `start`: no parent better than a child."""
        b = self.b
        at = b.variable(start, name="at")
        moving = b.variable(b.value(I64, 1), name="moving")
        with b.while_(lambda: b.compare("gt", moving.get(), 0)):
            moving.set(0)
            child = b.binary("add", b.binary("mul", at.get(), 2), 1)
            with b.if_(b.compare("lt", child, count)):
                self._sift_to(at.get(), child, count, at, moving)

    def _sift_to(
        self, here: Operand, child: Operand, count: Operand, at: Register, moving: Register
    ) -> None:
        b = self.b
        right = b.binary("add", child, 1)
        worst = b.variable(child, name="worst")
        with b.if_(b.compare("lt", right, count)):
            better = self._better(
                self._key(child), self._place(child), self._key(right), self._place(right)
            )
            with b.if_(better):
                worst.set(right)
        low = worst.get()
        key, place = self._key(here), self._place(here)
        low_key, low_place = self._key(low), self._place(low)
        with b.if_(self._better(key, place, low_key, low_place)):
            self._put(here, low_key, low_place)
            self._put(low, key, place)
            at.set(low)
            moving.set(1)

    def _give(self, lead: list[Operand], i: Operand) -> None:
        b, at = self.b, self._at(lead, i)
        if self.values is not None:
            kind = value_type(self.x.dtype)
            key = self._key(i)
            value = b.compare("ne", key, 0) if kind.scalar == "i1" else b.convert(key, kind)
            self.frame.store(self.values, at, value)
        if self.positions is not None:
            self.frame.store(self.positions, at, self._place(i))
