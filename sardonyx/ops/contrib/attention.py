"""Attention operators of onnxruntime's own domain: BERT's, decoders' and those of grouped heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import errors, integer
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.buffers import in_buffer, length_of_past, used_cache
from sardonyx.ops.core.ranges import ranged
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.attention import merge_heads, scaled_scores, split_heads, weighted_values
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_at_most,
    assume_broadcast,
    assume_equal,
    assume_shape,
    cast,
    compute,
    concat,
    exp,
    load_broadcast,
    matmul,
    maximum,
    reshape,
    slice_axis,
    tanh,
    transpose,
    unsqueeze,
)
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"

#: What becomes of a score at (batch, head, query, key).
Change = Callable[[Scalar, Dim, Dim, Dim, Dim], Scalar]

HIDDEN = float("-inf")


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    changes: Sequence[Change],
    scale: float | None,
    *,
    softcap: float = 0.0,
    sink: Tensor | None = None,
    smooth: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """(result, changed scores, probabilities) of tensors (batch, heads, sequence, size).

    Args:
        queries: Their heads may share those of keys and values.
        keys: As many as values.
        values: What is averaged.
        changes: Biases and masks, in order.
        scale: Of scores; 1 / sqrt(size) if None or 0.
        softcap: Bound that scores approach; 0: none.
        sink: One more score for each head, to which no value belongs.
        smooth: Whether such a score is 0 where `sink` gives none.
    """
    scores = scaled_scores(queries, keys, accumulator(queries.dtype), scale or None)
    if softcap > 0.0:
        scores = tanh(scores / softcap) * softcap
    plain = scores

    def changed(*at: Dim) -> Scalar:
        score = scalar.load(plain, at)
        for change in changes:
            score = change(score, *at)
        return score

    scores = compute(scores.shape, changed)
    largest = scores.max(3, keepdims=True)
    extra: Tensor | float | None = 0.0 if smooth else None
    if sink is not None:
        assume_shape(sink.shape, queries.shape[1:2], "GroupQueryAttention", "head_sink")
        extra = reshape(cast(sink, scores.dtype), (1, sink.shape[0], 1, 1))
    if extra is not None:
        largest = maximum(largest, extra)
    e = exp(scores - largest)
    total = e.sum(3, keepdims=True)
    if extra is not None:
        total = total + exp(-largest + extra)
    probabilities = e / total
    result = weighted_values(cast(probabilities, queries.dtype), values)
    return result, scores, probabilities


def added_bias(bias: Tensor, shape: Sequence[Dim], where_: str) -> Change:
    """Adds a bias that broadcasts to the scores' shape."""
    what = "The attention_bias"
    if bias.rank != len(shape):
        raise InvalidGraph(message(where_, f"{what} has the shape {list(bias.shape)}"))
    assume_broadcast(bias.shape, tuple(shape), where_, what)
    return lambda score, *at: score + scalar.cast(load_broadcast(bias, at), score.dtype)


def _causal(before: Dim) -> Change:
    """Hides keys after the query; `before` keys come before the first query."""

    def change(score: Scalar, batch: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        seen = scalar.size(j) <= scalar.size(i + before)
        return scalar.select(seen, score, HIDDEN)

    return change


def masked(mask: Tensor, shape: Sequence[Dim], before: Dim, value: float, where_: str) -> Change:
    """Adds `value` where a mask of one of onnxruntime's forms hides a key.

    Args:
        mask: 0 hides: (batch, keys), (batch, queries, keys), or (batch, 1, longest, longest); or
            ends of sequences (batch), or ends and then starts (2 * batch).
        shape: That of the scores.
        before: How many keys come before the first query.
        value: What is added.
        where_: The operator.
    """
    batch, _, queries, keys = shape
    if mask.rank == 1:
        return _bounded(ranged(mask, "mask_index", 0, keys), batch, value, where_)
    if mask.rank == 4:
        assume_at_most(keys, mask.shape[3], where_, "The mask is too small")
        assume_equal(mask.shape[0], batch, where_, "The mask and the batch differ")
    else:
        wanted = (batch, keys) if mask.rank == 2 else (batch, queries, keys)
        assume_shape(mask.shape, wanted, where_, "The mask")

    def change(score: Scalar, b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        at = {2: (b, j), 3: (b, i, j), 4: (b, 0, i + before, j)}[mask.rank]
        hidden = scalar.compare("eq", scalar.load(mask, at), 0)
        return score + scalar.select(hidden, scalar.constant(value, score.dtype), 0.0)

    return change


def _bounded(mask: Tensor, batch: Dim, value: float, where_: str) -> Change:
    """A mask of ends, or of ends and starts, perhaps decided by the run."""
    count, twice = mask.shape[0], batch * 2
    fits = (count - batch) * (count - twice)
    if integer.known_equal(fits, 0) is False:
        what = f"A mask of {count} numbers for a batch of {batch} is not supported"
        raise errors.NotImplemented(message(where_, what))
    assume_equal(fits, 0, where_, "The mask is neither ends nor ends and starts for the batch")
    begun = scalar.size(count) >= scalar.size(twice)

    def change(score: Scalar, b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        key = scalar.size(j)
        end = scalar.load(mask, (b,))
        behind = integer.minimum(b + batch, count - 1)
        start = scalar.select(begun, scalar.load(mask, (behind,)), 0)
        hidden = (key >= end) | (key < start)
        return score + scalar.select(hidden, scalar.constant(value, score.dtype), 0.0)

    return change


def refuse(where_: str, **given: object) -> None:
    """Refuse inputs and attributes that no CPU takes either."""
    for name, value in given.items():
        if value is not None and value != 0:
            raise errors.NotImplemented(message(where_, f"{name} is not supported"))


# -- MultiHeadAttention and Attention ---------------------------------------------------------


@op("MultiHeadAttention", 1, domain=DOMAIN)
def multi_head_attention(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attention of heads that lie beside each other; also gives keys, values and scores.

    With past_sequence_length a past is a buffer with room for more; cache_indirection says for
    each beam and place of it which beam the key there is from. onnxruntime uses that in such a
    buffer alone, and only for one query.
    """
    where_ = "MultiHeadAttention"
    queries, keys, values = _parts(where_, query, key, value, num_heads)
    if bias is not None:
        queries, keys, values = biased(where_, bias, queries, keys, values, key)
    before: Dim = 0
    if (past_key is None) != (past_value is None):
        raise InvalidGraph(message(where_, "It needs both past_key and past_value, or none"))
    present = keys, values
    if past_key is not None and past_value is not None and past_sequence_length is not None:
        before, new = length_of_past(where_, past_key, past_sequence_length), keys.shape[2]
        present = (
            in_buffer(where_, past_key, keys, before), in_buffer(where_, past_value, values, before)
        )  # fmt: skip
        keys, values = (used_cache(where_, x, before, new, cache_indirection) for x in present)
    elif past_key is not None and past_value is not None:
        before = past_key.shape[2]
        keys, values = concat([past_key, keys], 2), concat([past_value, values], 2)
        present = keys, values
    shape = (*queries.shape[:3], keys.shape[2])
    changes: list[Change] = []
    if key_padding_mask is not None:
        changes.append(masked(key_padding_mask, shape, before, mask_filter_value, where_))
    if attention_bias is not None:
        changes.append(added_bias(attention_bias, shape, where_))
    if unidirectional:
        changes.append(_causal(before))
    result, scores, _ = attend(queries, keys, values, changes, scale)
    return merge_heads(result), *present, cast(scores, query.dtype)


def _parts(
    where_: str, query: Tensor, key: Tensor | None, value: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each (batch, heads, sequence, size)."""
    if key is None:
        if query.rank != 5:
            raise InvalidGraph(message(where_, "Without keys the query must have 5 axes"))
        return _packed(query, 0), _packed(query, 1), _packed(query, 2)
    queries = split_heads(query, heads, where_)
    if value is None:
        if key.rank != 5:
            raise InvalidGraph(message(where_, "Without values the key must have 5 axes"))
        return queries, _packed(key, 0), _packed(key, 1)
    return queries, split_heads(key, heads, where_), split_heads(value, heads, where_)


def _packed(x: Tensor, number: int) -> Tensor:
    """One part of (batch, sequence, heads, parts, size)."""
    part = slice_axis(x, 3, number, number + 1)
    return transpose(reshape(part, (*x.shape[:3], x.shape[4])), (0, 2, 1, 3))


def biased(
    where_: str, bias: Tensor, queries: Tensor, keys: Tensor, values: Tensor, key: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """With the parts of the bias added; keys and values that are whole heads have theirs."""
    start: Dim = 0
    found = []
    for x in (queries, keys, values):
        width = x.shape[1] * x.shape[3]
        part = slice_axis(bias, 0, start, start + width)
        start = start + width
        has_it = x is not queries and key is not None and key.rank == 4
        heads = reshape(part, (1, x.shape[1], 1, x.shape[3]))
        found.append(x if has_it else x + heads)
    assume_equal(bias.shape[0], start, where_, "The bias has the wrong size")
    return found[0], found[1], found[2]


@op("Attention", 1, domain=DOMAIN)
def attention_contrib(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask_index: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] = (),
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
    output_count: int,
) -> tuple[Tensor, ...]:
    """Projections to queries, keys and values, and attention; also gives keys and values."""
    where_ = "Attention"
    refuse(where_, do_rotary=do_rotary)
    product = matmul(x, weights)
    if bias is not None:
        product = product + bias
    before: Dim | None = None
    if past_present_share_buffer:
        before = length_of_past(where_, past, past_sequence_length)
    return attend_projected(
        where_, product, mask_index, past, attention_bias, num_heads, mask_filter_value,
        qkv_hidden_sizes, scale, unidirectional, output_count, before,
    )  # fmt: skip


def attend_projected(
    where_: str,
    product: Tensor,
    mask: Tensor | None,
    past: Tensor | None,
    attention_bias: Tensor | None,
    num_heads: int,
    mask_filter_value: float,
    widths: Sequence[int],
    scale: float,
    unidirectional: int,
    output_count: int,
    filled: Dim | None = None,
) -> tuple[Tensor, ...]:
    """Attention of queries, keys and values that lie beside each other, and perhaps the past.

    With `filled`, the past is a buffer with room for more, of which so much is used.
    """
    if product.rank != 3:
        raise InvalidGraph(message(where_, "The input must have three axes"))
    each = product.shape[2] // 3
    start: Dim = 0
    parts = []
    for width in tuple(widths) or (each, each, each):
        part = slice_axis(product, 2, start, start + width)
        parts.append(split_heads(part, num_heads, where_))
        start = start + width
    assume_equal(product.shape[2], start, where_, "The widths of queries, keys and values differ")
    queries, keys, values = parts
    before: Dim = 0
    present: Tensor | None = None
    if past is not None:
        former = [reshape(slice_axis(past, 0, k, k + 1), past.shape[1:]) for k in range(2)]
        if filled is None:
            before = past.shape[3]
            keys, values = concat([former[0], keys], 2), concat([former[1], values], 2)
        else:
            before = filled
            whole = [in_buffer(where_, former[k], x, before) for k, x in enumerate((keys, values))]
            total = before + keys.shape[2]
            keys, values = (slice_axis(x, 2, 0, total) for x in whole)
            present = concat([unsqueeze(x, (0,)) for x in whole], 0)
    shape = (*queries.shape[:3], keys.shape[2])
    changes: list[Change] = []
    if mask is not None:
        changes.append(masked(mask, shape, before, mask_filter_value, where_))
    if unidirectional:
        changes.append(_causal(before))
    if attention_bias is not None:
        changes.append(added_bias(attention_bias, shape, where_))
    result, _, _ = attend(queries, keys, values, changes, scale)
    if output_count < 2:
        return (merge_heads(result),)
    if present is None:
        present = concat([unsqueeze(keys, (0,)), unsqueeze(values, (0,))], 0)
    return merge_heads(result), present
