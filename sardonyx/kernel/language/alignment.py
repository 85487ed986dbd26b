"""What is known about the divisibility of offsets, so that several elements move at once."""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim


def divisible(dim: Dim, by: int) -> bool:
    """Whether every value of `dim` is provably a multiple of `by`."""
    return all(coefficient % by == 0 for _, coefficient in sizes.terms_of(dim))


def runs(offset: Dim, along: Atom, elements: int) -> bool:
    """Whether `elements` neighbours along an axis lie side by side, at a multiple of so many.

    They begin at a value of `along` that is a multiple of `elements`.
    """
    linear = sizes.coefficient_of(offset, along)
    if elements == 1:
        return True
    return linear is not None and linear[0] == 1 and divisible(linear[1], elements)
