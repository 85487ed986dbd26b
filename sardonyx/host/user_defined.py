"""Functions of the program's own that compute operators; see `ops/core/user_defined.py`."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.base import errors
from sardonyx.base.errors import RuntimeException, SardonyxError, message
from sardonyx.base.handlers import pass_on
from sardonyx.host.functions import host_maker

#: Functions by domain, name and first version.
FUNCTIONS: dict[tuple[str, str, int], Callable[..., Any]] = {}
#: For each result: the NumPy type's name (`str` for text), the sizes (None: any; no tuple: any
#: shape of an input) and the number of the input that it is like, or -1.
Expected = tuple[tuple[str, tuple[int | None, ...], int], ...]


def is_function(domain: str, op_type: str) -> bool:
    """Whether an operator is a function of the program's own."""
    return any(key[:2] == (domain, op_type) for key in FUNCTIONS)


@host_maker
def call(
    domain: str,
    op_type: str,
    since: int,
    given: tuple[bool, ...],
    attributes: tuple[tuple[str, object], ...],
    expected: Expected,
) -> Callable[..., Any]:
    """What calls a function with arrays, and checks what it gives.

    Raises:
        NotImplemented: This process has no such function.
    """
    name = f"{domain}.{op_type}-{since}"
    function = FUNCTIONS.get((domain, op_type, since))
    if function is None:
        what = f"The operator {name} is a function of Python that this process does not have"
        do = "Register it, as the program did that made the model's plan"
        raise errors.NotImplemented(message("operator", what, do=do))
    named = dict(attributes)

    def run(*values: Any) -> Any:
        left = iter(values)
        arrays = [_guarded(next(left)) if there else None for there in given]
        try:
            found = function(*arrays, **named)
        except SardonyxError:
            raise
        except Exception as error:
            pass_on(error)
            what = f"Its function failed: {type(error).__name__}: {error}"
            raise RuntimeException(message(name, what)) from error
        results = found if isinstance(found, tuple) else (found,)
        if len(results) != len(expected):
            raise RuntimeException(
                message(
                    name, "Its function gives another number of results",
                    expected=str(len(expected)), got=str(len(results)),
                )
            )  # fmt: skip
        checked = [
            _checked(name, k, result, wanted, arrays)
            for k, (result, wanted) in enumerate(zip(results, expected, strict=True))
        ]
        return checked[0] if len(checked) == 1 else tuple(checked)

    return run


def _guarded(value: Any) -> Any:
    """An array that the function cannot write to: others read the same memory."""
    view = value.view()
    view.flags.writeable = False
    return view


def _checked(
    name: str,
    number: int,
    result: Any,
    wanted: tuple[str, tuple[int | None, ...], int],
    arrays: list[Any],
) -> Any:
    """A result of the type and shape that were declared, in memory of its own."""
    kind, sizes, like = wanted
    where = f"{name}, result {number}"
    if isinstance(result, types.GeneratorType) or result is None:
        raise RuntimeException(message(where, "This is no array", got=type(result).__name__))
    try:
        array = np.asarray(result)
    except Exception as error:  # what an object of another library raises
        pass_on(error)
        raise RuntimeException(message(where, f"This is no array: {error}")) from error
    is_text = kind == "str"
    if is_text:
        if array.dtype.kind not in "OU" or not all(isinstance(x, str) for x in array.flat):
            raise RuntimeException(message(where, "This is no array of text", got=str(array.dtype)))
        array = array.astype(object)
    elif array.dtype.name != kind:
        what = "The type is another than the one that was declared"
        raise RuntimeException(message(where, what, expected=kind, got=array.dtype.name))
    shape = arrays[like].shape if like >= 0 else sizes
    fits = len(shape) == array.ndim and all(
        a is None or a == b for a, b in zip(shape, array.shape, strict=True)
    )
    if not fits:
        text = ", ".join("?" if d is None else str(d) for d in shape)
        what = "The shape is another than the one that was declared"
        raise RuntimeException(message(where, what, expected=f"({text})", got=str(array.shape)))
    shares = any(a is not None and np.may_share_memory(a, array) for a in arrays)
    return array.copy() if shares else np.ascontiguousarray(array).reshape(array.shape)
