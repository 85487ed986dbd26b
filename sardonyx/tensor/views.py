"""Index maps: tensors whose elements are elements of others, moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.tensor import scalar
from sardonyx.tensor.assumptions import assume_equal, assume_several, broadcasts_are_undecided
from sardonyx.tensor.elementwise import broadcast_shapes, compute, load_broadcast
from sardonyx.tensor.reduction import normalise_axes, normalise_axis
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Shape, Tensor, indices, make_map

#: Exporters write bounds like this for "to the end".
_BEYOND_ALL = 2**31 - 1


def reindex(x: Tensor, shape: Shape, source: Callable[..., Sequence[Dim]]) -> Tensor:
    """The tensor whose element at (i0, ...) is that of `x` at `source(i0, ...)`."""
    return make_map(shape, scalar.load(x, tuple(source(*indices(shape)))))


def _reindex_axis(x: Tensor, axis: int, extent: Dim, source: Callable[[Dim], Dim]) -> Tensor:
    shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    at = indices(shape)
    moved = (*at[:axis], source(at[axis]), *at[axis + 1 :])
    return make_map(shape, scalar.load(x, moved))


def transpose(x: Tensor, order: Sequence[int] | None = None) -> Tensor:
    """Axis k of the result is axis `order[k]` of `x`; by default the axes are reversed."""
    rank = len(x.shape)
    wanted = list(range(rank))[::-1] if order is None else [normalise_axis(a, rank) for a in order]
    if sorted(wanted) != list(range(rank)):
        raise InvalidGraph(message("transpose", f"{list(order or ())} is no order of {rank} axes"))
    shape = tuple(x.shape[axis] for axis in wanted)
    at = indices(shape)
    source: list[Dim] = [0] * rank
    for position, axis in enumerate(wanted):
        source[axis] = at[position]
    return make_map(shape, scalar.load(x, tuple(source)))


def expand(x: Tensor, shape: Shape) -> Tensor:
    """Repeated along axes of size 1, in both directions as ONNX has it."""
    common = broadcast_shapes(x.shape, tuple(shape))
    if common == x.shape:
        return x
    return make_map(common, load_broadcast(x, indices(common)))


def broadcast_to(x: Tensor, shape: Shape) -> Tensor:
    """Repeated to exactly this shape."""
    return x if shape == x.shape else make_map(shape, load_broadcast(x, indices(shape)))


def squeeze(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Without axes of size 1: those given, or all whose size is 1, as far as a plan knows."""
    if axes is None:
        what = f"An axis of {list(x.shape)} may be 1"
        dropped = tuple(
            k
            for k, d in enumerate(x.shape)
            if (d == 1 if isinstance(d, int) else not assume_several(d, what))
        )
    else:
        dropped = normalise_axes(axes, len(x.shape), "squeeze")
    for axis in dropped:
        assume_equal(x.shape[axis], 1, "squeeze", f"Axis {axis} of {list(x.shape)} is not 1")
    shape = tuple(d for k, d in enumerate(x.shape) if k not in dropped)
    left = iter(indices(shape))
    return make_map(
        shape, scalar.load(x, tuple(0 if k in dropped else next(left) for k in range(len(x.shape))))
    )


def unsqueeze(x: Tensor, axes: Sequence[int]) -> Tensor:
    """With axes of size 1 at these positions of the result."""
    rank = len(x.shape) + len(tuple(axes))
    added = normalise_axes(axes, rank, "unsqueeze")
    old = iter(x.shape)
    shape = tuple(1 if k in added else next(old) for k in range(rank))
    at = indices(shape)
    return make_map(shape, scalar.load(x, tuple(i for k, i in enumerate(at) if k not in added)))


def flip(x: Tensor, axis: int) -> Tensor:
    """Reversed along an axis."""
    axis = normalise_axis(axis, len(x.shape), "flip")
    extent = x.shape[axis]
    return _reindex_axis(x, axis, extent, lambda i: extent - 1 - i)


def _from_front(position: Dim, extent: Dim) -> Dim:
    """A bound that is counted from the end if negative, counted from the front."""
    if integer.is_nonnegative(position):
        return position
    if integer.is_nonnegative(-1 - position):
        return extent + position
    if sizes.is_measured(position) or broadcasts_are_undecided():
        negative = integer.minimum(integer.maximum(-position, 0), 1)
        return position + extent * negative
    if integer.is_nonnegative(-position):
        # -size, as of x[:, -length:]: of a size that is not 0, a place counted from the end.
        lower = integer.minimum(position, -1)
        assume_equal(position, lower, "slice", "A bound is the negative of a size that is 0")
        return extent + position
    # Its sign is not known: exporters mean sizes, which are not negative.
    assume_equal(position, integer.maximum(position, 0), "slice", "A bound changes its sign")
    return position


#: No axis is as long: a longer step, too, would end after the first element.
_LONGEST_STEP = 1 << 60


def _clamp(position: Dim, low: Dim, high: Dim) -> Dim:
    return integer.minimum(integer.maximum(position, low), high)


def _bound(position: Dim, extent: Dim, low: Dim, high: Dim) -> Dim:
    if isinstance(position, int) and abs(position) >= _BEYOND_ALL:
        return high if position > 0 else low
    front = _from_front(position, extent)
    clamped = _clamp(front, low, high)
    exact = isinstance(extent, int) or sizes.is_measured(extent) or broadcasts_are_undecided()
    if clamped is not front and not exact and position in (-1, 1):
        # x[-1:], x[:-1], x[:1] and x[1:] of an axis that is never empty in practice.
        assume_equal(clamped, front, "slice", "The axis is empty")
        return front
    return clamped


def slice_axis(x: Tensor, axis: int, start: Dim | None, stop: Dim | None, step: int = 1) -> Tensor:
    """`x[start:stop:step]` along one axis, with ONNX's meaning of bounds beyond the ends.

    It is Python's, but that a walk backward starts at the first element where it would start before
    it (ONNX operator spec: Slice).
    """
    axis = normalise_axis(axis, len(x.shape), "slice")
    extent = x.shape[axis]
    if step == 0:
        raise InvalidGraph(message("slice", "The step is 0"))
    step = max(-_LONGEST_STEP, min(step, _LONGEST_STEP))
    if step > 0:
        first = 0 if start is None else _bound(start, extent, 0, extent)
        last = extent if stop is None else _bound(stop, extent, 0, extent)
        length = integer.ceildiv(last - first, step)
    else:
        first = extent - 1 if start is None else _bound(start, extent, 0, extent - 1)
        last = -1 if stop is None else _bound(stop, extent, -1, extent - 1)
        length = integer.ceildiv(first - last, -step)
    # Bounds lie inside the axis, so from or to an end the length cannot be negative.
    whole = (first == 0 or last is extent) if step > 0 else last == -1
    length = length if whole else integer.maximum(length, 0)
    if length is extent and step == 1:
        return x
    if isinstance(length, int) and length == extent and step == 1:
        return x
    return _reindex_axis(x, axis, length, lambda i: first + i * step)


def slice_tensor(
    x: Tensor,
    starts: Sequence[Dim | None],
    stops: Sequence[Dim | None],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Tensor:
    """Several axes sliced, the first ones by default."""
    for number, start in enumerate(starts):
        axis = number if axes is None else axes[number]
        x = slice_axis(x, axis, start, stops[number], 1 if steps is None else steps[number])
    return x


#: Each is a choice inside the one before it.
_MOST_PARTS = 32


def concat(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors one after the other along an axis."""
    first = parts[0]
    rank = len(first.shape)
    axis = normalise_axis(axis, rank, "concat")
    shape = list(first.shape)
    for part in parts[1:]:
        if part.dtype is not first.dtype:
            raise InvalidGraph(message("concat", f"The types {first.dtype}, {part.dtype} differ"))
        if len(part.shape) != rank:
            raise InvalidGraph(message("concat", f"The ranks {rank}, {len(part.shape)} differ"))
        for k, d in enumerate(part.shape):
            if k != axis:
                assume_equal(shape[k], d, "concat", f"The sizes of axis {k} differ")
                shape[k] = d if isinstance(d, int) else shape[k]
    used = [part for part in parts if part.shape[axis] != 0] or [first]
    if len(used) == 1:
        return used[0]
    begins = running_totals(part.shape[axis] for part in used)
    shape[axis] = begins[-1]
    at = indices(tuple(shape))
    elements = [
        scalar.load(part, (*at[:axis], at[axis] - begin, *at[axis + 1 :]))
        for part, begin in zip(used, begins, strict=False)
    ]
    return make_map(tuple(shape), _chosen(scalar.size(at[axis]), elements, begins[1:]))


def _chosen(position: Scalar, elements: Sequence[Scalar], ends: Sequence[Dim]) -> Scalar:
    """The element of the first part that ends behind a position."""
    if len(elements) > _MOST_PARTS:  # a tree: of thousands one is found in few steps
        half = len(elements) // 2
        choices = [slice(half), slice(half, None)]
        parts = [_chosen(position, elements[half_], ends[half_]) for half_ in choices]
        return _before(position, ends[half - 1], *parts)
    value = elements[-1]
    for element, end in zip(elements[-2::-1], ends[-2::-1], strict=True):
        value = _before(position, end, element, value)
    return value


def _before(position: Scalar, end: Dim, element: Scalar, other: Scalar) -> Scalar:
    """One element before an index, and another from there on: no size makes it the same one.

    That is not proven again for each part, as it would take as long as all else.
    """
    condition = scalar.make_node("lt", dtypes.BOOL, (position, scalar.size(end)))
    return scalar.select(condition, element, other)


def split(x: Tensor, axis: int, lengths: Sequence[Dim]) -> tuple[Tensor, ...]:
    """Parts of these lengths along an axis; their sum must be its size."""
    axis = normalise_axis(axis, len(x.shape), "split")
    begins = running_totals(lengths)
    assume_equal(begins[-1], x.shape[axis], "split", "The lengths do not add up")
    found = []
    for length, offset in zip(lengths, begins, strict=False):
        found.append(_reindex_axis(x, axis, length, lambda i, offset=offset: i + offset))  # type: ignore[misc]  # a default binds the loop's variable
    return tuple(found)


def running_totals(lengths: Iterable[Dim]) -> list[Dim]:
    """Where each of some parts begins, and where the last one ends; long sums are summarised."""
    found: list[Dim] = [0]
    for length in lengths:
        found.append(integer.summarised(found[-1] + length))
    return found


def tile(x: Tensor, repeats: Sequence[Dim]) -> Tensor:
    """Repeated as a whole along every axis."""
    shape = tuple(d * r for d, r in zip(x.shape, repeats, strict=True))

    def source(*at: Dim) -> list[Dim]:
        return [
            i if r == 1 else integer.modulo(i, d) if d != 1 else 0
            for i, d, r in zip(at, x.shape, repeats, strict=True)
        ]

    return reindex(x, shape, source)


def pad(
    x: Tensor,
    before: Sequence[Dim],
    after: Sequence[Dim],
    mode: str = "constant",
    value: float | bool | Tensor = 0,
) -> Tensor:
    """With elements added before and after along every axis; negative counts take away.

    Modes: `constant` (with `value`), `edge`, `reflect` (without repeating the edge), `wrap`.
    """
    shape = tuple(
        integer.maximum(sizes.total((b, d, a)), 0)
        for b, d, a in zip(before, x.shape, after, strict=True)
    )
    at = indices(shape)
    source: list[Dim] = []
    inside: Scalar | None = None
    for axis, (i, extent) in enumerate(zip(at, x.shape, strict=True)):
        low, high = before[axis], after[axis]
        if low == 0 and high == 0:
            source.append(i)
            continue
        position = i - low
        if mode == "constant":
            source.append(position)
            for test in _inside(position, extent, low, high):
                inside = test if inside is None else inside & test
            continue
        # Negative counts take away first, so that what is repeated lies inside what is left.
        first, last = integer.minimum(low, 0), integer.minimum(high, 0)
        left = sizes.total((extent, first, last))
        assume_equal(integer.minimum(left, 1), 1, "pad", f"Axis {axis} is empty")
        folded = _folded(position + first, left, mode)
        source.append(folded - first)
    element = scalar.load(x, tuple(source))
    if inside is not None:
        filling = value[()] if isinstance(value, Tensor) else scalar.lift(value, x.dtype)
        element = scalar.select(inside, element, filling)
    return make_map(shape, element)


def _inside(position: Dim, extent: Dim, low: Dim, high: Dim) -> list[Scalar]:
    tests = []
    if not integer.is_nonnegative(-low):
        tests.append(scalar.size(position) >= 0)
    if not integer.is_nonnegative(-high):
        tests.append(scalar.size(position) < scalar.size(extent))
    return tests


def _folded(position: Dim, extent: Dim, mode: str) -> Dim:
    if mode == "edge":
        return _clamp(position, 0, extent - 1)
    if mode == "wrap":
        return integer.modulo(position, extent)
    if mode == "reflect":
        if extent == 1:
            return 0
        period = integer.maximum((extent - 1) * 2, 1)
        inside = integer.modulo(position, period)
        return integer.minimum(inside, period - inside)
    raise InvalidGraph(message("pad", f"There is no mode {mode!r}"))


def gather(x: Tensor, positions: Tensor, axis: int = 0) -> Tensor:
    """The slices of `x` along an axis at `positions`, whose axes take the place of that axis."""
    axis = normalise_axis(axis, len(x.shape), "gather")
    if positions.dtype not in (dtypes.INT32, dtypes.INT64):
        raise InvalidGraph(message("gather", f"Indices are {positions.dtype}, not int32 or int64"))
    middle = axis + len(positions.shape)
    shape = x.shape[:axis] + positions.shape + x.shape[axis + 1 :]

    def body(*at: Dim) -> Scalar:
        position = scalar.load(positions, at[axis:middle])
        extent = x.shape[axis]
        index = scalar.as_index(scalar.check_index(position, extent), extent)
        return scalar.load(x, (*at[:axis], index, *at[middle:]))

    return compute(shape, body)


def summarised(x: Tensor) -> Tensor:
    """`x`, with symbols in place of long sizes."""
    shape = tuple(map(integer.summarised, x.shape))
    if shape == x.shape:
        return x
    return make_map(shape, scalar.load(x, indices(shape)))
