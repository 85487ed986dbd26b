"""Work of libraries that no run waits for, in a thread of its own."""

from __future__ import annotations

import atexit
import itertools
import queue
import threading
from collections.abc import Callable

from sardonyx.cuda.capturing import set_mode

#: The thread ends when there was nothing to do for so long.
_IDLE_SECONDS = 10
#: How long the end of the process waits for it.
_END_SECONDS = 5


#: What is done first: the thread's end, what runs could use, what can wait.
_END, _SOON, _LATER = range(3)


class Background:
    """Does one thing after the other.

    Args:
        name: The thread's.
        close: Called when the process ends, and nothing is done any more.
    """

    def __init__(self, name: str, close: Callable[[], None]) -> None:
        self._name, self._finish = name, close
        #: The number between keeps the order of what is equally urgent.
        self._wanted: queue.PriorityQueue[tuple[int, int, Callable[[], None] | None]]
        self._wanted = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        atexit.register(self._close)

    def do(self, work: Callable[[], None], *, can_wait: bool = False) -> None:
        """Do something in the thread.

        Args:
            work: It must raise nothing.
            can_wait: Whether all that cannot wait is done first.
        """
        with self._lock:
            self._wanted.put((_LATER if can_wait else _SOON, next(self._numbers), work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        set_mode()  # what is done here must not break what a caller captures meanwhile
        while True:
            try:
                *_, work = self._wanted.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._wanted.empty():
                        self._thread = None
                        return
                continue
            if work is None:
                return
            work()

    def _close(self) -> None:
        thread = self._thread
        if thread is not None:
            self._wanted.put((_END, next(self._numbers), None))
            thread.join(_END_SECONDS)
        self._finish()
