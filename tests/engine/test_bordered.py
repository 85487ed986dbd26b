"""Convolutions of few channels, whose images are laid out with borders, against a plain sum."""

import itertools

import numpy as np
import pytest

import sardonyx
from tests.ops.onnx.test_convolution import plain
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(3)

#: channels, filters, window, strides, dilations, pads, groups, declared sizes, fed images, whether
#: there is an image
CASES = {
    "first layer": (3, 32, (3, 3), (2, 2), (1, 1), (0, 0, 1, 1), 1, "h, w",
                    [(31, 17), (2, 2), (40, 33)], True),
    "wide first layer": (3, 70, (7, 7), (2, 2), (1, 1), (3, 3, 3, 3), 1, "h, w",
                         [(1, 1), (40, 33), (9, 64)], True),
    "patches": (3, 48, (8, 8), (8, 8), (1, 1), (0, 0, 0, 0), 1, "32, 40", [(32, 40)], True),
    "patches with borders": (3, 24, (4, 4), (5, 4), (1, 1), (1, 2, 2, 1), 1, "h, w",
                             [(9, 8), (33, 18), (3, 2)], True),
    "patches in groups": (4, 24, (2, 4), (2, 4), (1, 1), (0, 0, 0, 0), 2, "h, w",
                          [(9, 8), (2, 4)], True),
    "patches with a rest": (2, 16, (4, 4), (4, 4), (1, 1), (0, 0, 0, 0), 1, "h, w",
                            [(4, 4), (5, 11)], True),
    "steps over the window": (5, 16, (2, 2), (3, 3), (1, 1), (0, 0, 0, 0), 1, "h, w",
                              [(2, 2), (7, 11)], True),
    "a signal": (1, 30, (20,), (7,), (1,), (0, 0), 1, "t", [(20,), (26,), (400,)], True),
    "a padded signal": (1, 30, (20,), (5,), (1,), (12, 3), 1, "t", [(5,), (26,), (400,)], True),
    "groups": (6, 32, (5, 3), (2, 1), (1, 1), (0, 1, 2, 1), 2, "h, w", [(33, 40), (3, 1)], True),
    # Two of three rows of taps meet nothing: what is left is a signal.
    "one row": (3, 16, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1, "1, w", [(1, 9)], True),
    "dilated across": (3, 16, (3, 3), (1, 1), (2, 1), (0, 0, 0, 0), 1, "h, w", [(9, 9)], False),
    "dilated along": (3, 16, (3, 3), (1, 1), (1, 2), (0, 0, 0, 0), 1, "h, w", [(9, 9)], False),
    "volume": (1, 16, (2, 3, 9), (1, 2, 1), (1, 1, 1), (0, 1, 4, 1, 1, 4), 1, "a, b, c",
               [(3, 5, 9), (1, 2, 1)], True),
    "short runs": (1, 16, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1, "h, w",
                   [(6, 7), (1, 1), (30, 41)], True),
    "runs of five": (1, 40, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2), 1, "h, w",
                     [(6, 7), (1, 1), (30, 41)], True),
    "runs of two": (1, 16, (3, 2), (1, 1), (1, 1), (1, 1, 1, 1), 1, "h, w", [(6, 7)], False),
    "many channels": (32, 16, (1, 3), (1, 2), (1, 1), (0, 1, 0, 1), 1, "h, w", [(6, 7)], False),
}  # fmt: skip


def _model(case):
    channels, filters, window, strides, dilations, pads, groups, sizes, *_ = case
    out = ", ".join(f"o{k}" for k in range(len(window)))
    text = f"""
    g (float[n, {channels}, {sizes}] x) => (float[n, {filters}, {out}] y) {{
        c = Conv<strides = {list(strides)}, dilations = {list(dilations)}, pads = {list(pads)},
                 group = {groups}>(x, w, b)
        y = Relu(c)
    }}"""
    weights = {
        "w": _random.standard_normal((filters, channels // groups, *window)).astype(np.float32),
        "b": _random.standard_normal(filters).astype(np.float32),
    }
    return model_of(text, weights).SerializeToString(), weights


def _wanted(x, weights, case):
    _, _, _, strides, dilations, pads, groups, *_ = case
    sums = plain(
        x.astype(np.float64), weights["w"], weights["b"],
        dilations=dilations, strides=strides, pads=pads, group=groups,
    )  # fmt: skip
    return np.maximum(sums, 0)


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    case = CASES[name]
    model, weights = _model(case)
    session = sardonyx.InferenceSession(model)
    assert ("image_" in session.explain()) == case[-1]
    for n, size in itertools.product((1, 2, 0), case[-2]):
        x = _random.standard_normal((n, case[0], *size)).astype(np.float32)
        (found,) = session.run(None, {"x": x})
        wanted = _wanted(x, weights, case)
        assert found.shape == wanted.shape
        assert_near(found, wanted, "float: shifted sums")


def test_picture_of_bytes():
    weights = {
        "w": _random.standard_normal((16, 3, 3, 3)).astype(np.float32),
        "mean": np.float32([1, 2, 3]).reshape(3, 1, 1),
    }
    text = """
    g (uint8[n, h, w, 3] x) => (float[n, 16, oh, ow] y) {
        f = Cast<to = 1>(x)
        t = Transpose<perm = [0, 3, 1, 2]>(f)
        s = Sub(t, mean)
        y = Conv<pads = [1, 1, 1, 1]>(s, w)
    }"""
    session = sardonyx.InferenceSession(model_of(text, weights).SerializeToString())
    assert "image_" in session.explain()
    x = _random.integers(0, 256, (2, 10, 7, 3)).astype(np.uint8)
    (found,) = session.run(None, {"x": x})
    planes = x.transpose(0, 3, 1, 2).astype(np.float32) - weights["mean"]
    case = (3, 16, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1)
    wanted = np.maximum(_wanted(planes, {**weights, "b": np.zeros(16)}, case), 0)
    assert_near(np.maximum(found, 0), wanted, "float: codes times scales")
