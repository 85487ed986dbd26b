"""Operators that keep some elements, as many as the data says: NonZero, Compress, suppression.

How many there are is an ordinary sum; it is measured, and from then on a size like any other.
"""

from __future__ import annotations

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    cast,
    compute,
    constant,
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
    """Positions of elements that are not zero: a row for each axis; a scalar has none."""
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

    return compute((x.rank, found.shape[0]), body, dtypes.INT64)


@op("Compress", 9, 11, 28, flags=("strings",))
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    """Slices where a condition holds; what the condition is too short for is dropped."""
    if condition.rank != 1:
        raise InvalidGraph(message("Compress", "The condition needs one axis"))
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


@op("NonMaxSuppression", 10, 11)
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    overlap: Tensor | None = None,
    least_score: Tensor | None = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    """[batch, class, box] of boxes that do not overlap better ones, best first in each class."""
    if boxes.rank != 3 or scores.rank != 3:
        shapes = f"{list(boxes.shape)} and {list(scores.shape)}"
        raise InvalidGraph(message("NonMaxSuppression", "Three axes are needed", got=shapes))
    batches, classes, count = scores.shape
    assume_equal(boxes.shape[0], batches, "NonMaxSuppression", "The batches differ")
    assume_equal(boxes.shape[1], count, "NonMaxSuppression", "Each box needs a score")
    assume_equal(boxes.shape[2], 4, "NonMaxSuppression", "A box has four numbers")
    limit = cast(_scalar(most, 0, dtypes.INT64), dtypes.INT64)
    (known,) = elements_of(limit) or (None,)
    per_class = count if known is None else integer.minimum(integer.maximum(known, 0), count)
    lists = (batches, classes, per_class)
    kept, counts = make_call(
        "select_boxes",
        (
            cast(boxes, dtypes.FLOAT), cast(scores, dtypes.FLOAT), limit,
            _scalar(overlap, 0.0, dtypes.FLOAT), _scalar(least_score, 0.0, dtypes.FLOAT),
        ),
        ((lists, dtypes.INT64), (lists[:2], dtypes.INT64)),
        scored=least_score is not None,
        centred=bool(center_point_box),
    )  # fmt: skip
    (length,) = contents(counts.sum(), "The number of boxes that are kept", 0)
    (rows,) = make_call("list_boxes", (kept, counts), (((length, 3), dtypes.INT64),))
    return rows


def _scalar(x: Tensor | None, default: float, dtype: DType) -> Tensor:
    return constant(default, dtype, ()) if x is None else scalar_of(x, "NonMaxSuppression")
