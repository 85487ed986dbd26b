"""What the system refuses, as an error that names the resource and says what to do."""

from __future__ import annotations

import errno
import os

import pytest

from sardonyx.base.errors import EngineError, InvalidGraph, OutOfMemory, ResourceError
from sardonyx.base.resources import named, refusal
from sardonyx.compiler.drive import guarded
from sardonyx.compiler.options import EngineOptions
from sardonyx.workers.children import _why_lost


def of_system(number: int, name: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), name)


REFUSALS = [
    (of_system(errno.EMFILE, "/a/model"), ResourceError, "'/a/model'.*ulimit -n"),
    (of_system(errno.ENFILE), ResourceError, "The system may open no more files"),
    (of_system(errno.ENOSPC), ResourceError, "no room.*SARDONYX_CACHE"),
    (of_system(errno.EDQUOT), ResourceError, "no room"),
    (of_system(errno.EACCES, "/a"), ResourceError, "refuses access.*'/a'.*owner and the mode"),
    (of_system(errno.EROFS), ResourceError, "read-only"),
    (of_system(errno.EAGAIN), ResourceError, "processes or threads.*ulimit -u"),
    (of_system(errno.EIO), ResourceError, "disk"),
    (of_system(errno.EXDEV), ResourceError, "refuses what is needed"),
    (of_system(errno.ENOMEM), OutOfMemory, "refuses memory"),
    (MemoryError(), OutOfMemory, "refuses memory"),
    (RuntimeError("can't start new thread"), ResourceError, "processes or threads"),
]


@pytest.mark.parametrize(("error", "kind", "text"), REFUSALS, ids=[repr(r[0]) for r in REFUSALS])
def test_refusals(error: Exception, kind: type[Exception], text: str) -> None:
    def make(_: EngineOptions) -> None:
        raise error

    with pytest.raises(kind, match=rf"\[session\] .*{text}") as found:
        guarded(EngineOptions(), make)
    assert type(found.value) is kind and found.value.__cause__ is error
    with pytest.raises(kind, match=rf"\[here\] .*{text}"), named("here"):
        raise error


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("x"), KeyError("x")])
def test_errors_of_other_kinds(error: Exception) -> None:
    assert refusal("here", error) is None
    with pytest.raises(type(error)) as found, named("here"):
        raise error
    assert found.value is error


def test_errors_that_are_named_already() -> None:
    error = InvalidGraph("mine")
    assert refusal("here", error) is error


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("signal 9", ResourceError),
        ("signal 15", ResourceError),
        ("it is gone", ResourceError),
        ("signal 11", EngineError),
        ("signal 6", EngineError),
        ("exit status 1: LLVM ERROR: out of memory", OutOfMemory),
        ("exit status 1: MemoryError", OutOfMemory),
        ("exit status 1: SyntaxError", EngineError),
    ],
)
def test_what_ends_processes_that_compile(how: str, kind: type[Exception]) -> None:
    assert type(_why_lost(how)) is kind
