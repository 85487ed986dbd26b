"""PagedAttention against loops in NumPy by the schema's text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph, NotImplemented
from tests.support.contrib import check_contrib

RANDOM = np.random.default_rng(12)
BLOCK, BLOCKS, SIZE = 4, 9, 8
STARTS = np.array([0, 3, 4], np.int32)
PASTS = np.array([2, 6], np.int32)
TABLE = np.array([[5, 1, -1], [0, 7, 3]], np.int32)
TOKENS = 4
Array = Any


def halves(*shape: int) -> Array:
    return (RANDOM.standard_normal(shape) / 2).astype(np.float16)


def _turned(x: Array, angles: Array, offset: int) -> Array:
    """(heads, size), its elements from `offset` on in halves."""
    half = len(angles)
    a, b = x[:, offset : offset + half], x[:, offset + half : offset + 2 * half]
    c, s = np.cos(angles), np.sin(angles)
    return np.concatenate(
        [x[:, :offset], a * c - b * s, b * c + a * s, x[:, offset + 2 * half :]], 1
    )


def _normal(x: Array, weight: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight


def paged(
    q: Array, k: Array, v: Array, key_cache: Array, value_cache: Array, facts: dict[str, Any],
    *, angles: Array | None = None, slots: Array | None = None, sink: Array | None = None,
    norms: tuple[Array, Array] | None = None, width: int = SIZE,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """(T, heads, size) each; the result (T, heads, width) and the caches."""
    q, k, v = (x.astype(float) for x in (q, k, v))
    key_cache, value_cache = key_cache.astype(float), value_cache.astype(float)
    places = [
        (b, PASTS[b] + t - STARTS[b]) for b in range(2) for t in range(STARTS[b], STARTS[b + 1])
    ]
    for t, (b, place) in enumerate(places):
        if norms is not None:
            q[t], k[t] = _normal(q[t], norms[0]), _normal(k[t], norms[1])
        if angles is not None:
            offset = facts.get("rotary_offset", 0)
            q[t], k[t] = _turned(q[t], angles[place], offset), _turned(k[t], angles[place], offset)
        slot = TABLE[b, place // BLOCK] * BLOCK + place % BLOCK if slots is None else slots[t]
        if slot >= 0:
            key_cache[slot // BLOCK, slot % BLOCK] = k[t]
            value_cache[slot // BLOCK, slot % BLOCK] = v[t]
    result = np.zeros((TOKENS, q.shape[1], width))
    for t, (b, place) in enumerate(places):
        length = PASTS[b] + STARTS[b + 1] - STARTS[b]
        seen = range(place + 1) if facts.get("is_causal", 1) else range(length)
        window = facts.get("local_window_size", -1)
        seen = [j for j in seen if window < 0 or j > place - window]
        for h in range(q.shape[1]):
            shared = h // (q.shape[1] // k.shape[1])
            at = [(TABLE[b, j // BLOCK], j % BLOCK, shared) for j in seen]
            keys, values = (np.stack([c[a] for a in at]) for c in (key_cache, value_cache))
            scores = keys @ q[t, h] * facts.get("scale", SIZE**-0.5)
            cap = facts.get("softcap", 0)
            scores = np.tanh(scores / cap) * cap if cap else scores
            e = np.exp(scores)
            total = e.sum() + (0 if sink is None else np.exp(float(sink[h])))
            result[t, h] = (e / total) @ values[:, :width]
    return result, key_cache, value_cache


CASES: list[dict[str, Any]] = [
    {},
    {"softcap": 2.0, "local_window_size": 3},
    {"is_causal": 0, "scale": 0.5},
]


@pytest.mark.parametrize("facts", CASES, ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_tokens(facts: dict[str, Any], packed: bool) -> None:
    q, k, v = halves(TOKENS, 4, SIZE), halves(TOKENS, 2, SIZE), halves(TOKENS, 2, SIZE)
    caches = halves(BLOCKS, BLOCK, 2, SIZE), halves(BLOCKS, BLOCK, 2, SIZE)
    result, *written = paged(q, k, v, *caches, facts)
    flat = [x.reshape(TOKENS, -1) for x in (q, k, v)]
    given = [np.concatenate(flat, 1), None, None] if packed else flat
    inputs = [*given, *caches, STARTS, PASTS, TABLE]
    facts = {"num_heads": 4, "kv_num_heads": 2, **facts}
    check_contrib("PagedAttention", inputs, facts, [result.reshape(TOKENS, -1), *written],
                  engine=False, symbolic=False, tolerance="half: some roundings")  # fmt: skip


@pytest.mark.parametrize("offset", [0, 4])
def test_positions_norms_sinks_and_slots(offset: int) -> None:
    q, k, v = halves(TOKENS, 4, SIZE), halves(TOKENS, 2, SIZE), halves(TOKENS, 2, SIZE)
    caches = halves(BLOCKS, BLOCK, 2, SIZE), halves(BLOCKS, BLOCK, 2, SIZE)
    angles = halves(12, (SIZE - offset) // 2)
    turns = [f(angles.astype(float)).astype(np.float16) for f in (np.cos, np.sin)]
    slots = np.array([22, -1, 7, 30], np.int32)
    sink, norms = halves(4), (halves(SIZE), halves(SIZE))
    facts = {"do_rotary": 1, "rotary_offset": offset}
    result, *written = paged(q, k, v, *caches, facts, angles=angles.astype(float), slots=slots,
                             sink=sink, norms=norms)  # fmt: skip
    inputs = [*(x.reshape(TOKENS, -1) for x in (q, k, v)), *caches, STARTS, PASTS, TABLE, *turns,
              slots, sink, *norms]  # fmt: skip
    facts |= {"num_heads": 4, "kv_num_heads": 2}
    check_contrib("PagedAttention", inputs, facts, [result.reshape(TOKENS, -1), *written],
                  engine=False, symbolic=False, tolerance="half: some roundings")  # fmt: skip


def test_a_latent_cache() -> None:
    q, k = halves(TOKENS, 4, SIZE), halves(TOKENS, 1, SIZE)
    cache = halves(BLOCKS, BLOCK, 1, SIZE)
    result, written, _ = paged(q, k, k, cache, cache, {"scale": 0.3}, width=5)
    inputs = [q.reshape(TOKENS, -1), k.reshape(TOKENS, -1), None, cache, None, STARTS, PASTS, TABLE]
    facts = {"num_heads": 4, "kv_num_heads": 1, "kv_cache_layout": "LATENT", "v_head_size": 5,
             "scale": 0.3}  # fmt: skip
    check_contrib("PagedAttention", inputs, facts, [result.reshape(TOKENS, -1), written],
                  engine=False, symbolic=False, tolerance="half: some roundings")  # fmt: skip


def quantised(x: Array, scale: Array) -> Array:
    """Codes of (..., heads, size); scales are one number, or (heads, 1, size)."""
    each = scale if scale.size == 1 else scale[:, 0]
    return np.rint(x.astype(np.float32) / each).clip(-128, 127)


def meant(codes: Array, scale: Array) -> Array:
    """What codes of (..., heads, size) mean."""
    return codes * (scale if scale.size == 1 else scale[:, 0]).astype(float)


SCALES = {
    "PER_TENSOR": np.array([0.013], np.float32),
    "PER_CHANNEL": np.linspace(0.002, 0.02, 2 * SIZE, dtype=np.float32).reshape(2, 1, SIZE),
}


@pytest.mark.parametrize("kinds", [("PER_TENSOR", "PER_CHANNEL"), ("PER_CHANNEL", "PER_TENSOR")])
def test_quantised_caches(kinds: tuple[str, str]) -> None:
    q, k, v = halves(TOKENS, 4, SIZE), halves(TOKENS, 2, SIZE), halves(TOKENS, 2, SIZE)
    scales = [SCALES[kind] for kind in kinds]
    codes = [RANDOM.integers(-128, 128, (BLOCKS, BLOCK, 2, SIZE)).astype(np.int8) for _ in "kv"]
    known = [meant(quantised(x, s), s) for x, s in zip((k, v), scales, strict=True)]
    caches = [meant(c.astype(float), s) for c, s in zip(codes, scales, strict=True)]
    result, *written = paged(q, *known, *caches, {})
    expected = [quantised(x, s) for x, s in zip(written, scales, strict=True)]
    inputs = [*(x.reshape(TOKENS, -1) for x in (q, k, v)), *codes, STARTS, PASTS, TABLE,
              *[None] * 6, *scales]  # fmt: skip
    facts = {"num_heads": 4, "kv_num_heads": 2, "k_quant_type": kinds[0], "v_quant_type": kinds[1]}
    check_contrib("PagedAttention", inputs, facts, [result.reshape(TOKENS, -1), *expected],
                  engine=False, symbolic=False, tolerance="half: some roundings")  # fmt: skip


@pytest.mark.parametrize(
    "changes, error, text",
    [
        ({"k_quant_type": "PER_TENSOR"}, InvalidGraph, "has a scale if it is quantised"),
        ({"v_quant_type": "PER_ROW"}, InvalidGraph, "Bad kind of codes"),
        ({"k_cache_dtype": "int4"}, NotImplemented, "another type"),
        ({"kv_cache_layout": "OTHER"}, InvalidGraph, "SEPARATE or LATENT"),
        ({"kv_cache_layout": "LATENT"}, InvalidGraph, "holds values too"),
        ({"num_heads": 3}, InvalidGraph, "width of a token"),
        ({"do_rotary": 1}, InvalidGraph, "cos_cache"),
    ],
    ids=str,
)
def test_what_is_refused(changes: dict[str, Any], error: type, text: str) -> None:
    q, k = halves(TOKENS, 4 * SIZE), halves(TOKENS, 2 * SIZE)
    caches = halves(BLOCKS, BLOCK, 2, SIZE), halves(BLOCKS, BLOCK, 2, SIZE)
    facts = {"num_heads": 4, "kv_num_heads": 2, **changes}
    with pytest.raises(error, match=text):
        check_contrib("PagedAttention", [q, k, k, *caches, STARTS, PASTS, TABLE], facts, [None] * 3,
                      engine=False, symbolic=False)  # fmt: skip
