"""DecoderMaskedSelfAttention, and the order in which it keeps keys."""

from __future__ import annotations

from sardonyx.base import errors, quotients
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ir.value import Value
from sardonyx.ops.contrib.attention import (
    DOMAIN,
    Change,
    added_bias,
    attend,
    masked,
)
from sardonyx.ops.contrib.buffers import in_buffer, length_of_past, used_cache
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.attention import merge_heads, split_heads
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    concat,
    matmul,
    reshape,
    slice_axis,
    transpose,
    unsqueeze,
)

_SELF = "DecoderMaskedSelfAttention"
_BYTES = 16  # of a key, that lie side by side


def reads_ordered_keys(value: Value) -> bool:
    """Whether an input of a decoder holds keys in the order that this operator has."""
    return any(
        node.op_type == _SELF and node.attributes.get("past_present_share_buffer")
        for node, _ in value.uses
    )


def ordered(past: Tensor) -> Tensor:
    """(2, batch, heads, capacity, size) of keys as (batch, heads, size / x, capacity, x).

    x elements of a key, 16 bytes, lie side by side; keys of all places come before the next ones.
    """
    keys, values = (reshape(slice_axis(past, 0, k, k + 1), past.shape[1:]) for k in range(2))
    batch, heads, capacity, size = keys.shape
    few, groups = _groups(past, size)
    split = transpose(reshape(keys, (batch, heads, capacity, groups, few)), (0, 1, 3, 2, 4))
    return _stacked(reshape(split, keys.shape), values)


def _in_order(keys: Tensor) -> Tensor:
    """Keys (batch, heads, capacity, size) out of the order that `ordered` gives them."""
    batch, heads, capacity, size = keys.shape
    few, groups = _groups(keys, size)
    split = transpose(reshape(keys, (batch, heads, groups, capacity, few)), (0, 1, 3, 2, 4))
    return reshape(split, keys.shape)


def _groups(x: Tensor, size: Dim) -> tuple[int, Dim]:
    """How many elements lie side by side, and how many times."""
    few = _BYTES * 8 // x.dtype.bits
    groups = quotients.exact_quotient(size, few)
    if groups is None:
        what = f"The size of heads is no multiple of {few}"
        raise InvalidGraph(message(_SELF, what, got=repr(size)))
    return few, groups


def _stacked(keys: Tensor, values: Tensor) -> Tensor:
    return concat([unsqueeze(keys, (0,)), unsqueeze(values, (0,))], 0)


@op(_SELF, 1, domain=DOMAIN)
def decoder_masked_self_attention(
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    mask_index: Tensor | None,
    past: Tensor,
    attention_bias: Tensor | None,
    past_sequence_length: Tensor | None,
    beam_width: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention of one token (batch, 1, width) with those before; the cache has its key, too."""
    if do_rotary:
        raise errors.NotImplemented(message(_SELF, "Its attribute do_rotary is not supported"))
    if x.rank != 3 or past.rank != 5:  # noqa: PLR2004 - as the docstrings say
        what = "It needs an input of three axes, and a past of five"
        got = f"{list(x.shape)}, {list(past.shape)}"
        raise InvalidGraph(message(_SELF, what, got=got))
    product = matmul(x, weights) + bias
    third = quotients.exact_quotient(product.shape[2], 3)
    if third is None:
        raise InvalidGraph(message(_SELF, "Queries, keys and values differ in width"))
    ends = [third * k for k in range(4)]
    queries, keys, values = (
        split_heads(slice_axis(product, 2, ends[k], ends[k + 1]), num_heads, _SELF)
        for k in range(3)
    )
    assume_equal(queries.shape[2], 1, _SELF, "There is more than one query")
    old_keys, old_values = (
        reshape(slice_axis(past, 0, k, k + 1), past.shape[1:]) for k in range(2)
    )
    if past_present_share_buffer:
        before = length_of_past(_SELF, past, past_sequence_length)
        keys = in_buffer(_SELF, _in_order(old_keys), keys, before)
        values = in_buffer(_SELF, old_values, values, before)
        present = ordered(_stacked(keys, values))
    else:
        before = past.shape[3]
        keys, values = concat([old_keys, keys], 2), concat([old_values, values], 2)
        present = _stacked(keys, values)
    keys, values = (
        used_cache(_SELF, x, before, 1, cache_indirection, beam_width) for x in (keys, values)
    )
    total = before + 1
    shape = (*queries.shape[:3], total)
    changes: list[Change] = []
    if mask_index is not None:
        changes.append(masked(mask_index, shape, before, mask_filter_value, _SELF))
    if attention_bias is not None:
        changes.append(added_bias(attention_bias, shape, _SELF))
    result, _, _ = attend(queries, keys, values, changes, scale)
    return merge_heads(result), present
