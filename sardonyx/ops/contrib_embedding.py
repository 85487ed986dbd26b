"""Embeddings of BERT-like models in one operator, of onnxruntime's own domain."""

from __future__ import annotations

from sardonyx.base.dtypes import FLOAT, INT32
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.normalisation import layer_norm
from sardonyx.ops.quantise import dequantise
from sardonyx.ops.registry import op
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
)
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"
_NAME = "EmbedLayerNormalization"


def _row(table: Tensor, index: Scalar, column: Dim) -> Scalar:
    extent = table.shape[0]
    return scalar.load(table, (scalar.as_index(scalar.check_index(index, extent), extent), column))


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
        value = _row(words, scalar.load(ids, (b, i)), d)
        if position_ids is None:
            value = value + scalar.load(positions, (i, d))
        else:
            value = value + _row(positions, load_broadcast(position_ids, (b, i)), d)
        if segment_ids is not None and segments is not None:
            value = value + _row(segments, scalar.load(segment_ids, (b, i)), d)
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
