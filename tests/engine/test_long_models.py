"""Models of many nodes in a row, or of many operands: nothing calls itself for each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors, knobs
from sardonyx.ops.core import lower
from sardonyx.passes import infer
from tests.support.session import model_of

#: About what no target changes.
pytestmark = pytest.mark.once

Array = np.ndarray[Any, Any]


def chain(count: int, *nodes: str) -> str:
    """So many nodes, each of what the one before it gives (`@`), by turns these."""
    parts = [f"v{k + 1} = {nodes[k % len(nodes)].replace('@', f'v{k}')}" for k in range(count)]
    return f"v0 = Identity(x) {' '.join(parts)} y = Identity(v{count})"


def repeated(count: int, *steps: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def run(x: Array) -> Array:
        for k in range(count):
            x = steps[k % len(steps)](x)
        return x

    return run


def turned(x: Array) -> Array:
    return x[::-1]


X = np.float32([[1, -2], [3, 4]])
B = np.array([[True, False], [False, True]])
#: Nodes, and what they give for X; `i` and `j` are [1, 0].
CHAINS: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "numbers":
        (chain(700, "Neg(@)", "Abs(@)", "Relu(@)"), repeated(700, np.negative, np.abs, np.abs)),
    "two operands": (chain(700, "Add(@, x)"), repeated(700, lambda x: x + X)),
    "the same operand twice":
        (chain(700, "Max(@, @)", "Neg(@)"), repeated(700, lambda x: x, np.negative)),
    "choices":
        (chain(301, "Where(b, @, x)", "Neg(@)"),
         repeated(301, lambda x: np.where(B, x, X), np.negative)),
    "gathers": (chain(301, "Gather(@, i)"), repeated(301, turned)),
    "gathers and numbers":
        (chain(301, "Gather(@, i)", "Neg(@)"), repeated(301, turned, np.negative)),
    "views":
        (chain(301, "Transpose(@)", "Gather(@, j)"), repeated(301, np.transpose, turned)),
    "sums of rows":
        (chain(101, "Sub(@, x)", "ReduceMax<axes = [1]>(@)"),
         repeated(101, lambda x: x - X, lambda x: x.max(1, keepdims=True))),
}  # fmt: skip


@pytest.mark.parametrize("level", ["ORT_ENABLE_ALL", "ORT_DISABLE_ALL"])
@pytest.mark.parametrize("name", CHAINS)
def test_many_nodes_in_a_row(name: str, level: str) -> None:
    nodes, expected = CHAINS[name]
    text = f"""g (float[A, B] x, int64[2] i, bool[2, 2] b) => (float[C, D] y)
        <int64[2] j = {{1, 0}}> {{ {nodes} }}"""
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel[level]
    session = sardonyx.InferenceSession(model_of(text, opset=17).SerializeToString(), options)
    (found,) = session.run(None, {"x": X, "i": np.array([1, 0]), "b": B})
    np.testing.assert_array_equal(found, expected(X))


#: What reads what was made twice of the same operand (`@`), again and again.
READERS: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "as it is": ("Identity(@)", lambda v: v),
    "where it is chosen": ("Where(b, @, x)", lambda v: np.where(B, v, X)),
    "where it chooses": ("Where(h, x, g)", lambda v: np.where(v > 0, X, X[::-1])),
    "a sum": ("ReduceSum<keepdims = 0>(@)", np.sum),
    "a product": ("MatMul(@, x)", lambda v: v @ X),
    "turned": ("Transpose(@)", np.transpose),
    "gathered": ("Gather(@, j)", turned),
    "codes": ("DequantizeLinear(q, one, zero)", lambda v: np.clip(v, 0, 255)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["Max(@, @)", "And(@, @)", "Where(b, @, @)"])
def test_what_is_made_twice_of_one_operand(kind: str, reader: str) -> None:
    """What walks both operands each time does not come to an end."""
    count, is_logical = 120, kind.startswith("And")
    first = "l = Greater(x, zf) v0 = Identity(l)" if is_logical else "v0 = Identity(x)"
    nodes = chain(count, kind, "Not(@)" if is_logical else "Neg(@)").split(" y = ")[0]
    nodes = nodes.removeprefix("v0 = Identity(x)")
    node, expected = READERS[reader]
    text = f"""g (float[A, B] x, int64[2] i, bool[2, 2] b) => (float y)
        <int64[2] j = {{1, 0}}, float zf = {{0}}, float one = {{1}}, uint8 zero = {{0}}> {{
        {first} {nodes} w = Cast<to = 1>(v{count}) h = Greater(w, zf) g = Gather(x, i)
        q = QuantizeLinear(w, one, zero) y = {node.replace("@", "w")} }}"""
    made = model_of(text, opset=17)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.load_timeout_seconds", "30")
    session = sardonyx.InferenceSession(made.SerializeToString(), options)
    (found,) = session.run(None, {"x": X, "i": np.array([1, 0]), "b": B})
    # Sixty times each: signs and truth are what they were.
    np.testing.assert_array_equal(found, expected((X > 0).astype(np.float32) if is_logical else X))


def test_positions_that_are_made_twice_of_each_other() -> None:
    """What a choice leaves out is asked whether it reads memory: numbers alone do not."""
    nodes = chain(60, "Max(@, @)", "Neg(@)").split(" y = ")[0].removeprefix("v0 = Identity(x)")
    text = f"""g (float[N] x) => (float[M] y)
        <int64 zero = {{0}}, int64 one = {{1}}, float zf = {{0}}> {{
        s = Shape(x) n = Squeeze(s) r = Range(zero, n, one) v0 = Cast<to = 1>(r)
        {nodes} c = Greater(x, zf) y = Where(c, v60, x) }}"""
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.load_timeout_seconds", "30")
    session = sardonyx.InferenceSession(model_of(text, opset=17).SerializeToString(), options)
    (found,) = session.run(None, {"x": np.float32([5, -6, 7, 8])})
    assert found.tolist() == [0, -6, 2, 3]


def test_numbers_that_are_indices_of_each_other() -> None:
    text = f"""g (int64[K] x, int64[T] t) => (int64[K] y) {{ {chain(301, "Gather(t, @)")} }}"""
    session = sardonyx.InferenceSession(model_of(text, opset=17).SerializeToString())
    table, x = np.array([3, 0, 1, 2]), np.array([0, 2])
    (found,) = session.run(None, {"x": x, "t": table})
    np.testing.assert_array_equal(found, repeated(301, lambda v: table[v])(x))
    with pytest.raises(errors.IndexOutOfRange, match="index 4 "):
        session.run(None, {"x": x, "t": np.array([3, 0, 4, 2])})


def test_a_caller_who_is_deep_in_calls_himself() -> None:
    text = f"g (float[A, B] x) => (float[C, D] y) {{ {CHAINS['numbers'][0]} }}"
    written = model_of(text, opset=17).SerializeToString()

    def load(calls: int) -> sardonyx.InferenceSession:
        return load(calls - 1) if calls else sardonyx.InferenceSession(written)

    (found,) = load(sys.getrecursionlimit() // 2).run(None, {"x": X})
    np.testing.assert_array_equal(found, CHAINS["numbers"][1](X))


@pytest.mark.parametrize("count", [32, 33, 64, 65, 300, 1100])
def test_many_parts_in_a_row(count: int) -> None:
    parts = ", ".join("xz"[k % 3 == 1] for k in range(count))
    text = (
        f"g (float[A, B] x, float[C, B] z) => (float[D, B] y) {{ y = Concat<axis = 0>({parts}) }}"
    )
    session = sardonyx.InferenceSession(model_of(text, opset=17).SerializeToString())
    for rows in (1, 3, 0):
        z = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
        (found,) = session.run(None, {"x": X, "z": z})
        np.testing.assert_array_equal(
            found, np.concatenate([(X, z)[k % 3 == 1] for k in range(count)])
        )


@pytest.mark.parametrize("stage", [infer, lower])
def test_what_is_nested_too_deeply_is_named(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    apply = stage.apply

    def refuse(node: Any, *given: Any) -> Any:
        if node.op_type == "Cos":
            raise RecursionError
        return apply(node, *given)

    monkeypatch.setattr(stage, "apply", refuse)
    text = "g (float[N] x) => (float[N] y) { a = Sin(x) b = Cos(a) y = Neg(b) }"
    part = "node Cos_1.*nested too deeply.*sys.setrecursionlimit"
    with (
        knobs.override("SARDONYX_CACHE", "off"),
        pytest.raises(errors.InvalidGraph, match=part),
    ):
        sardonyx.InferenceSession(model_of(text, opset=17).SerializeToString())
