"""Scans, selections and scatters through sessions, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.engine.networks import Net
from tests.support.tolerances import assert_near

_random = np.random.default_rng(11)


def _run(net: Net, inputs: dict[str, Any], outputs: list[str], feeds: dict[str, Any]) -> list[Any]:
    model = net.model(inputs, outputs, opset=18)
    return sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("k", [1, 3, 7])
def test_top_k(largest: int, axis: int, k: int) -> None:
    n = Net()
    count = n.constant(np.array([k], np.int64))
    names = n.add("TopK", "x", count, outputs=2, axis=axis, largest=largest)
    x = _random.integers(0, 9, (7, 11, 9)).astype(np.float32)  # many ties
    values, places = _run(n, {"x": ("f", ["A", "B", "C"])}, names, {"x": x})
    order = np.argsort(-x if largest else x, axis=axis, kind="stable").take(range(k), axis=axis)
    assert np.array_equal(places, order)
    assert np.array_equal(values, np.take_along_axis(x, order, axis))


def test_top_k_sorts_a_long_row() -> None:
    n = Net()
    names = n.add("TopK", "x", n.constant(np.array([5000], np.int64)), outputs=2)
    x = _random.standard_normal((2, 5000)).astype(np.float32)
    values, places = _run(n, {"x": ("f", ["A", 5000])}, names, {"x": x})
    assert np.array_equal(values, -np.sort(-x, axis=1))
    assert np.array_equal(np.take_along_axis(x, places, 1), values)


def test_top_k_of_one_tensor_with_two_counts() -> None:
    n = Net()
    counts = [n.constant(np.array([k], np.int64)) for k in (2, 5)]
    names = [name for c in counts for name in n.add("TopK", "x", c, outputs=2)]
    x = _random.standard_normal((3, 7)).astype(np.float32)
    got = _run(n, {"x": ("f", ["A", "B"])}, names, {"x": x})
    for (values, places), k in zip((got[:2], got[2:]), (2, 5), strict=True):
        assert np.array_equal(values, -np.sort(-x, axis=1)[:, :k])
        assert np.array_equal(np.take_along_axis(x, places, 1), values)


def test_top_k_of_too_few_is_an_error() -> None:
    n = Net()
    names = n.add("TopK", "x", n.constant(np.array([5], np.int64)), outputs=2)
    with pytest.raises((RuntimeError, ValueError)):
        _run(n, {"x": ("f", ["A", "B"])}, names, {"x": np.zeros((2, 3), np.float32)})


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_running_sum(reverse: int, exclusive: int, axis: int) -> None:
    n = Net()
    at = n.constant(np.array(axis, np.int64))
    name = n.add("CumSum", "x", at, reverse=reverse, exclusive=exclusive)
    x = _random.integers(-9, 9, (5, 8)).astype(np.float32)
    (got,) = _run(n, {"x": ("f", ["A", "B"])}, [name], {"x": x})
    walked = np.flip(x, axis) if reverse else x
    want = walked.cumsum(axis) - (walked if exclusive else 0)
    assert np.array_equal(got, np.flip(want, axis) if reverse else want)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_elements(reduction: str) -> None:
    n = Net()
    name = n.add("ScatterElements", "x", "at", "u", axis=1, reduction=reduction)
    x = _random.standard_normal((4, 6)).astype(np.float32)
    at = np.array([[1, -1], [0, 2], [5, -6]])
    u = _random.standard_normal(at.shape).astype(np.float32)
    inputs = {"x": ("f", ["A", "B"]), "at": ("i", ["C", "D"]), "u": ("f", ["C", "D"])}
    (got,) = _run(n, inputs, [name], {"x": x, "at": at, "u": u})
    reduce = {"none": lambda _, b: b, "add": np.add, "mul": np.multiply}
    reduce |= {"max": np.maximum, "min": np.minimum}
    want = x.copy()
    for place in np.ndindex(*at.shape):
        target = (place[0], at[place] % 6)
        want[target] = reduce[reduction](want[target], u[place])
    assert_near(got, want, "float: one operation")


@pytest.mark.parametrize("depth", [1, 2])
def test_scatter_nd_and_its_bounds(depth: int) -> None:
    n = Net()
    name = n.add("ScatterND", "x", "at", "u", reduction="add")
    x = _random.standard_normal((4, 6, 3)).astype(np.float32)
    at = np.array([[1, 2], [-1, 0], [1, 2]])[:, :depth]
    u = _random.standard_normal((3, *x.shape[depth:])).astype(np.float32)
    shape = ["K", *"EF"[: 3 - depth]]
    inputs = {"x": ("f", ["A", "B", "C"]), "at": ("i", ["K", depth]), "u": ("f", shape)}
    (got,) = _run(n, inputs, [name], {"x": x, "at": at, "u": u})
    want = x.copy()
    for k, place in enumerate(at):
        want[tuple(place)] += u[k]
    assert_near(got, want, "float: one operation")
    with pytest.raises(RuntimeError, match="index 9 is out of range"):
        _run(n, inputs, [name], {"x": x, "at": np.full_like(at, 9), "u": u})
