"""Functions that remember what they gave while a model is compiled, and forget it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import _lru_cache_wrapper, lru_cache
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_remembered: list[_lru_cache_wrapper[Any]] = []


def remembering(most: int) -> Callable[[_Function], _Function]:
    """A decorator: results are kept by arguments, the latest `most` of them, until `forget`."""

    def decorate(function: _Function) -> _Function:
        kept: Any = lru_cache(maxsize=most)(function)
        _remembered.append(kept)
        found: _Function = kept
        return found

    return decorate


def forget() -> None:
    """Forget all of it, so that what nothing else holds can go.

    Called when a model is compiled: what was found helps no other model.
    """
    for kept in _remembered:
        kept.cache_clear()
