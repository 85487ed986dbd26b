"""Strings: to and from numbers, join, split, normalise, match (ONNX operator spec)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidGraph, RuntimeException, message
from sardonyx.host.functions import host_function, host_maker

_NAMES = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def texts(items: list[str], shape: tuple[int, ...]) -> Any:
    """An array of strings."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


@host_function
def from_numbers(x: Any) -> Any:
    """Numbers as the shortest text that gives the same number again (ONNX: Cast to string)."""
    if x.dtype == np.bool_:
        return texts(["1" if v else "0" for v in x.reshape(-1).tolist()], x.shape)
    if x.dtype.kind in "iu":
        return texts([str(v) for v in x.reshape(-1).tolist()], x.shape)
    return texts([_NAMES.get(str(v), str(v)) for v in x.reshape(-1)], x.shape)


@host_function
def ranks(x: Any) -> Any:
    """Numbers in the order of the texts, equal where those are (Unique)."""
    flat = x.reshape(-1).tolist()
    numbers = {t: k for k, t in enumerate(sorted(set(flat)))}
    return np.array([numbers[t] for t in flat], np.int64).reshape(x.shape)


@host_function
def to_numbers(x: Any, *, to: str) -> Any:
    """Text as numbers: plain or scientific notation, NaN, INF (ONNX: Cast from string)."""
    target = dtypes.BY_NAME[to]
    flat = x.reshape(-1).tolist()
    values: list[Any] = []
    for text in flat:
        try:
            if target.is_float:
                values.append(float(text))
            else:
                values.append(_whole(text))
        except (ValueError, OverflowError):
            what = f"The text {text!r} is no number"
            raise RuntimeException(message("Cast", what, expected=to)) from None
    try:
        wide = np.array(values, np.float64 if target.is_float else None)
        return (
            wide.astype(target.numpy).reshape(x.shape)
            if values
            else np.empty(x.shape, target.numpy)
        )
    except OverflowError:
        raise RuntimeException(message("Cast", f"A number does not fit {to}")) from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


@host_function
def concat(x: Any, y: Any) -> Any:
    """Texts put together, element by element, with broadcasting (StringConcat)."""
    try:
        a, b = np.broadcast_arrays(x, y)
    except ValueError as error:
        raise RuntimeException(message("StringConcat", str(error))) from None
    pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
    return texts([left + right for left, right in pairs], a.shape)


@host_function
def split(x: Any, *, delimiter: str, maxsplit: int | None) -> tuple[Any, Any]:
    """Parts of each text on a new last axis, "" where there are fewer, and how many (StringSplit).

    Without a delimiter, whitespace of any length separates.
    """
    most = -1 if maxsplit is None else maxsplit
    parts = [t.split(delimiter or None, most) for t in x.reshape(-1).tolist()]
    width = max(map(len, parts), default=0)
    rows = [item for row in parts for item in (*row, *[""] * (width - len(row)))]
    counts = np.array(list(map(len, parts)), np.int64).reshape(x.shape)
    return texts(rows, (*x.shape, width)), counts


@host_maker
def normalise(
    *, case: str, is_case_sensitive: bool, stopwords: tuple[str, ...]
) -> Callable[[Any], Any]:
    """Text without stop words, in upper or lower case (StringNormalizer).

    Takes (C) or (1, C); gives as many columns as are left, or one "" if none is.
    """
    change: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper}
    convert = change.get(case, str)
    dropped = set(stopwords) if is_case_sensitive else {word.lower() for word in stopwords}
    seen = str if is_case_sensitive else str.lower

    def normalised(x: Any) -> Any:
        kept = [convert(t) for t in x.reshape(-1).tolist() if seen(t) not in dropped]
        kept = kept or [""]
        return texts(kept, (*x.shape[:-1], len(kept)))

    return normalised


@host_maker
def full_match(*, pattern: str) -> Callable[[Any], Any]:
    """Whether each whole text matches (RegexFullMatch)."""
    compiled = compile_pattern(pattern, "RegexFullMatch")

    def matched(x: Any) -> Any:
        found = [compiled.fullmatch(t) is not None for t in x.reshape(-1).tolist()]
        return np.array(found, np.bool_).reshape(x.shape)

    return matched


def compile_pattern(pattern: str, where: str) -> re.Pattern[str]:
    """A pattern in RE2's syntax as one of Python's.

    Raises:
        InvalidGraph: It is in neither.
    """
    # RE2 writes \z for the end of the text and \pN, \C for classes; Python knows \Z only.
    translated = re.sub(r"(?<!\\)((?:\\\\)*)\\z", r"\1\\Z", pattern)
    try:
        return re.compile(translated)
    except re.error as error:
        what = f"The pattern {pattern!r} is not supported: {error}"
        raise InvalidGraph(message(where, what)) from None


#: What marks the begin and the end of a text (com.microsoft.Tokenizer, attribute `mark`).
_BEGIN, _END = "\x02", "\x03"


@host_maker
def tokenise(
    *,
    expression: str | None,
    separators: tuple[str, ...],
    mark: bool,
    least: int,
    padding: str,
) -> Callable[[Any], Any]:
    """Tokens of each text on a new last axis, padded (com.microsoft.Tokenizer).

    Tokens are what matches `expression`; or what lies between matches of one of `separators`, of
    which the first that matches at a place counts; or, with "" as the separator, single characters.
    Those of fewer than `least` characters are left out.
    """
    pattern = None if expression is None else compile_pattern(expression, "Tokenizer")
    between = [compile_pattern(s, "Tokenizer") for s in separators]

    def split_one(text: str) -> list[str]:
        if pattern is not None:
            found = [m.group() for m in pattern.finditer(text)]
        elif separators == ("",):
            found = list(text)
        else:
            found = _parts_between(text, between)
        return [token for token in found if len(token) >= max(1, least)]

    def tokenised(x: Any) -> Any:
        rows = [split_one(t) for t in x.reshape(-1).tolist()]
        width = max(map(len, rows), default=0)
        if mark and width:
            rows, width = [[_BEGIN, *row, _END] for row in rows], width + 2
        listed = [token for row in rows for token in (*row, *[padding] * (width - len(row)))]
        return texts(listed, (*x.shape, width))

    return tokenised


def _parts_between(text: str, separators: list[re.Pattern[str]]) -> list[str]:
    found, start, at = [], 0, 0
    while at < len(text):
        match = next((m for s in separators if (m := s.match(text, at)) and m.group()), None)
        if match is None:
            at += 1
        else:
            found.append(text[start:at])
            start = at = match.end()
    return [*found, text[start:]]
