"""onnxruntime's attention operators against NumPy in double, and against onnxruntime."""

import numpy as np
import pytest

from sardonyx.base.errors import NotImplemented
from tests.support.contrib import check_contrib

RNG = np.random.default_rng(31)
BATCH, HEADS, SIZE = 2, 3, 4
WIDTH = HEADS * SIZE


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def heads(x, count=HEADS):
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3).astype(np.float64)


def merged(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def scores_of(q, k, scale=None):
    return q @ k.swapaxes(2, 3) * (scale or q.shape[-1] ** -0.5)


def weighted(scores, v):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def hidden_above(scores, before=0):
    i, j = np.indices(scores.shape[-2:])
    return np.where(j <= i + before, scores, -np.inf)


PAIRS = RNG.integers(0, 2, (BATCH, 4, 5)).astype(np.int32)
MASKS = {
    "keys": np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], np.int32),
    "queries and keys": PAIRS | np.eye(4, 5, dtype=np.int32),
    "lengths": np.array([3, 5], np.int32),
}


def added(mask, count=5):
    """What a mask adds to scores."""
    if mask.ndim == 1:
        mask = np.arange(count) < mask[:, None]
    return np.where(mask == 0, -10000.0, 0.0).reshape(BATCH, 1, -1, count)


@pytest.mark.parametrize("mask", [None, *MASKS])
def test_masks_of_multi_head_attention(mask):
    q, k, v = floats(BATCH, 4, WIDTH), floats(BATCH, 5, WIDTH), floats(BATCH, 5, WIDTH)
    bias = floats(3 * WIDTH)
    given = None if mask is None else MASKS[mask]
    a, b, c = (heads(x + part) for x, part in zip((q, k, v), np.split(bias, 3), strict=True))
    scores = scores_of(a, b)
    if given is not None:
        scores = scores + added(given)
    inputs = [q, k, v, bias, given]
    check_contrib("MultiHeadAttention", inputs, {"num_heads": HEADS}, [merged(weighted(scores, c))])


def test_bias_past_and_order_of_multi_head_attention():
    q, k, v = (floats(BATCH, 3, WIDTH) for _ in range(3))
    past_k, past_v = floats(BATCH, HEADS, 2, SIZE), floats(BATCH, HEADS, 2, SIZE)
    bias = floats(1, HEADS, 3, 5)
    keys = np.concatenate([past_k, heads(k)], 2)
    values = np.concatenate([past_v, heads(v)], 2)
    scores = hidden_above(scores_of(heads(q), keys, 0.3) + bias, 2)
    check_contrib(
        "MultiHeadAttention",
        [q, k, v, None, None, bias, past_k, past_v],
        {"num_heads": HEADS, "unidirectional": 1, "scale": 0.3},
        [merged(weighted(scores, values)), keys, values],
    )


def test_packed_inputs_of_multi_head_attention():
    whole = floats(BATCH, 4, HEADS, 3, SIZE)
    q, k, v = (whole[:, :, :, n].transpose(0, 2, 1, 3).astype(float) for n in range(3))
    expected = merged(weighted(scores_of(q, k), v))
    facts = {"num_heads": HEADS}
    check_contrib("MultiHeadAttention", [whole], facts, [expected], engine=False)
    pair = np.ascontiguousarray(whole[:, :, :, 1:])
    flat = np.ascontiguousarray(whole[:, :, :, 0].reshape(BATCH, 4, WIDTH))
    check_contrib("MultiHeadAttention", [flat, pair], facts, [expected], engine=False)
    k32, v32 = k.astype(np.float32), v.astype(np.float32)
    check_contrib("MultiHeadAttention", [flat, k32, v32], facts, [expected])


@pytest.mark.parametrize("mask", [None, *MASKS, "ends and starts", "largest"])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention(mask, unidirectional):
    length = 4 if mask == "queries and keys" else 5
    x, w, bias = floats(BATCH, length, 6), floats(6, 3 * WIDTH), floats(3 * WIDTH)
    q, k, v = (heads(p) for p in np.split(x.astype(float) @ w + bias, 3, axis=2))
    scores = scores_of(q, k)
    given, engine = MASKS.get(mask), True
    if mask == "queries and keys":
        given = np.ascontiguousarray(given[:, :, :4])
        scores = scores + added(given, 4)
    elif mask == "ends and starts":
        given = np.array([4, 5, 1, 2], np.int32)
        place = np.arange(5)
        shown = (place < given[:2, None]) & (place >= given[2:, None])
        scores = scores + added(shown)
    elif mask == "largest":
        given = RNG.integers(0, 2, (BATCH, 1, 7, 7)).astype(np.int32) | np.eye(7, dtype=np.int32)
        scores = scores + np.where(given[:, :, :5, :5] == 0, -10000.0, 0.0)
        engine = False  # it adds no value, but hides
    elif given is not None:
        scores = scores + added(given)
    if unidirectional:
        if given is not None and mask in ("keys", "ends and starts"):
            return  # rows in which everything is hidden mean nothing
        scores = hidden_above(scores)
    facts = {"num_heads": HEADS, "unidirectional": unidirectional}
    expected = merged(weighted(scores, v))
    check_contrib(
        "Attention", [x, w, bias, given], facts, [expected], constants=[1, 2], engine=engine
    )


def test_attention_with_a_past_and_other_widths():
    x, w, bias = floats(BATCH, 3, 6), floats(6, 3 * WIDTH), floats(3 * WIDTH)
    past = floats(2, BATCH, HEADS, 2, SIZE)
    q, k, v = (heads(p) for p in np.split(x.astype(float) @ w + bias, 3, axis=2))
    keys, values = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    extra = floats(BATCH, HEADS, 3, 5)
    scores = hidden_above(scores_of(q, keys), 2) + extra
    check_contrib(
        "Attention",
        [x, w, bias, None, past, extra],
        {"num_heads": HEADS, "unidirectional": 1},
        [merged(weighted(scores, values)), np.stack([keys, values])],
        engine=False,  # it takes one of both
    )
    scores = hidden_above(scores_of(q, keys), 2)
    check_contrib(
        "Attention",
        [x, w, bias, None, past],
        {"num_heads": HEADS, "unidirectional": 1},
        [merged(weighted(scores, values)), np.stack([keys, values])],
    )
    w, bias = floats(6, 2 * WIDTH + 6), floats(2 * WIDTH + 6)
    q, k, v = (heads(p) for p in np.split(x.astype(float) @ w + bias, [WIDTH, 2 * WIDTH], axis=2))
    facts = {"num_heads": HEADS, "qkv_hidden_sizes": [WIDTH, WIDTH, 6]}
    check_contrib("Attention", [x, w, bias], facts, [merged(weighted(scores_of(q, k), v))])


def test_refusals():
    x, w = floats(BATCH, 3, 6), floats(6, 3 * WIDTH)
    with pytest.raises(NotImplemented, match="do_rotary"):
        check_contrib("Attention", [x, w], {"num_heads": HEADS, "do_rotary": 1}, [None])


# -- grouped heads ----------------------------------------------------------------------------

KV = 2
Q = 4
D = 16
ROOM = 9
ANGLES = np.arange(ROOM)[:, None] * (0.5 ** np.arange(D // 2))
COSINES, SINES = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)


def turned(x, positions):
    c, s = COSINES[positions][:, None], SINES[positions][:, None]
    a, b = x[..., : D // 2], x[..., D // 2 :]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def grouped(q, k, v, past_k, past_v, lengths, total, facts, bias=None, sink=None):
    """The result, and the caches, straight from the schema's text."""
    length = q.shape[1]
    begins = np.zeros(BATCH, int) if length == total else lengths + 1 - length
    queries, keys, values = heads(q, Q), heads(k, KV), heads(v, KV)
    if facts.get("do_rotary"):
        positions = begins[:, None] + np.arange(length)
        queries, keys = turned(queries, positions), turned(keys, positions)
    room = max(total, 0 if past_k is None else past_k.shape[2])
    caches = []
    for past, new in ((past_k, keys), (past_v, values)):
        cache = np.zeros((BATCH, KV, room, D))
        if past is not None:
            cache[:, :, : past.shape[2]] = past
        for b in range(BATCH):
            cache[b, :, begins[b] : begins[b] + length] = new[b]
        caches.append(cache)
    results = np.zeros((BATCH, Q, length, D))
    for b in range(BATCH):
        for h in range(Q):
            for i in range(length):
                last = begins[b] + i
                window = facts.get("local_window_size", -1)
                first = max(0, last + 1 - window) if window > 0 else 0
                seen = slice(first, last + 1)
                k_, v_ = (c[b, h // (Q // KV), seen] for c in caches)
                scores = k_ @ queries[b, h, i] * (facts.get("scale") or D**-0.5)
                cap = facts.get("softcap")
                if cap:
                    scores = np.tanh(scores / cap) * cap
                if bias is not None:
                    scores = scores + bias[b % len(bias), h % bias.shape[1], i, seen]
                e = np.exp(scores)
                extra = 0.0
                if sink is not None:
                    extra = np.exp(sink[h])
                elif facts.get("smooth_softmax"):
                    extra = 1.0
                results[b, h, i] = e @ v_ / (e.sum() + extra)
    return merged(results), *caches


CASES = {
    "prompt": (5, None, [4, 4], {}),
    "prompt with rotation": (5, None, [4, 4], {"do_rotary": 1}),
    "step": (1, 5, [5, 5], {"do_rotary": 1}),
    "step of different lengths": (1, 6, [6, 3], {"do_rotary": 1}),
    "step in a buffer": (1, ROOM, [6, 6], {"do_rotary": 1}),
    "window": (5, None, [4, 4], {"local_window_size": 2}),
    "window in a step": (1, 6, [6, 6], {"local_window_size": 3}),
    "bounded scores": (5, None, [4, 4], {"softcap": 0.7, "scale": 0.9}),
    "smooth": (5, None, [4, 4], {"smooth_softmax": 1}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("packed", [False, True])
def test_group_query_attention(name, packed):
    length, room, lengths, facts = CASES[name]
    lengths = np.array(lengths, np.int32)
    total = int(lengths.max()) + 1
    q, k, v = (
        floats(BATCH, length, Q * D),
        floats(BATCH, length, KV * D),
        floats(BATCH, length, KV * D),
    )
    past_k = past_v = None
    if room is not None:
        past_k, past_v = floats(BATCH, KV, room, D), floats(BATCH, KV, room, D)
    expected = grouped(q, k, v, past_k, past_v, lengths, total, facts)
    given = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    caches = [COSINES, SINES] if facts.get("do_rotary") else []
    inputs = [*given, past_k, past_v, lengths, np.array(total, np.int32), *caches]
    different = len(set(lengths.tolist())) > 1
    wanted = [expected[0], *(None if different else c for c in expected[1:])]
    all_facts = {"num_heads": Q, "kv_num_heads": KV, **facts}
    engine = name != "step in a buffer"  # what is behind the keys has no meaning there
    check_contrib("GroupQueryAttention", inputs, all_facts, wanted, engine=engine)


#: Places of last keys, whether queries see none after them, how far back they see, and which
#: scores are given: before softmax (1) or after (2).
SHOWN = [
    ([4, 4], 1, -1, 1), ([4, 4], 1, -1, 2), ([4, 2], 1, -1, 1), ([4, 2], 1, -1, 2),
    ([4, 2], 0, -1, 1), ([4, 0], 1, -1, 2), ([4, 4], 1, 2, 2),
]  # fmt: skip


@pytest.mark.parametrize(("lasts", "causal", "window", "kind"), SHOWN)
def test_scores_and_padding_of_grouped_heads(lasts, causal, window, kind):
    """Scores of hidden keys are 0; queries that pad a prompt see those of its tokens alone."""
    length, size = 5, D
    q, k, v = (floats(BATCH, length, n * size) for n in (Q, KV, KV))
    queries, keys, values = heads(q, Q), heads(k, KV), heads(v, KV)
    keys, values = (np.repeat(x.astype(float), Q // KV, axis=1) for x in (keys, values))
    scores = queries.astype(float) @ keys.swapaxes(2, 3) * size**-0.5
    i, j = np.arange(length)[:, None], np.arange(length)[None]
    seen = (j <= np.array(lasts)[:, None, None, None]) & ((j <= i) | (not causal))
    if window > 0:
        seen = seen & (j > i - window)
    e = np.where(seen, np.exp(scores), 0)
    # A query may see nothing at all only with a window, and behind its sequence.
    shares = e / e.sum(-1, keepdims=True)
    expected = [merged(shares @ values), None, None, np.where(seen, [scores, shares][kind - 1], 0)]
    facts = {
        "num_heads": Q, "kv_num_heads": KV, "qk_output": kind, "local_window_size": window,
    } | ({} if causal else {"causal": 0})  # fmt: skip
    inputs = [q, k, v, None, None, np.array(lasts, np.int32), np.array(length, np.int32)]
    # onnxruntime writes no scores behind a shorter sequence: anything may be there.
    is_whole = len(set(lasts)) == 1
    check_contrib("GroupQueryAttention", inputs, facts, expected, engine=is_whole)
    check_contrib("GroupQueryAttention", inputs, facts | {"qk_output": 0}, expected[:3])


def test_caches_of_angles_of_any_width():
    """A half of each head is turned, which only the shape of the caches says."""
    q, k, v = floats(BATCH, 4, Q * D), floats(BATCH, 4, KV * D), floats(BATCH, 4, KV * D)
    few = D // 4

    def half(x):
        a, b = x[..., :few], x[..., few : 2 * few]
        c, s = (y[:4, :few][:, None] for y in (COSINES, SINES))
        c, s = np.swapaxes(c, 0, 1), np.swapaxes(s, 0, 1)
        return np.concatenate([a * c - b * s, b * c + a * s, x[..., 2 * few :]], -1)

    turned_q, turned_k = merged(half(heads(q, Q))), merged(half(heads(k, KV)))
    lasts, total = np.array([3, 3], np.int32), np.array(4, np.int32)
    expected = grouped(turned_q, turned_k, v, None, None, lasts, 4, {})
    inputs = [q, k, v, None, None, lasts, total, COSINES[:, :few].copy(), SINES[:, :few].copy()]
    facts = {"num_heads": Q, "kv_num_heads": KV, "do_rotary": 1}
    # onnxruntime takes widths of whole multiples of 8 alone.
    check_contrib("GroupQueryAttention", inputs, facts, expected, engine=False)


def test_biases_and_sinks_of_grouped_heads():
    q, k, v = floats(BATCH, 4, Q * D), floats(BATCH, 4, KV * D), floats(BATCH, 4, KV * D)
    lengths, total = np.array([3, 3], np.int32), np.array(4, np.int32)
    bias, sink = floats(1, Q, 4, 4), floats(Q)
    expected = grouped(q, k, v, None, None, lengths, 4, {}, bias, sink)
    inputs = [q, k, v, None, None, lengths, total, None, None, None, bias, sink]
    check_contrib("GroupQueryAttention", inputs, {"num_heads": Q, "kv_num_heads": KV}, expected)


def test_normalised_heads():
    q, k, v = floats(BATCH, 3, Q * D), floats(BATCH, 3, KV * D), floats(BATCH, 3, KV * D)
    a, b = floats(D), floats(D)

    def normal(x, scale, count):
        split = x.astype(float).reshape(*x.shape[:2], count, D)
        split = split / np.sqrt((split**2).mean(-1, keepdims=True) + 1e-6) * scale
        return split.reshape(x.shape)

    lengths = np.array([2, 2], np.int32)
    expected = grouped(normal(q, a, Q), normal(k, b, KV), v, None, None, lengths, 3, {})
    inputs = [q, k, v, None, None, lengths, np.array(3, np.int32), *[None] * 7, a, b]
    facts = {"num_heads": Q, "kv_num_heads": KV}
    check_contrib("GroupQueryAttention", inputs, facts, expected, engine=False)
