"""Sets of characters: ranges, Perl's and POSIX's classes, Unicode's general categories."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable

from sardonyx.base.records import dataclass

Range = tuple[int, int]
LAST = 0x10FFFF

_DIGITS, _UPPER, _LOWER = (48, 57), (65, 90), (97, 122)
#: In ASCII alone, as RE2 has them.
PERL: dict[str, tuple[Range, ...]] = {
    "d": (_DIGITS,),
    "s": ((9, 10), (12, 13), (32, 32)),
    "w": (_DIGITS, _UPPER, (95, 95), _LOWER),
}
POSIX: dict[str, tuple[Range, ...]] = {
    "alnum": (_DIGITS, _UPPER, _LOWER),
    "alpha": (_UPPER, _LOWER),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": (_DIGITS,),
    "graph": ((33, 126),),
    "lower": (_LOWER,),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": (_UPPER,),
    "word": PERL["w"],
    "xdigit": (_DIGITS, (65, 70), (97, 102)),
}
CATEGORIES = frozenset(
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So "
    "Z Zl Zp Zs Any".split()
)
#: A class of fewer characters gets what they are the same as in upper or lower case.
_FEW = 512


def orbit(character: str) -> set[str]:
    """A character and those that differ from it in case alone."""
    lower, upper = character.lower(), character.upper()
    found = {character, lower, upper, lower.upper(), upper.lower()}
    return {c for c in found if len(c) == 1}


@dataclass(frozen=True, slots=True)
class Category:
    """Characters of a general category, or the others.

    Attributes:
        name: `Lu`, or `L` for all that begin so; `Any` for every character.
        negated: Whether the others are meant.
    """

    name: str
    negated: bool = False

    def __contains__(self, character: str) -> bool:
        is_in = self.name == "Any" or unicodedata.category(character).startswith(self.name)
        return is_in != self.negated


class Characters:
    """A set of characters.

    Args:
        ranges: Pairs of first and last code points.
        categories: Further characters.
        negated: Whether all others are meant.
        folded: Whether case makes no difference.
    """

    __slots__ = ("_categories", "_ends", "_folded", "_negated", "_starts")

    def __init__(
        self,
        ranges: Iterable[Range],
        categories: Iterable[Category] = (),
        *,
        negated: bool = False,
        folded: bool = False,
    ) -> None:
        listed = [*ranges]
        if folded and sum(high - low + 1 for low, high in listed) <= _FEW:
            every = (chr(code) for low, high in listed for code in range(low, high + 1))
            listed += [(ord(c), ord(c)) for character in every for c in orbit(character)]
        merged: list[Range] = []
        for low, high in sorted(listed):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        self._starts = [low for low, _ in merged]
        self._ends = [high for _, high in merged]
        self._categories = tuple(categories)
        self._negated, self._folded = negated, folded

    def __contains__(self, character: str) -> bool:
        every = orbit(character) if self._folded else (character,)
        return any(map(self._has, every)) != self._negated

    def expression(self) -> str | None:
        """The same set as a class of Python's `re`; None where it cannot be written as one.

        With case folded it cannot: a class lists not all that becomes one of its characters, such
        as the sign of Kelvin for k.
        """
        if self._categories or not self._starts or self._folded:
            return None
        pairs = zip(self._starts, self._ends, strict=True)
        ranges = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in pairs)
        return f"[{'^' * self._negated}{ranges}]"

    def _has(self, character: str) -> bool:
        code = ord(character)
        place = bisect_right(self._starts, code) - 1
        if place >= 0 and code <= self._ends[place]:
            return True
        return any(character in category for category in self._categories)


def complement(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """All other code points, of ranges that are in order and apart."""
    found, first = [], 0
    for low, high in ranges:
        if first < low:
            found.append((first, low - 1))
        first = high + 1
    return (*found, (first, LAST)) if first <= LAST else tuple(found)


ANY = Characters([(0, LAST)])
ANY_BUT_NEWLINE = Characters([(10, 10)], negated=True)
