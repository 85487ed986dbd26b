"""Long float sums are within 1e-6 of the sum of magnitudes, whatever is summed.

`.ci/run` runs these tests for each instruction set that the machine has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

import sardonyx

#: Of the sum of magnitudes.
BOUND = 1e-6
_RANDOM = np.random.default_rng(3)

#: What is summed: equal numbers round the same way each time.
FILLS: dict[str, Callable[[tuple[int, ...]], Any]] = {
    "equal": lambda shape: np.full(shape, 0.1, np.float32),
    "positive": lambda shape: _RANDOM.random(shape, np.float32),
    "of both signs": lambda shape: _RANDOM.standard_normal(shape, np.float32),
}

#: Of float64 to the result, and to what its error is a part of.
_OPERATORS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "ReduceSum": lambda x, a: (x.sum(a), abs(x).sum(a)),
    "ReduceMean": lambda x, a: (x.mean(a), abs(x).mean(a)),
    "ReduceL1": lambda x, a: (abs(x).sum(a), abs(x).sum(a)),
    "ReduceL2": lambda x, a: ((x**2).sum(a) ** 0.5,) * 2,
    "ReduceSumSquare": lambda x, a: ((x**2).sum(a),) * 2,
    "ReduceLogSumExp": lambda x, a: (np.log(np.exp(x).sum(a)), 1 + 0 * x.sum(a)),
}

#: Sizes and which of them are summed: whole tensors, first, middle and last axes, and several.
SHAPES = [
    ((700_000,), (0,)),
    ((20, 30, 1_000), (0, 1, 2)),
    ((90_000, 8), (0,)),
    ((90_000, 5), (0,)),
    ((3, 60_000, 5), (1,)),
    ((3, 2, 300, 301), (2, 3)),
    ((40, 7, 2_000), (0, 2)),
    ((5, 3_001), (1,)),
]


def _session(
    node: Any, sizes: list[Any], weights: dict[str, Any], kind: int = 1
) -> sardonyx.InferenceSession:
    inputs = [helper.make_tensor_value_info("x", kind, sizes)]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    wanted = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph([node], "sums", inputs, wanted, constants)
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return sardonyx.InferenceSession(model.SerializeToString())


def _sizes(shape: tuple[int, ...], is_known: bool) -> list[Any]:
    return list(shape) if is_known else [f"n{k}" for k in range(len(shape))]


def _check(got: Any, wanted: Any, of: Any, bound: float = BOUND) -> None:
    assert got.shape == wanted.shape
    assert (np.abs(got.astype(np.float64) - wanted) / of).max() <= bound


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "any"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_reductions(shape: tuple[int, ...], axes: tuple[int, ...], is_known: bool) -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    session = _session(node, _sizes(shape, is_known), {"axes": np.array(axes)})
    for fill in FILLS.values():
        x = fill(shape)
        _check(session.run(None, {"x": x})[0], *_OPERATORS["ReduceSum"](np.float64(x), axes))


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("operator", _OPERATORS)
def test_operators(operator: str, fill: str) -> None:
    node = helper.make_node(operator, ["x", "axes"], ["y"], keepdims=0)
    session = _session(node, ["n", "m"], {"axes": np.array([1])})
    x = FILLS[fill]((2, 300_000))
    _check(session.run(None, {"x": x})[0], *_OPERATORS[operator](np.float64(x), 1))


def test_twenty_million() -> None:
    """One after the other in float32, these are 0.2 of the sum off; in runs of 128, 1.7e-4."""
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    x = np.full(20_000_000, 0.1, np.float32)
    (got,) = _session(node, ["n"], {}).run(None, {"x": x})
    np.testing.assert_allclose(got, float(x[0]) * x.size, rtol=BOUND)


@pytest.mark.parametrize("fill", FILLS)
def test_means_of_images_and_norms(fill: str) -> None:
    x = FILLS[fill]((2, 3, 400, 500))
    wide = np.float64(x)
    mean = wide.mean((2, 3), keepdims=True)
    (got,) = _session(
        helper.make_node("GlobalAveragePool", ["x"], ["y"]), ["n", "c", "h", "w"], {}
    ).run(None, {"x": x})
    _check(got, mean, abs(wide).mean((2, 3), keepdims=True))
    scale = {"s": np.ones(3, np.float32), "b": np.zeros(3, np.float32)}
    node = helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=1e-2)
    (got,) = _session(node, ["n", "c", "h", "w"], scale).run(None, {"x": x})
    deviation = (wide.var((2, 3), keepdims=True) + 1e-2) ** 0.5
    _check(got, (wide - mean) / deviation, 1 + abs(wide).max() / deviation)


@pytest.mark.parametrize("fill", FILLS)
def test_denominators(fill: str) -> None:
    x = FILLS[fill]((1, 400_000))
    (got,) = _session(helper.make_node("Softmax", ["x"], ["y"], axis=1), ["n", "m"], {}).run(
        None, {"x": x}
    )
    power = np.exp(np.float64(x) - x.max())
    assert abs(got.sum(dtype=np.float64) - 1) <= BOUND
    _check(got, power / power.sum(), power / power.sum())


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("fill", FILLS)
def test_running_sums(fill: str, axis: int, exclusive: int, reverse: int) -> None:
    """In float32 one after the other, equal numbers drift by 1e-3 here."""
    shape = (100_000, 9) if axis == 0 else (2, 200_000)
    node = helper.make_node("CumSum", ["x", "a"], ["y"], exclusive=exclusive, reverse=reverse)
    x = FILLS[fill](shape)
    (got,) = _session(node, ["n", "m"], {"a": np.array(axis)}).run(None, {"x": x})
    _check(got, *_running(np.float64(x), axis, exclusive, reverse))


def _running(x: Any, axis: int, exclusive: int, reverse: int) -> tuple[Any, Any]:
    x = np.flip(x, axis) if reverse else x
    sums = []
    for terms in (x, abs(x)):
        total = np.cumsum(terms, axis)
        total = total - terms if exclusive else total
        sums.append(np.flip(total, axis) if reverse else total)
    return sums[0], np.maximum(sums[1], 1e-3)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running_sums_of_half_floats(kind: Any, exclusive: int) -> None:
    """Results are rounded, not what the sum goes on from."""
    x = np.full((1, 30_000), 0.1, np.float32).astype(kind)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    node = helper.make_node("CumSum", ["x", "a"], ["y"], exclusive=exclusive)
    (got,) = _session(node, ["n", "m"], {"a": np.array(1)}, element).run(None, {"x": x})
    wanted, of = _running(np.float64(x), 1, exclusive, 0)
    _check(got, wanted, of, float(ml_dtypes.finfo(kind).eps) * 0.5001)


def test_infinities_and_nan_stay() -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    session = _session(node, ["n", "m"], {"axes": np.array([1])})
    x = np.ones((5, 5_000), np.float32)
    x[0, 77], x[1, 4_999], x[2, [3, 900]], x[3, 2_000] = np.inf, -np.inf, [np.inf, -np.inf], np.nan
    (got,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(got, np.array([np.inf, -np.inf, np.nan, np.nan, 5_000.0]))
