"""Finds functions of this package by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from sardonyx.base.errors import EngineError, message

HostFunction = Callable[..., Any]
_Function = TypeVar("_Function", bound=HostFunction)

_FUNCTIONS: dict[str, HostFunction] = {}


def host_function(function: _Function) -> _Function:
    """Let plans call the decorated function, as `module.name`."""
    module = function.__module__.rpartition(".")[2]
    _FUNCTIONS[f"{module}.{function.__name__}"] = function
    return function


@cache
def find(name: str) -> HostFunction:
    """The function called `module.name`.

    Raises:
        EngineError: There is none.
    """
    module = name.partition(".")[0]
    try:
        importlib.import_module(f"sardonyx.host.{module}")
        return _FUNCTIONS[name]
    except (ImportError, KeyError):
        what = f"There is no function {name!r} on the host"
        raise EngineError(message("plan", what)) from None
