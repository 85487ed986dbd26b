"""Inputs that stand for one number, however many axes they have."""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.tensor.language import Tensor, assume_equal, reshape


def scalar_of(x: Tensor, where: str) -> Tensor:
    """A tensor of one element as a scalar; a run that finds another number of them refuses.

    Raises:
        InvalidGraph: There are provably none, or more than one.
    """
    if x.shape == ():
        return x
    what = f"A scalar is needed, not {list(x.shape)}"
    assume_equal(sizes.product(x.shape), 1, where, what)
    return reshape(x, ())
