"""Numbers and the words behind them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from sardonyx.base.texts import agreeing, counted, plural, singular

PACKAGE = Path(__file__).resolve().parents[2] / "sardonyx"

#: One, several.
NOUNS = [
    ("input", "inputs"), ("axis", "axes"), ("index", "indices"), ("entry", "entries"),
    ("way", "ways"), ("branch", "branches"), ("box", "boxes"), ("class", "classes"),
    ("byte", "bytes"), ("new token", "new tokens"), ("query", "queries"), ("channel", "channels"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "several"), NOUNS, ids=[n for n, _ in NOUNS])
def test_one_and_several(one: str, several: str) -> None:
    assert (plural(one), singular(several)) == (several, one)
    assert [counted(k, one) for k in (0, 1, 2)] == [f"0 {several}", f"1 {one}", f"2 {several}"]


#: Text, values, what it becomes.
TEXTS: list[tuple[str, tuple[object, ...], str]] = [
    ("its windows have {} axes of taps, not 2", (1,), "its windows have 1 axis of taps, not 2"),
    ("its windows have {} axes of taps, not 2", (3,), "its windows have 3 axes of taps, not 2"),
    ("with {} batch axes: vectors", (1,), "with 1 batch axis: vectors"),
    ("with {} batch axes: vectors", (0,), "with 0 batch axes: vectors"),
    ("{} channels, fewer than {}", (1, 8), "1 channel, fewer than 8"),
    ("{} queries, fewer than the {} of a tile", (1, 1), "1 query, fewer than the 1 of a tile"),
    ("{} taps, not {} x {}", (1, 3, 3), "1 tap, not 3 x 3"),
    ("{} of its values", (1,), "1 of its values"),
    ("{} is less", (1,), "1 is less"),
    ("{} comes first", ("1",), "1 comes first"),
    ("{:.3g} cycles, {} rows", (9216.0, 1), "9.22e+03 cycles, 1 row"),
    ("no numbers", (), "no numbers"),
]


@pytest.mark.parametrize(("text", "values", "expected"), TEXTS, ids=[t[2] for t in TEXTS])
def test_nouns_agree_with_numbers(text: str, values: tuple[object, ...], expected: str) -> None:
    assert agreeing(text, *values) == expected


#: Words behind a number that are no nouns in the plural.
_OTHERS = {"axis", "comes"}  # the last one behind a name
#: Reasons with a verb behind a number that is never 1.
_NEVER_ONE = {"its {} columns fill vectors of {} lanes"}


def test_reasons_read_well_with_ones() -> None:
    """Verbs do not follow their nouns, so no reason has one right behind a counted noun."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        for call in ast.walk(ast.parse(text)) if "Reason(" in text else ():
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Reason":
                first = call.args[0]
                if isinstance(first, ast.Constant) and "{" in str(first.value):
                    found.add(str(first.value))
    assert len(found) > 15
    for text in found:
        ones = re.sub(r"\{[^}]*\}", "{}", text)
        told = agreeing(ones, *[1] * ones.count("{}"))
        assert not set(re.findall(r"\b1 ([a-z]+(?<!s)s)\b", told)) - _OTHERS, told
        verbs = r"\b1 (?!that)\w+ (are|have|were|fill|leave|lie)\b"
        assert not re.search(verbs, told) or text in _NEVER_ONE, told
