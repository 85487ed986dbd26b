"""Patterns in RE2's syntax: what they match (as in RE2), what is refused, how long it takes."""

from __future__ import annotations

import time

import pytest

from sardonyx.host.patterns import automaton
from sardonyx.host.patterns.pattern import Pattern
from sardonyx.host.patterns.syntax import PatternError

#: Pattern, text, whether the whole text matches, and the first match (the longest one there).
MATCHES: list[tuple[str, str, bool, tuple[int, int] | None]] = [
    ("", "", True, (0, 0)),
    ("", "a", False, (0, 0)),
    ("a|ab", "ab", True, (0, 2)),
    ("a+?", "baa", False, (1, 3)),
    ("(ab|a)(bc|c)?", "abc", True, (0, 3)),
    ("a*", "baa", False, (0, 0)),
    ("x{2}", "xxx", False, (0, 2)),
    ("x{2,}", "xxx", True, (0, 3)),
    ("x{0,2}y", "xxxy", False, (1, 4)),
    ("x{,2}", "x{,2}", True, (0, 5)),
    ("(a*)*b", "aab", True, (0, 3)),
    (".", "\n", False, None),
    ("(?s).", "\n", True, (0, 1)),
    ("[^a]", "\n", True, (0, 1)),
    (r"^b$", "a\nb", False, None),
    (r"(?m)^b$", "a\nb\n", False, (2, 3)),
    (r"a$", "a\n", False, None),
    (r"\Aa\z", "a", True, (0, 1)),
    (r"\bfoo\b", "a foo.", False, (2, 5)),
    (r"\Boo\b", "foo", False, (1, 3)),
    (r"\bé", "é", False, None),
    (r"\w+", "été_1", False, (1, 2)),
    (r"\d", "\u0661", False, None),
    (r"\s", "\v", False, None),
    (r"[\d\-]+", "1-2", True, (0, 3)),
    (r"[]a]+", "]a", True, (0, 2)),
    (r"[^]a]+", "]b", False, (1, 2)),
    (r"[a-]+", "a-b", False, (0, 2)),
    (r"[[:alpha:][:^ascii:]]+", "aé1", False, (0, 2)),
    (r"\pL+", "été1", False, (0, 3)),
    (r"\p{Lu}\P{Lu}\p{^Lu}", "Ébc", True, (0, 3)),
    (r"(?i)straße", "STRAßE", True, (0, 6)),
    ("(?i)k", "\u212a", True, (0, 1)),
    ("(?i)k+", "kK\u212a", True, (0, 3)),
    ("(?i)[a-z]+", "s\u017f\u212a", True, (0, 3)),
    ("(?i)[^k]+", "a\u212ab", False, (0, 1)),
    ("(?i)\u00df+", "\u00df\u1e9e", True, (0, 2)),
    ("(?i)\u017f", "s", True, (0, 1)),
    ("(?i)[^k]", "K", False, None),
    ("a(?i)b(?-i)c", "aBC", False, None),
    ("(a(?i)b)c", "aBc", True, (0, 3)),
    ("(?i:a)b", "Ab", True, (0, 2)),
    (r"\x41\x{e9}\102\n", "AéB\n", True, (0, 4)),
    (r"\Qa.*\E+", "a.***", True, (0, 5)),
    (r"(?P<n>a)(?<m>b)(?:c)", "abc", True, (0, 3)),
    ("a||b", "b", True, (0, 1)),
    ("()|a", "a", True, (0, 1)),
    ("\U0001f600+", "a\U0001f600\U0001f600", False, (1, 3)),
]


@pytest.mark.parametrize(
    ("pattern", "text", "is_full", "first"), MATCHES, ids=[repr(m[:2]) for m in MATCHES]
)
def test_matches(pattern: str, text: str, is_full: bool, first: tuple[int, int] | None) -> None:
    found = Pattern(pattern)
    assert found.is_full_match(text) is is_full
    assert next(found.matches(text), None) == first


REFUSED = [
    ("(", "without"), (")", "without"), ("[", "without"), ("[a", "without"), ("*", "nothing"),
    ("a|*", "nothing"), ("a**", "follows"), ("a*{2}", "follows"), ("a{3,2}", "range"),
    ("a{1001}", "range"), ("(a{100}){100}", "inside each other"), (r"(a)\1", "references"),
    ("a(?=b)", "no group"), ("(?<=b)a", "no group|name"), ("(?P<>a)", "name"), (r"\Z", "escape"),
    (r"\8", "escape"), ("\\", "escape"), (r"\p{Greek}", "scripts"), (r"\pX", "category"),
    ("[z-a]", "order"), ("[[:foo:]]", "no such class"), (r"\x{110000}", "code point"),
    (r"\C", "bytes"), ("(" * 200 + "a" + ")" * 200, "nested"), ("[a-z]{900}" * 30, "more than"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "text"), REFUSED, ids=[r[0][:20] for r in REFUSED])
def test_refused(pattern: str, text: str) -> None:
    with pytest.raises(PatternError, match=text):
        Pattern(pattern)


#: Python's `re` would not come back from any of them.
LONG = [
    ("(a*)*b", "a" * 50_000), ("(a|a)*b", "a" * 50_000), ("(a|aa)+$", "a" * 50_000 + "b"),
    ("(x+x+)+y", "x" * 50_000), ("(a|b)*a(a|b){60}c", "ab" * 10_000),
    ("(.*)(.*)(.*)(.*)(.*)[^a]", "a" * 50_000), ("(a?){100}a{100}", "a" * 99),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "text"), LONG, ids=[case[0] for case in LONG])
def test_time_is_that_of_the_text(pattern: str, text: str) -> None:
    start = time.perf_counter()
    found = Pattern(pattern)
    assert not found.is_full_match(text)
    assert all(end <= len(text) for _, end in found.matches(text))
    assert time.perf_counter() - start < 5


def test_tables_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "_MOST_ENTRIES", 100)
    found = Pattern("(a|b)*a(a|b){12}")
    text = "".join("ab"[(n * n * n >> 3) % 2] for n in range(3000))
    expected = text[-13] == "a"
    assert found.is_full_match(text) is expected
    assert len(found._forward._known) <= 101


def test_every_match_is_found() -> None:
    for text in ("[a-z]+", r"\b\w\w+\b", "[a-z]|[a-z]{2,}"):
        found = [*Pattern(text).matches("the cat, 12 dogs")]
        wanted = [(0, 3), (4, 7), (9, 11), (12, 16)]
        assert found == ([w for w in wanted if w != (9, 11)] if "\\w" not in text else wanted)
