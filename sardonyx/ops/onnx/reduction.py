"""Reductions over axes, positions of extremes, and running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import dtypes, integer, sizes
from sardonyx.ops.core.contents import DataDependent, integers
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.onnx.chosen_axes import chosen_axes, in_a_row, spread, without_axes
from sardonyx.tensor.language import (
    Tensor,
    absolute,
    accumulator,
    argmax,
    argmin,
    assume_equal,
    cast,
    exp,
    log,
    mean,
    normalise_axes,
    normalise_axis,
    reshape,
    sqrt,
    where,
)
from sardonyx.tensor.tensor import make_call

Axes = tuple[int, ...]
Lowering = Callable[[Tensor, Axes, bool], Tensor]


def reduce_sum(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The sum."""
    return x.sum(axes, keepdims)


def reduce_mean(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The mean; of integers, truncated."""
    return mean(x, axes, keepdims)


def reduce_max(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The largest."""
    return x.max(axes, keepdims)


def reduce_min(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The smallest."""
    return x.min(axes, keepdims)


def reduce_prod(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The product."""
    return x.prod(axes, keepdims)


def reduce_l1(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The sum of magnitudes."""
    return absolute(x).sum(axes, keepdims)


def _float(x: Tensor) -> Tensor:
    """`x` in the type that functions of its sums are computed in."""
    return cast(x, accumulator(x.dtype) if x.dtype.is_float else dtypes.DOUBLE)


def reduce_l2(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The root of the sum of squares."""
    wide = _float(x)
    return cast(sqrt((wide * wide).sum(axes, keepdims)), x.dtype)


def reduce_sum_square(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The sum of squares."""
    wide = cast(x, accumulator(x.dtype))
    return cast((wide * wide).sum(axes, keepdims), x.dtype)


def reduce_log_sum(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The logarithm of the sum."""
    return cast(log(_float(x).sum(axes, keepdims)), x.dtype)


def reduce_log_sum_exp(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """The logarithm of the sum of exponentials, shifted by the largest so that none overflows."""
    wide = _float(x)
    if not axes:
        return x
    largest = wide.max(axes, keepdims=True)
    # An infinite shift would make inf - inf of what is the result already.
    shift = where(absolute(largest) < float("inf"), largest, 0.0)
    total = exp(wide - shift).sum(axes, keepdims=True)
    result = cast(log(total) + shift, x.dtype)
    if keepdims:
        return result
    return reshape(result, tuple(d for k, d in enumerate(x.shape) if k not in axes))


def _over_chosen(
    name: str,
    lowering: Lowering,
    x: Tensor,
    axes: Tensor,
    keepdims: bool,
    noop_with_empty_axes: int,
) -> Tensor:
    """The same over axes that only a run knows."""
    flags = chosen_axes(axes, x.rank, name, none_is_all=not noop_with_empty_axes)
    result = lowering(spread(x, flags), tuple(range(x.rank, 2 * x.rank)), False)
    return result if keepdims else without_axes(result, flags, axes, name)


def _register(name: str, lowering: Lowering, input_since: int) -> None:
    def by_attribute(x: Tensor, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Tensor:
        wanted = normalise_axes(axes or None, x.rank, name)
        return lowering(x, wanted, bool(keepdims))

    def by_input(
        x: Tensor,
        axes: Tensor | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Tensor:
        try:
            known = integers(axes, f"{name}: axes") if axes is not None else ()
        except DataDependent as reason:
            chosen = in_a_row(reason.tensor, name)
            return _over_chosen(name, lowering, x, chosen, bool(keepdims), noop_with_empty_axes)
        if not known and noop_with_empty_axes:
            return lowering(x, (), bool(keepdims))
        return lowering(x, normalise_axes(known or None, x.rank, name), bool(keepdims))

    op(name, 1)(by_attribute)
    op(name, input_since)(by_input)


for _name, _lowering in (
    ("ReduceMean", reduce_mean),
    ("ReduceMax", reduce_max),
    ("ReduceMin", reduce_min),
    ("ReduceProd", reduce_prod),
    ("ReduceL1", reduce_l1),
    ("ReduceL2", reduce_l2),
    ("ReduceSumSquare", reduce_sum_square),
    ("ReduceLogSum", reduce_log_sum),
    ("ReduceLogSumExp", reduce_log_sum_exp),
):
    _register(_name, _lowering, 18)
_register("ReduceSum", reduce_sum, 13)


@op("ArgMax", 1, 11, 12, 13, added={"select_last_index": 12})
def arg_max(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """Position of the largest along an axis."""
    _assume_there_is_one(x, axis, "ArgMax")
    return argmax(x, axis, bool(keepdims), bool(select_last_index))


@op("ArgMin", 1, 11, 12, 13, added={"select_last_index": 12})
def arg_min(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """Position of the smallest along an axis."""
    _assume_there_is_one(x, axis, "ArgMin")
    return argmin(x, axis, bool(keepdims), bool(select_last_index))


def _assume_there_is_one(x: Tensor, axis: int, where: str) -> None:
    """An axis without elements has no position to give, unless nothing is asked for."""
    chosen = normalise_axis(axis, x.rank, where)
    others = sizes.product(d for k, d in enumerate(x.shape) if k != chosen)
    asked, empty = (integer.minimum(others, 1), 1 - integer.minimum(x.shape[chosen], 1))
    what = f"Axis {chosen} has no elements to choose from"
    assume_equal(asked * empty, 0, where, what)


def _running(kind: str, x: Tensor, axis: Tensor, exclusive: int, reverse: int) -> Tensor:
    wide, axis = cast(x, accumulator(x.dtype)), scalar_of(axis, "The axis of running sums")
    facts = {"kind": kind, "exclusive": bool(exclusive), "reverse": bool(reverse)}
    try:
        (position,) = integers(axis, "The axis")
    except DataDependent:
        place = cast(axis, dtypes.INT64)
        (result,) = make_call("scan", (wide, place), ((x.shape, wide.dtype),), **facts)
        return cast(result, x.dtype)
    chosen = normalise_axis(position, x.rank, kind)
    (result,) = make_call("scan", (wide,), ((x.shape, wide.dtype),), axis=chosen - x.rank, **facts)
    return cast(result, x.dtype)


@op("CumSum", 11, 14)
def cum_sum(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Running sums along an axis."""
    return _running("sum", x, axis, exclusive, reverse)


@op("CumProd", 26)
def cum_prod(x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Running products along an axis."""
    return _running("prod", x, axis, exclusive, reverse)
