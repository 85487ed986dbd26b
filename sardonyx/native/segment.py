"""What the native functions about one segment of a run have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, SsaValue
from sardonyx.kernel.language.types import I32, I64, PTR
from sardonyx.native.layout import (
    FRAME,
    IMAGE,
    LAUNCHER,
    NOT_LAUNCHED,
    SEGMENT,
    STATE,
    WORD,
)


def start(name: str) -> tuple[Builder, Operand, SsaValue, SsaValue, SsaValue]:
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


def reads(b: Builder, frame: Operand) -> SsaValue:
    """Whether steps read memory of a device."""
    found = b.variable(0, I64)
    launcher = FRAME.pointer(b, frame, "launcher")
    with b.if_(b.ne(launcher, b.constant(PTR, 0))):
        found.set(LAUNCHER.read(b, launcher, "reads"))
    return b.ne(found.get(), 0)


def fetched(
    b: Builder, frame: Operand, source: Operand, place: Operand, size_bytes: int
) -> Operand:
    """Where a word of a device's memory will be; the function returns if the driver refuses."""
    launcher = FRAME.pointer(b, frame, "launcher")
    target = b.offset(LAUNCHER.pointer(b, launcher, "mirror"), place, WORD)
    stream = LAUNCHER.pointer(b, launcher, "stream")
    given = [target, source, b.constant(I64, size_bytes), stream]
    code = b.call(LAUNCHER.pointer(b, launcher, "fetch"), given, I32)
    _return_if_refused(b, frame, b.convert(code, I64))
    return target


def return_unless_there(b: Builder, frame: Operand) -> None:
    """Wait for what was fetched."""
    code = b.call("wait", [frame], I64)
    _return_if_refused(b, frame, code)


def _return_if_refused(b: Builder, frame: Operand, code: Operand) -> None:
    with b.if_(b.ne(code, 0)):
        FRAME.write(b, frame, "detail_a", code)
        b.return_(b.constant(I64, NOT_LAUNCHED))
