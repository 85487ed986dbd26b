"""Compiling texts in child processes, while the caller writes further ones.

LLVM holds Python's lock while it compiles, its memory stays with the process, and its fatal errors
end the process that they happen in: so it runs in children. Nothing here waits but `result`: the
children are fed, and their answers read, whenever the caller hands over a text, or says `pump`.
Texts go to a child a little ahead of its answers. When it dies, the first that is not answered is
the one it died of; that one gets another try in a new child, as the first may have died for want of
memory.
"""

from __future__ import annotations

import re
import selectors
import signal
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from sardonyx.base import knobs
from sardonyx.base.errors import (
    EngineError,
    OutOfMemory,
    ResourceError,
    SardonyxError,
    message,
)
from sardonyx.base.handlers import deferred
from sardonyx.base.log import get_logger
from sardonyx.base.processors import usable_processors
from sardonyx.targets.target import Target
from sardonyx.workers.child import compile_part
from sardonyx.workers.processes import Child, CompilerProcess, Job

_log = get_logger("compile")

#: A child that has so much before it gets no more. LLVM does about 1 KB of text in a millisecond.
_AHEAD_BYTES = 24_000
#: So much text that waits is worth a further child: starting one takes as long.
_BACKLOG_BYTES = 60_000
_TRIES = 2
_KILLS = [
    getattr(signal, name)
    for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGXCPU", "SIGXFSZ")
    if hasattr(signal, name)
]
#: Twins of a process, at most: see `workers.child`.
_TWINS = 3
#: One that needs no descriptor of its own: there may be none left.
_Selector: type[selectors.BaseSelector] = getattr(
    selectors, "PollSelector", selectors.SelectSelector
)
_CAN_FORK = sys.platform == "linux" and hasattr(signal, "pidfd_send_signal")


class Children:
    """Compiles texts for one target.

    Args:
        target: What to generate for.
        checkpoint: Called while `result` waits; what it raises ends the waiting.
        apart: Compile in children alone, and never here.
    """

    def __init__(
        self, target: Target, checkpoint: Callable[[], None] = lambda: None, *, apart: bool = False
    ) -> None:
        self._target, self._checkpoint, self._apart = target, checkpoint, apart
        self._most = most_children() if not apart else max(1, most_children())
        self._children: list[Child] = []
        self._queue: deque[Job] = deque()

    def start(self) -> None:
        """Start a child, which takes a while, before there is a text for it."""
        if not self._children and self._most:
            self._start()

    def submit(self, text: str, level: int = 2) -> Job:
        """Have a text compiled; `result` tells what became of it."""
        job = Job(text, level)
        self._queue.append(job)
        self._pump(0.0)
        return job

    def pump(self) -> None:
        """Feed the children and take their answers, without waiting; for long work in between."""
        self._pump(0.0)

    def result(self, job: Job) -> bytes:
        """Wait for a text: the bytes of its `Part`.

        Raises:
            EngineError: The text is not valid, or ended the processes that compiled it.
            ResourceError, OutOfMemory: Something else ended them, or they had no memory.
        """
        while job.result is None:
            if self._most:
                self._pump(0.1)
                self._checkpoint()
            else:
                self._compile_here(job)
        if isinstance(job.result, SardonyxError):
            raise job.result
        return job.result

    def close(self) -> None:
        """End all children; what they have not compiled yet is given up."""
        self._most = 0
        while self._children:
            self._children.pop().drop()
        self._queue.clear()

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _compile_here(self, job: Job) -> None:
        if self._apart:
            what, do = (
                "No process can be started that compiles",
                "Raise `ulimit -u` and `ulimit -n`",
            )
            job.result = ResourceError(message("compile", what, do=do))
            return
        try:
            with deferred():
                job.result = compile_part(job.text, self._target, job.level)
        except SardonyxError as error:
            job.result = error

    def _start(self) -> bool:
        try:
            twins = min(_TWINS, self._most - len(self._children) - 1) if _CAN_FORK else 0
            self._children += CompilerProcess(self._target, twins).children
        except OSError as error:
            _log.warning("a compiling process cannot be started: %s", error)
            self._give_up()
            return False
        return True

    def _give_up(self) -> None:
        """Start no more children: without any, texts are compiled here."""
        self._most = len(self._children)

    def _pump(self, timeout_s: float) -> None:
        """Feed the children and take their answers, waiting for one at most so long."""
        if not self._most:
            return
        self._deal()
        with _Selector() as selector:
            for child in self._children:
                selector.register(child.back, selectors.EVENT_READ, child)
                if child.outgoing:
                    selector.register(child.to, selectors.EVENT_WRITE, child)
            for key, events in selector.select(timeout_s):
                child = key.data
                if child in self._children and not _served(child, events):
                    self._lose(child)
        for child in list(self._children):
            if child in self._children and child.is_late():
                self._lose(child, "it does not answer")

    def _deal(self) -> None:
        """Give waiting texts to children that have little before them."""
        while self._queue:
            child = min(self._children, key=lambda c: (c.ahead_bytes, not c.ready), default=None)
            if child is None or (
                len(self._children) < self._most
                and sum(len(job.text) for job in self._queue) > _BACKLOG_BYTES
            ):
                if not self._start():
                    return
                continue
            if child.jobs and child.ahead_bytes + len(self._queue[0].text) > _AHEAD_BYTES:
                return
            child.give(self._queue.popleft())

    def _lose(self, child: Child, why: str = "") -> None:
        """Go on without a child that died, or must."""
        self._children.remove(child)
        how = child.end()
        how = f"{why}; {how}" if why else how
        jobs = [job for job in child.jobs if job.result is None]
        if not child.ready:
            _log.warning("a compiling process did not start (%s)", how)
            for twin in [c for c in self._children if c.is_twin_of(child) and not c.ready]:
                self._children.remove(twin)
                twin.drop()
            self._give_up()
        elif jobs:
            first = jobs[0]
            first.tries += 1
            _log.info("a compiling process ended (%s) at try %d of a text", how, first.tries)
            if first.tries >= _TRIES:
                first.result = _why_lost(how)
                jobs = jobs[1:]
        self._queue.extendleft(reversed(jobs))


#: What ends a process from outside: who is short of memory, an administrator, a limit of time.
_FROM_OUTSIDE = re.compile(rf"signal ({'|'.join(str(int(s)) for s in _KILLS)})$|it is gone$")
_NO_MEMORY = re.compile("out of memory|bad_alloc|cannot allocate memory|MemoryError", re.IGNORECASE)


def _why_lost(how: str) -> SardonyxError:
    """What becomes of a text whose processes ended twice; `how` says how the last one did."""
    if _NO_MEMORY.search(how):
        return OutOfMemory(message("compile", f"A compiling process had too little memory ({how})"))
    if _FROM_OUTSIDE.search(how):
        what = f"Processes that compile were ended twice from outside ({how})"
        do = "Give the program more memory, or set SARDONYX_COMPILE_PROCESSES=1"
        return ResourceError(message("compile", what, do=do))
    return EngineError(message("compile", f"LLVM ended the process that compiled it ({how})"))


def _served(child: Child, events: int) -> bool:
    """Write to a child, or read; False when it has died."""
    try:
        if events & selectors.EVENT_WRITE:
            child.write()
            return True
        return child.read()
    except OSError:
        return False


def most_children() -> int:
    """How many children may be used; 0 to compile in this process.

    What runs Python may be something else that holds an interpreter: only an executable that is
    named like one is started. Windows cannot wait for pipes.
    """
    wanted = knobs.get("SARDONYX_COMPILE_PROCESSES")
    name = Path(sys.executable or "").name.lower()
    if wanted == 1 or sys.platform == "win32" or getattr(sys, "frozen", False):
        return 0
    if not name.startswith(("python", "pypy")):
        return 0
    return int(wanted or usable_processors())
