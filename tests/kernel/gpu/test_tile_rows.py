"""How rows of a product are cut into tiles: whatever a run says, a micro-kernel is there."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.matmul.micro import ROWS, ends_well, tile_rows
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_N = sizes.symbol("N")
_M = sizes.symbol("M")


def _cut(rows: int) -> set[int]:
    found = set()
    while rows:
        tile = next(r for r in ROWS if r <= rows and (ends_well(r) or r + 1 != rows))
        found.add(tile)
        rows -= tile
    return found


@pytest.mark.parametrize(
    "count",
    [_N, _N * 49, _N * 3136, _N * 3 + 6, _N * _M * 4, _N * 96, 1, 5, 7, 96, 97, 100, 3136],
    ids=repr,
)
def test_row_counts_that_can_occur(count: Dim) -> None:
    wanted = set()
    for n in range(1, 33):
        rows = sizes.evaluate(count, {"N": n, "M": 3})
        for first in range(0, rows, 96):
            wanted |= _cut(min(96, rows - first))
    found = set(tile_rows(count, 96))
    assert found >= wanted
    assert isinstance(count, int) <= (found == wanted)


def test_convolutions_of_even_images_need_few() -> None:
    assert tile_rows(_N * 3136, 96) == (6, 4, 2)
    assert tile_rows(1, 96) == (1,)
    assert tile_rows(0, 96) == ()


def test_products_of_all_row_counts_give_the_same_rows() -> None:
    random = np.random.default_rng(0)
    weights = random.standard_normal((37, 70)).astype(np.float32)
    x = random.standard_normal((203, 37)).astype(np.float32)
    text = "g (float[N,37] x) => (float[N,70] y) { y = MatMul(x, w) }"
    session = sardonyx.InferenceSession(model_of(text, {"w": weights}).SerializeToString())
    (whole,) = session.run(None, {"x": x})
    assert_near(whole, x @ weights, "float: layers")
    for rows in (*range(9), 11, 13, 95, 97, 99, 101, 191):
        (part,) = session.run(None, {"x": x[:rows]})
        np.testing.assert_array_equal(part, whole[:rows])
        if rows:
            fixed = model_of(text.replace("N", str(rows)), {"w": weights})
            own = sardonyx.InferenceSession(fixed.SerializeToString())
            np.testing.assert_array_equal(own.run(None, {"x": x[:rows]})[0], part)
