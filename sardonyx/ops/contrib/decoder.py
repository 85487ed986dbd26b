"""Attention of decoders with caches in place, of onnxruntime's own domain."""

from __future__ import annotations

from sardonyx.base import integer
from sardonyx.base.dtypes import INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.attention import (
    DOMAIN,
    HIDDEN,
    Change,
    added_bias,
    attend,
    biased,
    masked,
)
from sardonyx.ops.contrib.buffers import in_buffer, length_of_past, used_cache
from sardonyx.ops.contrib.grouped import cache_of, grouped_heads, rotated
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.ranges import ranged, row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.attention import merge_heads, rotary_caches, split_heads
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_at_most,
    assume_equal,
    assume_shape,
    cast,
    compute,
    concat,
    reshape,
    slice_axis,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

_MASKED = "DecoderMaskedMultiHeadAttention"


@op(_MASKED, 1, domain=DOMAIN)
def decoder_masked_multi_head_attention(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    mask_index: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    beam_width: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """Attention of one query with keys of the past, in a buffer that has room for more.

    A cache_indirection says for each beam and place which beam the key there is from.
    """
    if key is None:
        third = query.shape[2] // 3
        query, key, value = (slice_axis(query, 2, third * n, third * (n + 1)) for n in range(3))
    if value is None:
        raise InvalidGraph(message(_MASKED, "It has keys, but no values"))
    crosses = key.rank == 4
    queries, keys, values = (split_heads(x, num_heads, _MASKED) for x in (query, key, value))
    assume_equal(queries.shape[2], 1, _MASKED, "There is more than one query")
    assume_equal(keys.shape[2], values.shape[2], _MASKED, "Keys and values differ in number")
    if bias is not None:
        queries, keys, values = biased(_MASKED, bias, queries, keys, values, key)
    total = keys.shape[2]
    present: tuple[Tensor | None, Tensor | None] = (None, None)
    if not crosses and past_key is not None and past_value is not None:
        assume_shape(past_value.shape[:3], past_key.shape[:3], _MASKED, "past_value")
        if past_present_share_buffer:
            before = length_of_past(_MASKED, past_key, past_sequence_length)
            filled = (
                in_buffer(_MASKED, past_key, keys, before),
                in_buffer(_MASKED, past_value, values, before),
            )
        else:
            before = past_key.shape[2]
            filled = concat([past_key, keys], 2), concat([past_value, values], 2)
        keys, values = (
            used_cache(_MASKED, x, before, total, cache_indirection, beam_width) for x in filled
        )
        present, total = filled, before + total
    elif not crosses:
        present = keys, values
    shape = (*queries.shape[:3], total)
    changes: list[Change] = []
    if mask_index is not None:
        before = total - queries.shape[2]
        changes.append(masked(mask_index, shape, before, mask_filter_value, _MASKED))
    if attention_bias is not None:
        changes.append(added_bias(attention_bias, shape, _MASKED))
    result, scores, _ = attend(queries, keys, values, changes, scale)
    return merge_heads(result), *present, cast(scores, query.dtype)


# -- SparseAttention --------------------------------------------------------------------------


@op("SparseAttention", 1, domain=DOMAIN)
def sparse_attention(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    block_row_indices: Tensor | None = None,
    block_col_indices: Tensor | None = None,
    total_sequence_length: Tensor | None = None,
    key_total_sequence_lengths: Tensor | None = None,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sparse_block_size: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of grouped heads to blocks of keys, which layouts of heads name row by row."""
    where = "SparseAttention"
    rows, columns, lengths = block_row_indices, block_col_indices, key_total_sequence_lengths
    if rows is None or columns is None or total_sequence_length is None or lengths is None:
        raise InvalidGraph(message(where, "Blocks, or lengths, are missing"))
    if sparse_block_size < 1:
        raise InvalidGraph(message(where, "Bad sparse_block_size", got=str(sparse_block_size)))
    queries, keys, values = grouped_heads(where, query, key, value, num_heads, kv_num_heads)
    batch, _, length, _ = queries.shape
    for x in (keys, values):
        assume_equal(x.shape[2], length, where, "Queries, keys and values differ in number")
    (total,) = contents(reshape(total_sequence_length, (1,)), "The total length", 1)
    capacity = 0 if past_key is None else past_key.shape[2]
    what = "total_sequence_length is more than the past and the new keys"
    assume_at_most(total, capacity + length, where, what)
    assume_shape(lengths.shape, (batch,), where, "key_total_sequence_lengths")

    prompt = scalar.compare("eq", scalar.size(length), scalar.size(total))
    lowest = scalar.select(prompt, 1, scalar.size(length))
    wholes = ranged(lengths, "key_total_sequence_lengths", lowest, total)

    def begin(b: Dim) -> Scalar:
        whole = scalar.load(wholes, (b,))
        # A prompt begins at 0, but its lengths are checked as well.
        return scalar.select(prompt, whole * 0, whole - scalar.size(length))

    begins = compute((batch,), begin)
    if do_rotary:
        caches = rotary_caches(where, cos_cache, sin_cache, rotary_interleaved)
        queries, keys = (rotated(where, x, caches, begins, None, total) for x in (queries, keys))
    keys = cache_of(where, past_key, keys, begins, total)
    values = cache_of(where, past_value, values, begins, total)
    visible = _blocks(where, rows, columns, sparse_block_size, keys.shape[2])

    def hidden(score: Scalar, b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        here = scalar.load(begins, (b,)) + scalar.size(i)
        block = scalar.binary("div", here, sparse_block_size)
        row = row_in(block, "block_row_indices", visible.shape[1])
        layout = integer.modulo(head, rows.shape[0])
        listed = scalar.load(visible, (layout, row, integer.floordiv(j, sparse_block_size)))
        seen = (scalar.size(j) <= here) & scalar.compare("ne", listed, 0)
        return scalar.select(seen, score, HIDDEN)

    result, _, _ = attend(queries, keys, values, [hidden], scale)
    return merge_heads(result), keys, values


def _blocks(where: str, rows: Tensor, columns: Tensor, size: int, capacity: Dim) -> Tensor:
    """Whether a block of queries sees a block of keys: (layouts, blocks, blocks), 0 or 1."""
    assume_equal(rows.shape[0], columns.shape[0], where, "The numbers of layouts differ")
    wide = rows.shape[1] - 1
    listed = columns.shape[1]
    shape = (rows.shape[0], wide, integer.ceildiv(capacity, size))
    layout, row, block = indices(shape)
    (k,) = reduced_indices((listed,))
    place = scalar.size(k)
    first, behind = (
        scalar.load(ranged(rows, "block_row_indices", 0, listed), (layout, row + n)) for n in (0, 1)
    )
    last = wide - 1
    column = scalar.load(ranged(columns, "block_col_indices", -1, last), (layout, k))
    hit = (place >= first) & (place < behind) & scalar.compare("eq", column, scalar.size(block))
    return make_reduce(shape, (listed,), "max", scalar.cast(hit, INT64), INT64)
