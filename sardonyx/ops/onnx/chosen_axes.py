"""Axes that only a run knows: which ones an input names, as sizes that are 0 or 1.

The number of axes is known, so there is one such size for each of them, and what depends on the
choice is arithmetic with it: an axis of size d that is reduced if m is 1 has the size
d (1 - m) + m afterwards. One plan holds for every choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.dtypes import INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import DataDependent, contents
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, assume_equal, cast, compute, reindex, reshape
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Shape, indices, make_reduce, reduced_indices

#: For each axis 1 if it is chosen, else 0.
Flags = tuple[Dim, ...]


def in_a_row(x: Tensor, where: str) -> Tensor:
    """Integers, one or a list of them, as int64[count].

    Raises:
        InvalidGraph: There is more than one axis.
    """
    if x.rank > 1:
        raise InvalidGraph(message(where, f"A list is needed, not {list(x.shape)}"))
    return cast(x if x.rank else reshape(x, (1,)), INT64)


def scattered(axes: Tensor, values: Tensor | int, rank: int) -> Tensor:
    """The values, each at the place that its axis names, and 0 elsewhere: int64[rank].

    Args:
        axes: int64[count], counted from the end if negative; outside `rank` a run faults.
        values: int64[count], or one number for all.
        rank: How many places there are.
    """
    (count,) = axes.shape
    (place,), (j,) = indices((rank,)), reduced_indices((count,))
    axis = scalar.check_index(scalar.load(axes, (j,)), rank)
    value = scalar.lift(values, INT64) if isinstance(values, int) else scalar.load(values, (j,))
    here = scalar.compare("eq", axis, scalar.size(place))
    return make_reduce((rank,), (count,), "sum", scalar.select(here, value, 0), INT64)


def chosen_axes(axes: Tensor, rank: int, where: str, *, none_is_all: bool = False) -> Flags:
    """Which of `rank` axes a tensor names.

    An axis that does not exist, or that comes twice, is refused when a run meets it.

    Args:
        axes: int64[count], counted from the end if negative.
        rank: How many axes there are to choose from.
        where: Who asks, for errors.
        none_is_all: Whether no axis at all means every axis.
    """
    if not rank:
        assume_equal(axes.shape[0], 0, where, "There are no axes to choose from")
        return ()
    (count,) = axes.shape
    empty = 1 - integer.minimum(count, 1)
    if none_is_all:
        named = scattered(axes, 1, rank)
        added = scalar.size(empty)
        named = compute((rank,), lambda k: scalar.load(named, (k,)) + added)
        count = count + empty * rank
    else:
        named = scattered(axes, 1, rank)
    once = compute((rank,), lambda k: scalar.binary("min", scalar.load(named, (k,)), 1))
    found = contents(once, f"{where}: The choice of axes", 0, 1, most=sizes.MOST_AXES)
    assume_equal(sizes.total(found), count, where, "An axis comes twice")
    return found


def spread(x: Tensor, flags: Flags) -> Tensor:
    """The elements with twice as many axes: first those that stay, then those that are chosen.

    An axis of size d becomes one of size d and one of size 1, or the reverse if it is chosen.
    """
    left = tuple(_unless(m, d) for m, d in zip(flags, x.shape, strict=True))
    taken = tuple(_unless(1 - m, d) for m, d in zip(flags, x.shape, strict=True))

    def source(*at: Dim) -> list[Dim]:
        return [i + j for i, j in zip(at[: x.rank], at[x.rank :], strict=True)]

    return reindex(x, (*left, *taken), source)


def _unless(flag: Dim, extent: Dim) -> Dim:
    """1 if an axis is chosen, else its size.

    As a maximum, which is one factor of a product: the same as a sum of products would make 3^n
    terms of the product of n sizes.
    """
    return integer.maximum(flag, extent * (1 - flag))


def without_axes(x: Tensor, flags: Flags, axes: Tensor, where: str) -> Tensor:
    """`x` without the chosen axes, all of size 1.

    Raises:
        DataDependent: Only a run knows how many they are.
    """
    (count,) = axes.shape
    if not isinstance(count, int):
        raise DataDependent(axes, f"The number of axes that are named, {count!r},")
    return reshape(x, _kept(x.shape, flags, x.rank - count, where))


def with_axes(x: Tensor, axes: Tensor, where: str) -> Tensor:
    """`x` with axes of size 1 at the places of the result that a tensor names.

    Raises:
        DataDependent: Only a run knows how many they are.
    """
    (count,) = axes.shape
    if not isinstance(count, int):
        raise DataDependent(axes, f"The number of axes that are named, {count!r},")
    rank = x.rank + count
    flags = chosen_axes(axes, rank, where)
    rows: list[Scalar] = []
    before: Dim = 0
    for flag in flags:
        extent: Scalar = scalar.lift(1, INT64)
        for axis, d in enumerate(x.shape):
            here = scalar.compare("eq", scalar.size(before), axis)
            extent = scalar.select(here, scalar.size(d), extent)
        new = scalar.compare("eq", scalar.size(flag), 1)
        rows.append(scalar.select(new, 1, extent))
        before = before + 1 - flag
    return reshape(x, contents(stack(rows), f"{where}: The shape", 0))


def _kept(shape: Shape, flags: Flags, count: int, where: str) -> tuple[Dim, ...]:
    """The sizes of the axes that are not chosen, in order."""
    if count <= 0:
        return ()

    def body(place: Dim) -> Scalar:
        result: Scalar = scalar.lift(1, INT64)
        before: Dim = 0
        for flag, d in zip(flags, shape, strict=True):
            stays = scalar.compare("eq", scalar.size(flag), 0)
            here = scalar.compare("eq", scalar.size(before), scalar.size(place))
            result = scalar.select(stays & here, scalar.size(d), result)
            before = before + 1 - flag
        return result

    return contents(compute((count,), body), f"{where}: The shape", 0)


def stack(rows: Sequence[Scalar]) -> Tensor:
    """Integers as a tensor of one axis."""

    def body(place: Dim) -> Scalar:
        result = rows[-1]
        for number, row in enumerate(rows[:-1]):
            here = scalar.compare("eq", scalar.size(place), number)
            result = scalar.select(here, row, result)
        return result

    return compute((len(rows),), body, INT64)
