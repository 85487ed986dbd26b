"""SparsePagedAttention: PagedAttention of places that an indexer selected."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base import integer
from sardonyx.base.dtypes import FLOAT, INT64, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.attention import DOMAIN, HIDDEN, attend
from sardonyx.ops.contrib.cache_codes import CacheCodes, codes_of
from sardonyx.ops.contrib.paged import Angles, Norms, Pages, written_tokens
from sardonyx.ops.contrib.varlen import row_of
from sardonyx.ops.core.ranges import ranged
from sardonyx.ops.core.registry import op
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_shape,
    cast,
    compute,
    concat,
    reshape,
    unsqueeze,
)
from sardonyx.tensor.scalar import Scalar

_SPARSE = "SparsePagedAttention"
_MODES, _SOURCES = ("selected_only", "local_plus_selected"), ("main", "auxiliary")


@op(_SPARSE, 1, domain=DOMAIN)
def sparse_paged_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    key_cache: Tensor,
    value_cache: Tensor,
    starts: Tensor,
    pasts: Tensor,
    table: Tensor,
    slot_mapping: Tensor | None,
    selected_indices: Tensor,
    selected_counts: Tensor,
    auxiliary_key: Tensor | None = None,
    auxiliary_value: Tensor | None = None,
    auxiliary_lengths: Tensor | None = None,
    cosine: Tensor | None = None,
    sine: Tensor | None = None,
    head_sink: Tensor | None = None,
    q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    attention_metadata: Tensor | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    attention_mode: str = "selected_only",
    auxiliary_cache_layout: str = "contiguous",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_quant_type: str = "NONE",
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    selected_kv_source: str = "main",
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of packed tokens (T, width) to places of the caches that are selected for each.

    With `local_plus_selected` a token sees the last places of its own sequence as well, and a place
    that is both once. Selected places that are not there (after the sequence or, with `is_causal`,
    after the token; in no block; behind an auxiliary cache) count for nothing, as do those after
    the token's count. A token that sees nothing gives zeros.
    """
    for name, given, known in (
        ("attention_mode", attention_mode, _MODES),
        ("selected_kv_source", selected_kv_source, _SOURCES),
        ("auxiliary_cache_layout", auxiliary_cache_layout, ("contiguous",)),
    ):
        if given not in known:
            expected = " or ".join(known)
            raise InvalidGraph(message(_SPARSE, f"Bad {name}", expected=expected, got=given))
    angles = Angles(cosine, sine, rotary_offset, bool(rotary_interleaved)) if do_rotary else None
    norms = Norms(q_norm_weight, k_norm_weight, qk_norm_epsilon)
    codes = (
        codes_of(_SPARSE, key_cache, query, k_quant_type, k_scale),
        codes_of(_SPARSE, value_cache, query, v_quant_type, v_scale),
    )
    wide = query.dtype if codes[0].scale is None and codes[1].scale is None else FLOAT
    queries, pages, keys, values = written_tokens(
        _SPARSE, (query, key, value), (key_cache, value_cache), (starts, pasts, table),
        slot_mapping, (num_heads, kv_num_heads), angles, norms, codes,
    )  # fmt: skip
    if values is None:
        raise InvalidGraph(message(_SPARSE, "It needs value_cache"))
    tokens, heads, size = queries.shape
    if selected_indices.rank != 2:  # noqa: PLR2004 - tokens, entries
        what, got = "selected_indices must have two axes", str(list(selected_indices.shape))
        raise InvalidGraph(message(_SPARSE, what, got=got))
    assume_shape(selected_indices.shape[:1], (tokens,), _SPARSE, "selected_indices")
    assume_shape(selected_counts.shape, (tokens,), _SPARSE, "selected_counts")
    counts = ranged(selected_counts, "selected_counts", 0, selected_indices.shape[1])
    entries = _Entries(
        pages, selected_indices, counts, bool(is_causal), codes, wide
    )  # fmt: skip
    groups: list[_Group] = []
    if attention_mode == _MODES[1]:
        groups.append(entries.near(keys, values, local_window_size))
    if selected_kv_source == _SOURCES[1]:
        both = auxiliary_key, auxiliary_value
        auxiliary = _auxiliary(*both, auxiliary_lengths, bool(auxiliary_kv_shared), pages, keys)
        groups.append(entries.beside(*auxiliary, keys.shape[2]))
    else:
        groups.append(entries.chosen(keys, values, local_window_size if groups else None))
    seen_keys = concat([g.keys for g in groups], 2)
    seen_values = concat([g.values for g in groups], 2)
    first = groups[0].keys.shape[2]

    def hidden(score: Scalar, token: Dim, head: Dim, i: Dim, place: Dim) -> Scalar:
        seen = groups[0].seen(token, place)
        if len(groups) > 1:
            later = groups[1].seen(token, place - first)
            seen = scalar.select(scalar.size(place) < scalar.size(first), seen, later)
        return scalar.select(seen, score, HIDDEN)

    result, scores, _ = attend(
        cast(unsqueeze(queries, (2,)), wide), seen_keys, seen_values, [hidden], scale,
        softcap=softcap, sink=head_sink,
    )  # fmt: skip
    best = reshape(scores.max(3), (tokens, heads))

    def without_nothing(token: Dim, head: Dim, i: Dim, d: Dim) -> Scalar:
        anything = scalar.load(best, (token, head)) > HIDDEN
        return scalar.select(anything, scalar.load(result, (token, head, i, d)), 0.0)

    found = compute(result.shape, without_nothing)
    flat = reshape(found, (tokens, heads * size))
    return cast(flat, query.dtype), keys, values


def _auxiliary(
    key: Tensor | None, value: Tensor | None, lengths: Tensor | None, shared: bool, pages: Pages,
    cache: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Keys, values (batch, capacity, heads or one, size), and how many there are, int32[batch]."""
    if key is None or lengths is None:
        what = "Entries of an auxiliary cache need auxiliary_key and auxiliary_lengths"
        raise InvalidGraph(message(_SPARSE, what))
    if (value is None) != shared:
        what = "auxiliary_value is there unless auxiliary_kv_shared is 1"
        raise InvalidGraph(message(_SPARSE, what))
    values = key if value is None else value
    batch, heads, size = pages.pasts.shape[0], cache.shape[2], cache.shape[3]
    for x, name in ((key, "auxiliary_key"), (values, "auxiliary_value")):
        if x.rank != 4:  # noqa: PLR2004 - as the docstring says
            what, got = f"{name} must have four axes", str(list(x.shape))
            raise InvalidGraph(message(_SPARSE, what, got=got))
        wanted = 1 if integer.known_equal(x.shape[2], 1) else heads
        assume_shape(x.shape, (batch, key.shape[1], wanted, size), _SPARSE, name)
    assume_shape(lengths.shape, (batch,), _SPARSE, "auxiliary_lengths")
    return key, values, ranged(lengths, "auxiliary_lengths", 0, key.shape[1])


@dataclass(frozen=True, slots=True)
class _Group:
    """Some places that tokens may see.

    Attributes:
        keys: (tokens, heads, places, size).
        values: As many as keys.
        seen: Whether a token sees a place.
    """

    keys: Tensor
    values: Tensor
    seen: Callable[[Dim, Dim], Scalar]


@dataclass(frozen=True, slots=True)
class _Entries:
    """Which places are selected for tokens.

    Attributes:
        pages: Where tokens and keys are.
        selected: Places, int32[tokens, entries].
        counts: How many of them count, int32[tokens].
        causal: Whether places after a token are hidden.
        codes: How the main caches hold keys, and values.
        wide: The type of keys and values to compute with.
    """

    pages: Pages
    selected: Tensor
    counts: Tensor
    causal: bool
    codes: tuple[CacheCodes, CacheCodes]
    wide: DType

    def near(self, keys: Tensor, values: Tensor, window: int) -> _Group:
        """The places of a token's own sequence, or the last `window` of them up to it."""
        capacity = self.pages.table.shape[1] * self.pages.block

        def seen(token: Dim, at: Dim) -> Scalar:
            return self._within(token, scalar.size(at), window)

        return self._paged(keys, values, capacity, lambda token, at: scalar.size(at), seen)

    def chosen(self, keys: Tensor, values: Tensor, window: int | None) -> _Group:
        """Selected places of the main caches, but for those that `near` has with a window."""

        def seen(token: Dim, entry: Dim) -> Scalar:
            place = self._place(token, entry)
            found = self._counted(token, entry) & self._within(token, place, -1)
            return found if window is None else found & ~self._within(token, place, window)

        return self._paged(keys, values, self.selected.shape[1], self._place, seen)

    def beside(self, keys: Tensor, values: Tensor, lengths: Tensor, heads: Dim) -> _Group:
        """Selected rows of auxiliary caches (batch, capacity, heads or one, size), of all heads."""
        pages, capacity = self.pages, keys.shape[1]

        def seen(token: Dim, entry: Dim) -> Scalar:
            place = self._place(token, entry)
            length = scalar.cast(scalar.load(lengths, (pages.request(token),)), INT64)
            there = (place >= 0) & (place < length) & (place < scalar.size(capacity))
            return self._counted(token, entry) & there

        def read(cache: Tensor) -> Tensor:
            def body(token: Dim, head: Dim, entry: Dim, d: Dim) -> Scalar:
                row = row_of(self._place(token, entry), capacity)
                mine = 0 if cache.shape[2] == 1 else head
                value = scalar.load(cache, (pages.request(token), row, mine, d))
                return scalar.select(seen(token, entry), value, 0.0)

            tokens, count = self.selected.shape
            return compute((tokens, heads, count, cache.shape[3]), body)

        return _Group(cast(read(keys), self.wide), cast(read(values), self.wide), seen)

    def _place(self, token: Dim, entry: Dim) -> Scalar:
        return scalar.cast(scalar.load(self.selected, (token, entry)), INT64)

    def _counted(self, token: Dim, entry: Dim) -> Scalar:
        count = scalar.cast(scalar.load(self.counts, (token,)), INT64)
        return scalar.size(entry) < count

    def _within(self, token: Dim, place: Scalar, window: int) -> Scalar:
        """Whether a place is one of the token's sequence that it may see, and in some block."""
        here = self.pages.position(token)
        seen = (place >= 0) & (place < self.pages.length(token))
        if self.causal:
            seen = seen & (place <= here)
        if window > 0:
            seen = seen & (place > here - window)
        column, _, page = self._block(token, place)
        mapped = (page >= 0) & (page < scalar.size(self.pages.blocks))
        return seen & (column < scalar.size(self.pages.table.shape[1])) & mapped

    def _block(self, token: Dim, place: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """Of a place: the column of the table, where in its block it is, and the block."""
        pages, size = self.pages, scalar.size(self.pages.block)
        inside = scalar.binary("max", place, 0)
        column, rest = (scalar.binary(name, inside, size) for name in ("div", "rem"))
        at = row_of(column, pages.table.shape[1])
        page = scalar.cast(scalar.load(pages.table, (pages.request(token), at)), INT64)
        return column, rest, page

    def _paged(
        self, keys: Tensor, values: Tensor, count: Dim, place: Callable[[Dim, Dim], Scalar],
        seen: Callable[[Dim, Dim], Scalar],
    ) -> _Group:  # fmt: skip
        """Places of the main caches (blocks, block, heads, size), zeros where they are not seen."""
        pages = self.pages

        def read(cache: Tensor) -> Tensor:
            def body(token: Dim, head: Dim, at: Dim, d: Dim) -> Scalar:
                _, rest, page = self._block(token, place(token, at))
                where = row_of(page, pages.blocks), scalar.as_index(rest, pages.block)
                value = scalar.load(cache, (*where, head, d))
                return scalar.select(seen(token, at), value, 0)

            return compute((self.selected.shape[0], cache.shape[2], count, cache.shape[3]), body)

        first, second = self.codes
        return _Group(first.read(read(keys), self.wide), second.read(read(values), self.wide), seen)
