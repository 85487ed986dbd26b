"""Products whose sums go in parts: long ones, of which a panel does not stay in a core's cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.kernel.matmul.contraction_schedule import DEEP, is_deep
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(12)


def _random_array(*shape: int, dtype: Any = np.float32) -> Any:
    return _random.standard_normal(shape).astype(dtype)


def _check(model: Any, feeds: dict[str, Any], wanted: Any, depth: int) -> None:
    """Values, and the same bits on any number of threads."""
    found = []
    for threads in (1, 2):
        options = sardonyx.SessionOptions()
        options.intra_op_num_threads = threads
        session = sardonyx.InferenceSession(model.SerializeToString(), options)
        found.append(session.run(None, feeds)[0])
    is_double = wanted.dtype == found[0].dtype == np.float64
    like = "double: deep sums" if is_double else "float: deep sums"
    assert_near(found[0], wanted, like, terms=depth)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "any"])
@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [(7, 4097, 8), (30, 5000, 70), (100, 12544, 64), (200, 4096 + 1024, 130), (391, 4500, 40)],
)
def test_constant_factor(rows: int, depth: int, columns: int, is_known: bool) -> None:
    text = f"""g (float[{rows if is_known else "n"}, {depth}] x) => (float[m, {columns}] y) {{
        a = MatMul(x, w) c = Add(a, b) y = Relu(c)
    }}"""
    x, w, b = _random_array(rows, depth), _random_array(depth, columns), _random_array(columns)
    wanted = np.maximum(x.astype(np.float64) @ w + b, 0)
    _check(model_of(text, {"w": w, "b": b}), {"x": x}, wanted, depth)


def test_rows_do_not_depend_on_others() -> None:
    text = "g (float[n, 6000] x) => (float[n, 48] y) { y = MatMul(x, w) }"
    session = sardonyx.InferenceSession(model_of(text, {"w": _random_array(6000, 48)}))
    x = _random_array(250, 6000)
    (whole,) = session.run(None, {"x": x})
    for part in (slice(0, 40), slice(190, 250), slice(97, 98)):
        np.testing.assert_array_equal(session.run(None, {"x": x[part]})[0], whole[part])


def test_factor_that_is_fed() -> None:
    text = "g (float[40, 5000] x, float[5000, 72] w) => (float[40, 72] y) { y = MatMul(x, w) }"
    x, w = _random_array(40, 5000), _random_array(5000, 72)
    _check(model_of(text), {"x": x, "w": w}, x.astype(np.float64) @ w, 5000)


def test_doubles() -> None:
    text = "g (double[40, 5000] x) => (double[40, 30] y) { y = MatMul(x, w) }"
    x, w = _random_array(40, 5000, dtype=np.float64), _random_array(5000, 30, dtype=np.float64)
    _check(model_of(text, {"w": w}), {"x": x}, x @ w, 5000)


def test_results_that_are_transposed() -> None:
    """Columns become planes: squares of sums are turned before they are stored."""
    text = """g (float[40, 5000] x) => (float[32, 40] y) {
        a = MatMul(x, w) b = Relu(a) y = Transpose<perm = [1, 0]>(b)
    }"""
    x, w = _random_array(40, 5000), _random_array(5000, 32)
    wanted = np.maximum(x.astype(np.float64) @ w, 0).T
    _check(model_of(text, {"w": w}), {"x": x}, wanted, 5000)


def test_flattened_image() -> None:
    """Rows are dense along channels and pixels together."""
    text = """g (float[n, 8, 24, 28] x) => (float[n, 20] y) {
        t = Relu(x) f = Flatten(t) y = Gemm<transB = 1>(f, w)
    }"""
    x, w = _random_array(33, 8, 24, 28), _random_array(20, 8 * 24 * 28)
    wanted = np.maximum(x.astype(np.float64), 0).reshape(33, -1) @ w.T
    _check(model_of(text, {"w": w}), {"x": x}, wanted, w.shape[1])


def test_infinities_and_nothing() -> None:
    text = "g (float[n, 5000] x) => (float[n, 48] y) { y = MatMul(x, w) }"
    session = sardonyx.InferenceSession(model_of(text, {"w": np.ones((5000, 48), np.float32)}))
    assert session.run(None, {"x": np.zeros((0, 5000), np.float32)})[0].shape == (0, 48)
    x = np.zeros((9, 5000), np.float32)
    x[2, 4999], x[5, 0] = np.inf, np.nan
    (y,) = session.run(None, {"x": x})
    assert np.isinf(y[2]).all() and np.isnan(y[5]).all()
    assert not y[[0, 1, 3, 4, 6, 7, 8]].any()


@pytest.mark.parametrize(
    ("depth", "rows", "deep"),
    [(DEEP, 100, False), (DEEP + 1, 100, True), (DEEP + 1, 7, True), (DEEP + 1, 6, False)],
)
def test_which_are_deep(depth: int, rows: int, deep: bool) -> None:
    assert is_deep(depth, rows) is deep
