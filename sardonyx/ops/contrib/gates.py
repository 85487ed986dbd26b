"""Gates, mixed streams and rotated positions of language models, of onnxruntime's own domain."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import errors, integer
from sardonyx.base.dtypes import FLOAT
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.packed import restore_padding
from sardonyx.ops.core.ranges import row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.onnx.attention import RotaryCaches, rotate, split_heads
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_equal,
    assume_shape,
    cast,
    compute,
    cos,
    exp,
    log,
    matmul,
    maximum,
    reshape,
    rsqrt,
    sigmoid,
    sign,
    sin,
    slice_axis,
    sqrt,
    unsqueeze,
)
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"


def _refuse_rank(where: str, name: str, x: Tensor, *ranks: int) -> None:
    if x.rank not in ranks:
        expected = " or ".join(map(str, ranks))
        raise InvalidGraph(
            message(where, f"The rank of {name} is wrong", expected=expected, got=str(x.rank))
        )


# -- gates ------------------------------------------------------------------------------------


@op("GatedAdd", 1, domain=DOMAIN)
def gated_add(x: Tensor, y: Tensor, gate: Tensor) -> Tensor:
    """x + y * gate, where the gate has one number for each row."""
    assume_shape(y.shape, x.shape, "GatedAdd", "Y")
    assume_shape(gate.shape, (*x.shape[:-1], 1), "GatedAdd", "The gate")
    wide = accumulator(x.dtype)
    product = cast(cast(y, wide) * cast(gate, wide), x.dtype)
    return cast(cast(x, wide) + cast(product, wide), x.dtype)


@op("ScaledSiLU", 1, domain=DOMAIN)
def scaled_silu(x: Tensor, scale: Tensor | None = None, *, alpha: float = 1.0) -> Tensor:
    """z * sigmoid(z) of z = scale * x, every step rounded to the type of x."""
    wide = cast(x, accumulator(x.dtype))
    factor = alpha if scale is None else cast(scalar_of(scale, "ScaledSiLU"), wide.dtype)
    scaled = cast(cast(wide * factor, x.dtype), wide.dtype)
    chance = cast(cast(sigmoid(scaled), x.dtype), wide.dtype)
    return cast(scaled * chance, x.dtype)


def _softplus(x: Tensor) -> Tensor:
    return maximum(x, 0.0) + log(exp(-abs(x)) + 1.0)


@op("LinearAttentionGate", 1, domain=DOMAIN)
def linear_attention_gate(
    a: Tensor, dt_bias: Tensor, decay_scale: Tensor, b: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """What LinearAttention reads: decays of (B, T, H), and rates."""
    for name, x in (("dt_bias", dt_bias), ("decay_scale", decay_scale)):
        assume_shape(x.shape, a.shape[-1:], "LinearAttentionGate", name)
    decay = cast(decay_scale * _softplus(cast(a, FLOAT) + dt_bias), a.dtype)
    return decay, None if b is None else cast(sigmoid(cast(b, FLOAT)), b.dtype)


def _rms(x: Tensor, epsilon: float) -> Tensor:
    """Divided by the root mean square over the last axis, in float."""
    wide = cast(x, FLOAT)
    return wide * rsqrt((wide * wide).mean(-1, keepdims=True) + epsilon)


@op("EngramGate", 1, domain=DOMAIN)
def engram_gate(
    key: Tensor,
    query: Tensor,
    value: Tensor,
    key_norm_scale: Tensor,
    query_norm_scale: Tensor,
    conv_norm_scale: Tensor | None = None,
    *,
    epsilon: float = 1e-5,
) -> tuple[Tensor, Tensor | None]:
    """Values (B, S, H), gated by how alike keys and queries (B, S, C, H) are; and normalised.

    gate = sigmoid(sign(dot) * sqrt(max(|dot|, 1e-6))), dot = key . query / sqrt(H).
    """
    where = "EngramGate"
    _refuse_rank(where, "key", key, 4)
    assume_shape(query.shape, key.shape, where, "query")
    assume_shape(value.shape, (*key.shape[:2], key.shape[3]), where, "value")
    scales = [key_norm_scale, query_norm_scale]
    scales += [] if conv_norm_scale is None else [conv_norm_scale]
    for scale in scales:
        assume_shape(scale.shape, key.shape[2:], where, "A scale")
    left = _rms(key, epsilon) * cast(key_norm_scale, FLOAT)
    right = _rms(query, epsilon) * cast(query_norm_scale, FLOAT)
    width = scalar.unary("sqrt", scalar.cast(scalar.size(key.shape[3]), FLOAT))
    dot = (left * right).sum(-1, keepdims=True) / compute((), lambda: width)
    gate = sigmoid(sign(dot) * sqrt(maximum(abs(dot), 1e-6)))
    gated = gate * unsqueeze(cast(value, FLOAT), (2,))
    if conv_norm_scale is None:
        return cast(gated, key.dtype), None
    normal = _rms(gated, epsilon) * cast(conv_norm_scale, FLOAT)
    return cast(gated, key.dtype), cast(normal, key.dtype)


@op("GatedRelativePositionBias", 1, domain=DOMAIN)
def gated_relative_position_bias(
    query: Tensor,
    query_bias: Tensor,
    rel_pos: Tensor,
    weight: Tensor,
    bias: Tensor,
    eco_a: Tensor,
    token_offset: Tensor | None = None,
    *,
    num_heads: int,
) -> Tensor:
    """A bias (1, heads, S, S) times a gate that each query has: (B, heads, S, S)."""
    where = "GatedRelativePositionBias"
    if token_offset is not None:
        query = restore_padding(query, token_offset)
    _refuse_rank(where, "query_layer", query, 3)
    heads = split_heads(query + query_bias, num_heads, where)
    both = matmul(heads, weight) + bias
    half = both.shape[3] // 2
    assume_equal(both.shape[3], half * 2, where, "The width of the weight is odd")
    wide = cast(both, accumulator(query.dtype))
    update, reset = (
        sigmoid(slice_axis(wide, 3, begin, begin + half).sum(-1, keepdims=True))
        for begin in (0, half)
    )
    gate = update * (reset * cast(eco_a, wide.dtype) - 1.0) + 2.0
    return cast(gate * cast(rel_pos, wide.dtype), query.dtype)


# -- streams ----------------------------------------------------------------------------------


def _grouped(where: str, x: Tensor, branches: int) -> Tensor:
    """Streams as (..., branches, width)."""
    if branches < 0 or x.rank < (1 if branches else 2):
        what = f"There are no {branches} branches in {list(x.shape)}"
        raise InvalidGraph(message(where, what))
    if not branches:
        return x
    width = integer.floordiv(x.shape[-1], branches)
    assume_equal(width * branches, x.shape[-1], where, "The streams do not fit")
    return reshape(x, (*x.shape[:-1], branches, width))


@op("BranchwiseRMSNorm", 1, domain=DOMAIN)
def branchwise_rms_norm(
    x: Tensor, scale: Tensor | None = None, *, num_branches: int = 0, epsilon: float = 1e-5
) -> Tensor:
    """Each branch divided by its root mean square, in float."""
    where = "BranchwiseRMSNorm"
    groups = _grouped(where, x, num_branches)
    result = _rms(groups, epsilon)
    if scale is not None:
        factor = cast(scale, FLOAT)
        if scale.rank == 1:
            factor = _of_branches(where, factor, *groups.shape[-2:])
        result = result * factor
    return cast(reshape(result, x.shape), x.dtype)


def _of_branches(where: str, scale: Tensor, branches: Dim, width: Dim) -> Tensor:
    """A flat scale by branch, if it has more numbers than one of them."""
    if scale.shape[0] == width:
        return scale
    assume_equal(scale.shape[0], branches * width, where, "The scale does not fit")
    return reshape(scale, (branches, width))


@op("HyperConnectionPreMix", 1, domain=DOMAIN)
def hyper_connection_pre_mix(
    streams: Tensor, pre_mix: Tensor, *, num_branches: int = 0, reduction_scale: float = 1.0
) -> Tensor:
    """The weighted sum of streams (..., C, H): (..., H)."""
    where = "HyperConnectionPreMix"
    groups = _grouped(where, streams, num_branches)
    wide = cast(groups, FLOAT)
    gates = _gates(where, pre_mix, groups.shape)
    return cast((wide * gates).sum(-2) * reduction_scale, streams.dtype)


def _gates(where: str, gates: Tensor, shape: Sequence[Dim]) -> Tensor:
    """Gates (..., C), (..., C, 1), (..., C, H) or (..., C * H) for streams (..., C, H)."""
    wide = cast(gates, FLOAT)
    if gates.rank == len(shape):
        return wide
    _refuse_rank(where, "the gates", gates, len(shape) - 1)
    if gates.shape[-1] == shape[-2]:
        return unsqueeze(wide, (gates.rank,))
    whole = shape[-2] * shape[-1]
    assume_equal(gates.shape[-1], whole, where, "The gates do not fit")
    return reshape(wide, tuple(shape))


@op("HyperConnectionPostMix", 1, domain=DOMAIN)
def hyper_connection_post_mix(
    streams: Tensor,
    block_output: Tensor,
    post_mix: Tensor,
    stream_mix: Tensor | None = None,
    *,
    num_branches: int = 0,
) -> Tensor:
    """Streams (..., C, H), mixed by (..., C, C), and what a block gives, (..., H), by gates."""
    where = "HyperConnectionPostMix"
    groups = _grouped(where, streams, num_branches)
    wide = cast(groups, FLOAT)
    if stream_mix is not None:
        assume_shape(stream_mix.shape, (*groups.shape[:-1], groups.shape[-2]), where, "stream_mix")
        swapped = (*range(stream_mix.rank - 2), stream_mix.rank - 1, stream_mix.rank - 2)
        wide = matmul(cast(stream_mix, FLOAT).transpose(*swapped), wide)
    assume_shape(block_output.shape, (*groups.shape[:-2], groups.shape[-1]), where, "block_output")
    given = unsqueeze(cast(block_output, FLOAT), (groups.rank - 2,))
    result = wide + _gates(where, post_mix, groups.shape) * given
    return cast(reshape(result, streams.shape), streams.dtype)


# -- rotated positions ------------------------------------------------------------------------


@op("GemmaRotaryEmbedding", 1, domain=DOMAIN)
def gemma_rotary_embedding(
    emb: Tensor, q: Tensor, q_rot: Tensor, k: Tensor, k_rot: Tensor
) -> tuple[Tensor, Tensor]:
    """Queries and keys (B, heads, S, D), rotated by the angles (B, S, D)."""
    _refuse_rank("GemmaRotaryEmbedding", "emb", emb, 3)
    sine, cosine = (unsqueeze(cast(f(emb), q.dtype), (1,)) for f in (sin, cos))
    return q * cosine + q_rot * sine, k * cosine + k_rot * sine


@op("MRotaryEmbedding", 1, domain=DOMAIN)
def m_rotary_embedding(
    x: Tensor,
    positions: Tensor,
    cosine: Tensor,
    sine: Tensor,
    *,
    mrope_section: Sequence[int],
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """Rotary positions of time, height and width, each for its part of the pairs."""
    where = "MRotaryEmbedding"
    if len(mrope_section) != 3 or min(mrope_section) < 0 or mrope_layout not in (0, 1):
        what = f"There are no sections {list(mrope_section)} in layout {mrope_layout}"
        raise InvalidGraph(message(where, what))
    if scale != 1.0:
        what = "Its attribute scale is not supported"
        raise errors.NotImplemented(message(where, what, expected="1", got=str(scale)))
    _refuse_rank(where, "input", x, 3, 4)
    assume_shape(positions.shape, (3, x.shape[0], x.shape[-2]), where, "position_ids")
    assume_equal(sum(mrope_section), cosine.shape[1], where, "The sections do not fill a cache")
    if x.rank == 3 and not num_heads:
        width = rotary_embedding_dim or cosine.shape[1] * 2
        count = integer.floordiv(x.shape[2], width)
        num_heads = count if isinstance(count, int) else 0
    time, height, wide = mrope_section

    def stream(pair: Dim) -> Scalar:
        at = scalar.size(pair)
        if mrope_layout:
            kind = scalar.size(pair % 3)
            down = scalar.compare("eq", kind, 1) & (at < height * 3)
            along = scalar.compare("eq", kind, 2) & (at < wide * 3)
        else:
            down, along = at >= time, at >= time + height
        found = scalar.select(down, scalar.size(1), scalar.size(0))
        return scalar.select(along, scalar.size(2), found)

    def angle(cache: Tensor, batch: Dim, position: Dim, pair: Dim) -> Scalar:
        which = scalar.as_index(stream(pair), 3)
        place = scalar.load(positions, (which, batch, position))
        return scalar.load(cache, (row_in(place, "position_ids", cache.shape[0]), pair))

    caches = RotaryCaches(cosine, sine, bool(interleaved))
    return rotate(x, caches, angle, num_heads, rotary_embedding_dim)
