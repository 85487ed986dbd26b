"""Pages have short sentences, those about the code the shortest; links name places that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents.prose import ROOT, anchors, length, sentences

#: Pages whose sentences are counted.
PLAIN = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs/architecture.md",
    ROOT / "docs/stages.md",
    *sorted((ROOT / "docs/architecture").glob("*.md")),
]
#: A page of lists that a command writes; a guide with authors of its own.
_LEFT_OUT = {"compatibility.md", "providers.md"}
#: Pages without long sentences.
READ = sorted({*PLAIN, *(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / p for p in _LEFT_OUT})
PAGES = [
    *ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
]  # fmt: skip
LONGEST, MEAN = 30, 16
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"^ *```(?P<kind>\w*)\n.*?^ *```$", re.MULTILINE | re.DOTALL)


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_sentences_are_found() -> None:
    text = "One two. `a b` three:\n\n- Four\n  five.\n- Six (see [it](x.md)).\n\n| no |\n"
    assert [length(s) for s in sentences(text)] == [2, 2, 2, 3]


@pytest.mark.parametrize("page", READ, ids=_name)
def test_no_sentence_is_long(page: Path) -> None:
    assert [s for s in sentences(page.read_text("utf-8")) if length(s) > LONGEST] == []


@pytest.mark.parametrize("page", PLAIN, ids=_name)
def test_sentences_are_short_on_the_mean(page: Path) -> None:
    found = sentences(page.read_text("utf-8"))
    assert sum(map(length, found)) < MEAN * len(found)


@pytest.mark.parametrize("page", READ, ids=_name)
def test_lines_have_100_columns(page: Path) -> None:
    # What a program printed stands as it was printed.
    text = page.read_text("utf-8")
    lines = _BLOCK.sub(lambda m: m[0] if m["kind"] else "", text).splitlines()
    wide = [x for x in lines if len(x) > 100 and not x.startswith("|") and " " in x.strip()]
    assert [x for x in wide if "](" not in x] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_name_places_that_exist(page: Path) -> None:
    missing = []
    for link in _LINK.findall(page.read_text("utf-8")):
        path, _, place = link.partition("#")
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (
            place and target.suffix == ".md" and place not in anchors(target.read_text("utf-8"))
        ):
            missing.append(link)
    assert missing == []
