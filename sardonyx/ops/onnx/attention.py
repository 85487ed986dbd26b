"""Attention and rotary positions, composed of products, softmax and index maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from sardonyx.base import dtypes, integer, quotients
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.ranges import ranged, row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.normalisation import softmax_over
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_at_most,
    assume_broadcast,
    assume_equal,
    assume_shape,
    broadcast_index,
    broadcast_indices,
    cast,
    compute,
    concat,
    contract,
    equal,
    exp,
    reshape,
    transpose,
    where,
)
from sardonyx.tensor.scalar import Scalar

_LOWEST = float("-inf")


def split_heads(x: Tensor, heads: int | None, where_: str) -> Tensor:
    """(batch, sequence, heads * size) as (batch, heads, sequence, size); rank 4 stays."""
    if x.rank == 4:
        return x
    if x.rank != 3 or not heads:
        raise InvalidGraph(
            message(
                where_,
                f"An input of rank {x.rank} with {heads} heads",
                expected="rank 4, or 3 and a number of heads",
            )
        )
    size = integer.floordiv(x.shape[2], heads)
    assume_equal(x.shape[2], size * heads, where_, f"Width {x.shape[2]} is not {heads} heads")
    return transpose(reshape(x, (*x.shape[:2], heads, size)), (0, 2, 1, 3))


def merge_heads(x: Tensor) -> Tensor:
    """(batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    batch, heads, length, size = x.shape
    return reshape(transpose(x, (0, 2, 1, 3)), (batch, length, heads * size))


class _Mask:
    """What is added to scores, and which of them do not count."""

    def __init__(self, mask: Tensor | None, queries: Dim, keys: Dim, wide: DType) -> None:
        self.mask, self.queries, self.keys, self.wide = mask, queries, keys, wide
        self.causal = False
        self.left = self.right = -1
        self.offset: Callable[[Dim], Scalar] = lambda _: scalar.size(0)
        self.lengths: Tensor | None = None

    @property
    def can_hide_rows(self) -> bool:
        """Whether all keys of a query may be hidden."""
        windowed = self.left >= 0 or self.right >= 0
        return self.mask is not None or self.lengths is not None or windowed

    def apply(self, score: Scalar, at: tuple[Dim, ...]) -> Scalar:
        """A score under the mask."""
        batch, _, i, j = at
        if self.mask is not None:
            score = self._masked(score, self.mask, at)
        for test in self._tests(batch, i, j):
            score = scalar.select(test, score, _LOWEST)
        return score

    def _masked(self, score: Scalar, mask: Tensor, at: tuple[Dim, ...]) -> Scalar:
        *outer, key = at
        width = mask.shape[-1]
        value = scalar.load(mask, (*broadcast_indices(mask.shape[:-1], outer), key))
        if mask.dtype is dtypes.BOOL:
            masked = scalar.select(value, score, _LOWEST)
        else:
            masked = score + scalar.cast(value, self.wide)
        # Keys that a short mask does not reach are hidden, also those of a mask for one key.
        reached = scalar.size(key) < scalar.size(width)
        return scalar.select(reached, masked, _LOWEST)

    def _tests(self, batch: Dim, i: Dim, j: Dim) -> list[Scalar]:
        tests = []
        position = scalar.size(i) + self.offset(batch)
        key = scalar.size(j)
        if self.causal:
            tests.append(key <= position)
        if self.left >= 0:
            tests.append(key >= position - self.left)
        if self.right >= 0:
            tests.append(key <= position + self.right)
        if self.lengths is not None:
            tests.append(key < scalar.load(self.lengths, (batch,)))
        return tests


def _probabilities(scores: Tensor, guarded: bool) -> Tensor:
    """Softmax of scores; rows where every score is -inf become 0."""
    if not guarded:
        return softmax_over(scores, (3,))
    largest = scores.max(3, keepdims=True)
    e = exp(scores - where(largest > _LOWEST, largest, 0.0))
    total = e.sum(3, keepdims=True)
    return e / where(equal(total, 0.0), 1.0, total)


@op("Attention", 23, 24, 25, added={"left_window_size": 25, "right_window_size": 25})
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """softmax(q @ k' * scale + mask) @ v; also gives keys and values with the past, and scores."""
    if qk_matmul_output_mode not in range(4):
        what, got = "Bad qk_matmul_output_mode", str(qk_matmul_output_mode)
        raise InvalidGraph(message("Attention", what, expected="0, 1, 2 or 3", got=got))
    queries = split_heads(q, q_num_heads, "Attention")
    keys = split_heads(k, kv_num_heads, "Attention")
    values = split_heads(v, kv_num_heads, "Attention")
    if past_key is not None:
        keys = concat([past_key, keys], 2)
    if past_value is not None:
        values = concat([past_value, values], 2)
    if nonpad_kv_seqlen is not None:
        assume_shape(nonpad_kv_seqlen.shape, keys.shape[:1], "Attention", "nonpad_kv_seqlen")
        nonpad_kv_seqlen = ranged(nonpad_kv_seqlen, "nonpad_kv_seqlen", 0, keys.shape[2])
    wide = accumulator(q.dtype)
    hidden = _Mask(mask, queries.shape[2], keys.shape[2], wide)
    hidden.causal, hidden.lengths = bool(is_causal), nonpad_kv_seqlen
    hidden.left, hidden.right = left_window_size, right_window_size
    if past_key is not None:
        begin = past_key.shape[2]
        hidden.offset = lambda _: scalar.size(begin)
    elif nonpad_kv_seqlen is not None:
        lengths, count = nonpad_kv_seqlen, queries.shape[2]
        hidden.offset = lambda b: scalar.load(lengths, (b,)) - scalar.size(count)
    raw = scaled_scores(queries, keys, wide, scale)
    capped = raw
    if softcap > 0:
        capped = compute(
            raw.shape,
            lambda *at: scalar.unary("tanh", scalar.load(raw, at) / softcap) * softcap,
        )
    if mask is not None:
        if not mask.rank:
            raise InvalidGraph(message("Attention", "The mask has no axes"))
        rows = raw.shape[max(0, 4 - mask.rank) : -1]
        assume_broadcast(mask.shape[:-1], rows, "Attention", "The mask")
        assume_at_most(mask.shape[-1], keys.shape[2], "Attention", "The mask is longer than keys")
    masked = compute(raw.shape, lambda *at: hidden.apply(scalar.load(capped, at), at))
    asked = wide if softmax_precision is None else float_type("Attention", softmax_precision)
    precise = cast(masked, asked) if asked.bits > wide.bits else masked
    causal_hides = hidden.causal and nonpad_kv_seqlen is not None
    probabilities = _probabilities(precise, hidden.can_hide_rows or causal_hides)
    result = weighted_values(cast(probabilities, q.dtype), values)
    shown = (raw, capped, masked, probabilities)[qk_matmul_output_mode]
    output = merge_heads(result) if q.rank == 3 else result
    return output, keys, values, cast(shown, q.dtype)


def float_type(where: str, number: int) -> DType:
    """The type of scores that `softmax_precision` asks for.

    Raises:
        InvalidGraph: It is no type that softmax is computed in.
    """
    found = dtypes.BY_ONNX_ID.get(number)
    if found is None or not found.is_float or found.is_narrow_float:
        what = "Bad softmax_precision"
        raise InvalidGraph(message(where, what, expected="a float type", got=str(number)))
    return found


def _repeats(queries: Tensor, keys: Tensor) -> Dim:
    """How many heads of queries share one of keys."""
    what = "Keys have no heads"
    assume_equal(integer.minimum(keys.shape[1], 1), 1, "Attention", what)
    shared = integer.floordiv(queries.shape[1], keys.shape[1])
    assume_equal(
        queries.shape[1], shared * keys.shape[1], "Attention", "Heads do not share keys evenly"
    )
    return shared


def scaled_scores(queries: Tensor, keys: Tensor, wide: DType, scale: float | None) -> Tensor:
    """(batch, heads, queries, keys) of scaled products, in `wide`."""
    shared, size = _repeats(queries, keys), queries.shape[3]
    assume_equal(size, keys.shape[3], "Attention", "Queries and keys differ in size")
    assume_equal(queries.shape[0], keys.shape[0], "Attention", "The batches differ")

    def body(at: tuple[Dim, ...], over: tuple[Dim, ...]) -> tuple[Scalar, Scalar]:
        batch, head, i, j = at
        left = scalar.load(queries, (batch, head, i, over[0]))
        return left, scalar.load(keys, (batch, integer.floordiv(head, shared), j, over[0]))

    shape = (*queries.shape[:3], keys.shape[2])
    product = contract(shape, (size,), body, wide)
    if scale is not None:
        factor = scalar.constant(scale, wide)
    elif isinstance(size, int):
        factor = scalar.constant(1 / math.sqrt(size), wide)
    else:
        factor = scalar.unary("rsqrt", scalar.cast(scalar.size(size), wide))
    return compute(shape, lambda *at: scalar.load(product, at) * factor)


def weighted_values(probabilities: Tensor, values: Tensor) -> Tensor:
    """(batch, heads, queries, size): values summed with the probabilities as weights."""
    shared = _repeats(probabilities, values)
    assume_equal(probabilities.shape[0], values.shape[0], "Attention", "The batches differ")
    assume_equal(probabilities.shape[3], values.shape[2], "Attention", "Keys and values differ")

    def body(at: tuple[Dim, ...], over: tuple[Dim, ...]) -> tuple[Scalar, Scalar]:
        batch, head, i, d = at
        left = scalar.load(probabilities, (batch, head, i, over[0]))
        return left, scalar.load(values, (batch, integer.floordiv(head, shared), over[0], d))

    shape = (*probabilities.shape[:3], values.shape[3])
    return contract(shape, (values.shape[2],), body)


# -- rotary positions -------------------------------------------------------------------------

#: (batch, position in the sequence, pair) -> the element of a cache.
Angle = Callable[[Tensor, Dim, Dim, Dim], Scalar]


class RotaryCaches(NamedTuple):
    """Cosines and sines of angles by position, and how the elements of pairs lie.

    Attributes:
        cosine: (positions, pairs).
        sine: As many.
        interleaved: Whether pairs are neighbours; else they are half of what is rotated apart.
    """

    cosine: Tensor
    sine: Tensor
    interleaved: bool


def rotary_caches(
    where: str, cosine: Tensor | None, sine: Tensor | None, interleaved: int
) -> RotaryCaches:
    """Caches that are optional inputs of an operator.

    Raises:
        InvalidGraph: One is missing.
    """
    if cosine is None or sine is None:
        raise InvalidGraph(message(where, "With do_rotary it needs cos_cache and sin_cache"))
    return RotaryCaches(cosine, sine, bool(interleaved))


def rotate(
    x: Tensor,
    caches: RotaryCaches,
    angle: Angle,
    heads: int | None,
    width: Dim,
) -> Tensor:
    """Pairs of elements rotated by the angle of their position.

    Args:
        x: (batch, heads, sequence, size), or (batch, sequence, heads * size).
        caches: Of cosines and sines.
        angle: Finds the element of a cache.
        heads: Number of heads, for rank 3.
        width: How many of the first elements of a head are rotated; 0 for all.
    """
    split = split_heads(x, heads, "RotaryEmbedding")
    rotated = split.shape[3] if width == 0 else width
    half = rotated // 2
    assume_at_most(rotated, split.shape[3], "RotaryEmbedding", "More is turned than there is")
    cosine, sine, interleaved = caches
    for cache in (cosine, sine):
        assume_at_most(half, cache.shape[-1], "RotaryEmbedding", "A cache is too narrow")

    def body(batch: Dim, head: Dim, position: Dim, d: Dim) -> Scalar:
        if interleaved:
            step: Dim = 1
            pair = d // 2
            first = scalar.compare("eq", scalar.size(d % 2), 0)
        else:
            step = half
            pair = integer.modulo(d, half)
            first = scalar.size(d) < scalar.size(half)
        value = scalar.load(split, (batch, head, position, d))
        behind = scalar.load(split, (batch, head, position, d + step))
        before = scalar.load(split, (batch, head, position, d - step))
        other = scalar.select(first, -behind, before)
        c, s = (angle(cache, batch, position, pair) for cache in (cosine, sine))
        result = value * c + other * s
        if width != 0:
            inside = scalar.size(d) < scalar.size(width)
            return scalar.select(inside, result, value)
        return result

    result = compute(split.shape, body)
    return merge_heads(result) if x.rank == 3 else result


@op("RotaryEmbedding", 23)
def rotary_embedding(
    x: Tensor,
    cosine: Tensor,
    sine: Tensor,
    positions: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """Rotary positions with caches per position, or per element of the batch."""
    outer = (x.shape[0], x.shape[-2])
    if positions is not None:
        assume_shape(positions.shape, outer, "RotaryEmbedding", "The tensor of positions")
    for cache in (cosine, sine):
        if cache.rank != (3 if positions is None else 2):
            raise InvalidGraph(message("RotaryEmbedding", f"A cache of rank {cache.rank}"))
        if positions is None:
            assume_broadcast(cache.shape[:1], outer[:1], "RotaryEmbedding", "A cache")
            assume_shape(cache.shape[1:2], outer[1:], "RotaryEmbedding", "A cache")
        if rotary_embedding_dim:
            half = rotary_embedding_dim // 2
            assume_equal(cache.shape[-1], half, "RotaryEmbedding", "The width of a cache")

    def angle(cache: Tensor, batch: Dim, position: Dim, pair: Dim) -> Scalar:
        if positions is None:
            row = broadcast_index(cache.shape[0], batch)
            return scalar.load(cache, (row, position, pair))
        return _cached(cache, scalar.load(positions, (batch, position)), pair)

    caches = RotaryCaches(cosine, sine, bool(interleaved))
    return rotate(x, caches, angle, num_heads, rotary_embedding_dim)


def _cached(cache: Tensor, position: Scalar, pair: Dim) -> Scalar:
    return scalar.load(cache, (row_in(position, "position_ids", cache.shape[0]), pair))


@op("RotaryEmbedding", 1, domain="com.microsoft")
def rotary_embedding_contrib(
    x: Tensor,
    positions: Tensor,
    cosine: Tensor,
    sine: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """Rotary positions; one position stands for the first of a sequence."""
    if cosine.rank != 2 or sine.rank != 2:
        raise InvalidGraph(message("RotaryEmbedding", "The caches must have two axes"))
    wanted = (1,) if positions.rank == 1 else (x.shape[0], x.shape[-2])
    assume_shape(positions.shape, wanted, "RotaryEmbedding", "The tensor of positions")
    assume_equal(cosine.shape[0], sine.shape[0], "RotaryEmbedding", "The caches differ")
    width = cosine.shape[1] * 2
    if x.rank == 3 and not num_heads:
        count = quotients.exact_quotient(x.shape[2], rotary_embedding_dim or width)
        num_heads = count if isinstance(count, int) else 0

    def angle(cache: Tensor, batch: Dim, position: Dim, pair: Dim) -> Scalar:
        if positions.rank == 1:
            begin = scalar.cast(scalar.load(positions, (0,)), dtypes.INT64)
            return _cached(cache, begin + scalar.size(position), pair)
        return _cached(cache, scalar.load(positions, (batch, position)), pair)

    caches = RotaryCaches(cosine, sine, bool(interleaved))
    return rotate(x, caches, angle, num_heads, rotary_embedding_dim)
