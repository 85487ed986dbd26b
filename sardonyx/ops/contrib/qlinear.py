"""Operators between 8-bit codes of onnxruntime's own domain: by way of numbers, or exact sums."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base.dtypes import FLOAT, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ops.contrib.attention import attend_projected, refuse
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.matrix_misc import matmul_integers, q_linear_conv
from sardonyx.ops.onnx.normalisation import softmax_over
from sardonyx.ops.onnx.pooling import average_pool
from sardonyx.ops.onnx.quantise import dequantise, quantise
from sardonyx.tensor.language import (
    Tensor,
    cast,
    concat,
    mean,
    normalise_axis,
    sigmoid,
    transpose,
    where,
)

DOMAIN = "com.microsoft"


def _numbers(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    return dequantise(x, scale, zero, FLOAT, 0)


def _codes(x: Tensor, scale: Tensor, zero: Tensor | None, dtype: DType) -> Tensor:
    return quantise(x, scale, zero, dtype, 0)


@op("QLinearAdd", 1, domain=DOMAIN)
def q_linear_add(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None = None,
    b: Tensor | None = None,
    b_scale: Tensor | None = None,
    b_zero: Tensor | None = None,
    c_scale: Tensor | None = None,
    c_zero: Tensor | None = None,
) -> Tensor:
    """The sum, as codes."""
    b, b_scale, c_scale = (_given("QLinearAdd", x) for x in (b, b_scale, c_scale))
    total = _numbers(a, a_scale, a_zero) + _numbers(b, b_scale, b_zero)
    return _codes(total, c_scale, c_zero, a.dtype)


@op("QLinearMul", 1, domain=DOMAIN)
def q_linear_mul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None = None,
    b: Tensor | None = None,
    b_scale: Tensor | None = None,
    b_zero: Tensor | None = None,
    c_scale: Tensor | None = None,
    c_zero: Tensor | None = None,
) -> Tensor:
    """The product, as codes."""
    b, b_scale, c_scale = (_given("QLinearMul", x) for x in (b, b_scale, c_scale))
    product = _numbers(a, a_scale, a_zero) * _numbers(b, b_scale, b_zero)
    return _codes(product, c_scale, c_zero, a.dtype)


def _given(where_: str, x: Tensor | None) -> Tensor:
    if x is None:
        raise InvalidGraph(message(where_, "A scale, or what it belongs to, is missing"))
    return x


@op("QLinearConcat", 1, domain=DOMAIN)
def q_linear_concat(scale: Tensor, zero: Tensor, *given: Tensor, axis: int) -> Tensor:
    """Tensors of codes, each with its scale and zero point, one after the other, as codes."""
    if not given or len(given) % 3:
        what = "Its inputs are not tensors with a scale and a zero point each"
        raise InvalidGraph(message("QLinearConcat", what, got=str(len(given))))
    parts = [
        _codes(_numbers(*given[k : k + 3]), scale, zero, zero.dtype)
        for k in range(0, len(given), 3)
    ]
    return concat(parts, normalise_axis(axis, given[0].rank, "QLinearConcat"))


@op("QLinearWhere", 1, domain=DOMAIN)
def q_linear_where(
    condition: Tensor,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    z_scale: Tensor,
    z_zero: Tensor,
) -> Tensor:
    """Elements of `x` where the condition holds, else of `y`, as codes."""
    chosen = where(condition, _numbers(x, x_scale, x_zero), _numbers(y, y_scale, y_zero))
    return _codes(chosen, z_scale, z_zero, x.dtype)


# -- functions of one tensor ------------------------------------------------------------------


@op("QLinearLeakyRelu", 1, domain=DOMAIN)
def q_linear_leaky_relu(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    *,
    alpha: float = 0.01,
) -> Tensor:
    """Numbers, scaled where negative, as codes."""
    y_scale = _given("QLinearLeakyRelu", y_scale)
    value = _numbers(x, x_scale, x_zero)
    return _codes(where(value < 0.0, value * alpha, value), y_scale, y_zero, x.dtype)


@op("QLinearSigmoid", 1, domain=DOMAIN)
def q_linear_sigmoid(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
) -> Tensor:
    """1 / (1 + exp(-x)), as codes."""
    y_scale = _given("QLinearSigmoid", y_scale)
    return _codes(sigmoid(_numbers(x, x_scale, x_zero)), y_scale, y_zero, x.dtype)


@op("QLinearSoftmax", 1, domain=DOMAIN)
def q_linear_softmax(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    *,
    opset: int,
    axis: int = -1,
) -> Tensor:
    """Softmax along an axis, before opset 13 over all axes from it on, as codes."""
    y_scale = _given("QLinearSoftmax", y_scale)
    first = normalise_axis(axis, x.rank, "QLinearSoftmax")
    axes = (first,) if opset >= 13 else tuple(range(first, x.rank))
    return _codes(softmax_over(_numbers(x, x_scale, x_zero), axes), y_scale, y_zero, x.dtype)


@op("QLinearReduceMean", 1, domain=DOMAIN)
def q_linear_reduce_mean(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    *,
    axes: Sequence[int] = (),
    keepdims: int = 1,
) -> Tensor:
    """Mean over axes, all if none are named, as codes."""
    y_scale = _given("QLinearReduceMean", y_scale)
    value = _numbers(x, x_scale, x_zero)
    return _codes(mean(value, tuple(axes) or None, bool(keepdims)), y_scale, y_zero, x.dtype)


# -- images -----------------------------------------------------------------------------------


def channels_first(x: Tensor) -> Tensor:
    """(N, ..., C) as (N, C, ...)."""
    return transpose(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def channels_last(x: Tensor) -> Tensor:
    """(N, C, ...) as (N, ..., C)."""
    return transpose(x, (0, *range(2, x.rank), 1))


@op("QLinearAveragePool", 1, domain=DOMAIN)
def q_linear_average_pool(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """The mean of every window, as codes."""
    y_scale = _given("QLinearAveragePool", y_scale)
    value = _numbers(x, x_scale, x_zero)
    result = average_pool(
        channels_first(value) if channels_last else value, kernel_shape=kernel_shape,
        auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad, pads=pads,
        strides=strides,
    )  # fmt: skip
    return _codes(_last_if(result, channels_last), y_scale, y_zero, x.dtype)


def _last_if(x: Tensor, wanted: int) -> Tensor:
    return channels_last(x) if wanted else x


@op("QLinearGlobalAveragePool", 1, domain=DOMAIN)
def q_linear_global_average_pool(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    *,
    channels_last: int = 0,
) -> Tensor:
    """The mean over the space, as codes."""
    if x.rank < 3:
        what = "The input has no space"
        raise InvalidGraph(message("QLinearGlobalAveragePool", what, got=str(list(x.shape))))
    axes = range(1, x.rank - 1) if channels_last else range(2, x.rank)
    average = mean(_numbers(x, x_scale, x_zero), axes, keepdims=True)
    return _codes(average, y_scale, y_zero, x.dtype)


@op("QLinearConv", 1, domain=DOMAIN)
def q_linear_conv_contrib(
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
    channels_last: int = 0,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """ONNX's QLinearConv, whose channels may come last."""
    image = channels_first(x) if channels_last else x
    result = q_linear_conv(
        image, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias, auto_pad=auto_pad,
        dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return _last_if(result, channels_last)


# -- products ---------------------------------------------------------------------------------


@op("QGemm", 1, domain=DOMAIN)
def q_gemm(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema's name
    transB: int = 0,  # noqa: N803 - the schema's name
) -> Tensor:
    """alpha * A @ B + C of codes, where C has the scale of the sums: as codes, or as floats."""
    if a.rank != 2 or b.rank != 2:
        got = f"{list(a.shape)} and {list(b.shape)}"
        raise InvalidGraph(message("QGemm", "It takes two matrices", got=got))
    left = transpose(a) if transA else a
    right = transpose(b) if transB else b
    total = matmul_integers(left, right, a_zero, b_zero, "QGemm")
    if c is not None:
        total = total + c
    result = cast(total, FLOAT) * (a_scale * b_scale * alpha)
    if y_scale is None:
        return result
    return _codes(result, y_scale, y_zero, a.dtype if y_zero is None else y_zero.dtype)


@op("QAttention", 1, domain=DOMAIN)
def q_attention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    mask_index: Tensor | None = None,
    x_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    past: Tensor | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
    output_count: int,
) -> tuple[Tensor, ...]:
    """Attention whose projections are products of codes; the rest is in float."""
    refuse("QAttention", do_rotary=do_rotary, past_present_share_buffer=past_present_share_buffer)
    total = cast(matmul_integers(x, weight, x_zero, weight_zero, "QAttention"), x_scale.dtype)
    product = total * (x_scale * weight_scale) + bias
    return attend_projected(
        "QAttention", product, mask_index, past, None, num_heads, mask_filter_value, (), scale,
        unidirectional, output_count,
    )  # fmt: skip
