"""Values of context variables for a block."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class Setting(Generic[_Value]):
    """A context in which a variable has a value, which is what it gives; before, it had another.

    Each node of a graph enters several: as a generator each takes three times as long.
    """

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: _Value) -> None:
        self._variable, self._value = variable, value

    def __enter__(self) -> _Value:
        self._token: Token[Any] = self._variable.set(self._value)
        return self._value

    def __exit__(self, *_error: object) -> None:
        self._variable.reset(self._token)
