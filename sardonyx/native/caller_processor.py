"""Native: workers are kept off the processor that the caller of a run is on.

A system may wake a thread on the processor of whoever wakes it although another one is idle. Linux
does so under a hypervisor, which puts idle processors to sleep: they look as if taken by others.
Two threads of a run then take turns on one processor, and since both want little time at once,
nothing moves them apart for tens of milliseconds.
"""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I32, I64, PTR
from sardonyx.native.layout import MASK_WORDS, POOL, WORD


def keep_apart(b: Builder, pool: Operand) -> None:
    """Before workers are woken: have the caller's processor to itself, if it is another one."""
    getter = POOL.pointer(b, pool, "processor_address")
    with b.if_(b.ne(getter, b.constant(PTR, 0))):
        here = b.call(getter, [], I32)
        number = b.index_cast(here)
        with b.if_(b.ne(number, POOL.read(b, pool, "processor"))):
            POOL.write(b, pool, "processor", number)
            b.call("set_apart", [pool, number])


def set_apart() -> Program:
    """`void set_apart(pool, processor)`: let workers use all processors that they may, but one.

    They may use those of the thread that made the pool which the caller may use as well. Nothing
    changes where these are fewer than there are workers: then somebody else has placed threads.
    """
    b = Builder("set_apart", [("pool", PTR), ("processor", I64)])
    pool, processor = b.parameter("pool"), b.parameter("processor")
    mask, allowed = POOL.pointer(b, pool, "mask"), POOL.pointer(b, pool, "allowed")
    size = _system(b, pool, "getter_number", b.constant(I64, 0), MASK_WORDS * WORD, mask)
    is_known = (size > 0) & (processor >= 0)
    with b.if_(is_known):
        count = b.variable(0, I64)
        word, bit = b.parted(processor, b.constant(I64, 8 * WORD))
        with b.for_(0, size // WORD) as k:
            own = b.constant(I64, 1) << bit
            own = b.select(b.eq(k, word), own, b.constant(I64, 0))
            both = b.load(I64, mask, k) & b.load(I64, allowed, k)
            others = both & (own ^ b.constant(I64, -1))
            b.store(others, mask, k)
            count.set(count.get() + b.unary("popcount", others))
        workers = POOL.read(b, pool, "workers")
        with b.if_(count.get() >= workers), b.for_(0, workers) as k:
            thread = b.load(I64, POOL.pointer(b, pool, "identities"), k)
            with b.if_(thread > 0):  # 0 would be the caller
                _system(b, pool, "setter_number", thread, size, mask)
    b.return_()
    return b.program


def _system(
    b: Builder, pool: Operand, name: str, thread: Operand, size: Operand | int, mask: Operand
) -> Operand:
    """sched_getaffinity(2), which gives how many bytes it wrote, or sched_setaffinity(2)."""
    call, number = POOL.pointer(b, pool, "system_call"), POOL.read(b, pool, name)
    return b.call(call, [number, thread, b.lift(size, I64), mask], I64, fixed=1)
