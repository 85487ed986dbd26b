"""Inputs that stand for one number, however many axes they have, and inputs that are lists."""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.errors import InvalidGraph, message
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


def check_list(x: Tensor, what: str) -> None:
    """Refuse a tensor that has not one axis, as what holds a shape must.

    Raises:
        InvalidGraph: It has more, or none.
    """
    if x.rank != 1:
        raise InvalidGraph(message(what, "It needs one axis", got=str(list(x.shape))))
