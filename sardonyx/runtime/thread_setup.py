"""Where threads of a pool come from, and which processors they may use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from sardonyx.base.errors import Fail, InvalidArgument, message
from sardonyx.base.log import get_logger
from sardonyx.base.records import dataclass

_log = get_logger("pool")

#: How long threads wait awake where OMP_WAIT_POLICY is ACTIVE, or a session asks for spinning.
ACTIVE_SPIN_NS = 1_000_000

#: Given user data and a function, starts a thread that calls the function; gives a handle.
CreateThread: TypeAlias = Callable[[Any, Callable[[], None]], Any]
#: Given a handle, waits until that thread has ended.
JoinThread: TypeAlias = Callable[[Any], None]


@dataclass(frozen=True, eq=False)
class ThreadSetup:
    """What a session asks of its threads; pools are shared by sessions with the same object.

    Attributes:
        affinities: Processors that each thread but the caller's may use; () leaves them alone.
        create, join: Make a thread and wait for its end; None for Python's own.
        user_data: What `create` is given.
        awake_ns: How long threads wait awake for more work before they sleep; None for the default.
        flushes_denormals: Whether runs take denormal numbers for zeros, in every thread.
    """

    affinities: tuple[frozenset[int], ...] = ()
    create: CreateThread | None = None
    join: JoinThread | None = None
    user_data: Any = None
    flushes_denormals: bool = False
    awake_ns: int | None = None

    def start(self, work: Callable[[], None], number: int) -> Any:
        """A handle on a new thread, the `number`-th, that does the work.

        Raises:
            Fail: The function that creates threads raised, or gave no handle.
        """
        if self.create is None:
            thread = threading.Thread(
                target=self._placed, args=(work, number), name=f"sardonyx-{number}", daemon=True
            )
            thread.start()
            return thread
        try:
            handle = self.create(self.user_data, work)
        except Exception as error:
            raise Fail(message("create thread", f"The function raised {error!r}")) from error
        if handle is None:
            raise Fail(message("create thread", "The function gave no handle"))
        return handle

    def end(self, handle: Any, timeout: float | None) -> None:
        """Wait for the end of a thread; of one of Python's for some time at most."""
        if self.create is None:
            handle.join(timeout)
        elif self.join is not None:
            self.join(handle)

    def _placed(self, work: Callable[[], None], number: int) -> None:
        if number <= len(self.affinities):
            place(self.affinities[number - 1])
        work()


@cache
def plain_setup(*, flushes_denormals: bool = False, awake_ns: int | None = None) -> ThreadSetup:
    """Threads of Python's own, wherever the system puts them: one setup for all sessions."""
    return ThreadSetup(flushes_denormals=flushes_denormals, awake_ns=awake_ns)


#: Setups that differ from others in these two alone: sessions that share one share its threads.
_changed: WeakKeyDictionary[ThreadSetup, dict[tuple[bool, int | None], ThreadSetup]]
_changed = WeakKeyDictionary()


def changed(
    setup: ThreadSetup | None, *, flushes_denormals: bool, awake_ns: int | None
) -> ThreadSetup | None:
    """The same setup, but for this; the same object each time."""
    if not flushes_denormals and awake_ns is None:
        return setup
    if setup is None:
        return plain_setup(flushes_denormals=flushes_denormals, awake_ns=awake_ns)
    made = replace(setup, flushes_denormals=flushes_denormals, awake_ns=awake_ns)
    known = _changed.setdefault(setup, {})
    return known.setdefault((flushes_denormals, awake_ns), made)


def place(processors: frozenset[int]) -> None:
    """Let the calling thread use these processors alone; a warning where the system refuses."""
    if not hasattr(os, "sched_setaffinity"):
        _log.warning("this system places threads itself: affinities have no effect")
        return
    try:
        os.sched_setaffinity(0, processors)
    except OSError as error:
        _log.warning("a thread cannot be kept on processors %s: %s", sorted(processors), error)


def checked_function(where: str, function: Any) -> Any:
    """A function, or None.

    Raises:
        InvalidArgument: It is neither.
    """
    if function is not None and not callable(function):
        raise InvalidArgument(message(where, "This is no function", got=repr(function)))
    return function


def read_affinities(text: str, threads: int) -> tuple[frozenset[int], ...]:
    """Processors of threads in onnxruntime's form: `1,2;3-5`, counted from 1.

    Args:
        text: A list for each thread but the caller's, with semicolons between them, and, as in
            onnxruntime, wherever else: what is empty does not count.
        threads: How many there are, the caller's included.

    Raises:
        InvalidArgument: It is no such text, or for another number of threads.
    """
    groups = [group.strip() for group in text.split(";") if group.strip()]
    if len(groups) != threads - 1:
        raise InvalidArgument(
            message(
                "session.intra_op_thread_affinities",
                "There must be processors for each thread but the caller's",
                expected=f"{threads - 1} lists", got=f"{len(groups)} in {text!r}",
                do="Set intra_op_num_threads to one more than there are lists",
            )
        )  # fmt: skip
    found = tuple(frozenset(_group(group)) for group in groups)
    if not all(found):
        raise _no_list(text)
    return found


def _group(text: str) -> list[int]:
    found: list[int] = []
    for part in filter(str.strip, text.split(",")):
        low, dash, high = part.strip().partition("-")
        try:
            first = int(low)
            last = int(high) if dash else first
        except ValueError:
            first, last = 0, 0
        if not 1 <= first <= last <= _MOST_PROCESSORS:
            raise _no_list(text)
        found += range(first - 1, last)
    return found


def _no_list(text: str) -> InvalidArgument:
    return InvalidArgument(
        message(
            "session.intra_op_thread_affinities", "This is no list of processors",
            expected="numbers from 1 on, such as 1,3 or 2-4", got=repr(text),
        )
    )  # fmt: skip


_MOST_PROCESSORS = 1 << 16
