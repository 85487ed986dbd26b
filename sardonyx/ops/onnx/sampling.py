"""GridSample and AffineGrid: images read at positions that are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import dtypes, errors
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.coordinates import cubic_weight
from sardonyx.ops.onnx.taps import Tap, corners, linear_taps, make_tap, total
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, assume_shape, compute
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Shape

_MODES = {
    "bilinear": "linear", "linear": "linear", "nearest": "nearest",
    "bicubic": "cubic", "cubic": "cubic",
}  # fmt: skip
_PADDINGS = ("zeros", "border", "reflection")


@op("GridSample", 16, 20, 22, flags=("linear", "strings"))
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
    if x.dtype.is_code and kind != "nearest":
        raise errors.NotImplemented(message("GridSample", "Strings are only taken to the nearest"))
    wide = dtypes.DOUBLE if x.dtype is dtypes.DOUBLE else dtypes.FLOAT
    sampler = _Sampler(x.shape[2:], padding_mode, bool(align_corners), wide)
    places = (x.shape[0], *grid.shape[1:-1])

    def position(axis: int) -> Callable[..., Scalar]:
        def body(*at: Dim) -> Scalar:
            read = scalar.load(grid, (*at, rank - 1 - axis))
            return sampler.position(scalar.cast(read, wide), axis)

        return body

    taps = [sampler.taps(places, position(axis), axis, kind) for axis in range(rank)]

    def body(*at: Dim) -> Scalar:
        place = (at[0], *at[2:])
        # One element is taken as it is: integers may be larger than floats are exact.
        kept = x.dtype if kind == "nearest" else wide
        return total(corners(x, at[:2], [(along, place) for along in taps], kept))

    return compute((*x.shape[:2], *grid.shape[1:-1]), body, x.dtype)


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

    def taps(
        self, shape: Shape, position: Callable[..., Scalar], axis: int, kind: str
    ) -> list[Tap]:
        """The elements along one axis that the values at positions are made of."""
        length = self.lengths[axis]

        def folded(*at: Dim) -> Scalar:
            return self._folded(position(*at), axis)

        if kind == "nearest":
            # The edge is folded first, so that halves round as they do inside.
            def nearest(*at: Dim) -> Scalar:
                return self._inside(scalar.unary("round", folded(*at)), axis)

            return [make_tap(shape, length, nearest, None)]
        if kind == "linear":
            return linear_taps(shape, length, folded, lambda index: self._inside(index, axis))

        def cubic(step: float) -> Tap:
            def place(*at: Dim) -> Scalar:
                base = scalar.unary("floor", position(*at))
                return self._inside(self._folded(base + step, axis), axis)

            def weight(*at: Dim) -> Scalar:
                here = position(*at)
                return cubic_weight(here - scalar.unary("floor", here) - step, -0.75)

            return make_tap(shape, length, place, weight)

        return [cubic(float(step)) for step in range(-1, 3)]

    def _inside(self, index: Scalar, axis: int) -> Scalar:
        """A whole index that is inside, if the padding is not zero, whatever was rounded."""
        if self.padding == "zeros":
            return index
        last = self._length(axis) - 1.0
        return scalar.binary("max", scalar.binary("min", index, last), 0.0)

    def _folded(self, position: Scalar, axis: int) -> Scalar:
        """A position outside of the image moved into it, as the padding says."""
        if self.padding == "zeros":
            return position
        length = self._length(axis)
        if self.padding == "border":
            return scalar.clamp(position, 0.0, length - 1.0)
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
        several = scalar.size(length) > 1
        return scalar.select(several, at * 2.0 / (count - 1.0) - 1.0, 0.0)

    def body(*at: Dim) -> Scalar:
        row = at[-1]
        total = scalar.load(theta, (at[0], row, rank))
        for axis in range(rank):
            position = regular(at[1 + axis], space[axis])
            total = total + scalar.load(theta, (at[0], row, rank - 1 - axis)) * position
        return total

    return compute((shape[0], *space, rank), body)
