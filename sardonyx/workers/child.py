"""What a compiling child process does, and how parent and child talk to each other.

Protocol, over the child's standard streams: `FRAME` (a number, bytes), then the bytes. The first
frame to a child holds JSON: what it must know of the target, and pairs of pipes. It answers with
`READY`, which holds its identifier, when LLVM is there. Each frame after it is a text with its
level of code generation, and is answered by one frame, in order: a part (`PART`) or the text of an
EngineError (`ERROR`).

For each pair of pipes there is a twin: a fork of the child with LLVM in it, which takes a
twentieth of the time of another child's start. It speaks the same protocol over its pair.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import struct
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

from sardonyx.base.errors import EngineError
from sardonyx.link.elf import read_object
from sardonyx.llvm.compile import compile_text, emit_assembly, load_llvm

if TYPE_CHECKING:
    from sardonyx.targets.target import Target

FRAME = struct.Struct("<II")
READY, PART, ERROR = 0, 1, 2
#: What compiling asks of a target. Importing its class would take as long as a fifth of LLVM.
_FIELDS = ("triple", "cpu", "features", "isa")

#: The parent forms what children compile: where processors are few, it must not wait for them.
_NICE = 5

# Running `-m sardonyx.workers.child` would first import the whole package, NumPy included.
_BOOTSTRAP = """
import json, sys, types
paths, folder = json.loads(sys.argv[1])
sys.path[:] = paths
package = types.ModuleType("sardonyx")
package.__path__ = [folder]
sys.modules["sardonyx"] = package
from sardonyx.workers.child import serve
serve()
"""


def command() -> list[str]:
    """The arguments that start a child."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = json.dumps([[path or os.getcwd() for path in sys.path], folder])
    options = ["-I", "-S"]
    if sys.dont_write_bytecode:
        options.append("-B")
    if sys.pycache_prefix:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return [sys.executable, *options, "-c", _BOOTSTRAP, paths]


def greeting(target: Target, twins: Sequence[tuple[int, int]] = ()) -> bytes:
    """The first frame to a child; `twins` are descriptors to read from and to write to."""
    fields = {name: getattr(target, name) for name in _FIELDS}
    data = json.dumps([fields, list(twins)]).encode()
    return FRAME.pack(0, len(data)) + data


def compile_part(text: str, target: Target, level: int) -> bytes:
    """A text as the bytes of a `Part`; for a GPU, as the text of a PTX module.

    Raises:
        EngineError: The text is not valid, or needs what a part cannot have.
    """
    if target.isa == "ptx":
        return emit_assembly(text, target, pipeline="full", level=level).encode()
    return read_object(compile_text(text, target, level=level)).to_bytes()


def _write(stream: BinaryIO, kind: int, data: bytes) -> None:
    stream.write(FRAME.pack(kind, len(data)) + data)
    stream.flush()


def _read(stream: BinaryIO) -> tuple[int, bytes] | None:
    head = stream.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    number, size = FRAME.unpack(head)
    data = stream.read(size)
    return (number, data) if len(data) == size else None


def serve() -> None:
    """Compile the texts on standard input until that ends, and end the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and ends its children
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what LLVM prints must not get between the answers
    first = _read(source)
    if first is None:
        return
    fields, twins = json.loads(first[1])
    target = SimpleNamespace(**fields)
    load_llvm()
    if hasattr(os, "nice"):
        os.nice(_NICE)
    if twins:  # they leave nothing behind when they end before this process
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for number, pair in enumerate(twins):
        if _fork() == 0:
            # Who reads from a pipe sees its end only when nobody else can write to it.
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.close(answers.fileno())
            for other in itertools.chain(*twins[number + 1 :]):
                os.close(other)
            try:
                _answer(os.fdopen(pair[0], "rb"), os.fdopen(pair[1], "wb"), target)
            finally:  # without the end of an interpreter, which the child will have
                os._exit(0)
        for descriptor in pair:
            os.close(descriptor)
    _answer(source, answers, target)
    if twins:
        _wait_for_twins()
    os._exit(0)


def _fork() -> int:
    """As `os.fork`; where there are no more processes, as if there had been one that ended."""
    try:
        return os.fork()
    except OSError as error:
        sys.stderr.write(f"no twin can be forked: {error}\n")
        return -1


def _wait_for_twins() -> None:
    """Wait until all are gone: whoever adopts orphans may not look after them."""
    try:
        os.wait()
    except ChildProcessError:
        return


def _answer(source: BinaryIO, answers: BinaryIO, target: Any) -> None:
    _write(answers, READY, str(os.getpid()).encode())
    while frame := _read(source):
        level, data = frame
        try:
            _write(answers, PART, compile_part(data.decode(), target, level))
        except EngineError as error:
            _write(answers, ERROR, str(error).encode())
