"""Elements at places that are computed: indices and weights in tensors that channels share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.onnx.coordinates import within
from sardonyx.tensor import scalar
from sardonyx.tensor.language import compute
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Shape, Tensor


@dataclass(frozen=True, slots=True)
class Tap:
    """One of the elements along an axis that a value is made of, at every place.

    Attributes:
        index: Which element, int64; -1 where there is none.
        weight: What it is multiplied with; None for 1.
    """

    index: Tensor
    weight: Tensor | None


def make_tap(
    shape: Shape,
    length: Dim,
    position: Callable[..., Scalar],
    weight: Callable[..., Scalar] | None,
) -> Tap:
    """A tap at all places of a shape.

    Args:
        shape: Of the places.
        length: Size of the axis that it reads.
        position: The index as a float, at a place; outside of the axis there is no element.
        weight: The weight at a place.
    """

    def index(*at: Dim) -> Scalar:
        place = position(*at)
        nothing = scalar.constant(-1, dtypes.INT64)
        return scalar.select(within(place, length), scalar.cast(place, dtypes.INT64), nothing)

    return Tap(compute(shape, index), None if weight is None else compute(shape, weight))


def linear_taps(
    shape: Shape,
    length: Dim,
    position: Callable[..., Scalar],
    moved: Callable[[Scalar], Scalar] = lambda index: index,
) -> list[Tap]:
    """The two neighbours of a position, with the weights of linear interpolation.

    Args:
        shape: Of the places.
        length: Size of the axis.
        position: The position at a place.
        moved: Which element a neighbour stands for, as floats.
    """

    def low(*at: Dim) -> Scalar:
        return scalar.unary("floor", position(*at))

    def fraction(*at: Dim) -> Scalar:
        here = position(*at)
        return here - scalar.unary("floor", here)

    return [
        make_tap(shape, length, lambda *at: moved(low(*at)), lambda *at: 1.0 - fraction(*at)),
        make_tap(shape, length, lambda *at: moved(low(*at) + 1.0), fraction),
    ]


def corners(
    x: Tensor,
    lead: Sequence[Dim],
    taps: Sequence[tuple[Sequence[Tap], Sequence[Dim]]],
    dtype: DType,
) -> list[Scalar]:
    """Weighted elements of `x` in the type `dtype`, 0 where a tap has none.

    Args:
        x: The tensor.
        lead: Indices of its first axes.
        taps: For each other axis its taps, and the place that they are read at.
        dtype: Type of the results.
    """
    sides: list[list[tuple[Scalar, Scalar | None]]] = []
    for along, at in taps:
        place = tuple(at)
        sides.append(
            [
                (
                    scalar.load(tap.index, place),
                    None if tap.weight is None else scalar.load(tap.weight, place),
                )
                for tap in along
            ]
        )
    found = []
    for corner in itertools.product(*sides):
        source: list[Dim] = list(lead)
        inside: Scalar | None = None
        factor: Scalar | None = None
        for axis, (index, weight) in enumerate(corner, len(lead)):
            test = index >= scalar.constant(0, dtypes.INT64)
            inside = test if inside is None else inside & test
            source.append(scalar.as_index(scalar.binary("max", index, 0), x.shape[axis]))
            if weight is not None:
                factor = weight if factor is None else factor * weight
        value = scalar.cast(scalar.load(x, tuple(source)), dtype)
        if factor is not None:
            value = value * factor
        found.append(value if inside is None else scalar.select(inside, value, 0.0))
    return found


def total(parts: Sequence[Scalar]) -> Scalar:
    """The sum of at least one expression."""
    result = parts[0]
    for part in parts[1:]:
        result = result + part
    return result
