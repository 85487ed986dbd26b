"""Sessions while the system refuses something: results are right, or errors name the resource.

python -m tests.hostile.faults --seconds 3600         # until then; defects are printed with seeds
python -m tests.hostile.faults --seed 17 --count 1    # one case again

Each case makes a session and runs it while one kind of call fails: at its k-th time, or from then
on; or while a signal comes then, whose handler raises. That must reach the caller as it is.
Afterwards, with nothing failing, the same process must make the session and give right values.
"""

from __future__ import annotations

import argparse
import builtins
import errno
import io
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import sardonyx
from sardonyx.base.errors import EngineError, SardonyxError
from tests.support.session import model_of

_FILES = (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EIO, errno.ENOMEM)
_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO)
_TASKS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE)


def _of_system(*numbers: int) -> Callable[[random.Random], BaseException]:
    def make(rnd: random.Random) -> BaseException:
        number = rnd.choice(numbers)
        return OSError(number, os.strerror(number))

    return make


def _no_thread(_: random.Random) -> BaseException:
    return RuntimeError("can't start new thread")


def _no_memory(_: random.Random) -> BaseException:
    return MemoryError()


#: What may fail: who has it, its name, and what it raises.
CALLS: dict[str, tuple[Any, str, Callable[[random.Random], BaseException]]] = {
    "open": (builtins, "open", _of_system(*_FILES)),
    "io.open": (io, "open", _of_system(*_FILES)),
    "os.open": (os, "open", _of_system(*_FILES)),
    "os.pipe": (os, "pipe", _of_system(*_FILES)),
    "os.stat": (os, "stat", _of_system(errno.EACCES, errno.EIO, errno.ENOMEM)),
    "os.scandir": (os, "scandir", _of_system(*_FILES)),
    "os.memfd_create": (os, "memfd_create", _of_system(*_FILES)),
    "os.mkdir": (os, "mkdir", _of_system(*_WRITES)),
    "os.replace": (os, "replace", _of_system(*_WRITES)),
    "os.unlink": (os, "unlink", _of_system(*_WRITES)),
    "os.write": (os, "write", _of_system(errno.ENOSPC, errno.EIO, errno.EPIPE)),
    "os.utime": (os, "utime", _of_system(*_WRITES)),
    "mmap": (mmap, "mmap", _of_system(errno.ENOMEM, errno.EAGAIN, errno.EACCES)),
    "Popen": (subprocess, "Popen", _of_system(*_TASKS)),
    "Thread.start": (threading.Thread, "start", _no_thread),
    "np.empty": (np, "empty", _no_memory),
    "np.zeros": (np, "zeros", _no_memory),
}  # fmt: skip


def _gemm() -> tuple[bytes, dict[str, Any], Any]:
    random_ = np.random.default_rng(1)
    w = random_.integers(-4, 5, (48, 32)).astype(np.float32)
    x = random_.integers(-4, 5, (20, 48)).astype(np.float32)
    text = "g (float[N,48] x) => (float[N,32] y) { z = MatMul(x, w) y = Relu(z) }"
    return model_of(text, {"w": w}).SerializeToString(), {"x": x}, np.maximum(x @ w, 0)


def _text() -> tuple[bytes, dict[str, Any], Any]:
    text = """g (string[N] x) => (string[N] y) {
    y = StringNormalizer<case_change_action="UPPER">(x) }"""
    return model_of(text).SerializeToString(), {"x": np.array(["ab", "c"], object)}, ["AB", "C"]


MODELS = {"a product": _gemm, "text": _text}


class _Failing:
    """A function that fails at its k-th call, or from then on."""

    def __init__(
        self, real: Any, error: BaseException, at: int, always: bool, by_signal: bool
    ) -> None:
        self.real, self.error, self.at, self.always, self.calls = real, error, at, always, 0
        self.by_signal, self.raised = by_signal, 0

    def handle(self, _number: int, _frame: Any) -> None:
        """Of the signal."""
        self.raised += 1
        raise self.error

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == self.at or (self.always and self.calls > self.at):
            if not self.by_signal:
                raise type(self.error)(*self.error.args)
            if self.calls == self.at and threading.current_thread() is threading.main_thread():
                signal.raise_signal(signal.SIGUSR1)
        return self.real(*args, **options)

    def __get__(self, owner: Any, _kind: Any = None) -> Any:
        """As of a method, where it stands in a class."""
        return self if owner is None else lambda *args, **options: self(owner, *args, **options)


class Own(Exception):
    """A program's own."""


#: What handlers of signals raise: what the engine deals with where it comes from elsewhere, too.
RAISED = (TimeoutError, OSError, ValueError, KeyError, MemoryError, RecursionError, Own)


@contextmanager
def failing(
    name: str, rnd: random.Random, at: int, always: bool, by_signal: bool
) -> Iterator[_Failing]:
    """One of `CALLS` fails inside the block, or a signal comes."""
    holder, attribute, make = CALLS[name]
    error = rnd.choice(RAISED)("mine") if by_signal else make(rnd)
    made = _Failing(getattr(holder, attribute), error, at, always, by_signal)
    before = signal.signal(signal.SIGUSR1, made.handle)
    try:
        with mock.patch.object(holder, attribute, made):
            yield made
        assert signal.getsignal(signal.SIGUSR1) == made.handle
    finally:
        signal.signal(signal.SIGUSR1, before)


def run_case(seed: int, folder: Path) -> tuple[str, str]:
    """What was done, and the defect; none if that is empty."""
    rnd = random.Random(seed)
    name, model = rnd.choice(list(CALLS)), rnd.choice(list(MODELS))
    at, always = int(2 ** rnd.uniform(0, 7)), rnd.random() < 0.5
    is_cached, from_file = rnd.random() < 0.5, rnd.random() < 0.5
    apart, by_signal = rnd.random() < 0.2, rnd.random() < 0.4
    data, feeds, expected = MODELS[model]()
    path = folder / "model.onnx"
    path.write_bytes(data)
    cache = str(folder / f"cache-{seed}")
    text = f"{name} {'has a signal' if by_signal else 'fails'} at {at}"
    text += f"{' and after' if always else ''}, {model}"
    text += f"{', cached' if is_cached else ''}{', a file' if from_file else ''}"
    source: Any = str(path) if from_file else data
    environment = {
        "SARDONYX_CACHE": cache, "SARDONYX_COMPILE_PROCESSES": "2" if apart else "1",
    }  # fmt: skip
    with mock.patch.dict(os.environ, environment):
        if is_cached:
            sardonyx.InferenceSession(source).run(None, feeds)
        with ExitStack() as stack:
            made = stack.enter_context(failing(name, rnd, at, always, by_signal))
            defect = _tried(source, feeds, expected, made)
        text += f", {made.error!r}, {made.calls} calls"
        defect = defect or _tried(source, feeds, expected)
    shutil.rmtree(cache, ignore_errors=True)
    return text, defect


def _tried(source: Any, feeds: dict[str, Any], expected: Any, made: _Failing | None = None) -> str:
    """What is wrong with a session and a run of it, while something fails or not."""
    by_signal = made is not None and made.by_signal
    try:
        found = sardonyx.InferenceSession(source).run(None, feeds)[0]
    except Exception as error:  # noqa: BLE001 - most are none that may come
        if by_signal:
            is_right = made is not None and error is made.error
        else:
            is_named = isinstance(error, SardonyxError) and not isinstance(error, EngineError)
            is_right = made is not None and is_named
        return "" if is_right else traceback.format_exc()
    if by_signal and made is not None and made.raised:
        return f"SWALLOWED: {made.error!r}"
    return "" if np.array_equal(found, expected) else f"WRONG: {found}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=10**9, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after so long")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/sardonyx-faults"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    until, defects, cases = time.monotonic() + options.seconds, 0, 0
    for seed in range(options.seed, options.seed + options.count):
        if time.monotonic() > until:
            break
        text, defect = run_case(seed, options.folder)
        cases += 1
        if defect:
            defects += 1
            sys.stdout.write(f"DEFECT {seed}: {text}\n{defect}\n")
    sys.stdout.write(f"{cases} cases from seed {options.seed}, {defects} defects\n")
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
