"""Lists of more numbers than what is computed before a run is looked into."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.session import model_of

#: About what no target changes.
pytestmark = pytest.mark.once

MANY = 70
LENGTHS = np.arange(MANY) % 3
FLAT = "m = Constant<value_ints = [-1]>() f = Reshape(s, m)"


def model(inputs: str, body: str, weights: dict[str, Any] | None = None) -> onnx.ModelProto:
    """A model whose outputs have no declared rank."""
    made = model_of(f"g ({inputs}) => (float[n] y) {{ {body} }}", weights, opset=18)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made


def outputs(made: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all outputs of its last node."""
    del made.graph.output[:]
    for name in made.graph.node[-1].output:
        info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        made.graph.output.append(info)
    return made


SPLIT = f"{', '.join(f'y{k}' for k in range(MANY))} = Split(x, f)"


@pytest.mark.parametrize(
    ("inputs", "body", "weights"),
    [
        ("", SPLIT, {"f": LENGTHS}),
        (f", int64[{MANY}] f", SPLIT, {}),
        (f", int64[{MANY}, 1] s", f"{FLAT} {SPLIT}", {}),
        (f", int64[{MANY}] s, int64[{MANY}] t", f"f = Min(s, t) {SPLIT}", {}),
    ],
    ids=["constant", "fed", "reshaped", "computed"],
)
def test_lengths_of_many_parts(inputs: str, body: str, weights: dict[str, Any]) -> None:
    made = outputs(model(f"float[{LENGTHS.sum()}, 2] x{inputs}", body, weights))
    session = sardonyx.InferenceSession(made.SerializeToString())
    x = np.arange(2 * LENGTHS.sum(), dtype=np.float32).reshape(-1, 2)
    feeds: dict[str, Any] = {"x": x}
    for info in session.get_inputs()[1:]:
        feeds[info.name] = LENGTHS.reshape(info.shape)
    parts = session.run(None, feeds)
    wanted = np.split(x, np.cumsum(LENGTHS)[:-1])
    assert len(parts) == MANY
    for mine, theirs in zip(parts, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


ONE = "float[1, 1] x"
AXES = (
    r"Each of its elements makes an axis, and no array has so many\. Expected at most 64 elements,"
    r" got {0}\. Let it have one element for each axis of the result\."
)
#: Inputs, body, the node and what is wrong with it.
REFUSED: dict[str, tuple[str, str, str]] = {
    "Reshape": (
        f"{ONE}, int64[70,1] s", f"{FLAT} y = Reshape(x, f)",
        rf"node Reshape_2 \(Reshape\)\] \[The shape\] {AXES.format(70)}",
    ),
    "Reshape, fed": (
        f"{ONE}, int64[70] s", "y = Reshape(x, s)",
        rf"node Reshape_0 \(Reshape\)\] \[The shape\] {AXES.format(70)}",
    ),
    "Expand": (
        f"{ONE}, int64[7,10] s", f"{FLAT} y = Expand(x, f)",
        rf"node Expand_2 \(Expand\)\] \[The shape\] {AXES.format(70)}",
    ),
    "ConstantOfShape": (
        f"{ONE}, int64[70,1] s", f"{FLAT} y = ConstantOfShape(f)",
        rf"node ConstantOfShape_2 \(ConstantOfShape\)\] \[The shape\] {AXES.format(70)}",
    ),
    "a list that is known": (
        ONE, "m = Constant<value_ints = [65]>() y = ConstantOfShape(t) t = Expand(o, m)"
        " o = Constant<value_int = 1>()",
        rf"node ConstantOfShape_\d \(ConstantOfShape\)\] \[The shape\] {AXES.format(65)}",
    ),
    "Unsqueeze": (
        f"{ONE}, int64[70,1] s", f"{FLAT} y = Unsqueeze(x, f)",
        rf"node Unsqueeze_2 \(Unsqueeze\)\] \[Unsqueeze: The choice of axes\] {AXES.format(72)}",
    ),
    "Tile": (
        f"{ONE}, int64[70,1] s", f"{FLAT} y = Tile(x, f)",
        r"node Tile_2 \(Tile\)\] \[Tile\] 70 repeats for 2 axes",
    ),
    "Pad": (
        f"{ONE}, int64[70,1] s", f"{FLAT} y = Pad(x, f)",
        r"node Pad_2 \(Pad\)\] \[Pad\] 70 pads do not fit the axes \[0, 1\]",
    ),
    "Split": (
        f"{ONE}, int64[70,1] s", f"{FLAT} y, z = Split(x, f)",
        r"node Split_2 \(Split\)\] \[Split\] 70 lengths do not fit 2 outputs",
    ),
    "in both branches": (
        f"{ONE}, int64[70,1] s, bool c",
        f"y = If (c) <then_branch = t () => (float[k] v) {{ {FLAT} v = Reshape(x, f) }},"
        " else_branch = e () => (float[l] w) { n = Constant<value_ints = [-1]>()"
        " g = Reshape(s, n) w = Expand(x, g) }>",
        rf"node If_0 \(If\)\] \[node Reshape_2 \(Reshape\)\] \[The shape\] {AXES.format(70)}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_array_has_is_refused_by_node(name: str) -> None:
    inputs, body, part = REFUSED[name]
    made = model(inputs, body)
    made.graph.node.sort(key=lambda node: node.op_type == "ConstantOfShape")
    with pytest.raises(errors.InvalidGraph, match=part):
        sardonyx.InferenceSession(made.SerializeToString())


def test_lengths_that_come_with_a_run() -> None:
    made = model(f"{ONE}, int64[a,b] s", f"{FLAT} y = Reshape(x, f)")
    session = sardonyx.InferenceSession(made.SerializeToString())
    one = np.ones((1, 1), np.float32)
    for shape in ((70, 1), (1, 65)):
        part = rf"take s of shape .*node Reshape_2 \(Reshape\)\].*{AXES.format(max(shape))}"
        with pytest.raises(errors.InvalidArgument, match=part):
            session.run(None, {"x": one, "s": np.ones(shape, np.int64)})
    (y,) = session.run(None, {"x": one, "s": np.ones((8, 8), np.int64)})
    np.testing.assert_array_equal(y, one.reshape([1] * 64))


def test_a_list_that_is_longer_than_runs_measure() -> None:
    names = ", ".join(f"y{k}" for k in range(1025))
    made = model("float[1025] x, int64[1025, 1] s", f"{FLAT} y, {names} = Split(x, f)")
    part = (
        r"node Split_2 \(Split\)\] A list of sizes is too long: The lengths: known only in a run\."
        r" Expected at most 1024 elements, got 1025\. Make f constant, or shorter"
    )
    with pytest.raises(errors.NotImplemented, match=part):
        sardonyx.InferenceSession(made.SerializeToString())
