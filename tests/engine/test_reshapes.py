"""Reshapes that join axes whose sizes are rounded divisions of what a run is fed."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from tests.support.session import model_of
from tests.support.tolerances import assert_near


def test_pixels_of_a_strided_window_become_rows() -> None:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "shape"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Sigmoid", ["t"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, "height", "width"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array([1, 4, -1]), "shape")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    session = sardonyx.InferenceSession(model.SerializeToString())
    random = np.random.default_rng(8)
    for height, width in ((6, 8), (7, 5), (1, 1), (64, 33), (6, 8)):
        x = random.standard_normal((1, 4, height, width)).astype(np.float32)
        rows = x[:, :, ::2, ::2].reshape(1, 4, -1).transpose(0, 2, 1)
        (y,) = session.run(None, {"x": x})
        assert_near(y, 1 / (1 + np.exp(-rows)), "float: functions")


@pytest.mark.parametrize("batch, channels, height", [(2, 2, 4), (1, 4, 4), (4, 1, 8), (2, 4, 8)])
@pytest.mark.parametrize("factors", [(2, 1), (2, 3), (4, 4)])
def test_split_and_merged_axes_of_one_size_are_told_apart(
    batch: int, channels: int, height: int, factors: tuple[int, int]
) -> None:
    """Rows are split by the factor; batch and channels merge to an axis as long as theirs."""
    shape = (batch, channels, height, 8)
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"])
    graph = helper.make_graph(
        [node],
        "larger",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array([1, 1, *factors], np.float32), "scales")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    session = sardonyx.InferenceSession(model.SerializeToString())
    x = np.random.default_rng(9).standard_normal(shape).astype(np.float32)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, x.repeat(factors[0], 2).repeat(factors[1], 3))


@pytest.mark.parametrize("shape", [(8, 16, 5), (3, 1, 5), (2, 7, 5)])
def test_rows_normalised_and_put_in_one_column(shape: tuple[int, ...]) -> None:
    """The index of a row is a quotient of the lanes' index; where it lies is the same for all."""
    text = (
        "g (float[A,B,5] x, float[5] s, float[5] b) => (float[C,D] y)"
        " { v = LayerNormalization<axis=-1>(x, s, b) c = Constant<value_ints=[-1, 1]>()"
        " y = Reshape(v, c) }"
    )
    random = np.random.default_rng(5)
    feeds = {
        name: random.standard_normal(size).astype(np.float32)
        for name, size in (("x", shape), ("s", (5,)), ("b", (5,)))
    }
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    (got,) = session.run(None, feeds)
    x = feeds["x"].astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    want = centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * feeds["s"] + feeds["b"]
    assert_near(got, want.reshape(-1, 1), "float: layers near zero")


@pytest.mark.parametrize("count", [4, 12])
def test_chains_of_reshapes_to_fed_sizes(count: int) -> None:
    """Each doubles the indices of the one before: 9 took 43 s to load when all were composed."""
    lengths = [2 + k % 3 for k in range(count)]
    lists = ", ".join(f"int64[{length}] s{k}" for k, length in enumerate(lengths))
    body = "a0 = Identity(x)"
    for k, length in enumerate(lengths):
        back = ",".join(map(str, reversed(range(length))))
        body += f" r{k} = Reshape(a{k}, s{k}) a{k + 1} = Transpose<perm=[{back}]>(r{k})"
    result = ",".join("PQRS"[: lengths[-1]])
    text = f"g (float[A,B] x, {lists}) => (float[{result}] y) {{ {body} y = Identity(a{count}) }}"
    session = sardonyx.InferenceSession(model_of(text, {}, opset=17).SerializeToString())
    copies = re.findall(r"^ *[0-9]+ copy_", session.explain(), re.MULTILINE)
    assert (len(copies) == 1) == (count == 4)
    random = np.random.default_rng(7)
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    sizes = {2: (4, 6), 3: (2, 3, 4), 4: (1, 2, 3, 4)}
    for _ in range(3):
        feeds, expected = {"x": x}, x
        for k, length in enumerate(lengths):
            feeds[f"s{k}"] = random.permutation(sizes[length])
            expected = expected.reshape(feeds[f"s{k}"]).transpose(*reversed(range(length)))
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
