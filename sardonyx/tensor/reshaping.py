"""Reshape as an index map, kept simple by matching groups of axes."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer, quotients, sizes
from sardonyx.base.sizes import Dim
from sardonyx.tensor import scalar
from sardonyx.tensor.assumptions import assume_equal
from sardonyx.tensor.tensor import Shape, Tensor, indices, make_map


def _prefixes(shape: Shape) -> list[tuple[int, Dim]]:
    """(axis, product of the sizes up to and with it) for every axis that is not of size 1."""
    found = []
    count: Dim = 1
    for axis, size in enumerate(shape):
        if size != 1:
            count = count * size
            found.append((axis, count))
    return found


def _groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Axes of both shapes in the smallest runs whose numbers of elements agree."""
    left, right = _prefixes(old), _prefixes(new)
    ends = {count: position for position, (_, count) in enumerate(left)}
    groups = []
    old_start = new_start = 0
    for position, (_, count) in enumerate(right):
        end = ends.get(count)
        if end is not None and end >= old_start:
            groups.append(
                (
                    [axis for axis, _ in left[old_start : end + 1]],
                    [axis for axis, _ in right[new_start : position + 1]],
                )
            )
            old_start, new_start = end + 1, position + 1
    if old_start < len(left) or new_start < len(right):
        rest = [axis for axis, _ in left[old_start:]], [axis for axis, _ in right[new_start:]]
        groups.append(rest)
    return groups


def source_indices(old: Shape, new: Shape, at: Sequence[Dim]) -> tuple[Dim, ...]:
    """Where the element at `at` of the new shape is in the old one."""
    source: list[Dim] = [0] * len(old)
    for old_axes, new_axes in _groups(old, new):
        if len(old_axes) == len(new_axes) == 1:
            source[old_axes[0]] = at[new_axes[0]]
            continue
        position: Dim = 0
        for axis in new_axes:
            position = position * new[axis] + at[axis]
        for number in range(len(old_axes) - 1, 0, -1):
            axis = old_axes[number]
            source[axis] = integer.modulo(position, old[axis])
            position = integer.floordiv(position, old[axis])
        if old_axes:
            source[old_axes[0]] = position
    return tuple(source)


def reshape(x: Tensor, shape: Sequence[Dim]) -> Tensor:
    """The same elements in row-major order. The numbers of elements must agree.

    Raises:
        InvalidGraph: They provably differ.
    """
    new = tuple(shape)
    if new == x.shape:
        return x
    count, wanted = sizes.product(x.shape), sizes.product(new)
    assume_equal(
        count, wanted, "reshape", f"{list(x.shape)} has not as many elements as {list(new)}"
    )
    at = indices(new)
    if count == 0 or wanted == 0:
        return make_map(new, scalar.load(x, (0,) * len(x.shape)))
    return make_map(new, scalar.load(x, source_indices(x.shape, new, at)))


def infer_reshape(x: Tensor, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """`shape` with its one -1 replaced by what remains of the elements of `x`."""
    new = list(shape)
    if new.count(-1) == 1:
        hole = new.index(-1)
        known = sizes.product(d for k, d in enumerate(new) if k != hole)
        new[hole] = 0 if known == 0 else _quotient(sizes.product(x.shape), known)
    return tuple(new)


def _quotient(count: Dim, known: Dim) -> Dim:
    exact = quotients.exact_quotient(count, known)
    return integer.floordiv(count, known) if exact is None else exact
