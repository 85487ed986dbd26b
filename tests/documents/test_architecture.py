"""The pages about folders name files that exist, and the overview links to each page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OVERVIEW = ROOT / "docs/architecture.md"
PAGES = sorted((ROOT / "docs/architecture").glob("*.md"))

_PATH = re.compile(r"`((?:\w+/)+\w+(?:\.py)?)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_named_paths_exist(page: Path) -> None:
    named = _PATH.findall(page.read_text())
    assert named
    assert [n for n in named if not any((r / n).exists() for r in (ROOT, ROOT / "sardonyx"))] == []


@pytest.mark.parametrize("page", [OVERVIEW, *PAGES], ids=lambda p: p.name)
def test_linked_pages_exist(page: Path) -> None:
    links = re.findall(r"\]\(([\w./]+\.md)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_overview_links_to_each_page() -> None:
    text = OVERVIEW.read_text()
    assert [p.name for p in PAGES if f"(architecture/{p.name})" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_a_page_says_what_to_read_first(page: Path) -> None:
    """Purpose, invariants, entry point; and three files, those of the texts of its folders."""
    head = page.read_text().partition("\n## ")[0]
    folders = re.findall(r"`sardonyx/(\w+)`", re.findall(r"^Folders?: ((?:.+\n)+)", head, re.M)[0])
    assert folders
    for word in ("Purpose", "Invariants", "Entry point"):
        assert f"**{word}.**" in head
    first = re.findall(r"\bRead\s+([^.]*(?:\.py[^.]*)+)\bfirst\b", head)[0]
    named = re.findall(r"`([\w/]+\.py)`", first)
    assert len(named) == 3
    texts = {f: (ROOT / "sardonyx" / f / "__init__.py").read_text() for f in folders}
    for path in named:
        folder, _, rest = path.partition("/")
        if len(folders) == 1:
            assert f"`{rest}`" in texts[folder], (path, texts[folder])
        assert (ROOT / "sardonyx" / path).exists()
