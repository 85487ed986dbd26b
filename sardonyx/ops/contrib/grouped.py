"""GroupQueryAttention of onnxruntime's own domain: grouped heads with a cache."""

from __future__ import annotations

from sardonyx.base import errors, integer, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.attention import DOMAIN, HIDDEN, Change, added_bias, attend, refuse
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.ranges import ROTARY, ranged, row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.attention import (
    RotaryCaches,
    merge_heads,
    rotary_caches,
    rotate,
    split_heads,
)
from sardonyx.ops.onnx.normalisation import rms_norm
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_at_most,
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
    (total,) = contents(reshape(total_sequence_length, (1,)), "The total length", 1)
    capacity: Dim = 0 if past_key is None else past_key.shape[2]
    what = "total_sequence_length is more than the past and the new keys"
    assume_at_most(total, capacity + new_keys.shape[2], where_, what)
    lengths, begins = lengths_of(where_, seqlens_k, batch, length, total, capacity)
    if q_norm_weight is not None and k_norm_weight is not None:
        queries = rms_norm(queries, q_norm_weight, -1, qk_norm_epsilon, 1)[0]
        new_keys = rms_norm(new_keys, k_norm_weight, -1, qk_norm_epsilon, 1)[0]
    if do_rotary:
        caches = rotary_caches(where_, cos_cache, sin_cache, rotary_interleaved)
        queries, new_keys = (
            rotated(where_, x, caches, begins, position_ids, total) for x in (queries, new_keys)
        )
    keys = cache_of(where_, past_key, new_keys, begins, total)
    values = cache_of(where_, past_value, values, begins, total)
    changes: list[Change] = []
    if attention_bias is not None:
        used = (*queries.shape[:3], total)
        changes.append(_within(added_bias(attention_bias, used, where_), total))
    seen = _Visible(lengths, begins, bool(causal), local_window_size)
    changes.append(seen.hide)
    result, scores, probabilities = attend(
        queries, keys, values, changes, scale, softcap=softcap, sink=head_sink,
        smooth=bool(smooth_softmax),
    )  # fmt: skip
    shown = slice_axis(probabilities if qk_output == 2 else scores, 3, 0, total)
    return merge_heads(result), keys, values, cast(seen.shown(shown), query.dtype)


def rotated(
    where_: str,
    x: Tensor,
    caches: RotaryCaches,
    begins: Tensor,
    position_ids: Tensor | None,
    total: Dim,
) -> Tensor:
    """New queries or keys by the angles of their positions.

    Args:
        where_: The operator.
        x: (batch, heads, sequence, size).
        caches: By position.
        begins: The position of each sequence's first new token.
        position_ids: Positions of all tokens instead.
        total: How many tokens there are with the past.
    """
    length, size = x.shape[2:]
    if position_ids is not None:
        assume_shape(position_ids.shape, (x.shape[0], length), where_, "The tensor position_ids")

    name = ROTARY if position_ids is None else "position_ids"

    def angle(cache: Tensor, b: Dim, position: Dim, pair: Dim) -> Scalar:
        at = scalar.load(begins, (b,)) + scalar.size(position)
        if position_ids is not None:
            at = _position(position_ids, b, position, length, total)
        return scalar.load(cache, (row_in(at, name, cache.shape[0]), pair))

    width = caches.cosine.shape[1] * 2
    some = 0 if integer.known_equal(width, size) else width
    return rotate(x, caches, angle, None, some)


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


def lengths_of(
    where_: str, lengths: Tensor, batch: Dim, length: Dim, total: Dim, capacity: Dim
) -> tuple[Tensor, Tensor]:
    """The place of each sequence's last key, and how many keys come before the first new one.

    Both are int64[batch]. Where all keys are new, sequences begin at 0, and shorter ones are padded
    behind. A place outside of the cache, or before the new keys of a sequence, is a fault.
    """
    assume_equal(sizes.product(lengths.shape), batch, where_, "seqlens_k")
    what = "There are fewer keys in all than new ones"
    assume_at_most(length, integer.maximum(capacity, total), where_, what)
    flat = reshape(lengths, (batch,))
    before = 1 - length
    is_prompt = scalar.compare("eq", scalar.size(length), scalar.size(total))
    lowest = scalar.select(is_prompt, 0, scalar.size(-before))
    lasts = ranged(flat, "seqlens_k", lowest, integer.maximum(capacity, total) - 1)

    def begin(b: Dim) -> Scalar:
        last = scalar.load(lasts, (b,))
        # A prompt begins at 0, but its lengths are checked as well.
        return scalar.select(is_prompt, last * 0, last + scalar.size(before))

    return lasts, compute((batch,), begin)


def _position(ids: Tensor, b: Dim, position: Dim, length: Dim, total: Dim) -> Scalar:
    """A token's position as it is given; a prompt counts on from the first one."""
    prompt = scalar.compare("eq", scalar.size(length), scalar.size(total))
    counted = scalar.load(ids, (0, 0)) + scalar.size(position)
    return scalar.select(prompt, counted, scalar.load(ids, (b, position)))


def cache_of(where_: str, past: Tensor | None, new: Tensor, begins: Tensor, total: Dim) -> Tensor:
    """Keys or values with the new ones at their places: a buffer that is long enough stays."""
    batch, heads, length, size = new.shape
    capacity: Dim = 0 if past is None else past.shape[2]
    if past is not None:
        assume_shape(past.shape, (batch, heads, capacity, size), where_, "The past")
    extent = integer.maximum(capacity, total)

    def body(b: Dim, head: Dim, position: Dim, d: Dim) -> Scalar:
        place = scalar.size(position) - scalar.load(begins, (b,))
        is_new = (place >= 0) & (place < scalar.size(length))
        index = scalar.as_index(place, length)
        added = scalar.load(new, (b, head, index, d))
        if past is None:
            return scalar.select(is_new, added, 0.0)
        is_old = scalar.size(position) < scalar.size(capacity)
        old = scalar.select(is_old, scalar.load(past, (b, head, position, d)), 0.0)
        return scalar.select(is_new, added, old)

    return compute((batch, heads, extent, size), body)


def _within(change: Change, total: Dim) -> Change:
    """A change of scores of the first `total` keys."""

    def kept(score: Scalar, b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        used = scalar.size(j) < scalar.size(total)
        return scalar.select(used, change(score, b, head, i, j), score)

    return kept


@dataclass(frozen=True, slots=True)
class _Visible:
    """Which keys a query sees: none after it, after its sequence, or too far back.

    Attributes:
        lasts: The place of each sequence's last key.
        begins: How many keys come before each sequence's first query.
        causal: Whether keys after a query are hidden.
        window: How many keys back a query sees; 0 or less: all.
    """

    lasts: Tensor
    begins: Tensor
    causal: bool
    window: int

    def sees(self, b: Dim, i: Dim, j: Dim) -> Scalar:
        """Whether query `i` sees key `j`. Queries that pad a prompt see those of its tokens."""
        key = scalar.size(j)
        here = scalar.load(self.begins, (b,)) + scalar.size(i)
        seen = key <= scalar.load(self.lasts, (b,))
        if self.causal:
            seen = seen & (key <= here)
        if self.window > 0:
            seen = seen & (key > here - self.window)
        return seen

    def hide(self, score: Scalar, b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        """A score, -inf where the key is not seen."""
        return scalar.select(self.sees(b, i, j), score, HIDDEN)

    def shown(self, scores: Tensor) -> Tensor:
        """Scores as they are given out: 0 where a key is not seen, as onnxruntime gives them."""

        def body(b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
            return scalar.select(self.sees(b, i, j), scalar.load(scores, (b, head, i, j)), 0.0)

        return compute(scores.shape, body)
