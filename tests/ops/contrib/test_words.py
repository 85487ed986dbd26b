"""WordConvEmbedding and DecoderAttention against NumPy, and onnxruntime if it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph, NotImplemented
from tests.support.contrib import check_contrib

RANDOM = np.random.default_rng(8)
Array = Any


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("window", [1, 2, 3])
def test_words(window: int) -> None:
    words = np.array(
        [[1, 2, 3, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [4, 3, 2, 1, 5], [2, 0, 3, 4, 1],
         [0, 1, 2, 3, 4], [2, 0, 3, 0, 0], [5, 5, 0, 0, 0]], np.int32
    )  # fmt: skip
    w, bias, table = floats(3, 1, window, 4), floats(3), floats(6, 4)
    expected = np.zeros((8, 3))
    for at, word in enumerate(words):
        if not word[0]:
            continue
        end = max(np.count_nonzero(word), window)
        windows = [table[word[k : k + window]] for k in range(end - window + 1)]
        sums = [(w[:, 0] * taken).sum((1, 2)) + bias for taken in windows]
        expected[at] = np.tanh(sums).max(0)
    facts = {"conv_window_size": window, "embedding_size": 3, "char_embedding_size": 4}
    for written, engine in ((words[:, 0] > 0, True), (words[:, 0] == 0, False)):
        # onnxruntime leaves what it has for a word without a first letter as the memory was.
        inputs = [words[written], w, bias, table]
        check_contrib(
            "WordConvEmbedding", inputs, facts, [expected[written]], symbolic=False, engine=engine
        )


def test_a_window_of_another_size_is_refused() -> None:
    inputs = [np.ones((2, 4), np.int32), floats(3, 1, 2, 4), floats(3), floats(6, 4)]
    with pytest.raises(InvalidGraph, match="conv_window_size"):
        check_contrib("WordConvEmbedding", inputs, {"conv_window_size": 3}, [None], symbolic=False)


# -- DecoderAttention -------------------------------------------------------------------------

HEADS, SIZE, BATCH = 2, 4, 3
WIDTH = HEADS * SIZE


def _heads(x: Array) -> Array:
    """(sequence, batch, width) -> (batch, heads, sequence, size)."""
    return x.reshape(*x.shape[:2], HEADS, SIZE).transpose(1, 2, 0, 3)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("crosses, cached", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_decoder_attention(crosses: bool, cached: bool, masked: bool) -> None:
    query, key = floats(2, BATCH, WIDTH), floats(5, BATCH, WIDTH)
    q_weight, kv_weight, bias = floats(WIDTH, WIDTH), floats(WIDTH, 2 * WIDTH), floats(3 * WIDTH)
    caches = [floats(BATCH, HEADS, 5, SIZE), floats(BATCH, HEADS, 5, SIZE)]
    both = (key if crosses else query) @ kv_weight + bias[WIDTH:]
    keys, values = (_heads(part) for part in np.split(both, 2, 2))
    if cached:
        new = (keys, values)
        keys, values = (
            cache if crosses else np.concatenate([cache, x], 2)
            for cache, x in zip(caches, new, strict=True)
        )
    queries = _heads(query @ q_weight + bias[:WIDTH])
    scores = queries.astype(float) @ keys.transpose(0, 1, 3, 2) / np.sqrt(SIZE)
    mask = RANDOM.integers(0, 2, (BATCH, keys.shape[2])).astype(bool)
    if masked:
        scores = scores + np.where(mask, -10000.0, 0)[:, None, None]
    e = np.exp(scores - scores.max(-1, keepdims=True))
    result = (e / e.sum(-1, keepdims=True)) @ values
    expected = result.transpose(2, 0, 1, 3).reshape(2, BATCH, WIDTH)
    flags = [np.array(bool(f)) for f in (crosses, cached, True, masked)]
    given = caches if cached else [None, None]
    inputs = [query, key, q_weight, kv_weight, bias, mask if masked else None, *given, *flags]
    check_contrib("DecoderAttention", inputs, {"num_heads": HEADS}, [expected, keys, values],
                  constants=[8, 9, 10, 11], engine=False, symbolic=False,
                  tolerance="float: layers")  # fmt: skip


def test_flags_must_be_known() -> None:
    weights = floats(WIDTH, WIDTH), floats(WIDTH, 2 * WIDTH), floats(3 * WIDTH)
    x, flag = floats(2, BATCH, WIDTH), np.array(False)
    with pytest.raises(NotImplemented, match="static_kv must be a constant"):
        check_contrib("DecoderAttention", [x, x, *weights, None, None, None, *[flag] * 4],
                      {"num_heads": HEADS}, [None] * 3, engine=False, symbolic=False)  # fmt: skip
