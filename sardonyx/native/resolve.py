"""Native: from the feeds' dimensions to everything about a run that depends on them."""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import F64, I64, PTR
from sardonyx.native.layout import (
    AXIS,
    BAD_BLOCKS,
    BAD_MEASURE,
    BAD_OFFSET,
    BIND,
    COMMAND,
    DIVISION,
    DONE,
    FRAME,
    GUARD,
    IMAGE,
    INSTRUCTION,
    JOB,
    LARGEST_BYTES,
    LAUNCHER,
    MEASURE,
    NEED_MEMORY,
    NEED_RESULTS,
    NS_PER_POLL,
    NS_PER_ROUND,
    NS_PER_THREAD,
    NUMBER,
    OVERFLOW,
    POINTER,
    REFUSED,
    SEGMENT,
    STATE,
    UNEQUAL,
    WORD,
)
from sardonyx.native.segment import each, fetched, reads, return_unless_there, start
from sardonyx.plan.tape import ADD, FLOORDIV, LIMIT, MAXIMUM, MULTIPLY

STEPS = ("evaluate", "check", "pack", "schedule", "fill")


def _fail_if(b: Builder, frame: Operand, test: Operand, code: int, number: Operand) -> None:
    with b.if_(test):
        FRAME.write(b, frame, "detail_a", number)
        b.return_(b.constant(I64, code))


def _outside(b: Builder, value: Operand, high: Operand | int) -> Operand:
    return (value < 0) | (value > high)


def evaluate() -> Program:
    """Symbols from the feeds, then the tape, as `plan.tape.evaluate` does it."""
    b, frame, image, segment, _ = start("evaluate")
    slots, dims = FRAME.pointer(b, frame, "slots"), FRAME.pointer(b, frame, "dims")
    binds = IMAGE.pointer(b, image, "binds")
    with b.if_(b.eq(b.parameter("segment"), 0)), b.for_(0, IMAGE.read(b, image, "bind_count")) as k:
        bind = BIND.at(b, binds, k)
        b.store(b.load(I64, dims, BIND.read(b, bind, "axis")), slots, BIND.read(b, bind, "slot"))
    tape = IMAGE.pointer(b, image, "tape")
    with each(b, segment, "tape") as k:
        step = INSTRUCTION.at(b, tape, k)
        operation = INSTRUCTION.read(b, step, "operation")
        left = b.load(I64, slots, INSTRUCTION.read(b, step, "left"))
        right = b.load(I64, slots, INSTRUCTION.read(b, step, "right"))
        value = b.variable(0, I64)
        with b.if_(b.eq(operation, MULTIPLY)):
            # In floating point a product cannot wrap, and is too large if the exact one is.
            estimate = b.convert(left, F64) * b.convert(right, F64)
            _fail_if(b, frame, _outside_float(b, estimate), OVERFLOW, k)
            value.set(left * right)
        with b.else_():
            with b.if_(b.eq(operation, ADD)):
                value.set(left + right)
            with b.else_():
                with b.if_(b.eq(operation, FLOORDIV)):
                    _fail_if(b, frame, right < 1, DIVISION, k)
                    quotient = left // right
                    inexact = left - quotient * right < 0
                    value.set(quotient - b.index_cast(inexact))
                with b.else_():
                    largest = b.eq(operation, MAXIMUM)
                    value.set(b.select(largest, b.max(left, right), b.min(left, right)))
        result = value.get()
        beyond = result >= LIMIT
        beyond = beyond | (result <= -LIMIT)
        _fail_if(b, frame, beyond, OVERFLOW, k)
        b.store(result, slots, INSTRUCTION.read(b, step, "result"))
    b.return_(b.constant(I64, DONE))
    return b.program


def _outside_float(b: Builder, value: Operand) -> Operand:
    return b.unary("abs", value) >= float(LIMIT)


def check() -> Program:
    """Compare the feeds' dimensions and the guards' two sides with what the tape says."""
    b, frame, image, segment, _ = start("check")
    slots = FRAME.pointer(b, frame, "slots")
    dims, axes = FRAME.pointer(b, frame, "dims"), IMAGE.pointer(b, image, "axes")
    with b.if_(b.eq(b.parameter("segment"), 0)), b.for_(0, IMAGE.read(b, image, "axis_count")) as k:
        wanted = b.load(I64, slots, b.load(I64, axes, k))
        _fail_if(b, frame, b.ne(wanted, b.load(I64, dims, k)), AXIS, k)
    guards = IMAGE.pointer(b, image, "guards")
    with each(b, segment, "guards") as k:
        guard = GUARD.at(b, guards, k)
        left = b.load(I64, slots, GUARD.read(b, guard, "left"))
        right = b.load(I64, slots, GUARD.read(b, guard, "right"))
        _fail_if(b, frame, b.ne(left, right), UNEQUAL, k)
    b.return_(b.constant(I64, DONE))
    return b.program


def schedule() -> Program:
    """Blocks, threads and grain of every command; scratch memory and threads of the run."""
    b, frame, image, segment, _ = start("schedule")
    slots, scheduled = FRAME.pointer(b, frame, "slots"), IMAGE.pointer(b, image, "scheduled")
    commands, jobs = IMAGE.pointer(b, image, "commands"), FRAME.pointer(b, frame, "jobs")
    most = IMAGE.read(b, image, "threads")
    totals = ("scratch_bytes", "threads", "parallel_ns")
    with b.if_(b.eq(b.parameter("segment"), 0)):
        for name in totals:
            FRAME.write(b, frame, name, 0)
    scratch_max, threads_max, parallel_ns = (
        b.variable(FRAME.read(b, frame, name)) for name in totals
    )
    with each(b, segment, "scheduled") as row:
        k = b.load(I64, scheduled, row)
        command, job = COMMAND.at(b, commands, k), JOB.at(b, jobs, k)
        blocks = b.load(I64, slots, COMMAND.read(b, command, "blocks"))
        scratch = b.load(I64, slots, COMMAND.read(b, command, "scratch"))
        cost = b.max(b.load(I64, slots, COMMAND.read(b, command, "cost")), 0)
        wrong = (blocks < 0) | _outside(b, scratch, LARGEST_BYTES)
        _fail_if(b, frame, wrong, BAD_BLOCKS, k)
        wanted = b.min(cost // NS_PER_THREAD + 1, blocks)
        threads = b.min(wanted, most)
        pieces = cost // NS_PER_POLL + 1
        JOB.write(b, job, "blocks", blocks)
        JOB.write(b, job, "threads", threads)
        JOB.write(b, job, "grain", b.max((blocks + pieces - 1) // pieces, 1))
        shared_cost = cost // b.max(threads, 1)
        rounds = shared_cost // NS_PER_ROUND + 1
        JOB.write(b, job, "round", b.max((blocks + rounds - 1) // rounds, 1))
        JOB.write(b, job, "cost", shared_cost)
        scratch_max.set(b.max(scratch_max.get(), scratch))
        threads_max.set(b.max(threads_max.get(), threads))
        with b.if_(threads > 1):
            # Both are below LIMIT, so the sum does not wrap before it is cut.
            parallel_ns.set(b.min(parallel_ns.get() + cost, LIMIT - 1))
    for name, value in zip(totals, (scratch_max, threads_max, parallel_ns), strict=True):
        FRAME.write(b, frame, name, value.get())
    b.return_(b.constant(I64, DONE))
    return b.program


def fill() -> Program:
    """Check the offsets of pointers; write the arguments that are sizes; note that it is done."""
    b, frame, image, segment, state = start("fill")
    slots = FRAME.pointer(b, frame, "slots")
    pointers, buffers = (IMAGE.pointer(b, image, x) for x in ("pointers", "buffers"))
    for kind in ("moving", "resting"):
        with each(b, segment, kind) as k:
            pointer = POINTER.at(b, pointers, k)
            offset = b.load(I64, slots, POINTER.read(b, pointer, "offset"))
            size = b.load(I64, slots, b.load(I64, buffers, POINTER.read(b, pointer, "buffer")))
            _fail_if(b, frame, _outside(b, offset, size), BAD_OFFSET, k)
    arguments, numbers = FRAME.pointer(b, frame, "arguments"), IMAGE.pointer(b, image, "numbers")
    with each(b, segment, "numbers") as k:
        number = NUMBER.at(b, numbers, k)
        value = b.load(I64, slots, NUMBER.read(b, number, "slot"))
        b.store(value, arguments, NUMBER.read(b, number, "argument"))
    # Parts of a plan that are walked together enter segments at the same time.
    clock = b.atomic("add", FRAME.place(b, frame, "clock"), b.constant(I64, 1)) + 1
    STATE.write(b, state, "stamp", clock)
    STATE.write(b, state, "dirty", 1)
    with b.if_(b.eq(b.parameter("segment"), 0)):
        FRAME.write(b, frame, "valid", 1)
    b.return_(b.constant(I64, DONE))
    return b.program


def resolve() -> Program:
    """`i64 resolve(frame, segment)`: all steps for one segment, whose symbols have their values.

    Gives DONE, or what is wrong, with its number in detail_a.
    """
    b, frame, _, _, _ = start("resolve")
    for step in STEPS:
        code = b.call(step, [frame, b.parameter("segment")], I64)
        if code is not None:
            with b.if_(b.ne(code, DONE)):
                b.return_(code)
    b.return_(b.constant(I64, DONE))
    return b.program


def enter() -> Program:
    """`i64 enter(frame, segment)`: measure, and resolve if that or anything before it changed.

    Gives DONE, or what `execute` is to give before it comes back here.
    """
    b, frame, image, segment, state = start("enter")
    number = b.parameter("segment")
    slots, bases = FRAME.pointer(b, frame, "slots"), FRAME.pointer(b, frame, "bases")
    states = FRAME.pointer(b, frame, "states")
    stamp = STATE.read(b, state, "stamp")
    changed = b.variable(b.index_cast(b.eq(stamp, 0)))
    measures, needed = (IMAGE.pointer(b, image, name) for name in ("measures", "needed"))
    is_remote = reads(b, frame)
    first, end = (SEGMENT.read(b, segment, name) for name in ("measures", "measures_end"))
    with b.if_(is_remote & (first < end)):
        with b.for_(first, end) as k:
            fetched(b, frame, _measured(b, bases, slots, MEASURE.at(b, measures, k)), k, WORD)
        return_unless_there(b, frame)
    with b.for_(first, end) as k:
        measure = MEASURE.at(b, measures, k)
        place = b.variable(_measured(b, bases, slots, measure))
        with b.if_(is_remote):
            launcher = FRAME.pointer(b, frame, "launcher")
            place.set(b.offset(LAUNCHER.pointer(b, launcher, "mirror"), k, WORD))
        value = b.load(I64, place.get())
        low = b.load(I64, slots, MEASURE.read(b, measure, "low"))
        high = b.load(I64, slots, MEASURE.read(b, measure, "high"))
        with b.if_((value < low) | (value > high)):
            FRAME.write(b, frame, "detail_a", k)
            FRAME.write(b, frame, "detail_b", value)
            FRAME.write(b, frame, "detail_c", BAD_MEASURE)
            b.return_(b.constant(I64, REFUSED))
        slot = MEASURE.read(b, measure, "slot")
        with b.if_(b.ne(b.load(I64, slots, slot), value)):
            b.store(value, slots, slot)
            changed.set(1)
    with each(b, segment, "needed") as k:
        before = STATE.read(b, STATE.at(b, states, b.load(I64, needed, k)), "stamp")
        with b.if_(before > stamp):
            changed.set(1)
    with b.if_(b.ne(changed.get(), 0)):
        STATE.write(b, state, "stamp", 0)
        code = b.call("resolve", [frame, number], I64)
        if code is not None:
            with b.if_(b.ne(code, DONE)):
                FRAME.write(b, frame, "detail_c", code)
                b.return_(b.constant(I64, REFUSED))
    scratch, held = (
        FRAME.read(b, frame, "scratch_bytes"),
        FRAME.read(b, frame, "context_scratch_bytes"),
    )
    lacking = STATE.read(b, state, "arena_bytes") > STATE.read(b, state, "capacity")
    _ask_if(b, frame, lacking | (scratch > held), NEED_MEMORY)
    with b.if_(b.ne(SEGMENT.read(b, segment, "later"), 0)):
        _ask_if(b, frame, b.eq(STATE.read(b, state, "given"), 0), NEED_RESULTS)
    with b.if_(b.ne(STATE.read(b, state, "dirty"), 0)):
        b.call("place", [frame, number], I64)
    moving = [SEGMENT.read(b, segment, name) for name in ("moving", "moving_end")]
    b.call("point", [frame, *moving])
    b.return_(b.constant(I64, DONE))
    return b.program


def _measured(b: Builder, bases: Operand, slots: Operand, measure: Operand) -> Operand:
    """Where the value of a measure lies."""
    base = b.load(PTR, bases, MEASURE.read(b, measure, "buffer"))
    return b.offset(base, b.load(I64, slots, MEASURE.read(b, measure, "offset")), 1)


def _ask_if(b: Builder, frame: Operand, test: Operand, code: int) -> None:
    with b.if_(test):
        FRAME.write(b, frame, "detail_a", b.parameter("segment"))
        b.return_(b.constant(I64, code))
