"""Factors of float32 products rounded to bfloat16: on request alone, sums in float32."""

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors, knobs
from sardonyx.targets.target import host_target
from tests.support.registers import FORMS, choose
from tests.support.session import model_of

RNG = np.random.default_rng(23)
KEY = "session.allow_bfloat16_products"


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def session_of(model, value="1", winograd=True, threads=1):
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry(KEY, value)
    options.add_session_config_entry("session.disable_winograd", "0" if winograd else "1")
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def rounded(x):
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def error(got, expected):
    return np.abs(got - expected).max() / max(1, np.abs(expected).max())


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    """Pairs of steps in vectors, and registers that hold matrices."""
    if not host_target().has_halves:
        pytest.skip("the processor has no products of bfloat16")
    choose(request.param, monkeypatch)
    return request.param


ROWS = (1, 2, 3, 7, 16, 17, 32, 33, 101, 400)


@pytest.mark.parametrize("depth", [16, 32, 33, 96, 1000])
@pytest.mark.parametrize("columns", [5, 16, 48, 64, 150, 300])
@pytest.mark.parametrize("threads", [1, 2])
def test_constant_right_factor(form, depth, columns, threads):
    weights = {"w": floats(depth, columns), "c": floats(columns)}
    text = f"""g (float[M, {depth}] a) => (float[M, {columns}] y)
        {{ p = MatMul(a, w) q = Add(p, c) y = Relu(q) }}"""
    session = session_of(model_of(text, weights), threads=threads)
    assert "1 product with factors rounded to bfloat16" in session.explain()
    for rows in ROWS:
        a = floats(rows, depth)
        a[-1, -1] = 100  # no row reads what another one left behind its end
        (got,) = session.run(None, {"a": a})
        wanted = np.maximum(rounded(a) @ rounded(weights["w"]) + weights["c"], 0)
        assert error(got, wanted) < 1e-6


@pytest.mark.parametrize("rows", ROWS)
def test_known_rows(form, rows):
    """Rows of blocks are chosen; what scratch had before is not read: it may be NaN."""
    weights = {"w": floats(40, 200)}
    text = f"g (float[{rows}, 40] a) => (float[{rows}, 200] y) {{ y = MatMul(a, w) }}"
    session = session_of(model_of(text, weights))
    a = floats(rows, 40)
    session.run(None, {"a": np.full_like(a, np.nan)})
    (got,) = session.run(None, {"a": a})
    assert error(got, rounded(a) @ rounded(weights["w"])) < 1e-6


def test_one_row_of_nan(form):
    weights = {"w": floats(40, 200)}
    session = session_of(
        model_of("g (float[M, 40] a) => (float[M, 200] y) { y = MatMul(a, w) }", weights)
    )
    a = floats(50, 40)
    a[20] = np.nan
    a[30, 3] = np.inf
    (got,) = session.run(None, {"a": a})
    assert np.isnan(got[20]).all() and not np.isfinite(got[30]).any()
    others = np.delete(np.arange(50), [20, 30])
    assert error(got[others], rounded(a[others]) @ rounded(weights["w"])) < 1e-6


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("shape", [(9, 32, 70), (9, 45, 70), (130, 64, 20), (40, 20, 300)], ids=str)
def test_both_factors_fed(form, batch, shape):
    rows, depth, columns = shape
    text = "g (float[B, M, K] a, float[B, K, N] b) => (float[B, M, N] y) { y = MatMul(a, b) }"
    session = session_of(model_of(text))
    a, b = floats(batch, rows, depth), floats(batch, depth, columns)
    (got,) = session.run(None, {"a": a, "b": b})
    assert error(got, rounded(a) @ rounded(b)) < 1e-6
    turned = "g (float[B, M, K] a, float[B, N, K] b) => (float[B, M, N] y) {"
    turned += "t = Transpose<perm = [0, 2, 1]>(b) y = MatMul(a, t) }"
    (got,) = session_of(model_of(turned)).run(None, {"a": a, "b": b.transpose(0, 2, 1).copy()})
    assert error(got, rounded(a) @ rounded(b)) < 1e-6


#: Channels, filters, groups, image, attributes; steps and distances of taps, and padding.
CONVOLUTIONS = {
    "padded": (24, 40, 1, (9, 11), 1, 1, 1),
    "whole vectors": (64, 128, 1, (14, 14), 1, 1, 1),
    "steps": (32, 48, 1, (17, 20), 2, 1, 1),
    "taps apart": (16, 32, 1, (12, 30), 1, 3, 3),
    "groups": (48, 96, 3, (8, 9), 1, 1, 0),
    "few channels": (3, 64, 1, (30, 31), 2, 1, 1),
    "long sums": (200, 20, 1, (5, 6), 1, 1, 1),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("last", ["image", "product"])
def test_convolutions(form, name, last):
    channels, filters, groups, image, step, apart, pads = CONVOLUTIONS[name]
    weights = {
        "w": floats(filters, channels // groups, 3, 3),
        "e": np.eye(filters, dtype=np.float32)[:, :, None, None],
    }
    after = "y = Conv(c, e)" if last == "product" else "y = Identity(c)"
    text = f"""g (float[N, {channels}, H, W] x) => (float[N, {filters}, P, Q] y)
        {{ c = Conv<pads = {[pads] * 4}, strides = {[step] * 2}, dilations = {[apart] * 2},
        group = {groups}>(x, w) {after} }}"""
    x = floats(2, channels, *image)
    session = session_of(model_of(text, weights), winograd=False)
    assert "rounded to bfloat16" in session.explain()
    (got,) = session.run(None, {"x": x})
    padded = np.pad(rounded(x), ((0, 0), (0, 0), (pads, pads), (pads, pads)))
    reach = 2 * apart + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), (2, 3))
    windows = windows[:, :, ::step, ::step, ::apart, ::apart]
    parts = [
        np.einsum("nchwij,ocij->nohw", part, rounded(w))
        for part, w in zip(
            np.split(windows, groups, 1), np.split(weights["w"], groups), strict=True
        )
    ]
    wanted = np.concatenate(parts, 1)
    assert error(got, wanted) < (1e-6 if last == "image" else 4e-3)


def test_no_rows(form):
    weights = {"w": floats(64, 40)}
    session = session_of(
        model_of("g (float[M, 64] a) => (float[M, 40] y) { y = MatMul(a, w) }", weights)
    )
    assert session.run(None, {"a": floats(0, 64)})[0].shape == (0, 40)


def test_which_form(form):
    weights = {"w": floats(64, 40)}
    session = session_of(
        model_of("g (float[M, 64] a) => (float[M, 40] y) { y = MatMul(a, w) }", weights)
    )
    assert ("registers for matrices" in session.explain()) == (form == "matrices")


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
