"""Sizes that many others add up to: work on them is linear in how many there are."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import integer, remembering, sizes
from sardonyx.loader.load import load
from sardonyx.passes.pipeline import optimise
from sardonyx.plan.serial import from_bytes, to_bytes
from tests.support.session import model_of
from tests.support.targets import TARGETS, compiled_for

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


#: What is done to slices of `x`, or to `x` where it is transposed, before they are joined along an
#: axis: a node in terms of slice `s` and constants `c`, those, and the same in NumPy.
JOINED: dict[str, tuple[int, str, Any, Any]] = {
    "nothing": (0, "", None, lambda x, k: x),
    "along rows": (1, "", None, lambda x, k: x),
    "Relu": (0, "Relu(s)", None, lambda x, k: np.maximum(x, 0)),
    "Pad": (
        0, "Pad(s, c)", lambda k: np.array([k % 3, 0, k % 2, 1]),
        lambda x, k: np.pad(x, ((k % 3, k % 2), (0, 1))),
    ),
    "edges": (
        0, 'Pad<mode = "edge">(s, c)', lambda k: np.array([k % 3, 0, 1, 0]),
        lambda x, k: np.pad(x, ((k % 3, 1), (0, 0)), "edge") if len(x) else x,
    ),
    "Tile": (
        0, "Tile(s, c)", lambda k: np.array([1 + k % 3, 1]), lambda x, k: np.tile(x, (1 + k % 3, 1))
    ),
    "Mul": (
        0, "Mul(s, c)", lambda k: np.array([k % 3], np.float32), lambda x, k: x * np.float32(k % 3)
    ),
    "Gather": (0, "Gather<axis = 1>(s, c)", lambda k: np.array([3, 0]), lambda x, k: x[:, [3, 0]]),
}  # fmt: skip


def joined(name: str, count: int) -> tuple[Any, Any]:
    """A model of so many parts, and what it gives for an input."""
    axis, node, constant, function = JOINED[name]
    weights: dict[str, Any] = {"ax": np.array([axis])}
    body, parts = "", []
    for k in range(count):
        weights |= {f"a{k}": np.array([k % 40]), f"b{k}": np.array([k % 40 + 2 + k % 3])}
        body += f" s{k} = Slice(x, a{k}, b{k}, ax)"
        if constant is not None:
            weights[f"c{k}"] = constant(k)
        if node:
            body += f" t{k} = {node.replace('(s', f'(s{k}').replace(', c)', f', c{k})')}"
        parts.append(f"t{k}" if node else f"s{k}")
    body += f" y = Concat<axis = {axis}>({', '.join(parts)})"
    shape = "[n,4]" if axis == 0 else "[4,n]"
    made = model_of(f"g (float{shape} x) => (float[m,w] y) {{ {body} }}", weights)

    def wanted(x: Any) -> Any:
        found = []
        for k in range(count):
            place = slice(k % 40, k % 40 + 2 + k % 3)
            found.append(function(x[place] if axis == 0 else x[:, place], k))
        return np.concatenate(found, axis)

    return made, wanted


@pytest.mark.parametrize("name", JOINED)
def test_many_parts_of_a_joined_tensor(name: str) -> None:
    made, wanted = joined(name, 70)
    session = sardonyx.InferenceSession(made.SerializeToString())
    for n in (10, 3, 50) if name != "edges" else (50, 60):
        x = rows(n) - 7
        x = x if JOINED[name][0] == 0 else np.ascontiguousarray(x.T)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted(x))


@pytest.mark.parametrize("name", [name for name in JOINED if name != "Gather"])
def test_parts_of_one_form_share_a_kernel(name: str) -> None:
    made, _ = joined(name, 80)
    names = [call.kernel for call in compiled_for(made, TARGETS["avx2"]).main.calls]
    assert len(names) == 80
    assert len(set(names)) <= 8


def test_the_work_on_sizes_is_linear_in_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    added: dict[int, int] = {}
    original = sizes.from_terms
    for count in (150, 300):
        terms = 0

        def counting(given: Any) -> Any:
            nonlocal terms
            terms += len(given)
            return original(given)

        made, _ = joined("nothing", count)
        remembering.forget()
        with monkeypatch.context() as patch:
            patch.setattr(sizes, "from_terms", counting)
            compiled_for(made, TARGETS["avx2"])
        added[count] = terms
    assert added[300] < 2.6 * added[150]


def test_a_stored_plan_is_linear_in_the_parts() -> None:
    length: dict[int, int] = {}
    for count in (150, 300):
        plan = compiled_for(joined("nothing", count)[0], TARGETS["avx2"]).main
        stored = to_bytes(plan)
        length[count] = len(stored)
        again = from_bytes(stored)
        assert again == plan
        assert len({id(command.origin) for command in again.calls}) == 1
    assert length[300] < 2.3 * length[150]


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
