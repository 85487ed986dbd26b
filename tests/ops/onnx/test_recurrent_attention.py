"""AttnLSTM against loops over its schema's equations, and against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph, RuntimeException
from tests.support.contrib import check_contrib, contrib_model

NAME = "AttnLSTM"
HIDDEN, DEPTH, SIZE, WIDTH = 5, 4, 3, 7
#: Names of the inputs, in order.
NAMES = (
    "X W R B sequence_lens initial_h initial_c P QW MW V M memory_seq_lens AW"
).split()  # fmt: skip
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
Array = Any


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _inputs(
    length: int = 4, batch: int = 2, steps: int = 6, direction: str = "forward",
    dtype: type = np.float32, without: str = "", **given: Any,
) -> dict[str, Array]:  # fmt: skip
    random = np.random.default_rng(7)
    count, left = len(DIRECTIONS[direction]), without.split()
    width = DEPTH if "AW" in left else WIDTH
    shapes = {
        "X": (length, batch, 3), "W": (count, 4 * HIDDEN, 3 + width),
        "R": (count, 4 * HIDDEN, HIDDEN), "B": (count, 8 * HIDDEN),
        "initial_h": (count, batch, HIDDEN), "initial_c": (count, batch, HIDDEN),
        "P": (count, 3 * HIDDEN), "QW": (count, HIDDEN, SIZE), "MW": (count, DEPTH, SIZE),
        "V": (count, SIZE), "M": (batch, steps, DEPTH), "AW": (count, DEPTH + HIDDEN, WIDTH),
    }  # fmt: skip
    found = {n: (random.standard_normal(s) / 1.5).astype(dtype) for n, s in shapes.items()}
    found |= {n: np.array(x, np.int32) for n, x in given.items()}
    return {n: x for n, x in found.items() if n not in left}


def _expected(
    x: dict[str, Array], direction: str, clip: float = np.inf, coupled: bool = False
) -> list[Array]:
    length, batch, width = x["X"].shape
    turns = DIRECTIONS[direction]
    y = np.zeros((length, len(turns), batch, HIDDEN))
    last, cells = np.zeros((len(turns), batch, HIDDEN)), np.zeros((len(turns), batch, HIDDEN))
    lengths = x.get("sequence_lens", np.full(batch, length))
    counts = x.get("memory_seq_lens", np.full(batch, x["M"].shape[1]))
    for d, b in np.ndindex(len(turns), batch):
        h = x["initial_h"][d, b] if "initial_h" in x else np.zeros(HIDDEN)
        c = x["initial_c"][d, b] if "initial_c" in x else np.zeros(HIDDEN)
        hole = np.split(x["P"][d] if "P" in x else np.zeros(3 * HIDDEN), 3)
        bias = x["B"][d] if "B" in x else np.zeros(8 * HIDDEN)
        attention = np.zeros(x["W"].shape[2] - width)
        memory = x["M"][b, : counts[b]].astype(float)
        for t in range(lengths[b])[:: -1 if turns[d] else 1]:
            seen = np.concatenate([x["X"][t, b], attention])
            gates = x["W"][d] @ seen + x["R"][d] @ h + bias[: 4 * HIDDEN] + bias[4 * HIDDEN :]
            i, o, f, g = np.split(gates, 4)
            i = _sigmoid(np.clip(i + hole[0] * c, -clip, clip))
            f = 1 - i if coupled else _sigmoid(np.clip(f + hole[2] * c, -clip, clip))
            c = f * c + i * np.tanh(np.clip(g, -clip, clip))
            h = _sigmoid(np.clip(o + hole[1] * c, -clip, clip)) * np.tanh(c)
            scores = (np.tanh(memory @ x["MW"][d] + h @ x["QW"][d]) * x["V"][d]).sum(1)
            align = np.exp(scores - scores.max())
            attention = align / align.sum() @ memory
            if "AW" in x:
                attention = np.concatenate([h, attention]) @ x["AW"][d]
            y[t, d, b] = h
        last[d, b], cells[d, b] = h, c
    return [y, last, cells]


def _listed(given: dict[str, Array]) -> list[Array]:
    inputs = [given.get(n) for n in NAMES]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


@pytest.mark.parametrize(
    "direction, facts, shown",
    [
        ("forward", {}, {}),
        ("forward", {}, {"without": "AW"}),
        ("forward", {}, {"without": "AW B P initial_h initial_c"}),
        ("forward", {}, {"sequence_lens": [4, 2], "memory_seq_lens": [6, 3]}),
        ("reverse", {}, {"sequence_lens": [4, 2], "memory_seq_lens": [1, 5]}),
        ("bidirectional", {}, {"sequence_lens": [3, 4], "without": "initial_c"}),
        ("bidirectional", {}, {"batch": 1, "steps": 1}),
        ("forward", {"clip": 0.5}, {"length": 7}),
        ("forward", {"input_forget": 1}, {"length": 1, "batch": 3}),
    ],
)
def test_attn_lstm(direction: str, facts: dict[str, Any], shown: Any) -> None:
    symbolic = direction != "reverse"
    given = _inputs(direction=direction, **shown)
    clip, coupled = facts.get("clip", np.inf), bool(facts.get("input_forget"))
    expected = _expected(given, direction, clip, coupled)
    every = {"hidden_size": HIDDEN, **facts}
    if direction != "forward":
        every["direction"] = direction
    check_contrib(
        NAME, _listed(given), every, expected, symbolic=symbolic, tolerance="float: products"
    )


def test_doubles() -> None:
    given = _inputs(dtype=np.float64, memory_seq_lens=[2, 6])
    expected = _expected(given, "forward")
    facts = {"hidden_size": HIDDEN}
    check_contrib(NAME, _listed(given), facts, expected, engine=False, tolerance="double: sums")


@pytest.mark.parametrize("length, batch", [(0, 2), (3, 0)])
def test_no_steps_and_no_rows(length: int, batch: int) -> None:
    given = _inputs(length=length, batch=batch)
    expected = _expected(given, "forward")
    check_contrib(NAME, _listed(given), {"hidden_size": HIDDEN}, expected, engine=False)


@pytest.mark.parametrize(
    "changed, text",
    [
        ({"QW": None}, "needs the inputs QW, MW, V and M"),
        ({"M": None}, "needs the inputs QW, MW, V and M"),
        ({"AW": None}, "The last axis of W"),
        ({"QW": np.zeros((1, HIDDEN, 2), np.float32)}, "QW"),
        ({"MW": np.zeros((DEPTH, SIZE), np.float32)}, "input MW has the wrong number of axes"),
        ({"P": np.zeros((1, 4), np.float32)}, "P"),
        ({"memory_seq_lens": np.zeros(3, np.int32)}, "memory_seq_lens"),
        ({"memory_seq_lens": np.array([7, 1], np.int32)}, "Expected 1 to 6, got 7"),
        ({"memory_seq_lens": np.array([0, 1], np.int32)}, "Expected 1 to 6, got 0"),
    ],
)
def test_bad_graphs_and_feeds(changed: dict[str, Array], text: str) -> None:
    given = {n: x for n, x in (_inputs() | changed).items() if x is not None}
    inputs = _listed(given)
    model = contrib_model(NAME, inputs, {"hidden_size": HIDDEN}, 3)
    feeds = {f"x{k}": x for k, x in enumerate(inputs) if x is not None}
    with pytest.raises((InvalidGraph, RuntimeException), match=f"node it.*{text}"):
        sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
