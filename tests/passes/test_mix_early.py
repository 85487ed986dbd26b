"""Convolutions of 1 x 1 behind enlarged images, and behind linear layers."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from sardonyx.loader.load import load
from sardonyx.passes.pipeline import PassLook, optimise
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(21)


def _w(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return _random.standard_normal(shape).astype(dtype)


_RESIZE = 'Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">'
_TWICE = np.array([1, 1, 2, 2], np.float32)
_IMAGES = "float[N,3,H,W] a, float[N,5,H2,W2] b"
_SIZES = {"a": (2, 3, 4, 5), "b": (2, 5, 8, 10)}
_LAYER = "m = MatMul(t, u) n = Add(m, r) p = Transpose<perm = [0, 2, 1]>(n)"

#: name: (inputs, nodes behind which y is the result, weights, sizes of feeds, what convolutions
#: and products read afterwards: their operators and the height of the image, or rows)
REWRITTEN = {
    "one image": (
        "float[N,3,H,W] a", f"c = {_RESIZE}(a, , s) y = Conv(c, w, k)",
        {"s": _TWICE, "w": _w(3, 3, 1, 1), "k": _w(3)}, {"a": (2, 3, 4, 5)}, [("Conv", 3)],
    ),
    "two images, one of them as it is": (
        _IMAGES, f"c = {_RESIZE}(a, , s) d = Concat<axis = 1>(b, c) y = Conv(d, w, k)",
        {"s": _TWICE, "w": _w(3, 8, 1, 1), "k": _w(3)}, _SIZES, [("Conv", 3), ("Conv", 5)],
    ),
    "an axis that is counted from behind, no bias, cubic": (
        _IMAGES,
        'c = Resize<mode = "cubic">(a, , s) d = Concat<axis = -3>(c, b) y = Conv(d, w)',
        {"s": _TWICE, "w": _w(2, 8, 1, 1)}, _SIZES, [("Conv", 3), ("Conv", 5)],
    ),
    "sizes in place of scales": (
        "float[N,3,H,W] a",
        f"q = Shape(a) t = Mul(q, z) c = {_RESIZE}(a, , , t) y = Conv(c, w, k)",
        {"z": np.array([1, 1, 3, 2]), "w": _w(1, 3, 1, 1), "k": _w(1)}, {"a": (1, 3, 2, 3)},
        [("Conv", 3)],
    ),
    "sizes of chosen axes": (
        "float[N,3,4,5] a",
        'c = Resize<mode = "nearest", axes = [3, 1, 2]>(a, , , t) y = Conv(c, w, k)',
        {"t": np.array([15, 3, 8]), "w": _w(2, 3, 1, 1), "k": _w(2)}, {"a": (2, 3, 4, 5)},
        [("Conv", 3)],
    ),
    "batch norms behind": (
        "float[N,3,H,W] a",
        f"c = {_RESIZE}(a, , s) e = Conv(c, w) y = BatchNormalization(e, k, k2, k3, k4)",
        {"s": _TWICE, "w": _w(3, 3, 1, 1), "k": _w(3), "k2": _w(3), "k3": _w(3),
         "k4": np.abs(_w(3)) + 1},
        {"a": (2, 3, 4, 5)}, [("Conv", 3)],
    ),
    "volumes of doubles": (
        "double[N,3,4,2,3] a", 'c = Resize<mode = "linear">(a, , s) y = Conv(c, w, k)',
        {"s": np.array([1, 1, 2, 2, 1], np.float32), "w": _w(3, 3, 1, 1, 1, dtype=np.float64),
         "k": _w(3, dtype=np.float64)},
        {"a": (2, 3, 4, 2, 3)}, [("Conv", 3)],
    ),
    "a linear layer": (
        "float[N,20,6] t", f"{_LAYER} q = Reshape(p, g) y = Conv(q, w, k)",
        {"u": _w(6, 8), "r": _w(8), "g": np.array([0, 8, 4, 5]), "w": _w(8, 8, 1, 1), "k": _w(8)},
        {"t": (2, 20, 6)}, [("MatMul", 6)],
    ),
    "another number of channels, and the steps in another order": (
        "float[N,20,6] t",
        "m = MatMul(t, u) n = Add(r, m) p = Reshape(n, g) q = Transpose<perm = [0, 3, 1, 2]>(p)"
        " y = Conv(q, w)",
        {"u": _w(6, 8), "r": _w(8), "g": np.array([-1, 4, 5, 8]), "w": _w(3, 8, 1, 1)},
        {"t": (2, 20, 6)}, [("MatMul", 6)],
    ),
    "a head of a network of three images, two of linear layers": (
        "float[N,20,6] t, float[N,5,8,10] b, float[N,3,4,5] a",
        f"{_LAYER} q = Reshape(p, g) c = {_RESIZE}(q, , s) f = {_RESIZE}(a, , s)"
        " d = Concat<axis = 1>(c, b, f) e = Conv(d, w, k) y = Relu(e)",
        {"u": _w(6, 8), "r": _w(8), "g": np.array([0, -1, 4, 5]), "s": _TWICE,
         "w": _w(3, 16, 1, 1), "k": _w(3)},
        {"t": (2, 20, 6), "b": (2, 5, 8, 10), "a": (2, 3, 4, 5)},
        [("Conv", 5), ("MatMul", 6), ("Conv", 3)],
    ),
}  # fmt: skip
_W = {"s": _TWICE, "w": _w(3, 3, 1, 1), "k": _w(3)}
#: The same without what is left as it is: inputs, nodes, weights, sizes of feeds.
LEFT = {
    "a few channels, which become more": (
        "float[N,3,4,4] a", f"c = {_RESIZE}(a, , s) y = Conv(c, w, k)",
        _W | {"w": _w(5, 3, 1, 1), "k": _w(5)}, {"a": (1, 3, 4, 4)},
    ),
    "mixtures of channels, as many as there were": (
        "float[N,20,4,4] a", f"c = {_RESIZE}(a, , s) y = Conv(c, w, k)",
        _W | {"s": np.array([1, 1.04, 2, 2], np.float32), "w": _w(40, 20, 1, 1), "k": _w(40)},
        {"a": (1, 20, 4, 4)},
    ),
    "a size that is taken over from as many rows as there are channels": (
        "float[8,6] t", "m = MatMul(t, u) q = Reshape(m, g)"
        " p = Transpose<perm = [0, 2, 1, 3]>(q) y = Conv(p, w)",
        {"u": _w(6, 8), "g": np.array([1, 0, -1, 1]), "w": _w(4, 8, 1, 1)}, {"t": (8, 6)},
    ),
    "a smaller image": (
        "float[N,3,8,8] a", f"c = {_RESIZE}(a, , s) y = Conv(c, w, k)",
        _W | {"s": np.array([1, 1, 0.5, 0.5], np.float32)}, {"a": (1, 3, 8, 8)},
    ),
    "numbers from outside of the image": (
        "float[N,3,4,4] a",
        'c = Resize<mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize">'
        "(a, o, s) y = Conv(c, w, k)",
        _W | {"o": np.array([0, 0, 0, -0.5, 1, 1, 1, 1.5], np.float32)}, {"a": (1, 3, 4, 4)},
    ),
    "a resized image that others read": (
        "float[N,3,4,4] a",
        f"c = {_RESIZE}(a, , s) e = Conv(c, w, k) f = ReduceSum(c) y = Add(e, f)",
        _W, {"a": (1, 3, 4, 4)},
    ),
    "a window": (
        "float[N,3,4,4] a", f"c = {_RESIZE}(a, , s) y = Conv(c, w, k)", _W | {"w": _w(3, 3, 3, 3)},
        {"a": (1, 3, 4, 4)},
    ),
    "a border": (
        "float[N,3,4,4] a", f"c = {_RESIZE}(a, , s) y = Conv<pads = [1, 1, 1, 1]>(c, w, k)", _W,
        {"a": (1, 3, 4, 4)},
    ),
    "steps": (
        "float[N,3,4,4] a", f"c = {_RESIZE}(a, , s) y = Conv<strides = [2, 2]>(c, w, k)", _W,
        {"a": (1, 3, 4, 4)},
    ),
    "groups": (
        "float[N,3,4,4] a", f"c = {_RESIZE}(a, , s) y = Conv<group = 3>(c, w, k)",
        _W | {"w": _w(3, 1, 1, 1), "k": _w(3)}, {"a": (1, 3, 4, 4)},
    ),
    "weights that are fed": (
        "float[N,3,4,4] a, float[3,3,1,1] w", f"c = {_RESIZE}(a, , s) y = Conv(c, w, k)",
        {"s": _TWICE, "k": _w(3)}, {"a": (1, 3, 4, 4), "w": (3, 3, 1, 1)},
    ),
    "half floats": (
        "float16[N,3,4,4] a", f"c = {_RESIZE}(a, , s) y = Conv(c, w, k)",
        {"s": _TWICE, "w": _w(3, 3, 1, 1, dtype=np.float16), "k": _w(3, dtype=np.float16)},
        {"a": (1, 3, 4, 4)},
    ),
    "other axes side by side": (
        "float[N,3,4,4] a, float[N,3,8,8] b",
        f"c = {_RESIZE}(a, , s) d = Concat<axis = 2>(b, c) y = Conv(d, w, k)", _W,
        {"a": (1, 3, 4, 4), "b": (1, 3, 8, 8)},
    ),
    "a narrow layer between two wide ones": (
        "float[N,20,6] t", f"{_LAYER} q = Reshape(p, g) y = Conv(q, w, k)",
        {"u": _w(6, 2), "r": _w(2), "g": np.array([0, 2, 4, 5]), "w": _w(8, 2, 1, 1), "k": _w(8)},
        {"t": (2, 20, 6)},
    ),
    "a layer that others read": (
        "float[N,20,6] t",
        f"{_LAYER} q = Reshape(p, g) e = Conv(q, w, k) f = ReduceSum(n) y = Add(e, f)",
        {"u": _w(6, 8), "r": _w(8), "g": np.array([0, 8, 4, 5]), "w": _w(8, 8, 1, 1), "k": _w(8)},
        {"t": (2, 20, 6)},
    ),
    "a reshape that cuts channels": (
        "float[N,20,8] t", "m = MatMul(t, u) q = Reshape(m, g) y = Conv(q, w, k)",
        {"u": _w(8, 8), "g": np.array([-1, 8, 4, 5]), "w": _w(8, 8, 1, 1), "k": _w(8)},
        {"t": (2, 20, 8)},
    ),
}  # fmt: skip


def _model(inputs: str, nodes: str, weights: dict, kind: str = "float") -> bytes:
    rank = next((w.ndim for n, w in weights.items() if n == "w"), 4)
    dims = ",".join(f"d{k}" for k in range(rank))
    text = f"g ({inputs}) => ({kind}[{dims}] y) {{ {nodes} }}"
    return model_of(text, weights, opset=18).SerializeToString()


def _summing(model: bytes, *without: str) -> list[tuple[str, object]]:
    """What convolutions and products of a run read: the operator, and its channels or columns."""
    graph = load(model)
    optimise(graph, look=PassLook(verify=True), without=without)
    return [
        (n.op_type, n.inputs[0].shape[1 if n.op_type == "Conv" else -1])
        for n in graph.nodes
        if n.op_type in ("Conv", "MatMul") and n.inputs[0].constant is None
        and n.output.dtype.name != "double" or n.op_type == "Conv"
    ]  # fmt: skip


def _run(model: bytes, feeds: dict, without: list[str] | None = None) -> np.ndarray:
    options = sardonyx.SessionOptions()
    if without is not None:
        options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    return sardonyx.InferenceSession(model, options).run(None, feeds)[0]


def _kind(inputs: str) -> str:
    return inputs.split("[")[0]


def _feeds(inputs: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    kind = {"float": np.float32, "double": np.float64, "float16": np.float16}[_kind(inputs)]
    return {n: _w(*s, dtype=kind) for n, s in shapes.items()}


@pytest.mark.parametrize("name", REWRITTEN)
def test_sums_are_of_small_images(name: str) -> None:
    inputs, nodes, weights, shapes, found = REWRITTEN[name]
    model = _model(inputs, nodes, weights, _kind(inputs))
    assert sorted(_summing(model), key=str) == sorted(found, key=str)
    feeds = _feeds(inputs, shapes)
    want = _run(model, feeds, [])
    got = _run(model, feeds)
    assert got.dtype == want.dtype
    scale = np.abs(want).max()
    assert_near(got / scale, want / scale, "float: values of a grid")


@pytest.mark.parametrize("name", LEFT)
def test_everything_else_is_left(name: str) -> None:
    inputs, nodes, weights, shapes = LEFT[name]
    model = _model(inputs, nodes, weights, _kind(inputs))
    assert _summing(model) == _summing(model, "mix channels before resizing")
    feeds = _feeds(inputs, shapes)
    want, got = (_run(model, feeds, without) for without in ([], None))
    is_half = want.dtype == np.float16
    assert_near(got, want, "half: layers near zero" if is_half else "float: layers near zero")


def test_sizes_of_a_run() -> None:
    """Whether an image gets larger is not known: it probably does."""
    text = f"""g (float[N,3,H,W] a, int64[4] t) => (float[N,3,P,Q] y)
        {{ c = {_RESIZE}(a, , , t) y = Conv(c, w, k) }}"""
    model = model_of(text, {"w": _w(3, 3, 1, 1), "k": _w(3)}, opset=18).SerializeToString()
    for shape in ((2, 3, 9, 8), (2, 3, 2, 1)):
        feeds = {"a": _w(2, 3, 4, 5), "t": np.array(shape)}
        want, got = (_run(model, feeds, without) for without in ([], None))
        assert got.shape == (2, 3, *shape[2:])
        assert_near(got, want, "float: sums")
