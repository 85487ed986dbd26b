"""onnxruntime's operators on sequences without their padding, one after the other.

Tokens lie packed, (tokens, width). Of a batch whose sequences are padded to one length, tokens of
sequence b are rows starts[b] to starts[b + 1] (`cumulative_sequence_length`), and `token_offset`
(batch, sequence) lists where in the batch each token is: first all tokens, then the padding.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.dtypes import INT32, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.attention import DOMAIN, HIDDEN, Change, added_bias, attend
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.ranges import ranged, rising
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.attention import merge_heads
from sardonyx.ops.onnx.gather import scatter_nd
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    assume_shape,
    cast,
    compute,
    concat,
    constant,
    expand,
    gather,
    matmul,
    reshape,
    slice_axis,
    where,
)
from sardonyx.tensor.scalar import Scalar


@op("PackedMultiHeadAttention", 1, domain=DOMAIN)
def packed_multi_head_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    bias: Tensor | None,
    token_offset: Tensor,
    starts: Tensor,
    attention_bias: Tensor | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
) -> Tensor:
    """Attention among the tokens of each sequence; all of them are real, so nothing is filtered."""
    where_ = "PackedMultiHeadAttention"
    if key is None or value is None:
        if query.rank != 4 or key is not None or value is not None:
            what = "Without keys and values the query must have 4 axes"
            raise InvalidGraph(message(where_, what, got=f"{query.rank}"))
        parts = [_third(query, k) for k in range(3)]
    else:
        parts = [query, key, value]
    widths = [p.shape[-1] for p in parts]
    if bias is not None:
        assume_shape(bias.shape, (sizes.add(*widths[:2]) + widths[2],), where_, "bias")
        ends = [sizes.add(*widths[:2]), bias.shape[0]]
        cuts = zip((0, widths[0], ends[0]), (widths[0], *ends), strict=True)
        parts = [p + slice_axis(bias, 0, a, b) for p, (a, b) in zip(parts, cuts, strict=True)]
    return _attend_packed(where_, parts, token_offset, starts, attention_bias, num_heads, scale)


def _third(packed: Tensor, number: int) -> Tensor:
    """Queries, keys or values out of (tokens, heads, 3, size)."""
    tokens, heads, _, size = packed.shape
    assume_equal(packed.shape[2], 3, "PackedMultiHeadAttention", "The third axis is not of 3 parts")
    part = slice_axis(packed, 2, number, number + 1)
    return reshape(part, (tokens, heads * size))


@op("PackedAttention", 1, domain=DOMAIN)
def packed_attention(
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    token_offset: Tensor,
    starts: Tensor,
    attention_bias: Tensor | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: Sequence[int] = (),
    scale: float = 0.0,
) -> Tensor:
    """Projections to queries, keys and values, and attention among tokens of each sequence."""
    where_ = "PackedAttention"
    assume_shape(bias.shape, weights.shape[1:], where_, "The bias")
    product = matmul(x, weights) + bias
    each = product.shape[1] // 3
    widths: Sequence[Dim] = tuple(qkv_hidden_sizes) or (each, each, each)
    if len(widths) != 3:
        what = "qkv_hidden_sizes has the wrong length"
        raise InvalidGraph(message(where_, what, expected="3", got=str(len(widths))))
    start: Dim = 0
    parts = []
    for width in widths:
        parts.append(slice_axis(product, 1, start, start + width))
        start = start + width
    assume_equal(product.shape[1], start, where_, "The widths of queries, keys and values differ")
    return _attend_packed(where_, parts, token_offset, starts, attention_bias, num_heads, scale)


def _attend_packed(
    where_: str,
    parts: Sequence[Tensor],
    token_offset: Tensor,
    starts: Tensor,
    attention_bias: Tensor | None,
    num_heads: int,
    scale: float,
) -> Tensor:
    """Attention of (tokens, width) each, padded for the time being."""
    if token_offset.rank != 2 or any(p.rank != 2 for p in parts):
        what = "Tokens and token_offset must have two axes"
        raise InvalidGraph(message(where_, what))
    batch, longest = token_offset.shape
    tokens = parts[0].shape[0]
    assume_shape(starts.shape, (batch + 1,), where_, "cumulative_sequence_length")
    for part in parts[1:]:
        assume_equal(part.shape[0], tokens, where_, "Queries, keys and values differ in number")
    starts = rising(starts, "cumulative_sequence_length", tokens, most=longest)
    queries, keys, values = (_padded(p, starts, batch, longest, num_heads, where_) for p in parts)
    changes: list[Change] = [_behind_the_end(starts)]
    if attention_bias is not None:
        shape = (batch, queries.shape[1], longest, longest)
        changes.append(added_bias(attention_bias, shape, where_))
    result, _, _ = attend(queries, keys, values, changes, scale)
    merged = merge_heads(result)
    rows = reshape(merged, (batch * longest, merged.shape[2]))
    return gather(rows, _offsets(token_offset, tokens), 0)


def _offsets(token_offset: Tensor, tokens: Dim) -> Tensor:
    """Where tokens are among the places of all sequences, int64[tokens]."""
    whole = sizes.product(token_offset.shape)
    places = slice_axis(reshape(token_offset, (whole,)), 0, 0, tokens)
    return ranged(places, "token_offset", 0, whole - 1)


def _padded(x: Tensor, starts: Tensor, batch: Dim, longest: Dim, heads: int, where_: str) -> Tensor:
    """(tokens, heads * size) as (batch, heads, sequence, size), with zeros for the padding."""
    size = integer.floordiv(x.shape[1], heads)
    assume_equal(x.shape[1], size * heads, where_, f"The width is not {heads} heads")
    more = concat([x, expand(constant(0, x.dtype), (1, x.shape[1]))], 0)

    def body(b: Dim, head: Dim, i: Dim, d: Dim) -> Scalar:
        place = _start(starts, b) + scalar.size(i)
        inside = place < _start(starts, b + 1)
        row = scalar.check_index(
            scalar.select(inside, place, scalar.size(x.shape[0])), more.shape[0]
        )
        column = head * size + d
        return scalar.load(more, (scalar.as_index(row, more.shape[0]), column))

    return compute((batch, heads, longest, size), body)


def _start(starts: Tensor, number: Dim) -> Scalar:
    return scalar.cast(scalar.load(starts, (number,)), INT64)


def _behind_the_end(starts: Tensor) -> Change:
    """Hides keys that are padding."""

    def change(score: Scalar, b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        place = _start(starts, b) + scalar.size(j)
        return scalar.select(place < _start(starts, b + 1), score, HIDDEN)

    return change


@op("RemovePadding", 1, domain=DOMAIN)
def remove_padding(x: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tokens without padding, where all were, where sequences start, and the longest."""
    if x.rank != 3:
        raise InvalidGraph(message("RemovePadding", "The input must have three axes"))
    batch, longest, width = x.shape
    assume_shape(counts.shape, (batch,), "RemovePadding", "sequence_token_count")
    whole = batch * longest
    counts = ranged(counts, "sequence_token_count", 0, longest)
    starts = _sums(counts, batch + 1)
    gaps = _sums(counts * -1 + longest_of(longest), batch + 1)
    (total,) = contents(
        reshape(counts.sum(0, keepdims=True), (1,)), "The number of tokens", 0, whole
    )
    token = _places(starts, None, batch, longest, whole)
    padding = _places(gaps, counts, batch, longest, whole)
    at = compute((whole,), lambda p: scalar.size(p))
    offsets = where(at < longest_of(total), token, gather(padding, _less(at, total, whole), 0))
    rows = gather(reshape(x, (whole, width)), slice_axis(offsets, 0, 0, total), 0)
    largest = reshape(counts.max(0, keepdims=True), (1,))
    found = (reshape(offsets, (batch, longest)), starts, largest)
    shown = [cast(y, INT32) for y in found]
    return rows, shown[0], shown[1], shown[2]


def longest_of(size: Dim) -> Tensor:
    """A size as a tensor of rank 0."""
    return compute((), lambda: scalar.size(size))


def _less(at: Tensor, total: Dim, whole: Dim) -> Tensor:
    """Positions less the number of tokens, at least 0."""
    return compute((whole,), lambda p: scalar.size(integer.maximum(p - total, 0)))


def _sums(counts: Tensor, length: Dim) -> Tensor:
    """What lies before each sequence."""
    over = counts.shape[0]

    def body(b: Dim, k: Dim) -> Scalar:
        return scalar.select(scalar.size(k) < scalar.size(b), scalar.load(counts, (k,)), 0)

    return compute((length, over), body).sum(1)


def _places(starts: Tensor, skipped: Tensor | None, batch: Dim, longest: Dim, whole: Dim) -> Tensor:
    """Where the p-th of those is that start so: its sequence's begin, what is skipped, the rest."""

    def before(p: Dim, k: Dim) -> Scalar:
        ends = _start(starts, k + 1)
        return scalar.select(ends <= scalar.size(p), scalar.constant(1, INT64), 0)

    number = compute((whole, batch), before).sum(1)

    def body(p: Dim) -> Scalar:
        last = scalar.size(batch - 1)
        b = scalar.binary("min", scalar.load(number, (p,)), last)
        at = scalar.as_index(b, batch)
        found = scalar.size(at * longest) + scalar.size(p) - _start(starts, at)
        return found if skipped is None else found + scalar.load(skipped, (at,))

    return compute((whole,), body)


@op("RestorePadding", 1, domain=DOMAIN)
def restore_padding(x: Tensor, token_offset: Tensor) -> Tensor:
    """Tokens where they were in the batch, zeros elsewhere."""
    if x.rank != 2 or token_offset.rank != 2:
        what = "The input and token_offset must have two axes"
        raise InvalidGraph(message("RestorePadding", what))
    tokens, width = x.shape
    batch, longest = token_offset.shape
    whole = batch * longest
    places = _offsets(token_offset, tokens)
    empty = expand(constant(0, x.dtype), (whole, width))
    filled = scatter_nd(empty, reshape(places, (tokens, 1)), x)
    return reshape(filled, (batch, longest, width))
