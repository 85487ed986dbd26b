"""Symbolic integers: rules that the planner relies on to come to an end."""

from __future__ import annotations

import pytest

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim

W = sizes.symbol("w")
EXTENTS: list[Dim] = [
    7,
    W,
    sizes.floordiv(W - 1, 32) + 1,  # where w is 0 this is 0: its sign is not provable
    4 * sizes.floordiv(sizes.floordiv(W + 1, 2) - 1, 16) + 4,
    sizes.maximum(W - 3, sizes.floordiv(W, 2)),
]


@pytest.mark.parametrize("extent", EXTENTS, ids=repr)
def test_an_index_divided_by_its_extent_is_zero(extent: Dim) -> None:
    i, j = sizes.index(extent), sizes.index(sizes.symbol("rows"))
    assert sizes.floordiv(i, extent) == 0
    assert sizes.modulo(i, extent) == i
    place = sizes.add(sizes.multiply(j, extent), i)
    assert sizes.floordiv(place, extent) == j
    assert sizes.modulo(place, extent) == i


def test_an_index_divided_by_less_than_its_extent_stays() -> None:
    i = sizes.index(W)
    assert sizes.atoms_of(sizes.floordiv(i, sizes.floordiv(W, 2)), "floordiv")
