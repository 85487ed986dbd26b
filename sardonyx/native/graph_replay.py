"""Native: a run of a device that is a graph: one call for what are four of the driver's."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I32, I64, PTR
from sardonyx.native.layout import FAULTY, NO_SOURCE, REPLAY, SENT, STAGING, WRITE

#: The driver's functions by the number that `replay` gives when one fails, in its higher half.
STEPS = ("", "look", "enter", "relax", "copy", "launch", "record", "wait")


def rewrite() -> Program:
    """`void rewrite(record)`: write the arguments in feeds and results that lie elsewhere now.

    What is written must be sent before the next launch: `unsent` is 1 then.
    """
    b = Builder("rewrite", [("record", PTR)])
    record = b.parameter("record")
    given, known = (REPLAY.pointer(b, record, name) for name in ("given", "known"))
    is_new = b.variable(0, I64)
    with b.for_(0, REPLAY.read(b, record, "count")) as k:
        address = b.load(I64, given, k)
        with b.if_(b.ne(address, b.load(I64, known, k))):
            b.store(address, known, k)
            is_new.set(b.constant(I64, 1))
    with b.if_(b.ne(is_new.get(), 0)):
        REPLAY.write(b, record, "unsent", 1)
        writes = REPLAY.pointer(b, record, "writes")
        with b.for_(0, REPLAY.read(b, record, "write_count")) as k:
            write = WRITE.at(b, writes, k)
            address = b.load(I64, given, WRITE.read(b, write, "number"))
            inside = address + WRITE.read(b, write, "offset")
            b.store(inside, WRITE.pointer(b, write, "argument"), 0)
    b.return_()
    return b.program


def replay() -> Program:
    """`i64 replay(record, event)`: `rewrite`, enter the context, send arguments, launch, wait.

    In the end the thread's context is the one from before, and so is its mode, which meanwhile is
    the record's. Arguments are sent if something was written, the event is recorded behind the
    graph unless it is 0, and nobody waits if `waits` is 0.
    Gives SENT, FAULTY and NO_SOURCE, or where a function failed the driver's code and, 32 bits
    above it, which one it was.
    """
    b = Builder("replay", [("record", PTR), ("event", PTR)], result=I64)
    record, event = b.parameter("record"), b.parameter("event")

    def call(name: str, *given: Operand) -> Operand:
        return b.call(REPLAY.pointer(b, record, name), given, I32)

    def go_back() -> None:
        call("relax", mode)  # it exchanges the two
        leave()

    def leave() -> None:
        with b.if_(is_elsewhere):
            call("enter", REPLAY.pointer(b, record, "before"))

    def step(name: str, *given: Operand, undo: Callable[[], None] | None = go_back) -> None:
        wide = b.convert(call(name, *given), I64)
        with b.if_(b.ne(wide, 0)):
            if undo is not None:
                undo()
            b.return_(wide + (STEPS.index(name) << 32))

    b.call("rewrite", [record])
    unsent = b.ne(REPLAY.read(b, record, "unsent"), 0)
    staging = REPLAY.pointer(b, record, "staging")
    with b.if_(unsent), b.if_(b.eq(STAGING.read(b, staging, "source"), 0)):
        b.return_(b.constant(I64, NO_SOURCE))
    mode = REPLAY.place(b, record, "mode")
    step("look", REPLAY.place(b, record, "before"), undo=None)
    before, own = (REPLAY.read(b, record, name) for name in ("before", "context"))
    is_elsewhere = b.ne(before, own)
    with b.if_(is_elsewhere):
        step("enter", REPLAY.pointer(b, record, "context"), undo=None)
    step("relax", mode, undo=leave)
    stream = REPLAY.pointer(b, record, "stream")
    state = b.variable(0, I64)
    with b.if_(unsent):
        source, content = (STAGING.pointer(b, staging, name) for name in ("source", "content"))
        size = STAGING.pointer(b, staging, "bytes")
        b.call(STAGING.pointer(b, staging, "move"), [source, content, size], PTR)
        step("copy", STAGING.pointer(b, staging, "target"), source, size, stream)
        REPLAY.write(b, record, "unsent", 0)
        state.set(b.constant(I64, SENT))
    step("launch", REPLAY.pointer(b, record, "graph"), stream)
    with b.if_(b.ne(event, b.constant(PTR, 0))):
        step("record", event, stream)
    with b.if_(b.ne(REPLAY.read(b, record, "waits"), 0)):
        step("wait", stream)
        fault = b.load(I64, REPLAY.pointer(b, record, "fault"), 0)
        with b.if_(b.ne(fault, 0)):
            state.set(state.get() + FAULTY)
    go_back()
    b.return_(state.get())
    return b.program
