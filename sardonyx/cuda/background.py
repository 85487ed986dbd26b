"""Work of libraries that no run waits for, in a thread of its own."""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Callable

from sardonyx.cuda.capturing import set_mode

#: The thread ends when there was nothing to do for so long.
_IDLE_SECONDS = 10
#: How long the end of the process waits for it.
_END_SECONDS = 5


class Background:
    """Does one thing after the other.

    Args:
        name: The thread's.
        close: Called when the process ends, and nothing is done any more.
    """

    def __init__(self, name: str, close: Callable[[], None]) -> None:
        self._name, self._finish = name, close
        self._wanted: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        atexit.register(self._close)

    def do(self, work: Callable[[], None]) -> None:
        """Do something later; it must raise nothing."""
        with self._lock:
            self._wanted.put(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        set_mode()  # what is done here must not break what a caller captures meanwhile
        while True:
            try:
                work = self._wanted.get(timeout=_IDLE_SECONDS)
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
            self._wanted.put(None)
            thread.join(_END_SECONDS)
        self._finish()
