"""Runs after which memory is given back: `memory.enable_memory_arena_shrinkage`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.storage import HOST

if TYPE_CHECKING:
    from sardonyx.runtime.engine import Engine

_CPU = "cpu:0"


def check_arenas(engine: Engine, names: frozenset[str]) -> None:
    """Refuse arenas that a session does not have.

    Args:
        engine: The session's.
        names: Such as `gpu:0`.

    Raises:
        InvalidArgument: One is of a device that the session does not work on.
    """
    own = {_CPU, *map(_name, _engines(engine))}
    if strange := names - own:
        what = f"The session has no memory of {', '.join(sorted(strange))}"
        where = "memory.enable_memory_arena_shrinkage"
        raise InvalidArgument(message(where, what, expected=" or ".join(sorted(own))))


def shrink(engine: Engine, names: frozenset[str]) -> None:
    """Give back what a session's engines hold between runs in these arenas.

    `cpu:0` means memory of the host through which a device's feeds and results go, too.
    """
    for each in _engines(engine):
        if _name(each) in names:
            each.executable.trim()
        if _CPU in names:
            each.executable.trim_staging()


def _engines(engine: Engine) -> Iterator[Engine]:
    for each in (engine, *engine.variants.values()):
        yield each
        yield from each.regions


def _name(engine: Engine) -> str:
    kind = engine.executable.facts.memory_kind
    return _CPU if kind is HOST else f"gpu:{kind.number}"
