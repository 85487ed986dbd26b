"""Hashes of onnxruntime's domain against NumPy, and against it if it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph, RuntimeException
from tests.support.contrib import check_contrib, contrib_model

RANDOM = np.random.default_rng(5)
Array = Any


#: Input, seed, positive, result: scikit-learn's and onnxruntime's.
@pytest.mark.parametrize(
    "x, facts, expected",
    [
        (np.array([3], np.int32), {}, np.array([847579505], np.uint32)),
        (np.array([3, 4], np.int32), {"positive": 0}, np.array([847579505, 1889779975], np.int32)),
    ],
)
def test_murmur_hash_known(x: Array, facts: dict[str, int], expected: Array) -> None:
    check_contrib("MurmurHash3", [x], facts, [expected])


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64, np.float32, float])
@pytest.mark.parametrize("facts", [{}, {"seed": 77, "positive": 0}], ids=str)
def test_murmur_hash(dtype: type, facts: dict[str, int]) -> None:
    x = (RANDOM.standard_normal((3, 4)) * 1e4).astype(dtype)
    check_contrib("MurmurHash3", [x], facts, [_murmur(x, **facts)])


def test_murmur_hash_of_strings() -> None:
    texts = ["", "a", "ab", "abc", "four", "a longer text", "Grüße", "日本語"]
    x = np.array(texts, object).reshape(2, 4)
    expected = _murmur(x, 9, 0)
    model = contrib_model(
        "MurmurHash3", [np.zeros((2, 4), np.int32)], {"seed": 9, "positive": 0}, 1
    )
    model.graph.input[0].type.tensor_type.elem_type = 8
    (got,) = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x0": x})
    np.testing.assert_array_equal(got, expected)
    try:
        import onnxruntime
    except ImportError:
        return
    onnxruntime.set_default_logger_severity(4)
    (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": x})
    np.testing.assert_array_equal(got, theirs)


def _murmur(x: Array, seed: int = 0, positive: int = 1) -> Array:
    """MurmurHash3_x86_32 of every element, with Python's whole numbers."""
    mask = 0xFFFFFFFF
    found = []
    for element in x.reshape(-1):
        data = element.encode() if isinstance(element, str) else element.tobytes()
        whole, h = len(data) // 4, seed
        for word in np.frombuffer(data[: 4 * whole], "<u4").tolist():
            k = word * 0xCC9E2D51 & mask
            k = (k << 15 | k >> 17) & mask
            h ^= k * 0x1B873593 & mask
            h = (h << 13 | h >> 19) & mask
            h = (h * 5 + 0xE6546B64) & mask
        rest = int.from_bytes(data[4 * whole :], "little")
        if rest:
            k = rest * 0xCC9E2D51 & mask
            h ^= ((k << 15 | k >> 17) & mask) * 0x1B873593 & mask
        h ^= len(data)
        h = (h ^ h >> 16) * 0x85EBCA6B & mask
        h = (h ^ h >> 13) * 0xC2B2AE35 & mask
        found.append(h ^ h >> 16)
    hashed = np.array(found, np.uint32).reshape(x.shape)
    return hashed if positive else hashed.view(np.int32)


# -- NGramHashMapping -------------------------------------------------------------------------

SIZES = np.array([7, 11, 13, 17])
MULTIPLIERS = np.array([3, 1000003, 9176])
OFFSETS = np.array([0, 7, 18, 31])


def _hashed(
    ids: Array, past: Array | None, offsets: Array | None, eos: int | None, segments: Array | None,
    reset: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """By loops over what the schema says: runs of 2 and 3 tokens, two heads each."""
    missing = 0 if eos is None else eos
    before = np.full((len(ids), 2), missing) if past is None else past
    whole = np.concatenate([before, ids], 1)
    result = np.zeros((*ids.shape, 4), ids.dtype)
    for b, t in np.ndindex(*ids.shape):
        shifted, cut = [ids[b, t]], False
        for shift in (1, 2):
            if segments is not None and t - shift + 1 >= 1:
                cut |= segments[b, t - shift + 1] != segments[b, t - shift]
            value = whole[b, t + 2 - shift]
            cut |= bool(reset and eos is not None and value == eos)
            shifted.append(missing if cut else value)
        for head in range(4):
            count = 2 + head // 2
            mix = ids.dtype.type(0)
            for value, factor in zip(shifted[:count], MULTIPLIERS, strict=False):
                mix ^= ids.dtype.type(value) * ids.dtype.type(factor)
            result[b, t, head] = mix % SIZES[head] + (0 if offsets is None else offsets[head])
    return result, whole[:, -2:]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "past, offsets, eos, segments, reset",
    [
        (False, False, None, False, False),
        (True, True, None, False, False),
        (True, False, 2, False, True),
        (False, True, 2, True, True),
        (False, False, None, True, False),
    ],
)
def test_n_gram_hash_mapping(
    dtype: type, past: bool, offsets: bool, eos: int | None, segments: bool, reset: bool
) -> None:
    ids = RANDOM.integers(0, 5, (2, 6)).astype(dtype)
    before = RANDOM.integers(0, 5, (2, 2)).astype(dtype) if past else None
    parts = np.sort(RANDOM.integers(0, 3, (2, 6)), 1).astype(np.int32) if segments else None
    shifts = OFFSETS.astype(dtype) if offsets else None
    expected = _hashed(ids, before, shifts, eos, parts, reset)
    token = None if eos is None else np.array(eos, dtype)
    inputs = [ids, MULTIPLIERS.astype(dtype), SIZES.astype(dtype), before, shifts, token, parts]
    while inputs[-1] is None:
        inputs.pop()
    facts = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0, "reset_on_eos": int(reset)}
    check_contrib("NGramHashMapping", inputs, facts, expected, symbolic=False)


def test_one_step_after_the_other_gives_the_same() -> None:
    ids = RANDOM.integers(0, 5, (1, 6))
    every, _ = _hashed(ids, None, None, None, None, False)
    facts = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0}
    inputs = [ids[:, 4:5], MULTIPLIERS, SIZES, ids[:, 2:4]]
    check_contrib("NGramHashMapping", inputs, facts, [every[:, 4:5], ids[:, 3:5]], symbolic=False)


def test_bad_heads_are_refused() -> None:
    facts = {"max_ngram_size": 3, "n_head_per_ngram": 3, "pad_id": 0}
    inputs = [np.zeros((1, 2), np.int64), MULTIPLIERS, SIZES]
    with pytest.raises(InvalidGraph, match="vocab_sizes"):
        check_contrib("NGramHashMapping", inputs, facts, [None, None], symbolic=False)


# -- VarlenNGramHashMapping -------------------------------------------------------------------

_PACKED = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0}


def _packed(
    ids: Array, starts: Array, past: Array | None, offsets: Array | None, eos: int | None,
    segments: Array | None, past_segments: Array | None, reset: bool, counts: Array | None,
    capacity: int,
) -> list[Array]:  # fmt: skip
    """Request by request: NGramHashMapping of its tokens behind its own past."""
    missing = 0 if eos is None else eos
    rows, ends, parts = [], [], []
    updates = np.zeros((len(starts) - 1, capacity, 2), ids.dtype)
    for b, (first, last) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        own = ids[first:last]
        before = np.full(2, missing, ids.dtype) if past is None else past[b]
        whole = np.concatenate([before, own])
        marks = np.zeros(len(whole), np.int32)
        if segments is not None:
            old = np.full(2, segments[first]) if past_segments is None else past_segments[b]
            marks = np.concatenate([old, segments[first:last]])
        for t in range(2, len(whole)):
            run, cut = [whole[t]], False
            for shift in (1, 2):
                cut |= bool(marks[t - shift] != marks[t - shift + 1])
                cut |= bool(reset and eos is not None and whole[t - shift] == eos)
                run.append(ids.dtype.type(missing) if cut else whole[t - shift])
            row = []
            for head in range(4):
                mix = ids.dtype.type(0)
                for value, factor in zip(run[: 2 + head // 2], MULTIPLIERS, strict=False):
                    mix ^= value * ids.dtype.type(factor)
                row.append(mix % SIZES[head] + (0 if offsets is None else offsets[head]))
            rows.append(row)
        ends.append(whole[-2:])
        parts.append(marks[-2:])
        for k in range(0 if counts is None else min(counts[b], capacity, last - first)):
            updates[b, k] = whole[k + 1 : k + 3]
    return [np.array(rows, ids.dtype), np.array(ends), np.array(parts), updates]


@pytest.mark.parametrize(
    "dtype, lengths",
    [(np.int64, [1]), (np.int64, [4, 1, 7]), (np.int32, [2, 3])],
    ids=str,
)
@pytest.mark.parametrize(
    "past, offsets, eos, segments, past_segments, reset, capacity",
    [
        (False, False, None, False, False, False, 0),
        (True, True, None, False, False, False, 0),
        (True, False, 2, False, False, True, 0),
        (True, False, 2, True, False, True, 3),
        (True, True, None, True, True, False, 2),
        (False, False, 3, True, True, False, 8),
    ],
)
def test_packed_n_gram_hash_mapping(
    dtype: type, lengths: list[int], past: bool, offsets: bool, eos: int | None, segments: bool,
    past_segments: bool, reset: bool, capacity: int,
) -> None:  # fmt: skip
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    batch, count = len(lengths), int(starts[-1])
    ids = RANDOM.integers(-2, 5, count).astype(dtype)
    before = RANDOM.integers(0, 5, (batch, 2)).astype(dtype) if past else None
    marks = RANDOM.integers(0, 2, count).astype(np.int32) if segments else None
    old = RANDOM.integers(0, 2, (batch, 2)).astype(np.int32) if past_segments else None
    counts = RANDOM.integers(-1, 9, batch).astype(np.int32) if capacity else None
    shifts = OFFSETS.astype(dtype) if offsets else None
    with np.errstate(over="ignore"):
        expected = _packed(ids, starts, before, shifts, eos, marks, old, reset, counts, capacity)
    expected = expected[: 4 if capacity and segments else 3 if segments else 2]
    token = None if eos is None else np.array(eos, dtype)
    inputs = [ids, MULTIPLIERS.astype(dtype), SIZES.astype(dtype), starts, before, shifts, token]
    inputs += [marks, old, counts]
    while inputs[-1] is None:
        inputs.pop()
    facts = {**_PACKED, "reset_on_eos": int(reset), "state_update_capacity": capacity}
    check_contrib("VarlenNGramHashMapping", inputs, facts, expected)


def test_no_packed_tokens() -> None:
    inputs = [np.zeros(0, np.int64), MULTIPLIERS, SIZES, np.zeros(1, np.int32)]
    expected = [np.zeros((0, 4)), np.zeros((0, 2))]
    check_contrib("VarlenNGramHashMapping", inputs, _PACKED, expected, engine=False)


def test_packed_chunks_give_the_same() -> None:
    ids = RANDOM.integers(0, 5, 9)
    every, last, _, _ = _packed(ids, np.array([0, 9]), *(None,) * 5, False, None, 0)
    inputs = [ids[4:9], MULTIPLIERS, SIZES, np.array([0, 5], np.int32), ids[None, 2:4]]
    check_contrib("VarlenNGramHashMapping", inputs, _PACKED, [every[4:], last])


@pytest.mark.parametrize(
    "changed, facts, text",
    [
        ({}, {"n_head_per_ngram": 3}, "vocab_sizes"),
        ({}, {"max_ngram_size": 1}, "at least two tokens"),
        ({}, {"state_update_capacity": 2}, "capture_count goes with"),
        ({}, {"state_update_capacity": 9}, "capture_count goes with"),
        ({1: MULTIPLIERS[:2]}, {}, "needs a multiplier"),
        ({4: np.zeros((2, 2), np.int64)}, {}, "past_ids"),
        ({8: np.zeros((1, 2), np.int32)}, {}, "no segment_ids"),
        ({7: np.zeros(4, np.int32)}, {}, "segment_ids"),
        ({0: np.zeros((1, 5), np.int64)}, {}, "offsets of one axis"),
    ],
)
def test_bad_packed_graphs(changed: dict[int, Array], facts: dict[str, int], text: str) -> None:
    inputs = [np.zeros(5, np.int64), MULTIPLIERS, SIZES, np.array([0, 5], np.int32), *(None,) * 5]
    for place, array in changed.items():
        inputs[place] = array
    model = contrib_model("VarlenNGramHashMapping", inputs, {**_PACKED, **facts}, 2)
    with pytest.raises(InvalidGraph, match=f"node it .VarlenNGramHashMapping.*{text}"):
        sardonyx.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize(
    ("starts", "text"),
    [
        ([1, 5], "0 to 0, got 1"),
        ([0, 4], "5 to 5, got 4"),
        ([0, 9], "5 to 5, got 9"),
        ([0, 3, 3, 5], "4 to 5, got 3"),
        ([0, 4, 2, 5], "5 to 5, got 2"),
        ([0, -1, 5], "1 to 5, got -1"),
    ],
)
def test_offsets_that_cannot_be_are_refused(starts: list[int], text: str) -> None:
    inputs = [np.arange(5), MULTIPLIERS, SIZES, np.array(starts, np.int32)]
    model = contrib_model("VarlenNGramHashMapping", inputs, _PACKED, 2)
    session = sardonyx.InferenceSession(model.SerializeToString())
    with pytest.raises(
        RuntimeException,
        match=f"node it. cumulative_sequence_length is out of range. Expected {text}",
    ):
        session.run(None, {f"x{k}": x for k, x in enumerate(inputs)})


def test_a_vocabulary_without_words_is_refused() -> None:
    inputs = [np.arange(5), MULTIPLIERS, SIZES * 0, np.array([0, 5], np.int32)]
    model = contrib_model("VarlenNGramHashMapping", inputs, _PACKED, 2)
    session = sardonyx.InferenceSession(model.SerializeToString())
    with pytest.raises(RuntimeException, match="node it. integer division by zero"):
        session.run(None, {f"x{k}": x for k, x in enumerate(inputs)})
