"""Integer products, and products and convolutions between quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.onnx.convolution import convolve_integers, window_of
from sardonyx.ops.onnx.quantise import is_zero, saturate
from sardonyx.ops.onnx.windows import WindowAttributes
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_broadcast,
    assume_equal,
    assume_shape,
    broadcast_index,
    broadcast_shapes,
    compute,
    load_broadcast,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Shape, indices, make_contract, reduced_indices


def _along(
    values: Tensor, where: str, axis_of_vector: int, at: Sequence[Dim], shape: Shape
) -> Scalar:
    """A scale or zero point: a single one, one per row or column, or one with axes of its own.

    Args:
        values: The numbers.
        where: The operator, for errors.
        axis_of_vector: Axis of the result (negative) that a vector of them lies along.
        at: Index of the element of the operand.
        shape: Shape of the operand.
    """
    if values.rank == 0:
        return scalar.load(values, ())
    if values.rank == 1:
        assume_broadcast(values.shape, (shape[axis_of_vector],), where, "A scale or zero point")
        return scalar.load(values, (broadcast_index(values.shape[0], at[axis_of_vector]),))
    if values.rank != len(shape):
        raise InvalidGraph(
            message(where, f"Scales or zero points of rank {values.rank} do not fit {list(shape)}")
        )
    assume_broadcast(values.shape, shape, where, "A scale or zero point")
    return load_broadcast(values, tuple(at))


def matmul_integers(
    a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None, where: str
) -> Tensor:
    """The int32 product of 8-bit matrices less their zero points.

    A vector of zero points lies along the rows of `a`, and along the columns of `b`.
    """
    if a.rank < 1 or b.rank < 1:
        raise InvalidGraph(message(where, "An operand has no axes"))
    row, column = a.rank > 1, b.rank > 1
    depth = b.shape[-2 if column else -1]
    assume_equal(a.shape[-1], depth, where, "The inner sizes differ")
    depth = depth if isinstance(depth, int) else a.shape[-1]
    batch = broadcast_shapes(a.shape[:-2] if row else (), b.shape[:-2] if column else ())
    shape = batch + ((a.shape[-2],) if row else ()) + ((b.shape[-1],) if column else ())
    at, (k,) = indices(shape), reduced_indices((depth,))
    outer = at[: len(batch)]
    i = (at[len(batch)],) if row else ()
    j = (at[-1],) if column else ()

    # Codes that are floats of 8 bits have products that float holds.
    wide = dtypes.FLOAT if a.dtype.is_float or b.dtype.is_float else dtypes.INT32

    def factor(x: Tensor, zero: Tensor | None, where_from: tuple[Dim, ...], axis: int) -> Scalar:
        value = scalar.cast(load_broadcast(x, where_from), wide)
        if zero is None or is_zero(zero):
            return value
        own = where_from[len(where_from) - x.rank :]
        point = _along(zero, where, axis, own, x.shape)
        return value - scalar.cast(point, wide)

    left = factor(a, a_zero, (*outer, *i, k), -2 if row else -1)
    right = factor(b, b_zero, (*outer, k, *j), -1)
    return make_contract(shape, (depth,), left, right, wide, wide)


@op("MatMulInteger", 10)
def mat_mul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    """Product of 8-bit matrices into int32."""
    return matmul_integers(a, b, a_zero, b_zero, "MatMulInteger")


def _requantised(value: Scalar, factor: Scalar, zero: Scalar, dtype: DType) -> Scalar:
    """A sum as a code: round(value * factor) + zero, halves to even."""
    scaled = scalar.cast(value, dtypes.FLOAT) * factor
    if not dtype.is_float:
        scaled = scalar.unary("round", scaled)
    return saturate(scaled + scalar.cast(zero, dtypes.FLOAT), dtype)


def _number(x: Tensor, where: str) -> Scalar:
    return scalar.cast(scalar.load(scalar_of(x, where), ()), dtypes.FLOAT)


@op("QLinearMatMul", 10, 21)
def q_linear_mat_mul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    """Product of quantised matrices, quantised."""
    total = matmul_integers(a, b, a_zero, b_zero, "QLinearMatMul")

    def body(*at: Dim) -> Scalar:
        rows = _along(a_scale, "QLinearMatMul", -2, at, total.shape)
        columns = _along(b_scale, "QLinearMatMul", -1, at, total.shape)
        factor = scalar.cast(rows, dtypes.FLOAT) * scalar.cast(columns, dtypes.FLOAT)
        factor = factor / _number(y_scale, "QLinearMatMul")
        zero = scalar.load(scalar_of(y_zero, "QLinearMatMul"), ())
        return _requantised(scalar.load(total, at), factor, zero, y_zero.dtype)

    return compute(total.shape, body)


@op("QLinearConv", 10)
def q_linear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Convolution of quantised tensors, quantised; the int32 bias has the scale of the sums."""
    given = WindowAttributes(kernel_shape, strides, pads, dilations, auto_pad)
    window = window_of("QLinearConv", x, w, given)
    if bias is not None:
        assume_shape(bias.shape, w.shape[:1], "QLinearConv", "The bias")
    total = convolve_integers(x, w, x_zero, w_zero, window, group)

    def body(*at: Dim) -> Scalar:
        value = scalar.load(total, at)
        if bias is not None:
            value = value + scalar.load(bias, (at[1],))
        per_channel = _along(w_scale, "QLinearConv", 1, at, total.shape)
        own, result = (_number(s, "QLinearConv") for s in (x_scale, y_scale))
        factor = own * scalar.cast(per_channel, dtypes.FLOAT) / result
        zero = scalar.load(scalar_of(y_zero, "QLinearConv"), ())
        return _requantised(value, factor, zero, y_zero.dtype)

    return compute(total.shape, body)
