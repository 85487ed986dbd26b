"""Reductions over axes, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sardonyx.base import dtypes, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.tensor import scalar
from sardonyx.tensor.assumptions import assume_equal
from sardonyx.tensor.elementwise import broadcast_shapes, cast, load_broadcast
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import (
    Shape,
    Tensor,
    indices,
    make_contract,
    make_map,
    make_reduce,
    reduced_indices,
)

Axes = int | Iterable[int] | None


def normalise_axis(axis: int, rank: int, where: str = "axis") -> int:
    """An axis counted from the front.

    Raises:
        InvalidGraph: There is no such axis.
    """
    if not -rank <= axis < rank:
        expected = f"-{rank} to {rank - 1}" if rank else "a tensor with axes, not a number"
        raise InvalidGraph(
            message(where, "There is no such axis", expected=expected, got=str(axis))
        )
    return axis + rank if axis < 0 else axis


def normalise_axes(axes: Axes, rank: int, where: str = "axes") -> tuple[int, ...]:
    """Axes counted from the front, in ascending order; all of them for None."""
    if axes is None:
        return tuple(range(rank))
    wanted = (axes,) if isinstance(axes, int) else axes
    found = sorted(normalise_axis(axis, rank, where) for axis in wanted)
    if len(set(found)) != len(found):
        raise InvalidGraph(message(where, f"An axis comes twice in {list(wanted)}"))
    return tuple(found)


def accumulator(dtype: DType) -> DType:
    """The type that sums of `dtype` are kept in."""
    return dtypes.FLOAT if dtype.is_float and dtype.bits < 32 else dtype


def reduce_axes(
    x: Tensor,
    axes: tuple[int, ...],
    keepdims: bool,
    kind: str,
    dtype: DType,
    body: Callable[[Scalar], Scalar] = lambda x: x,
) -> Tensor:
    """The reduction `kind` over `axes` of `body` of the elements."""
    shape = tuple(
        1 if axis in axes else d for axis, d in enumerate(x.shape) if keepdims or axis not in axes
    )
    extents = tuple(x.shape[axis] for axis in axes)
    outer, inner = iter(indices(shape)), iter(reduced_indices(extents))
    at: list[Dim] = []
    for axis in range(len(x.shape)):
        if axis in axes:
            at.append(next(inner))
            if keepdims:
                next(outer)
        else:
            at.append(next(outer))
    return make_reduce(shape, extents, kind, body(scalar.load(x, tuple(at))), dtype)


def reduce(kind: str, x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """`sum`, `prod`, `max` or `min` over axes; half floats are added up in float."""
    axes = normalise_axes(axis, len(x.shape), kind)
    if not axes:
        return x
    if x.dtype is dtypes.BOOL:
        as_bytes = reduce_axes(
            x, axes, keepdims, kind, dtypes.UINT8, lambda e: scalar.cast(e, dtypes.UINT8)
        )
        return cast(as_bytes, dtypes.BOOL)
    narrow = x.dtype.is_narrow_float
    wide = accumulator(x.dtype) if narrow or kind in ("sum", "prod") else x.dtype
    total = reduce_axes(x, axes, keepdims, kind, wide, lambda e: scalar.cast(e, wide))
    return cast(total, x.dtype)


def mean(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Mean over axes; of integers, truncated."""
    axes = normalise_axes(axis, len(x.shape), "mean")
    if not axes:
        return x
    wide = accumulator(x.dtype)
    total = reduce("sum", cast(x, wide), axes, keepdims)
    count = scalar.cast(scalar.size(sizes.product(x.shape[a] for a in axes)), wide)
    quotient = make_map(
        total.shape, scalar.binary("div", scalar.load(total, indices(total.shape)), count)
    )
    return cast(quotient, x.dtype)


def argmax(x: Tensor, axis: int = 0, keepdims: bool = False, last: bool = False) -> Tensor:
    """Position of the largest element along an axis: of the first one, or the last one."""
    axes = (normalise_axis(axis, len(x.shape), "argmax"),)
    return reduce_axes(x, axes, keepdims, "argmax_last" if last else "argmax", dtypes.INT64)


def argmin(x: Tensor, axis: int = 0, keepdims: bool = False, last: bool = False) -> Tensor:
    """Position of the smallest element along an axis: of the first one, or the last one."""
    axes = (normalise_axis(axis, len(x.shape), "argmin"),)
    return reduce_axes(x, axes, keepdims, "argmin_last" if last else "argmin", dtypes.INT64)


def contract(
    shape: Shape,
    extents: Shape,
    body: Callable[[tuple[Dim, ...], tuple[Dim, ...]], tuple[Scalar, Scalar]],
    dtype: DType | None = None,
) -> Tensor:
    """The sum over `extents` of the product of what `body(indices, reduced)` gives."""
    left, right = body(indices(shape), reduced_indices(extents))
    wide = accumulator(left.dtype)
    return make_contract(shape, extents, left, right, dtype or left.dtype, wide)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """NumPy's `a @ b`: the last two axes are matrices, those before are broadcast."""
    if a.dtype is not b.dtype:
        raise InvalidGraph(message("matmul", f"The types differ: {a.dtype} and {b.dtype}"))
    if not a.shape or not b.shape:
        raise InvalidGraph(message("matmul", "An operand has no axes"))
    row, column = len(a.shape) > 1, len(b.shape) > 1
    inner_a, inner_b = a.shape[-1], b.shape[-2 if column else -1]
    assume_equal(inner_a, inner_b, "matmul", "The inner sizes differ")
    batch = broadcast_shapes(a.shape[:-2] if row else (), b.shape[:-2] if column else ())
    shape = batch + ((a.shape[-2],) if row else ()) + ((b.shape[-1],) if column else ())
    inner = inner_a if isinstance(inner_a, int) else inner_b

    def body(at: tuple[Dim, ...], over: tuple[Dim, ...]) -> tuple[Scalar, Scalar]:
        outer = at[: len(batch)]
        i = (at[len(batch)],) if row else ()
        j = (at[-1],) if column else ()
        left = load_broadcast(a, (*outer, *i, *over))
        return left, load_broadcast(b, (*outer, *over, *j))

    return contract(shape, (inner,), body)
