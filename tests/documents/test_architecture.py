"""The pages about folders name files that exist, and the overview links to each page."""

from __future__ import annotations

import functools
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


@functools.cache
def _words(folder: Path) -> frozenset[str]:
    """Every word of the source in a folder, or in a file."""
    files = [folder] if folder.is_file() else folder.rglob("*.py")
    return frozenset(w for path in files for w in re.findall(r"\w+", path.read_text()))


def _place(name: str) -> tuple[Path, list[str]]:
    """Where a name of the form `folder.module.thing` is, and what should be found there."""
    place, parts = ROOT / "sardonyx", name.split(".")
    while parts:
        if (place / parts[0]).is_dir():
            place = place / parts.pop(0)
        elif (place / f"{parts[0]}.py").is_file():
            return place / f"{parts[0]}.py", parts[1:]
        else:
            break
    return place, parts


@pytest.mark.parametrize("page", [OVERVIEW, *PAGES], ids=lambda p: p.name)
def test_named_things_exist(page: Path) -> None:
    """Classes, functions, fields, options; `product_N` stands for numbered kernels."""
    named = set(re.findall(r"`([\w.]+)`", page.read_text()))
    missing = []
    for name in sorted(n for n in named if not n.endswith((".py", "_N"))):
        place, parts = _place(name)
        if [w for w in parts if w not in _words(place) and not w.isdigit()]:
            missing.append(name)
    assert missing == []


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
