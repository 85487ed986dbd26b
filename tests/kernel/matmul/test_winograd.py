"""The matrices of minimal filters, exactly and with rounding."""

import ctypes
from fractions import Fraction

import numpy as np
import pytest

from sardonyx.kernel.language.types import F32
from sardonyx.kernel.matmul.winograd import POINTS, TAPS, matrices
from sardonyx.kernel.matmul.winograd_scales import build_scales, scales_name
from tests.support.kernels import Kernels, targets
from tests.support.tolerances import assert_near


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


#: What is changed of weights of 2, and how much some channels count then: in tiles, in cells.
SCALES = {
    "equal": ({}, {}, {}),
    "a large tap": ({(4, 3): 8.0}, {3: 16.0}, {3: 16.0}),
    "a tap near the limit": ({(0, 20): 1 / 16}, {}, {}),
    "a tap beyond the limit": ({(8, 20): 1 / 17}, {}, {20: 0.0}),
    "no tap": ({(tap, 0): 0.0 for tap in range(9)}, {0: 0.0}, {0: 0.0}),
}


@pytest.mark.parametrize("name", SCALES)
def test_how_much_channels_count(name):
    """Relative to each other, in as many vectors as 21 channels need."""
    changes, in_tiles, in_cells = SCALES[name]
    weights = np.full((9, 21), 2.0, np.float32)
    for place, value in changes.items():
        weights[place] = value
    unseen, scales = _scales(weights)
    wanted = np.ones((2, 21))
    for row, changed in zip(wanted, (in_tiles, in_cells), strict=True):
        for channel, scale in changed.items():
            row[channel] = scale
    assert unseen == (in_tiles != in_cells)
    assert_near(scales[:42].reshape(2, 21) / scales[1], wanted, "float: one operation")
    assert 0 <= scales.min() <= scales[:42].max() <= 1
    assert_near((weights.max(0) * scales[42]) ** 2, scales[:21], "float: one operation")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e20, 0.0])
@pytest.mark.parametrize("place", [(0, 0), (8, 20), (4, 16)])
def test_unusable_weights_make_no_scale_that_is_finite(place, value):
    weights = np.full((9, 21), 2.0 if value else 0.0, np.float32)
    weights[place] = value
    assert not np.isfinite(_scales(weights)[1][:42]).any()


def _scales(weights):
    target = targets()[0]
    lanes, scales = target.lanes(32), np.empty(43, np.float32)
    kernels = Kernels([build_scales(F32, lanes)], target)
    types = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    run = kernels.function(scales_name(lanes), ctypes.c_int64, *types)
    return run(weights.ctypes.data, 21, scales.ctypes.data), scales
