"""Locks that a forked process finds open.

Forking waits until no other thread holds one of them. Otherwise the child would wait for ever for a
thread that it does not have.
"""

from __future__ import annotations

import os
import threading

_LOCKS: list[threading.RLock] = []


def lock_over_forks() -> threading.RLock:
    """A lock that no other thread holds while the process is forked; for the process's whole life.

    Whoever holds one may wait only for those that were made later.
    """
    _LOCKS.append(threading.RLock())
    return _LOCKS[-1]


def _acquire_all() -> None:
    for lock in _LOCKS:
        lock.acquire()


def _release_all() -> None:
    for lock in reversed(_LOCKS):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all
    )

#: Held while modules are imported late, and while LLVM, which has a lock of its own, compiles.
compiling = lock_over_forks()
