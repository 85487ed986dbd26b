"""Flags that end runs, which native code reads while it works, and limits of time that set them."""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sardonyx.base.errors import Fail, InvalidArgument, SardonyxError, TimedOut, message
from sardonyx.base.resources import named


class CancelFlag:
    """Ends runs that were given it: `set()` from any thread. It stays set until `clear()`.

    Attributes:
        address: Of the word that native code reads.
    """

    def __init__(self) -> None:
        self._word = np.zeros(1, np.int64)
        self.address = int(self._word.__array_interface__["data"][0])
        self._children: weakref.WeakSet[CancelFlag] = weakref.WeakSet()
        self._over_seconds: float | None = None

    @property
    def is_set(self) -> bool:
        """Whether runs shall end."""
        return bool(self._word[0])

    def set(self) -> None:
        """Ask the runs to end."""
        self._word[0] = 1
        for child in list(self._children):
            child.set()

    def set_for_time(self, seconds: float) -> None:
        """Ask the runs to end because their time, of so many seconds, is over."""
        self._over_seconds = seconds
        self.set()

    def clear(self) -> None:
        """Let runs go on to their end again."""
        self._word[0] = 0
        self._over_seconds = None

    def child(self) -> CancelFlag:
        """A flag that is set when this one is, and that can be set alone."""
        made = CancelFlag()
        self._children.add(made)
        if self.is_set:
            made.set()
        return made

    def error(self, where: str, kind: type[SardonyxError] = Fail) -> SardonyxError:
        """What the work that ends because of this flag raises: `kind`, or `TimedOut`."""
        if self._over_seconds is None:
            what = "The run was cancelled" if kind is Fail else "Loading was cancelled"
            return kind(message(where, what))
        over = message(where, f"The time limit of {self._over_seconds:g} s is over")
        return TimedOut(over) if kind is Fail else kind(over)


@contextmanager
def time_limit(seconds: float | None, parent: CancelFlag | None = None) -> Iterator[CancelFlag]:
    """A flag that is set after so many seconds, unless the `with` block has ended by then.

    Args:
        seconds: The limit; None for none.
        parent: A flag that sets this one, too.

    Raises:
        InvalidArgument: The limit is no positive number.
    """
    flag = parent.child() if parent is not None else CancelFlag()
    if seconds is None:
        yield flag
        return
    checked = checked_seconds(seconds, "timeout")
    number = _watch.add(checked, lambda: flag.set_for_time(checked))
    try:
        yield flag
    finally:
        _watch.remove(number)


def checked_seconds(seconds: Any, where: str) -> float:
    """A limit of time as a number of seconds; it may be text.

    Raises:
        InvalidArgument: It is no positive number.
    """
    try:
        found = float(seconds)
    except (TypeError, ValueError):
        found = math.nan
    except OverflowError:  # an integer that no float holds
        found = math.inf if seconds > 0 else math.nan
    if not found > 0:
        what = "This is no limit of time"
        expected = "seconds, more than 0"
        raise InvalidArgument(message(where, what, expected=expected, got=repr(seconds)))
    return found


class _Watch:
    """A thread that calls functions at their time; there while there are any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int]] = []
        self._actions: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def add(self, seconds: float, action: Callable[[], None]) -> int:
        """Call `action` after so many seconds, in another thread; gives a number for `remove`.

        Raises:
            ResourceError: The system gives no thread.
        """
        with self._changed:
            number = next(self._numbers)
            self._actions[number] = action
            heapq.heappush(self._due, (time.monotonic() + seconds, number))
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="sardonyx-watch", daemon=True)
                try:
                    with named("timeout"):
                        thread.start()
                except BaseException:
                    del self._actions[number]
                    raise
                self._thread = thread
            elif self._due[0][1] == number:
                self._changed.notify()
            return number

    def remove(self, number: int) -> None:
        """Do not call it any more."""
        with self._changed:
            self._actions.pop(number, None)
            while self._due and self._due[0][1] not in self._actions:
                heapq.heappop(self._due)

    def _serve(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                if not self._due:
                    # A next limit follows soon where there was one; an idle process has no thread.
                    if not self._changed.wait_for(lambda: self._due, _LINGER_SECONDS):
                        self._thread = None
                        return
                    continue
                due, number = self._due[0]
                if due > now:
                    self._changed.wait(min(due - now, threading.TIMEOUT_MAX))
                    continue
                heapq.heappop(self._due)
                action = self._actions.pop(number, None)
            if action is not None:
                action()


_LINGER_SECONDS = 10.0
_watch = _Watch()


def _forget_after_fork() -> None:
    global _watch
    _watch = _Watch()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
