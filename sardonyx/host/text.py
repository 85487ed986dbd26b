"""Strings: to and from numbers, join, split, normalise, match (ONNX operator spec)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from decimal import Decimal
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.conversion import rounded
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, RuntimeException, message
from sardonyx.base.interrupt import claim, watched
from sardonyx.host.functions import host_function, host_maker
from sardonyx.host.patterns.pattern import Pattern
from sardonyx.host.patterns.syntax import PatternError

Search = Generator[tuple[int, int], int | None, None]

#: About what a text takes beside its characters, and what an array has of it.
_TEXT_BYTES, _POINTER_BYTES = 64, 8
#: So many characters of a text, or of a pattern, are shown in an error.
_SHOWN = 200
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
def to_numbers(x: Any, *, to: str, again: bool = False) -> Any:
    """Text as numbers: plain or scientific notation, NaN, INF (ONNX: Cast from string).

    `again`: they are rounded once more, to fewer bits, and a number that `to` does not hold may
    be any that then gives the nearest.
    """
    target = dtypes.BY_NAME[to]
    flat = x.reshape(-1).tolist()
    values: list[Any] = []
    for text in flat:
        try:
            if "_" in text or not text.isascii():
                raise ValueError  # Python reads 1_000, and the digits of all scripts
            values.append(float(text) if target.is_float else _whole(text))
        except (ValueError, OverflowError):
            what = f"The text {text[:_SHOWN]!r} is no number"
            raise RuntimeException(message("Cast", what, expected=to)) from None
    if target.is_float:
        with np.errstate(over="ignore"):
            found = _doubles(flat, values, target, again)
            return rounded(found, target.numpy).reshape(x.shape)
    try:
        return np.array(values, target.numpy).reshape(x.shape)
    except OverflowError:
        raise RuntimeException(message("Cast", f"A number does not fit {to}")) from None


def _doubles(texts: list[str], values: list[float], target: DType, again: bool) -> Any:
    """Numbers read in double, such that rounding them once more gives what is nearest to the text.

    Python reads the nearest double. If that is halfway between two numbers of the target, the text
    may lie beside it.
    """
    found = np.array(values, np.float64)
    if target is dtypes.DOUBLE and not again:
        return found
    below, above = (np.nextafter(found, end) for end in (-np.inf, np.inf))
    doubtful = np.isfinite(found)
    if not again:
        doubtful &= rounded(below, target.numpy) != rounded(above, target.numpy)
    for place in np.flatnonzero(doubtful).tolist():
        exact, read = Decimal(texts[place].strip()), Decimal(values[place])
        if exact != read:
            found[place] = (above if exact > read else below)[place]
    return found


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
    found = []
    for left, right in watched([*zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)]):
        claim(_TEXT_BYTES + len(left) + len(right))
        found.append(left + right)
    return texts(found, a.shape)


@host_function
def split(x: Any, *, delimiter: str, maxsplit: int | None) -> tuple[Any, Any]:
    """Parts of each text on a new last axis, "" where there are fewer, and how many (StringSplit).

    Without a delimiter, whitespace of any length separates.
    """
    most = -1 if maxsplit is None else maxsplit
    parts = _rows(t.split(delimiter or None, most) for t in watched(x.reshape(-1).tolist()))
    counts = np.array(list(map(len, parts)), np.int64).reshape(x.shape)
    return _padded(parts, x.shape, ""), counts


def _rows(rows: Iterator[list[str]]) -> list[list[str]]:
    found: list[list[str]] = []
    for row in rows:
        claim(_TEXT_BYTES * len(row) + sum(map(len, row)))
        found.append(row)
    return found


def _padded(rows: list[list[str]], shape: tuple[int, ...], padding: str) -> Any:
    """Rows of different lengths as an array with a further axis."""
    width = max(map(len, rows), default=0)
    claim(2 * _POINTER_BYTES * width * len(rows))
    listed = [item for row in rows for item in (*row, *[padding] * (width - len(row)))]
    return texts(listed, (*shape, width))


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
        found = [compiled.is_full_match(t) for t in watched(x.reshape(-1).tolist())]
        return np.array(found, np.bool_).reshape(x.shape)

    return matched


def compile_pattern(pattern: str, where: str) -> Pattern:
    """A pattern in RE2's syntax.

    Raises:
        InvalidGraph: It is not in it, or too large.
    """
    try:
        return Pattern(pattern)
    except PatternError as error:
        what = f"The pattern {pattern[:_SHOWN]!r} is not supported: {error}"
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

    Tokens are what matches `expression`, the longest at each place; after a match of fewer than
    `least` characters the search goes on one character behind its begin. Or they lie between
    matches of `separators`, one of which after the other divides what there is; or, with "" as
    the separator, they are single characters. Those of fewer than `least` characters are left out.
    """
    pattern = None if expression is None else compile_pattern(expression, "Tokenizer")
    between = [compile_pattern(s, "Tokenizer") for s in separators]
    fewest = max(1, least)

    def split_one(text: str) -> list[str]:
        if pattern is not None:
            return _tokens(text, pattern, fewest)
        found = list(text) if separators == ("",) else [text]
        if separators != ("",):
            for separator in between:
                found = [piece for part in found for piece in _divided(part, separator)]
        return [token for token in found if len(token) >= fewest]

    def tokenised(x: Any) -> Any:
        rows = _rows(split_one(t) for t in watched(x.reshape(-1).tolist()))
        if mark and any(rows):
            rows = [[_BEGIN, *row, _END] for row in rows]
        return _padded(rows, x.shape, padding)

    return tokenised


def _tokens(text: str, pattern: Pattern, fewest: int) -> list[str]:
    found: list[str] = []
    search = pattern.matches(text)
    match = next(search, None)
    while match is not None:
        begin, end = match
        is_token = end - begin >= fewest
        if is_token:
            found.append(text[begin:end])
        match = _following(search, end if is_token else begin + 1)
    return found


def _divided(text: str, separator: Pattern) -> Iterator[str]:
    """What lies between separators; an empty one stands for the character behind it."""
    start = 0
    search = separator.matches(text)
    match = next(search, None)
    while match is not None:
        begin, end = match
        yield text[start:begin]
        start = max(end, begin + 1)
        match = _following(search, start)
    yield text[start:]


def _following(search: Search, start: int) -> tuple[int, int] | None:
    """The next match from a place on."""
    try:
        return search.send(start)
    except StopIteration:
        return None
