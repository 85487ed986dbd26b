"""The matrices of minimal filters, exactly and with rounding."""

from fractions import Fraction

import numpy as np
import pytest

from sardonyx.kernel.matmul.winograd import POINTS, TAPS, matrices


def _times(matrix, vector):
    return [sum(x * y for x, y in zip(row, vector, strict=True)) for row in matrix]


@pytest.mark.parametrize("outputs", POINTS)
def test_exact(outputs):
    random = np.random.default_rng(outputs)
    back, filters, forth = matrices(outputs)
    for _ in range(5):
        taps = [Fraction(int(x), 7) for x in random.integers(-50, 50, TAPS)]
        data = [Fraction(int(x), 3) for x in random.integers(-50, 50, outputs + TAPS - 1)]
        products = [x * y for x, y in zip(_times(filters, taps), _times(forth, data), strict=True)]
        wanted = [sum(taps[k] * data[i + k] for k in range(TAPS)) for i in range(outputs)]
        assert _times(back, products) == wanted


@pytest.mark.parametrize(("outputs", "bound"), [(2, 2e-6), (4, 6e-6)])
def test_rounding(outputs, bound):
    """All in float32, largest error as a part of the largest output."""
    back, filters, forth = (np.array(m, np.float64) for m in matrices(outputs))
    random = np.random.default_rng(1)
    x = random.standard_normal((50, outputs + 2, outputs + 2, 256)).astype(np.float32)
    w = random.standard_normal((256, 3, 3)).astype(np.float32)
    u = np.einsum("ai,cij,bj->abc", filters, w.astype(np.float64), filters).astype(np.float32)
    single = forth.astype(np.float32)
    v = np.einsum("ai,tijc->tajc", single, x)
    v = np.einsum("bj,tajc->tabc", single, v)
    m = np.einsum("tabc,abc->tab", v, u)
    y = np.einsum("ia,tab->tib", back.astype(np.float32), m)
    y = np.einsum("jb,tib->tij", back.astype(np.float32), y)
    wanted = np.zeros((50, outputs, outputs))
    for i in range(TAPS):
        for j in range(TAPS):
            part = x[:, i : i + outputs, j : j + outputs].astype(np.float64)
            wanted += part @ w[:, i, j].astype(np.float64)
    assert np.abs(y - wanted).max() < bound * np.abs(wanted).max()
