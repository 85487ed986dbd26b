"""Errors about sizes that cannot be name the node that makes the size, before a run and in one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.base.errors import SardonyxError

HUGE = 1 << 40
ONES = np.ones((1, 1, 3, 3), np.float32)
IMAGE = np.zeros((1, 1, 8, 8), np.float32)
MATRIX = np.zeros((2, 3), np.float32)
ROW = np.zeros((1, 1), np.float32)
EMPTY = np.zeros(0, np.float32)
FAR = np.array([1, 1, 1e10, 1e10], np.float32)


def _whole(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


#: Operator: feeds, weights, attributes. The node makes a size out of weights or attributes.
WRITTEN: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "Conv": ({"x": IMAGE}, {"w": ONES}, {"pads": [HUGE] * 4}),
    "ConvTranspose": ({"x": IMAGE}, {"w": ONES}, {"strides": [2**31 - 1] * 2}),
    "Tile": ({"x": MATRIX}, {"r": _whole(HUGE, HUGE)}, {}),
    "Pad": ({"x": MATRIX}, {"p": _whole(*[HUGE] * 4)}, {}),
    "Resize": ({"x": IMAGE}, {"r": EMPTY, "s": FAR}, {}),
    "Upsample": ({"x": IMAGE}, {"s": FAR}, {}),
    "OneHot": ({"x": _whole(0, 1)}, {"d": np.array(1 << 60), "v": _whole(0, 1)}, {}),
    "MaxUnpool": (
        {"x": IMAGE, "i": np.zeros(IMAGE.shape, np.int64)}, {},
        {"kernel_shape": [2, 2], "strides": [HUGE, HUGE]},
    ),
}  # fmt: skip
#: Operator: feeds, in the order of its inputs. The node makes a size out of what is fed.
FED: dict[str, dict[str, Any]] = {
    "Tile": {"x": MATRIX, "r": _whole(HUGE, HUGE)},
    "Pad": {"x": MATRIX, "p": _whole(*[HUGE] * 4)},
    "Expand": {"x": ROW, "s": _whole(HUGE, HUGE)},
    "ConstantOfShape": {"s": _whole(HUGE, HUGE)},
    "Reshape": {"x": MATRIX, "s": _whole(HUGE, HUGE)},
    "Range": {"a": np.array(0), "b": np.array(1 << 60), "c": np.array(1)},
    "OneHot": {"x": _whole(0, 1), "d": np.array(1 << 60), "v": _whole(0, 1)},
    "Resize": {"x": IMAGE, "": EMPTY, "e": EMPTY, "s": _whole(1, 1, HUGE, HUGE)},
    "CenterCropPad": {"x": MATRIX, "s": _whole(HUGE, HUGE)},
    "BlackmanWindow": {"n": np.array(1 << 60)},
}


def _model(
    op_type: str, feeds: dict[str, Any], weights: dict[str, Any], attributes: dict[str, Any],
    *, free: bool, opset: int = 21,
) -> onnx.ModelProto:  # fmt: skip
    """The node between two others that make no size."""
    first = next(iter(feeds))
    dtype = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
    shapes = {
        n: [f"{n}{k}" if free else d for k, d in enumerate(v.shape)] for n, v in feeds.items()
    }
    nodes = [
        helper.make_node("Identity", [first], ["before"], name="before"),
        helper.make_node(
            op_type, ["before", *[*feeds][1:], *weights], ["y"], name="culprit", **attributes
        ),
        helper.make_node("Identity", ["y"], ["z"], name="after"),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, dtype[n], shapes[n]) for n in feeds if n],
        [onnx.ValueInfoProto(name="z")],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _error(model: onnx.ModelProto, feeds: dict[str, Any]) -> str:
    with pytest.raises(SardonyxError) as caught:
        session = sardonyx.InferenceSession(model.SerializeToString())
        session.run(None, {n: v for n, v in feeds.items() if n})
    return str(caught.value)


@pytest.mark.parametrize("free", [False, True], ids=["written shapes", "free shapes"])
@pytest.mark.parametrize("op_type", WRITTEN)
def test_sizes_of_weights_and_attributes(op_type: str, free: bool) -> None:
    feeds, weights, attributes = WRITTEN[op_type]
    opset = 9 if op_type == "Upsample" else 21
    model = _model(op_type, feeds, weights, attributes, free=free, opset=opset)
    assert f"[node culprit ({op_type})]" in _error(model, feeds)


@pytest.mark.parametrize("op_type", FED)
def test_sizes_that_are_fed(op_type: str) -> None:
    feeds = FED[op_type]
    model = _model(op_type, feeds, {}, {}, free=False)
    assert f"[node culprit ({op_type})]" in _error(model, feeds)


def test_a_number_that_is_no_size() -> None:
    feeds = {"x": MATRIX, "r": _whole(2, 1 << 62)}
    text = _error(_model("Tile", feeds, {}, {}, free=True), feeds)
    assert "[node culprit (Tile)] It computes the size 4611686018427387904" in text


@pytest.mark.parametrize("free", [False, True], ids=["written shapes", "free shapes"])
def test_more_memory_than_there_is(free: bool) -> None:
    weights = {"r": _whole(1 << 22, 1 << 22)}
    model = _model("Tile", {"x": MATRIX}, weights, {}, free=free)
    assert "culprit" in _error(model, {"x": MATRIX})


def test_a_negative_size() -> None:
    small = {"x": IMAGE[:, :, :1, :1]}
    model = _model("Conv", small, {"w": ONES}, {}, free=True)
    assert "node culprit (Conv)" in _error(model, small)


def test_inside_a_loop() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[n] x, int64 m, int64[1] r) => (float[k] y) {
            c = Constant<value = bool {1}>()
            [outer] y = Loop(m, c, x) <body = b (int64 i, bool go, float[p] v)
                => (bool on, float[q] w) {
                on = Identity(go)
                [culprit] w = Tile(v, r) }> }""")
    feeds = {"x": MATRIX[0], "m": np.array(3), "r": _whole(HUGE)}
    assert "node culprit" in _error(model, feeds)
