"""Processes that compile: started, fed without waiting, and ended."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from sardonyx.base.errors import EngineError, SardonyxError
from sardonyx.base.forks import compiling
from sardonyx.base.log import get_logger
from sardonyx.base.records import dataclass
from sardonyx.targets.target import Target
from sardonyx.workers.child import ERROR, FRAME, READY, command, greeting

if TYPE_CHECKING:
    import subprocess

_log = get_logger("compile")

#: A child is given up that did not start, or answered nothing for so long; more for long texts.
_START_SECONDS = 60.0
_ANSWER_SECONDS = 120.0
_BYTES_PER_SECOND = 5_000
#: So long a process may take to end after it was told to.
_END_SECONDS = 10.0
#: One that was killed, before the process that forked it is killed as well.
_KILLED_MILLISECONDS = 100


@dataclass(slots=True)
class Job:
    """A text; `result` is a part's bytes, or what was wrong."""

    text: str
    level: int
    result: bytes | SardonyxError | None = None
    tries: int = 0

    @property
    def frame(self) -> bytes:
        """What a child is sent."""
        data = self.text.encode()
        return FRAME.pack(self.level, len(data)) + data


class Descriptor:
    """A descriptor that is closed with its object: what signals raise may come before `close`."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        """Its number."""
        return self._number

    def close(self) -> None:
        """Close it, once."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    __del__ = close


def _pipe() -> tuple[Descriptor, Descriptor]:
    source, to = map(Descriptor, os.pipe())
    return source, to


class CompilerProcess:
    """A process that was started, with its twins: see `workers.child`.

    Attributes:
        children: It, and they.
    """

    def __init__(self, target: Target, twins: int) -> None:
        with compiling:
            import subprocess

        self._printed = _open_file()  # closed with the last child
        theirs, ours = list[tuple[int, int]](), list[tuple[Descriptor, Descriptor]]()
        given = list[Descriptor]()
        try:
            for _ in range(twins):
                (source, to), (back, answers) = _pipe(), _pipe()
                given += source, answers
                theirs.append((source.fileno(), answers.fileno()))
                ours.append((to, back))
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._printed,
                pass_fds=[descriptor.fileno() for descriptor in given],
            )  # fmt: skip
        except BaseException:
            self._printed.close()
            raise
        finally:
            for descriptor in given:
                descriptor.close()
        own = self._process.stdin, self._process.stdout
        self.children = [Child(self, *own, greeting(target, theirs))]
        self.children += [Child(self, *pair) for pair in ours]
        self._running = list(self.children)
        self._killed = list[Descriptor]()  # twins

    def end(self, child: Child, *, now: bool = True) -> None:
        """End one of the children now; or let it go when its twins have."""
        self._running.remove(child)
        if child is not self.children[0]:
            handle = child.kill_twin()
            if handle is not None:
                self._killed.append(handle)
            child.to.close()
            child.back.close()
            return
        if now:
            # It looks after its twins: those that outlive it are left to a process that may not.
            for handle in self._killed:
                _wait_for(handle)
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            try:
                stream.close()  # type: ignore[union-attr]  # they were opened as pipes
            except OSError:
                _log.debug("a compiling process had ended before")

    def told(self, child: Child) -> str:
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
        for handle in self._killed:
            handle.close()
        self._killed.clear()
        try:
            Thread(target=_reap, args=(self._process,), name="sardonyx-reap", daemon=True).start()
        except RuntimeError:  # there are no more threads
            _reap(self._process)


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was told to end, by a signal or by the end of its pipe."""
    with compiling:
        import subprocess

    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(handle: Descriptor) -> None:
    """Wait a little until a process that was killed is gone."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.poll(_KILLED_MILLISECONDS)


def _open_file() -> BinaryIO:
    """A file without a name."""
    if hasattr(os, "memfd_create"):
        return cast(BinaryIO, os.fdopen(os.memfd_create("sardonyx"), "w+b"))
    with compiling:
        import tempfile

    return cast(BinaryIO, tempfile.TemporaryFile())


class Child:
    """One child process and what it has to do."""

    def __init__(self, started: CompilerProcess, to: Any, back: Any, first: bytes = b"") -> None:
        self.started, self.to, self.back = started, to, back
        for end in (to, back):
            os.set_blocking(end.fileno(), False)
        self.outgoing = bytearray(first)
        self._incoming = bytearray()
        self.jobs: deque[Job] = deque()
        self.ready = False
        self._handle: Descriptor | None = None
        self._since = time.monotonic()

    def _is_there(self, identifier: int) -> None:
        """It can do something. A descriptor of a process is never that of another one."""
        self.ready = True
        if self is not self.started.children[0]:
            try:
                self._handle = Descriptor(os.pidfd_open(identifier))
            except OSError:  # it ended already
                _log.debug("a twin has no handle")

    def is_twin_of(self, child: Child) -> bool:
        """Whether that child has forked it, or would have."""
        return child is child.started.children[0] and self.started is child.started

    def kill_twin(self) -> Descriptor | None:
        """End a twin at once, and give its descriptor, which the caller closes.

        None for one that has not begun, which sees the end of its pipe.
        """
        if not self.ready:
            self._look()
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                signal.pidfd_send_signal(handle.fileno(), signal.SIGKILL)
            except OSError:
                _log.debug("a twin had ended before")
        return handle

    def _look(self) -> None:
        """Read what may be there; it may be that it has begun."""
        try:
            self.read()
        except OSError:
            _log.debug("a compiling process had ended before")

    @property
    def ahead_bytes(self) -> int:
        """How much text it has before it."""
        return sum(len(job.text) for job in self.jobs)

    def give(self, job: Job) -> None:
        """One more text to compile."""
        if not self.jobs and self.ready:
            self._since = time.monotonic()
        self.jobs.append(job)
        self.outgoing += job.frame

    def write(self) -> None:
        """Send what the pipe takes. Raises OSError when nobody reads it any more."""
        try:
            while self.outgoing:
                del self.outgoing[: os.write(self.to.fileno(), self.outgoing)]
        except BlockingIOError:
            pass

    def read(self) -> bool:
        """Take the answers that are there; False when there will be none any more."""
        try:
            while data := os.read(self.back.fileno(), 2**16):
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
        """End it, whatever becomes of it: at once if it is doing something."""
        if not self.ready:
            self._look()
        self.started.end(self, now=not self.ready or bool(self.jobs))
        self.started.leave()
