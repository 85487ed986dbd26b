"""What the page for contributors names is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sardonyx.base.version import __version__

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
#: What commands make, and git ignores.
_MADE = ("build/", "dist/")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"(?:\./)?[\w.-]+(?:/[\w.-]*)+|[\w-]+\.(?:md|toml|yml)")


def _paths() -> list[str]:
    """Each path in a block, or between backticks: a word of its own, or of a command."""
    code = [*_FENCE.findall(TEXT), *re.findall(r"`([^`\n]+)`", _FENCE.sub("", TEXT))]
    words = [word.partition("::")[0] for text in code for word in text.split()]
    found = [word for word in words if _PATH.fullmatch(word) and not word.startswith(_MADE)]
    return sorted(set(found))


def _modules() -> list[str]:
    """Each module that a command runs."""
    return sorted(set(re.findall(r"python -m (tests[\w.]*)", TEXT)))


@pytest.mark.parametrize("path", _paths())
def test_paths_exist(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("name", _modules())
def test_modules_exist(name: str) -> None:
    place = ROOT / name.replace(".", "/")
    assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()


def test_each_task_names_few_files() -> None:
    tasks = re.findall(
        r"^\*\*(?:Add|Speed|Change) [^*]+\.\*\*\n\n((?:- .*\n)+)", TEXT, re.MULTILINE
    )
    assert len(tasks) == 8
    for lines in tasks:
        named = re.findall(r"^- `([^`]+)`: ", lines, re.MULTILINE)
        assert 1 <= len(named) == lines.count("\n") <= 4, lines
        assert all((ROOT / path).is_file() for path in named), named


def test_there_are_some() -> None:
    assert len(_paths()) > 40
    assert len(_modules()) > 7


def test_versions_are_equal() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
