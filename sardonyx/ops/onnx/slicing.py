"""Parts of tensors and tensors of parts: Slice, Split, Concat, Gather."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer, quotients
from sardonyx.base.dtypes import INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import DataDependent, contents, integers
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.chosen_axes import chosen_axes, in_a_row, scattered, stack
from sardonyx.tensor import language as t
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor

_VIEW = ("view", "strings")


def _sliced(
    x: Tensor,
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Tensor:
    for name, given in (("ends", ends), ("axes", axes), ("steps", steps)):
        if given is not None and len(given) != len(starts):
            raise InvalidGraph(message("Slice", f"{len(starts)} starts, but {len(given)} {name}"))
    if axes is not None:
        t.normalise_axes(axes, len(x.shape), "Slice")
    return t.slice_tensor(x, starts, ends, axes, steps)


@op("Slice", 1, flags=_VIEW)
def slice_1(
    x: Tensor, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Tensor:
    """From `starts` to `ends`, given by attributes."""
    return _sliced(x, starts, ends, axes, None)


@op("Slice", 10, 11, 13, flags=_VIEW)
def slice_10(
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """From `starts` to `ends` by `steps`, given by inputs."""
    try:
        known_axes = None if axes is None else integers(axes, "The axes")
        known_steps = None if steps is None else integers(steps, "The steps")
    except DataDependent:
        return _sliced_in_run(x, starts, ends, axes, steps)
    return _sliced(
        x,
        contents(starts, "A start", nearest=True),
        contents(ends, "An end", nearest=True),
        known_axes,
        known_steps,
    )


@op("Concat", 1, flags=_VIEW)
def concat_1(*inputs: Tensor, axis: int = 1) -> Tensor:
    """One after the other along an axis, by default that of the channels."""
    return concat_4(*inputs, axis=axis)


def _sliced_in_run(
    x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None, steps: Tensor | None
) -> Tensor:
    """The same by axes or steps that only a run knows: first, step and length of every axis."""
    first = in_a_row(starts, "Slice")
    (count,) = first.shape
    if axes is None:
        listed = t.compute((count,), lambda k: scalar.size(k))
    else:
        listed = in_a_row(axes, "Slice")
    given = [first, in_a_row(ends, "Slice"), listed]
    given += [] if steps is None else [in_a_row(steps, "Slice")]
    for other in given[1:]:
        t.assume_equal(count, other.shape[0], "Slice", "The numbers of bounds differ")
    flags = chosen_axes(listed, x.rank, "Slice")
    begin, end, stride = (
        scattered(listed, values, x.rank)
        for values in (*given[:2], 1 if steps is None else given[3])
    )
    firsts: list[Scalar] = []
    strides: list[Scalar] = []
    lengths: list[Scalar] = []
    for axis, (flag, d) in enumerate(zip(flags, x.shape, strict=True)):
        chosen = scalar.compare("eq", scalar.size(flag), 1)
        extent, at = scalar.size(d), (axis,)
        most = scalar.binary("max", extent, 1)  # longer steps end after the first element, too
        step = scalar.select(chosen, scalar.clamp(scalar.load(stride, at), -most, most), 1)
        low = scalar.select(chosen, _bounded(scalar.load(begin, at), step, extent, 0), 0)
        high = scalar.select(chosen, _bounded(scalar.load(end, at), step, extent, -1), extent)
        way = scalar.select(step > 0, high - low, low - high)
        size = scalar.binary("max", scalar.unary("abs", step), 1)
        more = scalar.binary("max", way + (size - 1), 0)
        firsts.append(low)
        strides.append(step)
        lengths.append(scalar.binary("div", more, size))
    at_first = contents(stack(firsts), "A start")
    steps_ = contents(stack(strides), "A step")
    shape = contents(stack(lengths), "A length", 0)
    for step_ in steps_:
        t.assume_equal(integer.minimum(step_ * step_, 1), 1, "Slice", "A step is 0")
    moves = list(zip(at_first, steps_, strict=True))
    return t.reindex(
        x,
        shape,
        lambda *at: [f + i * s for i, (f, s) in zip(at, moves, strict=True)],
    )


def _bounded(bound: Scalar, step: Scalar, extent: Scalar, least_backward: int) -> Scalar:
    """A bound counted from the front, between the ends of the axis."""
    front = scalar.select(bound < 0, bound + extent, bound)
    ahead = step > 0
    low = scalar.select(ahead, 0, scalar.lift(least_backward, INT64))
    high = scalar.select(ahead, extent, extent - 1)
    return scalar.clamp(front, low, high)


@op("Concat", 4, 11, 13, flags=_VIEW)
def concat_4(*inputs: Tensor, axis: int) -> Tensor:
    """One after the other along an axis."""
    if not inputs:
        raise InvalidGraph(message("Concat", "It needs an input"))
    return t.concat(inputs, axis)


def _split(
    x: Tensor,
    axis: int,
    lengths: Sequence[Dim] | None,
    output_count: int,
    *,
    uneven: bool = False,
) -> tuple[Tensor, ...]:
    axis = t.normalise_axis(axis, len(x.shape), "Split")
    if lengths is None:
        extent = x.shape[axis]
        exact = quotients.exact_quotient(extent, output_count)
        if not uneven:
            each = integer.floordiv(extent, output_count)
            what = f"Its axis does not fall into {output_count} equal parts"
            t.assume_equal(extent, each * output_count, "Split", what)
        length = integer.ceildiv(extent, output_count) if exact is None else exact
        last = extent + length * (1 - output_count)
        lengths = [length] * (output_count - 1) + [last]
    if len(lengths) != output_count or any(isinstance(d, int) and d < 0 for d in lengths):
        raise InvalidGraph(
            message("Split", f"{len(lengths)} lengths do not fit {output_count} outputs")
        )
    return t.split(x, axis, lengths)


@op("Split", 1, flags=_VIEW)
def split_1(
    x: Tensor,
    lengths: Tensor | None = None,
    *,
    output_count: int,
    axis: int = 0,
    split: Sequence[int] | None = None,
) -> tuple[Tensor, ...]:
    """Parts whose lengths an attribute or an input gives, by default equal ones."""
    if lengths is not None:
        return _split(x, axis, contents(t.cast(lengths, INT64), "The lengths", 0), output_count)
    return _split(x, axis, split or None, output_count)


@op("Split", 2, 11, flags=_VIEW)
def split_2(
    x: Tensor, *, output_count: int, axis: int = 0, split: Sequence[int] | None = None
) -> tuple[Tensor, ...]:
    """Parts whose lengths an attribute gives, by default equal ones."""
    return _split(x, axis, split or None, output_count)


@op("Split", 13, flags=_VIEW)
def split_13(
    x: Tensor, split: Tensor | None = None, *, output_count: int, axis: int = 0
) -> tuple[Tensor, ...]:
    """Parts whose lengths an input gives, by default equal ones."""
    lengths = None if split is None else contents(split, "The lengths", 0)
    return _split(x, axis, lengths, output_count)


@op("Split", 18, flags=_VIEW)
def split_18(
    x: Tensor,
    split: Tensor | None = None,
    *,
    output_count: int,
    axis: int = 0,
    num_outputs: int | None = None,
) -> tuple[Tensor, ...]:
    """As before; by default `num_outputs` equal ones, the last of which may be shorter."""
    lengths = None if split is None else contents(split, "The lengths", 0)
    if (lengths is None) == (num_outputs is None):
        raise InvalidGraph(message("Split", "Either `split` or `num_outputs` must be given"))
    if num_outputs not in (None, output_count):
        what, got = f"It has {output_count} outputs", f"num_outputs = {num_outputs}"
        raise InvalidGraph(message("Split", what, got=got))
    return _split(x, axis, lengths, output_count, uneven=True)


@op("Gather", 1, 11, 13, flags=_VIEW)
def gather_1(x: Tensor, positions: Tensor, *, axis: int = 0) -> Tensor:
    """Slices along an axis, at positions that are counted from the end if negative."""
    return t.gather(x, positions, axis)
