"""Convolutions with fewer filters than a vector has lanes: lanes run along the image instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.loader.load import load
from sardonyx.ops.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.plan.grouping import make_groups
from sardonyx.plan.groups import Product
from sardonyx.plan.inline import find_roots
from sardonyx.plan.layout import choose_layouts
from sardonyx.plan.roles import index_atoms
from tests.ops.test_convolution import plain
from tests.support.session import model_of

_random = np.random.default_rng(9)

#: Channels, filters, taps, dilations, strides, pads, groups, sizes of images.
CASES: dict[str, tuple[Any, ...]] = {
    "a signal": (4, 4, (3,), (1,), (1,), (1, 1), 1, [(40,), (1,), (257,)]),
    "taps apart": (3, 5, (11,), (5,), (1,), (25, 25), 1, [(64,), (130,), (3,)]),
    "no border": (6, 2, (7,), (2,), (1,), (0, 0), 1, [(48,), (13,)]),
    "steps": (4, 3, (3,), (1,), (2,), (1, 1), 1, [(65,), (2,)]),
    "an image": (3, 4, (3, 3), (1, 1), (1, 1), (1,) * 4, 1, [(9, 20), (17, 64), (2, 1)]),
    "one tap": (40, 6, (1, 1), (1, 1), (1, 1), (0,) * 4, 1, [(9, 20), (1, 33)]),
    "twelve filters": (5, 12, (3, 3), (1, 1), (1, 1), (1,) * 4, 1, [(7, 33)]),
    "borders that differ": (4, 2, (2, 5), (3, 2), (1, 1), (4, 0, 1, 9), 1, [(8, 31), (9, 8)]),
    "steps along one axis": (4, 3, (3, 3), (1, 1), (2, 1), (1,) * 4, 1, [(9, 32)]),
    "steps along the other": (4, 3, (3, 3), (1, 1), (1, 2), (1,) * 4, 1, [(9, 32)]),
    "groups": (8, 6, (3, 3), (1, 1), (1, 1), (1,) * 4, 2, [(9, 40)]),
    "beyond all": (3, 4, (2, 2), (8, 8), (1, 1), (30,) * 4, 1, [(5, 6)]),
    "volume": (4, 4, (3, 2, 3), (1, 1, 2), (1, 1, 1), (1, 0, 2, 1, 1, 2), 1, [(3, 4, 19)]),
}


def _text(case: tuple[Any, ...], size: tuple[Any, ...], kind: str = "float") -> str:
    channels, filters, taps, dilations, strides, pads, groups, _ = case
    given, out = ", ".join(map(str, size)), ", ".join(f"o{k}" for k in range(len(taps)))
    return f"""
    g ({kind}[n, {channels}, {given}] x) => ({kind}[n, {filters}, {out}] y) {{
        c = Conv<strides = {list(strides)}, dilations = {list(dilations)}, pads = {list(pads)},
                 group = {groups}>(x, w, b)
        y = Relu(c)
    }}"""


def _weights(case: tuple[Any, ...], dtype: Any = np.float32) -> dict[str, Any]:
    channels, filters, taps, *_, groups, _ = case
    w = _random.standard_normal((filters, channels // groups, *taps)).astype(dtype)
    return {"w": w, "b": _random.standard_normal(filters).astype(dtype)}


def _wanted(x: Any, weights: dict[str, Any], case: tuple[Any, ...]) -> Any:
    _, _, _, dilations, strides, pads, groups, _ = case
    w, b = (weights[name].astype(np.float64) for name in "wb")
    how: dict[str, Any] = {"dilations": dilations, "strides": strides, "pads": pads}
    return np.maximum(plain(x.astype(np.float64), w, b, group=groups, **how), 0)


@pytest.mark.parametrize("is_known", [True, False], ids=["known sizes", "any size"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_the_same_bits_however_work_is_shared(name: str, is_known: bool) -> None:
    case = CASES[name]
    weights = _weights(case)
    for size in case[-1]:
        given = size if is_known else tuple(f"s{k}" for k in range(len(size)))
        model = model_of(_text(case, given), weights).SerializeToString()
        x = _random.standard_normal((3, case[0], *size)).astype(np.float32)
        results = []
        for threads in (1, 2):
            options = sardonyx.SessionOptions()
            options.intra_op_num_threads = threads
            session = sardonyx.InferenceSession(model, options)
            results.append(session.run(None, {"x": x})[0])
            alone = [session.run(None, {"x": x[k : k + 1]})[0] for k in range(3)]
            results.append(np.concatenate(alone))
        np.testing.assert_allclose(results[0], _wanted(x, weights, case), rtol=2e-5, atol=2e-5)
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize(("kind", "dtype"), [("float16", np.float16), ("double", np.float64)])
@pytest.mark.parametrize("name", ["a signal", "an image", "one tap", "twelve filters"])
def test_other_types(name: str, kind: str, dtype: Any) -> None:
    case = CASES[name]
    weights, size = _weights(case, dtype), case[-1][0]
    session = sardonyx.InferenceSession(model_of(_text(case, size, kind), weights))
    x = _random.standard_normal((2, case[0], *size)).astype(dtype)
    (y,) = session.run(None, {"x": x})
    near = 2e-3 if dtype is np.float16 else 1e-12
    np.testing.assert_allclose(y, _wanted(x, weights, case), rtol=near, atol=5 * near)


def test_nothing() -> None:
    case = CASES["an image"]
    session = sardonyx.InferenceSession(model_of(_text(case, ("a", "b")), _weights(case)))
    for shape in [(0, 3, 8, 8), (2, 3, 0, 20), (2, 3, 20, 0)]:
        (y,) = session.run(None, {"x": np.zeros(shape, np.float32)})
        assert y.shape == _wanted(np.zeros(shape), _weights(case), case).shape


def test_image_is_as_it_was_between_two_of_few_filters() -> None:
    """No layer moves channels, and each has lanes along the image."""
    text = """g (float[1, 4, 512] x) => (float[1, 4, 512] y) {
        a = Conv<pads = [5, 5], dilations = [5]>(x, w) r = LeakyRelu(a)
        c = Conv<pads = [5, 5], dilations = [5]>(r, w) y = Add(c, x)
    }"""
    w = _random.standard_normal((4, 4, 3)).astype(np.float32)
    session = sardonyx.InferenceSession(model_of(text, {"w": w}))
    x = _random.standard_normal((1, 4, 512)).astype(np.float32)
    how: dict[str, Any] = {"pads": (5, 5), "dilations": (5,)}
    a = plain(x.astype(np.float64), w, **how)
    wanted = plain(np.where(a < 0, 0.01 * a, a), w, **how) + x
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=2e-5, atol=2e-5)
    assert "copies of layout: none" in session.explain()


#: Filters, lanes, size of the image, step, whether filters stay in the lanes.
SIDES = [
    (4, 16, 64, 1, False),
    (12, 16, 64, 1, False),
    (13, 16, 64, 1, True),
    (4, 8, 64, 1, False),
    (5, 8, 64, 1, True),
    (4, 16, 64, 2, True),
    (4, 16, 15, 1, True),
    (4, 16, 20, 1, True),
    (4, 16, 24, 1, False),
    (4, 0, 64, 1, True),
]


@pytest.mark.parametrize(("filters", "lanes", "size", "step", "stays"), SIDES)
def test_which_axis_has_the_lanes(
    filters: int, lanes: int, size: int, step: int, stays: bool
) -> None:
    text = f"""g (float[1, 4, {size * step}] x) => (float[1, {filters}, {size}] y) {{
        y = Conv<strides = [{step}]>(x, w)
    }}"""
    weights = {"w": np.zeros((filters, 4, 1), np.float32)}
    graph = load(model_of(text, weights).SerializeToString())
    optimise(graph)
    groups = make_groups(find_roots(list(lower(graph).outputs.values())))
    choose_layouts(groups, lanes=lanes)
    (group,) = [g for g in groups if isinstance(g, Product)]
    in_lanes = index_atoms(group.right) - index_atoms(group.left)
    (along,) = [a for a in in_lanes if a.arguments[0] in (filters, size)]
    assert along.arguments[0] == (filters if stays else size)
