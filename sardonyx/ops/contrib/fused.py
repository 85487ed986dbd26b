"""Products and convolutions with what comes before or after them, of onnxruntime's own domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import dtypes, errors, integer, sizes
from sardonyx.base.dtypes import FLOAT, FLOAT8E4M3FN
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.blocks import mat_mul_n_bits
from sardonyx.ops.contrib.misc import bias_dropout
from sardonyx.ops.contrib.qlinear import channels_first, channels_last
from sardonyx.ops.contrib.transformer import (
    activate,
    fast_gelu,
    fused_conv,
    fused_mat_mul,
    gelu,
    simplified_layer_normalization,
    skip_simplified_layer_normalization,
)
from sardonyx.ops.core.contents import integers
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.onnx.convolution_transposed import conv_transpose
from sardonyx.ops.onnx.random import dropout_12
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_equal,
    assume_shape,
    cast,
    contract,
    matmul,
    maximum,
    reshape,
    sigmoid,
    transpose,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

DOMAIN = "com.microsoft"


@op("SampleOp", 1, domain=DOMAIN)
def sample_op(x: Tensor) -> Tensor:
    """The same."""
    return x


@op("GemmFastGelu", 1, domain=DOMAIN)
def gemm_fast_gelu(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """FastGelu of a product."""
    return fast_gelu(matmul(x, w), bias)


@op("FusedMatMulActivation", 1, domain=DOMAIN)
def fused_mat_mul_activation(
    a: Tensor,
    b: Tensor,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_axis: int | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema's name
    transB: int = 0,  # noqa: N803 - the schema's name
    transBatchA: int = 0,  # noqa: N803 - the schema's name
    transBatchB: int = 0,  # noqa: N803 - the schema's name
) -> Tensor:
    """FusedMatMul, and a function of its elements."""
    if activation_axis is not None:
        what = "Activations along an axis are not supported"
        raise errors.NotImplemented(message("FusedMatMulActivation", what, got=activation))
    result = fused_mat_mul(a, b, alpha=alpha, transA=transA, transB=transB,
                           transBatchA=transBatchA, transBatchB=transBatchB)  # fmt: skip
    given = [p for p in (activation_alpha, activation_beta, activation_gamma) if p is not None]
    return cast(activate(cast(result, accumulator(a.dtype)), activation, given), a.dtype)


@op("NhwcFusedConv", 1, domain=DOMAIN)
def nhwc_fused_conv(
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
    """FusedConv of images with channels last; filters have theirs first."""
    result = fused_conv(
        channels_first(x), w, bias, None if z is None else channels_first(z),
        activation=activation, activation_params=activation_params, auto_pad=auto_pad,
        dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return channels_last(result)


@op("ConvTransposeWithDynamicPads", 1, domain=DOMAIN)
def conv_transpose_with_dynamic_pads(
    x: Tensor,
    w: Tensor,
    pads: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """ConvTranspose whose pads are an input, which must be known when the plan is made."""
    known = None if pads is None else integers(pads, "The pads")
    return conv_transpose(
        x, w, bias, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, output_padding=output_padding, pads=known, strides=strides,
    )  # fmt: skip


# -- dropout, its mask in bits ----------------------------------------------------------------

_WORD = 32


def _bits_of(mask: Tensor) -> Tensor:
    """A mask, 32 elements in a word, the first in its lowest bit."""
    count = sizes.product(mask.shape)
    flat = reshape(mask, (count,))
    words = (count + (_WORD - 1)) // _WORD
    (word,), (bit,) = indices((words,)), reduced_indices((_WORD,))
    place = word * _WORD + bit
    inside = scalar.size(place) < scalar.size(count)
    kept = scalar.select(inside, scalar.load(flat, (place,)), scalar.constant(False, dtypes.BOOL))
    one = scalar.cast(kept, dtypes.UINT32)
    moved = scalar.binary("shl", one, scalar.cast(scalar.size(bit), dtypes.UINT32))
    return make_reduce((words,), (_WORD,), "sum", moved, dtypes.UINT32)


@op("BitmaskDropout", 1, domain=DOMAIN)
def bitmask_dropout(
    x: Tensor,
    ratio: Tensor | None = None,
    training: Tensor | None = None,
    *,
    seed: int | None = None,
    scope: Scope,
) -> tuple[Tensor, Tensor]:
    """Dropout; which elements are kept is said in bits."""
    result, kept = dropout_12(x, ratio, training, seed=seed, scope=scope)
    return result, _bits_of(kept)


@op("BitmaskBiasDropout", 1, domain=DOMAIN)
def bitmask_bias_dropout(
    x: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    ratio: Tensor | None = None,
    training: Tensor | None = None,
    *,
    seed: int | None = None,
    scope: Scope,
) -> tuple[Tensor, Tensor]:
    """BiasDropout; which elements are kept is said in bits."""
    result, kept = bias_dropout(x, bias, residual, ratio, training, seed=seed, scope=scope)
    return result, _bits_of(kept)


# -- floats of 8 and 4 bits -------------------------------------------------------------------


@op("GemmFloat8", 1, domain=DOMAIN)
def gemm_float8(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    scale_y: Tensor | None = None,
    *,
    activation: str = "NONE",
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: int = 1,
    transA: int = 0,  # noqa: N803 - the schema's name
    transB: int = 0,  # noqa: N803 - the schema's name
) -> Tensor:
    """alpha * A @ B + beta * C of scaled narrow floats, computed in float, and an activation."""
    where = "GemmFloat8"
    target = dtypes.BY_ONNX_ID.get(dtype)
    if target is None or not (target.is_float or target in (FLOAT8E4M3FN, dtypes.FLOAT8E5M2)):
        raise InvalidGraph(message(where, "Its output has no such type", got=str(dtype)))
    if scale_y is not None and scale_y.scalar_value != 1.0:
        what = "The schema does not say which way scaleY scales, so that it must be 1"
        raise errors.NotImplemented(message(where, what))
    left, right = cast(a, FLOAT), cast(b, FLOAT)
    result = matmul(transpose(left) if transA else left, transpose(right) if transB else right)
    for scale in (scale_a, scale_b):
        if scale is not None:
            result = result * cast(scalar_of(scale, where), FLOAT)
    if alpha != 1.0:
        result = result * alpha
    if c is not None and beta:
        result = result + cast(c, FLOAT) * beta
    if activation == "RELU":
        result = maximum(result, 0.0)
    elif activation == "GELU":
        result = gelu(result)
    elif activation not in ("NONE", ""):
        expected = "RELU, GELU or NONE"
        raise InvalidGraph(message(where, "Bad activation", expected=expected, got=activation))
    return cast(result, target)


@op("MatMulBlockQuantizedFp4Weight", 1, domain=DOMAIN)
def mat_mul_block_quantized_fp4_weight(
    a: Tensor,
    b: Tensor,
    weight_scale: Tensor,
    weight_scale_2: Tensor,
    input_scale: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    block_size: int = 16,
) -> Tensor:
    """A product with weights of 4 bits, two in a byte, (N, K / 2), blocks of which have scales."""
    where = "MatMulBlockQuantizedFp4Weight"
    columns, depth = b.shape[0], b.shape[1] * 2
    blocks = _blocks(where, a, depth, block_size)
    assume_shape(weight_scale.shape, (columns, blocks), where, "weight_scale")
    whole = cast(scalar_of(weight_scale_2, where), FLOAT)

    def weight(n: Dim, k: Dim) -> Scalar:
        byte = scalar.load(b, (n, k // 2))
        shift = scalar.cast(scalar.size(k % 2 * 4), dtypes.UINT8)
        code = scalar.binary("shr", byte, shift) & 15
        given = scalar.load(weight_scale, (n, integer.floordiv(k, block_size)))
        factor = scalar.cast(scalar.bitcast(given, FLOAT8E4M3FN), FLOAT) * scalar.load(whole, ())
        return _fp4(code) * factor

    return _weighted(where, a, columns, depth, weight, bias)


def _fp4(code: Scalar) -> Scalar:
    """E2M1's value of a code: a sign, two bits of exponent, one of mantissa."""
    exponent = scalar.binary("shr", code, 1) & 3
    mantissa = code & 1
    small = scalar.compare("eq", exponent, 0)
    shift = scalar.select(small, 0, exponent - 1)
    halves = scalar.binary("shl", scalar.select(small, mantissa, mantissa + 2), shift)
    value = scalar.cast(halves, FLOAT) * 0.5
    return scalar.select(code >= 8, -value, value)


@op("MatMulBlockQuantizedFp8Weight", 1, domain=DOMAIN)
def mat_mul_block_quantized_fp8_weight(
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    a_scale: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    block_size: int = 128,
) -> Tensor:
    """A product with weights of 8 bits, (N, K), blocks of which have scales."""
    where = "MatMulBlockQuantizedFp8Weight"
    columns, depth = b.shape
    blocks = _blocks(where, a, depth, block_size)
    assume_shape(b_scale.shape, (columns, blocks), where, "b_scale")
    left = a
    if a_scale is not None:
        scale = cast(scalar_of(a_scale, where), FLOAT)
        left = cast(cast(cast(a, FLOAT) / scale, FLOAT8E4M3FN), FLOAT) * scale

    def weight(n: Dim, k: Dim) -> Scalar:
        value = scalar.cast(scalar.load(b, (n, k)), FLOAT)
        return value * scalar.load(b_scale, (n, integer.floordiv(k, block_size)))

    return cast(_weighted(where, left, columns, depth, weight, bias), a.dtype)


def _blocks(where: str, a: Tensor, depth: Dim, block_size: int) -> Dim:
    """How many blocks there are along the depth."""
    if block_size < 1 or not a.rank:
        raise InvalidGraph(message(where, f"There are no blocks of {block_size}, or A has no axes"))
    assume_equal(a.shape[-1], depth, where, "The width of A is not K")
    return integer.floordiv(depth + (block_size - 1), block_size)


def _weighted(
    where: str, a: Tensor, columns: Dim, depth: Dim, weight: Callable[[Dim, Dim], Scalar],
    bias: Tensor | None,
) -> Tensor:  # fmt: skip
    """(..., columns): rows of numbers times weights (column, place), and a bias."""

    def body(at: tuple[Dim, ...], over: tuple[Dim, ...]) -> tuple[Scalar, Scalar]:
        value = scalar.cast(scalar.load(a, (*at[:-1], over[0])), FLOAT)
        return value, weight(at[-1], over[0])

    result = contract((*a.shape[:-1], columns), (depth,), body)
    if bias is not None:
        assume_shape(bias.shape, (columns,), where, "The bias")
        result = result + cast(bias, FLOAT)
    return cast(result, a.dtype)


# -- MatMulNBits with what is around it -------------------------------------------------------


def _normal(
    a: Tensor, skip: Tensor | None, scale: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor | None]:
    """What is multiplied, and the sum that it was made of."""
    if scale is None:
        return (a, None) if skip is None else (a + skip, a + skip)
    if skip is None:
        return simplified_layer_normalization(a, scale, epsilon=epsilon)[0], None
    result, _, _, total = skip_simplified_layer_normalization(a, skip, scale, epsilon=epsilon)
    return result, total


@op("MatMulNBitsQkv", 1, domain=DOMAIN)
def mat_mul_n_bits_qkv(
    a: Tensor,
    skip: Tensor | None,
    norm_scale: Tensor,
    q_b: Tensor,
    q_scales: Tensor,
    q_bias: Tensor | None,
    k_b: Tensor,
    k_scales: Tensor,
    k_bias: Tensor | None,
    v_b: Tensor,
    v_scales: Tensor,
    v_bias: Tensor | None = None,
    *,
    K: int,  # noqa: N803 - the schema's name
    Nkv: int,  # noqa: N803 - the schema's name
    Nq: int,  # noqa: N803 - the schema's name
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    epsilon: float = 1e-6,
) -> tuple[Tensor | None, ...]:
    """Three products of what a normalisation gives, with weights of few bits; and its sum."""
    normal, total = _normal(a, skip, norm_scale, epsilon)
    parts = (q_b, q_scales, q_bias, Nq), (k_b, k_scales, k_bias, Nkv), (v_b, v_scales, v_bias, Nkv)
    products = [
        mat_mul_n_bits(normal, b, scales, None, None, bias, K=K, N=n, block_size=block_size,
                       bits=bits, accuracy_level=accuracy_level)
        for b, scales, bias, n in parts
    ]  # fmt: skip
    return *products, total


@op("MatMulNBitsMlp", 1, domain=DOMAIN)
def mat_mul_n_bits_mlp(
    a: Tensor,
    skip: Tensor | None,
    norm_scale: Tensor | None,
    gate_b: Tensor,
    gate_scales: Tensor,
    gate_bias: Tensor | None,
    up_b: Tensor,
    up_scales: Tensor,
    up_bias: Tensor | None = None,
    *,
    K: int,  # noqa: N803 - the schema's name
    N: int,  # noqa: N803 - the schema's name
    activation: str,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    epsilon: float = 1e-5,
) -> tuple[Tensor, Tensor | None]:
    """A function of one product, times another, with weights of few bits; and what was summed."""
    if activation not in ("silu", "swish"):
        what = "Bad activation"
        raise errors.NotImplemented(
            message("MatMulNBitsMlp", what, expected="silu", got=activation)
        )
    normal, total = _normal(a, skip, norm_scale, epsilon)
    gate, up = (
        cast(mat_mul_n_bits(normal, b, scales, None, None, bias, K=K, N=N, block_size=block_size,
                            bits=bits, accuracy_level=accuracy_level), accumulator(a.dtype))
        for b, scales, bias in ((gate_b, gate_scales, gate_bias), (up_b, up_scales, up_bias))
    )  # fmt: skip
    return cast(gate * sigmoid(gate) * up, a.dtype), total
