"""Work that no run waits for, of libraries and of the driver's compiler, in threads of its own.

Much of it holds Python's lock (what builds a plan of cuDNN's does for up to some hundred
milliseconds), or asks the driver for memory, while nothing else can happen. A run that launches
each kernel from the host, as the first of its sizes does, would take several times as long beside
it. So what it asks for begins 20 ms after such runs, the wait for their results included, or 0.1 s
after it was asked for, whatever comes first.
"""

from __future__ import annotations

import atexit
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable

from sardonyx.base.log import get_logger
from sardonyx.cuda.driver.driver import exchange_capture_mode

_logger = get_logger("cuda")

#: The thread ends when there was nothing to do for so long.
_IDLE_SECONDS = 10
#: How long the end of the process waits for it.
_END_SECONDS = 5
#: Work begins so long after it was asked for at the latest.
_PATIENCE_SECONDS = 0.1
#: It begins so long after the last run: somebody copies its results, or waits for it himself.
_QUIET_SECONDS = 0.02

#: What is done first: the thread's end, what runs could use, what can wait.
_END, _SOON, _LATER = range(3)


class _Walks:
    """Runs that launch each kernel from the host, until what waits for them has waited.

    Counts them, and knows when the last one ended.
    """

    def __init__(self) -> None:
        self._condition, self._count, self._ended = threading.Condition(), 0, 0.0

    def __enter__(self) -> None:
        with self._condition:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._condition:
            self._count -= 1
            self._ended = time.monotonic()
            self._condition.notify_all()

    def wait(self, deadline: float) -> None:
        """Wait until there was none for a moment, or it is that late."""
        with self._condition:
            while (now := time.monotonic()) < deadline:
                quiet = self._ended + _QUIET_SECONDS
                if not self._count and now >= quiet:
                    return
                self._condition.wait((deadline if self._count else min(deadline, quiet)) - now)


#: Those of this process: they share Python's lock, whatever device they are on.
WALKS = _Walks()


class Background:
    """Does one thing after the other.

    Args:
        name: The thread's.
        close: Called when the process ends, and nothing is done any more.
    """

    def __init__(self, name: str, close: Callable[[], None]) -> None:
        self._name, self._finish, self._process = name, close, os.getpid()
        #: The number between keeps the order of what is equally urgent.
        self._wanted: queue.PriorityQueue[tuple[int, int, float, Callable[[], None] | None]]
        self._wanted = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        atexit.register(self._close)

    def do(self, work: Callable[[], None], *, can_wait: bool = False) -> bool:
        """Do something in the thread.

        Args:
            work: It should raise nothing: whoever waits for it would not know.
            can_wait: Whether all that cannot wait is done first.

        Returns:
            Whether it will be done: there may be no more threads, or the process ends.
        """
        urgency, latest = _LATER if can_wait else _SOON, time.monotonic() + _PATIENCE_SECONDS
        with self._lock:
            if self._thread is None or self._process != os.getpid():
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    _logger.warning("%s: nothing is done in the background: %s", self._name, error)
                    return False
                self._thread, self._process = thread, os.getpid()
            self._wanted.put((urgency, next(self._numbers), latest, work))
        return True

    def _run(self) -> None:
        exchange_capture_mode()  # what is done here must not break what a caller captures meanwhile
        while True:
            try:
                *_, latest, work = self._wanted.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._wanted.empty():
                        self._thread = None
                        return
                continue
            if work is None:
                return
            WALKS.wait(latest)
            try:
                work()
            except Exception:
                _logger.exception("%s: what was done in the background failed", self._name)

    def _close(self) -> None:
        if os.getpid() != self._process:
            return  # forked off: it has no such thread, and what close would free is not its own
        thread = self._thread
        if thread is not None:
            self._wanted.put((_END, next(self._numbers), 0.0, None))
            thread.join(_END_SECONDS)
        self._finish()
