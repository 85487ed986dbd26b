"""All ways through a pattern at once, one character after the other.

The states that a pattern may be in are one state of a second automaton, which is made as far as
texts lead into it. So a known character costs a look into a table; an unknown one as much as the
pattern has states. The tables are dropped when they have grown large.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from sardonyx.base.interrupt import checkpoint
from sardonyx.base.records import dataclass
from sardonyx.host.patterns.classes import PERL, Characters
from sardonyx.host.patterns.syntax import Either, One, Part, PatternError, Position, Repeat, Row

_MOST_STATES = 20_000
_MOST_ENTRIES = 50_000
#: Stands for the end of the text, or for its begin, in place of a character.
END = ""
_WORD = Characters(PERL["w"])
_MIRRORED = {
    "begin": "end", "end": "begin", "line_begin": "line_end", "line_end": "line_begin",
}  # fmt: skip


@dataclass(slots=True)
class _Step:
    """A state of the pattern: what must hold (nothing, a character, a place), and what follows."""

    characters: Characters | None = None
    place: str | None = None
    then: list[int] = field(default_factory=list)


class Now(dict[str, "Now"]):
    """Where a pattern may be after some text; by character, where it may be after that one too.

    Attributes:
        steps: The pattern's states, as far as they do not depend on the next character.
        before: The last character, as far as conditions on places care.
        matched: Whether the text without its last character is a match.
    """

    __slots__ = ("automaton", "before", "matched", "steps")

    def __init__(
        self, automaton: Automaton, steps: frozenset[int], before: str, matched: bool
    ) -> None:
        super().__init__()
        self.automaton, self.steps, self.before, self.matched = automaton, steps, before, matched

    def __missing__(self, character: str) -> Now:
        return self.automaton.follow(self, character)


class Automaton:
    """A pattern, walked from its begin.

    Args:
        part: The pattern.
        mirrored: Walk it backwards, over texts that are turned round, from any place.

    Raises:
        PatternError: It is too large.
    """

    def __init__(self, part: Part, *, mirrored: bool = False) -> None:
        self._steps: list[_Step] = []
        self._mirrored = mirrored
        self._final = self._new(_Step())
        self._first = self._add(part, self._final)
        self._anywhere = mirrored
        self._places = any(step.place for step in self._steps)
        self._known: dict[tuple[frozenset[int], str, bool], Now] = {}
        self._begins: dict[str, Now] = {}
        self._entries = 0

    # -- the pattern's states -------------------------------------------------------------------

    def _new(self, step: _Step) -> int:
        if len(self._steps) >= _MOST_STATES:
            raise PatternError(f"it stands for more than {_MOST_STATES} characters")
        self._steps.append(step)
        return len(self._steps) - 1

    def _add(self, part: Part, then: int) -> int:
        """States for a part, the last of which leads to `then`; gives the first."""
        if isinstance(part, One):
            return self._new(_Step(characters=part.characters, then=[then]))
        if isinstance(part, Position):
            kind = _MIRRORED.get(part.kind, part.kind) if self._mirrored else part.kind
            return self._new(_Step(place=kind, then=[then]))
        if isinstance(part, Row):
            for inner in part.parts if self._mirrored else reversed(part.parts):
                then = self._add(inner, then)
            return then
        if isinstance(part, Either):
            return self._new(_Step(then=[self._add(inner, then) for inner in part.parts]))
        return self._add_repeated(part, then)

    def _add_repeated(self, part: Repeat, then: int) -> int:
        first = then
        if part.high is None:
            first = self._new(_Step())
            self._steps[first].then = [self._add(part.part, first), then]
        for _ in range((part.high or 0) - part.low):
            first = self._new(_Step(then=[self._add(part.part, first), then]))
        for _ in range(part.low):
            first = self._add(part.part, first)
        return first

    # -- the states that texts lead to ----------------------------------------------------------

    def begin(self, before: str = END) -> Now:
        """Where a match may begin, behind a character or at the text's begin."""
        kind = _kind(before) if self._places else END
        found = self._begins.get(kind)
        if found is None:
            found = self._begins[kind] = Now(self, self._reached([self._first]), kind, False)
        return found

    def _now(self, steps: frozenset[int], before: str, matched: bool) -> Now:
        key = (steps, before if self._places else END, matched)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Now(self, *key)
        return found

    def _reached(
        self, steps: Iterable[int], beside: tuple[str, str] | None = None
    ) -> frozenset[int]:
        """The states that are reached without a character; of conditions those that hold."""
        waiting, seen = list(steps), set()
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            step = self._steps[number]
            free = step.characters is None and step.place is None
            if free or (step.place and beside is not None and _holds(step.place, *beside)):
                waiting += step.then
        return frozenset(
            n for n in seen
            if n == self._final or self._steps[n].characters or self._steps[n].place
        )  # fmt: skip

    def follow(self, now: Now, character: str) -> Now:
        """Where a character leads; END for the end of the text."""
        checkpoint()
        steps = now.steps
        if self._places:
            steps = self._reached(steps, (now.before, character))
        next_steps: list[int] = [self._first] if self._anywhere else []
        if character:
            for number in steps:
                characters = self._steps[number].characters
                if characters is not None and character in characters:
                    next_steps += self._steps[number].then
        before = _kind(character) if self._places else END
        found = self._now(self._reached(next_steps), before, self._final in steps)
        self._entries += 1 + len(found.steps) // 16
        if self._entries > _MOST_ENTRIES:
            self._forget()
        now[character] = found
        return found

    def _forget(self) -> None:
        for known in (*list(self._known.values()), *list(self._begins.values())):
            known.clear()
        self._known.clear()
        self._entries = 0


def _kind(character: str) -> str:
    """A character that conditions on places cannot tell from this one."""
    if character in (END, "\n"):
        return character
    return "a" if character in _WORD else " "


def _holds(place: str, before: str, after: str) -> bool:
    if place == "begin":
        return before == END
    if place == "end":
        return after == END
    if place == "line_begin":
        return before in (END, "\n")
    if place == "line_end":
        return after in (END, "\n")
    is_edge = (before != END and before in _WORD) != (after != END and after in _WORD)
    return is_edge == (place == "word")
