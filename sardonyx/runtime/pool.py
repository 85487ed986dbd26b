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
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from sardonyx.base.errors import Fail
from sardonyx.base.handlers import undisturbed
from sardonyx.base.log import get_logger
from sardonyx.base.processors import usable_processors
from sardonyx.kernel.language.context import FIELDS, SIZE_BYTES
from sardonyx.native.functions import NativeFunctions, library
from sardonyx.native.layout import MASK_WORDS, MOST_PORTIONS, POOL, PORTION, WORD
from sardonyx.runtime.arena import Memory, Words, address_of, aligned_words
from sardonyx.runtime.thread_setup import ACTIVE_SPIN_NS, ThreadSetup

_log = get_logger("pool")
MOST_THREADS = 256
#: How long threads wait awake before they sleep, if each has a processor.
_SPIN_NS = 30_000
_JOIN_TIMEOUT_NS = 1_000_000
# A worker may be in the middle of a block; an end of the interpreter must not wait for long ones.
_CLOSE_TIMEOUT_SECONDS = 0.5
#: Numbers of Linux's futex, sched_getaffinity and sched_setaffinity.
_SYSTEM_CALLS = {"x86_64": (202, 204, 203), "aarch64": (98, 123, 122), "arm64": (98, 123, 122)}
_CONTEXT_WORDS = SIZE_BYTES // WORD
#: Threads of Python's own, wherever the system puts them.
_PLAIN = ThreadSetup()


class Pool:
    """Threads that one run at a time may use: it holds `lock`.

    Args:
        threads: How many, the caller included; at least 2.
        setup: Where they come from.

    Raises:
        Fail: A function that creates threads failed.

    Attributes:
        address: Where native code finds the pool's record.
        lock: Held by the run that uses the pool.
    """

    def __init__(self, threads: int, setup: ThreadSetup = _PLAIN) -> None:
        self.threads, self._setup = threads, setup
        self.lock = threading.Lock()
        self._words = aligned_words(POOL.words)
        self._contexts = aligned_words(_CONTEXT_WORDS * threads)
        self._portions = aligned_words(PORTION.words * MOST_PORTIONS)
        # Each worker's number in the system, the processors that workers may use, and room.
        self._places = aligned_words(threads - 1 + 2 * MASK_WORDS)
        self._scratch = [Memory("scratch") for _ in range(threads)]
        self._scratch_bytes = 0
        self.address = address_of(self._words)
        native = library()
        self._configure(native)
        # Threads know the records, not the pool: it goes when no session has it any more.
        self._workers: list[Any] = []
        self._identities: dict[int, tuple[int, int]] = {}
        self._closer = weakref.finalize(self, _stop, native, self._words, setup, self._workers)
        self._closer.atexit = False
        serve = native.flushing_worker if setup.flushes_denormals else native.worker
        try:
            for number in range(1, threads):
                given = (serve, self._words, self._portions, self._contexts, self._places)
                self._workers.append(
                    setup.start(partial(_serve, *given, self._identities, number), number)
                )
        except (RuntimeError, Fail):
            self._closer()
            raise

    def _configure(self, native: NativeFunctions) -> None:
        words = self._words
        system = ctypes.CDLL(None)
        machine = os.uname().machine
        if os.uname().sysname == "Linux" and machine in _SYSTEM_CALLS:
            words[POOL["futex_number"]] = _SYSTEM_CALLS[machine][0]
            words[POOL["system_call"]] = _address(system.syscall)
            self._keep_apart(system, _SYSTEM_CALLS[machine][1:])
        words[POOL["yield_address"]] = _address(system.usleep)
        words[POOL["timeout_ns"]] = _JOIN_TIMEOUT_NS
        words[POOL["portions"]] = address_of(self._portions)
        words[POOL["walk"]] = native.code.address("walk")
        if self.threads <= usable_processors():
            awake_ns = self._setup.awake_ns
            awake_ns = waking_ns() if awake_ns is None else awake_ns
            words[POOL["spins"]] = _spins(native, self.address, awake_ns)
        for number in range(self.threads):
            self._contexts[number * _CONTEXT_WORDS + FIELDS["thread"] // WORD] = number

    def _keep_apart(self, system: ctypes.CDLL, numbers: tuple[int, ...]) -> None:
        """Let native code place the workers, unless the user does; see native_apart.py."""
        setup, words = self._setup, self._words
        is_asked = bool(setup.affinities) or setup.create is not None
        if is_asked or self.threads > usable_processors() or not hasattr(system, "sched_getcpu"):
            return
        words[POOL["processor"]] = -1
        words[POOL["processor_address"]] = _address(system.sched_getcpu)
        words[POOL["getter_number"]], words[POOL["setter_number"]] = numbers
        words[POOL["workers"]] = workers = self.threads - 1
        start = address_of(self._places)
        words[POOL["identities"]] = start
        words[POOL["allowed"]] = start + WORD * workers
        words[POOL["mask"]] = start + WORD * (workers + MASK_WORDS)
        mask = sum(1 << number for number in os.sched_getaffinity(0))
        place = slice(workers, workers + MASK_WORDS)
        self._places[place] = np.frombuffer(mask.to_bytes(MASK_WORDS * WORD, "little"), np.int64)

    @property
    def identities(self) -> list[tuple[int, int]]:
        """Identity and the system's number of each thread but the caller's."""
        return [self._identities.get(number, (0, 0)) for number in range(1, self.threads)]

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
        if self._setup.create is None:  # others were waited for as their function does it
            for worker in self._workers:
                self._setup.end(worker, max(0.0, deadline - time.monotonic()))

    def __repr__(self) -> str:
        return f"Pool({self.threads} threads{', closed' if self.closed else ''})"


def _address(function: object) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)  # type: ignore[arg-type]  # any pointer of ctypes can be cast


def waking_ns() -> int:
    """How long threads wait awake before they sleep, as OpenMP's variable says where it is set."""
    policy = os.environ.get("OMP_WAIT_POLICY", "").strip().lower()
    if policy not in ("", "active", "passive"):
        _log.warning("OMP_WAIT_POLICY is neither ACTIVE nor PASSIVE, and is ignored: %r", policy)
    return {"active": ACTIVE_SPIN_NS, "passive": 0}.get(policy, _SPIN_NS)


def _spins(native: NativeFunctions, address: int, wanted_ns: int) -> int:
    """How many rounds of waiting take so long: a pause takes 10 to 50 ns, by the processor."""
    if not wanted_ns:
        return 0
    rounds = 200
    fastest = min(_timed(native, address, rounds) for _ in range(3))
    return max(50, min(wanted_ns // 3, wanted_ns * rounds // max(1, fastest)))


def _timed(native: NativeFunctions, address: int, rounds: int) -> int:
    start = time.perf_counter_ns()
    native.spin(address, rounds)
    return time.perf_counter_ns() - start


def _serve(
    serve: Callable[[int, int], None],
    words: Words,
    portions: Words,  # kept as long as a thread may read them
    contexts: Words,
    places: Words,
    identities: dict[int, tuple[int, int]],
    number: int,
) -> None:
    identities[number] = threading.get_ident(), threading.get_native_id()
    places[number - 1] = threading.get_native_id()
    serve(address_of(words), address_of(contexts) + SIZE_BYTES * number)
    places[number - 1] = 0  # the system may give the number to another thread


def _stop(native: NativeFunctions, words: Words, setup: ThreadSetup, workers: list[Any]) -> None:
    native.stop(address_of(words))
    if setup.create is not None:
        for worker in workers:
            setup.end(worker, None)


_lock = threading.Lock()
_Key: TypeAlias = tuple[int, ThreadSetup]
_pools: weakref.WeakValueDictionary[_Key, Pool] = weakref.WeakValueDictionary()
_ended = False
#: Counts forks: pools of before belong to the parent, whose threads this process does not have.
generation = 0


def shared_pool(threads: int, setup: ThreadSetup | None = None) -> Pool | None:
    """The pool of that size; None where runs are serial: one thread, or the interpreter ends.

    Raises:
        Fail: A function that creates threads failed.
    """
    key = threads, setup or _PLAIN
    if threads < 2 or os.name != "posix":
        return None
    with _lock:
        if _ended:
            return None
        found = _pools.get(key)
        return undisturbed(partial(_new_pool, key)) if found is None else found


def _new_pool(key: _Key) -> Pool | None:
    try:
        found = _pools[key] = Pool(min(key[0], MOST_THREADS), key[1])
    except Fail:
        raise
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
