"""Products whose results lie side by side along rows: squares of sums are turned before stores."""

import numpy as np
import pytest

import sardonyx
from tests.support.session import check, model_of
from tests.support.tolerances import assert_near

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
    # From here on images gain pixels, whose columns lie between rows.
    "two by two": (
        """g (float[n, 24, h, w] x) => (float[n, 37, oh, ow] y)
        { y = ConvTranspose<strides = [2, 2]>(x, w0, b) }""",
        {"w0": (24, 37, 2, 2), "b": (37,)},
        [
            {"x": (1, 24, 3, 3)},
            {"x": (2, 24, 17, 29)},
            {"x": (1, 24, 1, 200)},
        ],
        np.float32,
    ),
    "two by two, known sizes": (
        """g (float[2, 70, 13, 21] x, float[2, 70, 26, 42] z) => (float[2, 70, 26, 42] y)
        { c = ConvTranspose<strides = [2, 2]>(x, w0, b) a = Add(c, z) y = Relu(a) }""",
        {"w0": (70, 70, 2, 2), "b": (70,)},
        [{"x": (2, 70, 13, 21), "z": (2, 70, 26, 42)}],
        np.float32,
    ),
    "one filter": (
        """g (float[n, 8, h, w] x) => (float[n, 1, oh, ow] y)
        { c = ConvTranspose<strides = [2, 2]>(x, w0, b) y = Sigmoid(c) }""",
        {"w0": (8, 1, 2, 2), "b": (1,)},
        [{"x": (1, 8, 5, 16)}, {"x": (2, 8, 3, 33)}],
        np.float32,
    ),
    "two by eight": (
        """g (float[n, 5, h, w] x) => (float[n, 9, oh, ow] y)
        { y = ConvTranspose<strides = [2, 8]>(x, w0) }""",
        {"w0": (5, 9, 2, 8)},
        [{"x": (1, 5, 4, 7)}, {"x": (1, 5, 3, 40)}],
        np.float32,
    ),
    "steps of three": (
        """g (float[n, 5, h, w] x) => (float[n, 9, oh, ow] y)
        { y = ConvTranspose<strides = [3, 3]>(x, w0) }""",
        {"w0": (5, 9, 3, 3)},
        [{"x": (1, 5, 4, 7)}, {"x": (1, 5, 3, 40)}],
        np.float32,
    ),
    "cut on all sides": (
        """g (float[n, 6, h, w] x) => (float[n, 20, oh, ow] y)
        { y = ConvTranspose<strides = [2, 2], pads = [1, 1, 0, 1]>(x, w0, b) }""",
        {"w0": (6, 20, 4, 4), "b": (20,)},
        [{"x": (1, 6, 9, 10)}, {"x": (2, 6, 16, 33)}],
        np.float32,
    ),
    "a longer signal": (
        "g (float[n, 6, t] x) => (float[n, 1, o] y) { y = ConvTranspose<strides = [4]>(x, w0) }",
        {"w0": (6, 1, 4)},
        [{"x": (1, 6, 5)}, {"x": (3, 6, 77)}],
        np.float32,
    ),
    "doubles, two by two": (
        """g (double[n, 24, h, w] x) => (double[n, 37, oh, ow] y)
        { y = ConvTranspose<strides = [2, 2]>(x, w0, b) }""",
        {"w0": (24, 37, 2, 2), "b": (37,)},
        [{"x": (1, 24, 3, 3)}, {"x": (2, 24, 7, 29)}],
        np.float64,
    ),
    "channels become pixels": (
        """g (float[n, 3, h, w] x) => (float[n, 5, oh, ow] y)
        { c = Conv<pads = [1, 1, 1, 1]>(x, w0, b)
          y = DepthToSpace<blocksize = 2, mode = "CRD">(c) }""",
        {"w0": (20, 3, 3, 3), "b": (20,)},
        [{"x": (1, 3, 4, 4)}, {"x": (2, 3, 19, 37)}],
        np.float32,
    ),
    "channels become pixels, the other order": (
        """g (float[n, 16, h, w] x) => (float[n, 5, oh, ow] y)
        { c = Conv<pads = [1, 1, 1, 1]>(x, w0, b) t = Constant<value_float = 0.1>() s = Mul(c, t)
          y = DepthToSpace<blocksize = 2>(s) }""",
        {"w0": (20, 16, 3, 3), "b": (20,)},
        [{"x": (1, 16, 4, 4)}, {"x": (2, 16, 19, 37)}],
        np.float32,
    ),
    "three by three pixels of three channels": (
        """g (float[n, 6, h, w] x) => (float[n, 3, oh, ow] y)
        { c = Conv<pads = [1, 1, 1, 1]>(x, w0, b)
          y = DepthToSpace<blocksize = 3, mode = "CRD">(c) }""",
        {"w0": (27, 6, 3, 3), "b": (27,)},
        [{"x": (1, 6, 4, 4)}, {"x": (2, 6, 19, 37)}],
        np.float32,
    ),
    "three by three pixels of more channels than a panel has": (
        """g (float[n, 6, h, w] x) => (float[n, 40, oh, ow] y)
        { y = ConvTranspose<strides = [3, 3]>(x, w0, b) }""",
        {"w0": (6, 40, 3, 3), "b": (40,)},
        [{"x": (1, 6, 4, 4)}, {"x": (2, 6, 19, 37)}],
        np.float32,
    ),
    "seven between": (
        """g (float[n, 9, h, w] x) => (float[n, 2, oh, ow] y)
        { c = ConvTranspose<strides = [1, 7]>(x, w0, b) y = Relu(c) }""",
        {"w0": (9, 2, 1, 7), "b": (2,)},
        [{"x": (1, 9, 3, 3)}, {"x": (2, 9, 5, 41)}],
        np.float32,
    ),
    "integers become three by three pixels": (
        """g (uint8[n, 6, h, w] x) => (int32[n, 1, oh, ow] y)
        { c = ConvInteger(x, w0) y = DepthToSpace<blocksize = 3, mode = "CRD">(c) }""",
        {"w0": (9, 6, 1, 1)},
        [{"x": (1, 6, 4, 4)}, {"x": (2, 6, 9, 35)}],
        np.uint8,
    ),
    "integers become pixels of three channels": (
        """g (uint8[n, 6, h, w] x) => (int32[n, 3, oh, ow] y)
        { c = ConvInteger(x, w0) y = DepthToSpace<blocksize = 3, mode = "CRD">(c) }""",
        {"w0": (27, 6, 1, 1)},
        [{"x": (1, 6, 4, 4)}, {"x": (2, 6, 9, 35)}],
        np.uint8,
    ),
    "rows of a few columns": (
        "g (float[n, 30] x, float[n, 7] z) => (float[n, 7] y) { p = MatMul(x, w0) y = Add(p, z) }",
        {"w0": (30, 7)},
        [{"x": (1, 30), "z": (1, 7)}, {"x": (100, 30), "z": (100, 7)}],
        np.float32,
    ),
    "integers become pixels": (
        """g (uint8[n, 6, h, w] x) => (int32[n, 5, oh, ow] y)
        { c = ConvInteger(x, w0) y = DepthToSpace<blocksize = 2, mode = "CRD">(c) }""",
        {"w0": (20, 6, 1, 1)},
        [{"x": (1, 6, 4, 4)}, {"x": (2, 6, 9, 35)}],
        np.uint8,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    text, weights, shapes, dtype = CASES[name]
    model = model_of(text, {n: _values(s, dtype) for n, s in weights.items()})
    check(model, [{n: _values(s, dtype) for n, s in feed.items()} for feed in shapes])


def test_groups_gain_pixels():
    """ONNX's reference evaluator has neither groups of filters nor images without any."""
    weight, bias = _values((8, 20, 2, 4)), _values((40,))
    model = model_of(
        """g (float[n, 8, h, w] x) => (float[n, 40, oh, ow] y)
        { y = ConvTranspose<group = 2, strides = [2, 4]>(x, w0, b) }""",
        {"w0": weight, "b": bias},
    )
    session = sardonyx.InferenceSession(model.SerializeToString())
    for shape in ((2, 8, 6, 5), (1, 8, 3, 30), (0, 8, 2, 2)):
        x = _values(shape)
        n, _, h, w = shape
        parts = x.reshape(n, 2, 4, h, w), weight.reshape(2, 4, 20, 2, 4)
        want = np.einsum("ngchw,gcoab->ngohawb", *parts).reshape(n, 40, 2 * h, 4 * w)
        (got,) = session.run(None, {"x": x})
        assert_near(got, want + bias[:, None, None], "float: products")
