"""Operators over packed sequences against loops in NumPy by the schemas' text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph, NotImplemented
from tests.support.contrib import check_contrib

RANDOM = np.random.default_rng(45)
STARTS = np.array([0, 3, 4, 9], np.int32)
TOKENS = 9
Array = Any


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


# -- VarlenCausalConvWithState ----------------------------------------------------------------


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("more", [False, True])
def test_convolution(dilation: int, more: bool) -> None:
    channels, taps = 4, 3
    behind = (taps - 1) * dilation
    x, w, bias = floats(TOKENS, channels), floats(channels, 1, taps), floats(channels)
    state = floats(3, channels, behind)
    expected, final = np.zeros(x.shape), np.zeros(state.shape)
    for b, (first, end) in enumerate(zip(STARTS, STARTS[1:], strict=False)):
        whole = np.concatenate([state[b].T, x[first:end]])
        for t in range(end - first):
            taken = whole[t : t + behind + 1 : dilation]
            expected[first + t] = (taken * w[:, 0].T).sum(0)
        final[b] = whole[len(whole) - behind :].T
    facts: dict[str, Any] = {"dilation": dilation}
    inputs, results = [x, w, STARTS, None, state], [expected, final]
    if more:
        expected = expected + bias
        results[0] = expected * sigmoid(expected)
        count = np.array([2, 5, 1], np.int32)
        inputs = [x, w, STARTS, bias, state, count]
        updates = np.zeros((3, 2, channels))
        for b, captured in enumerate([2, 1, 1]):
            updates[b, :captured] = x[STARTS[b] : STARTS[b] + captured]
        results.append(updates)
        facts |= {"activation": "silu", "state_update_capacity": 2}
    check_contrib("VarlenCausalConvWithState", inputs, facts, results, engine=False, symbolic=False)


def test_one_tap_needs_no_state() -> None:
    x, w, state = floats(TOKENS, 2), floats(2, 1, 1), np.zeros((3, 2, 0), np.float32)
    check_contrib("VarlenCausalConvWithState", [x, w, STARTS, None, state], {},
                  [x * w[:, 0, 0], state], engine=False, symbolic=False)  # fmt: skip


def test_captures_need_a_count() -> None:
    x, w, state = floats(TOKENS, 2), floats(2, 1, 2), floats(3, 2, 1)
    with pytest.raises(InvalidGraph, match="capture_count"):
        check_contrib("VarlenCausalConvWithState", [x, w, STARTS, None, state],
                      {"state_update_capacity": 2}, [None] * 3, engine=False,
                      symbolic=False)  # fmt: skip


# -- GatedDeltaNet ----------------------------------------------------------------------------

HEADS, COUNT, DEPTH, WIDTH = 2, 4, 3, 5


def _net(
    q: Array, k: Array, v: Array, starts: Array, g: Array | None, beta: Array | None, state: Array,
    scale: float,
) -> tuple[Array, Array]:  # fmt: skip
    """The recurrence of the schema; states (B, heads, V, K)."""
    result, last = np.zeros(v.shape), state.astype(float).copy()
    for b, (first, end) in enumerate(zip(starts, starts[1:], strict=False)):
        for t in range(first, end):
            for h in range(COUNT):
                s = last[b, h].T
                key, query = (x[t, h // (COUNT // HEADS)].astype(float) for x in (k, q))
                if g is not None:
                    s = s * np.exp(np.broadcast_to(g[t, h], (DEPTH,)))[:, None]
                new = v[t, h].astype(float)
                if beta is not None:
                    new = beta[t, h] * (new - s.T @ key)
                s = s + np.outer(key, new)
                result[t, h] = scale * s.T @ query
                last[b, h] = s.T
    return result, last


def _given() -> tuple[Array, ...]:
    q, k = floats(TOKENS, HEADS, DEPTH), floats(TOKENS, HEADS, DEPTH)
    return q, k, floats(TOKENS, COUNT, WIDTH), floats(3, COUNT, WIDTH, DEPTH)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("ragged", [False, True])
def test_rules(rule: str, ragged: bool) -> None:
    q, k, v, state = _given()
    g = -np.abs(floats(TOKENS, COUNT)) if "gated" in rule else None
    beta = sigmoid(floats(TOKENS, COUNT)) if "delta" in rule else None
    k = k / np.linalg.norm(k, axis=-1, keepdims=True)
    starts = STARTS if ragged else np.array([0, 3, 6, 9], np.int32)
    expected = _net(q, k, v, starts, g, beta, state, DEPTH**-0.5)
    inputs = [q, k, v, starts if ragged else None, g, beta, state]
    check_contrib("GatedDeltaNet", inputs, {"update_rule": rule}, expected, engine=False,
                  symbolic=False, tolerance="float: layers")  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
def test_activations_and_packed_inputs(packed: bool) -> None:
    q, k, v, state = _given()
    raw, rates, a_log, dt_bias = (
        floats(TOKENS, COUNT), floats(TOKENS, COUNT), floats(COUNT), floats(COUNT),
    )  # fmt: skip
    unit = [x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k)]
    g = -np.exp(a_log) * np.logaddexp(raw + dt_bias, 0)
    expected = _net(*unit, v, STARTS, g, sigmoid(rates), state, 0.7)
    joined = np.concatenate([x.reshape(TOKENS, -1) for x in (q, k, v)], 1)
    given = [joined, None, None] if packed else [q, k, v]
    inputs = [*given, STARTS, raw, rates, state, a_log, dt_bias]
    facts = {"qk_l2_norm": 1, "gate_activation": "qwen", "beta_activation": "sigmoid", "scale": 0.7}
    check_contrib("GatedDeltaNet", inputs, facts, expected, engine=False, symbolic=False,
                  tolerance="float: layers")  # fmt: skip


def test_a_decay_of_each_key_and_a_batch() -> None:
    q, k, v, state = _given()
    g = -np.abs(floats(TOKENS, COUNT, DEPTH))
    expected, last = _net(q, k, v, np.array([0, 3, 6, 9]), g, None, state, DEPTH**-0.5)
    inputs = [*(x.reshape(3, 3, *x.shape[1:]) for x in (q, k, v)), None,
              g.reshape(3, 3, COUNT, DEPTH), None, state]  # fmt: skip
    check_contrib("GatedDeltaNet", inputs, {"update_rule": "gated"},
                  [expected.reshape(3, 3, COUNT, WIDTH), last], engine=False, symbolic=False,
                  tolerance="float: layers")  # fmt: skip


def test_captures_are_refused() -> None:
    q, k, v, state = _given()
    with pytest.raises(NotImplemented, match="state_update_capacity"):
        check_contrib("GatedDeltaNet", [q, k, v, STARTS, None, None, state],
                      {"update_rule": "linear", "state_update_capacity": 1}, [None], engine=False,
                      symbolic=False)  # fmt: skip
