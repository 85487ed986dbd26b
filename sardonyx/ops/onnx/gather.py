"""Picking and placing elements by position: gathers, scatters, one-hot, sorting, selection."""

from __future__ import annotations

from sardonyx.base import dtypes, errors, integer, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import check_list
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_at_most,
    assume_equal,
    assume_shape,
    cast,
    compute,
    normalise_axis,
)
from sardonyx.tensor.measuring import LARGEST
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.symbolic import elements_of
from sardonyx.tensor.tensor import make_call


@op("GatherElements", 11, 13, flags=("strings",))
def gather_elements(x: Tensor, positions: Tensor, *, axis: int = 0) -> Tensor:
    """Elements whose index along one axis is replaced by `positions`."""
    axis = normalise_axis(axis, x.rank, "GatherElements")
    _same_rank("GatherElements", x, positions)
    extent = x.shape[axis]

    def body(*at: Dim) -> Scalar:
        chosen = scalar.check_index(scalar.load(positions, at), extent)
        return scalar.load(x, (*at[:axis], scalar.as_index(chosen, extent), *at[axis + 1 :]))

    return compute(positions.shape, body)


def _same_rank(where: str, x: Tensor, positions: Tensor) -> None:
    if x.rank != positions.rank:
        raise InvalidGraph(
            message(where, "The indices have the wrong rank", expected=str(x.rank),
                    got=str(positions.rank))
        )  # fmt: skip


@op("GatherND", 11, 12, 13, flags=("strings",), added={"batch_dims": 12})
def gather_nd(x: Tensor, positions: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Slices at the index tuples along the last axis of `positions`."""
    depth = _tuple_length("GatherND", x, positions, batch_dims)
    outer = positions.shape[:-1]
    assume_shape(outer[:batch_dims], x.shape[:batch_dims], "GatherND", "The batch of the indices")
    inner = x.shape[batch_dims + depth :]

    def body(*at: Dim) -> Scalar:
        where, rest = at[: len(outer)], at[len(outer) :]
        chosen = []
        for k in range(depth):
            extent = x.shape[batch_dims + k]
            index = scalar.check_index(scalar.load(positions, (*where, k)), extent)
            chosen.append(scalar.as_index(index, extent))
        return scalar.load(x, (*where[:batch_dims], *chosen, *rest))

    return compute(outer + inner, body)


def _tuple_length(
    where: str, x: Tensor, positions: Tensor, batch_dims: int, by_ranks: int | None = None
) -> int:
    """How long an index tuple is; `by_ranks`, where the ranks of all operands say it."""
    depth = positions.shape[-1] if positions.rank else 0
    if not isinstance(depth, int) and by_ranks is not None:
        assume_equal(depth, by_ranks, where, "The last axis of the indices does not fit the ranks")
        depth = by_ranks
    if not isinstance(depth, int):
        raise errors.NotImplemented(
            message(where, f"The length {depth!r} of an index tuple is not known when it is loaded")
        )
    if not (0 <= batch_dims < positions.rank and 1 <= depth <= x.rank - batch_dims):
        raise InvalidGraph(
            message(where, f"Index tuples of length {depth} do not fit {x.rank} axes, of which "
                    f"{batch_dims} are batches")
        )  # fmt: skip
    return depth


# -- scatter ----------------------------------------------------------------------------------

_COMBINATIONS = ("none", "add", "mul", "min", "max")


def _check_scatter(where: str, x: Tensor, updates: Tensor, reduction: str) -> None:
    if reduction not in _COMBINATIONS:
        raise InvalidGraph(
            message(where, "There is no such reduction", expected=", ".join(_COMBINATIONS),
                    got=reduction)
        )  # fmt: skip
    if x.dtype is not updates.dtype:
        raise InvalidGraph(message(where, f"The types {x.dtype} and {updates.dtype} differ"))


@op("Scatter", 9, flags=("strings",))
def scatter(x: Tensor, positions: Tensor, updates: Tensor, *, axis: int = 0) -> Tensor:
    """The former name of ScatterElements."""
    return scatter_elements(x, positions, updates, axis=axis)


@op("ScatterElements", 11, 13, 16, 18, flags=("strings",), added={"reduction": 16})
def scatter_elements(
    x: Tensor, positions: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """`x` with elements replaced by, or combined with, `updates` along one axis."""
    _check_scatter("ScatterElements", x, updates, reduction)
    _same_rank("ScatterElements", x, positions)
    axis = normalise_axis(axis, x.rank, "ScatterElements")
    some = sizes.product(integer.minimum(d, 1) for d in positions.shape)
    for k, (extent, count) in enumerate(zip(x.shape, positions.shape, strict=True)):
        if k != axis:
            excess = integer.maximum(count - extent, 0)
            what = f"There are more indices along axis {k} than elements"
            assume_equal(some * excess, 0, "ScatterElements", what)
    assume_shape(updates.shape, positions.shape, "ScatterElements", "The tensor of updates")
    (result,) = make_call(
        "scatter_elements",
        (x, cast(positions, dtypes.INT64), updates),
        ((x.shape, x.dtype),),
        axis=axis,
        reduction=reduction,
    )
    return result


@op("ScatterND", 11, 13, 16, 18, flags=("strings",), added={"reduction": 16})
def scatter_nd(x: Tensor, positions: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """`x` with slices replaced by, or combined with, `updates`."""
    _check_scatter("ScatterND", x, updates, reduction)
    depth = _tuple_length("ScatterND", x, positions, 0, x.rank + positions.rank - 1 - updates.rank)
    expected = positions.shape[:-1] + x.shape[depth:]
    assume_shape(updates.shape, expected, "ScatterND", "The tensor of updates")
    (result,) = make_call(
        "scatter_nd",
        (x, cast(positions, dtypes.INT64), updates),
        ((x.shape, x.dtype),),
        depth=depth,
        reduction=reduction,
    )
    return result


@op("TensorScatter", 24, flags=("strings",))
def tensor_scatter(
    cache: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    """A cache in which a piece of a sequence is replaced, from an index of each batch on.

    In the mode `circular` what goes over the end is written to the begin.
    """
    where = "TensorScatter"
    axis = normalise_axis(axis, cache.rank, where)
    if axis == 0 or mode not in ("linear", "circular"):
        what = f"There is no mode {mode!r} along axis {axis}"
        raise InvalidGraph(message(where, what, expected="linear or circular, not along axis 0"))
    capacity, count = cache.shape[axis], update.shape[axis]
    shape = (*cache.shape[:axis], count, *cache.shape[axis + 1 :])
    assume_shape(update.shape, shape, where, "The update")
    assume_at_most(count, capacity, where, "The update is longer than the cache")
    if write_indices is not None:
        assume_shape(write_indices.shape, cache.shape[:1], where, "The tensor of write indices")

    def body(*at: Dim) -> Scalar:
        place = scalar.size(at[axis])
        if write_indices is not None:
            start = scalar.cast(scalar.load(write_indices, at[:1]), dtypes.INT64)
            if mode == "linear":
                place = place - scalar.check_range(start, "write_indices", 0, capacity - count)
            else:
                # Twice the remainder: it has the sign of what is divided.
                rest = scalar.binary("rem", place - start, scalar.size(capacity))
                place = scalar.binary("rem", rest + scalar.size(capacity), scalar.size(capacity))
        inside = (place >= 0) & (place < scalar.size(count))
        source = (*at[:axis], scalar.as_index(place, count), *at[axis + 1 :])
        return scalar.select(inside, scalar.load(update, source), scalar.load(cache, at))

    return compute(cache.shape, body)


# -- others with a known shape ----------------------------------------------------------------


@op("OneHot", 9, 11, 28, flags=("strings",))
def one_hot(positions: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    """`values[1]` where the new axis has the given position, else `values[0]`."""
    (count,) = contents(cast(depth, dtypes.INT64), "The depth", 0)
    assume_shape(values.shape, (2,), "OneHot", "The tensor of values")
    rank = positions.rank + 1
    axis = normalise_axis(axis, rank, "OneHot")
    shape = (*positions.shape[:axis], count, *positions.shape[axis:])

    def body(*at: Dim) -> Scalar:
        chosen = scalar.load(positions, (*at[:axis], *at[axis + 1 :]))
        index = scalar.cast(chosen, dtypes.INT64)
        negative = index < 0
        index = scalar.select(negative, index + scalar.size(count), index)
        here = scalar.compare("eq", index, scalar.size(at[axis]))
        return scalar.select(here, scalar.load(values, (1,)), scalar.load(values, (0,)))

    return compute(shape, body)


@op("ReverseSequence", 10, 28, flags=("strings",))
def reverse_sequence(
    x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    """The first elements of every sequence reversed, as many as `lengths` says."""
    batch_axis = normalise_axis(batch_axis, x.rank, "ReverseSequence")
    time_axis = normalise_axis(time_axis, x.rank, "ReverseSequence")
    extent = x.shape[time_axis]
    wanted = (x.shape[batch_axis],)
    assume_shape(lengths.shape, wanted, "ReverseSequence", "The tensor of lengths")

    def body(*at: Dim) -> Scalar:
        time = scalar.size(at[time_axis])
        given = scalar.load(lengths, (at[batch_axis],))
        length = scalar.check_range(given, "sequence_lens", 0, extent)
        moved = scalar.as_index(scalar.select(time < length, length - 1 - time, time), extent)
        return scalar.load(x, (*at[:time_axis], moved, *at[time_axis + 1 :]))

    return compute(x.shape, body)


def top_k(x: Tensor, k: Dim, axis: int, largest: int = 1, is_sorted: int = 1) -> tuple[Tensor, ...]:
    """(values, positions) of the k largest or smallest elements along an axis."""
    axis = normalise_axis(axis, x.rank, "TopK")
    extent = x.shape[axis]
    if isinstance(k, int) and (k < 0 or (isinstance(extent, int) and k > extent)):
        raise InvalidGraph(message("TopK", f"There are no {k} elements along an axis of {extent}"))
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return make_call(
        "top_k",
        (x,),
        ((shape, x.dtype), (shape, dtypes.INT64)),
        axis=axis,
        largest=bool(largest),
        sorted=bool(is_sorted),
    )


@op("TopK", 1)
def top_k_1(x: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, ...]:
    """The k largest along an axis, and where they were."""
    return top_k(x, k, axis, 1, 1)


@op("TopK", 10, 11, 24, added={"largest": 11, "sorted": 11})
def top_k_10(
    x: Tensor, k: Tensor, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, ...]:
    """The k largest or smallest along an axis, and where they were."""
    check_list(k, "The number of elements")
    extent = x.shape[normalise_axis(axis, x.rank, "TopK")]
    # A limit that is no number may be known later than what it limits: that is left to the kernel.
    is_limit = isinstance(extent, int) and elements_of(k) is None
    most = extent if is_limit else LARGEST
    (count,) = contents(k, "The number of elements", 0, most)
    return top_k(x, count, axis, largest, sorted)
