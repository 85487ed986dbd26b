"""Matches texts."""

from __future__ import annotations

import re
from collections.abc import Generator

from sardonyx.base.interrupt import checkpoint, claim
from sardonyx.host.patterns.automaton import END, Automaton, Now
from sardonyx.host.patterns.syntax import One, Part, Repeat, parse

#: Characters between two looks at the time.
_PIECE = 1 << 14


class Pattern:
    """A pattern in RE2's syntax.

    Matching takes time in proportion to the text, and to the pattern where the text is new to it;
    `matches` may look at a text behind a match again for each match.

    Args:
        text: The pattern.

    Raises:
        PatternError: It is not in the syntax, or too large.
    """

    def __init__(self, text: str) -> None:
        part = parse(text)
        # Nothing is tried twice in such a search, so Python's own takes no longer.
        self._run = _run_of_one_class(part)
        self._forward = Automaton(part)
        self._backward = Automaton(part, mirrored=True)

    def is_full_match(self, text: str) -> bool:
        """Whether the whole text matches."""
        now: Now = self._forward.begin()
        for start in range(0, len(text), _PIECE):
            checkpoint()
            for character in text[start : start + _PIECE]:
                now = now[character]
            if not now.steps:
                return False
        return now[END].matched

    def matches(self, text: str, start: int = 0) -> Generator[tuple[int, int], int | None, None]:
        """Matches from left to right, each the longest one at its place, as (begin, end).

        A match that begins where another is, or that is empty where another ends, is left out; a
        caller who sends a place gets the next match from there on.
        """
        if self._run is not None:
            while (match := self._run.search(text, start)) is not None:
                wanted = yield match.span()
                start = wanted if wanted is not None else match.end()
            return
        begins = self._begins(text)
        while (start := begins.find(1, start)) >= 0:
            end = self._longest_end(text, start)
            wanted = yield start, end
            start = wanted if wanted is not None else max(end, start + 1)

    def _begins(self, text: str) -> bytearray:
        """For every place in a text, its end included, 1 if a match begins there."""
        claim(2 * len(text))
        found = bytearray(len(text) + 1)
        now = self._backward.begin()
        at = len(text)
        while at:
            checkpoint()
            low = max(0, at - _PIECE)
            for character in reversed(text[low:at]):
                now = now[character]
                found[at] = now.matched
                at -= 1
        found[0] = now[END].matched
        return found

    def _longest_end(self, text: str, start: int) -> int:
        now = self._forward.begin(text[start - 1] if start else END)
        end = start
        for low in range(start, len(text), _PIECE):
            checkpoint()
            for at, character in enumerate(text[low : low + _PIECE], low):
                now = now[character]
                if now.matched:
                    end = at
                if not now.steps:
                    return end
        return len(text) if now[END].matched else end


def _run_of_one_class(part: Part) -> re.Pattern[str] | None:
    """A pattern such as `[a-z]+`, which is what most tokenizers look for, for `re`."""
    if not isinstance(part, Repeat) or not isinstance(part.part, One):
        return None
    if part.low != 1 or part.high is not None:
        return None
    expression = part.part.characters.expression()
    return None if expression is None else re.compile(expression + "+")
