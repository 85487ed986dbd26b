"""The softmax of a tile's scores, against NumPy."""

import ctypes

import numpy as np
import pytest

from sardonyx.kernel.attention.softmax import build_softmax, softmax_name
from tests.support.kernels import Kernels, targets
from tests.support.tolerances import assert_near

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

POINTER, LONG = ctypes.c_void_p, ctypes.c_int64
FACTOR = 0.18
INF, NAN = np.inf, np.nan


def run(target, scores, count, guarded):
    """Powers of the first `count` scores of each row, and totals."""
    lanes, rows = target.lanes(32), len(scores)
    kernels = Kernels([build_softmax(rows, lanes)], target)
    kinds = [POINTER, LONG, LONG, ctypes.c_float, LONG, POINTER]
    call = kernels.function(softmax_name(rows, lanes), None, *kinds)
    powers, totals = scores.copy(), np.zeros(rows, np.float32)
    step = scores.shape[1]
    call(powers.ctypes.data, step, count, FACTOR, guarded, totals.ctypes.data)
    return powers, totals


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
def test_powers(target, rows):
    """Scores of any size, and some that are hidden; what lies behind a row stays as it is."""
    random = np.random.default_rng(rows)
    scores = random.normal(0, 1, (rows, 160)).astype(np.float32)
    scores *= np.float32([30, 1e-3, 1e6])[:rows, None]
    scores[:, ::7] = -INF
    scores[0, 3] = np.finfo(np.float32).min
    powers, totals = run(target, scores, 144, 0)
    exact = scores[:, :144].astype(np.float64)
    wanted = np.exp2((exact - exact.max(1, keepdims=True)) * np.float32(FACTOR))
    # The product of a difference and the factor is rounded: an error of what is raised to.
    assert np.all(np.abs(powers[:, :144] - wanted) <= 1e-5 * wanted + 1e-37)
    near = wanted > 0.5
    assert np.all(np.abs(powers[:, :144] - wanted)[near] <= 4e-7 * wanted[near])
    assert_near(totals, wanted.sum(1), "float: one operation")
    assert np.array_equal(powers[:, 144:], scores[:, 144:])


@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
@pytest.mark.parametrize(
    ("guarded", "score", "power", "total"),
    [
        (0, 7.0, 1.0, 32.0),
        (0, np.finfo(np.float32).min, 1.0, 32.0),
        (0, -INF, NAN, NAN),
        (1, -INF, 0.0, 1.0),
        (1, -3e38, 1.0, 32.0),
        (0, INF, NAN, NAN),
    ],
)
def test_equal_scores(target, guarded, score, power, total):
    """Rows of one number, and of nothing but what is hidden."""
    powers, totals = run(target, np.full((3, 32), score, np.float32), 32, guarded)
    assert np.array_equal(powers, np.full((3, 32), power, np.float32), equal_nan=True)
    assert np.array_equal(totals, np.full(3, total, np.float32), equal_nan=True)


@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
@pytest.mark.parametrize("place", [0, 17, 31])
def test_nan(target, place):
    """One NaN makes the total one, and leaves other rows as they are."""
    scores = np.zeros((3, 32), np.float32)
    scores[1, place] = NAN
    powers, totals = run(target, scores, 32, 0)
    assert np.isnan(totals[1]) and np.isnan(powers[1, place])
    assert np.array_equal(totals[[0, 2]], np.full(2, 32, np.float32))
