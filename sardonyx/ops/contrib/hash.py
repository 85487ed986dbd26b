"""Hashes of onnxruntime's own domain: of numbers, and of runs of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import dtypes, integer
from sardonyx.base.dtypes import INT32, INT64, STRING, UINT32, UINT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.varlen import requests_of, row_of, sound_starts, start_of
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.tensor import scalar
from sardonyx.tensor.host import Result, host_call
from sardonyx.tensor.language import Tensor, assume_at_most, assume_shape, cast, compute
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"
_MURMUR, _NGRAMS, _PACKED = "MurmurHash3", "NGramHashMapping", "VarlenNGramHashMapping"
_MOST_UPDATES = 8

# -- MurmurHash3_x86_32 (Austin Appleby, public domain) ---------------------------------------

_C1, _C2, _MORE, _ADDED = 0xCC9E2D51, 0x1B873593, 5, 0xE6546B64
_FINAL = (16, 0x85EBCA6B), (13, 0xC2B2AE35)


def _rotated(x: Scalar, bits: int) -> Scalar:
    return scalar.binary("shl", x, bits) | scalar.binary("shr", x, 32 - bits)


def _xor(a: Scalar, b: Scalar) -> Scalar:
    return scalar.binary("xor", a, b)


@op(_MURMUR, 1, domain=DOMAIN, flags=("strings",))
def murmur_hash3(x: Tensor, *, positive: int = 1, seed: int = 0) -> Tensor:
    """The hash of the bytes of each number, or text in UTF-8, in 32 bits."""
    if x.dtype is STRING:
        result = Result(UINT32, x.shape)
        (hashed,) = host_call("hashing.murmur", [x], [result], seed=seed & 0xFFFFFFFF)
        return hashed if positive else cast(hashed, INT32)
    words = x.dtype.bits // 32
    wide = UINT64 if words > 1 else UINT32

    def body(*at: Dim) -> Scalar:
        value = scalar.load(x, at)
        whole = scalar.bitcast(value, wide) if x.dtype.is_float else scalar.cast(value, wide)
        found = scalar.constant(seed & 0xFFFFFFFF, UINT32)
        for k in range(words):
            part = scalar.cast(scalar.binary("shr", whole, 32 * k) if k else whole, UINT32)
            mixed = _rotated(part * _C1, 15) * _C2
            found = _rotated(_xor(found, mixed), 13) * _MORE + _ADDED
        found = _xor(found, scalar.constant(4 * words, UINT32))
        for shift, factor in _FINAL:
            found = _xor(found, scalar.binary("shr", found, shift)) * factor
        return _xor(found, scalar.binary("shr", found, 16))

    found = compute(x.shape, body, UINT32)
    return found if positive else cast(found, INT32)


# -- NGramHashMapping -------------------------------------------------------------------------


@op(_NGRAMS, 1, domain=DOMAIN)
def n_gram_hash_mapping(
    ids: Tensor,
    multipliers: Tensor,
    vocab_sizes: Tensor,
    past_ids: Tensor | None = None,
    head_offsets: Tensor | None = None,
    eos_token_id: Tensor | None = None,
    segment_ids: Tensor | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
) -> tuple[Tensor, Tensor]:
    """For each token of (B, S), and each length of runs that end there, some hashes of the run.

    hash = (id_0 * m_0 xor id_1 * m_1 xor ...) mod the size of the head's table, + its offset.
    """
    where = _NGRAMS
    if ids.rank != 2 or max_ngram_size < 2 or n_head_per_ngram < 1:  # noqa: PLR2004 - (B, S)
        what = "It needs ids of two axes, runs of at least two tokens, and heads"
        raise InvalidGraph(message(where, what))
    (batch, length), behind = ids.shape, max_ngram_size - 1
    heads = behind * n_head_per_ngram
    assume_shape(vocab_sizes.shape, (heads,), where, "vocab_sizes")
    if head_offsets is not None:
        assume_shape(head_offsets.shape, (heads,), where, "head_offsets")
    if past_ids is not None:
        assume_shape(past_ids.shape, (batch, behind), where, "past_ids")
    if segment_ids is not None:
        assume_shape(segment_ids.shape, ids.shape, where, "segment_ids")
    missing = _missing(where, ids, pad_id, eos_token_id)
    resets = bool(reset_on_eos) and eos_token_id is not None

    def history(b: Dim, place: Dim) -> Scalar:
        """The id at a place, counted from the first of the past."""
        old = missing if past_ids is None else scalar.load(past_ids, (b, place))
        new = scalar.load(ids, (b, place - behind))
        return scalar.select(scalar.size(place) < behind, old, new)

    def parted(b: Dim, at: Dim) -> Scalar:
        """Whether a token is of another segment than the one before."""
        if segment_ids is None:
            return scalar.constant(False, dtypes.BOOL)
        mine, before = (scalar.load(segment_ids, (b, integer.maximum(at - n, 0))) for n in (0, 1))
        # Between the past and the first token there is no boundary.
        return scalar.compare("ne", mine, before) & (scalar.size(at) >= 1)

    def run(b: Dim, token: Dim) -> list[_Before]:
        return [
            _Before(
                history(b, token + (behind - shift)),
                parted(b, token + (1 - shift)) if shift else None,
            )
            for shift in range(max_ngram_size)
        ]

    def hashed(b: Dim, token: Dim, head: Dim) -> Scalar:
        mixes = _mixes(run(b, token), multipliers, missing, resets)
        return _hash(mixes, head, n_head_per_ngram, vocab_sizes, head_offsets)

    result = compute((batch, length, heads), hashed)

    def present(b: Dim, place: Dim) -> Scalar:
        return history(b, place + length)

    return result, compute((batch, behind), present)


@dataclass(frozen=True, slots=True)
class _Before:
    """A token of a run, and whether another segment begins behind it (None: it is the last)."""

    token: Scalar
    parted: Scalar | None


def _missing(where: str, ids: Tensor, pad_id: int, eos_token_id: Tensor | None) -> Scalar:
    """What stands for tokens that are not there."""
    if eos_token_id is None:
        return scalar.constant(pad_id, ids.dtype)
    return scalar.load(scalar_of(eos_token_id, where), ())


def _mixes(
    run: Sequence[_Before], multipliers: Tensor, missing: Scalar, resets: bool
) -> list[Scalar]:
    """Mixed numbers of runs of two tokens, of three and so on, from the last token backwards."""
    whole = run[0].token * scalar.load(multipliers, (0,))
    seen = scalar.constant(True, dtypes.BOOL)
    found = []
    for shift, before in enumerate(run[1:], 1):
        if resets:
            seen = seen & ~scalar.compare("eq", before.token, missing)
        if before.parted is not None:
            seen = seen & ~before.parted
        used = scalar.select(seen, before.token, missing)
        whole = _xor(whole, used * scalar.load(multipliers, (shift,)))
        found.append(whole)
    return found


def _hash(
    mixes: Sequence[Scalar], head: Dim, each: int, vocab_sizes: Tensor, offsets: Tensor | None
) -> Scalar:
    """The place of a run in a head's table; `each` heads have runs of one length."""
    found = mixes[0]
    for number, mix in enumerate(mixes[1:], 1):
        found = scalar.select(scalar.size(head) >= number * each, mix, found)
    size = scalar.load(vocab_sizes, (head,))
    rest = scalar.binary("rem", found, size)
    # The remainder of a negative number is counted up, as a place in a table.
    rest = scalar.select(rest < 0, rest + size, rest)
    return rest if offsets is None else rest + scalar.load(offsets, (head,))


# -- VarlenNGramHashMapping -------------------------------------------------------------------


@op(_PACKED, 1, domain=DOMAIN)
def varlen_n_gram_hash_mapping(
    ids: Tensor,
    multipliers: Tensor,
    vocab_sizes: Tensor,
    starts: Tensor,
    past_ids: Tensor | None = None,
    head_offsets: Tensor | None = None,
    eos_token_id: Tensor | None = None,
    segment_ids: Tensor | None = None,
    past_segment_ids: Tensor | None = None,
    capture_count: Tensor | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    state_update_capacity: int = 0,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """NGramHashMapping of packed tokens (T); request b has those from starts[b] to starts[b + 1].

    What is not known of a past is `pad_id`, or `eos_token_id`; segments go on into such a past.
    """
    where = _PACKED
    if ids.rank != 1 or starts.rank != 1 or max_ngram_size < 2 or n_head_per_ngram < 1:  # noqa: PLR2004 - a run
        what = "It needs ids and offsets of one axis, runs of at least two tokens, and heads"
        raise InvalidGraph(message(where, what))
    if not 0 <= state_update_capacity <= _MOST_UPDATES or bool(state_update_capacity) != (
        capture_count is not None
    ):
        what = "capture_count goes with a state_update_capacity of 1 to 8"
        raise InvalidGraph(message(where, what, got=str(state_update_capacity)))
    if past_segment_ids is not None and segment_ids is None:
        raise InvalidGraph(message(where, "It has past_segment_ids, but no segment_ids"))
    (tokens,), behind = ids.shape, max_ngram_size - 1
    batch, heads = starts.shape[0] - 1, behind * n_head_per_ngram
    for x, wanted, name in (
        (vocab_sizes, (heads,), "vocab_sizes"), (head_offsets, (heads,), "head_offsets"),
        (past_ids, (batch, behind), "past_ids"), (segment_ids, (tokens,), "segment_ids"),
        (past_segment_ids, (batch, behind), "past_segment_ids"),
        (capture_count, (batch,), "capture_count"),
    ):  # fmt: skip
        if x is not None:
            assume_shape(x.shape, wanted, where, name)
    assume_at_most(max_ngram_size, multipliers.shape[0], where, "Each token needs a multiplier")
    missing = _missing(where, ids, pad_id, eos_token_id)
    starts = sound_starts(starts, tokens)
    requests = requests_of(starts, tokens)

    def at(old: Tensor | None, new: Tensor, other: Scalar, request: Dim, local: Scalar) -> Scalar:
        """What belongs to a place of a request, counted from its first new token."""
        place = start_of(starts, request) + local
        given = scalar.load(new, (row_of(place, tokens),))
        past = other
        if old is not None:
            past = scalar.load(old, (request, row_of(local + behind, behind)))
        return scalar.select(local >= 0, given, past)

    def token_at(request: Dim, local: Scalar) -> Scalar:
        return at(past_ids, ids, missing, request, local)

    def segment_at(request: Dim, local: Scalar) -> Scalar:
        first = scalar.load(segment_ids, (row_of(start_of(starts, request), tokens),))  # type: ignore[arg-type]  # the callers have looked
        return at(past_segment_ids, segment_ids, first, request, local)  # type: ignore[arg-type]

    def run(token: Dim) -> list[_Before]:
        request = scalar.as_index(scalar.load(requests, (token,)), batch)
        local = scalar.size(token) - start_of(starts, request)
        found = []
        for shift in range(max_ngram_size):
            parted = None
            if shift and segment_ids is not None:
                mine, before = (segment_at(request, local - n) for n in (shift - 1, shift))
                parted = scalar.compare("ne", mine, before)
            found.append(_Before(token_at(request, local - shift), parted))
        return found

    def hashed(token: Dim, head: Dim) -> Scalar:
        mixes = _mixes(run(token), multipliers, missing, resets)
        return _hash(mixes, head, n_head_per_ngram, vocab_sizes, head_offsets)

    resets = bool(reset_on_eos) and eos_token_id is not None
    result = compute((tokens, heads), hashed)

    def length(b: Dim) -> Scalar:
        return start_of(starts, b + 1) - start_of(starts, b)

    def last(value: Callable[[Dim, Scalar], Scalar]) -> Tensor:
        """Those of the last places of each request."""
        shape = (batch, behind)
        return compute(shape, lambda b, k: value(b, length(b) + scalar.size(k) - behind))

    segments = None if segment_ids is None else last(segment_at)
    updates = None
    if capture_count is not None:
        counts = cast(capture_count, INT64)

        def captured(b: Dim, slot: Dim, k: Dim) -> Scalar:
            most = scalar.binary("min", scalar.load(counts, (b,)), length(b))
            there = scalar.size(slot) < most
            local = scalar.size(slot + k + (1 - behind))
            return scalar.select(there, token_at(b, local), scalar.constant(pad_id, ids.dtype))

        updates = compute((batch, state_update_capacity, behind), captured)
    return result, last(token_at), segments, updates
