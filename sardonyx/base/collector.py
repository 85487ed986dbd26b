"""Pauses Python's cyclic collector while much is built that stays.

A load makes hundreds of thousands of objects. The collector looks at all of them, and at all that
the program has besides, again and again: a fifth of the time, and nothing is found.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sardonyx.base.forks import lock_over_forks

_LOCK = lock_over_forks()
_pauses = 0
_was_enabled = False


@contextmanager
def paused() -> Iterator[None]:
    """Inside, in all threads, nothing is collected that refers to itself."""
    global _pauses, _was_enabled
    with _LOCK:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _LOCK:
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                gc.enable()


def _go_on() -> None:
    """In a forked process the threads that paused it are not there; the one that forked may be."""
    if _pauses and _was_enabled:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_go_on)
