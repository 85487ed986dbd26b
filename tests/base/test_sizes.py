"""Symbolic integers: rules that the planner relies on to come to an end."""

from __future__ import annotations

import pytest

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Dim

W = sizes.symbol("w")
EXTENTS: list[Dim] = [
    7,
    W,
    integer.floordiv(W - 1, 32) + 1,  # where w is 0 this is 0: its sign is not provable
    4 * integer.floordiv(integer.floordiv(W + 1, 2) - 1, 16) + 4,
    integer.maximum(W - 3, integer.floordiv(W, 2)),
]


@pytest.mark.parametrize("extent", EXTENTS, ids=repr)
def test_an_index_divided_by_its_extent_is_zero(extent: Dim) -> None:
    i, j = sizes.index(extent), sizes.index(sizes.symbol("rows"))
    assert integer.floordiv(i, extent) == 0
    assert integer.modulo(i, extent) == i
    place = sizes.add(sizes.multiply(j, extent), i)
    assert integer.floordiv(place, extent) == j
    assert integer.modulo(place, extent) == i


def test_an_index_divided_by_less_than_its_extent_stays() -> None:
    i = sizes.index(W)
    assert sizes.atoms_of(integer.floordiv(i, integer.floordiv(W, 2)), "floordiv")


def test_a_choice_times_itself_is_itself() -> None:
    chosen, n = sizes.measured("chosen", 0, 1), sizes.symbol("n")
    kept, taken = n - chosen * (n - 1), 1 + chosen * (n - 1)
    assert chosen * chosen is chosen
    assert kept * taken is n  # an axis is in the one place or in the other
    number = sizes.measured("number", 0, 2)
    assert number * number is not number
