"""Native: a run of a device that is a graph: one call for what are four of the driver's."""

from __future__ import annotations

from sardonyx.kernel.builder import Builder
from sardonyx.kernel.program import Operand, Program
from sardonyx.kernel.types import I32, I64, PTR
from sardonyx.runtime.native_layout import REPLAY

#: The driver's functions by the number that `replay` gives when one fails, in its higher half.
STEPS = ("enter", "copy", "launch", "wait")


def replay() -> Program:
    """`i64 replay(record)`: enter the context, send arguments, launch, wait.

    Nothing is sent if there are no bytes, and nobody waits if `waits` is 0. Gives 0, or where a
    function failed the driver's code and, 32 bits above it, which one it was.
    """
    b = Builder("replay", [("record", PTR)], result=I64)
    record = b.parameter("record")

    def step(number: int, *names: str) -> None:
        given: list[Operand] = [
            REPLAY.read(b, record, name) if name == "bytes" else REPLAY.pointer(b, record, name)
            for name in names
        ]
        code = b.call(REPLAY.pointer(b, record, STEPS[number]), given, I32)
        wide = b.convert(code, I64)
        with b.if_(b.ne(wide, 0)):
            b.return_(b.binary("add", wide, number << 32))

    step(0, "context")
    with b.if_(b.ne(REPLAY.read(b, record, "bytes"), 0)):
        step(1, "target", "source", "bytes", "stream")
    step(2, "graph", "stream")
    with b.if_(b.ne(REPLAY.read(b, record, "waits"), 0)):
        step(3, "stream")
    b.return_(b.constant(I64, 0))
    return b.program
