"""How near results must be stands in one table: tests name its rows, and no numbers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.tolerances import EPSILONS, TABLE, assert_near, is_near

HERE = Path(__file__).parent
#: Arguments that say how near two numbers must be.
_NAMES = {"rtol", "atol", "rel", "abs", "tolerance"}
_ARGUMENT = re.compile(rf"\b({'|'.join(sorted(_NAMES))})=")
#: Functions that compare with them.
_COMPARES = {"assert_allclose", "allclose", "isclose", "assert_close", "approx"}

#: (file, function) -> why it has a number that is no rounding of a computation.
EXCEPTIONS = {
    ("api/test_generate.py", "test_probabilities"): "shares of 4,000 draws",
    ("conformance/judge.py", "_draw_agrees"): "ONNX's own",
    ("engine/test_generation.py", "test_sampling"): "shares of draws: five standard deviations",
    ("programs/test_programs.py", "test_ddddocr"): "places in a picture, in pixels",
    ("quantization/test_calibrate.py", "test_distribution"): "a part of a bin of a histogram",
    ("quantization/test_calibrate.py", "test_entropy_cuts_a_long_tail"): "a tenth of a threshold",
    ("store/test_cache.py", "test_use_is_noted_at_most_daily"): "a second of a file's time",
    ("tools/test_view_page.py", "test_the_timeline_zooms_and_moves"): "what a browser made of it",
}


#: The place of the first such argument among those without a name.
_PLACES = {"assert_allclose": 2, "allclose": 2, "isclose": 2}


def _numbers(path: Path) -> list[tuple[str, int]]:
    """Functions that compare with a number of their own, and lines."""
    found = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
            checks = name in _COMPARES or (name.startswith(("check", "_check", "assert_")))
            for keyword in node.keywords:
                numbers = [
                    n
                    for n in ast.walk(keyword.value)
                    if isinstance(n, ast.Constant)
                    and isinstance(n.value, float | int)
                    and n.value != 0
                ]
                if checks and keyword.arg in _NAMES and numbers:
                    found.append((function, node.lineno))
            placed = node.args[_PLACES[name] :] if name in _PLACES else []
            if any(isinstance(n, ast.Constant) and n.value for n in placed):
                found.append((function, node.lineno))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    text = path.read_text()
    if _ARGUMENT.search(text) or any(name in text for name in _PLACES):
        visit(ast.parse(text), "")
    return found


def test_no_test_has_a_tolerance_of_its_own() -> None:
    found: dict[tuple[str, str], list[int]] = {}
    for path in sorted(HERE.rglob("*.py")):
        name = path.relative_to(HERE).as_posix()
        for function, line in _numbers(path):
            found.setdefault((name, function), []).append(line)
    left = {place: lines for place, lines in found.items() if place not in EXCEPTIONS}
    assert left == {}, "name a row of tests/support/tolerances.py"
    assert EXCEPTIONS.keys() <= found.keys(), "it has none any more"


@pytest.mark.parametrize("name", TABLE)
def test_rows_have_reasons(name: str) -> None:
    row = TABLE[name]
    assert row.type in EPSILONS and row.why
    assert row.relative >= 0 and row.absolute >= 0


def test_unused_rows_go() -> None:
    own = HERE / "support" / "tolerances.py"
    texts = [p.read_text() for p in HERE.rglob("*.py") if p != own]
    texts.append(own.read_text().partition("OF_AN_OPERATOR")[2])
    assert [name for name in TABLE if not any(f'"{name}"' in text for text in texts)] == []


def test_what_rows_say() -> None:
    one = np.float32(1)
    assert is_near(one + np.float32(7e-7), one, "float: one operation")
    assert not is_near(one + np.float32(2e-6), one, "float: one operation")
    assert not is_near(np.float32(1e-7), np.float32(0), "float: one operation")
    # Of the largest, and of the root of the terms.
    assert is_near([100.0, 5e-4], [100.0, 0.0], "float: Winograd's sums")
    assert not is_near([1.0, 5e-4], [1.0, 0.0], "float: Winograd's sums")
    assert_near([1e-4], [0.0], "float: deep sums", terms=10_000)
    with pytest.raises(AssertionError):
        assert_near([1e-4], [0.0], "float: deep sums", terms=100)
