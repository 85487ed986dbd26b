"""LongformerAttention against loops over its schema's text. onnxruntime runs it on GPUs alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph
from tests.support.contrib import check_contrib, contrib_model

NAME = "LongformerAttention"
RANDOM = np.random.default_rng(23)
Array = Any


def _inputs(
    batch: int, length: int, width: int, hidden: int, everywhere: str, dtype: type = np.float32
) -> list[Array]:
    shapes = [(batch, length, width), (width, 3 * width), (3 * width,)]
    x, w, b = ((RANDOM.standard_normal(s) / 2).astype(dtype) for s in shapes)
    gw, gb = ((RANDOM.standard_normal(s) / 2).astype(dtype) for s in shapes[1:])
    mask = np.zeros((batch, length), dtype)
    mask[:, length - hidden :] = -10000.0
    flags = np.zeros((batch, length), np.int32)
    if everywhere == "first":
        flags[:, :2] = 1
    elif everywhere == "some":
        flags[:] = RANDOM.integers(0, 2, flags.shape)
    return [x, w, b, mask, gw, gb, flags]


def _expected(inputs: list[Array], heads: int, window: int) -> Array:
    """Token by token: what it sees, with which weights."""
    x, w, b, mask, gw, gb, flags = (t.astype(float) for t in inputs)
    batch, length, width = x.shape
    size = width // heads
    result = np.zeros(x.shape)
    for n, i, h in np.ndindex(batch, length, heads):
        if mask[n, i] < 0:
            continue
        everything = flags[n, i] != 0
        weights, bias = (gw, gb) if everything else (w, b)
        part = slice(h * size, (h + 1) * size)
        q, k, v = (t[:, part] for t in np.split(x[n] @ weights + bias, 3, 1))
        seen = [
            j for j in range(length) if everything or abs(i - j) <= window or flags[n, j] != 0
        ]  # fmt: skip
        scores = k[seen] @ q[i] / np.sqrt(size) + mask[n, seen]
        e = np.exp(scores - scores.max())
        result[n, i, part] = e / e.sum() @ v[seen]
    return result


@pytest.mark.parametrize(
    "batch, length, hidden", [(1, 4, 0), (2, 8, 1), (1, 16, 5), (2, 7, 3), (1, 1, 0), (1, 3, 3)]
)
@pytest.mark.parametrize("everywhere", ["", "first", "some"])
def test_longformer(batch: int, length: int, hidden: int, everywhere: str) -> None:
    inputs = _inputs(batch, length, 8, hidden, everywhere)
    for window in (1, 2):
        facts = {"num_heads": 2, "window": window}
        expected = [_expected(inputs, 2, window)]
        check_contrib(NAME, inputs, facts, expected, engine=False, tolerance="float: products")


def test_half_floats() -> None:
    inputs = _inputs(2, 9, 12, 2, "first", np.float16)
    facts = {"num_heads": 3, "window": 2}
    expected = [_expected(inputs, 3, 2)]
    check_contrib(NAME, inputs, facts, expected, engine=False, tolerance="half: attention")


@pytest.mark.parametrize("batch, length", [(0, 8), (2, 0)])
def test_no_tokens(batch: int, length: int) -> None:
    inputs = _inputs(batch, length, 8, 0, "")
    facts = {"num_heads": 2, "window": 2}
    expected = [np.zeros((batch, length, 8))]
    check_contrib(NAME, inputs, facts, expected, engine=False)


@pytest.mark.parametrize(
    "place, shape, facts, text",
    [
        (0, (4, 8), {}, "tokens of three axes"),
        (0, None, {"window": 0}, "window of at least one"),
        (0, None, {"num_heads": 3}, "heads"),
        (1, (8, 16), {}, "weight"),
        (2, (1, 24), {}, "bias has the wrong number of axes. Expected 1"),
        (3, (1, 5), {}, "mask"),
        (4, (7, 24), {}, "global_weight"),
        (5, (8,), {}, "global_bias"),
        (6, (2, 4), {}, "global"),
    ],
)
def test_bad_graphs(place: int, shape: Any, facts: dict[str, int], text: str) -> None:
    inputs = _inputs(1, 4, 8, 0, "")
    if shape is not None:
        inputs[place] = np.zeros(shape, inputs[place].dtype)
    model = contrib_model(NAME, inputs, {"num_heads": 2, "window": 1, **facts}, 1)
    with pytest.raises(InvalidGraph, match=f"node it .{NAME}.*{text}"):
        sardonyx.InferenceSession(model.SerializeToString())
