"""Functions of kernels take at most six parameters: what travels together is a record."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

KERNEL = Path(__file__).resolve().parents[2] / "sardonyx" / "kernel"
MOST = 6

#: (module, function) -> why it takes more. The language itself names what an instruction may have.
EXCEPTIONS = {
    ("expressions/expression.py", "__init__"): "what a loop level knows; `child` gives the rest",
    ("gpu/split_k_attention.py", "__init__"): "a part of one kernel, made once",
    ("gpu/tile_fragments.py", "__init__"): "a part of two kernels; three of them are switches",
    ("language/instructions.py", "__init__"): "facts of a program, by name",
    ("language/instructions.py", "load"): "facts of an instruction, by name",
    ("language/instructions.py", "store"): "facts of an instruction, by name",
}


def _parameters(function: ast.FunctionDef) -> int:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(a.arg not in ("self", "cls") for a in named)


@pytest.mark.parametrize(
    "path", sorted(KERNEL.rglob("*.py")), ids=lambda p: str(p.relative_to(KERNEL))
)
def test_number_of_parameters(path: Path) -> None:
    name = str(path.relative_to(KERNEL))
    nodes = ast.walk(ast.parse(path.read_text()))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    many = {f.name: _parameters(f) for f in functions if _parameters(f) > MOST}
    assert {n: count for n, count in many.items() if (name, n) not in EXCEPTIONS} == {}


def test_exceptions_are_needed() -> None:
    for module, function in EXCEPTIONS:
        nodes = ast.walk(ast.parse((KERNEL / module).read_text()))
        counts = [
            _parameters(n) for n in nodes if isinstance(n, ast.FunctionDef) and n.name == function
        ]
        assert max(counts) > MOST, (module, function)
