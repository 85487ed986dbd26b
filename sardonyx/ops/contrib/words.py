"""WordConvEmbedding and DecoderAttention, of onnxruntime's own domain."""

from __future__ import annotations

from sardonyx.base import errors
from sardonyx.base.dtypes import BOOL, FLOAT, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.attention import Change, attend
from sardonyx.ops.core.ranges import row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.onnx.attention import merge_heads, split_heads
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    assume_shape,
    cast,
    compute,
    concat,
    matmul,
    slice_axis,
    tanh,
    transpose,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.symbolic import elements_of
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

DOMAIN = "com.microsoft"
_WORDS, _DECODER = "WordConvEmbedding", "DecoderAttention"


@op(_WORDS, 1, domain=DOMAIN)
def word_conv_embedding(
    words: Tensor,
    w: Tensor,
    bias: Tensor,
    table: Tensor,
    *,
    char_embedding_size: int | None = None,
    conv_window_size: int | None = None,
    embedding_size: int | None = None,
) -> Tensor:
    """Words (..., characters) as vectors (..., filters).

    The largest, over all windows of a word, of tanh of a convolution of its characters' vectors. A
    word is as long as it has characters but 0, or one window if that is more; a word that begins
    with 0 is all zeros.
    """
    if words.rank < 1 or w.rank != 4 or bias.rank != 1 or table.rank != 2:  # noqa: PLR2004 - (filters, 1, window, size)
        raise InvalidGraph(message(_WORDS, "The ranks of its inputs are wrong"))
    filters, window, size = w.shape[0], w.shape[2], table.shape[1]
    for name, given, found in (
        ("conv_window_size", conv_window_size, window),
        ("embedding_size", embedding_size, filters),
        ("char_embedding_size", char_embedding_size, size),
    ):
        if given is not None:
            assume_equal(given, found, _WORDS, f"Its attribute {name} does not fit")
    assume_shape(w.shape, (filters, 1, window, size), _WORDS, "W")
    assume_shape(bias.shape, (filters,), _WORDS, "B")
    outer, length = words.shape[:-1], words.shape[-1]
    (over,) = reduced_indices((length,))
    at = indices(outer)
    real = scalar.load(words, (*at, over)) > 0
    begun = scalar.load(words, (*at, 0)) > 0
    counted = scalar.cast(real & begun, INT64)
    lengths = make_reduce(outer, (length,), "sum", counted, INT64)
    count = length - (window - 1)
    shape = (*outer, count, filters)
    taps, elements = reduced_indices((window, size))
    *row, begin, one = indices(shape)
    char = scalar.load(words, (*row, begin + taps))
    vector = row_in(char, "Sequence", table.shape[0])
    term = scalar.load(table, (vector, elements)) * scalar.load(w, (one, 0, taps, elements))
    summed = make_reduce(shape, (window, size), "sum", term, FLOAT)
    active = tanh(summed + bias)

    def kept(*at: Dim) -> Scalar:
        end = scalar.load(lengths, at[:-2]) - scalar.size(window)
        inside = scalar.size(at[-2]) <= scalar.binary("max", end, 0)
        return scalar.select(inside, scalar.load(active, at), float("-inf"))

    largest = compute(shape, kept).max(len(outer))

    def body(*at: Dim) -> Scalar:
        empty = scalar.compare("eq", scalar.load(lengths, at[:-1]), 0)
        return scalar.select(empty, scalar.constant(0.0, FLOAT), scalar.load(largest, at))

    return compute((*outer, filters), body)


# -- DecoderAttention -------------------------------------------------------------------------


def _flag(x: Tensor, name: str) -> bool:
    """What an input of one bool says, which must be known when the plan is made."""
    found = elements_of(cast(scalar_of(x, _DECODER), BOOL))
    if found is None or not isinstance(found[0], (bool, int)):
        what = f"Its input {name} must be a constant"
        raise errors.NotImplemented(message(_DECODER, what))
    return bool(found[0])


@op(_DECODER, 1, domain=DOMAIN)
def decoder_attention(
    query: Tensor,
    key: Tensor,
    q_weight: Tensor,
    kv_weight: Tensor,
    bias: Tensor,
    key_padding_mask: Tensor | None,
    key_cache: Tensor | None,
    value_cache: Tensor | None,
    static_kv: Tensor,
    use_past: Tensor,
    has_layer_state: Tensor,
    has_key_padding_mask: Tensor,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of (sequence, batch, width), to itself or across, with keys that are cached."""
    if query.rank != 3 or key.rank != 3:  # noqa: PLR2004 - as above
        raise InvalidGraph(message(_DECODER, "Queries and keys need three axes"))
    width = query.shape[2]
    crosses, cached = _flag(static_kv, "static_kv"), _flag(use_past, "use_past")
    _flag(has_layer_state, "has_layer_state")
    if cached and (key_cache is None or value_cache is None):
        raise InvalidGraph(message(_DECODER, "With use_past it needs key_cache and value_cache"))
    assume_shape(bias.shape, (width * 3,), _DECODER, "The bias")

    def heads(x: Tensor) -> Tensor:
        return split_heads(transpose(x, (1, 0, 2)), num_heads, _DECODER)

    queries = heads(matmul(query, q_weight) + slice_axis(bias, 0, 0, width))
    keys, values = key_cache, value_cache
    if not (crosses and cached):
        both = matmul(key if crosses else query, kv_weight)
        both = both + slice_axis(bias, 0, width, None)
        end = width * 2
        keys, values = heads(slice_axis(both, 2, 0, width)), heads(slice_axis(both, 2, width, end))
        if cached and key_cache is not None and value_cache is not None:
            keys, values = concat([key_cache, keys], 2), concat([value_cache, values], 2)
    assert keys is not None and values is not None  # noqa: S101 - narrows the type for the checker
    changes: list[Change] = []
    if _flag(has_key_padding_mask, "has_key_padding_mask") and key_padding_mask is not None:
        assume_shape(key_padding_mask.shape, (keys.shape[0], keys.shape[2]), _DECODER, "The mask")
        changes.append(_padded(key_padding_mask, mask_filter_value))
    result, _, _ = attend(queries, keys, values, changes, None)
    return transpose(merge_heads(result), (1, 0, 2)), keys, values


def _padded(mask: Tensor, value: float) -> Change:
    """Hides keys where a mask says that they are padding."""

    def change(score: Scalar, b: Dim, head: Dim, i: Dim, j: Dim) -> Scalar:
        return scalar.select(scalar.load(mask, (b, j)), score + value, score)

    return change
