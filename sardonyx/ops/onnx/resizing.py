"""How a resize is computed: nearest, linear, cubic, along each axis; see `ops/onnx/resize.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import contents
from sardonyx.ops.onnx.coordinates import (
    ResizedAxis,
    clamped,
    cubic_weight,
    round_coordinate,
    within,
)
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    cast,
    clip,
    compute,
)
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices


@dataclass(frozen=True)
class ResizeAttributes:
    """Attributes of Resize, as the specification has them."""

    coordinate_transformation_mode: str
    mode: str
    nearest_mode: str
    antialias: int = 0
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"


class Resizing:
    """The attributes of a resize, and its plan for each axis.

    Attributes:
        wide: The type that is computed in.
        axes: Axis -> where its elements come from; set before `run`.
    """

    def __init__(self, x: Tensor, given: ResizeAttributes) -> None:
        self.x = x
        self.mode, self.rounding = given.mode, given.nearest_mode
        self.cubic_a, self.extrapolation = given.cubic_coeff_a, given.extrapolation_value
        self.exclude_outside, self.antialias = bool(given.exclude_outside), bool(given.antialias)
        self.wide = dtypes.DOUBLE if x.dtype is dtypes.DOUBLE else dtypes.FLOAT
        self.axes: dict[int, ResizedAxis] = {}

    def run(self) -> Tensor:
        """The resized tensor, in the type of the given one."""
        axes = {k: a for k, a in self.axes.items() if not a.is_identity}
        if self.mode == "nearest":
            return self._nearest(axes)
        if self.mode not in ("linear", "cubic"):
            raise InvalidGraph(
                message("Resize", "There is no such mode", expected="nearest, linear or cubic",
                        got=self.mode)
            )  # fmt: skip
        if not axes:
            return self.x
        result = cast(self.x, self.wide)
        taps = self._antialiased if self.antialias else self._interpolated
        if self.mode == "linear" and not self.antialias and len(axes) <= 3:
            # Several axes at once: two reads each are cheaper than a tensor between.
            for together in self._rounds(axes):
                result = self._interpolated(result, together)
        else:
            for k, axis in axes.items():
                result = taps(result, {k: axis})
        result = self._extrapolated(result, axes)
        return self._in_type(result)

    def _rounds(self, axes: dict[int, ResizedAxis]) -> list[dict[int, ResizedAxis]]:
        """The axes that linear interpolation goes along at once.

        Along a last axis that grows by no whole factor elements are found one by one, so the others
        come first: then each is found once instead of for each of their neighbours.
        """
        last = self.x.rank - 1
        axis = axes.get(last)
        if axis is None or len(axes) < 2 or axis.between(indices((axis.output,))[0]) is not None:
            return [axes]
        if not isinstance(axis.length, int) or not isinstance(axis.output, int):
            return [axes]
        if axis.output < axis.length:
            return [axes]
        return [{k: a for k, a in axes.items() if k != last}, {last: axis}]

    def _in_type(self, result: Tensor) -> Tensor:
        if self.x.dtype.is_integer and (self.mode == "cubic" or self.antialias):
            rounded = compute(
                result.shape,
                lambda *at: scalar.unary("round", scalar.load(result, at)),
            )
            low = 0 if self.x.dtype.kind == "u" else -(1 << (self.x.dtype.bits - 1))
            high = low + (1 << self.x.dtype.bits) - 1
            return cast(clip(rounded, float(low), float(high)), self.x.dtype)
        return cast(result, self.x.dtype)

    def _outside(self, at: Sequence[Dim], axes: dict[int, ResizedAxis]) -> Scalar | None:
        condition: Scalar | None = None
        for k, axis in axes.items():
            if axis.mode != "tf_crop_and_resize":
                continue
            position = axis.coordinate(at[k])
            last = scalar.cast(scalar.size(axis.length - 1), self.wide)
            test = (position < 0.0) | (position > last)
            condition = test if condition is None else condition | test
        return condition

    def _extrapolated(self, x: Tensor, axes: dict[int, ResizedAxis]) -> Tensor:
        condition = self._outside(indices(x.shape), axes)
        if condition is None:
            return x
        chosen = condition
        return compute(
            x.shape, lambda *at: scalar.select(chosen, self.extrapolation, scalar.load(x, at))
        )

    def _nearest(self, axes: dict[int, ResizedAxis]) -> Tensor:
        shape = tuple(axes[k].output if k in axes else d for k, d in enumerate(self.x.shape))
        at = indices(shape)
        source = list(at)
        for k, axis in axes.items():
            index = axis.nearest_index(at[k], self.rounding)
            if index is None:
                position = round_coordinate(axis.coordinate(at[k]), self.rounding)
                index = self._tabled_place(clamped(position, axis.length), axis, at[k])
            source[k] = index
        value = scalar.load(self.x, tuple(source))
        outside = self._outside(at, axes)
        if outside is not None:
            value = scalar.select(outside, self.extrapolation, value)
        return compute(shape, lambda *_: value)

    def _weights(self, axis: ResizedAxis, o: Dim) -> list[tuple[Dim, Scalar]]:
        """(index, weight) of every tap of one axis."""
        exact = axis.between(o) if self.mode == "linear" else None
        if exact is not None:
            below, number, parts = exact
            share = scalar.cast(scalar.size(number), self.wide) * (1.0 / parts)
            return [
                (integer.maximum(below, 0), 1.0 - share),
                (integer.minimum(below + 1, axis.length - 1), share),
            ]
        position = axis.coordinate(o)
        if self.mode == "linear":
            last = scalar.cast(scalar.size(axis.length - 1), self.wide)
            position = scalar.clamp(position, 0.0, last)
        base = scalar.unary("floor", position)
        fraction = position - base
        if self.mode == "linear":
            found = [
                (clamped(base, axis.length), 1.0 - fraction),
                (clamped(base + 1.0, axis.length), fraction),
            ]
        else:
            found = self._cubic_weights(axis, base, fraction)
        return [
            (self._tabled_place(place, axis, o), self._tabled(weight, axis, o))
            for place, weight in found
        ]

    def _cubic_weights(
        self, axis: ResizedAxis, base: Scalar, fraction: Scalar
    ) -> list[tuple[Dim, Scalar]]:
        found = []
        for step in range(-1, 3):
            weight = cubic_weight(fraction - float(step), self.cubic_a)
            if self.exclude_outside:
                weight = scalar.select(within(base + float(step), axis.length), weight, 0.0)
            found.append((clamped(base + float(step), axis.length), weight))
        if self.exclude_outside:
            total = found[0][1] + found[1][1] + found[2][1] + found[3][1]
            found = [(index, weight / total) for index, weight in found]
        return found

    def _tabled(self, value: Scalar, axis: ResizedAxis, o: Dim) -> Scalar:
        """What depends on the output's place along an axis alone, from a tensor of all of them.

        It is computed once where sizes are known, and else once in a run.
        """
        if isinstance(o, int):  # there is one place
            return value
        atoms = {sizes.variable(o): indices((axis.output,))[0]}
        table = compute((axis.output,), lambda _: rewrite(value, atoms=atoms))
        return scalar.load(table, (o,))

    def _tabled_place(self, place: Dim, axis: ResizedAxis, o: Dim) -> Dim:
        if not (isinstance(axis.length, int) and axis.length < 2**31):
            whole = self._tabled(scalar.size(place), axis, o)
        else:
            # Vectors gather by 32-bit numbers in half the time.
            narrow = self._tabled(scalar.cast(scalar.size(place), dtypes.INT32), axis, o)
            whole = scalar.cast(narrow, dtypes.INT64)
        return scalar.as_index(whole, axis.length)

    def _interpolated(self, x: Tensor, axes: dict[int, ResizedAxis]) -> Tensor:
        shape = tuple(axes[k].output if k in axes else d for k, d in enumerate(x.shape))
        at = indices(shape)
        taps = {k: self._weights(axis, at[k]) for k, axis in axes.items()}

        def value(source: tuple[Dim, ...], rest: list[int]) -> Scalar:
            if not rest:
                return scalar.load(x, source)
            axis, *others = rest
            total: Scalar | None = None
            for index, weight in taps[axis]:
                moved = (*source[:axis], index, *source[axis + 1 :])
                term = value(moved, others) * weight
                total = term if total is None else total + term
            assert total is not None  # noqa: S101 - an axis has at least two taps
            return total

        body = value(at, list(axes))
        return compute(shape, lambda *_: body)

    def _support(self, axis: ResizedAxis) -> tuple[float | Scalar, Dim]:
        """How narrow the filter is in the source, and how far it reaches to either side."""
        scale, reach = axis.scale, 2.0 if self.mode == "cubic" else 1.0
        if scale is None:
            if isinstance(axis.length, int) and isinstance(axis.output, int):
                scale = axis.output / axis.length
            else:
                lengths = (
                    scalar.cast(scalar.size(d), self.wide) for d in (axis.output, axis.length)
                )
                scale = scalar.binary("div", *lengths)
        if isinstance(scale, float):
            narrow = min(scale, 1.0)
            return narrow, math.ceil(reach / narrow)
        narrowed = scalar.binary("min", scale, 1.0)
        taps = scalar.unary("ceil", scalar.lift(reach, self.wide) / narrowed)
        (found,) = contents(compute((1,), lambda _: taps, dtypes.INT64), "The filter's reach", 1)
        return narrowed, found

    def _antialiased(self, x: Tensor, axes: dict[int, ResizedAxis]) -> Tensor:
        """One axis with the filter widened by the scale where the result is smaller."""
        ((k, axis),) = axes.items()
        narrow, reach = self._support(axis)
        shape = (*x.shape[:k], axis.output, *x.shape[k + 1 :])
        at, extents = indices(shape), (2 * reach + 1,)
        (step,) = reduced_indices(extents)
        position = axis.coordinate(at[k])
        base = scalar.unary("floor", position) - scalar.cast(scalar.size(reach - 1), self.wide)
        tap = base + scalar.cast(scalar.size(step), self.wide)
        distance = (position - tap) * narrow
        if self.mode == "cubic":
            weight = cubic_weight(distance, self.cubic_a)
        else:
            weight = scalar.binary("max", 1.0 - scalar.unary("abs", distance), 0.0)
        if self.exclude_outside:
            weight = scalar.select(within(tap, axis.length), weight, 0.0)
        value = scalar.load(x, (*at[:k], clamped(tap, axis.length), *at[k + 1 :]))
        total = make_reduce(shape, extents, "sum", value * weight, self.wide)
        weights = make_reduce(
            tuple(axis.output if j == k else 1 for j in range(len(shape))),
            extents,
            "sum",
            weight,
            self.wide,
        )
        return total / weights
