"""Threads for runs that somebody awaits, or gets by a callback.

asyncio's own pool would do as badly as it is shared: a run that nobody waits for any more would
keep the program from ending, and a few of them would stop whatever else needs that pool. These
threads are daemons, so that an interpreter ends in spite of them; what they run has a flag that
ends it. There are as many as there is work, `MOST_THREADS` at most, of which one session has
`MOST_OF_ONE`; a thread without work ends after `_LINGER_SECONDS`. What is begun beyond waits, in
order.

`begin` is called by the main thread, too, where a handler of signals may raise anywhere. So it
changes nothing but by single operations of C, and the threads themselves count.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from sardonyx.base.errors import ResourceError, message
from sardonyx.base.log import get_logger
from sardonyx.runtime.cancel import CancelFlag

_log = get_logger("threads")

#: How many of these threads a process has at most.
MOST_THREADS = 64
#: How many of them work for one session at once.
MOST_OF_ONE = 16
_LINGER_SECONDS = 10.0


class RunLane:
    """The work of one session, in order; a session's own runs wait for each other, not others'."""

    def __init__(self) -> None:
        self.threads = _threads
        self.waiting: deque[Task] = deque()
        self.running = 0


class Task:
    """A piece of work for a thread.

    Args:
        work: What to do.
        flag: Ends it early.
        tell: Is called in the thread when it is over, unless it was dropped.
    """

    def __init__(
        self, lane: RunLane, work: Callable[[], Any], flag: CancelFlag, tell: Callable[[Task], None]
    ) -> None:
        self._lane, self._work, self._flag, self._tell = lane, work, flag, tell
        self._context = contextvars.copy_context()
        self._result: Any = None
        self._error: BaseException | None = None
        self.is_left = False

    def cancel(self) -> bool:
        """End it as soon as may be; gives whether it had not begun, and never will."""
        self._flag.set()
        try:
            self._lane.waiting.remove(self)
        except ValueError:
            return False
        return True

    def leave(self) -> None:
        """End it, and tell nobody."""
        self.is_left = True
        self._flag.set()

    def run(self) -> None:
        """Do it, in one of the threads."""
        try:
            self._result = self._context.run(self._work)
        except BaseException as error:  # whoever awaits it gets every error
            self._error = error
        if self.is_left:
            return
        try:
            self._tell(self)
        except Exception as error:  # as where a thread of its own had called it
            hook = threading.ExceptHookArgs(
                (type(error), error, error.__traceback__, threading.current_thread())
            )
            threading.excepthook(hook)

    def result(self) -> Any:
        """What the work gave, or raises what it raised; once."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # else its traceback would hold it, and all that it refers to
        return self._result


class Threads:
    """The threads of a process."""

    def __init__(self) -> None:
        # Each entry says that a lane may have work. SimpleQueue's `put` is one operation of C.
        self._ready: SimpleQueue[RunLane] = SimpleQueue()
        self._lock = threading.Lock()  # taken by the threads alone, which no signal interrupts
        self._count = self._idle = 0
        self._running: set[Task] = set()

    def begin(self, task: Task, lane: RunLane) -> None:
        """Have a task done when a thread is free.

        Raises:
            ResourceError: The system gives no thread, and there is none.
        """
        lane.waiting.append(task)
        self._ready.put(lane)
        if self._idle >= self._ready.qsize() or self._count >= MOST_THREADS:
            return
        thread = threading.Thread(target=self._serve, name="sardonyx-run", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            if self._count or not task.cancel():
                _log.warning("a run waits for another one's thread: %s", error)
                return
            what = f"The system gives no thread for an asynchronous run: {error}"
            do = "Raise the limit of processes and threads (`ulimit -u`), or call run()"
            raise ResourceError(message("run_async", what, do=do)) from error

    def leave_all(self) -> None:
        """End what is done and what waits, and tell nobody: the interpreter ends."""
        with self._lock:
            running = list(self._running)
        for task in running:
            task.leave()

    def _serve(self) -> None:
        with self._lock:
            if self._count >= MOST_THREADS:
                return
            self._count += 1
        while (lane := self._next()) is not None:
            with self._lock:
                task = None
                if lane.running < MOST_OF_ONE and lane.waiting:
                    task = _taken(lane)
                if task is not None:
                    lane.running += 1
                    self._running.add(task)
            if task is None:
                continue
            try:
                task.run()
            finally:
                with self._lock:
                    lane.running -= 1
                    self._running.discard(task)
                if lane.waiting:
                    self._ready.put(lane)
                del task, lane  # a thread without work keeps no results

    def _next(self) -> RunLane | None:
        """A lane that may have work; None when this thread is to end."""
        with self._lock:
            self._idle += 1
        while True:
            try:
                lane = self._ready.get(timeout=_LINGER_SECONDS)
            except Empty:
                with self._lock:
                    self._idle -= 1
                    self._count -= 1
                # Who put something meanwhile counted this thread, or starts one.
                if self._ready.empty():
                    return None
                with self._lock:
                    self._idle += 1
                    self._count += 1
                continue
            with self._lock:
                self._idle -= 1
            return lane


def _taken(lane: RunLane) -> Task | None:
    try:
        return lane.waiting.popleft()
    except IndexError:  # it was cancelled just now
        return None


_threads = Threads()


def lane_of(known: RunLane | None) -> RunLane:
    """The lane that a session has, or a new one: a forked process has none of its parent's."""
    return known if known is not None and known.threads is _threads else RunLane()


def begin(
    lane: RunLane, work: Callable[[], Any], flag: CancelFlag, tell: Callable[[Task], None]
) -> Task:
    """Do something in a thread.

    Args:
        lane: Whose work it is.
        work: What to do; it looks at the flag, and sees the caller's context variables.
        flag: Ends it early.
        tell: Is called in the thread when it is over.

    Raises:
        ResourceError: The system gives no thread.
    """
    task = Task(lane, work, flag, tell)
    lane.threads.begin(task, lane)
    return task


def _forget_after_fork() -> None:
    global _threads
    _threads = Threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
atexit.register(lambda: _threads.leave_all())
