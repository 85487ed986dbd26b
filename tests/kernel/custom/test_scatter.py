"""ScatterElements and ScatterND through sessions, against loops over NumPy arrays."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx

_random = np.random.default_rng(6)
_NAMES = ("x", "at", "u")
_COMBINE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
_KINDS = [
    np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.int8, np.int32, np.int64, np.uint8,
    np.uint64, np.bool_,
]  # fmt: skip


def _session(
    op: str, kind: Any, shapes: list[list[int | str]], swap: bool = False, **attributes: Any
) -> sardonyx.InferenceSession:
    """One scatter; with `swap` of transposed operands."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    elements = (element, TensorProto.INT64, element)
    inputs = [
        helper.make_tensor_value_info(n, e, s)
        for n, e, s in zip(_NAMES, elements, shapes, strict=True)
    ]
    nodes, names = [], list(_NAMES)
    if swap:
        nodes = [helper.make_node("Transpose", [n], [f"{n}.t"], perm=[1, 0]) for n in names]
        names = [f"{n}.t" for n in names]
    nodes.append(helper.make_node(op, names, ["y"], **attributes))
    graph = helper.make_graph(nodes, "scatter", inputs, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    return sardonyx.InferenceSession(model.SerializeToString())


def _put(result: Any, target: Any, value: Any, reduction: str) -> None:
    if reduction == "none":
        result[target] = value
    else:
        result[target] = _COMBINE[reduction](result[target], value)


def _elements(x: Any, at: Any, u: Any, axis: int, reduction: str) -> Any:
    result = x.copy()
    for place in np.ndindex(*at.shape):
        target = list(place)
        target[axis] = at[place]
        _put(result, tuple(target), u[place], reduction)
    return result


def _tuples(x: Any, at: Any, u: Any, reduction: str) -> Any:
    result = x.copy()
    for place in np.ndindex(*at.shape[:-1]):
        _put(result, tuple(at[place]), u[place], reduction)
    return result


def _values(shape: tuple[int, ...], kind: Any) -> Any:
    """Small numbers, so that halves are exact."""
    if kind is np.bool_:
        return _random.integers(0, 2, shape).astype(bool)
    low = 0 if np.dtype(kind).kind == "u" else -3
    return np.asarray(_random.integers(low, 4, shape)).astype(kind)


def _run(session: sardonyx.InferenceSession, x: Any, at: Any, u: Any) -> Any:
    (got,) = session.run(None, {"x": x, "at": at, "u": u})
    assert got.dtype == x.dtype
    return got


def _rank(rank: int, letters: str = "ABCD") -> list[int | str]:
    return list(letters[:rank])


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_at_three_sizes(axis: int, reduction: str) -> None:
    session = _session(
        "ScatterElements", np.float32, [_rank(3), _rank(3, "EFG"), _rank(3, "EFG")],
        axis=axis, reduction=reduction,
    )  # fmt: skip
    for shape, part in [
        ((2, 3, 4), (2, 2, 3)),
        ((5, 4, 33), (5, 4, 33)),
        ((3, 2, 700), (1, 1, 650)),
    ]:
        x, u = _values(shape, np.float32), _values(part, np.float32)
        at = _random.integers(-shape[axis], shape[axis], part)
        want = _elements(x, at, u, axis, reduction)
        np.testing.assert_array_equal(_run(session, x, at, u), want)


#: All types are moved and added; what else is computed has a type of each kind.
_FEW_KINDS = [k for k in _KINDS if np.dtype(k).name in ("float32", "float16", "int64", "uint8")]
_REDUCED = [
    *((kind, reduction) for kind in _KINDS for reduction in ("none", "add")),
    *((kind, reduction) for kind in _FEW_KINDS for reduction in ("mul", "min", "max")),
]


@pytest.mark.parametrize(("kind", "reduction"), _REDUCED)
def test_types(kind: Any, reduction: str) -> None:
    x = _values((6, 21), kind)
    at = _random.integers(-6, 6, (8, 1))
    for axis in (0, 1):
        part = (8, 20) if axis == 0 else (6, 30)
        places, u = _random.integers(-6, 6, part), _values(part, kind)
        session = _session(
            "ScatterElements", kind, [_rank(2), _rank(2, "EF"), _rank(2, "EF")],
            axis=axis, reduction=reduction,
        )  # fmt: skip
        want = _elements(x, places, u, axis, reduction)
        np.testing.assert_array_equal(_run(session, x, places, u), want)
    u = _values((8, 21), kind)
    session = _session("ScatterND", kind, [_rank(2), ["N", 1], ["N", "B"]], reduction=reduction)
    np.testing.assert_array_equal(_run(session, x, at, u), _tuples(x, at, u, reduction))


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_tuples_at_three_sizes(depth: int, reduction: str) -> None:
    u_shape: list[int | str] = ["M", "N", *_rank(3)[depth:]]
    session = _session(
        "ScatterND", np.float32, [_rank(3), ["M", "N", depth], u_shape], reduction=reduction
    )
    # The last is large enough for several blocks.
    for shape, count in [((2, 3, 4), (2, 3)), ((5, 4, 33), (1, 40)), ((70, 61, 67), (3, 9))]:
        x = _values(shape, np.float32)
        at = np.stack([_random.integers(-d, d, count) for d in shape[:depth]], -1)
        u = _values((*count, *shape[depth:]), np.float32)
        np.testing.assert_array_equal(_run(session, x, at, u), _tuples(x, at, u, reduction))


@pytest.mark.parametrize("swap", [False, True])
def test_fixed_shapes_and_transposed_operands(swap: bool) -> None:
    x, at = _values((20, 37), np.float32), _random.integers(-20, 20, (9, 36))
    u = _values((9, 36), np.float32)
    shapes: list[list[int | str]] = [[20, 37], [9, 36], [9, 36]]
    axis = 1 if swap else 0
    session = _session("ScatterElements", np.float32, shapes, swap, axis=axis, reduction="add")
    want = _elements(x, at, u, 0, "add")
    np.testing.assert_array_equal(_run(session, x, at, u), want.T if swap else want)
    places = _random.integers(-(37 if swap else 20), 20, (1, 5) if swap else (5, 1))
    u = _values((20, 5) if swap else (5, 37), np.float32)
    shapes = [[20, 37], list(places.shape), list(u.shape)]
    session = _session("ScatterND", np.float32, shapes, swap)
    want = _tuples(*(a.T if swap else a for a in (x, places, u)), "none")
    np.testing.assert_array_equal(_run(session, x, places, u), want)


@pytest.mark.parametrize("index", [4, -5, 1 << 40])
@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("columns", [3, 0])
def test_indices_outside_are_errors(op: str, index: int, columns: int) -> None:
    x = np.zeros((4, 3), np.float32)
    at = np.array([[0], [index]])
    tuples = op == "ScatterND"
    u = np.ones((2, columns) if tuples else (2, 1), np.float32)
    x = x[:, :columns] if tuples else x
    shapes = [["A", "B"], ["N", 1], ["N", "B" if tuples else 1]]
    with pytest.raises(RuntimeError, match=f"index {index} is out of range for an axis of size 4"):
        _run(_session(op, np.float32, shapes), x, at, u)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (4, 3)])
def test_no_updates(shape: tuple[int, int]) -> None:
    x, at = _values(shape, np.float32), np.zeros((0, 1), np.int64)
    shapes = [_rank(2), ["N", 1], ["N", 1]]
    session = _session("ScatterElements", np.float32, shapes)
    np.testing.assert_array_equal(_run(session, x, at, np.zeros((0, 1), np.float32)), x)
    session = _session("ScatterND", np.float32, [_rank(2), ["N", 1], ["N", "B"]])
    np.testing.assert_array_equal(_run(session, x, at, np.zeros((0, shape[1]), np.float32)), x)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_updates_are_applied_in_order(op: str) -> None:
    x = np.zeros(3, np.float32)
    at = np.array([1, 1, -2, 0])
    u = np.array([5, 6, 7, 8], np.float32)
    tuples = op == "ScatterND"
    session = _session(op, np.float32, [["A"], ["N", 1] if tuples else ["N"], ["N"]])
    got = _run(session, x, at[:, None] if tuples else at, u)
    np.testing.assert_array_equal(got, [8, 7, 0])
