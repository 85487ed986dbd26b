"""Each module that writes the loops of a kernel shows them as pseudo-code in a docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

KERNEL = Path(__file__).resolve().parents[2] / "sardonyx" / "kernel"
#: The language itself has loops as statements, and makes none.
FILES = [p for p in sorted(KERNEL.rglob("*.py")) if p.parent.name != "language"]

BUILDERS = {"Builder", "ThreadBuilder"}
LOOPS = {"for_", "while_", "long_for", "pieces", "parallel"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
#: A line of a block of code: `parallel block in 0..n:`, `for k in 0..depth step lanes: ...`.
LOOP = re.compile(r"^ +(parallel|for|while) \S.*:", re.MULTILINE)


def _names(tree: ast.Module) -> set[str]:
    """Names of what a module calls."""
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in called}


def _writes_a_kernel(tree: ast.Module) -> bool:
    """Whether a module makes a program with loops: a builder and a loop, or a parallel axis."""
    called = _names(tree)
    return "parallel" in called or bool(called & BUILDERS and called & LOOPS)


def _shows_loops(tree: ast.Module) -> bool:
    nodes = (node for node in ast.walk(tree) if isinstance(node, DOCUMENTED))
    texts = (ast.get_docstring(node, clean=True) or "" for node in nodes)
    return any("::\n" in text and LOOP.search(text) for text in texts)


KERNELS = [p for p in FILES if _writes_a_kernel(ast.parse(p.read_text()))]


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: str(p.relative_to(KERNEL)))
def test_a_kernel_shows_its_loops(path: Path) -> None:
    assert _shows_loops(ast.parse(path.read_text())), "add its loop nest to the docstring"


def test_modules_that_write_kernels_are_found() -> None:
    names = {str(p.relative_to(KERNEL)) for p in KERNELS}
    assert {"matmul/contraction.py", "matmul/micro.py", "custom/top_k.py", "gpu/tile.py"} <= names
    assert len(names) > 25


@pytest.mark.parametrize(
    ("text", "shows"),
    [
        ('"""Sums.\n\nLoop nest::\n\n    for k in 0..depth: sum += a[k]\n"""', True),
        ('"""Sums for each row: of all."""', False),
        ('"""Sums.\n\n    for rows that are there: all\n"""', False),
    ],
)
def test_what_counts_as_a_loop_nest(text: str, shows: bool) -> None:
    assert _shows_loops(ast.parse(text)) is shows
