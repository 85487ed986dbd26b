"""PagedAttention: packed tokens, and a cache of keys and values in blocks that a table names."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base import errors, integer, quotients
from sardonyx.base.dtypes import FLOAT, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.attention import HIDDEN, Change, attend
from sardonyx.ops.contrib.cache_codes import CacheCodes, codes_of
from sardonyx.ops.contrib.varlen import requests_of, row_of, start_of
from sardonyx.ops.core.ranges import ROTARY, rising, row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.attention import rotary_caches, rotate
from sardonyx.ops.onnx.gather import scatter_nd
from sardonyx.ops.onnx.normalisation import rms_norm
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    assume_shape,
    cast,
    compute,
    concat,
    constant,
    reshape,
    slice_axis,
    transpose,
    unsqueeze,
)
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"
_PAGED = "PagedAttention"


@dataclass(frozen=True, slots=True)
class Pages:
    """Where tokens are, and their keys.

    Attributes:
        starts: Of the requests' tokens, int32[batch + 1].
        pasts: How many tokens of each request are cached, int32[batch].
        table: The block of each request's places, int32[batch, blocks].
        block: How many places a block has.
        blocks: How many blocks there are.
        requests: Of the tokens, int64[tokens].
    """

    starts: Tensor
    pasts: Tensor
    table: Tensor
    block: Dim
    blocks: Dim
    requests: Tensor

    def request(self, token: Dim) -> Dim:
        """Which request a token belongs to."""
        return scalar.as_index(scalar.load(self.requests, (token,)), self.pasts.shape[0])

    def position(self, token: Dim) -> Scalar:
        """The place of a token in its sequence."""
        request = self.request(token)
        past = scalar.cast(scalar.load(self.pasts, (request,)), INT64)
        return past + scalar.size(token) - start_of(self.starts, request)

    def length(self, token: Dim) -> Scalar:
        """How long the sequence of a token is, with all new ones."""
        request = self.request(token)
        past = scalar.cast(scalar.load(self.pasts, (request,)), INT64)
        end = start_of(self.starts, request + 1)
        return past + end - start_of(self.starts, request)

    def page(self, request: Dim, place: Scalar) -> Scalar:
        """The block of a place; those that a table has no block for are -1."""
        column = scalar.binary("div", place, scalar.size(self.block))
        at = row_of(column, self.table.shape[1])  # places were checked with past_seqlens
        given = scalar.load(self.table, (request, at))
        return scalar.check_range(given, "block_table", -1, self.blocks - 1)

    def slots(self, tokens: Dim) -> Tensor:
        """Where keys of new tokens go, as if the cache were rows, int64[tokens]."""

        def body(token: Dim) -> Scalar:
            place = self.position(token)
            inside = scalar.binary("rem", place, scalar.size(self.block))
            return self.page(self.request(token), place) * scalar.size(self.block) + inside

        return compute((tokens,), body)

    def written(self, cache: Tensor, new: Tensor, slots: Tensor) -> Tensor:
        """A cache (blocks, block, heads, size) with new tokens (T, heads, size) in their slots."""
        rows = self.blocks * self.block
        flat = reshape(cache, (rows, *cache.shape[2:]))
        # What is not to be written goes to one row more.
        more = concat([flat, constant(0, cache.dtype, (1, *cache.shape[2:]))], 0)

        def place(token: Dim, _: Dim) -> Scalar:
            slot = scalar.load(slots, (token,))
            slot = scalar.check_range(slot, "slot_mapping", -1, rows - 1)
            return scalar.select(slot < 0, scalar.size(rows), slot)

        places = compute((new.shape[0], 1), place)
        return reshape(slice_axis(scatter_nd(more, places, new), 0, 0, rows), cache.shape)

    def read(self, cache: Tensor, tokens: Dim) -> Tensor:
        """What each token may see of a cache: (tokens, heads, places, size)."""
        places = self.table.shape[1] * self.block
        shape = (tokens, cache.shape[2], places, cache.shape[3])

        def body(token: Dim, head: Dim, place: Dim, d: Dim) -> Scalar:
            column, inside = integer.floordiv(place, self.block), integer.modulo(place, self.block)
            given = scalar.cast(scalar.load(self.table, (self.request(token), column)), INT64)
            # Blocks behind a sequence may be anything: no score of theirs counts.
            used = scalar.size(place) < self.length(token)
            page = row_in(scalar.select(used, given, 0), "block_table", self.blocks)
            value = scalar.load(cache, (page, inside, head, d))
            return scalar.select(used, value, 0)

        return compute(shape, body)

    def visible(self, causal: bool, window: int) -> Change:
        """Hides what is behind a token, behind its sequence, or too far back."""

        def change(score: Scalar, token: Dim, head: Dim, i: Dim, place: Dim) -> Scalar:
            key, here = scalar.size(place), self.position(token)
            seen = key <= here if causal else key < self.length(token)
            if window > 0:
                seen = seen & (key > here - window)
            return scalar.select(seen, score, HIDDEN)

        return change


@op(_PAGED, 1, domain=DOMAIN)
def paged_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    key_cache: Tensor,
    value_cache: Tensor | None,
    starts: Tensor,
    pasts: Tensor,
    table: Tensor,
    cosine: Tensor | None = None,
    sine: Tensor | None = None,
    slot_mapping: Tensor | None = None,
    head_sink: Tensor | None = None,
    q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    attention_metadata: Tensor | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    softcap: float = 0.0,
    v_cache_dtype: str = "",
    v_head_size: int = 0,
    v_quant_type: str = "NONE",
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Attention of packed tokens (T, width), whose keys and values go to blocks of the caches."""
    for kind in (k_cache_dtype, v_cache_dtype):
        if kind not in ("", key_cache.dtype.name):
            what, expected = "A cache has another type than its tensor", key_cache.dtype.name
            raise errors.NotImplemented(message(_PAGED, what, expected=expected, got=kind))
    latent = kv_cache_layout == "LATENT"
    if kv_cache_layout not in ("SEPARATE", "LATENT"):
        expected = "SEPARATE or LATENT"
        raise InvalidGraph(
            message(_PAGED, "Bad kv_cache_layout", expected=expected, got=kv_cache_layout)
        )
    if latent != (value_cache is None) or (latent and (value is not None or kv_num_heads != 1)):
        what = "A LATENT cache holds values too: there are none besides, and one head"
        raise InvalidGraph(message(_PAGED, what))
    angles = Angles(cosine, sine, rotary_offset, bool(rotary_interleaved)) if do_rotary else None
    norms = Norms(q_norm_weight, k_norm_weight, qk_norm_epsilon)
    key_codes = codes_of(_PAGED, key_cache, query, k_quant_type, k_scale)
    value_codes = None
    if value_cache is not None:
        value_codes = codes_of(_PAGED, value_cache, query, v_quant_type, v_scale)
    queries, pages, key_cache, value_cache = written_tokens(
        _PAGED, (query, key, value), (key_cache, value_cache), (starts, pasts, table), slot_mapping,
        (num_heads, kv_num_heads), angles, norms, (key_codes, value_codes),
    )  # fmt: skip
    tokens, wide = query.shape[0], query.dtype
    if key_codes.scale is not None or (value_codes and value_codes.scale is not None):
        wide = FLOAT
    seen_keys = key_codes.read(pages.read(key_cache, tokens), wide)
    if value_cache is None or value_codes is None:
        seen_values = slice_axis(seen_keys, 3, 0, v_head_size or key_cache.shape[3])
    else:
        seen_values = value_codes.read(pages.read(value_cache, tokens), wide)
    change = pages.visible(bool(is_causal), local_window_size)
    result, _, _ = attend(
        cast(unsqueeze(queries, (2,)), wide), seen_keys, seen_values, [change], scale,
        softcap=softcap, sink=head_sink,
    )  # fmt: skip
    width = num_heads * seen_values.shape[3]
    return cast(reshape(result, (tokens, width)), query.dtype), key_cache, value_cache


@dataclass(frozen=True, slots=True)
class Angles:
    """How queries and keys are rotated: tables by place, the first element, pairs side by side."""

    cosine: Tensor | None
    sine: Tensor | None
    offset: int
    interleaved: bool


@dataclass(frozen=True, slots=True)
class Norms:
    """Weights of the norms of queries and keys, if they have any, and what is added to means."""

    queries: Tensor | None
    keys: Tensor | None
    epsilon: float


def written_tokens(
    where: str,
    parts: tuple[Tensor, Tensor | None, Tensor | None],
    caches: tuple[Tensor, Tensor | None],
    places: tuple[Tensor, Tensor, Tensor],
    slot_mapping: Tensor | None,
    counts: tuple[int, int],
    angles: Angles | None,
    norms: Norms,
    codes: tuple[CacheCodes, CacheCodes | None],
) -> tuple[Tensor, Pages, Tensor, Tensor | None]:
    """Queries (T, heads, size), where tokens are, and the caches with the new ones in them.

    Args:
        where: The operator.
        parts: Queries, keys and values of the new tokens, or all three in the first.
        caches: Of keys, and of values; without the latter keys hold values, too.
        places: cumulative_sequence_length, past_seqlens and block_table.
        slot_mapping: Where new tokens go; where the table says if None.
        counts: How many heads queries have, and keys.
        angles: How both are rotated; None: not at all.
        norms: How both are normalised before.
        codes: How the caches hold keys, and values.
    """
    query, (key_cache, value_cache), (starts, pasts, table) = parts[0], caches, places
    if query.rank != 2 or key_cache.rank != 4 or starts.rank != 1 or table.rank != 2:  # noqa: PLR2004 - see the schema
        what = "It needs tokens of two axes, caches of four, offsets of one, and a table of two"
        raise InvalidGraph(message(where, what))
    tokens, size = query.shape[0], key_cache.shape[3]
    assume_equal(key_cache.shape[2], counts[1], where, "The heads of key_cache")
    batch = starts.shape[0] - 1
    assume_shape(pasts.shape, (batch,), where, "past_seqlens")
    assume_equal(table.shape[0], batch, where, "Each sequence needs a row of block_table")
    latent = value_cache is None
    queries, keys, values = _parts(where, parts, counts, size, latent)
    if (norms.queries is None) != (norms.keys is None):
        raise InvalidGraph(message(where, "It needs both q_norm_weight and k_norm_weight, or none"))
    if norms.queries is not None and norms.keys is not None:
        queries = rms_norm(queries, norms.queries, -1, norms.epsilon, 1)[0]
        keys = rms_norm(keys, norms.keys, -1, norms.epsilon, 1)[0]
    starts = rising(starts, "cumulative_sequence_length", tokens)
    capacity = table.shape[1] * key_cache.shape[1]
    pasts = _sound_pasts(pasts, starts, capacity)
    pages = Pages(starts, pasts, table, key_cache.shape[1], key_cache.shape[0],
                  requests_of(starts, tokens))  # fmt: skip
    if angles is not None:
        queries, keys = (
            rotated_rows(where, x, pages.position, angles, ROTARY) for x in (queries, keys)
        )
    slots = pages.slots(tokens) if slot_mapping is None else slot_mapping
    assume_shape(slots.shape, (tokens,), where, "slot_mapping")
    key_cache = pages.written(key_cache, codes[0].stored(keys), slots)
    if value_cache is not None and codes[1] is not None:
        assume_shape(value_cache.shape, key_cache.shape, where, "value_cache")
        value_cache = pages.written(value_cache, codes[1].stored(values), slots)
    return queries, pages, key_cache, value_cache


def _sound_pasts(pasts: Tensor, starts: Tensor, capacity: Dim) -> Tensor:
    """How many tokens of requests are cached, int64[batch]; with the new ones there is room."""

    def body(b: Dim) -> Scalar:
        new = start_of(starts, b + 1) - start_of(starts, b)
        most = scalar.size(capacity) - new
        return scalar.check_range(scalar.load(pasts, (b,)), "past_seqlens", 0, most)

    return compute(pasts.shape, body)


def _parts(
    where: str, given: tuple[Tensor, Tensor | None, Tensor | None], counts: tuple[int, int],
    size: Dim, latent: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Queries, keys and values (T, heads, size), out of one tensor or more."""
    (query, key, value), (heads, kv_heads) = given, counts
    tokens = query.shape[0]
    if key is None:
        every = heads + kv_heads * (1 if latent else 2)
        assume_equal(query.shape[1], size * every, where, "The packed width")
        whole = reshape(query, (tokens, every, size))
        ends = (0, heads, heads + kv_heads, every)
        first, second, third = (slice_axis(whole, 1, ends[k], ends[k + 1]) for k in range(3))
        return first, second, second if latent else third
    if value is None and not latent:
        raise InvalidGraph(message(where, "It has keys, but no values"))
    parts = (query, heads), (key, kv_heads), (key if value is None else value, kv_heads)
    for x, count in parts:
        if x.rank != 2 or quotients.exact_quotient(x.shape[1], size) is None:  # noqa: PLR2004 - tokens, width
            what = "Tokens do not fit the size of the cache's heads"
            raise InvalidGraph(message(where, what, got=str(list(x.shape))))
        assume_equal(x.shape[0], tokens, where, "Queries, keys and values differ in number")
        assume_equal(x.shape[1], size * count, where, "The width of a token")
    first, second, third = (reshape(x, (tokens, count, size)) for x, count in parts)
    return first, second, third


def rotated_rows(
    where: str, x: Tensor, position: Callable[[Dim], Scalar], angles: Angles, name: str
) -> Tensor:
    """(T, heads, size) with elements from `angles.offset` on rotated by the angles of their places.

    A place that the caches do not have is a fault of what `name` names.
    """
    caches = rotary_caches(where, angles.cosine, angles.sine, angles.interleaved)
    width, offset = caches.cosine.shape[1] * 2, angles.offset

    def angle(cache: Tensor, _: Dim, token: Dim, pair: Dim) -> Scalar:
        return scalar.load(cache, (row_in(position(token), name, cache.shape[0]), pair))

    before, rest = slice_axis(x, 2, 0, offset), slice_axis(x, 2, offset, None)
    # One batch of (heads, T, size).
    moved = unsqueeze(transpose(rest, (1, 0, 2)), (0,))
    some = 0 if integer.known_equal(width, rest.shape[2]) else width
    found = rotate(moved, caches, angle, None, some)
    rotated = transpose(reshape(found, moved.shape[1:]), (1, 0, 2))
    return concat([before, rotated], 2) if offset else rotated
