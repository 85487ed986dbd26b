"""Pages name files and things that exist; the overview links to each page about folders."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OVERVIEW = ROOT / "docs/architecture.md"
PAGES = sorted((ROOT / "docs/architecture").glob("*.md"))
#: A page of onnxruntime's names, which a command writes.
_LEFT_OUT = ROOT / "docs/compatibility.md"
GUIDES = sorted({ROOT / "README.md", *(ROOT / "docs").glob("*.md")} - {_LEFT_OUT, OVERVIEW})
#: What commands make, and git ignores.
_MADE = ("build/", "dist/")

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


@functools.cache
def _files() -> list[str]:
    """Every file that the repository has, from `/` on."""
    tops = ("sardonyx", "tests", "docs", "examples", "benchmarks", ".ci")
    paths = [p for top in tops for p in (ROOT / top).rglob("*") if "__pycache__" not in p.parts]
    return [f"/{p.relative_to(ROOT).as_posix()}" for p in [*paths, *ROOT.iterdir()]]


#: A path: with folders, or with the ending of a file.
_FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?|\w+\.(?:py|md|txt|json|yml|toml)")
#: A name with its module, or with its class.
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


def _missing(name: str) -> bool:
    """Whether a name that stands between backticks is a path, or a dotted name, of nothing."""
    if "NAME" in name:  # the reader's own
        return False
    if _FILE.fullmatch(name):
        end = f"/{name.strip('/')}"
        is_path = name.endswith(".py") or name.partition("/")[0] in ("sardonyx", "tests", "docs")
        return is_path and not name.startswith(_MADE) and not any(f.endswith(end) for f in _files())
    if not _DOTTED.fullmatch(name) or name.isupper():
        return False
    first, *rest = name.removeprefix("sardonyx.").split(".")
    if first in sys.stdlib_module_names:
        return not hasattr(importlib.import_module(first), rest[0])
    if (ROOT / first).is_dir():
        return not (ROOT / first / f"{rest[0]}.py").is_file()
    place, parts = _place(".".join((first, *rest)))
    return any(part not in _words(place) for part in parts)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("selection/table.py", False), ("selection/tables.py", True), ("table.py", False),
        ("sardonyx/selection/", False), ("tests/selections", True), ("examples.denoise", False),
        ("examples.noise", True), ("store.cache.Cache", False), ("store.cache.Hoard", True),
        ("copy.deepcopy", False), ("copy.deeply", True), ("MAJOR.MINOR.PATCH", False),
        ("float16", False), ("build/site", False), ("sardonyx.plugins.Refused", False),
        ("SessionOptions.enable_profiling", False), ("SessionOptions.enable_profit", True),
    ],
)  # fmt: skip
def test_what_is_missing_is_seen(name: str, missing: bool) -> None:
    assert _missing(name) == missing


@pytest.mark.parametrize("page", GUIDES, ids=lambda p: p.name)
def test_names_in_guides_exist(page: Path) -> None:
    text = re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text("utf-8"))
    named = set(re.findall(r"`([^`\s]+)`", text))
    assert sorted(name for name in named if _missing(name)) == []


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
