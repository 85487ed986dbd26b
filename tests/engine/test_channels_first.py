"""Products whose results lie side by side along rows: squares of sums are turned before stores."""

import numpy as np
import pytest

from tests.support.session import check, model_of

_random = np.random.default_rng(8)


def _values(shape, dtype=np.float32):
    if np.dtype(dtype).kind in "ui":
        return _random.integers(0, 9, shape).astype(dtype)
    return _random.standard_normal(shape).astype(dtype)


#: the model, its weights, shapes of the feeds, their type
CASES = {
    "one tap": (
        "g (float[n, 20, h, w] x) => (float[n, 37, h, w] y) { y = Conv(x, w0) }",
        {"w0": (37, 20, 1, 1)},
        [
            {"x": (1, 20, 3, 3)},
            {"x": (2, 20, 17, 29)},
            {"x": (1, 20, 1, 200)},
            {"x": (0, 20, 1, 1)},
        ],
        np.float32,
    ),
    "bias and a second image": (
        """g (float[n, 8, h, w] x, float[n, 70, h, w] z) => (float[n, 70, h, w] y)
        { c = Conv<pads = [1, 1, 1, 1]>(x, w0, b) a = Add(c, z) y = Relu(a) }""",
        {"w0": (70, 8, 3, 3), "b": (70,)},
        [
            {"x": (1, 8, 5, 7), "z": (1, 70, 5, 7)},
            {"x": (2, 8, 16, 33), "z": (2, 70, 16, 33)},
            {"x": (1, 8, 1, 1), "z": (1, 70, 1, 1)},
        ],
        np.float32,
    ),
    "steps": (
        """g (float[n, 5, h, w] x) => (float[n, 9, oh, ow] y)
        { y = Conv<strides = [2, 3], pads = [2, 0, 1, 4]>(x, w0) }""",
        {"w0": (9, 5, 4, 4)},
        [{"x": (2, 5, 9, 10)}, {"x": (1, 5, 40, 61)}],
        np.float32,
    ),
    "groups": (
        "g (float[n, 8, 6, w] x) => (float[n, 40, 6, w] y) { y = Conv<group = 2>(x, w0) }",
        {"w0": (40, 4, 1, 1)},
        [{"x": (2, 8, 6, 5)}, {"x": (1, 8, 6, 30)}],
        np.float32,
    ),
    "a signal": (
        "g (float[n, 3, t] x) => (float[n, 18, o] y) { y = Conv<strides = [4]>(x, w0) }",
        {"w0": (18, 3, 6)},
        [{"x": (1, 3, 6)}, {"x": (3, 3, 201)}],
        np.float32,
    ),
    "transposed product": (
        "g (float[n, 30] x) => (float[50, n] y) { p = MatMul(x, w0) y = Transpose(p) }",
        {"w0": (30, 50)},
        [{"x": (1, 30)}, {"x": (100, 30)}, {"x": (0, 30)}],
        np.float32,
    ),
    "doubles": (
        "g (double[n, 30] x) => (double[50, n] y) { p = MatMul(x, w0) y = Transpose(p) }",
        {"w0": (30, 50)},
        [{"x": (1, 30)}, {"x": (99, 30)}],
        np.float64,
    ),
    "integers": (
        """g (uint8[n, 6, h, w] x) => (int32[n, 20, h, w] y)
        { y = ConvInteger<pads = [1, 1, 1, 1]>(x, w0) }""",
        {"w0": (20, 6, 3, 3)},
        [{"x": (1, 6, 4, 4)}, {"x": (2, 6, 9, 35)}],
        np.uint8,
    ),
    "kept and read on": (
        """g (float[n, 16, h, w] x) => (float[n, 32, h, w] y, float[n, 32, h, w] z)
        { y = Conv(x, w0) r = Relu(y) z = Conv(r, w1) }""",
        {"w0": (32, 16, 1, 1), "w1": (32, 32, 1, 1)},
        [{"x": (1, 16, 4, 4)}, {"x": (2, 16, 19, 11)}],
        np.float32,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    text, weights, shapes, dtype = CASES[name]
    model = model_of(text, {n: _values(s, dtype) for n, s in weights.items()})
    check(model, [{n: _values(s, dtype) for n, s in feed.items()} for feed in shapes])
