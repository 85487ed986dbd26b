"""TopK through sessions, against a stable NumPy sort."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx

_random = np.random.default_rng(5)


def _session(
    kind: type | np.dtype[Any],
    shape: list[int | str],
    k: int | str,
    outputs: tuple[str, str] = ("values", "places"),
    **attributes: int,
) -> sardonyx.InferenceSession:
    """TopK of x; k a number, or the name of a dimension of a second input `like` (K,)."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    inputs = [helper.make_tensor_value_info("x", element, shape)]
    nodes, weights = [], []
    if isinstance(k, int):
        weights = [numpy_helper.from_array(np.array([k], np.int64), "k")]
    else:
        inputs.append(helper.make_tensor_value_info("like", TensorProto.FLOAT, [k]))
        nodes = [helper.make_node("Shape", ["like"], ["k"])]
    nodes.append(helper.make_node("TopK", ["x", "k"], list(outputs), **attributes))
    wanted = [helper.make_empty_tensor_value_info(n) for n in outputs if n]
    graph = helper.make_graph(nodes, "top_k", inputs, wanted, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    model.ir_version = 10
    return sardonyx.InferenceSession(model.SerializeToString())


def _expected(x: Any, k: int, axis: int, largest: int) -> tuple[Any, Any]:
    if largest:
        backwards = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        order = x.shape[axis] - 1 - backwards
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    order = order.take(range(k), axis=axis)
    return np.take_along_axis(x, order, axis), order


def _check(session: sardonyx.InferenceSession, x: Any, k: int, axis: int, largest: int) -> None:
    values, places = session.run(None, {"x": x})
    wanted, order = _expected(x, k, axis, largest)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, wanted)
    assert values.dtype == x.dtype
    assert places.dtype == np.int64


@pytest.mark.parametrize("sort", [0, 1])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axes_at_three_sizes(axis: int, largest: int, sort: int) -> None:
    session = _session(np.float32, ["A", "B", "C"], 3, axis=axis, largest=largest, sorted=sort)
    for shape in [(3, 5, 4), (40, 33, 3), (4, 20, 71)]:
        x = _random.integers(0, 9, shape).astype(np.float32)  # many ties
        _check(session, x, 3, axis, largest)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(
    "kind",
    [
        np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.int8, np.int16, np.int32,
        np.int64, np.uint8, np.uint16, np.uint32, np.uint64,
    ],
    ids=lambda kind: np.dtype(kind).name,
)  # fmt: skip
@pytest.mark.parametrize("k", [2, 37])
def test_types(kind: Any, k: int, largest: int) -> None:
    integral = np.dtype(kind).kind in "iu"
    x = np.asarray(_random.integers(-60, 60, (3, 61)) / (1 if integral else 8)).astype(kind)
    if integral:
        limits = np.iinfo(kind)
        x[0, :4] = [limits.max, limits.min, limits.max, limits.max - 1]
    _check(_session(kind, ["N", "M"], k, largest=largest), x, k, 1, largest)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_zeros_infinities_and_nans(kind: Any, k: int, largest: int) -> None:
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1.5], kind)
    x = special[_random.integers(0, len(special), (6, 40))]
    _check(_session(kind, ["N", "M"], k, largest=largest), x, k, 1, largest)


@pytest.mark.parametrize(("length", "k"), [(1, 1), (10_000, 10_000), (10_001, 64), (10_000, 0)])
def test_long_rows(length: int, k: int) -> None:
    x = _random.standard_normal((2, length)).astype(np.float32)
    _check(_session(np.float32, ["N", length], k), x, k, 1, 1)


def test_symbolic_k() -> None:
    session = _session(np.float32, ["N", "M"], "K")
    for k in (1, 4, 30):
        x = _random.standard_normal((3, 30)).astype(np.float32)
        values, places = session.run(None, {"x": x, "like": np.zeros(k, np.float32)})
        wanted, order = _expected(x, k, 1, 1)
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, wanted)
    with pytest.raises(RuntimeError, match="index 31 is out of range for an axis of size 30"):
        session.run(None, {"x": x, "like": np.zeros(31, np.float32)})


@pytest.mark.parametrize(("outputs", "number"), [(("values", ""), 0), (("", "places"), 1)])
def test_one_output(outputs: tuple[str, str], number: int) -> None:
    x = _random.standard_normal((3, 30)).astype(np.float32)
    (got,) = _session(np.float32, ["N", "M"], 4, outputs).run(None, {"x": x})
    np.testing.assert_array_equal(got, _expected(x, 4, 1, 1)[number])


def test_no_rows() -> None:
    values, places = _session(np.float32, ["N", "M"], 2).run(
        None, {"x": np.zeros((0, 5), np.float32)}
    )
    assert values.shape == places.shape == (0, 2)
