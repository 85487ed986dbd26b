"""JSON from files and models that nobody vouches for: the package's one reader of it.

Python's own reader takes any length and depth, keeps the last of two equal keys, and takes NaN and
Infinity, which JSON does not have. What engine and tools write for themselves, such as entries of
the cache and lines between processes, is read without this.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.files import read_file, shown_path
from sardonyx.base.texts import shortened

#: More than any file of settings, ranges or options has.
MOST_BYTES = 64 << 20
#: Brackets inside brackets. The deepest that is written here has 8.
MOST_DEPTH = 64
#: A string, also one that does not end, or a bracket. Nothing is looked at twice.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.?)*+"?|[\[\]{}]', re.DOTALL)
_SHOWN_CHARACTERS = 60
_TOO_DEEP = "It is nested too deeply for JSON that is read here"


def read_json(
    path: str | os.PathLike[str],
    *,
    most_bytes: int = MOST_BYTES,
    is_strict: bool = True,
    otherwise: str = "It is no JSON",
) -> Any:
    """What a file of JSON holds.

    Args:
        path: A regular file, or a pipe that the process has open already (`/dev/stdin`).
        most_bytes: Longer files are refused, and not read to their end.
        is_strict, otherwise: See `parse_json`.

    Raises:
        NoSuchFile, Fail: See `files.open_file`.
        InvalidArgument: It is no such file, or see `parse_json`.
    """
    data = read_file(path, most_bytes, takes_pipe=True)
    where = shown_path(path)
    return parse_json(data, where, most=most_bytes, is_strict=is_strict, otherwise=otherwise)


def parse_json(
    data: bytes | str,
    where: str,
    *,
    most: int = MOST_BYTES,
    is_strict: bool = True,
    otherwise: str = "It is no JSON",
) -> Any:
    """What a text of JSON stands for.

    Args:
        data: The text; bytes are UTF-8, with or without a mark of the order of bytes.
        where: What errors call it.
        most: A text of more bytes or characters is refused.
        is_strict: Whether a key may not come twice in an object, nor a number be NaN or infinite.
        otherwise: What errors say of a text that is no JSON.

    Raises:
        InvalidArgument: It is no such JSON, is too long, or is nested too deeply.
    """
    if len(data) > most:
        what, expected = "It is too long for JSON that is read here", f"at most {most} bytes"
        raise InvalidArgument(message(where, what, expected=expected, got=str(len(data))))
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        if _is_too_deep(text):
            what, expected = _TOO_DEEP, f"at most {MOST_DEPTH} brackets"
            raise InvalidArgument(message(where, what, expected=expected))
        if not is_strict:
            return json.loads(text)
        return json.loads(
            text, object_pairs_hook=_without_repeats, parse_constant=_refuse, parse_float=_finite
        )
    except InvalidArgument:
        raise
    except _Unfit as error:
        raise InvalidArgument(message(where, str(error))) from None
    except RecursionError:
        what = "There is no stack left to read the JSON"
        do = "Read it where fewer calls are nested"
        raise InvalidArgument(message(where, what, do=do)) from None
    except ValueError as error:
        got = repr(shortened(str(data[:400]), _SHOWN_CHARACTERS))
        raise InvalidArgument(message(where, f"{otherwise}: {error}", got=got)) from None


class _Unfit(Exception):
    """JSON for Python, not for us."""


def _is_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return False
    return any(depth > MOST_DEPTH for depth in _depths(text))


def _depths(text: str) -> Iterator[int]:
    depth = 0
    for found in _TOKEN.finditer(text):
        first = text[found.start()]
        if first in "[{":
            depth += 1
            yield depth
        elif first in "]}":
            depth -= 1


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Unfit(f"It has the key {shortened(name)!r} twice in one object")
        found[name] = value
    return found


def _refuse(word: str) -> Any:
    raise _Unfit(f"It has {word} for a number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Unfit(f"It has {shortened(text)} for a number, which no double holds")
    return number
