"""Sizes that many others add up to: work on them is linear in how many there are."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import integer
from sardonyx.loader.load import load
from sardonyx.passes.pipeline import optimise
from tests.support.session import model_of

#: About what no target changes.
pytestmark = pytest.mark.once

COUNTS = (10, 3, 0, 50)


def rows(count: int) -> Any:
    return np.arange(4 * count, dtype=np.float32).reshape(count, 4)


def slices(count: int) -> Any:
    """Slices of a free axis, joined."""
    weights: dict[str, Any] = {"ax": np.array([0])}
    body = ""
    for k in range(count):
        weights |= {f"a{k}": np.array([k]), f"b{k}": np.array([k + 3])}
        body += f" s{k} = Slice(x, a{k}, b{k}, ax)"
    parts = ", ".join(f"s{k}" for k in range(count))
    body += f" y = Concat<axis = 0>({parts})"
    return model_of(f"g (float[n,4] x) => (float[m,4] y) {{ {body} }}", weights)


@pytest.mark.parametrize("count", [24])
def test_slices_of_a_free_axis_joined(count: int) -> None:
    start = time.process_time()
    session = sardonyx.InferenceSession(slices(count).SerializeToString())
    assert time.process_time() - start < 30  # without symbols for sums some minutes
    for n in COUNTS:
        x = rows(n)
        wanted = np.concatenate([x[k : k + 3] for k in range(count)])
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted)


def test_their_sum_is_short() -> None:
    graph = load(slices(40).SerializeToString())
    optimise(graph)
    (size, _) = graph.outputs[0].shape or ()
    assert integer.weight(size) <= 24


def test_tensors_of_many_sizes_joined_and_cut_again() -> None:
    count = 16
    inputs = ", ".join(f"float[n{k},2] x{k}" for k in range(count))
    parts = ", ".join(f"x{k}" for k in range(count))
    body = f"j = Concat<axis = 0>({parts}) y = Neg(j) d = Sub(j, y) z = ReduceSum<keepdims = 0>(d)"
    made = model_of(f"g ({inputs}) => (float[m,2] y, float z) {{ {body} }}")
    session = sardonyx.InferenceSession(made.SerializeToString())
    for more in (0, 1):
        feeds = {f"x{k}": np.full((k % 4 + more, 2), k, np.float32) for k in range(count)}
        joined = np.concatenate(list(feeds.values()))
        y, z = session.run(None, feeds)
        np.testing.assert_array_equal(y, -joined)
        assert z == 2 * joined.sum()


def test_a_tensor_that_grows_again_and_again() -> None:
    body, last, count = "", "x0", 24
    for k in range(1, count):
        body += f" t{k} = Concat<axis = 0>({last}, x{k % 5}) r{k} = Relu(t{k})"
        last = f"r{k}"
    inputs = ", ".join(f"float[n{k},2] x{k}" for k in range(5))
    made = model_of(f"g ({inputs}) => (float[m,2] y) {{ {body} y = Identity({last}) }}")
    session = sardonyx.InferenceSession(made.SerializeToString())
    feeds = {f"x{k}": np.full((k, 2), k - 1, np.float32) for k in range(5)}
    wanted = np.maximum(np.concatenate([feeds[f"x{k % 5}"] for k in range(count)]), 0)
    np.testing.assert_array_equal(session.run(None, feeds)[0], wanted)


def minima(x: Any, count: int) -> Any:
    for k in range(count):
        x = (np.maximum(x, 5 + k), np.minimum(x, 5 + k), x + 5 + k)[k % 3]
    return x


def clipped(x: Any, count: int) -> Any:
    for k in range(count):
        x = np.clip(x, 2, 100 + k) + 1
    return x


def replaced(x: Any, count: int) -> Any:
    for k in range(count):
        x = np.where(x == k, x + 1, x)
    return x


#: Nodes of each step (`@` is what was before, `k` its number), and the same in NumPy.
CHAINS: dict[str, tuple[tuple[str, ...], Any]] = {
    "Max, Min, Add": (("Max(@, ck)", "Min(@, ck)", "Add(@, ck)"), minima),
    "Clip": (("Clip(@, two, hk) w# = Add(t#, one)",), clipped),
    "Where": (("Equal(@, ik) u# = Add(@, one) w# = Where(t#, u#, @)",), replaced),
}


@pytest.mark.parametrize("name", CHAINS)
def test_long_arithmetic_on_sizes(name: str) -> None:
    nodes, function = CHAINS[name]
    count, last, body = 200, "s", "s = Shape(x)"
    weights: dict[str, Any] = {"one": np.array([1]), "two": np.array(2)}
    for k in range(count):
        weights |= {f"c{k}": np.array([5 + k]), f"h{k}": np.array(100 + k), f"i{k}": np.array([k])}
        node = nodes[k % len(nodes)].replace("@", last).replace("#", str(k))
        for letter in "chi":
            node = node.replace(f"{letter}k", f"{letter}{k}")
        body += f" t{k} = {node}"
        last = f"w{k}" if "w" in node else f"t{k}"
    made = model_of(
        f"g (float[n] x) => (float[m] y) {{ {body} y = ConstantOfShape({last}) }}", weights
    )
    session = sardonyx.InferenceSession(made.SerializeToString())
    for n in (1, 7, 300):
        (wanted,) = function(np.array([n]), count)
        assert session.run(None, {"x": np.ones(n, np.float32)})[0].shape == (wanted,)
