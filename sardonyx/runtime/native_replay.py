"""Native: a run of a device that is a graph: one call for what are four of the driver's."""

from __future__ import annotations

from sardonyx.kernel.builder import Builder
from sardonyx.kernel.program import Operand, Program
from sardonyx.kernel.types import I32, I64, PTR
from sardonyx.runtime.native_layout import REPLAY

#: The driver's functions by the number that `replay` gives when one fails, in its higher half.
STEPS = ("look", "enter", "relax", "copy", "launch", "wait")


def replay() -> Program:
    """`i64 replay(record)`: enter the context, send arguments, launch, wait.

    In the end the thread's context is the one from before, and so is its mode, which meanwhile is
    the record's. Nothing is sent if there are no bytes, and nobody waits if `waits` is 0. Gives 0,
    or where a function failed the driver's code and, 32 bits above it, which one it was.
    """
    b = Builder("replay", [("record", PTR)], result=I64)
    record = b.parameter("record")

    def value(name: str) -> Operand:
        return REPLAY.read(b, record, name) if name == "bytes" else REPLAY.pointer(b, record, name)

    def call(name: str, *given: Operand) -> Operand:
        return b.call(REPLAY.pointer(b, record, name), given, I32)

    def go_back() -> None:
        call("relax", mode)  # it exchanges the two
        with b.if_(is_elsewhere):
            call("enter", value("before"))

    def step(name: str, *given: Operand, is_inside: bool = True) -> None:
        wide = b.convert(call(name, *given), I64)
        with b.if_(b.ne(wide, 0)):
            if is_inside:
                go_back()
            b.return_(b.binary("add", wide, STEPS.index(name) << 32))

    mode = REPLAY.place(b, record, "mode")
    step("look", REPLAY.place(b, record, "before"), is_inside=False)
    before, own = (REPLAY.read(b, record, name) for name in ("before", "context"))
    is_elsewhere = b.ne(before, own)
    with b.if_(is_elsewhere):
        step("enter", value("context"), is_inside=False)
    step("relax", mode, is_inside=False)
    with b.if_(b.ne(REPLAY.read(b, record, "bytes"), 0)):
        step("copy", *map(value, ("target", "source", "bytes", "stream")))
    step("launch", value("graph"), value("stream"))
    with b.if_(b.ne(REPLAY.read(b, record, "waits"), 0)):
        step("wait", value("stream"))
    go_back()
    b.return_(b.constant(I64, 0))
    return b.program
