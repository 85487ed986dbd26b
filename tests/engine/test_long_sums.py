"""Sums of many products are added up in parts: their errors do not grow with their length."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from tests.support.session import model_of

_RANDOM = np.random.default_rng(11)


def _relative_error(got: np.ndarray, want: np.ndarray) -> float:
    return float((np.abs(got - want) / np.abs(want)).mean())


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(7, 20_000, 70), (1, 30_000, 33)])
def test_products(rows: int, depth: int, columns: int, constant: bool) -> None:
    """Of positive numbers, where one sum in a row would be wrong by the square root of its length.

    A sum of n numbers in a row has a mean relative error of about sqrt(n / 60) units of 6e-8.
    """
    x = _RANDOM.random((rows, depth), np.float32)
    w = _RANDOM.random((depth, columns), np.float32)
    second = "" if constant else f", float[{depth}, {columns}] w"
    model = model_of(
        f"g (float[{rows}, {depth}] x{second}) => (float[{rows}, {columns}] y) "
        "{ y = MatMul (x, w) }",
        {"w": w} if constant else {},
    )
    feeds = {"x": x} if constant else {"x": x, "w": w}
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    assert _relative_error(got, x.astype(np.float64) @ w.astype(np.float64)) < 2.5e-7


def test_convolutions() -> None:
    """Over taps and channels."""
    x = _RANDOM.random((1, 600, 9, 10), np.float32)
    w = _RANDOM.random((20, 600, 5, 5), np.float32)
    model = model_of(
        "g (float[1, 600, 9, 10] x) => (float[1, 20, 5, 6] y) { y = Conv (x, w) }", {"w": w}
    )
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (5, 5), (2, 3))
    want = np.einsum("ncyxij,kcij->nkyx", windows, w.astype(np.float64))
    assert _relative_error(got, want) < 2.5e-7
