"""Pools of worker threads, shared by all sessions that want the same number.

Workers are Python threads inside a native loop, without the interpreter's lock: native_pool.py.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref

from sardonyx.base.log import get_logger
from sardonyx.base.processors import usable_processors
from sardonyx.kernel.context import FIELDS, SIZE_BYTES
from sardonyx.runtime.arena import Memory, Words, address_of, aligned_words
from sardonyx.runtime.library import Library, library
from sardonyx.runtime.native_layout import POOL, WORD

_log = get_logger("pool")
MOST_THREADS = 256
#: How long threads wait awake before they sleep, if each has a processor.
_SPIN_NS = 30_000
_JOIN_TIMEOUT_NS = 1_000_000
# A worker may be in the middle of a block; an end of the interpreter must not wait for long ones.
_CLOSE_TIMEOUT_SECONDS = 0.5
_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98, "arm64": 98}
_CONTEXT_WORDS = SIZE_BYTES // WORD


class Pool:
    """Threads that one run at a time may use: it holds `lock`.

    Args:
        threads: How many, the caller included; at least 2.

    Attributes:
        address: Where native code finds the pool's record.
        lock: Held by the run that uses the pool.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.lock = threading.Lock()
        self._words = aligned_words(POOL.words)
        self._contexts = aligned_words(_CONTEXT_WORDS * threads)
        self._scratch = [Memory("scratch") for _ in range(threads)]
        self._scratch_bytes = 0
        self.address = address_of(self._words)
        native = library()
        self._configure(native)
        # Threads know the records, not the pool: it goes when no session has it any more.
        self._workers = [
            threading.Thread(
                target=_serve,
                args=(native, self._words, self._contexts, number),
                name=f"sardonyx-{number}",
                daemon=True,
            )
            for number in range(1, threads)
        ]
        self._closer = weakref.finalize(self, _stop, native, self._words)
        self._closer.atexit = False
        try:
            for worker in self._workers:
                worker.start()
        except RuntimeError:
            self._closer()
            raise

    def _configure(self, native: Library) -> None:
        words = self._words
        system = ctypes.CDLL(None)
        machine = os.uname().machine
        if os.uname().sysname == "Linux" and machine in _FUTEX_NUMBERS:
            words[POOL["futex_number"]] = _FUTEX_NUMBERS[machine]
            words[POOL["system_call"]] = _address(system.syscall)
        words[POOL["yield_address"]] = _address(system.usleep)
        words[POOL["timeout_ns"]] = _JOIN_TIMEOUT_NS
        words[POOL["walk"]] = native.code.address("walk")
        if self.threads <= usable_processors():
            words[POOL["spins"]] = _spins(native, self.address)
        for number in range(self.threads):
            self._contexts[number * _CONTEXT_WORDS + FIELDS["thread"] // WORD] = number

    @property
    def identities(self) -> list[tuple[int, int]]:
        """Identity and the system's number of each thread but the caller's."""
        return [(worker.ident or 0, worker.native_id or 0) for worker in self._workers]

    def reserve(self, scratch_bytes: int) -> None:
        """Give every worker that much scratch memory; the caller holds `lock`.

        Raises:
            OutOfMemory: The system refuses.
        """
        if scratch_bytes <= self._scratch_bytes:
            return
        # Growing frees what there was: until all have grown, none can be relied on.
        self._scratch_bytes = 0
        for number in range(1, self.threads):
            memory = self._scratch[number]
            memory.grow(scratch_bytes)
            start = number * _CONTEXT_WORDS
            self._contexts[start + FIELDS["scratch"] // WORD] = memory.address
            self._contexts[start + FIELDS["scratch_bytes"] // WORD] = memory.capacity_bytes
        self._scratch_bytes = scratch_bytes

    def lacking_bytes(self, scratch_bytes: int) -> int:
        """What `reserve` would have to allocate."""
        return (self.threads - 1) * scratch_bytes if scratch_bytes > self._scratch_bytes else 0

    @property
    def closed(self) -> bool:
        """Whether the threads are gone."""
        return not self._closer.alive

    def close(self) -> None:
        """End the threads. A run that has them goes on without, so this waits for little."""
        self._closer()
        deadline = time.monotonic() + _CLOSE_TIMEOUT_SECONDS
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))

    def __repr__(self) -> str:
        return f"Pool({self.threads} threads{', closed' if self.closed else ''})"


def _address(function: object) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)  # type: ignore[arg-type]  # any pointer of ctypes can be cast


def _spins(native: Library, address: int) -> int:
    """How many rounds of waiting take `_SPIN_NS`: a pause takes 10 to 50 ns, by the processor."""
    rounds = 200
    fastest = min(_timed(native, address, rounds) for _ in range(3))
    return max(50, min(10_000, _SPIN_NS * rounds // max(1, fastest)))


def _timed(native: Library, address: int, rounds: int) -> int:
    start = time.perf_counter_ns()
    native.spin(address, rounds)
    return time.perf_counter_ns() - start


def _serve(native: Library, words: Words, contexts: Words, number: int) -> None:
    native.worker(address_of(words), address_of(contexts) + SIZE_BYTES * number)


def _stop(native: Library, words: Words) -> None:
    native.stop(address_of(words))


_lock = threading.Lock()
_pools: weakref.WeakValueDictionary[int, Pool] = weakref.WeakValueDictionary()
_ended = False
#: Counts forks: pools of before belong to the parent, whose threads this process does not have.
generation = 0


def shared_pool(threads: int) -> Pool | None:
    """The pool of that size; None where runs are serial: one thread, or the interpreter ends."""
    if threads < 2 or os.name != "posix":
        return None
    with _lock:
        if _ended:
            return None
        found = _pools.get(threads)
        if found is None:
            try:
                found = _pools[threads] = Pool(min(threads, MOST_THREADS))
            except RuntimeError as error:
                _log.warning("no threads, running serially: %s", error)
                return None
        return found


def _close_all() -> None:
    global _ended
    with _lock:
        _ended = True
        pools = list(_pools.values())
    for pool in pools:
        pool.close()


def _forget_after_fork() -> None:
    global _lock, _pools, generation
    _lock = threading.Lock()
    _pools = weakref.WeakValueDictionary()
    generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
try:
    # Before the interpreter waits for threads, and so before anything that they use is taken down.
    getattr(threading, "_register_atexit", atexit.register)(_close_all)
except RuntimeError:  # the interpreter is ending already
    _ended = True
