"""Tables of objects that are found again by a key, for as long as somebody holds them."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from sardonyx.base.forks import lock_over_forks
from sardonyx.base.interrupt import checkpoint

_Key = TypeVar("_Key")
_Object = TypeVar("_Object")

#: Work without end makes many objects: at every so-manieth it is asked whether it shall end.
_OBJECTS_BETWEEN = 16


#: Keys of objects that are gone are let go of many at a time while a model is compiled.
_MOST_GONE = 512
_PATIENCE = lock_over_forks()
_patient = 0


class _Entry(weakref.ref[_Object]):
    """A reference that knows under which key it is."""

    __slots__ = ("key",)
    key: Any


class WeakTable(Generic[_Key, _Object]):
    """Objects by key, weakly. Compiling a model adds ten thousands: `WeakValueDictionary` takes
    three times as long to add one.

    Args:
        kept: So many of the latest objects stay while a model is compiled, whoever holds them: half
            of the sizes that arithmetic comes by on its way it comes by again.
    """

    def __init__(self, kept: int = 0) -> None:
        #: References by key; for places that look up ten thousands, who calls it then.
        self.entries: dict[_Key, _Entry[_Object]] = {}
        self._lock = lock_over_forks()
        self._gone: list[_Entry[_Object]] = []
        self._added = 0
        self._kept = deque[_Object](maxlen=kept)
        #: Called when an object goes, at any moment. No Python runs in it: what a handler of
        #: signals raises there would be lost. It must not wait for the lock, either.
        self._went: Callable[[_Entry[_Object]], None] = self._gone.append
        _TABLES.add(self)

    def get(self, key: _Key) -> _Object | None:
        """The object with this key, if there is one."""
        entry = self.entries.get(key)
        return None if entry is None else entry()

    def add(self, key: _Key, made: _Object) -> _Object:
        """The one object with this key: that which is there, else `made`. A checkpoint, too."""
        entry: _Entry[_Object] = _Entry(made, self._went)
        entry.key = key
        held = self.entries.setdefault(key, entry)  # no other thread comes between
        found = made if held is entry else held()
        if found is None:
            with self._lock:  # what is there is gone
                other = self.entries.get(key)
                found = None if other is None else other()
                if found is None:
                    self.entries[key], found = entry, made
        if len(self._gone) > (_MOST_GONE if _patient else 0):
            with self._lock:
                self._remove_gone()
        if _patient and self._kept.maxlen:
            self._kept.append(found)
        self._added += 1
        if not self._added % _OBJECTS_BETWEEN:
            checkpoint()
        return found

    def values(self) -> list[_Object]:
        """All objects that are there."""
        remove_gone()
        found = [entry() for entry in list(self.entries.values())]
        return [x for x in found if x is not None]

    def __len__(self) -> int:
        remove_gone()
        return len(self.entries)

    @property
    def has_gone(self) -> bool:
        """Whether there are keys of objects that are gone."""
        return bool(self._gone)

    def keep_nothing(self) -> None:
        """Let go of the objects that stayed: those that nobody holds go."""
        self._kept.clear()

    def remove_gone(self) -> None:
        """Let go of the keys of objects that are gone."""
        with self._lock:
            self._remove_gone()

    def _remove_gone(self) -> None:
        while self._gone:
            entry = self._gone.pop()
            if self.entries.get(entry.key) is entry:
                del self.entries[entry.key]


_TABLES: weakref.WeakSet[WeakTable[Any, Any]] = weakref.WeakSet()


@contextmanager
def patient() -> Iterator[None]:
    """Inside, keys may outlive their objects for a while: for work that makes and drops many."""
    global _patient
    with _PATIENCE:
        _patient += 1
    try:
        yield
    finally:
        with _PATIENCE:
            _patient -= 1
        if not _patient:
            for table in list(_TABLES):
                table.keep_nothing()
        remove_gone()


def remove_gone() -> None:
    """Let go of all keys whose objects are gone: else they stay until others are added.

    Keys hold objects of other tables, which may be the last to do so.
    """
    tables = list(_TABLES)
    while any(table.has_gone for table in tables):
        for table in tables:
            if table.has_gone:
                table.remove_gone()
