"""Locks that a forked process finds open.

Forking waits until no other thread holds one of them. Otherwise the child would wait for ever for a
thread that it does not have.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_LOCKS: list[threading.RLock] = []


def lock_over_forks() -> threading.RLock:
    """A lock that no other thread holds while the process is forked; for the process's whole life.

    Whoever holds one may wait only for those that were made later.
    """
    _LOCKS.append(threading.RLock())
    return _LOCKS[-1]


#: Taken and let go of natively: what a handler of signals raises never comes between the two halves
#: of a `with`.
_Recursive: Any = type(threading.RLock())


class RenewedLock(_Recursive):  # type: ignore[misc]  # the class has no public name
    """A lock of one object, which may be taken again by the thread that has it.

    Forking does not wait for it: the forked process gets a new, open one. What it guards must make
    sense at any moment, therefore, even in the middle of a change.
    """

    def __init__(self) -> None:
        super().__init__()
        _RENEWED.add(self)

    def renew(self) -> None:
        """Forget who has it: a thread that this process does not have."""
        self._at_fork_reinit()


_RENEWED: weakref.WeakSet[RenewedLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_RENEWED):
        lock.renew()


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
    os.register_at_fork(after_in_child=_renew_all)

#: Held while the run time's own functions are loaded, which may compile them.
loading_library = lock_over_forks()
#: Held while modules are imported late, and while LLVM, which has a lock of its own, compiles.
compiling = lock_over_forks()
