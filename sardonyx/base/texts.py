"""Numbers and names as people read them."""

from __future__ import annotations

import os
import re
from string import Formatter


def bytes_text(count: int) -> str:
    """A number of bytes in the unit that suits it: `192 bytes`, `1.3 kB`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


#: Plurals that no rule gives.
_PLURALS = {"axis": "axes", "index": "indices"}
_SINGULARS = {plural: one for one, plural in _PLURALS.items()}
#: Words that end as plurals do.
_NO_NOUNS = frozenset("as does has is its less was".split())
#: What stands before a noun, but for adjectives.
_JOINTS = frozenset("and by for from in of or than to with x".split())


def plural(noun: str) -> str:
    """Several of a thing: `inputs`, `entries`, `branches`, `axes`."""
    if noun in _PLURALS:
        return _PLURALS[noun]
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "z", "ch", "sh")) else f"{noun}s"


def singular(noun: str) -> str:
    """One of several things: the opposite of `plural`."""
    if noun in _SINGULARS:
        return _SINGULARS[noun]
    if noun.endswith("ies"):
        return f"{noun[:-3]}y"
    return noun[:-2] if noun.endswith(("sses", "xes", "zes", "ches", "shes")) else noun[:-1]


def counted(count: int, noun: str) -> str:
    """A number of things: `1 input`, `2 inputs`, `3 entries`, `0 axes`."""
    return f"{count} {noun if count == 1 else plural(noun)}"


def agreeing(text: str, *values: object) -> str:
    """`text.format(*values)`, where nouns in the plural behind a 1 become the singular.

    `{} axes of taps` becomes `1 axis of taps`, and `{} batch axes` `1 batch axis`.
    """
    found, left, is_one = "", iter(values), False
    for literal, field, form, _ in Formatter().parse(text):
        found += _BEHIND_ONE.sub(_as_one, literal, count=1) if is_one else literal
        if field is not None:
            value = next(left)
            found += format(value, form or "")
            is_one = isinstance(value, int) and value == 1
    return found


_BEHIND_ONE = re.compile(r"^ (?:([a-z-]+) )?([a-z]+)\b")


def _as_one(match: re.Match[str]) -> str:
    before, noun = match.groups()
    if before is not None and (_is_plural(before) or before in _JOINTS):
        one = singular(before) if _is_plural(before) else before
        return f" {one} {noun}"
    start = "" if before is None else f" {before}"
    return f"{start} {singular(noun) if _is_plural(noun) else noun}"


def _is_plural(word: str) -> bool:
    return word.endswith("s") and not word.endswith("ss") and word not in _NO_NOUNS


def shortened(text: str, most: int = 60) -> str:
    """A text on one line, with at most so many characters; of a longer one the end is left out."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def home() -> str:
    """The user's folder; "" where it is not known."""
    found = os.path.expanduser("~")
    return "" if found == "~" else found


def from_home(text: str) -> str:
    """A text in which paths in the user's folder begin at `~`."""
    own = home()
    return re.sub(rf"{re.escape(own)}(?![\w.-])", "~", text) if len(own) > 1 else text
