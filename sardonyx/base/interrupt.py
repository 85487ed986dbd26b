"""Ends long work in Python from outside: it calls `checkpoint` every so often.

Work that may be long for a small file (a pass over nodes, arithmetic of sizes, rewriting) has a
checkpoint in its loop. Who started the work decides what a checkpoint does. Work that makes much
out of little says so with `claim` before it does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

_Item = TypeVar("_Item")
_ITEMS_BETWEEN = 256


class Interrupted(Exception):  # noqa: N818 - nothing is wrong
    """Ends work whose result nobody waits for any more; who started the work catches it."""


class _Here(threading.local):
    check: Callable[[], None] | None = None
    claim: Callable[[int], None] | None = None


_here = _Here()


def checkpoint() -> None:
    """Raise what ends this thread's work, if it shall end."""
    check = _here.check
    if check is not None:
        check()


def watched(items: Sequence[_Item]) -> Iterator[_Item]:
    """The items, with a checkpoint now and then."""
    for first in range(0, len(items), _ITEMS_BETWEEN):
        checkpoint()
        yield from items[first : first + _ITEMS_BETWEEN]


def claim(size_bytes: int) -> None:
    """Raise `OutOfMemory` if this thread's work may not have so much more memory."""
    if _here.claim is not None:
        _here.claim(size_bytes)


@contextmanager
def watching(check: Callable[[], None]) -> Iterator[None]:
    """Let checkpoints of this thread call `check`, which raises when the work shall end."""
    before, _here.check = _here.check, check
    try:
        yield
    finally:
        _here.check = before


@contextmanager
def counting(take: Callable[[int], None], give: Callable[[int], None]) -> Iterator[None]:
    """Let claims of this thread count with `take`; what they took is given back at the end."""
    taken = 0

    def counted(size_bytes: int) -> None:
        nonlocal taken
        take(size_bytes)
        taken += size_bytes

    before, _here.claim = _here.claim, counted
    try:
        yield
    finally:
        _here.claim = before
        give(taken)
