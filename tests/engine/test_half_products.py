"""Factors of float32 products rounded to bfloat16: on request alone, sums in float32."""

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors, knobs
from sardonyx.codegen.target import host_target
from tests.support.session import model_of

RNG = np.random.default_rng(23)
KEY = "session.allow_bfloat16_products"


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def session_of(model, value="1", winograd=True):
    options = sardonyx.SessionOptions()
    options.add_session_config_entry(KEY, value)
    options.add_session_config_entry("session.disable_winograd", "0" if winograd else "1")
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def rounded(x):
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def error(got, expected):
    return np.abs(got - expected).max() / np.abs(expected).max()


needs_halves = pytest.mark.skipif(
    not host_target().has_halves, reason="the processor has no products of bfloat16"
)


@needs_halves
@pytest.mark.parametrize("depth", [16, 33, 96])
@pytest.mark.parametrize("columns", [5, 64, 150])
def test_constant_right_factor(depth, columns):
    weights = {"w": floats(depth, columns), "c": floats(columns)}
    text = f"""g (float[M, {depth}] a) => (float[M, {columns}] y)
        {{ p = MatMul(a, w) q = Add(p, c) y = Relu(q) }}"""
    session = session_of(model_of(text, weights))
    assert "1 product with factors rounded to bfloat16" in session.explain()
    for rows in (1, 2, 3, 7, 101):
        a = floats(rows, depth)
        (got,) = session.run(None, {"a": a})
        wanted = np.maximum(rounded(a) @ rounded(weights["w"]) + weights["c"], 0)
        assert error(got, wanted) < 1e-6


@needs_halves
@pytest.mark.parametrize("depth", [32, 45])
def test_both_factors_fed(depth):
    text = "g (float[B, M, K] a, float[B, K, N] b) => (float[B, M, N] y) { y = MatMul(a, b) }"
    session = session_of(model_of(text))
    a, b = floats(2, 9, depth), floats(2, depth, 70)
    (got,) = session.run(None, {"a": a, "b": b})
    assert error(got, rounded(a) @ rounded(b)) < 1e-6
    turned = "g (float[B, M, K] a, float[B, N, K] b) => (float[B, M, N] y) {"
    turned += "t = Transpose<perm = [0, 2, 1]>(b) y = MatMul(a, t) }"
    (got,) = session_of(model_of(turned)).run(None, {"a": a, "b": b.transpose(0, 2, 1).copy()})
    assert error(got, rounded(a) @ rounded(b)) < 1e-6


@needs_halves
def test_convolution():
    weights = {"w": floats(40, 24, 3, 3)}
    text = """g (float[N, 24, H, W] x) => (float[N, 40, P, Q] y)
        { y = Conv<pads = [1, 1, 1, 1]>(x, w) }"""
    x = floats(1, 24, 9, 11)
    (got,) = session_of(model_of(text, weights), winograd=False).run(None, {"x": x})
    padded = np.pad(rounded(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    assert error(got, np.einsum("nchwij,ocij->nohw", windows, rounded(weights["w"]))) < 1e-6


def test_off_by_default():
    weights = {"w": floats(64, 64)}
    model = model_of("g (float[M, 64] a) => (float[M, 64] y) { y = MatMul(a, w) }", weights)
    a = floats(8, 64)
    for session in (sardonyx.InferenceSession(model.SerializeToString()), session_of(model, "0")):
        assert "bfloat16" not in session.explain()
        (got,) = session.run(None, {"a": a})
        assert error(got, a.astype(np.float64) @ weights["w"]) < 1e-6


def test_refused_where_the_processor_has_none():
    model = model_of("g (float[M, 64] a, float[64, 8] b) => (float[M, 8] y) { y = MatMul(a, b) }")
    isa = "neon" if host_target().arch == "aarch64" else "avx2"
    with knobs.override("SARDONYX_CPU", isa), pytest.raises(errors.NotImplemented, match=KEY):
        session_of(model)


def test_value_is_checked():
    model = model_of("g (float[M, 64] a, float[64, 8] b) => (float[M, 8] y) { y = MatMul(a, b) }")
    with pytest.raises(errors.InvalidArgument, match="0 or 1"):
        session_of(model, "yes")
