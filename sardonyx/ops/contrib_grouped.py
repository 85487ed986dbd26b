"""GroupQueryAttention of onnxruntime's own domain: grouped heads with a cache."""

from __future__ import annotations

from sardonyx.base import errors, integer, sizes
from sardonyx.base.dtypes import INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.attention import merge_heads, rotate, split_heads
from sardonyx.ops.contents import contents
from sardonyx.ops.contrib_attention import DOMAIN, HIDDEN, Change, added_bias, attend, refuse
from sardonyx.ops.normalisation import rms_norm
from sardonyx.ops.registry import op
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    assume_shape,
    cast,
    compute,
    reshape,
    slice_axis,
)
from sardonyx.tensor.scalar import Scalar


@op("GroupQueryAttention", 1, domain=DOMAIN)
def group_query_attention(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    seqlens_k: Tensor | None = None,
    total_sequence_length: Tensor | None = None,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None,
    head_sink: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attention of grouped heads with a cache, which each sequence fills to a length of its own."""
    where_ = "GroupQueryAttention"
    if seqlens_k is None or total_sequence_length is None:
        raise InvalidGraph(message(where_, "It needs seqlens_k and total_sequence_length"))
    if k_quant_type != "NONE" or v_quant_type != "NONE":
        raise errors.NotImplemented(message(where_, "A quantised cache is not supported"))
    refuse(where_, k_scale=k_scale, v_scale=v_scale, sliding_window_cache=sliding_window_cache)
    queries, new_keys, values = grouped_heads(where_, query, key, value, num_heads, kv_num_heads)
    batch, _, length, size = queries.shape
    assume_equal(new_keys.shape[2], values.shape[2], where_, "Keys and values differ in number")
    if past_key is None:
        what = "Queries and keys differ in number, and there is no past"
        assume_equal(length, new_keys.shape[2], where_, what)
    (total,) = contents(reshape(total_sequence_length, (1,)), "The total length", 0)
    begins = begins_of(seqlens_k, batch, length, total)
    if q_norm_weight is not None and k_norm_weight is not None:
        queries = rms_norm(queries, q_norm_weight, -1, qk_norm_epsilon, 1)[0]
        new_keys = rms_norm(new_keys, k_norm_weight, -1, qk_norm_epsilon, 1)[0]
    if do_rotary:
        queries, new_keys = (
            turned(
                where_, x, cos_cache, sin_cache, begins, position_ids, total,
                bool(rotary_interleaved),
            )
            for x in (queries, new_keys)
        )  # fmt: skip
    keys = cache_of(where_, past_key, new_keys, begins, total)
    values = cache_of(where_, past_value, values, begins, total)
    changes: list[Change] = []
    if attention_bias is not None:
        used = (*queries.shape[:3], total)
        changes.append(_within(added_bias(attention_bias, used, where_), total))
    changes.append(_visible(seqlens_k, begins, bool(causal), local_window_size))
    result, scores, probabilities = attend(
        queries, keys, values, changes, scale, softcap=softcap, sink=head_sink,
        smooth=bool(smooth_softmax),
    )  # fmt: skip
    shown = slice_axis(probabilities if qk_output == 2 else scores, 3, 0, total)
    return merge_heads(result), keys, values, cast(shown, query.dtype)


def turned(
    where_: str,
    x: Tensor,
    cosine: Tensor | None,
    sine: Tensor | None,
    begins: Tensor,
    position_ids: Tensor | None,
    total: Dim,
    interleaved: bool,
) -> Tensor:
    """New queries or keys by the angles of their positions.

    Args:
        where_: The operator.
        x: (batch, heads, sequence, size).
        cosine: (positions, pairs).
        sine: As many.
        begins: The position of each sequence's first new token.
        position_ids: Positions of all tokens instead.
        total: How many tokens there are with the past.
        interleaved: Whether the elements of a pair are neighbours.
    """
    if cosine is None or sine is None:
        raise InvalidGraph(message(where_, "With do_rotary it needs cos_cache and sin_cache"))
    length, size = x.shape[2:]
    if position_ids is not None:
        assume_shape(position_ids.shape, (x.shape[0], length), where_, "The tensor position_ids")

    def angle(cache: Tensor, b: Dim, position: Dim, pair: Dim) -> Scalar:
        at = scalar.load(begins, (b,)) + scalar.size(position)
        if position_ids is not None:
            at = _position(position_ids, b, position, length, total)
        extent = cache.shape[0]
        row = scalar.as_index(scalar.check_index(at, extent), extent)
        return scalar.load(cache, (row, pair))

    width = sizes.multiply(cosine.shape[1], 2)
    some = 0 if integer.known_equal(width, size) is not False else _number(where_, width)
    return rotate(x, cosine, sine, angle, None, some, interleaved)


def _number(where_: str, width: Dim) -> int:
    if not isinstance(width, int):
        raise errors.NotImplemented(message(where_, "The width of the caches is not known"))
    return width


def grouped_heads(
    where_: str,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    heads: int,
    kv_heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each (batch, heads, sequence, size), out of one tensor or three."""
    if key is not None and value is not None:
        return (
            split_heads(query, heads, where_),
            split_heads(key, kv_heads, where_),
            split_heads(value, kv_heads, where_),
        )
    every = heads + 2 * kv_heads
    whole = split_heads(query, every, where_)
    ends = (0, heads, heads + kv_heads, every)
    first, second, third = (
        slice_axis(whole, 1, a, b) for a, b in zip(ends, ends[1:], strict=False)
    )
    return first, second, third


def begins_of(lengths: Tensor, batch: Dim, length: Dim, total: Dim) -> Tensor:
    """How many keys come before the first new one, in each sequence: int64[batch].

    Where all keys are new, sequences begin at 0, and shorter ones are padded behind.
    """
    assume_equal(sizes.product(lengths.shape), batch, "GroupQueryAttention", "seqlens_k")
    flat = reshape(lengths, (batch,))

    def body(b: Dim) -> Scalar:
        last = scalar.cast(scalar.load(flat, (b,)), INT64)
        first = last + scalar.size(sizes.add(1, sizes.multiply(length, -1)))
        prompt = scalar.compare("eq", scalar.size(length), scalar.size(total))
        return scalar.select(prompt, scalar.size(0), first)

    return compute((batch,), body)


def _position(ids: Tensor, b: Dim, position: Dim, length: Dim, total: Dim) -> Scalar:
    """A token's position as it is given; a prompt counts on from the first one."""
    prompt = scalar.compare("eq", scalar.size(length), scalar.size(total))
    counted = scalar.load(ids, (0, 0)) + scalar.size(position)
    return scalar.select(prompt, counted, scalar.load(ids, (b, position)))


def cache_of(where_: str, past: Tensor | None, new: Tensor, begins: Tensor, total: Dim) -> Tensor:
    """Keys or values with the new ones at their places: a buffer that is long enough stays."""
    batch, heads, length, size = new.shape
    room: Dim = 0 if past is None else past.shape[2]
    if past is not None:
        assume_shape(past.shape, (batch, heads, room, size), where_, "The past")
    extent = integer.maximum(room, total)

    def body(b: Dim, head: Dim, position: Dim, d: Dim) -> Scalar:
        place = scalar.size(position) - scalar.load(begins, (b,))
        is_new = (place >= 0) & (place < scalar.size(length))
        index = scalar.as_index(place, length)
        added = scalar.load(new, (b, head, index, d))
        if past is None:
            return scalar.select(is_new, added, 0.0)
        is_old = scalar.compare("lt", scalar.size(position), scalar.size(room))
        old = scalar.select(is_old, scalar.load(past, (b, head, position, d)), 0.0)
        return scalar.select(is_new, added, old)

    return compute((batch, heads, extent, size), body)


def _within(change: Change, total: Dim) -> Change:
    """A change of scores of the first `total` keys."""

    def kept(score: Scalar, b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        used = scalar.compare("lt", scalar.size(j), scalar.size(total))
        return scalar.select(used, change(score, b, head, i, j), score)

    return kept


def _visible(lengths: Tensor, begins: Tensor, causal: bool, window: int) -> Change:
    """Hides keys after the query, or after the sequence, and those that are too far back."""
    flat = reshape(lengths, begins.shape)

    def change(score: Scalar, b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        key = scalar.size(j)
        here = scalar.load(begins, (b,)) + scalar.size(i)
        last = here if causal else scalar.cast(scalar.load(flat, (b,)), INT64)
        seen = key <= last
        if window > 0:
            seen = seen & (key > here - window)
        return scalar.select(seen, score, HIDDEN)

    return change
