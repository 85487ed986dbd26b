"""Native: parts of a plan that need nothing of each other, walked by a thread each.

With `execution_mode` ORT_PARALLEL parts are branches of a graph, too (branches.py).

Loops of small kernels gain little from threads that share every kernel: they wait for each other
twice a step. Two such loops that are independent (the directions of a recurrent network) are
walked side by side instead, and threads meet once, at the end.

A part's walk keeps its place in the frame's table `positions`: it stops where a run returns to
Python for signal handlers, and goes on from there.
"""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.context import FIELDS
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import F64, I64, PTR
from sardonyx.native.layout import (
    COMMAND,
    FRAME,
    IMAGE,
    JOB,
    NS_PER_JOIN,
    NS_PER_ROUND,
    NS_PER_STEP,
    NS_WORTH_WAKING,
    PART,
    POOL,
    UNFINISHED,
    WORD,
)


def _stopped(b: Builder, frame: Operand) -> Operand:
    """Not 0 once the run is cancelled or a kernel has met a fault."""
    cancel, fault = FRAME.pointer(b, frame, "cancel"), FRAME.place(b, frame, "fault")
    return b.load(I64, cancel, ordering="relaxed") | b.load(I64, fault, ordering="relaxed")


def forget_kept() -> Program:
    """`void forget_kept(context)`: what an earlier command kept in scratch is gone.

    The first word of a thread's scratch is 0 where a command begins, and the kernel's own between
    its calls: it may say there which of its parts scratch still has.
    """
    b = Builder("forget_kept", [("context", PTR)], always_inline=True)
    context = b.parameter("context")
    has_scratch = b.load(I64, context, FIELDS["scratch_bytes"] // WORD) > 0
    with b.if_(has_scratch):
        scratch = b.load(PTR, context, FIELDS["scratch"] // WORD)
        b.store(b.constant(I64, 0), scratch)
    b.return_()
    return b.program


def serial() -> Program:
    """`void serial(frame, kernel, arguments, begin, end, grain, context)`.

    Blocks in this thread, with a look at the flags between pieces.
    """
    pointers, words = ("frame", "kernel", "arguments"), ("begin", "end", "grain")
    b = Builder("serial", [*((x, PTR) for x in pointers), *((x, I64) for x in words),
                           ("context", PTR)])  # fmt: skip
    frame, kernel, arguments = (b.parameter(x) for x in pointers)
    first, last, grain = (b.parameter(x) for x in words)
    b.call("forget_kept", [b.parameter("context")])
    start = b.variable(first)
    with b.while_(lambda: start.get() < last):
        begin = start.get()
        end = b.min(begin + grain, last)
        b.call(kernel, [arguments, begin, end, b.parameter("context")])
        start.set(b.select(b.eq(_stopped(b, frame), 0), end, last))
    b.return_()
    return b.program


def _part(b: Builder, frame: Operand, command: Operand, number: Operand) -> tuple[Operand, Operand]:
    """The record of one of a command's parts, and the place of its position."""
    image = FRAME.pointer(b, frame, "image")
    record = COMMAND.at(b, IMAGE.pointer(b, image, "commands"), command)
    which = COMMAND.read(b, record, "blocks") + number
    part = PART.at(b, IMAGE.pointer(b, image, "parts"), which)
    return part, b.offset(FRAME.pointer(b, frame, "positions"), which, WORD)


def _count(b: Builder, frame: Operand, command: Operand) -> Operand:
    image = FRAME.pointer(b, frame, "image")
    record = COMMAND.at(b, IMAGE.pointer(b, image, "commands"), command)
    return COMMAND.read(b, record, "cost")


def worth() -> Program:
    """`i64 worth(frame, command, pool)`: the work of all parts in ns, or 0 where sharing is better.

    Sharing means that all threads do each kernel together, as the run has scheduled it. Then the
    thread that gets one block more than another decides how long a kernel takes.
    """
    parameters = [("frame", PTR), ("number", I64), ("pool", PTR)]
    b = Builder("worth", parameters, result=I64)
    frame, number, pool = (b.parameter(name) for name, _ in parameters)
    image, slots = FRAME.pointer(b, frame, "image"), FRAME.pointer(b, frame, "slots")
    commands, jobs = IMAGE.pointer(b, image, "commands"), FRAME.pointer(b, frame, "jobs")
    count = _count(b, frame, number)
    whole, longest, sharing = (b.variable(0.0, F64) for _ in range(3))
    with b.for_(0, count) as k:
        part, _ = _part(b, frame, number, k)
        alone, shared = b.variable(0, I64), b.variable(0, I64)
        with b.for_(PART.read(b, part, "first"), PART.read(b, part, "end")) as c:
            kernel = COMMAND.pointer(b, COMMAND.at(b, commands, c), "kernel")
            with b.if_(b.ne(kernel, b.constant(PTR, 0))):
                job = JOB.at(b, jobs, c)
                cost = JOB.read(b, job, "cost")
                # A walk goes through whole kernels; a run must return to Python before.
                with b.if_(cost >= NS_PER_ROUND):
                    b.return_(b.constant(I64, 0))
                threads = b.max(JOB.read(b, job, "threads"), 1)
                blocks = b.max(JOB.read(b, job, "blocks"), 1)
                join = b.select(threads > 1, b.value(I64, NS_PER_JOIN), 0)
                all_blocks = cost * threads
                most = b.min((blocks + threads - 1) // threads, 1 << 10)
                uneven = b.select(blocks < 1 << 10, all_blocks // blocks * most, cost)
                alone.set(alone.get() + all_blocks)
                shared.set(shared.get() + b.max(cost, uneven) + join)
        trips = b.convert(b.load(I64, slots, PART.read(b, part, "trips")), F64)
        all_alone = b.convert(alone.get(), F64) * trips
        whole.set(whole.get() + all_alone)
        longest.set(b.max(longest.get(), all_alone))
        all_shared = b.convert(shared.get(), F64) * trips
        sharing.set(sharing.get() + all_shared)
    able = b.convert(b.min(count, IMAGE.read(b, image, "branches")), F64)
    apart = b.max(longest.get(), whole.get() // able)
    # A run of much other work for all threads wakes them in any case.
    asleep = POOL.read(b, pool, "sleepers") > 0
    idle = FRAME.read(b, frame, "parallel_ns") <= NS_WORTH_WAKING
    waking = asleep & idle
    least = b.select(waking, b.value(I64, NS_WORTH_WAKING), 2 * NS_PER_JOIN)
    better = apart + b.convert(least, F64) < sharing.get()
    with b.if_(better):
        b.return_(b.convert(b.min(whole.get(), float(NS_PER_ROUND)), I64))
    b.return_(b.constant(I64, 0))
    return b.program


def walk() -> Program:
    """`void walk(frame, begin, end, context)`: some parts of the command that the frame names.

    Has the form of a kernel, so that `fork_join` can call it.
    """
    b = Builder("walk", [("frame", PTR), ("begin", I64), ("end", I64), ("context", PTR)])
    frame, context = b.parameter("frame"), b.parameter("context")
    together = FRAME.read(b, frame, "together") - 1
    image = FRAME.pointer(b, frame, "image")
    commands, jobs = IMAGE.pointer(b, image, "commands"), FRAME.pointer(b, frame, "jobs")
    arguments = FRAME.pointer(b, frame, "arguments")
    with b.for_(b.parameter("begin"), b.parameter("end")) as k:
        part, place = _part(b, frame, together, k)
        last = PART.read(b, part, "end")
        at, spent = b.variable(b.load(I64, place)), b.variable(0, I64)
        going = b.variable(1, I64)
        with b.while_(lambda: (at.get() < last) & b.ne(going.get(), 0)):
            number = at.get()
            command, job = COMMAND.at(b, commands, number), JOB.at(b, jobs, number)
            kernel = COMMAND.pointer(b, command, "kernel")
            b.store(number, context, FIELDS["command"] // WORD)
            with b.if_(b.eq(kernel, b.constant(PTR, 0))):
                following = b.call("step", [frame, number, b.constant(PTR, 0)], I64)
                with b.if_(following < 0):
                    FRAME.write(b, frame, "stopped", following)
                    going.set(0)
                with b.else_():
                    at.set(following)
                spent.set(spent.get() + NS_PER_STEP)
            with b.else_():
                given = b.offset(arguments, COMMAND.read(b, command, "arguments"), WORD)
                blocks, grain = JOB.read(b, job, "blocks"), JOB.read(b, job, "grain")
                b.call("serial", [frame, kernel, given, b.constant(I64, 0), blocks, grain, context])
                spent.set(spent.get() + JOB.read(b, job, "cost") * JOB.read(b, job, "threads"))
                at.set(number + 1)
            pause = (spent.get() > NS_PER_ROUND) | b.ne(_stopped(b, frame), 0)
            with b.if_(pause):
                going.set(0)
        b.store(at.get(), place)
    b.return_()
    return b.program


def together() -> Program:
    """`i64 together(frame, command, pool)`: do a step of that kind; gives which command is next.

    Or, below zero, what `execute` is to give before it comes back here.
    """
    b = Builder("together", [("frame", PTR), ("number", I64), ("pool", PTR)], result=I64)
    frame, number, pool = (b.parameter(x) for x in ("frame", "number", "pool"))
    image, count = FRAME.pointer(b, frame, "image"), _count(b, frame, number)
    job = JOB.at(b, FRAME.pointer(b, frame, "jobs"), number)
    mark = number + 1
    with b.if_(b.ne(FRAME.read(b, frame, "together"), mark)):
        work = b.call("worth", [frame, number, pool], I64)
        with b.if_(b.eq(work, 0)):
            b.return_(mark)
        with b.for_(0, count) as k:
            part, place = _part(b, frame, number, k)
            b.store(PART.read(b, part, "first"), place)
        FRAME.write(b, frame, "together", mark)
        JOB.write(b, job, "threads", b.min(count, IMAGE.read(b, image, "branches")))
        JOB.write(b, job, "grain", 1)
        JOB.write(b, job, "cost", work)
    FRAME.write(b, frame, "stopped", 0)
    span = [b.constant(I64, 0), count, b.constant(I64, 1)]
    b.call("fork_join", [pool, frame, POOL.pointer(b, pool, "walk"), frame, job, *span])
    with b.if_(b.ne(_stopped(b, frame), 0)):
        b.return_(mark)
    stopped = FRAME.read(b, frame, "stopped")
    with b.if_(stopped < 0):
        b.return_(stopped)
    end = b.variable(0, I64)
    with b.for_(0, count) as k:
        part, place = _part(b, frame, number, k)
        last = PART.read(b, part, "end")
        with b.if_(b.load(I64, place) < last):
            b.return_(b.constant(I64, UNFINISHED))
        end.set(last)
    FRAME.write(b, frame, "together", 0)
    b.return_(end.get())
    return b.program
