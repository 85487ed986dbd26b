"""Unique against NumPy: every output, both orders, all kinds of elements, several sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import sardonyx

_random = np.random.default_rng(21)
_NAN = float("nan")


def _session(dtype: Any, rank: int, **attributes: Any) -> sardonyx.InferenceSession:
    kind = 8 if dtype is str else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = helper.make_tensor_value_info("x", kind, [f"D{k}" for k in range(rank)])
    names = ["y", "first", "group", "counts"]
    node = helper.make_node("Unique", ["x"], names, **attributes)
    outputs = [helper.make_empty_tensor_value_info(n) for n in names]
    graph = helper.make_graph([node], "unique", [x], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return sardonyx.InferenceSession(model.SerializeToString())


def _expected(x: Any, axis: int | None, is_sorted: int) -> list[Any]:
    y, first, group, counts = np.unique(x, True, True, True, axis=axis)
    group = group.reshape(-1)
    if is_sorted:
        return [y, first, group, counts]
    order = np.argsort(first)
    place = np.argsort(order)
    return [y.take(order, axis or 0), first[order], place[group], counts[order]]


def _check(session: sardonyx.InferenceSession, x: Any, axis: int | None, is_sorted: int) -> None:
    got = session.run(None, {"x": x})
    for mine, theirs in zip(got, _expected(x, axis, is_sorted), strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_array_equal(mine, theirs)
    assert [a.dtype for a in got[1:]] == [np.int64] * 3
    assert got[0].dtype == x.dtype


_TYPES = (np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint64, np.bool_)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("is_sorted", [0, 1])
def test_elements(dtype: Any, is_sorted: int) -> None:
    session = _session(dtype, 2, sorted=is_sorted)
    for shape in ((3, 4), (1, 1), (0, 5), (40, 30), (3, 4)):
        x = (_random.integers(-3, 4, shape) * 50).astype(dtype)
        _check(session, x, None, is_sorted)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("is_sorted", [0, 1])
def test_slices(axis: int, is_sorted: int) -> None:
    session = _session(np.float32, 3, axis=axis, sorted=is_sorted)
    for shape in ((4, 3, 2), (1, 1, 1), (60, 50, 2), (9, 2, 40)):
        x = _random.integers(0, 2, shape).astype(np.float32)
        _check(session, x, axis, is_sorted)
    session = _session(np.bool_, 2, axis=0, sorted=is_sorted)
    _check(session, _random.random((20, 3)) < 0.5, 0, is_sorted)


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_special_numbers(is_sorted: int) -> None:
    x = np.array([_NAN, 1, -0.0, 0.0, np.inf, _NAN, -np.inf, 1, _NAN], np.float32)
    _check(_session(np.float32, 1, sorted=is_sorted), x, None, is_sorted)
    rows = np.array([[_NAN, 1], [0, 1], [_NAN, 1], [-0.0, 1], [0, _NAN]], np.float32)
    _check(_session(np.float32, 2, axis=0, sorted=is_sorted), rows, 0, is_sorted)
    big = np.array([2**63 + 5, 7, 2**64 - 1, 7, 2**63 + 5], np.uint64)
    _check(_session(np.uint64, 1, sorted=is_sorted), big, None, is_sorted)


def test_half_floats_of_another_kind() -> None:
    x = np.array([2, 1, 2, -1, 0.5], ml_dtypes.bfloat16)
    y, first, group, counts = _session(ml_dtypes.bfloat16, 1).run(None, {"x": x})
    assert y.astype(float).tolist() == [-1, 0.5, 1, 2]
    assert (first.tolist(), group.tolist()) == ([3, 4, 1, 0], [3, 2, 3, 0, 1])
    assert counts.tolist() == [1, 1, 1, 2]


@pytest.mark.parametrize("axis", [None, 0])
def test_strings(axis: int | None) -> None:
    given = {} if axis is None else {"axis": axis}
    session = _session(str, 2, **given)
    x = np.array([["b", "é"], ["", "a"], ["b", "é"], ["b", "a"]], object)
    y, first, group, counts = session.run(None, {"x": x})
    if axis is None:
        assert y.tolist() == ["", "a", "b", "é"]
        assert first.tolist() == [2, 3, 0, 1]
        assert group.tolist() == [2, 3, 0, 1, 2, 3, 2, 1]
        assert counts.tolist() == [1, 2, 3, 2]
    else:
        assert y.tolist() == [["", "a"], ["b", "a"], ["b", "é"]]
        assert (first.tolist(), group.tolist()) == ([1, 3, 0], [2, 0, 2, 1])
        assert counts.tolist() == [1, 1, 2]
