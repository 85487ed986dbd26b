"""Arguments of any kind end in named errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sardonyx.base.errors import InvalidArgument, SardonyxError, WrongType, message

_P = ParamSpec("_P")
_R = TypeVar("_R")

_RAISED = (TypeError, ValueError, AttributeError, LookupError, OverflowError)


def names_misfits(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function that raises InvalidArgument where Python cannot do what it does to an argument.

    For what callers are given, and which is not called in every run. A call with another number of
    arguments stays Python's own TypeError; the error of Python is the cause of the named one.
    """

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except SardonyxError:
            raise
        except _RAISED as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is None:
                raise
            what = f"An argument does not fit: {type(error).__name__}: {error}"
            given = [*map(_kind, args), *(f"{k}={_kind(v)}" for k, v in kwargs.items())]
            text = message(function.__qualname__, what, got=", ".join(given))
            kind = WrongType if isinstance(error, TypeError) else InvalidArgument
            raise kind(text) from error

    return checked


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
