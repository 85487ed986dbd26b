"""DynamicTimeWarping against NumPy, and onnxruntime if it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph
from tests.support.contrib import check_contrib

RANDOM = np.random.default_rng(3)


def _way(costs: Any) -> Any:
    rows, columns = costs.shape
    totals = np.full((rows + 1, columns + 1), np.inf, np.float32)
    totals[0, 0] = 0
    for i, j in np.ndindex(rows, columns):
        totals[i + 1, j + 1] = costs[i, j] + min(totals[i, j], totals[i, j + 1], totals[i + 1, j])
    i, j, way = rows - 1, columns - 1, []
    while True:
        way.append((i, j))
        if i == 0 and j == 0:
            return np.array(way[::-1], np.int32).T
        both, row, column = totals[i, j], totals[i, j + 1], totals[i + 1, j]
        if i and j and both < row and both < column:
            i, j = i - 1, j - 1
        elif not j or (i and row < both and row < column):
            i -= 1
        else:
            j -= 1


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1), (5, 7), (9, 4), (20, 31)])
@pytest.mark.parametrize("even", [False, True])
def test_ways(shape: tuple[int, int], even: bool) -> None:
    costs = RANDOM.standard_normal(shape).astype(np.float32)
    if even:  # whole numbers, so that totals are often equal
        costs = RANDOM.integers(0, 2, shape).astype(np.float32)
    # Where totals are equal, onnxruntime goes on with another one, which may be more.
    check_contrib("DynamicTimeWarping", [costs], {}, [_way(costs)], symbolic=False, engine=not even)
    check_contrib("DynamicTimeWarping", [costs[None]], {}, [_way(costs)], engine=False)


def test_two_matrices_are_refused() -> None:
    with pytest.raises(InvalidGraph, match="more than one"):
        check_contrib("DynamicTimeWarping", [np.zeros((2, 3, 4), np.float32)], {}, [None],
                      engine=False, symbolic=False)  # fmt: skip
