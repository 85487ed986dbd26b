"""Operators that keep some elements, as many as the data says: NonZero, Compress.

How many there are is an ordinary sum; it is measured, and from then on a size like any other.
"""

from __future__ import annotations

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.sizes import Dim
from sardonyx.ops.registry import contents, op
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    cast,
    compute,
    gather,
    normalise_axis,
    not_equal,
    size_tensor,
    slice_axis,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.symbolic import elements_of
from sardonyx.tensor.tensor import make_call


def positions_of(mask: Tensor) -> Tensor:
    """Where a boolean tensor of one axis is true, in ascending order: int64[count]."""
    count = cast(mask, dtypes.INT64).sum()
    (length,) = contents(count, "The number of elements that are kept", 0)
    (found,) = make_call("compact", (mask,), (((length,), dtypes.INT64),))
    return found


@op("NonZero", 9, 13)
def non_zero(x: Tensor) -> Tensor:
    """Positions of elements that are not zero: one row for each axis."""
    flags = x if x.dtype is dtypes.BOOL else not_equal(x, 0)
    shape = x.shape or (1,)  # a scalar counts as one element
    flat = flags.reshape(sizes.product(shape))
    found = positions_of(flat)

    def body(axis: Dim, k: Dim) -> Scalar:
        at = scalar.load(found, (k,))
        place = at
        for number, extent in enumerate(shape):
            inner = scalar.size(sizes.product(shape[number + 1 :]))
            coordinate = scalar.binary("div", at, inner)
            if number:
                coordinate = scalar.binary("rem", coordinate, scalar.size(extent))
            here = scalar.compare("eq", scalar.size(axis), number)
            place = coordinate if number == 0 else scalar.select(here, coordinate, place)
        return place

    return compute((x.rank or 1, found.shape[0]), body, dtypes.INT64)


@op("Compress", 9, 11, 28)
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    """Slices where a condition holds; what the condition is too short for is dropped."""
    source = x if axis is not None else x.reshape(sizes.product(x.shape))
    along = normalise_axis(axis or 0, source.rank, "Compress")
    flags = elements_of(condition)
    if flags is not None:
        return gather(source, size_tensor(tuple(k for k, flag in enumerate(flags) if flag)), along)
    extent, given = source.shape[along], condition.shape[0]
    if not integer.is_nonnegative(extent - given):
        # A longer condition must not choose what is not there.
        shorter = integer.minimum(extent, given)
        assume_equal(given, shorter, "Compress", "The condition is longer than the axis")
        condition = slice_axis(condition, 0, 0, shorter)
    return gather(source, positions_of(condition), along)
