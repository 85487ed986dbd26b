"""Pooling over regions of interest: RoiAlign, MaxRoiPool.

How many samples or elements a bin has may depend on the regions. The largest number is measured,
and bins with fewer leave the others out.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.ranges import row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.taps import Tap, corners, linear_taps, total
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_shape,
    cast,
    ceil,
    compute,
    maximum,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices


def _check(where: str, x: Tensor, rois: Tensor, columns: int) -> None:
    if x.rank != 4 or rois.rank != 2:
        shapes = f"{list(x.shape)} and {list(rois.shape)}"
        raise InvalidGraph(message(where, "Images and rows of regions are needed", got=shapes))
    assume_shape(rois.shape[1:], (columns,), where, "A region")


# -- RoiAlign ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Grid:
    """The samples of all regions along one axis of the image.

    Attributes:
        taps: The elements that the image is sampled from, at [region, bin, sample].
        counts: Samples of a bin, as floats: [region]; None if all have `most`.
        most: The largest number of samples.
    """

    taps: list[Tap]
    counts: Tensor | None
    most: Dim

    def count(self, region: Dim, dtype: DType) -> Scalar:
        """How many samples a bin of a region has."""
        if self.counts is None:
            return scalar.cast(scalar.size(self.most), dtype)
        return scalar.load(self.counts, (region,))

    def is_sample(self, region: Dim, sample: Dim) -> Scalar | None:
        """Whether a region has that many samples; None if all have."""
        if self.counts is None:
            return None
        at = scalar.cast(scalar.size(sample), self.counts.dtype)
        return at < scalar.load(self.counts, (region,))


class _Bins(NamedTuple):
    """Into what a region is parted, and how its coordinates are meant.

    Attributes:
        height: How many bins there are from top to bottom.
        width: How many from left to right.
        ratio: How many samples a bin has along each axis; 0 for one per element.
        scale: Coordinates are multiplied by it.
        shifted: Whether they count from the middle of the first element.
    """

    height: int
    width: int
    ratio: int
    scale: float
    shifted: bool


def _grid(rois: Tensor, axis: int, length: Dim, given: _Bins) -> _Grid:
    """The samples along one axis: 0 is that of the first and third column, the width."""
    ratio, scale, shifted = given.ratio, given.scale, given.shifted
    bins = given.height if axis else given.width
    shift = 0.5 if shifted else 0.0

    def edge(region: Dim, column: int) -> Scalar:
        return scalar.load(rois, (region, column)) * scale - shift

    def size(region: Dim) -> Scalar:
        found = edge(region, axis + 2) - edge(region, axis)
        return found if shifted else scalar.binary("max", found, 1.0)

    counts: Tensor | None = None
    most: Dim = ratio
    if ratio <= 0:
        counts = ceil(compute(rois.shape[:1], lambda n: size(n) / float(bins)))
        largest = maximum(counts.max(), 0.0)
        (most,) = contents(cast(largest, dtypes.INT64), "The number of samples", 0)

    def position(region: Dim, place: Dim, sample: Dim) -> Scalar:
        step = size(region) / float(bins)
        if counts is None:
            number = scalar.constant(float(ratio), rois.dtype)
        else:
            number = scalar.load(counts, (region,))
        within = scalar.cast(scalar.size(sample), rois.dtype) + 0.5
        start = edge(region, axis) + scalar.cast(scalar.size(place), rois.dtype) * step
        found = start + within * step / number
        # Up to one element outside of the image counts as its edge, and further out as nothing.
        last = scalar.cast(scalar.size(length - 1), rois.dtype)
        inside = (found >= -1.0) & (found <= last + 1.0)
        edge_of = scalar.clamp(found, 0.0, last)
        return scalar.select(inside, edge_of, -2.0)

    return _Grid(linear_taps((rois.shape[0], bins, most), length, position), counts, most)


def _aligned(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    mode: str,
    bins: _Bins,
) -> Tensor:
    """Means, or maxima, of samples of the image (ONNX operator spec; He et al. 2017).

    A maximum is that of the weighted elements around the samples, as the reference has it.
    """
    where = "RoiAlign"
    height, width, ratio = bins[:3]
    _check(where, x, rois, 4)
    assume_shape(batch_indices.shape, rois.shape[:1], where, "The tensor of batch indices")
    if ratio < 0:
        raise InvalidGraph(
            message(where, "Bad sampling_ratio", expected="0 or more", got=f"{ratio}")
        )
    if mode not in ("avg", "max") or height < 1 or width < 1:
        what = f"There is no mode {mode!r} with {height} x {width} bins"
        raise InvalidGraph(message(where, what, expected="avg or max, and positive sizes"))
    wide = accumulator(x.dtype)
    regions = cast(rois, wide)
    rows = _grid(regions, 1, x.shape[2], bins)
    columns = _grid(regions, 0, x.shape[3], bins)
    shape = (rois.shape[0], x.shape[1], height, width)
    at, over = indices(shape), reduced_indices((rows.most, columns.most))
    batches = x.shape[0]
    image = row_in(scalar.load(batch_indices, at[:1]), "batch_indices", batches)
    lead = (image, at[1])
    taps = [(rows.taps, (at[0], at[2], over[0])), (columns.taps, (at[0], at[3], over[1]))]
    parts = corners(x, lead, taps, wide)
    if mode == "avg":
        value = total(parts)
    else:
        value = functools.reduce(functools.partial(scalar.binary, "max"), parts)
    for here in (rows.is_sample(at[0], over[0]), columns.is_sample(at[0], over[1])):
        if here is not None:
            value = scalar.select(here, value, 0.0 if mode == "avg" else float("-inf"))
    kind = "sum" if mode == "avg" else "max"
    pooled = make_reduce(shape, (rows.most, columns.most), kind, value, wide)

    def finished(*o: Dim) -> Scalar:
        found = scalar.load(pooled, o)
        count = rows.count(o[0], wide) * columns.count(o[0], wide)
        if mode == "avg":
            return found / scalar.binary("max", count, 1.0)
        if rows.counts is None:
            return found
        some = (rows.count(o[0], wide) >= 1.0) & (columns.count(o[0], wide) >= 1.0)
        return scalar.select(some, found, 0.0)

    return compute(shape, finished, x.dtype)


@op("RoiAlign", 10)
def roi_align_10(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Regions of images, sampled between the elements."""
    bins = _Bins(output_height, output_width, sampling_ratio, spatial_scale, False)
    return _aligned(x, rois, batch_indices, mode, bins)


@op("RoiAlign", 16, 22)
def roi_align_16(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """As before; coordinates may count from the middle of the first element."""
    shifted = coordinate_transformation_mode == "half_pixel"
    if not shifted and coordinate_transformation_mode != "output_half_pixel":
        what = "There is no such coordinate_transformation_mode"
        raise InvalidGraph(
            message("RoiAlign", what, expected="half_pixel or output_half_pixel",
                    got=repr(coordinate_transformation_mode))
        )  # fmt: skip
    bins = _Bins(output_height, output_width, sampling_ratio, spatial_scale, shifted)
    return _aligned(x, rois, batch_indices, mode, bins)


# -- MaxRoiPool -------------------------------------------------------------------------------


def _bins(rois: Tensor, axis: int, length: Dim, bins: int, scale: float) -> tuple[Tensor, Tensor]:
    """First elements of bins, and those behind their last ones: int64 [region, bin] each."""

    def rounded(region: Dim, column: int) -> Scalar:
        """Halves away from zero."""
        value = scalar.load(rois, (region, column)) * scale
        half = scalar.binary("copysign", scalar.constant(0.5, rois.dtype), value)
        return scalar.unary("trunc", value + half)

    def edge(region: Dim, number: Scalar, rounding: str) -> Scalar:
        start = rounded(region, axis + 1)
        size = scalar.binary("max", rounded(region, axis + 3) - start + 1.0, 1.0)
        place = scalar.cast(scalar.unary(rounding, number * (size / float(bins))) + start,
                            dtypes.INT64)  # fmt: skip
        return scalar.clamp(place, 0, scalar.size(length))

    def number(place: Dim) -> Scalar:
        return scalar.cast(scalar.size(place), rois.dtype)

    shape = (rois.shape[0], bins)
    first = compute(shape, lambda n, k: edge(n, number(k), "floor"))
    return first, compute(shape, lambda n, k: edge(n, number(k) + 1.0, "ceil"))


@op("MaxRoiPool", 1, 22)
def max_roi_pool(
    x: Tensor, rois: Tensor, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Tensor:
    """The largest of every bin of regions (Girshick 2015); 0 where a bin is empty."""
    where = "MaxRoiPool"
    _check(where, x, rois, 5)
    if len(pooled_shape) != 2 or min(pooled_shape) < 1:
        raise InvalidGraph(message(where, f"There are no {list(pooled_shape)} bins"))
    regions = cast(rois, accumulator(x.dtype))
    edges = [
        _bins(regions, axis, x.shape[3 - axis], pooled_shape[1 - axis], spatial_scale)
        for axis in (1, 0)
    ]
    extents = tuple(
        contents(maximum((end - start).max(), 0), "The size of a bin", 0)[0] for start, end in edges
    )
    shape = (rois.shape[0], x.shape[1], *pooled_shape)
    at, over = indices(shape), reduced_indices(extents)
    batches = x.shape[0]
    source: list[Dim] = [row_in(scalar.load(regions, (at[0], 0)), "rois", batches), at[1]]
    inside: Scalar | None = None
    for k, (start, end) in enumerate(edges):
        place = scalar.load(start, (at[0], at[2 + k])) + scalar.size(over[k])
        test = place < scalar.load(end, (at[0], at[2 + k]))
        inside = test if inside is None else inside & test
        length = x.shape[2 + k]
        last = scalar.size(length - 1)
        source.append(scalar.as_index(scalar.binary("min", place, last), length))
    value = scalar.load(x, tuple(source))
    if inside is not None:
        value = scalar.select(inside, value, float("-inf"))
    largest = make_reduce(shape, extents, "max", value, x.dtype)

    def finished(*o: Dim) -> Scalar:
        some: Scalar | None = None
        for k, (start, end) in enumerate(edges):
            here = (o[0], o[2 + k])
            test = scalar.load(start, here) < scalar.load(end, here)
            some = test if some is None else some & test
        found = scalar.load(largest, o)
        return found if some is None else scalar.select(some, found, 0.0)

    return compute(shape, finished)
