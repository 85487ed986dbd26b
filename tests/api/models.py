"""Small models for tests of the face."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def model(
    nodes: list[Any],
    inputs: dict[str, tuple[int, Any]],
    outputs: dict[str, tuple[int, Any]],
    initializers: dict[str, Any] | None = None,
    ir_version: int = 8,
    **fields: Any,
) -> bytes:
    """Bytes of a model; inputs and outputs are name -> (element type, shape)."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net",
        [info(n, t, s) for n, (t, s) in inputs.items()],
        [info(n, t, s) for n, (t, s) in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (initializers or {}).items()],
        doc_string="about the graph",
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], **fields)
    made.ir_version = ir_version
    return bytes(made.SerializeToString())


def add(dtype: int = TensorProto.FLOAT, shape: Any = ("N", 3)) -> bytes:
    """y = a + b, z = a."""
    nodes = [helper.make_node("Add", ["a", "b"], ["y"]), helper.make_node("Neg", ["a"], ["z"])]
    both = {"a": (dtype, shape), "b": (dtype, shape)}
    return model(nodes, both, {"y": (dtype, shape), "z": (dtype, shape)})


def scaled(ir_version: int = 8, listed: tuple[str, ...] = ("w", "c")) -> bytes:
    """y = relu(x @ w + b) * c, with some of the weights listed as inputs."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((3, 4)).astype(np.float32),
        "b": random.standard_normal(4).astype(np.float32),
        "c": np.float32(2),
    }
    inputs = {"x": (TensorProto.FLOAT, ["N", 3])}
    inputs |= {n: (TensorProto.FLOAT, list(weights[n].shape)) for n in listed}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Mul", ["r", "c"], ["y"]),
    ]
    return model(nodes, inputs, {"y": (TensorProto.FLOAT, ["N", 4])}, weights, ir_version)
