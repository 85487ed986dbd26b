"""Convolutions with fewer filters than a vector has lanes: lanes run along the image instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.plan.grouping import make_groups
from sardonyx.plan.groups import Contraction
from sardonyx.plan.inline import find_roots
from sardonyx.plan.integers import as_integers
from sardonyx.plan.layout import row_major
from sardonyx.plan.pipeline import PlanSettings, arrange
from sardonyx.plan.reasons import Reason
from sardonyx.plan.roles import index_atoms
from sardonyx.plan.swap_operands import with_long_columns, with_whole_image
from sardonyx.tensor.traverse import loads_of
from tests.ops.onnx.test_convolution import plain
from tests.support.session import model_of
from tests.support.tolerances import assert_near

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
        assert_near(results[0], _wanted(x, weights, case), "float: products")
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
    like = "half: sums of images" if dtype is np.float16 else "double: sums of images"
    assert_near(y, _wanted(x, weights, case), like)


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
    assert_near(session.run(None, {"x": x})[0], wanted, "float: products")
    assert "copies of layout: none" in session.explain()


def _group(text: str, weights: dict[str, Any], lanes: int, orders: Any = None) -> Contraction:
    """The one contraction of a model, after layouts are chosen; `orders` only says of its image."""
    graph = load(model_of(text, weights).SerializeToString())
    optimise(graph)
    groups = make_groups(find_roots(list(lower(graph).outputs.values())))
    (number,) = [k for k, g in enumerate(groups) if isinstance(g, Contraction)]
    group = groups[number]
    assert isinstance(group, Contraction)
    if orders is not None:
        (image,) = {x.tensor for x in loads_of(group.left)}
        found = with_long_columns(group, {image: orders}, lanes)
        return group if isinstance(found, Reason) else found
    chosen = arrange(groups, PlanSettings(lanes=lanes)).groups[number]
    assert isinstance(chosen, Contraction)
    return chosen


def _extents_in_lanes(group: Contraction) -> set[Any]:
    return {a.arguments[0] for a in index_atoms(group.right) - index_atoms(group.left)}


#: Type, filters, channels, size of the image, step, lanes, whether filters stay in the lanes.
SIDES = [
    ("float", 4, 5, 64, 1, 16, False),
    ("float", 12, 5, 64, 1, 16, False),
    ("float", 13, 5, 64, 1, 16, True),
    ("float", 4, 5, 64, 1, 8, False),
    ("float", 5, 6, 64, 1, 8, True),
    ("double", 4, 5, 64, 1, 16, False),
    ("double", 5, 6, 64, 1, 16, True),
    ("float", 4, 5, 64, 2, 16, True),
    ("float", 4, 5, 15, 1, 16, True),
    ("float", 4, 5, 24, 1, 16, True),
    ("float", 4, 5, 28, 1, 16, False),
    ("float", 4, 5, 64, 1, 0, True),
    # Of an unknown size: packing for one element must not cost much.
    ("float", 4, 5, "w", 1, 16, False),
    ("float", 4, 161, "w", 1, 16, True),
    ("float", 4, 161, 64, 1, 16, False),
]


@pytest.mark.parametrize(("kind", "filters", "channels", "size", "step", "lanes", "stays"), SIDES)
def test_which_axis_has_the_lanes(
    kind: str, filters: int, channels: int, size: Any, step: int, lanes: int, stays: bool
) -> None:
    given = size if isinstance(size, str) else size * step
    text = f"""g ({kind}[1, {channels}, {given}] x) => ({kind}[1, {filters}, o] y) {{
        y = Conv<strides = [{step}]>(x, w)
    }}"""
    weights = {"w": np.zeros((filters, channels, 1), f"f{8 if kind == 'double' else 4}")}
    (extent,) = _extents_in_lanes(_group(text, weights, lanes))
    assert (extent == filters) is stays
    if not stays and isinstance(size, int):
        assert extent == size


@pytest.mark.parametrize(
    ("text", "weights", "orders"),
    [
        # Channels lie side by side in the image.
        ("float[1, 5, 64] x) => (float[1, 4, 64] y) { y = Conv(x, w)", (4, 5, 1), (0, 2, 1)),
        # Groups have lanes across them.
        ("float[1, 6, 64] x) => (float[1, 6, 64] y) { y = Conv<group = 3>(x, w)", (6, 2, 1), None),
        # A batch may be one.
        ("float[b, 64] x) => (float[b, 4] y) { y = MatMul(x, w)", (64, 4), (1, 0)),
        # Rows and columns become one axis.
        (
            "float[1, 5, 64] x) => (float[1, 4, 128] y) "
            "{ y = ConvTranspose<strides = [2]>(x, w)", (5, 4, 2), None,
        ),
    ],
    ids=["channels last", "groups", "batch", "phases"],
)  # fmt: skip
def test_filters_that_stay(text: str, weights: tuple[int, ...], orders: Any) -> None:
    found = _group(f"g ({text} }}", {"w": np.zeros(weights, np.float32)}, 16, orders)
    assert not _extents_in_lanes(found) & {64}
    assert {x.tensor.shape for x in loads_of(found.right)} != {(1, 5, 64)}


def test_codes_stay() -> None:
    text = """g (uint8[1, 5, 64] x) => (int32[1, 4, 64] y) { y = ConvInteger(x, w) }"""
    weights = {"w": np.zeros((4, 5, 1), np.uint8)}
    graph = load(model_of(text, weights).SerializeToString())
    optimise(graph)
    groups = list(map(as_integers, make_groups(find_roots(list(lower(graph).outputs.values())))))
    groups = arrange(groups, PlanSettings(lanes=16)).groups
    (group,) = [g for g in groups if isinstance(g, Contraction)]
    assert _extents_in_lanes(group) == {4}


#: What the image has, where there is one.
IMAGES = {
    "border": ("pads = [1, 2, 1, 2]", (3, 5), (5, 20 + 2, 64 + 4)),
    "taps apart": ("pads = [2, 6, 2, 6], dilations = [2, 3]", (3, 5), (5, 20 + 4, 64 + 12)),
    "steps along the other axis": ("pads = [1, 2, 1, 2], strides = [2, 1]", (3, 5), None),
    "no border": ("", (3, 1), None),
}


@pytest.mark.parametrize("name", IMAGES)
def test_image_is_as_large_as_what_windows_see(name: str) -> None:
    attributes, taps, shape = IMAGES[name]
    text = f"""g (float[1, 5, 20, 64] x) => (float[1, 4, h, w] y) {{
        y = Conv<{attributes}>(x, w)
    }}"""
    text = text.replace("Conv<>", "Conv")
    group = _group(text, {"w": np.zeros((4, 5, *taps), np.float32)}, 16)
    assert 4 not in _extents_in_lanes(group)
    found = with_whole_image(group)
    assert isinstance(found, Reason) is (shape is None)
    if not isinstance(found, Reason):
        image, place, read = found
        assert tuple(d for d in image.shape if d != 1) == shape == place.shape[-3:]
        assert read.right.op == "load" and read.left is group.left


def test_filters_are_walked_as_one_run() -> None:
    """Three taps are too short to be walked one by one; rows would be copied for each panel."""
    text = """g (float[1, 5, 20, 64] x) => (float[1, 4, h, w] y) { y = Conv(x, w) }"""
    group = _group(text, {"w": np.zeros((4, 5, 3, 3), np.float32)}, 16)
    strides = {x.tensor: row_major(x.tensor.shape) for x in loads_of(group.left)}
    strides |= {x.tensor: row_major(x.tensor.shape) for x in loads_of(group.right)}
    strides[group.root.buffer] = row_major(group.root.buffer.shape)
    access = ContractionSchedule(group, strides, 16).access
    assert access.direct
    assert (access.tap_count(), access.depth_extent) == (1, 5 * 3 * 3)
