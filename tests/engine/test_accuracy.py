"""Elementwise operators stay within 4 ulp of the exact result; docs/accuracy.md has all figures."""

import pathlib

import pytest

from tests.engine.make_accuracy import LIMITS
from tests.support.accuracy import ROWS, measure

#: A float of so many; odd, so that all patterns of the lower bits occur.
STEPS = {"float": 65521, "float16": 7}


@pytest.mark.parametrize("type_name", STEPS)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_errors(row, type_name):
    worst = measure(row, type_name, STEPS[type_name])
    assert worst.allowed <= LIMITS[type_name], worst


def test_the_table_has_all_operators():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "accuracy.md").read_text()
    named = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    assert named[1:] == [str(row) for row in ROWS], "python -m tests.engine.make_accuracy"
