"""Native: give every arena buffer its place, so that no two that live at once overlap.

The plan's events (a buffer begins, a buffer ends) are walked in order. A beginning buffer takes the
smallest hole that it fits into, else the end of the arena; an ending one leaves a hole, joined with
its neighbours. Holes are kept in the order of their offsets.
"""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder, Register
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I64
from sardonyx.native.layout import (
    ALIGNMENT,
    BAD_ARENA,
    BAD_SIZE,
    DONE,
    FRAME,
    HOLE,
    IMAGE,
    LARGEST_BYTES,
    STATE,
)
from sardonyx.native.segment import each, start


def pack() -> Program:
    """`i64 pack(frame, segment)`: offsets of a segment's arena buffers, and its arena's size."""
    b, frame, image, segment, state = start("pack")
    slots, buffers = FRAME.pointer(b, frame, "slots"), IMAGE.pointer(b, image, "buffers")
    sized = IMAGE.pointer(b, image, "sized")
    with each(b, segment, "sized") as k:
        buffer = b.load(I64, sized, k)
        size = b.load(I64, slots, b.load(I64, buffers, buffer))
        wrong = (size < 0) | (size > LARGEST_BYTES)
        with b.if_(wrong):
            FRAME.write(b, frame, "detail_a", buffer)
            b.return_(b.constant(I64, BAD_SIZE))
    packer = _Packer(b, FRAME.pointer(b, frame, "free"), FRAME.pointer(b, frame, "offsets"))
    events = IMAGE.pointer(b, image, "events")
    with each(b, segment, "events") as k:
        event = b.load(I64, events, k)
        begins = event >= 0
        buffer = b.select(begins, event, -1 - event)
        size = b.load(I64, slots, b.load(I64, buffers, buffer))
        rounded = (size + (ALIGNMENT - 1)) & -ALIGNMENT
        with b.if_(begins):
            packer.begin(buffer, rounded)
            with b.if_(packer.top.get() > LARGEST_BYTES):
                FRAME.write(b, frame, "detail_a", packer.top.get())
                b.return_(b.constant(I64, BAD_ARENA))
        with b.else_(), b.if_(rounded > 0):
            packer.end(buffer, rounded)
    STATE.write(b, state, "arena_bytes", packer.top.get())
    b.return_(b.constant(I64, DONE))
    return b.program


class _Packer:
    """Writes the code that keeps the list of holes."""

    def __init__(self, b: Builder, holes: Operand, offsets: Operand) -> None:
        self.b, self.holes, self.offsets = b, holes, offsets
        self.top: Register = b.variable(0, I64)
        self.count: Register = b.variable(0, I64)

    def _get(self, number: Operand) -> tuple[Operand, Operand]:
        hole = HOLE.at(self.b, self.holes, number)
        return HOLE.read(self.b, hole, "offset"), HOLE.read(self.b, hole, "bytes")

    def _set(self, number: Operand, offset: Operand, size: Operand) -> None:
        hole = HOLE.at(self.b, self.holes, number)
        HOLE.write(self.b, hole, "offset", offset)
        HOLE.write(self.b, hole, "bytes", size)

    def _remove(self, number: Operand) -> None:
        b = self.b
        last = self.count.get() - 1
        with b.for_(number, last) as k:
            self._set(k, *self._get(k + 1))
        self.count.set(last)

    def begin(self, buffer: Operand, size: Operand) -> None:
        """Place a buffer."""
        b = self.b
        best, best_size = b.variable(-1, I64), b.variable(LARGEST_BYTES * 2, I64)
        with b.for_(0, self.count.get()) as k:
            _, free = self._get(k)
            better = (free >= size) & (free < best_size.get())
            best.set(b.select(better, k, best.get()))
            best_size.set(b.select(better, free, best_size.get()))
        with b.if_(best.get() >= 0):
            offset, free = self._get(best.get())
            b.store(offset, self.offsets, buffer)
            with b.if_(b.eq(free, size)):
                self._remove(best.get())
            with b.else_():
                self._set(best.get(), offset + size, free - size)
        with b.else_():
            self._extend(buffer, size)

    def _extend(self, buffer: Operand, size: Operand) -> None:
        """Place a buffer at the end, from the last hole on if that touches the end."""
        b = self.b
        start = b.variable(self.top.get())
        with b.if_(self.count.get() > 0):
            offset, free = self._get(self.count.get() - 1)
            with b.if_(b.eq(offset + free, self.top.get())):
                start.set(offset)
                self.count.set(self.count.get() - 1)
        b.store(start.get(), self.offsets, buffer)
        self.top.set(start.get() + size)

    def end(self, buffer: Operand, size: Operand) -> None:
        """Leave a hole where a buffer was."""
        b = self.b
        offset = b.load(I64, self.offsets, buffer)
        after = b.variable(self.count.get())
        # The holes behind move up by one; joining takes that back.
        searching = b.variable(1, I64)
        with b.while_(lambda: (after.get() > 0) & b.ne(searching.get(), 0)):
            before, free = self._get(after.get() - 1)
            with b.if_(before > offset):
                self._set(after.get(), before, free)
                after.set(after.get() - 1)
            with b.else_():
                searching.set(0)
        here = after.get()
        self._set(here, offset, size)
        self.count.set(self.count.get() + 1)
        with b.if_(here + 1 < self.count.get()):
            following, free = self._get(here + 1)
            with b.if_(b.eq(offset + size, following)):
                self._set(here, offset, size + free)
                self._remove(here + 1)
        with b.if_(here > 0):
            before, free = self._get(here - 1)
            _, joined = self._get(here)
            with b.if_(b.eq(before + free, offset)):
                self._set(here - 1, before, free + joined)
                self._remove(here)
