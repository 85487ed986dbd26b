"""Reads patterns (https://github.com/google/re2/wiki/Syntax)."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from sardonyx.base.records import dataclass
from sardonyx.host.patterns.classes import (
    ANY,
    ANY_BUT_NEWLINE,
    CATEGORIES,
    LAST,
    PERL,
    POSIX,
    Category,
    Characters,
    Range,
    complement,
)

#: Groups inside each other; RE2 allows 1000, but what recurses here is Python.
_DEEPEST = 100
_MOST_REPEATS = 1000
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_HEX = frozenset("0123456789abcdefABCDEF")
_OCTAL = frozenset("01234567")


class PatternError(ValueError):
    """A pattern is not in the syntax, or too large."""


@dataclass(frozen=True, slots=True)
class One:
    """One character of a set."""

    characters: Characters


@dataclass(frozen=True, slots=True)
class Position:
    """A condition on a place: begin, end, line_begin, line_end, word, not_word."""

    kind: str


@dataclass(frozen=True, slots=True)
class Row:
    """Parts one after the other; none for the empty text."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of several."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part `low` to `high` times; None for any number."""

    part: Part
    low: int
    high: int | None


Part = One | Position | Row | Either | Repeat


@dataclass(frozen=True, slots=True)
class _Flags:
    i: bool = False  # case makes no difference
    m: bool = False  # ^ and $ mean lines
    s: bool = False  # . is any character
    U: bool = False  # noqa: N815 - RE2's name; few or many: the longest match is the same


def parse(pattern: str) -> Part:
    """What a pattern says.

    Whether repetitions prefer few or many is left out: all matches here are the longest ones.

    Raises:
        PatternError: It is not in RE2's syntax, or in the part of it that is missing here.
    """
    return _Parser(pattern).parse()


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.text, self.at, self.depth = pattern, 0, 0
        self.flags = _Flags()

    def fail(self, what: str, start: int | None = None) -> NoReturn:
        part = self.text[self.at if start is None else start :][:20]
        raise PatternError(f"{what} at {part!r}" if part else what)

    def parse(self) -> Part:
        found = self._either()
        if self.at < len(self.text):
            self.fail("a ')' without '('")
        return found

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self, wanted: str) -> bool:
        if self.text.startswith(wanted, self.at):
            self.at += len(wanted)
            return True
        return False

    # -- structure ------------------------------------------------------------------------------

    def _either(self) -> Part:
        ways = [self._row()]
        while self._take("|"):
            ways.append(self._row())
        return ways[0] if len(ways) == 1 else Either(tuple(ways))

    def _row(self) -> Part:
        parts: list[Part] = []
        while self._next() not in ("", "|", ")"):
            start = self.at
            if self._next() in "*+?" or self._limits() is not None:
                self.fail("there is nothing to repeat", start)
            if self._take("\\Q"):
                parts += self._quoted()
                continue
            part = self._part()
            if part is None:
                continue
            parts.append(self._repeated(part))
        return parts[0] if len(parts) == 1 else Row(tuple(parts))

    def _quoted(self) -> list[Part]:
        text, mark, _ = self.text[self.at :].partition("\\E")
        self.at += len(text) + len(mark)
        parts: list[Part] = [self._one([(ord(c), ord(c))]) for c in text]
        if parts:
            parts[-1] = self._repeated(parts[-1])
        return parts

    def _repeated(self, part: Part) -> Part:
        start = self.at
        found = self._limits()
        if found is None:
            return part
        self._take("?")
        second = self.at
        if self._limits() is not None:
            self.fail("one repetition follows another", start)
        self.at = second
        low, high = found
        if low > _MOST_REPEATS or (high is not None and not low <= high <= _MOST_REPEATS):
            self.fail("the number of repetitions is out of range", start)
        found_part = Repeat(part, low, high)
        if _copies(found_part) > _MOST_REPEATS:
            self.fail("repetitions inside each other are too many", start)
        return found_part

    def _limits(self) -> tuple[int, int | None] | None:
        """The numbers of a repetition; what only looks like one is text."""
        for sign, limits in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return limits
        if self._next() != "{":
            return None
        inside, end, _ = self.text[self.at + 1 : self.at + 24].partition("}")
        low, comma, high = inside.partition(",")
        if not end or not _is_number(low) or (high and not _is_number(high)):
            return None
        self.at += len(inside) + 2
        return int(low), int(high) if high else (None if comma else int(low))

    def _part(self) -> Part | None:
        """One part; None where flags change."""
        start = self.at
        sign = self._next()
        self.at += 1
        if sign == "(":
            return self._group(start)
        if sign == "[":
            return self._class(start)
        if sign == ".":
            return One(ANY if self.flags.s else ANY_BUT_NEWLINE)
        if sign == "^":
            return Position("line_begin" if self.flags.m else "begin")
        if sign == "$":
            return Position("line_end" if self.flags.m else "end")
        if sign == "\\":
            return self._escaped(start)
        return self._one([(ord(sign), ord(sign))])

    def _group(self, start: int) -> Part | None:
        before = self.flags
        if self._take("?P<") or self._take("?<"):
            name, end, _ = self.text[self.at :].partition(">")
            if not end or not name or not all(c == "_" or c.isalnum() for c in name):
                self.fail("the name of a group is wrong", start)
            self.at += len(name) + 1
        elif self._take("?") and self._flagged(start):
            return None
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail(f"groups are nested more than {_DEEPEST} deep", start)
        inner = self._either()
        if not self._take(")"):
            self.fail("a '(' without ')'", start)
        self.depth -= 1
        self.flags = before
        return inner

    def _flagged(self, start: int) -> bool:
        """Read flags behind `(?`; whether they hold for the rest of the group around."""
        value, seen = True, False
        while True:
            sign = self._next()
            self.at += 1
            if sign in ("i", "m", "s", "U") and sign:
                self.flags = replace(self.flags, **{sign: value})
                seen = True
            elif sign == "-" and value:
                value, seen = False, False
            elif sign in (":", ")") and (seen or value):
                return sign == ")"
            else:
                self.fail("this is no group", start)

    # -- characters -----------------------------------------------------------------------------

    def _one(
        self, ranges: list[Range], categories: list[Category] | None = None, negated: bool = False
    ) -> One:
        found = Characters(ranges, categories or (), negated=negated, folded=self.flags.i)
        return One(found)

    def _escaped(self, start: int) -> Part:
        sign = self._next()
        places = {"A": "begin", "z": "end", "b": "word", "B": "not_word"}
        if sign in places:
            self.at += 1
            return Position(places[sign])
        if sign == "C":
            self.fail("single bytes are not supported", start)
        ranges: list[Range] = []
        categories: list[Category] = []
        if not self._set(start, ranges, categories):
            code = self._code(start)
            ranges.append((code, code))
        return self._one(ranges, categories)

    def _set(self, start: int, ranges: list[Range], categories: list[Category]) -> bool:
        """Read a class behind a backslash, if it is one."""
        sign = self._next()
        if sign and sign in "dswDSW":
            self.at += 1
            own = PERL[sign.lower()]
            ranges += own if sign.islower() else complement(own)
            return True
        if not sign or sign not in "pP":
            return False
        negated = sign == "P"
        self.at += 1
        if self._take("{"):
            name, end, _ = self.text[self.at : self.at + 40].partition("}")
            if not end:
                self.fail("the name of a category has no end", start)
            self.at += len(name) + 1
            if name.startswith("^"):
                name, negated = name[1:], not negated
        else:
            name = self._next()
            self.at += 1
        if name not in CATEGORIES:
            self.fail(f"there is no general category {name!r} (scripts are not supported)", start)
        categories.append(Category(name, negated))
        return True

    def _code(self, start: int) -> int:
        """The code point that is written behind a backslash."""
        sign = self._next()
        self.at += 1
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign in _OCTAL:
            digits = sign
            while len(digits) < 3 and self._next() in _OCTAL:
                digits += self._next()
                self.at += 1
            if sign != "0" and len(digits) == 1:
                self.fail("references to groups are not supported", start)
            return int(digits, 8)
        if sign == "x":
            return self._hexadecimal(start)
        if not sign or not sign.isascii() or sign.isalnum():
            self.fail("this is no escape sequence", start)
        return ord(sign)

    def _hexadecimal(self, start: int) -> int:
        if self._take("{"):
            digits, end, _ = self.text[self.at : self.at + 12].partition("}")
            self.at += len(digits) + 1
        else:
            digits, end = self.text[self.at : self.at + 2], "}"
            self.at += 2
            if len(digits) < 2:
                digits = ""
        if not end or not digits or not _HEX.issuperset(digits) or int(digits, 16) > LAST:
            self.fail("this is no code point", start)
        return int(digits, 16)

    def _class(self, start: int) -> Part:
        negated = self._take("^")
        ranges: list[Range] = []
        categories: list[Category] = []
        first = True
        while first or self._next() != "]":
            if not self._next():
                self.fail("a '[' without ']'", start)
            first = False
            self._item(start, ranges, categories)
        self.at += 1
        return self._one(ranges, categories, negated)

    def _item(self, start: int, ranges: list[Range], categories: list[Category]) -> None:
        """A character, a range, or a class in a class."""
        if self.text.startswith("[:", self.at):
            name, end, _ = self.text[self.at + 2 : self.at + 12].partition(":]")
            if end:
                own = POSIX.get(name.removeprefix("^"))
                if own is None:
                    self.fail("there is no such class")
                ranges += complement(own) if name.startswith("^") else own
                self.at += len(name) + 4
                return
        begin = self.at
        if self._take("\\") and self._set(begin, ranges, categories):
            return
        self.at = begin
        low = high = self._member(start)
        if self._next() == "-" and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
            self.at += 1
            high = self._member(start)
            if high < low:
                self.fail("the ends of a range are in the wrong order", begin)
        ranges.append((low, high))

    def _member(self, start: int) -> int:
        sign = self._next()
        if not sign:
            self.fail("a '[' without ']'", start)
        if self._take("\\"):
            return self._code(self.at - 1)
        self.at += 1
        return ord(sign)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _copies(part: Part) -> int:
    """How often the part that is repeated most stands for itself."""
    if isinstance(part, (Row, Either)):
        return max(map(_copies, part.parts), default=1)
    if isinstance(part, Repeat):
        return _copies(part.part) * max(1, part.low, part.high or 0)
    return 1
