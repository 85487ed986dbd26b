"""Parts of a model that a provider outside the package computes."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from sardonyx.base.errors import EngineError, message
from sardonyx.host.functions import host_maker

#: What computes each part, by its number; whoever has the plan keeps it alive.
_parts: weakref.WeakValueDictionary[int, Callable[..., Any]] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def keep(part: Callable[..., Any]) -> int:
    """A number under which plans of this process find what computes a part."""
    number = next(_numbers)
    _parts[number] = part
    return number


@host_maker
def part(number: int) -> Callable[..., Any]:
    """What computes the part with this number.

    Raises:
        EngineError: The engine that it belongs to is gone.
    """
    found = _parts.get(number)
    if found is None:
        raise EngineError(message("provider", f"There is no part {number}"))
    return found
