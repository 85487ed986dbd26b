"""Numbers that the data decides, checked: one out of its range is a fault that names it."""

from __future__ import annotations

from sardonyx.base import integer
from sardonyx.base.dtypes import INT64
from sardonyx.base.sizes import Dim
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, compute
from sardonyx.tensor.scalar import Scalar

#: What a position is called that follows from lengths, where a table of angles has no row for it.
ROTARY = "a rotary position"


def ranged(x: Tensor, name: str, low: Dim | Scalar, high: Dim | Scalar) -> Tensor:
    """A tensor of whole numbers as int64; one outside of [low, high] is a fault.

    Args:
        x: The numbers.
        name: What the operator calls them, one of `RANGED_NAMES`.
        low: The smallest that is allowed.
        high: The largest.
    """
    return compute(x.shape, lambda *at: scalar.check_range(scalar.load(x, at), name, low, high))


def row_in(place: Scalar, name: str, extent: Dim) -> Dim:
    """A number as an index of an axis, which it is not counted from the end of."""
    last = extent - 1
    return scalar.as_index(scalar.check_range(place, name, 0, last), extent)


def rising(
    starts: Tensor, name: str, tokens: Dim, least: int = 0, most: Dim | None = None
) -> Tensor:
    """Offsets of requests among packed tokens as int64; others than can be are a fault.

    The first is 0, each is at least the one before, and the last at most the number of tokens.

    Args:
        starts: (requests + 1).
        name: What the operator calls them.
        tokens: How many there are.
        least: How many tokens a request has; where that is not 0, the last offset is their number.
        most: How many it has at most; None for any number.
    """
    last = starts.shape[0] - 1

    def body(b: Dim) -> Scalar:
        before = scalar.load(starts, (integer.maximum(b - 1, 0),))
        low = scalar.cast(before, INT64) + least
        high = scalar.size(tokens)
        if most is not None:
            high = scalar.binary("min", high, low + scalar.size(most))
        if least:
            low = scalar.select(scalar.compare("eq", scalar.size(b), scalar.size(last)), high, low)
        is_first = scalar.compare("eq", scalar.size(b), 0)
        ends = (scalar.select(is_first, 0, end) for end in (low, high))
        return scalar.check_range(scalar.load(starts, (b,)), name, *ends)

    return compute(starts.shape, body)
