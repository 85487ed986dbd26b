"""MultiHeadAttention with its past in a buffer, against NumPy in double and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidArgument, InvalidGraph, RuntimeException
from tests.ops.contrib.test_attention import heads, hidden_above, merged, scores_of, weighted
from tests.support.contrib import check_contrib, contrib_model

RANDOM = np.random.default_rng(17)
NAME = "MultiHeadAttention"
BATCH, HEADS, SIZE, ROOM = 4, 2, 8, 7
Array = Any


def _floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def _inputs(length: int, before: int, beams: int) -> list[Array]:
    parts = [_floats(BATCH, length, HEADS * SIZE) for _ in range(3)]
    past = [_floats(BATCH, HEADS, ROOM, SIZE) for _ in range(2)]
    indirection = None
    if beams:
        indirection = RANDOM.integers(0, beams, (BATCH // beams, beams, ROOM)).astype(np.int32)
    return [*parts, None, None, None, *past, np.array([before], np.int32), indirection]


def _expected(inputs: list[Array], causal: bool) -> list[Array]:
    """The result and both buffers, row by row and place by place."""
    before, indirection = int(inputs[8][0]), inputs[9]
    query, key, value = (heads(x, HEADS) for x in inputs[:3])
    length = query.shape[2]
    buffers, seen = [], []
    for past, new in ((inputs[6], key), (inputs[7], value)):
        buffer = past.astype(float)
        buffer[:, :, before : before + length] = new
        used = buffer[:, :, : before + length].copy()
        if indirection is not None and length == 1:
            beams = indirection.shape[1]
            for row, place in np.ndindex(BATCH, before):
                beam = indirection[row // beams, row % beams, place]
                used[row, :, place] = buffer[row // beams * beams + beam, :, place]
        buffers.append(buffer)
        seen.append(used)
    scores = scores_of(query, seen[0])
    if causal:
        scores = hidden_above(scores, before)
    return [merged(weighted(scores, seen[1])), *buffers]


@pytest.mark.parametrize("length, before", [(1, 0), (1, 3), (1, 6), (3, 0), (3, 4)])
@pytest.mark.parametrize("beams", [0, 1, 2, 4])
@pytest.mark.parametrize("causal", [0, 1])
def test_buffers(length: int, before: int, beams: int, causal: int) -> None:
    inputs = _inputs(length, before, beams)
    while inputs[-1] is None:
        inputs.pop()
    facts = {"num_heads": HEADS, "unidirectional": causal}
    expected = _expected([*inputs, None], bool(causal))
    check_contrib(NAME, inputs, facts, expected, tolerance="float: layers")


def test_half_floats() -> None:
    inputs = _inputs(1, 4, 2)
    inputs = [x.astype(np.float16) if x is not None and x.dtype.kind == "f" else x for x in inputs]
    expected = _expected(inputs, False)
    check_contrib(
        NAME, inputs, {"num_heads": HEADS}, expected, engine=False, tolerance="half: some roundings"
    )


def test_no_rows() -> None:
    inputs = [x[:0] if x is not None and x.dtype.kind == "f" else x for x in _inputs(1, 4, 0)][:9]
    expected = [np.zeros((0, 1, HEADS * SIZE)), *[np.zeros((0, HEADS, ROOM, SIZE))] * 2]
    check_contrib(NAME, inputs, {"num_heads": HEADS}, expected, engine=False)


@pytest.mark.parametrize(
    "changed, text",
    [
        ({8: np.array([ROOM], np.int32)}, "The past has no room"),
        ({8: np.array([-1], np.int32)}, "size -1. Expected from 0"),
        ({8: np.array([1, 2], np.int32)}, "A scalar is needed"),
        ({7: None}, "both past_key and past_value"),
        ({9: np.zeros((1, 3, ROOM), np.int32)}, "cache_indirection"),
        ({9: np.zeros((2, 2, 2), np.int32)}, "cache_indirection has too few places"),
        ({9: np.zeros((4, ROOM), np.int32)}, "cache_indirection must have three axes"),
        (
            {9: np.full((2, 2, ROOM), 2, np.int32)},
            "cache_indirection is .* Expected 0 to 1, got 2",
        ),
    ],
)
def test_bad_buffers(changed: dict[int, Array], text: str) -> None:
    inputs = _inputs(1, 3, 2)
    for place, array in changed.items():
        inputs[place] = array
    model = contrib_model(NAME, inputs, {"num_heads": HEADS}, 3)
    feeds = {f"x{k}": x for k, x in enumerate(inputs) if x is not None}
    with pytest.raises((InvalidArgument, InvalidGraph, RuntimeException), match=text):
        sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
