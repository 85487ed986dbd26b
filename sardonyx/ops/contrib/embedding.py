"""Embeddings of BERT-like models in one operator, of onnxruntime's own domain."""

from __future__ import annotations

from sardonyx.base.dtypes import DOUBLE, FLOAT, INT32, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.ranges import row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.normalisation import layer_norm
from sardonyx.ops.onnx.quantise import dequantise
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_at_most,
    assume_broadcast,
    assume_shape,
    cast,
    compute,
    constant,
    load_broadcast,
    reshape,
)
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"
_NAME = "EmbedLayerNormalization"


def _row(table: Tensor, index: Scalar, name: str, column: Dim) -> Scalar:
    return scalar.load(table, (row_in(index, name, table.shape[0]), column))


@op(_NAME, 1, domain=DOMAIN)
def embed_layer_normalization(
    ids: Tensor,
    segment_ids: Tensor | None = None,
    words: Tensor | None = None,
    positions: Tensor | None = None,
    segments: Tensor | None = None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings of words, places and segments, normalised; lengths by the mask; their sum."""
    if ids.rank != 2 or words is None or positions is None or gamma is None or beta is None:
        what = "It needs ids of two axes, embeddings, gamma and beta"
        raise InvalidGraph(message(_NAME, what, got=str(list(ids.shape))))
    batch, length = ids.shape
    if segment_ids is not None:
        assume_shape(segment_ids.shape, ids.shape, _NAME, "The tensor of segments")
    if position_ids is None:
        assume_at_most(length, positions.shape[0], _NAME, "There are not enough positions")
    else:
        assume_broadcast(position_ids.shape, ids.shape, _NAME, "The tensor of positions")

    def body(b: Dim, i: Dim, d: Dim) -> Scalar:
        value = _row(words, scalar.load(ids, (b, i)), "input_ids", d)
        if position_ids is None:
            value = value + scalar.load(positions, (i, d))
        else:
            place = load_broadcast(position_ids, (b, i))
            value = value + _row(positions, place, "position_ids", d)
        if segment_ids is not None and segments is not None:
            value = value + _row(segments, scalar.load(segment_ids, (b, i)), "segment_ids", d)
        return value

    total = compute((batch, length, words.shape[1]), body)
    result = layer_norm(total, gamma, beta, -1, epsilon, 1)[0]
    if mask is None:
        return result, constant(0, INT32, (batch,)), total
    assume_shape(mask.shape, ids.shape, _NAME, "The mask")
    return result, cast(mask.sum(1), INT32), total


@op("QEmbedLayerNormalization", 1, domain=DOMAIN)
def q_embed_layer_normalization(
    ids: Tensor,
    segment_ids: Tensor | None = None,
    words: Tensor | None = None,
    positions: Tensor | None = None,
    segments: Tensor | None = None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    mask: Tensor | None = None,
    words_scale: Tensor | None = None,
    positions_scale: Tensor | None = None,
    segments_scale: Tensor | None = None,
    gamma_scale: Tensor | None = None,
    beta_scale: Tensor | None = None,
    words_zero: Tensor | None = None,
    positions_zero: Tensor | None = None,
    segments_zero: Tensor | None = None,
    gamma_zero: Tensor | None = None,
    beta_zero: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor]:
    """As EmbedLayerNormalization, of embeddings and parameters in 8 bits."""
    parts = []
    for x, scale, zero in (
        (words, words_scale, words_zero),
        (positions, positions_scale, positions_zero),
        (segments, segments_scale, segments_zero),
        (gamma, gamma_scale, gamma_zero),
        (beta, beta_scale, beta_zero),
    ):
        if x is not None and scale is None:
            raise InvalidGraph(message("QEmbedLayerNormalization", "A scale is missing"))
        parts.append(x if x is None or scale is None else dequantise(x, scale, zero, FLOAT, 0))
    table, places, kinds, factor, summand = parts
    result, lengths, _ = embed_layer_normalization(
        ids, segment_ids, table, places, kinds, factor, summand, mask, epsilon=epsilon
    )
    return result, lengths


# -- positions --------------------------------------------------------------------------------


@op("RelativePositionBias", 1, domain=DOMAIN)
def relative_position_bias(
    table: Tensor,
    query_length: Tensor,
    key_length: Tensor,
    *,
    is_bidirectional: int = 0,
    max_distance: int,
) -> Tensor:
    """(1, heads, queries, keys): T5's bias by how far apart they are (Raffel et al., 2019).

    The table's shape says (buckets, heads), but its elements lie head by head.
    """
    where = "RelativePositionBias"
    if table.rank != 2 or max_distance < 1:
        what = "It needs a table of two axes, and a distance"
        raise InvalidGraph(message(where, what, got=str(list(table.shape))))
    count, heads = table.shape
    assume_at_most(1, count, where, "The table is empty")
    by_head = reshape(table, (heads, count))
    queries, keys = (
        contents(reshape(x, (1,)), "A length", 0)[0] for x in (query_length, key_length)
    )
    buckets = scalar.size(count // 2 if is_bidirectional else count)
    exact = scalar.binary("div", buckets, 2)

    def bucket(i: Dim, j: Dim) -> Scalar:
        apart = scalar.size(j) - scalar.size(i)
        if is_bidirectional:
            distance = scalar.binary("max", apart, -apart)
            offset = scalar.select(apart > 0, buckets, 0)
        else:
            distance, offset = scalar.binary("max", -apart, 0), scalar.size(0)
        near, far = (scalar.cast(x, DOUBLE) for x in (exact, buckets - exact))
        ratio = scalar.cast(scalar.binary("max", distance, 1), DOUBLE) / near
        steps = scalar.unary("log", ratio) / scalar.unary("log", float(max_distance) / near) * far
        large = exact + scalar.cast(steps, INT64)
        # A distance that no bucket was made for may lie on either side of them.
        large = scalar.binary("max", scalar.binary("min", large, buckets - 1), 0)
        return offset + scalar.select(distance < exact, distance, large)

    def body(_: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        return scalar.load(by_head, (head, scalar.as_index(bucket(i, j), count)))

    return compute((1, heads, queries, keys), body)
