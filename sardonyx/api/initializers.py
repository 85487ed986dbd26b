"""Weights that programs give: arrays by name, and contents of files that need not exist."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from sardonyx.api.ortvalue import OrtValue
from sardonyx.base.errors import InvalidArgument, WrongType, message

_FILES = "add_external_initializers_from_files_in_memory"


def initializer(where: str, name: str, value: Any) -> np.ndarray[Any, Any]:
    """The array of an initializer's value.

    Raises:
        InvalidArgument: It is neither an `OrtValue` with a tensor nor an array.
    """
    if isinstance(value, OrtValue):
        return np.asarray(value.numpy())
    if isinstance(value, np.ndarray):
        return value
    raise InvalidArgument(
        message(
            where, f"The initializer {name!r} is no OrtValue",
            expected="OrtValue or an array", got=type(value).__name__,
        )
    )  # fmt: skip


def check_counts(where: str, names: Any, *others: Any) -> None:
    """Refuse lists of different lengths, and what is no list.

    Raises:
        InvalidArgument: They are none, or differ.
    """
    given = [names, *others]
    if any(isinstance(x, (str, bytes)) or not isinstance(x, Sequence) for x in given):
        got = ", ".join(type(x).__name__ for x in given)
        raise WrongType(message(where, "These are no lists", expected="lists", got=got))
    if len({len(x) for x in given}) > 1:
        got = ", ".join(str(len(x)) for x in given)
        what = "There must be a value for each name"
        raise InvalidArgument(message(where, what, expected=str(len(names)), got=got))


def contents_of_files(
    names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int], known: Container[str]
) -> dict[str, bytes]:
    """Contents by file name, none of which is in `known`.

    Raises:
        InvalidArgument: A file comes twice, what is given is no contents, or is shorter.
    """
    check_counts(_FILES, names, buffers, lengths)
    found: dict[str, bytes] = {}
    for name, buffer, length in zip(names, buffers, lengths, strict=True):
        if not isinstance(name, str) or not name:
            raise InvalidArgument(message(_FILES, "This is no name of a file", got=repr(name)))
        if name in found or name in known:
            raise InvalidArgument(message(_FILES, f"The file {name!r} comes twice"))
        found[name] = _contents(name, buffer, length)
    return found


def _contents(name: str, buffer: Any, length: Any) -> bytes:
    where = f"{_FILES} {name}"
    try:
        view = memoryview(buffer).cast("B")
    except TypeError as error:
        what = f"These are no contents: {error}"
        got = type(buffer).__name__
        raise InvalidArgument(
            message(where, what, expected="bytes or a contiguous buffer", got=got)
        ) from None
    is_number = isinstance(length, (int, np.integer)) and not isinstance(length, bool)
    if not is_number or not 0 <= length <= len(view):
        raise InvalidArgument(
            message(
                where, "The length does not fit the buffer",
                expected=f"0 to {len(view)} bytes", got=repr(length),
            )
        )  # fmt: skip
    if isinstance(buffer, bytes) and length == len(buffer):
        return buffer
    return bytes(view[: int(length)])
