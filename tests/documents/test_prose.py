"""Pages for those who carry the project on are short sentences; links name places that exist."""

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
PAGES = [
    *ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
]  # fmt: skip
LONGEST, MEAN = 30, 16
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_sentences_are_found() -> None:
    text = (
        "One two. `a b` three, e.g. four:\n\n- Five\n  six.\n- Seven (see [it](x.md)).\n\n| no |\n"
    )
    assert [length(s) for s in sentences(text)] == [2, 3, 2, 3]


@pytest.mark.parametrize("page", PLAIN, ids=_name)
def test_sentences_are_short(page: Path) -> None:
    found = sentences(page.read_text("utf-8"))
    assert [s for s in found if length(s) > LONGEST] == []
    assert sum(map(length, found)) < MEAN * len(found)


@pytest.mark.parametrize("page", PLAIN, ids=_name)
def test_lines_have_100_columns(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
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
