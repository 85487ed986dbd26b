"""Ends long work in Python from outside: it calls `checkpoint` every so often.

Work that may be long for a small file (a pass over nodes, arithmetic of sizes, rewriting) has a
checkpoint in its loop. Who started the work decides what a checkpoint does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Here(threading.local):
    check: Callable[[], None] | None = None


_here = _Here()


def checkpoint() -> None:
    """Raise what ends this thread's work, if it shall end."""
    check = _here.check
    if check is not None:
        check()


@contextmanager
def watching(check: Callable[[], None]) -> Iterator[None]:
    """Let checkpoints of this thread call `check`, which raises when the work shall end."""
    before, _here.check = _here.check, check
    try:
        yield
    finally:
        _here.check = before
