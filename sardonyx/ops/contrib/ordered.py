"""Operators on int8 matrices whose order cuBLASLt names; here they lie row by row."""

from __future__ import annotations

from sardonyx.base import dtypes, errors
from sardonyx.base.dtypes import FLOAT, INT8, INT32
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.integer import known_equal
from sardonyx.ops.contrib.transformer import gelu
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.onnx.normalisation import layer_norm
from sardonyx.tensor.language import (
    Tensor,
    cast,
    clip,
    matmul,
    normalise_axis,
    reshape,
    round_even,
    transpose,
)

DOMAIN = "com.microsoft"
_COLUMNS, _ROWS = 0, 1
_LOW, _HIGH = -128.0, 127.0


def _refuse_tiles(where: str, **orders: int | None) -> None:
    for name, order in orders.items():
        if order not in (None, _ROWS):
            what = f"Its attribute {name} asks for an order of cuBLASLt's that is not supported"
            raise errors.NotImplemented(message(where, what, expected="1", got=str(order)))


def _scale(where: str, x: Tensor) -> Tensor:
    return cast(scalar_of(x, where), FLOAT)


def _codes(x: Tensor, scale: Tensor) -> Tensor:
    """The nearest whole numbers of 8 bits."""
    return cast(clip(round_even(x / scale), _LOW, _HIGH), INT8)


@op("QuantizeWithOrder", 1, domain=DOMAIN)
def quantize_with_order(x: Tensor, scale: Tensor, *, order_input: int, order_output: int) -> Tensor:
    """Codes of int8."""
    where = "QuantizeWithOrder"
    _refuse_tiles(where, order_input=order_input, order_output=order_output)
    return _codes(cast(x, FLOAT), _scale(where, scale))


@op("DequantizeWithOrder", 1, domain=DOMAIN)
def dequantize_with_order(
    x: Tensor, scale: Tensor, *, order_input: int, order_output: int, to: int
) -> Tensor:
    """Numbers of codes."""
    where = "DequantizeWithOrder"
    _refuse_tiles(where, order_input=order_input, order_output=order_output)
    target = dtypes.BY_ONNX_ID.get(to)
    if target not in (FLOAT, dtypes.FLOAT16):
        raise InvalidGraph(message(where, "Bad type", expected="1 or 10", got=str(to)))
    return cast(cast(x, FLOAT) * _scale(where, scale), target)


@op("QOrderedGelu", 1, domain=DOMAIN)
def q_ordered_gelu(
    x: Tensor, scale_x: Tensor, scale_y: Tensor, *, order_X: int | None = None,  # noqa: N803 - the schema's name
    order_Y: int | None = None,  # noqa: N803 - the schema's name
) -> Tensor:  # fmt: skip
    """Gelu of codes; element by element, so that any order is right."""
    where = "QOrderedGelu"
    if order_X is not None and order_Y is not None and order_X != order_Y:
        raise InvalidGraph(message(where, "Its orders differ", got=f"{order_X} and {order_Y}"))
    return _codes(gelu(cast(x, FLOAT) * _scale(where, scale_x)), _scale(where, scale_y))


@op("QOrderedLayerNormalization", 1, domain=DOMAIN)
def q_ordered_layer_normalization(
    x: Tensor,
    scale_x: Tensor,
    gamma: Tensor,
    beta: Tensor | None,
    scale_y: Tensor,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    order_X: int = _ROWS,  # noqa: N803 - the schema's name
    order_Y: int = _ROWS,  # noqa: N803 - the schema's name
) -> Tensor:
    """Layer normalisation of codes."""
    where = "QOrderedLayerNormalization"
    _refuse_tiles(where, order_X=order_X, order_Y=order_Y)
    wide = cast(x, FLOAT) * _scale(where, scale_x)
    first = normalise_axis(axis, x.rank, where)
    added = None if beta is None else cast(beta, FLOAT)
    result = layer_norm(wide, cast(gamma, FLOAT), added, first, epsilon, 1)[0]
    return _codes(result, _scale(where, scale_y))


@op("QOrderedMatMul", 1, domain=DOMAIN)
def q_ordered_mat_mul(
    a: Tensor,
    scale_a: Tensor,
    b: Tensor,
    scale_b: Tensor,
    scale_y: Tensor,
    bias: Tensor | None = None,
    c: Tensor | None = None,
    scale_c: Tensor | None = None,
    *,
    order_A: int,  # noqa: N803 - the schema's name
    order_B: int,  # noqa: N803 - the schema's name
    order_Y: int,  # noqa: N803 - the schema's name
) -> Tensor:
    """Codes of A @ B + bias + C, where B (K, N) lies column by column."""
    where = "QOrderedMatMul"
    _refuse_tiles(where, order_A=order_A, order_Y=order_Y)
    if order_B != _COLUMNS:
        what = "Its attribute order_B asks for an order of cuBLASLt's that is not supported"
        raise errors.NotImplemented(message(where, what, expected="0", got=str(order_B)))
    if b.rank < 2:  # noqa: PLR2004 - a matrix
        raise InvalidGraph(message(where, "B needs two axes", got=str(list(b.shape))))
    # What lies column by column as (K, N) lies row by row as (N, K), whichever shape it declares.
    depth = a.shape[-1]
    count = b.shape[-1] if known_equal(b.shape[-2], depth) else b.shape[-2]
    right = reshape(b, (*b.shape[:-2], count, depth))
    transposed = transpose(right, (*range(b.rank - 2), b.rank - 1, b.rank - 2))
    total = cast(matmul(cast(a, INT32), cast(transposed, INT32)), FLOAT)
    columns = cast(scale_b, FLOAT) if scale_b.rank else _scale(where, scale_b)
    total = total * _scale(where, scale_a) * columns
    if bias is not None:
        total = total + bias
    if c is not None:
        if scale_c is None:
            raise InvalidGraph(message(where, "It has C, but no scale_C"))
        total = total + cast(c, FLOAT) * _scale(where, scale_c)
    return _codes(total, _scale(where, scale_y))
