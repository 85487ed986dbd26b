"""Pad."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import DataDependent, contents, integers, with_length
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.chosen_axes import chosen_axes, in_a_row, scattered
from sardonyx.tensor import language as t
from sardonyx.tensor.tensor import Tensor

_MODES = ("constant", "reflect", "edge")


def _padded(
    x: Tensor,
    pads: Sequence[Dim],
    axes: Sequence[int] | None,
    mode: str,
    value: float | Tensor,
    modes: Sequence[str] = _MODES,
) -> Tensor:
    rank = len(x.shape)
    chosen = [t.normalise_axis(a, rank, "Pad") for a in (range(rank) if axes is None else axes)]
    if len(pads) != 2 * len(chosen) or len(set(chosen)) != len(chosen):
        raise InvalidGraph(message("Pad", f"{len(pads)} pads do not fit the axes {chosen}"))
    if mode not in modes:
        raise InvalidGraph(message("Pad", "Bad mode", expected=", ".join(modes), got=repr(mode)))
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for number, axis in enumerate(chosen):
        before[axis], after[axis] = pads[number], pads[number + len(chosen)]
        left = sizes.total((before[axis], x.shape[axis], after[axis]))
        what = f"It removes more of axis {axis} than there is"
        if integer.is_nonnegative(-left - 1):
            raise InvalidGraph(message("Pad", what, got=f"{before[axis]} and {after[axis]}"))
        t.assume_equal(integer.maximum(left, 0), left, "Pad", what)
    return t.pad(x, before, after, mode, value)


def _value(x: Tensor, value: Tensor | None) -> float | Tensor:
    if value is None:
        return 0
    if value.dtype is not x.dtype:
        raise InvalidGraph(message("Pad", f"A {value.dtype} cannot pad {x.dtype}"))
    return t.reshape(value, ())


@op("Pad", 1)
def pad_1(
    x: Tensor, *, paddings: Sequence[int], mode: str = "constant", value: float = 0.0
) -> Tensor:
    """With elements added before and after, counts given by an attribute of another name."""
    return _padded(x, paddings, None, mode, value)


def _counts(
    x: Tensor, pads: Tensor, axes: Tensor | None
) -> tuple[Sequence[Dim], Sequence[int] | None]:
    """The counts, and the axes that they are for; None: for all."""
    try:
        chosen = None if axes is None else integers(axes, "The axes")
        needed = 2 * (x.rank if chosen is None else len(chosen))
        return contents(with_length(pads, needed, "The pads"), "The pads"), chosen
    except DataDependent as reason:
        if axes is None or reason.tensor is not axes:
            raise
    listed, counts = in_a_row(axes, "Pad"), in_a_row(pads, "Pad")
    (count,) = listed.shape
    t.assume_equal(counts.shape[0], count * 2, "Pad", "The pads do not fit the axes")
    chosen_axes(listed, x.rank, "Pad")
    before, after = (
        contents(scattered(listed, t.slice_axis(counts, 0, low, high), x.rank), "The pads")
        for low, high in ((0, count), (count, count * 2))
    )
    return (*before, *after), None


@op("Pad", 2, flags=("strings",))
def pad_2(x: Tensor, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """With elements added before and after, counts given by an attribute."""
    return _padded(x, pads, None, mode, value)


@op("Pad", 11, 13, flags=("strings",))
def pad_11(
    x: Tensor, pads: Tensor, value: Tensor | None = None, *, mode: str = "constant"
) -> Tensor:
    """With elements added before and after, counts given by an input."""
    return _padded(
        x,
        contents(with_length(pads, 2 * x.rank, "The pads"), "The pads"),
        None,
        mode,
        _value(x, value),
    )


@op("Pad", 18, flags=("strings",))
def pad_18(
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """As before, of some axes only."""
    counts, chosen = _counts(x, pads, axes)
    return _padded(x, counts, chosen, mode, _value(x, value))


@op("Pad", 19, 21, 23, 24, flags=("strings",))
def pad_19(
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """As before, with the mode `wrap`."""
    counts, chosen = _counts(x, pads, axes)
    modes = (*_MODES, "wrap")
    return _padded(x, counts, chosen, mode, _value(x, value), modes)
