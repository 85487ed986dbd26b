"""Unique: the elements or slices that differ, where they come first, and how often.

Everything follows from the order of the elements: where one differs from the one before it a group
begins, and as the order is stable, a group begins with what comes first in the input.
"""

from __future__ import annotations

from sardonyx.base import integer, sizes
from sardonyx.base.dtypes import BOOL, INT64, STRING, UINT8
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.gather import top_k
from sardonyx.ops.onnx.selection import positions_of
from sardonyx.tensor import complex_scalar, scalar
from sardonyx.tensor.host import Result, host_call
from sardonyx.tensor.language import (
    Tensor,
    cast,
    compute,
    constant,
    gather,
    normalise_axis,
    reshape,
    transpose,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import make_call


@op("Unique", 11, flags=("strings",))
def unique_11(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, ...]:
    """What differs, where it comes first, which of it each element is, and how often it comes.

    As in NumPy all NaNs are one element, but each is one of its own inside a slice.
    """
    source = reshape(x, (sizes.product(x.shape),)) if axis is None else x
    along = normalise_axis(axis or 0, source.rank, "Unique")
    keys = _keys(source)
    if axis is None and not source.dtype.is_complex:
        ranked, order = top_k(keys, keys.shape[0], 0, 0)
        begins = _begins(ranked)
    else:
        rows = _rows(keys, along)
        if rows.dtype.is_complex:
            rows = _parts(rows)
        (order,) = make_call("sort_rows", (rows,), (((rows.shape[0],), INT64),))
        begins = _begins_of_rows(gather(rows, order))
    starts = positions_of(begins)
    first = gather(order, starts)
    (count,) = order.shape
    group = _scattered(_numbers(begins), order)
    counts = _differences(starts, count)
    if not sorted:
        is_first = _scattered_truth(first, count)
        # Groups in the order in which they come first: where each begins says which one it is.
        position = _numbers(is_first)
        own = positions_of(is_first)
        counts = gather(counts, gather(group, own))
        group = gather(position, gather(first, group))
        first = own
    return gather(source, first, along), first, group, counts


def _keys(x: Tensor) -> Tensor:
    """Numbers that are ordered, and equal, as the elements are."""
    if x.dtype is STRING:
        return host_call("text.ranks", [x], [Result(INT64, x.shape)])[0]
    return cast(x, UINT8) if x.dtype is BOOL else x


def _rows(x: Tensor, axis: int) -> Tensor:
    """The slices along an axis, each as a row."""
    order = [axis, *(k for k in range(x.rank) if k != axis)]
    moved = transpose(x, order)
    return reshape(moved, (moved.shape[0], sizes.product(moved.shape[1:])))


def _parts(rows: Tensor) -> Tensor:
    """Rows of complex numbers as rows of their parts: they are ordered as NumPy orders them."""

    def body(i: Dim, j: Dim) -> Scalar:
        z = scalar.load(rows, (i, j // 2))
        is_real = scalar.compare("eq", scalar.size(j % 2), 0)
        return scalar.select(is_real, complex_scalar.real(z), complex_scalar.imaginary(z))

    return compute((rows.shape[0], rows.shape[1] * 2), body)


def _begins(ranked: Tensor) -> Tensor:
    """Where an element of an ordered list differs from the one before it; NaNs do not."""

    def body(k: Dim) -> Scalar:
        here, before = (scalar.load(ranked, (i,)) for i in (k, integer.maximum(k - 1, 0)))
        differs = scalar.compare("ne", here, before)
        if ranked.dtype.is_float:
            differs = differs & (
                scalar.compare("eq", here, here) | scalar.compare("eq", before, before)
            )
        return differs | scalar.compare("eq", scalar.size(k), 0)

    return compute(ranked.shape, body)


def _begins_of_rows(ranked: Tensor) -> Tensor:
    """Where a row differs from the one before it."""

    def differs(k: Dim, j: Dim) -> Scalar:
        here, before = (scalar.load(ranked, (i, j)) for i in (k, integer.maximum(k - 1, 0)))
        return scalar.compare("ne", here, before)

    different = cast(cast(compute(ranked.shape, differs), INT64).sum(1), BOOL)

    def body(k: Dim) -> Scalar:
        return scalar.load(different, (k,)) | scalar.compare("eq", scalar.size(k), 0)

    return compute(different.shape, body)


def _numbers(begins: Tensor) -> Tensor:
    """Which group each element belongs to, given where groups begin."""
    steps = cast(begins, INT64)
    (running,) = make_call(
        "scan", (steps,), ((steps.shape, INT64),), kind="sum", exclusive=False, reverse=False
    )
    return running - 1


def _scattered(values: Tensor, places: Tensor) -> Tensor:
    """The values at their places, which are all places once."""
    nothing = constant(0, INT64, places.shape)
    (result,) = make_call(
        "scatter_elements", (nothing, places, values), ((places.shape, INT64),),
        axis=0, reduction="none",
    )  # fmt: skip
    return result


def _scattered_truth(places: Tensor, count: Dim) -> Tensor:
    """Whether each of `count` places is among some."""
    nothing, one = constant(0, INT64, (count,)), constant(1, INT64, places.shape)
    (result,) = make_call(
        "scatter_elements", (nothing, places, one), (((count,), INT64),), axis=0, reduction="none"
    )
    return cast(result, BOOL)


def _differences(starts: Tensor, end: Dim) -> Tensor:
    """From each start to the next one, or the end."""
    (length,) = starts.shape

    def body(k: Dim) -> Scalar:
        following = scalar.load(starts, (integer.minimum(k + 1, length - 1),))
        last = scalar.compare("eq", scalar.size(k + 1), scalar.size(length))
        return scalar.select(last, scalar.size(end), following) - scalar.load(starts, (k,))

    return compute((length,), body)
