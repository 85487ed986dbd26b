"""Native: place the pointers, then walk the commands."""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I32, I64, PTR, U8
from sardonyx.native.layout import (
    BAD_SIZE,
    COMMAND,
    DATA_OFFSET,
    ENTER,
    FRAME,
    GROWN,
    HOST,
    IMAGE,
    JOB,
    JUMP,
    JUMP_IF_LESS,
    JUMP_UNLESS,
    LARGEST_BYTES,
    LAUNCH,
    LAUNCHED,
    LAUNCHER,
    NEED_GROWTH,
    NEED_HOST,
    NOT_LAUNCHED,
    NS_PER_ROUND,
    NS_PER_STEP,
    NS_WORTH_WAKING,
    OUTPUT,
    POINTER,
    REFUSED,
    SEGMENT,
    SET,
    STATE,
    TOGETHER,
    UNFINISHED,
    WORD,
)
from sardonyx.native.segment import each, fetched, reads, return_unless_there, start

#: Fault code of a cancelled run, see kernel/language/context.py.
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
    """`i64 place(frame, segment)`: addresses in a segment's arena, after a change of it."""
    b, frame, image, segment, state = start("place")
    arena = STATE.read(b, state, "arena")
    events, bases = IMAGE.pointer(b, image, "events"), FRAME.pointer(b, frame, "bases")
    offsets = FRAME.pointer(b, frame, "offsets")
    with each(b, segment, "events") as k:
        buffer = b.load(I64, events, k)
        with b.if_(buffer >= 0):
            b.store(arena + b.load(I64, offsets, buffer), bases, buffer)
    resting = [SEGMENT.read(b, segment, name) for name in ("resting", "resting_end")]
    b.call("point", [frame, *resting])
    STATE.write(b, state, "dirty", 0)
    b.return_(b.constant(I64, 0))
    return b.program


def step() -> Program:
    """`i64 step(frame, command, pool)`: do a step; gives which command is next.

    Or, below zero, what `execute` is to give before it comes back here. `pool` may be null.
    """
    b = Builder("step", [("frame", PTR), ("number", I64), ("pool", PTR)], result=I64)
    frame, number = b.parameter("frame"), b.parameter("number")
    image, slots = FRAME.pointer(b, frame, "image"), FRAME.pointer(b, frame, "slots")
    command = COMMAND.at(b, IMAGE.pointer(b, image, "commands"), number)
    kind = COMMAND.read(b, command, "arguments")
    first, second, third = (COMMAND.read(b, command, x) for x in ("blocks", "cost", "scratch"))
    following = number + 1
    with b.if_(b.eq(kind, LAUNCH)):
        code = b.call("launch", [frame, number], I64)
        b.return_(b.select(b.eq(code, 0), following, NOT_LAUNCHED))
    with b.if_(b.eq(kind, JUMP)):
        b.return_(first)
    with b.if_(b.eq(kind, ENTER)):
        code = b.call("enter", [frame, first], I64)
        if code is not None:
            with b.if_(code < 0):
                b.return_(code)
        b.return_(following)
    with b.if_(b.eq(kind, JUMP_UNLESS)):
        base = b.load(PTR, FRAME.pointer(b, frame, "bases"), first)
        place = b.variable(b.offset(base, b.load(I64, slots, third), 1))
        with b.if_(reads(b, frame)):
            count = IMAGE.read(b, image, "measure_count")
            place.set(fetched(b, frame, place.get(), count, 1))
            return_unless_there(b, frame)
        flag = b.load(U8, place.get())
        b.return_(b.select(b.eq(flag, 0), second, following))
    with b.if_(b.eq(kind, JUMP_IF_LESS)):
        left, right = b.load(I64, slots, first), b.load(I64, slots, second)
        b.return_(b.select(left < right, third, following))
    with b.if_(b.eq(kind, HOST)):
        b.return_(b.constant(I64, NEED_HOST))
    with b.if_(b.eq(kind, TOGETHER)):
        with b.if_(b.ne(b.parameter("pool"), b.constant(PTR, 0))):
            after = b.call("together", [frame, number, b.parameter("pool")], I64)
            b.return_(after)
        b.return_(following)
    value = b.load(I64, slots, second)
    with b.if_(b.eq(kind, SET)):
        with b.if_(b.ne(b.load(I64, slots, first), value)):
            b.store(value, slots, first)
            owner = STATE.at(b, FRAME.pointer(b, frame, "states"), third)
            STATE.write(b, owner, "stamp", 0)
        b.return_(following)
    capacity = b.load(I64, FRAME.pointer(b, frame, "capacities"), first)
    grown = GROWN.at(b, IMAGE.pointer(b, image, "grown"), first)
    with b.if_((value < 0) | (value > LARGEST_BYTES)):
        FRAME.write(b, frame, "detail_a", GROWN.read(b, grown, "buffer"))
        FRAME.write(b, frame, "detail_b", value)
        FRAME.write(b, frame, "detail_c", BAD_SIZE)
        b.return_(b.constant(I64, REFUSED))
    with b.if_(capacity < value):
        FRAME.write(b, frame, "detail_a", first)
        FRAME.write(b, frame, "detail_b", value)
        FRAME.write(b, frame, "detail_c", b.load(I64, slots, third))
        b.return_(b.constant(I64, NEED_GROWTH))
    pointers = [GROWN.read(b, grown, name) for name in ("pointers", "pointers_end")]
    b.call("point", [frame, *pointers])
    b.return_(following)
    return b.program


def launch() -> Program:
    """`i64 launch(frame, command)`: give a kernel to the device; gives the driver's code."""
    b = Builder("launch", [("frame", PTR), ("number", I64)], result=I64)
    frame, number = b.parameter("frame"), b.parameter("number")
    job = JOB.at(b, FRAME.pointer(b, frame, "jobs"), number)
    blocks = JOB.read(b, job, "blocks")
    with b.if_(blocks < 1):
        b.return_(b.constant(I64, 0))
    launched = LAUNCHED.at(b, FRAME.pointer(b, frame, "launches"), number)
    launcher = FRAME.pointer(b, frame, "launcher")
    group = LAUNCHED.read(b, launched, "group")
    grid = b.min((blocks + group - 1) // group, LAUNCHED.read(b, launched, "most"))
    LAUNCHED.write(b, launched, "grid_xy", grid + (1 << 32))
    is_early = grid <= LAUNCHED.read(b, launched, "early")
    LAUNCHED.write(b, launched, "count", b.select(is_early, b.value(I64, 1), 0))
    LAUNCHED.write(b, launched, "stream", LAUNCHER.read(b, launcher, "stream"))
    given: list[Operand] = [
        LAUNCHED.place(b, launched, "grid_xy"), LAUNCHED.pointer(b, launched, "function"),
        LAUNCHED.pointer(b, launched, "parameters"), b.constant(PTR, 0),
    ]  # fmt: skip
    code = b.call(LAUNCHER.pointer(b, launcher, "launch"), given, I32)
    _give_code(b, frame, code)
    return b.program


def wait() -> Program:
    """`i64 wait(frame)`: until what was fetched is there; gives the driver's code."""
    b = Builder("wait", [("frame", PTR)], result=I64)
    frame = b.parameter("frame")
    launcher = FRAME.pointer(b, frame, "launcher")
    stream = LAUNCHER.pointer(b, launcher, "stream")
    code = b.call(LAUNCHER.pointer(b, launcher, "wait"), [stream], I32)
    _give_code(b, frame, code)
    return b.program


def _give_code(b: Builder, frame: Operand, code: Operand) -> None:
    wide = b.convert(code, I64)
    FRAME.write(b, frame, "detail_a", wide)
    b.return_(wide)


def execute() -> Program:
    """`i64 execute(frame, items, pool)`: run the commands of a resolved frame.

    `items` are addresses of array objects, one per output whose shape is known from the start;
    `pool` may be null. Gives 0; or a fault's code (the frame's fault record has the rest); or,
    below zero, what it wants before the next call goes on (see native_layout).
    """
    b = Builder("execute", [("frame", PTR), ("items", PTR), ("pool", PTR)], result=I64)
    frame, items, pool = (b.parameter(x) for x in ("frame", "items", "pool"))
    image = FRAME.pointer(b, frame, "image")
    bases, outputs = FRAME.pointer(b, frame, "bases"), IMAGE.pointer(b, image, "outputs")
    with b.for_(0, IMAGE.read(b, image, "output_count")) as k:
        output = OUTPUT.at(b, outputs, k)
        array = b.load(PTR, items, OUTPUT.read(b, output, "item"))
        data = b.load(I64, array, DATA_OFFSET // WORD)
        b.store(data, bases, OUTPUT.read(b, output, "buffer"))
    zero = b.constant(I64, 0)
    with b.if_(b.ne(STATE.read(b, FRAME.pointer(b, frame, "states"), "dirty"), 0)):
        b.call("place", [frame, zero], I64)
    segment = IMAGE.pointer(b, image, "segments")
    moving = [SEGMENT.read(b, segment, name) for name in ("moving", "moving_end")]
    b.call("point", [frame, *moving])
    commands, jobs = IMAGE.pointer(b, image, "commands"), FRAME.pointer(b, frame, "jobs")
    arguments, cancel = FRAME.pointer(b, frame, "arguments"), FRAME.pointer(b, frame, "cancel")
    with_pool = b.ne(pool, b.constant(PTR, 0))
    spent = b.variable(0, I64)
    at, count = b.variable(FRAME.read(b, frame, "command")), IMAGE.read(b, image, "command_count")
    with b.while_(lambda: at.get() < count):
        number = at.get()
        command, job = COMMAND.at(b, commands, number), JOB.at(b, jobs, number)
        FRAME.write(b, frame, "context_command", number)
        kernel = COMMAND.pointer(b, command, "kernel")
        with b.if_(b.eq(kernel, b.constant(PTR, 0))):
            following = b.call("step", [frame, number, pool], I64)
            with b.if_(following < 0):
                FRAME.write(b, frame, "command", number)
                b.return_(following)
            at.set(following)
            spent.set(spent.get() + NS_PER_STEP)
            _return_faults(b, frame, cancel, number)
        with b.else_():
            given = b.offset(arguments, COMMAND.read(b, command, "arguments"), WORD)
            begin, blocks = FRAME.read(b, frame, "block"), JOB.read(b, job, "blocks")
            end = b.min(begin + JOB.read(b, job, "round"), blocks)
            parallel = with_pool & (JOB.read(b, job, "threads") > 1)
            with b.if_(parallel):
                worth = FRAME.read(b, frame, "parallel_ns") > NS_WORTH_WAKING
                given_all = [pool, frame, kernel, given, job, begin, end, b.index_cast(worth)]
                b.call("fork_join", given_all)
            with b.else_():
                context = FRAME.place(b, frame, "context_fault")
                grain = JOB.read(b, job, "grain")
                b.call("serial", [frame, kernel, given, begin, end, grain, context])
            _return_faults(b, frame, cancel, number)
            with b.if_(end < blocks):
                FRAME.write(b, frame, "command", number)
                FRAME.write(b, frame, "block", end)
                b.return_(b.constant(I64, UNFINISHED))
            FRAME.write(b, frame, "block", 0)
            spent.set(spent.get() + JOB.read(b, job, "cost"))
            at.set(number + 1)
        with b.if_(spent.get() > NS_PER_ROUND):
            FRAME.write(b, frame, "command", at.get())
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
