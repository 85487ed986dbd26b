"""Native: a fork-join pool whose workers are threads parked in `worker`.

A command is published in the pool's record, then `open` is set and `generation` counted up. Workers
that notice count themselves in (`active`), and only then look whether the command is still open:
those that come too late go away again, and nobody waits for them. The caller works too; when no
block is left it closes the command and waits until `active` is 0. All of these accesses are
sequentially consistent: either a worker sees that the command is closed, or the caller sees it.
"""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.context import FIELDS
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I64, PTR
from sardonyx.native.caller_processor import keep_apart
from sardonyx.native.layout import (
    FRAME,
    IMAGE,
    JOB,
    MOST_PORTIONS,
    NS_WORTH_WAKING,
    POOL,
    PORTION,
)

# Of futex(2), for memory of one process.
_WAIT, _WAKE = 128, 129


def _load(b: Builder, pool: Operand, name: str, ordering: str = "seq_cst") -> Operand:
    return b.load(I64, pool, POOL[name], ordering=ordering)


def _add(b: Builder, pool: Operand, name: str, amount: int) -> Operand:
    return b.atomic("add", POOL.place(b, pool, name), b.constant(I64, amount))


def _exchange(b: Builder, pool: Operand, name: str, value: int) -> None:
    b.atomic("exchange", POOL.place(b, pool, name), b.constant(I64, value))


def _futex(
    b: Builder, pool: Operand, name: str, operation: int, value: Operand, timeout: Operand
) -> None:
    """Wait while a word is `value`, or wake `value` threads that do."""
    b.call(
        POOL.pointer(b, pool, "system_call"),
        [
            POOL.read(b, pool, "futex_number"),
            POOL.place(b, pool, name),
            b.constant(I64, operation),
            value,
            timeout,
            b.constant(PTR, 0),
            b.constant(I64, 0),
        ],
        I64,
        fixed=1,
    )


def _sleep(b: Builder, pool: Operand, name: str, value: Operand, timeout: Operand) -> None:
    """Sleep while a word is `value`; without futexes, give the processor away for a moment."""
    with b.if_(b.ne(POOL.read(b, pool, "futex_number"), 0)):
        _futex(b, pool, name, _WAIT, value, timeout)
    with b.else_():
        # usleep: longer for workers that wait for a next run than for a caller that joins.
        pause_us = 200 if name == "generation" else 10
        b.call(POOL.pointer(b, pool, "yield_address"), [b.constant(I64, pause_us)], I64)


def _wake(b: Builder, pool: Operand, name: str, count: Operand) -> None:
    with b.if_(b.ne(POOL.read(b, pool, "futex_number"), 0)):
        _futex(b, pool, name, _WAKE, count, b.constant(PTR, 0))


def claim() -> Program:
    """`void claim(pool, context)`: take blocks of the open command, many first, then fewer.

    From the thread's own portion before others': it has the same one of each command, so that what
    it reads most likely is what it wrote, and in its own cache.
    """
    b = Builder("claim", [("pool", PTR), ("context", PTR)])
    pool, context = b.parameter("pool"), b.parameter("context")
    kernel, arguments = POOL.pointer(b, pool, "kernel"), POOL.pointer(b, pool, "arguments")
    cancel, fault = POOL.pointer(b, pool, "cancel"), POOL.pointer(b, pool, "fault")
    limit, portions = POOL.read(b, pool, "limit"), POOL.read(b, pool, "portion_count")
    share = POOL.read(b, pool, "share") * ((limit + portions - 1) // portions)
    grain = POOL.read(b, pool, "grain")
    table = POOL.pointer(b, pool, "portions")
    b.call("forget_kept", [context])
    thread = b.load(I64, context, FIELDS["thread"] // 8) % limit
    number, seen = b.variable(thread * portions // limit, I64), b.variable(0, I64)
    with b.while_(lambda: seen.get() < portions):
        portion = PORTION.at(b, table, number.get())
        begin = b.load(I64, portion, PORTION["next"], ordering="relaxed")
        stop = b.load(I64, cancel, ordering="relaxed") | b.load(I64, fault, ordering="relaxed")
        left = PORTION.read(b, portion, "end") - begin
        with b.if_(b.ne(stop, 0)):
            seen.set(portions)
        with b.else_():
            with b.if_(left < 1):
                seen.set(seen.get() + 1)
                number.set((number.get() + 1) % portions)
            with b.else_():
                end = begin + b.min(b.max(left // share, 1), grain)
                found = b.compare_exchange(PORTION.place(b, portion, "next"), begin, end)
                with b.if_(b.eq(found, begin)):
                    b.call(kernel, [arguments, begin, end, context])
    b.return_()
    return b.program


def worker() -> Program:
    """`void worker(pool, context)`: serve until the pool is stopped."""
    b = Builder("worker", [("pool", PTR), ("context", PTR)])
    pool, context = b.parameter("pool"), b.parameter("context")
    # The pool's record is fresh, so a command published before this thread ran counts as new.
    known = b.variable(0, I64)
    with b.while_(lambda: b.eq(_load(b, pool, "stop"), 0)):
        _await_generation(b, pool, known.get())
        known.set(_load(b, pool, "generation"))
        before = _add(b, pool, "active", 1)
        with b.if_(b.ne(_load(b, pool, "open"), 0)):
            # The caller has a seat as well; `limit` is valid only while the command is open.
            seated = before < POOL.read(b, pool, "limit") - 1
            with b.if_(seated):
                for field in ("fault", "command", "functions", "cancel"):
                    value = POOL.read(b, pool, field)
                    b.store(value, context, FIELDS[field] // 8)
                b.call("claim", [pool, context])
        left = _add(b, pool, "active", -1)
        last = b.eq(left, 1) & b.ne(_load(b, pool, "joining"), 0)
        with b.if_(last):
            _wake(b, pool, "active", b.constant(I64, 1))
    b.return_()
    return b.program


def _await_generation(b: Builder, pool: Operand, known: Operand) -> None:
    spins = b.variable(POOL.read(b, pool, "spins"))
    waiting = b.variable(1, I64)
    with b.while_(lambda: b.ne(waiting.get(), 0)):
        with b.if_(b.ne(_load(b, pool, "generation", "acquire"), known)):
            waiting.set(0)
        with b.else_():
            with b.if_(spins.get() > 0):
                spins.set(spins.get() - 1)
                b.pause()
            with b.else_():
                _add(b, pool, "sleepers", 1)
                _sleep(b, pool, "generation", known, b.constant(PTR, 0))
                _add(b, pool, "sleepers", -1)


def fork_join() -> Program:
    """Blocks of one command on all threads.

    `void fork_join(pool, frame, kernel, arguments, job, begin, end, worth)`.

    `worth`: the run has so much parallel work that sleeping workers are woken for it.
    """
    names = ("pool", "frame", "kernel", "arguments", "job")
    b = Builder(
        "fork_join",
        [*((x, PTR) for x in names), *((x, I64) for x in ("begin", "end", "worth"))],
    )
    pool, frame, kernel, arguments, job = (b.parameter(x) for x in names)
    threads = JOB.read(b, job, "threads")
    POOL.write(b, pool, "kernel", kernel)
    POOL.write(b, pool, "arguments", arguments)
    POOL.write(b, pool, "limit", threads)
    _divide(b, pool, b.parameter("begin"), b.parameter("end"), threads)
    POOL.write(b, pool, "grain", JOB.read(b, job, "grain"))
    image = FRAME.pointer(b, frame, "image")
    POOL.write(b, pool, "share", IMAGE.read(b, image, "share"))
    POOL.write(b, pool, "command", FRAME.read(b, frame, "context_command"))
    POOL.write(b, pool, "fault", FRAME.place(b, frame, "fault"))
    POOL.write(b, pool, "cancel", FRAME.read(b, frame, "cancel"))
    POOL.write(b, pool, "functions", FRAME.read(b, frame, "context_functions"))
    _exchange(b, pool, "open", 1)
    _add(b, pool, "generation", 1)
    enough = JOB.read(b, job, "cost") > NS_WORTH_WAKING
    enough = enough | b.ne(b.parameter("worth"), 0)
    asleep = _load(b, pool, "sleepers") > 0
    with b.if_(enough & asleep):
        keep_apart(b, pool)
        _wake(b, pool, "generation", threads - 1)
    b.call("claim", [pool, FRAME.place(b, frame, "context_fault")])
    _exchange(b, pool, "open", 0)
    _join(b, pool)
    b.return_()
    return b.program


def _divide(b: Builder, pool: Operand, begin: Operand, end: Operand, threads: Operand) -> None:
    """Divide the blocks of a command into portions."""
    table, count = POOL.pointer(b, pool, "portions"), b.min(threads, MOST_PORTIONS)
    POOL.write(b, pool, "portion_count", count)
    blocks = end - begin
    with b.for_(0, count) as k:
        portion = PORTION.at(b, table, k)
        PORTION.write(b, portion, "next", begin + blocks * k // count)
        PORTION.write(b, portion, "end", begin + blocks * (k + 1) // count)


def _join(b: Builder, pool: Operand) -> None:
    spins = b.variable(POOL.read(b, pool, "spins"))
    active = b.variable(_load(b, pool, "active"))
    with b.while_(lambda: b.ne(active.get(), 0)):
        with b.if_(spins.get() > 0):
            spins.set(spins.get() - 1)
            b.pause()
        with b.else_():
            _exchange(b, pool, "joining", 1)
            still = _load(b, pool, "active")
            with b.if_(b.ne(still, 0)):
                # Bounded, since workers that come too late change the word without waking anyone.
                _sleep(b, pool, "active", still, POOL.place(b, pool, "timeout_seconds"))
            _exchange(b, pool, "joining", 0)
        active.set(_load(b, pool, "active"))


def stop() -> Program:
    """`void stop(pool)`: make all workers return."""
    b = Builder("stop", [("pool", PTR)])
    pool = b.parameter("pool")
    _exchange(b, pool, "stop", 1)
    _add(b, pool, "generation", 1)
    _wake(b, pool, "generation", b.constant(I64, 1 << 20))
    b.return_()
    return b.program


def spin() -> Program:
    """`void spin(pool, count)`: what a waiting worker does, for timing it."""
    b = Builder("spin", [("pool", PTR), ("count", I64)])
    pool = b.parameter("pool")
    with b.for_(0, b.parameter("count")), b.if_(b.eq(_load(b, pool, "generation", "acquire"), 0)):
        b.pause()
    b.return_()
    return b.program
