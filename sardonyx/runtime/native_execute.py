"""Native: place the pointers, then walk the commands."""

from __future__ import annotations

from sardonyx.kernel.builder import Builder
from sardonyx.kernel.program import Operand, Program
from sardonyx.kernel.types import I64, PTR
from sardonyx.runtime.native_layout import (
    COMMAND,
    DATA_OFFSET,
    FRAME,
    IMAGE,
    JOB,
    NS_PER_ROUND,
    NS_WORTH_WAKING,
    POINTER,
    UNFINISHED,
    WORD,
)

#: Fault code of a cancelled run, see kernel/context.py.
CANCELLED = 4


def point() -> Program:
    """`void point(frame, first, last)`: write the arguments that are addresses."""
    b = Builder("point", [("frame", PTR), ("first", I64), ("last", I64)])
    frame = b.parameter("frame")
    image = FRAME.pointer(b, frame, "image")
    slots, bases = FRAME.pointer(b, frame, "slots"), FRAME.pointer(b, frame, "bases")
    arguments, pointers = (
        FRAME.pointer(b, frame, "arguments"),
        IMAGE.pointer(b, image, "pointers"),
    )
    with b.for_(b.parameter("first"), b.parameter("last")) as k:
        pointer = POINTER.at(b, pointers, k)
        base = b.load(I64, bases, POINTER.read(b, pointer, "buffer"))
        offset = b.load(I64, slots, POINTER.read(b, pointer, "offset"))
        b.store(base + offset, arguments, POINTER.read(b, pointer, "argument"))
    b.return_()
    return b.program


def place() -> Program:
    """`void place(frame)`: addresses of the arena's buffers, after a change of shapes or arena."""
    b = Builder("place", [("frame", PTR)])
    frame = b.parameter("frame")
    image, arena = FRAME.pointer(b, frame, "image"), FRAME.read(b, frame, "arena")
    events, bases = IMAGE.pointer(b, image, "events"), FRAME.pointer(b, frame, "bases")
    offsets = FRAME.pointer(b, frame, "offsets")
    with b.for_(0, IMAGE.read(b, image, "event_count")) as k:
        buffer = b.load(I64, events, k)
        with b.if_(b.compare("ge", buffer, 0)):
            b.store(arena + b.load(I64, offsets, buffer), bases, buffer)
    first = IMAGE.read(b, image, "dynamic_count")
    b.call("point", [frame, first, IMAGE.read(b, image, "pointer_count")])
    FRAME.write(b, frame, "dirty", 0)
    b.return_()
    return b.program


def execute() -> Program:
    """`i64 execute(frame, items, pool)`: run the commands of a resolved frame.

    `items` are addresses of array objects, one per output; `pool` may be null. Gives 0, or a
    fault's code (the frame's fault record has the rest), or UNFINISHED after some time: then the
    next call with the same arguments goes on.
    """
    b = Builder("execute", [("frame", PTR), ("items", PTR), ("pool", PTR)], result=I64)
    frame, items, pool = (b.parameter(x) for x in ("frame", "items", "pool"))
    image = FRAME.pointer(b, frame, "image")
    bases, outputs = FRAME.pointer(b, frame, "bases"), IMAGE.pointer(b, image, "outputs")
    with b.for_(0, IMAGE.read(b, image, "output_count")) as k:
        array = b.load(PTR, items, k)
        b.store(b.load(I64, array, DATA_OFFSET // WORD), bases, b.load(I64, outputs, k))
    with b.if_(b.ne(FRAME.read(b, frame, "dirty"), 0)):
        b.call("place", [frame])
    zero = b.constant(I64, 0)
    b.call("point", [frame, zero, IMAGE.read(b, image, "dynamic_count")])
    commands, jobs = IMAGE.pointer(b, image, "commands"), FRAME.pointer(b, frame, "jobs")
    arguments, cancel = FRAME.pointer(b, frame, "arguments"), FRAME.pointer(b, frame, "cancel")
    worth = FRAME.read(b, frame, "parallel_ns") > NS_WORTH_WAKING
    with_pool = b.ne(pool, b.constant(PTR, 0))
    spent = b.variable(0, I64)
    with b.for_(FRAME.read(b, frame, "command"), IMAGE.read(b, image, "command_count")) as number:
        command, job = COMMAND.at(b, commands, number), JOB.at(b, jobs, number)
        FRAME.write(b, frame, "context_command", number)
        kernel = COMMAND.pointer(b, command, "kernel")
        given = b.offset(arguments, COMMAND.read(b, command, "arguments"), WORD)
        begin, blocks = FRAME.read(b, frame, "block"), JOB.read(b, job, "blocks")
        end = b.min(begin + JOB.read(b, job, "round"), blocks)
        parallel = b.binary("and", with_pool, JOB.read(b, job, "threads") > 1)
        with b.if_(parallel):
            given_all = [pool, frame, kernel, given, job, begin, end, b.index_cast(worth)]
            b.call("fork_join", given_all)
        with b.else_():
            _serial(b, frame, kernel, given, (begin, end), JOB.read(b, job, "grain"), cancel)
        _return_faults(b, frame, cancel, number)
        with b.if_(end < blocks):
            FRAME.write(b, frame, "command", number)
            FRAME.write(b, frame, "block", end)
            b.return_(b.constant(I64, UNFINISHED))
        FRAME.write(b, frame, "block", 0)
        spent.set(spent.get() + JOB.read(b, job, "cost"))
        with b.if_(spent.get() > NS_PER_ROUND):
            FRAME.write(b, frame, "command", number + 1)
            b.return_(b.constant(I64, UNFINISHED))
    b.return_(zero)
    return b.program


def _return_faults(b: Builder, frame: Operand, cancel: Operand, number: Operand) -> None:
    """Leave if something went wrong; a cancelled run that is right so far becomes a fault."""
    cancelled = b.ne(b.load(I64, cancel, ordering="relaxed"), 0)
    with b.if_(cancelled):
        fault = FRAME.place(b, frame, "fault")
        with b.if_(b.eq(b.load(I64, fault), 0)):
            b.store(b.constant(I64, CANCELLED), fault)
            FRAME.write(b, frame, "fault_command", number)
    code = FRAME.read(b, frame, "fault")
    with b.if_(b.ne(code, 0)):
        b.return_(code)


def _serial(
    b: Builder,
    frame: Operand,
    kernel: Operand,
    arguments: Operand,
    span: tuple[Operand, Operand],
    grain: Operand,
    cancel: Operand,
) -> None:
    """A span of blocks in this thread, with a look at the flags between pieces."""
    context, fault = FRAME.place(b, frame, "context_fault"), FRAME.place(b, frame, "fault")
    first, last = span
    start = b.variable(first)
    with b.while_(lambda: b.compare("lt", start.get(), last)):
        begin = start.get()
        end = b.min(b.binary("add", begin, grain), last)
        b.call(kernel, [arguments, begin, end, context])
        stop = b.binary("or", b.load(I64, cancel, ordering="relaxed"), b.load(I64, fault))
        start.set(b.select(b.eq(stop, 0), end, last))
