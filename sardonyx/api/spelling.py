"""The nearest valid spelling of a name that is not one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from sardonyx.base.errors import WrongType, message

_P = ParamSpec("_P")
_R = TypeVar("_R")


def nearest(name: object, valid: Iterable[str]) -> str:
    """A sentence that names the nearest of `valid`, or all of them if few; "" if there is none."""
    import difflib  # only for errors

    if not isinstance(name, str):
        return "Names are text"
    known = sorted(valid)
    folded = {word.lower(): word for word in known}
    found = difflib.get_close_matches(name.lower(), folded, 1)
    if found:
        return f"Did you mean {folded[found[0]]!r}?"
    return f"The names are {', '.join(map(repr, known))}" if 0 < len(known) <= 12 else ""


def names_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function that answers an unknown argument with the name of the nearest known one.

    That is a TypeError, as Python's own is.
    """
    code = inspect.unwrap(function).__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs:
            if name not in known:
                what = f"There is no argument {name!r}"
                raise WrongType(message(function.__name__, what, do=nearest(name, known)))
        return function(*args, **kwargs)

    return checked
