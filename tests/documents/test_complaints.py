"""The page of complaints names tests that are there."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "complaints.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| theme")
]


@functools.cache
def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_tests_of_a_theme_exist(row: list[str]) -> None:
    theme, done, shown = row
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", shown)
    assert theme and done and named
    assert ", ".join(f"`{path}::{name}`" for path, name in named) == shown
    for path, name in named:
        assert name in _functions(ROOT / "tests" / path), f"{path} has no {name}"


def test_every_theme_has_a_row() -> None:
    """As many as the collection has; its last entry, of several themes, has a row for each."""
    assert len(ROWS) == 32
