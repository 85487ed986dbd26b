"""What the native functions about one segment of a run have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sardonyx.kernel.builder import Builder
from sardonyx.kernel.program import Operand, Value
from sardonyx.kernel.types import I64, PTR
from sardonyx.runtime.native_layout import FRAME, IMAGE, SEGMENT, STATE


def start(name: str) -> tuple[Builder, Operand, Value, Value, Value]:
    """The beginning of `i64 name(frame, segment)`: builder, frame, image, segment, its state."""
    b = Builder(name, [("frame", PTR), ("segment", I64)], result=I64)
    frame, number = b.parameter("frame"), b.parameter("segment")
    image = FRAME.pointer(b, frame, "image")
    segment = SEGMENT.at(b, IMAGE.pointer(b, image, "segments"), number)
    state = STATE.at(b, FRAME.pointer(b, frame, "states"), number)
    return b, frame, image, segment, state


@contextmanager
def each(b: Builder, segment: Operand, table: str) -> Iterator[Operand]:
    """A loop over the numbers of a table's rows that belong to the segment."""
    first, end = SEGMENT.read(b, segment, table), SEGMENT.read(b, segment, f"{table}_end")
    with b.for_(first, end) as number:
        yield number
