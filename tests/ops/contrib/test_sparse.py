"""DynamicSparseAttention against loops in NumPy by the schema's text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph, NotImplemented
from tests.support.contrib import check_contrib

RANDOM = np.random.default_rng(19)
BATCH, LENGTH, BEFORE, HEADS, SHARED, SIZE = 2, 3, 4, 4, 2, 8
TOTAL, MOST, OTHERS = LENGTH + BEFORE, 3, 6
Array = Any


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def _heads(x: Array, count: int) -> Array:
    return x.reshape(BATCH, LENGTH, count, SIZE).transpose(0, 2, 1, 3)


def _turned(x: Array, angles: Array) -> Array:
    """(batch, heads, length, size), the first elements in halves; angles (length, pairs)."""
    half = angles.shape[1]
    a, b = x[..., :half], x[..., half : 2 * half]
    c, s = np.cos(angles), np.sin(angles)
    return np.concatenate([a * c - b * s, b * c + a * s, x[..., 2 * half :]], -1)


def _attended(
    q: Array, keys: Array, values: Array, others: tuple[Array, Array] | None, selected: Array,
    counts: Array, window: int, sink: Array | None,
) -> Array:  # fmt: skip
    result = np.zeros((BATCH, LENGTH, HEADS, SIZE))
    for b, i, h in np.ndindex(BATCH, LENGTH, HEADS):
        row, here, shared = b * LENGTH + i, BEFORE + i, h // (HEADS // SHARED)
        chosen = selected[row, : counts[row]]
        if others is None:
            pairs = [(keys[b, shared, j], values[b, shared, j]) for j in chosen if j <= here]
        else:
            near = range(max(here - window + 1, 0), here + 1)
            pairs = [(keys[b, shared, j], values[b, shared, j]) for j in near]
            pairs += [(others[0][b, shared, j], others[1][b, shared, j]) for j in chosen]
        if not pairs:
            continue
        scores = np.array([q[b, h, i] @ k for k, _ in pairs]) / np.sqrt(SIZE)
        e = np.exp(scores)
        total = e.sum() + (0 if sink is None else np.exp(float(sink[h])))
        result[b, i, h] = (e[:, None] * np.array([v for _, v in pairs])).sum(0) / total
    return result.reshape(BATCH, LENGTH, -1)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("local", [False, True])
def test_against_numpy(local: bool, sinks: bool, packed: bool) -> None:
    q, k, v = (floats(BATCH, LENGTH, n * SIZE) for n in (HEADS, SHARED, SHARED))
    past = [floats(BATCH, SHARED, BEFORE, SIZE) for _ in range(2)]
    others = [floats(BATCH, SHARED, OTHERS, SIZE) for _ in range(2)]
    angles = floats(TOTAL, 3)
    queries, new, values = _heads(q, HEADS), _heads(k, SHARED), _heads(v, SHARED)
    if sinks:
        queries, new = (_turned(x, angles[BEFORE:]) for x in (queries, new))
    keys, values = np.concatenate([past[0], new], 2), np.concatenate([past[1], values], 2)
    rows = BATCH * LENGTH
    extent = OTHERS if local else TOTAL
    selected = np.stack([RANDOM.permutation(extent)[:MOST] for _ in range(rows)]).astype(np.int32)
    counts = np.array([3, 0, 1, 2, 3, 0], np.int32)
    for row, count in enumerate(counts):
        selected[row, count:] = -1
    sink = floats(HEADS) if sinks else None
    expected = _attended(
        queries, keys, values, (others[0], others[1]) if local else None, selected, counts, 2, sink
    )
    given = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    lengths, total = np.full(BATCH, TOTAL - 1, np.int32), np.array([TOTAL], np.int32)
    inputs = [*given, *past, *(others if local else [None, None]), selected, counts, lengths, total]
    if sinks:
        inputs += [np.cos(angles), np.sin(angles), None, None, None, sink]
    facts = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": int(sinks)}
    if local:
        facts |= {"attention_mode": "local_plus_selected", "selected_kv_source": "auxiliary",
                  "local_window_size": 2}  # fmt: skip
    check_contrib("DynamicSparseAttention", inputs, facts, [expected, keys, values], engine=False,
                  symbolic=False, tolerance="float: layers")  # fmt: skip


@pytest.mark.parametrize(
    "changes, error, text",
    [
        ({"selected_kv_source": "auxiliary"}, NotImplemented, "no selected_only of auxiliary"),
        ({"attention_mode": "local_plus_selected", "selected_kv_source": "auxiliary"},
         InvalidGraph, "local_window_size"),
        ({"is_causal": 0}, NotImplemented, "not causal"),
    ],
)  # fmt: skip
def test_what_is_refused(changes: dict[str, Any], error: type, text: str) -> None:
    q, k = floats(BATCH, LENGTH, HEADS * SIZE), floats(BATCH, LENGTH, SHARED * SIZE)
    rows = np.zeros((BATCH * LENGTH, MOST), np.int32), np.zeros(BATCH * LENGTH, np.int32)
    lengths, total = np.full(BATCH, LENGTH - 1, np.int32), np.array([LENGTH], np.int32)
    inputs = [q, k, k, *[None] * 4, *rows, lengths, total]
    facts = {"num_heads": HEADS, "kv_num_heads": SHARED, **changes}
    with pytest.raises(error, match=text):
        check_contrib("DynamicSparseAttention", inputs, facts, [None] * 3, engine=False,
                      symbolic=False)  # fmt: skip
