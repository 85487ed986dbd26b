"""Compiling many texts at once, in child processes.

llvmlite compiles one thread at a time, and an LLVM fatal error ends the process it happens in. So
texts that are worth it go to children, each of which holds one text at a time: when a child dies,
it is known which text it had. Children import llvmlite and the modules named in `compile.py` only.

Protocol, over the child's standard streams: `_FRAME` (status, bytes), then the bytes. The first
frame to a child holds JSON: the target's fields and the options. Each frame after it is a text, and
is answered by one frame: an object (status 0) or the text of an EngineError (status 1).
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from sardonyx.base import knobs
from sardonyx.base.errors import EngineError, message
from sardonyx.base.log import get_logger
from sardonyx.codegen.compile import compile_text
from sardonyx.codegen.target import Target

_log = get_logger("compile")
_FRAME = struct.Struct("<II")
_OBJECT, _ERROR = 0, 1

#: Bytes of text from which on children are worth their start. Measured with two of them: 160 ms of
#: work (300 KB) break even, of 440 ms 30 % are saved.
THRESHOLD_BYTES = 400_000

# Running `-m sardonyx.codegen.children` would first import the whole package, NumPy included.
_BOOTSTRAP = """
import json, sys, types
paths, folder = json.loads(sys.argv[1])
sys.path[:] = paths
package = types.ModuleType("sardonyx")
package.__path__ = [folder]
sys.modules["sardonyx"] = package
from sardonyx.codegen.children import serve
serve()
"""

Result = bytes | EngineError


@dataclasses.dataclass(frozen=True, slots=True)
class _Options:
    target: Target
    pipeline: str
    level: int

    def encode(self) -> bytes:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields["target"] = dataclasses.asdict(self.target)
        return json.dumps(fields).encode()

    @staticmethod
    def decode(data: bytes) -> _Options:
        fields = json.loads(data)
        return _Options(Target(**fields["target"]), fields["pipeline"], fields["level"])

    def compile(self, text: str) -> Result:
        try:
            return compile_text(text, self.target, pipeline=self.pipeline, level=self.level)
        except EngineError as error:
            return error


def _write(stream: BinaryIO, status: int, data: bytes) -> None:
    stream.write(_FRAME.pack(status, len(data)) + data)
    stream.flush()


def _read(stream: BinaryIO) -> tuple[int, bytes] | None:
    head = stream.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    status, size = _FRAME.unpack(head)
    data = stream.read(size)
    return (status, data) if len(data) == size else None


def serve() -> None:
    """What a child does: compile the texts on its standard input until that ends."""
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what LLVM prints must not get between the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and ends its children
    first = _read(source)
    if first is None:
        return
    options = _Options.decode(first[1])
    while frame := _read(source):
        result = options.compile(frame[1].decode())
        if isinstance(result, bytes):
            _write(answers, _OBJECT, result)
        else:
            _write(answers, _ERROR, str(result).encode())


class _Child:
    """One child process; used by one thread."""

    def __init__(self, options: _Options) -> None:
        folder = str(Path(__file__).parents[1])
        arguments = json.dumps([[path or os.getcwd() for path in sys.path], folder])
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._errors = b""
        # A full pipe of LLVM's messages would stop the child.
        self._drain = threading.Thread(target=self._read_errors, daemon=True)
        self._drain.start()
        try:
            _write(self._stdin, 0, options.encode())
        except OSError:
            _log.debug("a compiling process ended at once")

    @property
    def _stdin(self) -> BinaryIO:
        return self._process.stdin  # type: ignore[return-value]  # it was opened as a pipe

    def _read_errors(self) -> None:
        stream = self._process.stderr
        for line in stream or ():
            self._errors = (self._errors + line)[-2000:]

    def compile(self, text: str) -> Result | None:
        """The result for one text, or None when the child died of it."""
        try:
            _write(self._stdin, 0, text.encode())
            frame = _read(self._process.stdout)  # type: ignore[arg-type]  # it was opened as a pipe
        except OSError:
            return None
        if frame is None:
            return None
        status, data = frame
        return data if status == _OBJECT else EngineError(data.decode())

    def kill(self) -> None:
        """End the child now, from any thread; whoever waits for its answer sees it die."""
        self._process.kill()

    def close(self) -> str:
        """Let the child end; gives how it ended and what it printed last."""
        try:
            self._stdin.close()
        except OSError:
            _log.debug("a compiling process had ended before")
        code = self._process.wait()
        self._drain.join()
        if self._process.stdout:
            self._process.stdout.close()
        if self._process.stderr:
            self._process.stderr.close()
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        printed = self._errors.decode(errors="replace").strip()
        return how + (f": {printed}" if printed else "")


class _Work:
    """Texts to be compiled, largest first, shared by the threads that drive the children."""

    def __init__(self, texts: Sequence[str], options: _Options) -> None:
        self.texts = texts
        self.options = options
        self.results: list[Result | None] = [None] * len(texts)
        self._stopped = False
        self._children: list[_Child] = []
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        self._left = iter(order)
        self._lock = threading.Lock()

    def _next(self) -> Iterator[int]:
        while not self._stopped:
            with self._lock:
                index = next(self._left, None)
            if index is None:
                return
            yield index

    def _start(self) -> _Child:
        child = _Child(self.options)
        with self._lock:
            self._children.append(child)
            if self._stopped:
                child.kill()
        return child

    def stop(self) -> None:
        """Give up what is not compiled yet."""
        with self._lock:
            self._stopped = True
            for child in self._children:
                child.kill()

    def drive(self) -> None:
        """Feed one child until nothing is left; one that dies is replaced."""
        child: _Child | None = None
        try:
            for index in self._next():
                child = child or self._start()
                result = child.compile(self.texts[index])
                if result is None:
                    how = child.close()
                    child = None
                    result = self._again(index, how)
                self.results[index] = result
        except OSError as error:
            _log.warning("a compiling process cannot be started: %s", error)
        finally:
            if child:
                child.close()

    def _again(self, index: int, how: str) -> Result:
        """One more try, alone in a fresh child: the first may have died for want of memory."""
        if self._stopped:
            return EngineError(message("compile", "Compiling was interrupted"))
        _log.info("a compiling process ended (%s); trying its text once more", how)
        child = self._start()
        result = child.compile(self.texts[index])
        how = child.close()
        if result is not None:
            return result
        return EngineError(
            message("compile", f"LLVM ended the process that compiled text {index} ({how})")
        )


def available_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _process_count(texts: Sequence[str], apart: bool) -> int:
    """How many children to use; 0 compiles here."""
    wanted = knobs.get("SARDONYX_COMPILE_PROCESSES") or available_processors()
    if not sys.executable or not texts:
        return 0
    if apart:
        return max(1, min(int(wanted), len(texts)))
    if wanted == 1 or len(texts) == 1 or sum(map(len, texts)) < THRESHOLD_BYTES:
        return 0
    return min(int(wanted), len(texts))


def compile_many(
    texts: Sequence[str],
    target: Target,
    *,
    pipeline: str = "none",
    level: int = 2,
    apart: bool = False,
) -> list[Result]:
    """Compile texts to objects as `compile_text` does, in children when there is enough to do.

    Args:
        texts: LLVM IR modules.
        target: What to generate for.
        pipeline: One of `compile.PIPELINES`.
        level: Effort of code generation, 0 to 3.
        apart: Use children however little there is to do, so that this process survives any text.

    Returns:
        For each text its object, or the error that it met.
    """
    options = _Options(target, pipeline, level)
    count = _process_count(texts, apart)
    if count == 0:
        return [options.compile(text) for text in texts]
    work = _Work(texts, options)
    drivers = [threading.Thread(target=work.drive, name="sardonyx-compile") for _ in range(count)]
    for driver in drivers:
        driver.start()
    try:
        for driver in drivers:
            driver.join()
    except BaseException:
        work.stop()
        raise
    # Only texts that no child could be started for are left.
    return [
        options.compile(text) if result is None else result
        for text, result in zip(texts, work.results, strict=True)
    ]
