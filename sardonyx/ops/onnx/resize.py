"""Resize and Upsample: nearest, linear and cubic, with all of ONNX's coordinate modes."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import errors
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ops.core.contents import contents, with_length
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.coordinates import (
    ResizedAxis,
    common_scale,
    proportional_lengths,
    scaled_length,
)
from sardonyx.ops.onnx.resizing import ResizeAttributes, Resizing
from sardonyx.ops.onnx.scales import Scales, check_scales, count_of, given_scales, scaled_in_run
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    assume_shape,
    normalise_axis,
)
from sardonyx.tensor.scalar import Scalar


def _resize(
    x: Tensor,
    roi: Tensor | None,
    scales: Scales,
    wanted: Tensor | None,
    given: ResizeAttributes,
    axes: Sequence[int] | None = None,
) -> Tensor:
    """By `scales` where there are any, else to the lengths in `wanted`."""
    if x.dtype.is_code and (given.mode != "nearest" or roi is not None):
        raise errors.NotImplemented(message("Resize", "Strings are only taken to the nearest"))
    factors: list[float | Scalar | None]
    resize, policy = Resizing(x, given), given.keep_aspect_ratio_policy
    chosen = [normalise_axis(a, x.rank, "Resize") for a in axes or range(x.rank)]
    count = wanted.shape[0] if wanted is not None and scales == () else count_of(scales)
    if len(set(chosen)) != len(chosen):
        raise InvalidGraph(message("Resize", "An axis comes twice", got=str(chosen)))
    if not isinstance(count, int):  # only a run knows
        assume_equal(len(chosen), count, "Resize", "Scales or sizes do not fit the axes")
    elif count not in (0, len(chosen)):
        raise InvalidGraph(
            message(
                "Resize",
                "Scales or sizes do not fit the axes",
                expected=str(len(chosen)),
                got=repr(count),
            )
        )
    if isinstance(scales, Tensor):
        factors, lengths = scaled_in_run([x.shape[a] for a in chosen], scales, resize.wide)
    elif scales:
        check_scales("Resize", scales)
        lengths = [scaled_length(x.shape[a], s) for a, s in zip(chosen, scales, strict=True)]
        factors = list(scales)
    elif wanted is not None and wanted.shape != (0,):
        lengths = list(contents(with_length(wanted, len(chosen), "The sizes"), "The sizes", 0))
        factors = [None] * len(lengths)
        if policy != "stretch":
            sources = [x.shape[a] for a in chosen]
            ratio = common_scale(sources, lengths, policy)
            lengths = proportional_lengths(sources, lengths, policy)
            factors = [ratio] * len(lengths)
    else:
        raise InvalidGraph(message("Resize", "Neither scales nor sizes are given"))
    region = roi if given.coordinate_transformation_mode == "tf_crop_and_resize" else None
    if region is not None:
        assume_shape(region.shape, (2 * len(chosen),), "Resize", "The region")
    for number, axis in enumerate(chosen):
        begin, end = None, None
        if region is not None:
            begin = scalar.cast(scalar.load(region, (number,)), resize.wide)
            end = scalar.cast(scalar.load(region, (len(chosen) + number,)), resize.wide)
        resize.axes[axis] = ResizedAxis(
            x.shape[axis],
            lengths[number],
            factors[number],
            given.coordinate_transformation_mode,
            resize.wide,
            begin,
            end,
        )
    return resize.run()


@op("Upsample", 1, flags=("linear", "strings"))
def upsample_1(
    x: Tensor, *, height_scale: float, width_scale: float, mode: str = "nearest"
) -> Tensor:
    """Images larger by two factors."""
    if x.rank != 4:
        raise InvalidGraph(message("Upsample", "Four axes are needed", got=f"rank {x.rank}"))
    modes = {"bilinear": "linear"}
    return _larger(x, (1.0, 1.0, height_scale, width_scale), modes.get(mode, mode))


@op("Upsample", 7, flags=("linear", "strings"))
def upsample_7(x: Tensor, *, scales: Sequence[float], mode: str = "nearest") -> Tensor:
    """Larger by factors that are attributes."""
    return _larger(x, tuple(scales), mode)


@op("Upsample", 9, flags=("linear", "strings"))
def upsample_9(x: Tensor, scales: Tensor, *, mode: str = "nearest") -> Tensor:
    """Larger by factors."""
    return _larger(x, given_scales(scales, x.rank), mode)


@op("Resize", 10, flags=("linear", "strings"))
def resize_10(x: Tensor, scales: Tensor, *, mode: str = "nearest") -> Tensor:
    """Larger or smaller by factors, coordinates divided by them."""
    return _upsampled(x, given_scales(scales, x.rank), mode)


def _larger(x: Tensor, scales: Scales, mode: str) -> Tensor:
    """As Resize-10, by factors that are at least 1 as far as they are known."""
    check_scales("Upsample", scales, 1.0)
    return _upsampled(x, scales, mode)


def _upsampled(x: Tensor, scales: Scales, mode: str) -> Tensor:
    return _resize(x, None, scales, None, ResizeAttributes("asymmetric", mode, "floor"))


@op("Resize", 11, 13, flags=("linear", "strings"))
def resize_11(
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """To given sizes, or by factors."""
    given = ResizeAttributes(
        coordinate_transformation_mode,
        mode,
        nearest_mode,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        extrapolation_value=extrapolation_value,
    )
    factors = given_scales(scales, x.rank if sizes is None else None)
    return _resize(x, roi, factors, sizes, given)


@op("Resize", 18, 19, flags=("linear", "strings"))
def resize_18(
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """To given sizes, or by factors, along some axes or all."""
    given = ResizeAttributes(
        coordinate_transformation_mode,
        mode,
        nearest_mode,
        antialias=antialias,
        cubic_coeff_a=cubic_coeff_a,
        exclude_outside=exclude_outside,
        extrapolation_value=extrapolation_value,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy,
    )
    factors = given_scales(scales, len(axes or x.shape) if sizes is None else None)
    return _resize(x, roi, factors, sizes, given, axes)
