"""Attention of decoders against NumPy in double, and against onnxruntime."""

import numpy as np
import pytest

from tests.ops.contrib.test_attention import heads, merged, scores_of, weighted
from tests.support.contrib import check_contrib

RNG = np.random.default_rng(91)
BATCH, HEADS, SIZE, ROOM = 4, 2, 16, 8
WIDTH = HEADS * SIZE
NAME = "DecoderMaskedMultiHeadAttention"


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def one(count):
    return np.array([count], np.int32)


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("masks", [False, True])
def test_a_step_in_a_buffer(beams, masks):
    before = 5
    q, k, v = (floats(BATCH, 1, WIDTH) for _ in range(3))
    past_k, past_v = floats(BATCH, HEADS, ROOM, SIZE), floats(BATCH, HEADS, ROOM, SIZE)
    bias = floats(3 * WIDTH)
    a, b, c = (heads(x + p, HEADS) for x, p in zip((q, k, v), np.split(bias, 3), strict=True))
    present = [past_k.astype(float), past_v.astype(float)]
    for cache, new in zip(present, (b, c), strict=True):
        cache[:, :, before : before + 1] = new
    indirection = RNG.integers(0, beams, (BATCH // beams, beams, ROOM)).astype(np.int32)
    used = []
    for cache in present:
        part = cache[:, :, : before + 1].copy()
        for row in range(BATCH):
            for place in range(before):
                beam = indirection[row // beams, row % beams, place]
                part[row, :, place] = cache[row // beams * beams + beam, :, place]
        used.append(part)
    scores = scores_of(a, used[0], 0.3)
    mask = extra = None
    if masks:
        mask = (RNG.integers(0, 3, (BATCH, before + 1)) > 0).astype(np.int32)
        extra = floats(1, HEADS, 1, before + 1)
        scores = scores + np.where(mask == 0, -10000.0, 0)[:, None, None] + extra
    caching = [one(beams), indirection] if beams > 1 else [None, None]
    inputs = [q, k, v, mask, extra, past_k, past_v, one(before), *caching, bias]
    facts = {"num_heads": HEADS, "past_present_share_buffer": 1, "scale": 0.3}
    expected = [merged(weighted(scores, used[1])), None, None]
    check_contrib(NAME, inputs, facts, expected, tolerance="float: layers")
    check_contrib(
        NAME, inputs, facts, [expected[0], *present], engine=False, tolerance="float: layers"
    )


def test_a_step_with_a_past_that_grows():
    q, k, v = (floats(BATCH, 1, WIDTH) for _ in range(3))
    past_k, past_v = floats(BATCH, HEADS, 5, SIZE), floats(BATCH, HEADS, 5, SIZE)
    keys = np.concatenate([past_k, heads(k, HEADS)], 2)
    values = np.concatenate([past_v, heads(v, HEADS)], 2)
    result = merged(weighted(scores_of(heads(q, HEADS), keys), values))
    packed = np.concatenate([q, k, v], 2)
    for given in ([q, k, v], [packed, None, None]):
        inputs = [*given, None, None, past_k, past_v]
        expected = [result, keys, values]
        check_contrib(
            NAME, inputs, {"num_heads": HEADS}, expected, engine=False, tolerance="float: layers"
        )


def test_a_step_of_cross_attention():
    q, k, v = floats(BATCH, 1, WIDTH), floats(BATCH, HEADS, 6, SIZE), floats(BATCH, HEADS, 6, SIZE)
    bias = np.concatenate([floats(WIDTH), np.zeros(2 * WIDTH, np.float32)])
    scores = scores_of(heads(q + bias[:WIDTH], HEADS), k)
    inputs = [q, k, v, *[None] * 7, bias]
    facts = {"num_heads": HEADS}
    check_contrib(NAME, inputs, facts, [merged(weighted(scores, v))], tolerance="float: layers")


LAYOUTS = np.array(
    [[[1, 0, 0], [1, 1, 0], [0, 1, 1]], [[1, 0, 0], [0, 1, 0], [1, 0, 1]]], bool
)  # fmt: skip
ROWS = np.array([[0, 1, 3, 5], [0, 1, 2, 4]], np.int32)
COLUMNS = np.array([[0, 0, 1, 1, 2], [0, 1, 0, 2, -1]], np.int32)
QUERIES, KEYS, BLOCK, LONGEST = 4, 2, 16, 48


@pytest.mark.parametrize(("length", "before"), [(40, 0), (1, 37)])
@pytest.mark.parametrize("packed", [False, True])
def test_sparse_attention(length, before, packed):
    batch, total = 2, length + before
    q = floats(batch, length, QUERIES * SIZE)
    k, v = floats(batch, length, KEYS * SIZE), floats(batch, length, KEYS * SIZE)
    past_k, past_v = floats(batch, KEYS, LONGEST, SIZE), floats(batch, KEYS, LONGEST, SIZE)
    keys, values = past_k.astype(float), past_v.astype(float)
    keys[:, :, before:total], values[:, :, before:total] = heads(k, KEYS), heads(v, KEYS)
    a = heads(q, QUERIES)
    result = np.zeros((batch, QUERIES, length, SIZE))
    for h in range(QUERIES):
        for i in range(length):
            here = before + i
            seen = [j for j in range(here + 1) if LAYOUTS[h % 2, here // BLOCK, j // BLOCK]]
            part = (slice(None), h // (QUERIES // KEYS), seen)
            scores = np.einsum("bd,bjd->bj", a[:, h, i], keys[part]) * SIZE**-0.5
            e = np.exp(scores - scores.max(-1, keepdims=True))
            e /= e.sum(-1, keepdims=True)
            result[:, h, i] = np.einsum("bj,bjd->bd", e, values[part])
    given = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    inputs = [*given, past_k, past_v, ROWS, COLUMNS, one(total), np.full(batch, total, np.int32)]
    facts = {"num_heads": QUERIES, "kv_num_heads": KEYS, "sparse_block_size": BLOCK}
    expected = [merged(result), keys, values]
    # onnxruntime wants past and present in one buffer.
    check_contrib(
        "SparseAttention", inputs, facts, expected, engine=False, tolerance="float: layers"
    )


def _ordered(keys, few):
    """(batch, heads, room, size) as it lies with the elements of `few` side by side."""
    batch, count, room, size = keys.shape
    split = keys.reshape(batch, count, room, size // few, few).transpose(0, 1, 3, 2, 4)
    return split.reshape(keys.shape)


@pytest.mark.parametrize("dtype, few", [(np.float32, 4), (np.float16, 8)])
@pytest.mark.parametrize("beams", [1, 2])
def test_a_step_of_self_attention_in_a_buffer(beams, dtype, few):
    before = 5
    x, weights, bias = floats(BATCH, 1, 12), floats(12, 3 * WIDTH) / 4, floats(3 * WIDTH)
    x, weights, bias = (t.astype(dtype) for t in (x, weights, bias))
    past = floats(2, BATCH, HEADS, ROOM, SIZE).astype(dtype)
    q, k, v = (heads(p, HEADS) for p in np.split(x.astype(float) @ weights + bias, 3, 2))
    keys, values = past.astype(float)
    keys[:, :, before : before + 1], values[:, :, before : before + 1] = k, v
    mask = (RNG.integers(0, 3, (BATCH, before + 1)) > 0).astype(np.int32)
    extra = floats(1, HEADS, 1, before + 1).astype(dtype)
    indirection = np.zeros((BATCH // beams, beams, ROOM), np.int32)
    rows = np.arange(BATCH) // beams * beams  # each place is from the first beam, but the newest
    used = [np.concatenate([t[rows][:, :, :before], new], 2) for t, new in ((keys, k), (values, v))]
    scores = scores_of(q, used[0]) + np.where(mask == 0, -10000.0, 0)[:, None, None] + extra
    given = np.stack([_ordered(past[0], few), past[1]])
    present = np.stack([_ordered(keys, few), values])
    caching = [one(beams), indirection] if beams > 1 else []
    inputs = [x, weights, bias, mask, given, extra, one(before), *caching]
    facts = {"num_heads": HEADS, "past_present_share_buffer": 1}
    check_contrib(
        "DecoderMaskedSelfAttention", inputs, facts, [merged(weighted(scores, used[1])), present],
        engine=False, 
        tolerance="half: gates" if dtype is np.float16 else "float: layers", symbolic=False,
    )  # fmt: skip


def test_a_step_of_self_attention_with_a_past_that_grows():
    x, weights, bias = floats(BATCH, 1, 12), floats(12, 3 * WIDTH) / 4, floats(3 * WIDTH)
    past = floats(2, BATCH, HEADS, 5, SIZE)
    q, k, v = (heads(p, HEADS) for p in np.split(x @ weights + bias, 3, 2))
    keys, values = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    result = merged(weighted(scores_of(q, keys), values))
    check_contrib(
        "DecoderMaskedSelfAttention", [x, weights, bias, None, past, None, one(5)],
        {"num_heads": HEADS}, [result, np.stack([keys, values])], engine=False,
        tolerance="float: layers", symbolic=False,
    )  # fmt: skip


@pytest.mark.parametrize("before, length", [(0, 3), (4, 2)])
def test_attention_in_a_buffer(before, length):
    x, weights, bias = floats(BATCH, length, 12), floats(12, 3 * WIDTH) / 4, floats(3 * WIDTH)
    past = floats(2, BATCH, HEADS, ROOM, SIZE)
    q, k, v = (heads(p, HEADS) for p in np.split(x @ weights + bias, 3, 2))
    present, total = past.astype(float), before + length
    present[0][:, :, before:total], present[1][:, :, before:total] = k, v
    scores = scores_of(q, present[0][:, :, :total])
    ahead = np.arange(total)[None] > before + np.arange(length)[:, None]
    result = merged(weighted(np.where(ahead, -np.inf, scores), present[1][:, :, :total]))
    inputs = [x, weights, bias, None, past, None, one(before)]
    facts = {"num_heads": HEADS, "past_present_share_buffer": 1, "unidirectional": 1}
    check_contrib("Attention", inputs, facts, [result, present], engine=False,
                  tolerance="float: layers", symbolic=False)  # fmt: skip
