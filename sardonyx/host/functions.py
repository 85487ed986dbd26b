"""Finds functions of this package by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

from sardonyx.base.errors import EngineError, message
from sardonyx.base.forks import compiling

HostFunction = Callable[..., Any]
_Function = TypeVar("_Function", bound=HostFunction)

#: Given the facts of a call, what is called with the values of each run.
_MAKERS: dict[str, HostFunction] = {}


def host_function(function: _Function) -> _Function:
    """Let plans call the decorated function, as `module.name`, with values and facts."""
    _MAKERS[_name(function)] = partial(partial, function)
    return function


def host_maker(function: _Function) -> _Function:
    """Let plans call, as `module.name`, what the decorated function makes of the facts.

    It is called once for each place that calls it, so it is where tables are built.
    """
    _MAKERS[_name(function)] = function
    return function


def _name(function: HostFunction) -> str:
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


@cache
def find(name: str) -> HostFunction:
    """What takes the facts of a call of `module.name`, and gives what takes the values.

    Raises:
        EngineError: There is none.
    """
    module = name.partition(".")[0]
    try:
        with compiling:
            importlib.import_module(f"sardonyx.host.{module}")
        return _MAKERS[name]
    except (ImportError, KeyError):
        what = f"There is no function {name!r} on the host"
        raise EngineError(message("plan", what)) from None


@cache
def function_names() -> frozenset[str]:
    """The names of all functions, as `module.name`."""
    package = importlib.import_module("sardonyx.host")
    with compiling:
        for found in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"sardonyx.host.{found.name}")
    return frozenset(_MAKERS)
