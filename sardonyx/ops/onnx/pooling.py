"""Pooling: reductions over a sliding window, or over all of the space."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.windows import Window, WindowAttributes, make_window
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, absolute, accumulator, cast, compute, mean, power
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices


def lowest(dtype: DType) -> float:
    """The value that every other of the type is at least."""
    if dtype.is_float:
        return float("-inf")
    return -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0


def window_of(
    where: str,
    x: Tensor,
    given: WindowAttributes,
) -> Window:
    """The window that a pooling's attributes describe over the space of (batch, channels, ...)."""
    if x.rank < 3:
        raise InvalidGraph(message(where, "It has no spatial axes", got=f"rank {x.rank}"))
    return make_window(where, x.shape[2:], tuple(given.kernel_shape or ()), given)


def _pool(
    x: Tensor, window: Window, kind: str, identity: float, dtype: DType, power_of: float = 0
) -> Tensor:
    """The reduction `kind` over every window; with `power_of`, of that power of magnitudes."""
    shape = (*x.shape[:2], *window.outputs)
    at, taps = indices(shape), reduced_indices(window.reachable)
    positions = window.positions(at[2:], taps)
    value = scalar.cast(scalar.load(x, (*at[:2], *positions)), dtype)
    if power_of:
        value = _power(value, power_of)
    inside = window.inside(positions)
    if inside is not None:
        value = scalar.select(inside, value, identity)
    return make_reduce(shape, window.reachable, kind, value, dtype)


def _power(value: Scalar, exponent: float) -> Scalar:
    if exponent == 1:
        return scalar.unary("abs", value)
    if exponent == 2:
        return value * value
    return scalar.binary("pow", scalar.unary("abs", value), float(exponent))


# -- largest ----------------------------------------------------------------------------------


@op(
    "MaxPool", 1, 8, 10, 11, 12, 22,
    added={"storage_order": 8, "ceil_mode": 10, "dilations": 10},
)  # fmt: skip
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    output_count: int = 1,
) -> tuple[Tensor, Tensor | None]:
    """The largest of every window, and its flat position in the image if that is asked for."""
    given = WindowAttributes(kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    window = window_of("MaxPool", x, given)
    result = x
    for axes in _maximum_rounds(window):
        result = _largest(result, window, axes)
    return result, _flat_positions(x, window, storage_order) if output_count > 1 else None


def _maximum_rounds(window: Window) -> list[tuple[int, ...]]:
    """Spatial axes along which maxima are taken at once.

    Those along one axis after the other are the same, and are fewer where windows are large: `SPPF`
    of many detectors has 5 by 5.
    """
    axes = tuple(range(window.rank))
    taps = [k for k in window.kernel if isinstance(k, int)]
    if window.rank < 2 or len(taps) < window.rank:
        return [axes]
    # Where an axis comes later, there are still `stride` times its outputs. The last comes first:
    # so a gradient goes to the first of equal elements in the order of memory, either way.
    one_by_one = sum(taps[k] * math.prod(window.strides[:k]) for k in axes)
    return [(k,) for k in reversed(axes)] if 2 * one_by_one <= math.prod(taps) else [axes]


def _largest(x: Tensor, window: Window, axes: tuple[int, ...]) -> Tensor:
    """The largest of every window along some spatial axes."""
    if len(axes) == window.rank:
        return _pool(x, window, "max", lowest(x.dtype), x.dtype)
    (axis,) = axes
    alone, place = window.alone(axis), 2 + axis
    shape = (*x.shape[:place], *alone.outputs, *x.shape[place + 1 :])
    at, taps = indices(shape), reduced_indices(alone.reachable)
    positions = alone.positions((at[place],), taps)
    value = scalar.load(x, (*at[:place], *positions, *at[place + 1 :]))
    inside = alone.inside(positions)
    if inside is not None:
        value = scalar.select(inside, value, lowest(x.dtype))
    return make_reduce(shape, alone.reachable, "max", value, x.dtype)


def _flat_positions(x: Tensor, window: Window, storage_order: int) -> Tensor:
    """The position of the largest of every window, flat over the whole of `x`."""
    shape = (*x.shape[:2], *window.outputs)
    at = indices(shape)
    extents = (sizes.product(window.kernel),)
    taps = _unflatten(reduced_indices(extents)[0], window.kernel)
    value = window.load(x, at[:2], window.positions(at[2:], taps), lowest(x.dtype))
    chosen = make_reduce(shape, extents, "argmax", value, dtypes.INT64)
    image = sizes.product(window.inputs)

    def body(*o: Dim) -> Scalar:
        rest = scalar.load(chosen, o)
        reversed_taps: list[Scalar] = []
        for taps_of_axis in reversed(window.kernel):
            reversed_taps.append(scalar.binary("rem", rest, scalar.size(taps_of_axis)))
            rest = scalar.binary("div", rest, scalar.size(taps_of_axis))
        flat = scalar.size(0)
        steps: Dim = 1
        axes = range(window.rank) if storage_order else reversed(range(window.rank))
        for axis in axes:
            start = o[2 + axis] * window.strides[axis] - window.before[axis]
            tap = reversed_taps[window.rank - 1 - axis]
            position = scalar.size(start) + tap * scalar.size(window.dilations[axis])
            flat = flat + position * scalar.size(steps)
            steps = steps * window.inputs[axis]
        return flat + scalar.size((o[0] * x.shape[1] + o[1]) * image)

    return compute(shape, body)


def _unflatten(position: Dim, shape: Sequence[Dim]) -> tuple[Dim, ...]:
    found: list[Dim] = []
    for extent in reversed(shape[1:]):
        found.append(integer.modulo(position, extent))
        position = integer.floordiv(position, extent)
    return (position, *reversed(found))


def _check_channels(where: str, x: Tensor) -> None:
    if x.rank < 2:  # noqa: PLR2004 - batch and channels
        raise InvalidGraph(message(where, "It has no channels", got=f"rank {x.rank}"))


@op("GlobalMaxPool", 1, 22)
def global_max_pool(x: Tensor) -> Tensor:
    """The largest over the space."""
    _check_channels("GlobalMaxPool", x)
    return x.max(range(2, x.rank), keepdims=True)


# -- mean -------------------------------------------------------------------------------------


@op(
    "AveragePool", 1, 7, 10, 11, 19, 22,
    added={"count_include_pad": 7, "ceil_mode": 10, "dilations": 19},
)  # fmt: skip
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """The mean of every window, of the image or of the padded image."""
    given = WindowAttributes(kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    window = window_of("AveragePool", x, given)
    wide = accumulator(x.dtype)
    total = _pool(x, window, "sum", 0, wide)

    def body(*at: Dim) -> Scalar:
        count = _taps_inside(window, at[2:], bool(count_include_pad))
        return scalar.load(total, at) / scalar.cast(scalar.size(count), wide)

    return compute(total.shape, body, x.dtype)


def _taps_inside(window: Window, at: Sequence[Dim], padded: bool) -> Dim:
    """How many taps of the window `at` lie in the image, or in the padded image."""
    count: Dim = 1
    for axis, o in enumerate(at):
        apart, taps = window.dilations[axis], window.kernel[axis]
        start = o * window.strides[axis] - window.before[axis]
        low = -window.before[axis] if padded else 0
        high = window.inputs[axis] + (window.after[axis] if padded else 0)
        first = integer.maximum(integer.ceildiv(low - start, apart), 0)
        last = integer.minimum(integer.ceildiv(high - start, apart), taps)
        count = count * (last - first if window.hangs_over(axis, padded) else taps)
    return count


@op("GlobalAveragePool", 1, 22)
def global_average_pool(x: Tensor) -> Tensor:
    """The mean over the space."""
    _check_channels("GlobalAveragePool", x)
    return mean(x, range(2, x.rank), keepdims=True)


# -- norms ------------------------------------------------------------------------------------


def _check_norm(where: str, p: float) -> None:
    if p == 0:
        raise InvalidGraph(message(where, "There is no norm of the order 0"))


@op("LpPool", 1)
def lp_pool_1(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: Sequence[int] = (),
    p: float = 2.0,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """The p-norm of every window, for any p."""
    return lp_pool(x, kernel_shape=kernel_shape, auto_pad=auto_pad, p=p, pads=pads, strides=strides)


@op("LpPool", 2, 11, 18, 22, added={"ceil_mode": 18, "dilations": 18})
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    p: float = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """The p-norm of every window."""
    _check_norm("LpPool", p)
    given = WindowAttributes(kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    window = window_of("LpPool", x, given)
    wide = accumulator(x.dtype)
    total = _pool(x, window, "sum", 0.0, wide, power_of=p)
    return cast(power(total, 1.0 / p), x.dtype)


@op("GlobalLpPool", 1, 2, 22)
def global_lp_pool(x: Tensor, *, p: float = 2) -> Tensor:
    """The p-norm over the space."""
    _check_channels("GlobalLpPool", x)
    _check_norm("GlobalLpPool", p)
    wide = absolute(cast(x, accumulator(x.dtype)))
    total = power(wide, float(p)).sum(range(2, x.rank), keepdims=True)
    return cast(power(total, 1.0 / p), x.dtype)
