"""Compiling texts in child processes, while the caller writes further ones.

LLVM holds Python's lock while it compiles, its memory stays with the process, and its fatal errors
end the process that they happen in: so it runs in children. Nothing here waits but `result`: the
children are fed, and their answers read, whenever the caller hands over a text, or says `pump`.
Texts go to a child a little ahead of its answers. When it dies, the first that is not answered is
the one it died of; that one gets another try in a new child, as the first may have died for want of
memory.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from sardonyx.base import knobs
from sardonyx.base.errors import EngineError, message
from sardonyx.base.forks import compiling
from sardonyx.base.log import get_logger
from sardonyx.base.processors import usable_processors
from sardonyx.base.records import dataclass
from sardonyx.codegen.child import ERROR, FRAME, READY, command, compile_part, greeting
from sardonyx.codegen.target import Target

if TYPE_CHECKING:
    import subprocess

_log = get_logger("compile")

#: A child that has so much before it gets no more. LLVM does about 1 KB of text in a millisecond.
_AHEAD_BYTES = 24_000
#: So much text that waits is worth a further child: starting one takes as long.
_BACKLOG_BYTES = 60_000
#: A child is given up that did not start, or answered nothing for so long; more for long texts.
_START_SECONDS = 60.0
_ANSWER_SECONDS = 120.0
_BYTES_PER_SECOND = 5_000
_TRIES = 2
#: Twins of a process, at most: see `codegen.child`.
_TWINS = 3
_CAN_FORK = sys.platform == "linux" and hasattr(signal, "pidfd_send_signal")


@dataclass(slots=True)
class _Job:
    """A text; `result` is a part's bytes, or what was wrong."""

    text: str
    level: int
    result: bytes | EngineError | None = None
    tries: int = 0

    @property
    def frame(self) -> bytes:
        data = self.text.encode()
        return FRAME.pack(self.level, len(data)) + data


class _Started:
    """A process that was started, with its twins: see `codegen.child`.

    Attributes:
        children: It, and they.
    """

    def __init__(self, target: Target, twins: int) -> None:
        with compiling:
            import subprocess

        self._printed = _open_file()  # closed with the last child
        theirs, ours = list[tuple[int, int]](), list[tuple[int, int]]()
        try:
            for _ in range(twins):
                to, back = os.pipe(), os.pipe()
                theirs.append((to[0], back[1]))
                ours.append((to[1], back[0]))
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._printed,
                pass_fds=[descriptor for pair in theirs for descriptor in pair],
            )  # fmt: skip
        except BaseException:
            self._printed.close()
            _close(*ours)
            raise
        finally:
            _close(*theirs)
        streams = self._process.stdin, self._process.stdout
        own = _descriptor(streams[0]), _descriptor(streams[1])
        self.children = [_Child(self, *own, greeting(target, theirs))]
        self.children += [_Child(self, *pair) for pair in ours]
        self._running = list(self.children)

    def end(self, child: _Child) -> None:
        """End one of the children now."""
        self._running.remove(child)
        if child is not self.children[0]:
            child.kill_twin()
            _close((child.to, child.back))
        else:
            self._process.kill()
            for stream in (self._process.stdin, self._process.stdout):
                try:
                    stream.close()  # type: ignore[union-attr]  # they were opened as pipes
                except OSError:
                    _log.debug("a compiling process had ended before")

    def told(self, child: _Child) -> str:
        """How one of them ended, and what they printed last."""
        how = "it is gone"
        if child is self.children[0]:
            code = self._process.wait()
            how = f"signal {-code}" if code < 0 else f"exit status {code}"
        self._printed.seek(max(0, self._printed.seek(0, os.SEEK_END) - 2000))
        printed = self._printed.read().decode(errors="replace").strip()
        return how + (f": {printed}" if printed else "")

    def leave(self) -> None:
        """Where all have ended: what they leave behind is seen to, which takes its time, beside."""
        if self._running or self._printed.closed:
            return
        self._printed.close()
        try:
            Thread(target=self._process.wait, name="sardonyx-reap", daemon=True).start()
        except RuntimeError:  # there are no more threads
            self._process.wait()


def _open_file() -> BinaryIO:
    """A file without a name."""
    if hasattr(os, "memfd_create"):
        return cast(BinaryIO, os.fdopen(os.memfd_create("sardonyx"), "w+b"))
    with compiling:
        import tempfile

    return cast(BinaryIO, tempfile.TemporaryFile())


def _close(*pairs: tuple[int, int]) -> None:
    for pair in pairs:
        for descriptor in pair:
            os.close(descriptor)


class _Child:
    """One child process and what it has to do."""

    def __init__(self, started: _Started, to: int, back: int, first: bytes = b"") -> None:
        self.started, self.to, self.back = started, to, back
        os.set_blocking(self.to, False)
        os.set_blocking(self.back, False)
        self.outgoing = bytearray(first)
        self._incoming = bytearray()
        self.jobs: deque[_Job] = deque()
        self.ready = False
        self._handle: int | None = None
        self._since = time.monotonic()

    def _is_there(self, identifier: int) -> None:
        """It can do something. A descriptor of a process is never that of another one."""
        self.ready = True
        if self is not self.started.children[0]:
            try:
                self._handle = os.pidfd_open(identifier)
            except OSError:  # it ended already
                _log.debug("a twin has no handle")

    def kill_twin(self) -> None:
        """End a twin at once; one that has not begun sees the end of its pipe."""
        if self._handle is not None:
            try:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            except OSError:
                _log.debug("a twin had ended before")
            os.close(self._handle)
            self._handle = None

    @property
    def ahead_bytes(self) -> int:
        """How much text it has before it."""
        return sum(len(job.text) for job in self.jobs)

    def give(self, job: _Job) -> None:
        """One more text to compile."""
        if not self.jobs and self.ready:
            self._since = time.monotonic()
        self.jobs.append(job)
        self.outgoing += job.frame

    def write(self) -> None:
        """Send what the pipe takes. Raises OSError when nobody reads it any more."""
        try:
            while self.outgoing:
                del self.outgoing[: os.write(self.to, self.outgoing)]
        except BlockingIOError:
            pass

    def read(self) -> bool:
        """Take the answers that are there; False when there will be none any more."""
        try:
            while data := os.read(self.back, 2**16):
                self._incoming += data
            ended = True
        except BlockingIOError:
            ended = False
        while len(self._incoming) >= FRAME.size:
            kind, size = FRAME.unpack_from(self._incoming)
            if len(self._incoming) < FRAME.size + size:
                break
            data = bytes(self._incoming[FRAME.size : FRAME.size + size])
            del self._incoming[: FRAME.size + size]
            self._since = time.monotonic()
            if kind == READY:
                self._is_there(int(data))
            elif self.jobs:
                job = self.jobs.popleft()
                job.result = EngineError(data.decode()) if kind == ERROR else data
        return not ended

    def is_late(self) -> bool:
        """Whether it seems to hang."""
        allowed = _START_SECONDS
        if self.ready:
            if not self.jobs:
                return False
            allowed = _ANSWER_SECONDS + len(self.jobs[0].text) / _BYTES_PER_SECOND
        return time.monotonic() - self._since > allowed

    def end(self) -> str:
        """End it now; gives how it ended and what was printed last."""
        self.started.end(self)
        how = self.started.told(self)
        self.started.leave()
        return how

    def drop(self) -> None:
        """End it now, whatever becomes of it."""
        self.started.end(self)
        self.started.leave()


def _descriptor(stream: Any) -> int:
    return int(stream.fileno())


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
        self._children: list[_Child] = []
        self._queue: deque[_Job] = deque()

    def start(self) -> None:
        """Start a child, which takes a while, before there is a text for it."""
        if not self._children and self._most:
            self._start()

    def submit(self, text: str, level: int = 2) -> _Job:
        """Have a text compiled; `result` tells what became of it."""
        job = _Job(text, level)
        self._queue.append(job)
        self._pump(0.0)
        return job

    def pump(self) -> None:
        """Feed the children and take their answers, without waiting; for long work in between."""
        self._pump(0.0)

    def result(self, job: _Job) -> bytes:
        """Wait for a text: the bytes of its `Part`.

        Raises:
            EngineError: The text is not valid, or ended the processes that compiled it.
        """
        while job.result is None:
            if self._most:
                self._pump(0.1)
                self._checkpoint()
            else:
                self._compile_here(job)
        if isinstance(job.result, EngineError):
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

    def _compile_here(self, job: _Job) -> None:
        if self._apart:
            what = "There is no process that can compile"
            job.result = EngineError(message("compile", what))
            return
        try:
            job.result = compile_part(job.text, self._target, job.level)
        except EngineError as error:
            job.result = error

    def _start(self) -> bool:
        try:
            twins = min(_TWINS, self._most - len(self._children) - 1) if _CAN_FORK else 0
            self._children += _Started(self._target, twins).children
        except OSError as error:
            _log.info("a compiling process cannot be started: %s", error)
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
        with selectors.DefaultSelector() as selector:
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

    def _lose(self, child: _Child, why: str = "") -> None:
        """Go on without a child that died, or must."""
        self._children.remove(child)
        how = child.end()
        how = f"{why}; {how}" if why else how
        jobs = [job for job in child.jobs if job.result is None]
        if not child.ready:
            _log.warning("a compiling process did not start (%s)", how)
            for twin in [c for c in self._children if c.started is child.started and not c.ready]:
                self._children.remove(twin)
                twin.drop()
            self._give_up()
        elif jobs:
            first = jobs[0]
            first.tries += 1
            _log.info("a compiling process ended (%s) at try %d of a text", how, first.tries)
            if first.tries >= _TRIES:
                what = f"LLVM ended the process that compiled it ({how})"
                first.result = EngineError(message("compile", what))
                jobs = jobs[1:]
        self._queue.extendleft(reversed(jobs))


def _served(child: _Child, events: int) -> bool:
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
