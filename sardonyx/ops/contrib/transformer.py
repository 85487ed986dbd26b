"""Operators of onnxruntime's own domain that its transformer optimiser writes into files."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.base import dtypes, errors
from sardonyx.base.errors import message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.convolution import add_bias, convolve, window_of
from sardonyx.ops.onnx.matrix_misc import matmul_integers
from sardonyx.ops.onnx.normalisation import group_norm, layer_norm, rms_norm
from sardonyx.ops.onnx.quantise import dequantise, dynamic_quantize_linear, quantise
from sardonyx.ops.onnx.windows import WindowAttributes
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    cast,
    clip,
    compute,
    element,
    erf,
    matmul,
    maximum,
    sigmoid,
    tanh,
    transpose,
    where,
)

DOMAIN = "com.microsoft"

# -- activations ------------------------------------------------------------------------------


def _gelu(x: Tensor) -> Tensor:
    wide = cast(x, accumulator(x.dtype))
    return cast(wide * 0.5 * (erf(wide * math.sqrt(0.5)) + 1.0), x.dtype)


def _fast_gelu(x: Tensor) -> Tensor:
    wide = cast(x, accumulator(x.dtype))
    inner = wide * (wide * wide * 0.035677408136300125 + 0.7978845608028654)
    return cast(wide * 0.5 * (tanh(inner) + 1.0), x.dtype)


@op("Gelu", 1, domain=DOMAIN)
def gelu(x: Tensor) -> Tensor:
    """x * P(X <= x) of a normal X."""
    return _gelu(x)


@op("BiasGelu", 1, domain=DOMAIN)
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Gelu of a sum."""
    return _gelu(x + bias)


@op("FastGelu", 1, domain=DOMAIN)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu by its approximation with tanh."""
    return _fast_gelu(x if bias is None else x + bias)


@op("QuickGelu", 1, domain=DOMAIN)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    """x * sigmoid(alpha * x)."""
    wide = cast(x, accumulator(x.dtype))
    return cast(wide * sigmoid(wide * alpha), x.dtype)


@op("BiasSplitGelu", 1, domain=DOMAIN)
def bias_split_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """The first half of the last axis times Gelu of the second, after a bias."""
    half = x.shape[-1] // 2
    total = x + bias

    def part(offset: Dim) -> Tensor:
        shape = (*x.shape[:-1], half)
        return compute(shape, lambda *at: element(total, (*at[:-1], at[-1] + offset)))

    return part(0) * _gelu(part(half))


def activate(x: Tensor, name: str, parameters: Sequence[float]) -> Tensor:
    """The activation of a fused operator.

    Raises:
        NotImplemented: It has no such name.
    """
    given = tuple(parameters)
    if not name:
        return x
    if name == "Relu":
        return maximum(x, 0.0)
    if name == "LeakyRelu":
        return where(x < 0.0, x * (given[0] if given else 0.01), x)
    if name == "Clip":
        low, high = given or (float("-inf"), float("inf"))
        return clip(x, low, high)
    if name == "Sigmoid":
        return sigmoid(x)
    if name == "Tanh":
        return tanh(x)
    if name == "HardSigmoid":
        alpha, beta = given or (0.2, 0.5)
        return clip(x * alpha + beta, 0.0, 1.0)
    raise errors.NotImplemented(message("activation", f"{name!r} is not known"))


# -- normalisations ---------------------------------------------------------------------------


def _skipped(x: Tensor, skip: Tensor, bias: Tensor | None) -> Tensor:
    total = x + skip
    return total if bias is None else total + bias


@op("SkipLayerNormalization", 1, domain=DOMAIN)
def skip_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Layer normalisation of a sum; also gives mean, inverse deviation and the sum."""
    total = _skipped(x, skip, bias)
    result, average, inverse = layer_norm(total, gamma, beta, -1, epsilon, 1)
    return result, average, inverse, total


@op("SkipSimplifiedLayerNormalization", 1, domain=DOMAIN)
def skip_simplified_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Division of a sum by its root mean square; also gives the inverse of that and the sum."""
    total = _skipped(x, skip, bias)
    result, inverse = rms_norm(total, gamma, -1, epsilon, 1)
    return result, None, inverse, total


# onnxruntime keeps this one in ONNX's own domain.
@op("SimplifiedLayerNormalization", 1)
def simplified_layer_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Tensor, Tensor]:
    """Division by the root mean square, in the scale's type; also gives the inverse of that."""
    return rms_norm(x, scale, axis, epsilon, stash_type, scale.dtype)


@op("GroupNorm", 1, domain=DOMAIN)
def group_norm_contrib(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    groups: int,
    activation: int = 0,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> Tensor:
    """Group normalisation, by default of (N, H, W, C), and SiLU if `activation` is 1."""
    last = x.rank - 1
    if channels_last:
        x = transpose(x, (0, last, *range(1, last)))
    result = group_norm(x, gamma, beta, groups, epsilon, per_group=False)
    if activation:
        wide = cast(result, accumulator(x.dtype))
        result = cast(wide * sigmoid(wide), x.dtype)
    return transpose(result, (0, *range(2, x.rank), 1)) if channels_last else result


# -- products ---------------------------------------------------------------------------------


@op("FusedMatMul", 1, domain=DOMAIN)
def fused_mat_mul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803 - ONNX's name
    transB: int = 0,  # noqa: N803 - ONNX's name
    transBatchA: int = 0,  # noqa: N803 - ONNX's name
    transBatchB: int = 0,  # noqa: N803 - ONNX's name
) -> Tensor:
    """A scaled product of matrices whose axes may lie in another order."""
    left = _ordered(a, bool(transA), bool(transBatchA))
    right = _ordered(b, bool(transB), bool(transBatchB))
    result = matmul(left, right)
    if alpha == 1.0:
        return result
    return cast(cast(result, accumulator(a.dtype)) * alpha, a.dtype)


def _ordered(x: Tensor, swapped: bool, batch_swapped: bool) -> Tensor:
    """`x` as a batch of matrices; with `batch_swapped` its rows come before the batch axes."""
    if x.rank < 2 or not (swapped or batch_swapped):
        return x
    order = list(range(x.rank))
    if batch_swapped:
        order = [*order[1:-1], 0, order[-1]]
    if swapped:
        order[-2], order[-1] = order[-1], order[-2]
    return transpose(x, order)


@op("FusedConv", 1, domain=DOMAIN)
def fused_conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Convolution with bias, a summand and an activation."""
    given = WindowAttributes(kernel_shape, strides, pads, dilations, auto_pad)
    window = window_of("FusedConv", x, w, given)
    wide = accumulator(x.dtype)
    result = add_bias(convolve(x, w, window, group, wide), bias, wide)
    if z is not None:
        result = result + cast(z, wide)
    return cast(activate(result, activation, activation_params), x.dtype)


@op("FusedGemm", 1, domain=DOMAIN)
def fused_gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803 - ONNX's name
    transB: int = 0,  # noqa: N803 - ONNX's name
) -> Tensor:
    """alpha * A @ B + beta * C, and an activation."""
    left = transpose(a) if transA else a
    right = transpose(b) if transB else b
    wide = accumulator(a.dtype)
    result = cast(matmul(left, right), wide)
    if alpha != 1.0:
        result = result * alpha
    if c is not None:
        summand = cast(c, wide)
        result = result + (summand if beta == 1.0 else summand * beta)
    given = [p for p in (activation_alpha, activation_beta, activation_gamma) if p is not None]
    return cast(activate(result, activation, given), a.dtype)


# -- quantised --------------------------------------------------------------------------------


@op("QuantizeLinear", 1, domain=DOMAIN)
def quantize_linear(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, block_size: int = 0
) -> Tensor:
    """Codes of numbers, also of 16 and 4 bits."""
    dtype = zero.dtype if zero is not None else dtypes.UINT8
    return quantise(x, scale, zero, dtype, axis, block_size)


@op("DequantizeLinear", 1, domain=DOMAIN)
def dequantize_linear(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, block_size: int = 0
) -> Tensor:
    """Numbers of codes, also of 16 and 4 bits."""
    return dequantise(x, scale, zero, scale.dtype, axis, block_size)


@op("MatMulIntegerToFloat", 1, domain=DOMAIN)
def mat_mul_integer_to_float(
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Product of 8-bit matrices, scaled, with a bias."""
    total = cast(matmul_integers(a, b, a_zero, b_zero, "MatMulIntegerToFloat"), a_scale.dtype)
    result = total * (a_scale * b_scale)
    return result if bias is None else result + bias


@op("DynamicQuantizeMatMul", 1, domain=DOMAIN)
def dynamic_quantize_mat_mul(
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Product of a float matrix, quantised on the way, with an 8-bit matrix."""
    codes, scale, zero = dynamic_quantize_linear(a)
    return mat_mul_integer_to_float(codes, b, scale, b_scale, zero, b_zero, bias)
