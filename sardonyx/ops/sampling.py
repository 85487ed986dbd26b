"""GridSample and AffineGrid: images read at positions that are computed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.coordinates import clamped, cubic_weight
from sardonyx.ops.registry import contents, op
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, assume_shape, compute
from sardonyx.tensor.scalar import Scalar

_MODES = {
    "bilinear": "linear", "linear": "linear", "nearest": "nearest",
    "bicubic": "cubic", "cubic": "cubic",
}  # fmt: skip
_PADDINGS = ("zeros", "border", "reflection")


@op("GridSample", 16, 20, 22)
def grid_sample(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    """The image at the positions of a grid, from -1 to 1, the last axis of the image first."""
    rank = x.rank - 2
    if rank < 1 or grid.rank != x.rank:
        raise InvalidGraph(
            message("GridSample", f"An image of rank {x.rank}, a grid of rank {grid.rank}")
        )
    assume_shape(grid.shape[:1], x.shape[:1], "GridSample", "The batch of the grid")
    assume_shape(grid.shape[-1:], (rank,), "GridSample", "The last axis of the grid")
    kind = _MODES.get(mode)
    if kind is None or padding_mode not in _PADDINGS:
        raise InvalidGraph(message("GridSample", f"No mode {mode!r} with padding {padding_mode!r}"))
    wide = dtypes.DOUBLE if x.dtype is dtypes.DOUBLE else dtypes.FLOAT
    sampler = _Sampler(x.shape[2:], padding_mode, bool(align_corners), wide)

    def body(*at: Dim) -> Scalar:
        taps = []
        for axis in range(rank):
            read = scalar.load(grid, (at[0], *at[2:], rank - 1 - axis))
            position = sampler.position(scalar.cast(read, wide), axis)
            taps.append(sampler.taps(position, axis, kind))
        total: Scalar | None = None
        for chosen in itertools.product(*taps):
            value = scalar.cast(scalar.load(x, (*at[:2], *[c[0] for c in chosen])), wide)
            condition: Scalar | None = None
            for _, _, inside in chosen:
                if inside is not None:
                    condition = inside if condition is None else condition & inside
            if condition is not None:
                value = scalar.select(condition, value, 0.0)
            for _, weight, _ in chosen:
                if weight is not None:
                    value = value * weight
            total = value if total is None else total + value
        assert total is not None  # noqa: S101 - there is at least one tap
        return total

    return compute((*x.shape[:2], *grid.shape[1:-1]), body, x.dtype)


#: (index, weight, whether it is inside); None for a weight of 1 and for always.
_Tap = tuple[Dim, Scalar | None, Scalar | None]


class _Sampler:
    def __init__(
        self, lengths: Sequence[Dim], padding: str, align_corners: bool, wide: DType
    ) -> None:
        self.lengths, self.padding, self.align_corners = lengths, padding, align_corners
        self.wide = wide

    def _length(self, axis: int) -> Scalar:
        return scalar.cast(scalar.size(self.lengths[axis]), self.wide)

    def position(self, value: Scalar, axis: int) -> Scalar:
        """-1 to 1 in units of elements."""
        length = self._length(axis)
        if self.align_corners:
            return (value + 1.0) * 0.5 * (length - 1.0)
        return ((value + 1.0) * length - 1.0) * 0.5

    def taps(self, position: Scalar, axis: int, kind: str) -> list[_Tap]:
        """The elements along one axis that the value at a position is made of."""
        if kind == "nearest":
            # The edge is folded first, so that halves round as they do inside.
            folded = self._folded(position, axis)
            return [self._tap(scalar.unary("round", folded), None, axis)]
        if kind == "linear":
            folded = self._folded(position, axis)
            base = scalar.unary("floor", folded)
            fraction = folded - base
            return [
                self._tap(base, 1.0 - fraction, axis), self._tap(base + 1.0, fraction, axis)
            ]  # fmt: skip
        base = scalar.unary("floor", position)
        fraction = position - base
        return [
            self._tap(
                self._folded(base + float(step), axis),
                cubic_weight(fraction - float(step), -0.75),
                axis,
            )
            for step in range(-1, 3)
        ]

    def _tap(self, index: Scalar, weight: Scalar | None, axis: int) -> _Tap:
        inside: Scalar | None = None
        if self.padding == "zeros":
            inside = (index >= 0.0) & (index <= self._length(axis) - 1.0)
        return clamped(index, self.lengths[axis]), weight, inside

    def _folded(self, position: Scalar, axis: int) -> Scalar:
        """A position outside of the image moved into it, as the padding says."""
        if self.padding == "zeros":
            return position
        length = self._length(axis)
        if self.padding == "border":
            return scalar.binary("min", scalar.binary("max", position, 0.0), length - 1.0)
        low = scalar.constant(0.0 if self.align_corners else -0.5, self.wide)
        span = length - (1.0 if self.align_corners else 0.0)
        # Distance from the lower edge, folded at every multiple of the span.
        distance = scalar.unary("abs", position - low)
        turns = scalar.unary("floor", distance / span)
        rest = distance - turns * span
        odd = turns - scalar.unary("floor", turns * 0.5) * 2.0
        folded = scalar.select(odd < 0.5, rest, span - rest) + low
        degenerate = span <= 0.0
        return scalar.select(degenerate, scalar.constant(0.0, self.wide), folded)


@op("AffineGrid", 20)
def affine_grid(theta: Tensor, size: Tensor, *, align_corners: int = 0) -> Tensor:
    """Positions, -1 to 1, that affine maps take the positions of a regular grid to."""
    shape = contents(size, "The size")
    space = shape[2:]
    rank = len(space)
    if theta.rank != 3 or rank not in (2, 3):
        raise InvalidGraph(message("AffineGrid", f"A size of {len(shape)} numbers does not fit"))
    assume_shape(theta.shape, (shape[0], rank, rank + 1), "AffineGrid", "The tensor theta")
    dtype = theta.dtype

    def regular(o: Dim, length: Dim) -> Scalar:
        at = scalar.cast(scalar.size(o), dtype)
        count = scalar.cast(scalar.size(length), dtype)
        if not align_corners:
            return (at * 2.0 + 1.0) / count - 1.0
        several = scalar.compare("gt", scalar.size(length), 1)
        return scalar.select(several, at * 2.0 / (count - 1.0) - 1.0, 0.0)

    def body(*at: Dim) -> Scalar:
        row = at[-1]
        total = scalar.load(theta, (at[0], row, rank))
        for axis in range(rank):
            position = regular(at[1 + axis], space[axis])
            total = total + scalar.load(theta, (at[0], row, rank - 1 - axis)) * position
        return total

    return compute((shape[0], *space, rank), body)
