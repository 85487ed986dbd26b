"""Graphs of dequantised codes: run on integers, within one step of the standard's formula."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import sardonyx
from tests.support.session import model_of
from tests.support.tolerances import assert_near

#: From this version on the reference evaluator knows the operators.
OPSET = 19

KINDS = {"u": ("uint8", np.uint8), "i": ("int8", np.int8)}


def codes(random, kind, *shape):
    limits = np.iinfo(KINDS[kind][1])
    return random.integers(limits.min, limits.max, shape, KINDS[kind][1], endpoint=True)


def weights(random, left, right, shape, channels=1):
    """Scales and zero points of image, weight, bias and results, and the weight."""
    x_type, w_type = KINDS[left][1], KINDS[right][1]
    w_scale = random.uniform(0.005, 0.02, channels).astype(np.float32)
    found = {
        "xs": np.float32(0.03), "xz": x_type(7), "w": codes(random, right, *shape),
        "ws": w_scale, "wz": np.full(channels, 0 if right == "i" else 121, w_type),
        "b": random.integers(-4000, 4000, shape[0]).astype(np.int32),
        "bs": (np.float32(0.03) * w_scale).astype(np.float32), "bz": np.zeros(channels, np.int32),
        "ys": np.float32(0.4), "yz": x_type(11), "rs": np.float32(0.053), "rz": x_type(3),
    }  # fmt: skip
    if channels == 1:
        found |= {name: found[name][0] for name in ("ws", "wz", "bs", "bz")}
    return found


#: What stands between a convolution `c` of (1, 24, 8, 8) and the codes `y`.
ENDINGS = {
    "plain": "y = QuantizeLinear (c, ys, yz)",
    "relu": "d = Relu (c) y = QuantizeLinear (d, ys, yz)",
    "clip": "lo = Constant <value = float {0.0}> () hi = Constant <value = float {6.0}> ()"
    " d = Clip (c, lo, hi) y = QuantizeLinear (d, ys, yz)",
    "residual": "q = QuantizeLinear (c, ys, yz) d = DequantizeLinear (q, ys, yz)"
    " e = DequantizeLinear (r, rs, rz) f = Add (d, e) g = Relu (f) y = QuantizeLinear (g, ys, yz)",
    "pooled": "q = QuantizeLinear (c, ys, yz) d = DequantizeLinear (q, ys, yz)"
    " p = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (d) y = QuantizeLinear (p, ys, yz)",
    "averaged": "q = QuantizeLinear (c, ys, yz) d = DequantizeLinear (q, ys, yz)"
    " p = GlobalAveragePool (d) y = QuantizeLinear (p, ys, yz)",
    "tanh": "d = Tanh (c) e = Mul (c, d) y = QuantizeLinear (e, ys, yz)",
    "used twice": "d = Relu (c) y = QuantizeLinear (d, ys, yz) z = Neg (c)",
}
#: What leads to the convolution's sums `c`.
CONVOLUTION = """xd = DequantizeLinear (x, xs, xz) wd = DequantizeLinear <axis = 0> (w, ws, wz)
    bd = DequantizeLinear <axis = 0> (b, bs, bz)
    c = Conv <pads = [1, 1, 1, 1]> (xd, wd, bd)"""


def near(model, feeds, most=0.01):
    """Run, and compare codes with those of the reference: at most one step apart, and few."""
    session = sardonyx.InferenceSession(model.SerializeToString())
    got, want = session.run(None, feeds), ReferenceEvaluator(model).run(None, feeds)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        apart = np.abs(mine.astype(np.float64) - theirs)
        if mine.dtype.kind in "iu":
            assert apart.max() <= 1
            assert np.mean(apart > 0) <= most
        else:
            assert_near(mine, theirs, "float: large sums")
    return session


@pytest.mark.parametrize("kinds", ["ui", "ii", "uu"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_convolution(ending, kinds):
    random = np.random.default_rng(len(ending))
    left, right = kinds
    kind = KINDS[left][0]
    channels = 24 if ending in ("relu", "residual") else 1
    more = ", float[1, 24, 8, 8] z" if ending == "used twice" else ""
    given = f", {kind}[1, 24, 8, 8] r" if ending == "residual" else ""
    model = model_of(
        f"g ({kind}[1, 16, 8, 8] x{given}) => ({kind}[n, 24, h, w] y{more})"
        f" {{ {CONVOLUTION} {ENDINGS[ending]} }}",
        weights(random, left, right, (24, 16, 3, 3), channels),
        OPSET,
    )
    feeds = {"x": codes(random, left, 1, 16, 8, 8)}
    if given:
        feeds["r"] = codes(random, left, 1, 24, 8, 8)
    text = near(model, feeds).explain()
    assert "integers_" in text
    assert "product_" not in text
    assert ending in ("tanh", "used twice") or "map_" not in text


@pytest.mark.parametrize("kinds", ["ui", "ii", "uu"])
@pytest.mark.parametrize("operator", ["matmul", "gemm", "both"])
def test_product(operator, kinds):
    """Of codes and weights, and of two tensors of codes."""
    random = np.random.default_rng(4)
    left, right = kinds
    kind, other = KINDS[left][0], KINDS[right][0]
    given = f", {other}[30, 40] w" if operator == "both" else ""
    product = "Gemm (xd, wd, bd)" if operator == "gemm" else "MatMul (xd, wd)"
    model = model_of(
        f"""g ({kind}[r, 30] x{given}) => ({kind}[r, 40] y) {{
        xd = DequantizeLinear (x, xs, xz) wd = DequantizeLinear (w, ws, wz)
        bd = DequantizeLinear (b, bs, bz)
        c = {product} y = QuantizeLinear (c, ys, yz) }}""",
        {
            name: value
            for name, value in weights(random, left, right, (30, 40)).items()
            if not (given and name == "w")
        }
        | {"b": random.integers(-4000, 4000, 40).astype(np.int32)},
        OPSET,
    )
    feeds = {"x": codes(random, left, 9, 30)}
    if given:
        feeds["w"] = codes(random, right, 30, 40)
    assert "integers_" in near(model, feeds).explain()


def test_sums_that_need_more_bits_stay_floats():
    """33,100 products of 255 by 255 do not fit 32 bits."""
    random = np.random.default_rng(0)
    model = model_of(
        """g (uint8[1, 33100] x) => (float[1, 3] y) {
        xd = DequantizeLinear (x, s, z) wd = DequantizeLinear (w, s, z) y = MatMul (xd, wd) }""",
        {"w": codes(random, "u", 33100, 3), "s": np.float32(1), "z": np.uint8(0)},
        OPSET,
    )
    session = near(model, {"x": np.full((1, 33100), 255, np.uint8)})
    text = session.explain()
    assert "integers_" not in text
    assert "1 contraction in floats, no integers: its sums may need more than 32 bits" in text


def test_scales_along_the_sum_stay_floats():
    random = np.random.default_rng(0)
    model = model_of(
        """g (uint8[5, 8] x) => (float[5, 3] y) {
        xd = DequantizeLinear (x, s, z) wd = DequantizeLinear <axis = 0> (w, t, q)
        y = MatMul (xd, wd) }""",
        {
            "w": codes(random, "u", 8, 3),
            "s": np.float32(0.1),
            "z": np.uint8(3),
            "t": random.uniform(0.01, 0.1, 8).astype(np.float32),
            "q": codes(random, "u", 8),
        },
        OPSET,
    )  # fmt: skip
    session = near(model, {"x": codes(random, "u", 5, 8)})
    assert "no integers: its scales or zero points change along" in session.explain()


def test_one_factor_of_codes_stays_floats():
    random = np.random.default_rng(0)
    model = model_of(
        """g (float[5, 8] x) => (float[5, 3] y) {
        wd = DequantizeLinear (w, s, z) y = MatMul (x, wd) }""",
        {"w": codes(random, "u", 8, 3), "s": np.float32(0.1), "z": np.uint8(3)},
        OPSET,
    )
    session = near(model, {"x": random.standard_normal((5, 8)).astype(np.float32)})
    assert "no integers: its left factor is not dequantised from 8 bits" in session.explain()
