"""Hashes of onnxruntime's own domain: of numbers, and of runs of tokens."""

from __future__ import annotations

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.dtypes import INT32, STRING, UINT32, UINT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.registry import op
from sardonyx.ops.scalars import scalar_of
from sardonyx.tensor import scalar
from sardonyx.tensor.host import Result, host_call
from sardonyx.tensor.language import Tensor, assume_shape, cast, compute
from sardonyx.tensor.scalar import Scalar

DOMAIN = "com.microsoft"
_MURMUR, _NGRAMS = "MurmurHash3", "NGramHashMapping"

# -- MurmurHash3_x86_32 (Austin Appleby, public domain) ---------------------------------------

_C1, _C2, _MORE, _ADDED = 0xCC9E2D51, 0x1B873593, 5, 0xE6546B64
_FINAL = (16, 0x85EBCA6B), (13, 0xC2B2AE35)


def _turned(x: Scalar, bits: int) -> Scalar:
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
            mixed = _turned(part * _C1, 15) * _C2
            found = _turned(_xor(found, mixed), 13) * _MORE + _ADDED
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
    missing = scalar.constant(pad_id, ids.dtype)
    if eos_token_id is not None:
        missing = scalar.load(scalar_of(eos_token_id, where), ())

    def history(b: Dim, place: Dim) -> Scalar:
        """The id at a place, counted from the first of the past."""
        old = missing if past_ids is None else scalar.load(past_ids, (b, place))
        new = scalar.load(ids, (b, sizes.add(place, -behind)))
        return scalar.select(scalar.size(place) < behind, old, new)

    def seen(b: Dim, token: Dim, shift: int) -> Scalar:
        """Whether the token `shift` before belongs to the run."""
        found = scalar.constant(True, dtypes.BOOL)
        here = sizes.add(token, behind)
        if reset_on_eos and eos_token_id is not None:
            for k in range(1, shift + 1):
                ended = scalar.compare("eq", history(b, sizes.add(here, -k)), missing)
                found = found & ~ended
        if segment_ids is not None:
            for k in range(shift):
                at = sizes.add(token, -k)
                mine, before = (
                    scalar.load(segment_ids, (b, integer.maximum(sizes.add(at, -n), 0)))
                    for n in (0, 1)
                )
                # Between the past and the first token there is no boundary.
                same = scalar.compare("eq", mine, before) | (scalar.size(at) < 1)
                found = found & same
        return found

    def mixed(b: Dim, token: Dim, count: int) -> Scalar:
        whole = scalar.load(ids, (b, token)) * scalar.load(multipliers, (0,))
        for shift in range(1, count):
            given = history(b, sizes.add(token, behind - shift))
            used = scalar.select(seen(b, token, shift), given, missing)
            whole = _xor(whole, used * scalar.load(multipliers, (shift,)))
        return whole

    def hashed(b: Dim, token: Dim, head: Dim) -> Scalar:
        found = mixed(b, token, 2)
        for count in range(3, max_ngram_size + 1):
            longer = scalar.size(head) >= (count - 2) * n_head_per_ngram
            found = scalar.select(longer, mixed(b, token, count), found)
        size = scalar.load(vocab_sizes, (head,))
        rest = scalar.binary("rem", found, size)
        # The remainder of a negative number is counted up, as a place in a table.
        rest = scalar.select(rest < 0, rest + size, rest)
        return rest if head_offsets is None else rest + scalar.load(head_offsets, (head,))

    result = compute((batch, length, heads), hashed)

    def present(b: Dim, place: Dim) -> Scalar:
        return history(b, sizes.add(place, length))

    return result, compute((batch, behind), present)
