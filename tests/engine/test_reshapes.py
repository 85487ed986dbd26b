"""Reshapes that join axes whose sizes are rounded divisions of what a run is fed."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

import sardonyx


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
        np.testing.assert_allclose(y, 1 / (1 + np.exp(-rows)), rtol=1e-5)
