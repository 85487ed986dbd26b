"""Arenas that values without a session, and sessions that ask for it, share."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.forks import RenewedLock
from sardonyx.cuda.memory.arena import Arena

_registered: dict[tuple[str, int], Arena] = {}
_making = RenewedLock()
_default: dict[tuple[str, int], Arena] = {}


def arena_of(kind: str, number: int, make: Callable[[], Arena]) -> Arena:
    """The arena that values without a session share: a registered one, or the default."""
    with _making:
        found = _registered.get((kind, number)) or _default.get((kind, number))
        if found is None:
            found = _default[kind, number] = make()
        return found


def register(kind: str, number: int, arena: Arena) -> None:
    """Let sessions that ask for shared arenas use this one.

    Raises:
        InvalidArgument: There is one already.
    """
    with _making:
        if (kind, number) in _registered:
            what = f"There is an allocator for {kind} {number} already"
            raise InvalidArgument(message("create_and_register_allocator", what))
        _registered[kind, number] = arena


def registered(kind: str, number: int) -> Arena | None:
    """The arena that was registered, if any."""
    return _registered.get((kind, number))
