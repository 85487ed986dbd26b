"""Scales of a resize: numbers, or what only a run knows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sardonyx.base import dtypes, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import DataDependent, contents
from sardonyx.ops.onnx.chosen_axes import stack
from sardonyx.ops.onnx.coordinates import scaled_length
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, assume_equal, reshape
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.symbolic import elements_of, partial_elements_of
from sardonyx.tensor.tensor import Buffer

#: Numbers, or the input where only a run knows them; empty where there are none.
Scales = tuple[float, ...] | Tensor


def floats(x: Tensor, what: str) -> tuple[float, ...]:
    """The elements of a small float tensor that must be known.

    Raises:
        DataDependent: Only a run knows them.
    """
    if isinstance(x, Buffer) and x.constant is not None and sizes.product(x.shape) != 0:
        array: np.ndarray = x.constant.array()  # type: ignore[attr-defined]  # a constant's buffer has one
        return tuple(float(e) for e in array.reshape(-1))
    found = elements_of(x)
    if found is None or not all(isinstance(e, int | float) for e in found):
        raise DataDependent(x, what)
    return tuple(map(float, found))  # type: ignore[arg-type]  # all were seen to be numbers


def given_scales(scales: Tensor | None, count: int | None = None) -> Scales:
    """The scales; none where the input is omitted or empty, the input where a run knows them.

    Where only a run knows how many there are, they are taken to be `count`.
    """
    if scales is None or scales.shape == (0,):
        return ()
    if count is not None and scales.rank == 1 and not isinstance(scales.shape[0], int):
        assume_equal(count, scales.shape[0], "The scales", "Another number of them is needed")
        scales = reshape(scales, (count,))
    try:
        return floats(scales, "The scales")
    except DataDependent:
        if scales.rank != 1 or not isinstance(scales.shape[0], int):
            raise
        return scales


def check_scales(where: str, scales: Scales, least: float = 0.0) -> None:
    """Refuse scales, where they are known, that are below `least`, or not positive and finite.

    Raises:
        InvalidGraph: One is.
    """
    known = () if isinstance(scales, Tensor) else scales
    if not all(least <= s < math.inf and s > 0 for s in known):
        expected = f"at least {least}" if least else "positive numbers"
        what = "The scales are out of bounds"
        raise InvalidGraph(message(where, what, expected=expected, got=str(list(known))))


def count_of(scales: Scales) -> Dim:
    """How many there are."""
    return scales.shape[0] if isinstance(scales, Tensor) else len(scales)


def scaled_in_run(
    lengths: Sequence[Dim], scales: Tensor, dtype: DType
) -> tuple[list[float | Scalar | None], list[Dim]]:
    """Scales that only a run knows, all or some, as factors, and the lengths that they give.

    Args:
        lengths: Of the axes.
        scales: One for each axis.
        dtype: Type of the factors that are not known.
    """
    known = partial_elements_of(scales) or (None,) * len(lengths)
    check_scales("Resize", tuple(float(e) for e in known if isinstance(e, int | float)))
    factors: list[float | Scalar | None] = []
    rows: list[Scalar] = []
    for number, (length, value) in enumerate(zip(lengths, known, strict=True)):
        if isinstance(value, int | float):
            factors.append(float(value))
            continue
        scale = scalar.load(scales, (number,))
        exact = scalar.unary("floor", scalar.cast(scalar.size(length), scale.dtype) * scale)
        usable = (scale > 0.0) & (scale < math.inf)
        rows.append(scalar.select(usable, scalar.cast(exact, dtypes.INT64), -1))  # -1 is refused
        factors.append(scalar.cast(scale, dtype))
    measured = iter(contents(stack(rows), "The sizes", 0)) if rows else iter(())
    return factors, [
        scaled_length(d, f) if isinstance(f, float) else next(measured)
        for d, f in zip(lengths, factors, strict=True)
    ]
