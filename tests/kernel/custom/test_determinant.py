"""Determinants through sessions, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph
from tests.support.ops import check_op
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(5)

#: Element type of the model, of NumPy, tolerance.
_KINDS = [
    ("float", np.float32, "float: sums"),
    ("double", np.float64, "double: sums"),
    ("float16", np.float16, "half: two roundings"),
]


def _det(x: Any) -> Any:
    with np.errstate(over="ignore"):  # of half floats
        return np.linalg.det(x.astype(np.float64)).astype(x.dtype)


@pytest.mark.parametrize("name, dtype, like", _KINDS)
def test_determinants(name: str, dtype: Any, like: str) -> None:
    """One session at many shapes, matrices of no elements among them."""
    model = model_of(f"g ({name}[N,K,K] x) => ({name}[N] y) {{ y = Det(x) }}", opset=22)
    session = sardonyx.InferenceSession(model.SerializeToString())
    for shape in ((3, 1, 1), (5, 2, 2), (2, 3, 3), (7, 9, 9), (1, 37, 37), (2, 0, 0), (0, 4, 4)):
        x = (_random.standard_normal(shape) / 2).astype(dtype)
        got = session.run(None, {"x": x})[0]
        assert got.dtype == dtype
        assert_near(got, _det(x), like)


def test_pivots() -> None:
    """Zeros on the diagonal, permutations of either sign, singular matrices, not a number."""
    swap, cycle = np.eye(4)[[1, 0, 2, 3]], np.eye(4)[[1, 2, 0, 3]]
    singular, unknown = np.ones((4, 4)), np.eye(4)
    unknown[2, 1] = np.nan
    zero = np.zeros((4, 4))
    x = np.stack([swap, cycle, singular, zero, unknown]).astype(np.float32)
    model = model_of("g (float[2,N,4,4] x) => (float[2,N] y) { y = Det(x) }", opset=11)
    session = sardonyx.InferenceSession(model.SerializeToString())
    got = session.run(None, {"x": np.stack([x, x * 2])})[0]
    np.testing.assert_array_equal(got[0], [-1, 1, 0, 0, np.nan])
    np.testing.assert_array_equal(got[1], [-16, 16, 0, 0, np.nan])


def test_views() -> None:
    """Operands that are not where they look: transposed, and every second row."""
    model = model_of(
        "g (float[K,N,K] x) => (float[N] y) { t = Transpose<perm = [1, 2, 0]>(x) y = Det(t) }",
        opset=22,
    )
    session = sardonyx.InferenceSession(model.SerializeToString())
    x = _random.standard_normal((5, 3, 5)).astype(np.float32)
    want = _det(x.transpose(1, 2, 0))
    assert_near(session.run(None, {"x": x})[0], want, "float: functions")


def test_evaluator_and_refusals() -> None:
    x = _random.standard_normal((2, 3, 3)).astype(np.float32)
    check_op("Det", [x], {}, 22, expected=[_det(x)])
    for bad, text in ((x[0, 0], "Matrices are needed"), (x[:, :2], "not square")):
        with pytest.raises(InvalidGraph, match=text):
            check_op("Det", [bad], {}, 22, expected=[], symbolic=False)
