"""Native: from the feeds' dimensions to everything about a run that depends on them."""

from __future__ import annotations

from sardonyx.kernel.builder import Builder
from sardonyx.kernel.program import Operand, Program
from sardonyx.kernel.types import F64, I64, PTR
from sardonyx.plan.tape import ADD, FLOORDIV, LIMIT, MAXIMUM, MULTIPLY
from sardonyx.runtime.native_layout import (
    AXIS,
    BAD_BLOCKS,
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
    NS_PER_POLL,
    NS_PER_ROUND,
    NS_PER_THREAD,
    NUMBER,
    OVERFLOW,
    POINTER,
    UNEQUAL,
)

STEPS = ("evaluate", "check", "pack", "schedule", "fill")


def _start(name: str) -> tuple[Builder, Operand, Operand, Operand]:
    b = Builder(name, [("frame", PTR)], result=I64)
    frame = b.parameter("frame")
    return b, frame, FRAME.pointer(b, frame, "image"), FRAME.pointer(b, frame, "slots")


def _fail_if(b: Builder, frame: Operand, test: Operand, code: int, number: Operand) -> None:
    with b.if_(test):
        FRAME.write(b, frame, "detail_a", number)
        b.return_(b.constant(I64, code))


def _outside(b: Builder, value: Operand, high: Operand | int) -> Operand:
    return b.binary("or", b.compare("lt", value, 0), b.compare("gt", value, high))


def evaluate() -> Program:
    """Symbols from the feeds, then the tape, as `plan.tape.evaluate` does it."""
    b, frame, image, slots = _start("evaluate")
    dims = FRAME.pointer(b, frame, "dims")
    binds = IMAGE.pointer(b, image, "binds")
    with b.for_(0, IMAGE.read(b, image, "bind_count")) as k:
        bind = BIND.at(b, binds, k)
        b.store(b.load(I64, dims, BIND.read(b, bind, "axis")), slots, BIND.read(b, bind, "slot"))
    tape = IMAGE.pointer(b, image, "tape")
    with b.for_(0, IMAGE.read(b, image, "tape_count")) as k:
        step = INSTRUCTION.at(b, tape, k)
        operation = INSTRUCTION.read(b, step, "operation")
        left = b.load(I64, slots, INSTRUCTION.read(b, step, "left"))
        right = b.load(I64, slots, INSTRUCTION.read(b, step, "right"))
        value = b.variable(0, I64)
        with b.if_(b.eq(operation, MULTIPLY)):
            # In floating point a product cannot wrap, and is too large if the exact one is.
            estimate = b.binary("mul", b.convert(left, F64), b.convert(right, F64))
            _fail_if(b, frame, _outside_float(b, estimate), OVERFLOW, k)
            value.set(left * right)
        with b.else_():
            with b.if_(b.eq(operation, ADD)):
                value.set(left + right)
            with b.else_():
                with b.if_(b.eq(operation, FLOORDIV)):
                    _fail_if(b, frame, right < 1, DIVISION, k)
                    quotient = left // right
                    inexact = b.compare("lt", left - quotient * right, 0)
                    value.set(quotient - b.index_cast(inexact))
                with b.else_():
                    largest = b.eq(operation, MAXIMUM)
                    value.set(b.select(largest, b.max(left, right), b.min(left, right)))
        result = value.get()
        beyond = b.compare("ge", result, LIMIT)
        beyond = b.binary("or", beyond, b.compare("le", result, -LIMIT))
        _fail_if(b, frame, beyond, OVERFLOW, k)
        b.store(result, slots, INSTRUCTION.read(b, step, "result"))
    b.return_(b.constant(I64, DONE))
    return b.program


def _outside_float(b: Builder, value: Operand) -> Operand:
    return b.compare("ge", b.unary("abs", value), float(LIMIT))


def check() -> Program:
    """Compare the feeds' dimensions and the guards' two sides with what the tape says."""
    b, frame, image, slots = _start("check")
    dims, axes = FRAME.pointer(b, frame, "dims"), IMAGE.pointer(b, image, "axes")
    with b.for_(0, IMAGE.read(b, image, "axis_count")) as k:
        wanted = b.load(I64, slots, b.load(I64, axes, k))
        _fail_if(b, frame, b.ne(wanted, b.load(I64, dims, k)), AXIS, k)
    guards = IMAGE.pointer(b, image, "guards")
    with b.for_(0, IMAGE.read(b, image, "guard_count")) as k:
        guard = GUARD.at(b, guards, k)
        left = b.load(I64, slots, GUARD.read(b, guard, "left"))
        right = b.load(I64, slots, GUARD.read(b, guard, "right"))
        _fail_if(b, frame, b.ne(left, right), UNEQUAL, k)
    b.return_(b.constant(I64, DONE))
    return b.program


def schedule() -> Program:
    """Blocks, threads and grain of every command; scratch memory and threads of the run."""
    b, frame, image, slots = _start("schedule")
    commands, jobs = IMAGE.pointer(b, image, "commands"), FRAME.pointer(b, frame, "jobs")
    most = IMAGE.read(b, image, "threads")
    scratch_max, threads_max = b.variable(0, I64), b.variable(0, I64)
    parallel_ns = b.variable(0, I64)
    with b.for_(0, IMAGE.read(b, image, "command_count")) as k:
        command, job = COMMAND.at(b, commands, k), JOB.at(b, jobs, k)
        blocks = b.load(I64, slots, COMMAND.read(b, command, "blocks"))
        scratch = b.load(I64, slots, COMMAND.read(b, command, "scratch"))
        cost = b.max(b.load(I64, slots, COMMAND.read(b, command, "cost")), 0)
        wrong = b.binary("or", blocks < 0, _outside(b, scratch, LARGEST_BYTES))
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
    FRAME.write(b, frame, "scratch_bytes", scratch_max.get())
    FRAME.write(b, frame, "threads", threads_max.get())
    FRAME.write(b, frame, "parallel_ns", parallel_ns.get())
    b.return_(b.constant(I64, DONE))
    return b.program


def fill() -> Program:
    """Check the offsets of pointers; write the arguments that are sizes."""
    b, frame, image, slots = _start("fill")
    pointers, buffers = (IMAGE.pointer(b, image, x) for x in ("pointers", "buffers"))
    with b.for_(0, IMAGE.read(b, image, "pointer_count")) as k:
        pointer = POINTER.at(b, pointers, k)
        offset = b.load(I64, slots, POINTER.read(b, pointer, "offset"))
        size = b.load(I64, slots, b.load(I64, buffers, POINTER.read(b, pointer, "buffer")))
        _fail_if(b, frame, _outside(b, offset, size), BAD_OFFSET, k)
    arguments, numbers = FRAME.pointer(b, frame, "arguments"), IMAGE.pointer(b, image, "numbers")
    with b.for_(0, IMAGE.read(b, image, "number_count")) as k:
        number = NUMBER.at(b, numbers, k)
        value = b.load(I64, slots, NUMBER.read(b, number, "slot"))
        b.store(value, arguments, NUMBER.read(b, number, "argument"))
    FRAME.write(b, frame, "dirty", 1)
    FRAME.write(b, frame, "valid", 1)
    b.return_(b.constant(I64, DONE))
    return b.program


def resolve() -> Program:
    """`i64 resolve(frame)`: all steps; gives DONE or what is wrong, with its number in detail_a."""
    b, frame, _, _ = _start("resolve")
    for step in STEPS:
        code = b.call(step, [frame], I64)
        if code is not None:
            with b.if_(b.ne(code, DONE)):
                b.return_(code)
    b.return_(b.constant(I64, DONE))
    return b.program
