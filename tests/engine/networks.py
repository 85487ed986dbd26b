"""Small networks for the tests, as ONNX models with seeded weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_TYPES = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}


class Net:
    """Collects nodes and weights of one model."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.random = np.random.default_rng(seed)

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """A random float weight; by default of a size that keeps the variance."""
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        values = self.random.standard_normal(shape) * (fan**-0.5 if scale is None else scale)
        return self.constant(values.astype(np.float32))

    def constant(self, values: Any) -> str:
        """A weight with these values."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """A node; gives the name of its output, or a list of names."""
        number = len(self.nodes)
        names = [f"{op.lower()}{number}.{k}" for k in range(outputs)]
        self.nodes.append(
            helper.make_node(op, list(inputs), names, name=f"{op}_{number}", **attributes)
        )
        return names[0] if outputs == 1 else names

    def model(
        self, inputs: dict[str, tuple[str, list[Any]]], outputs: list[str], opset: int = 17
    ) -> onnx.ModelProto:
        """The model."""
        given = [
            helper.make_tensor_value_info(n, _TYPES[t], shape) for n, (t, shape) in inputs.items()
        ]
        wanted = [helper.make_empty_tensor_value_info(n) for n in outputs]
        graph = helper.make_graph(self.nodes, "net", given, wanted, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        made.ir_version = 8
        return made


def perceptron() -> onnx.ModelProto:
    """Three layers, with a batch of any size."""
    n = Net()
    h = "x"
    for width, wide in ((40, 70), (70, 33), (33, 5)):
        h = n.add("Gemm", h, n.weight(wide, width), n.weight(wide), transB=1)
        h = n.add("Relu", h)
    return n.model({"x": ("f", ["N", 40])}, [h])


def convolutional() -> onnx.ModelProto:
    """Convolutions of all kinds, batch norm, residual, pooling; any batch, height and width."""
    n = Net(1)
    h = n.add("Conv", "x", n.weight(20, 3, 3, 3), n.weight(20), strides=[2, 2], pads=[1, 1, 1, 1])
    ones = [n.constant(np.abs(n.random.standard_normal(20)).astype(np.float32) + 0.5)]
    h = n.add("BatchNormalization", h, ones[0], n.weight(20), n.weight(20, scale=0.1), ones[0])
    h = n.add("HardSwish", h)
    wide = n.add("Conv", h, n.weight(48, 20, 1, 1))
    deep = n.add("Conv", wide, n.weight(48, 1, 3, 3), n.weight(48), group=48, pads=[1, 1, 1, 1])
    deep = n.add("Clip", deep, n.constant(np.float32(0)), n.constant(np.float32(6)))
    back = n.add("Conv", deep, n.weight(20, 48, 1, 1))
    h = n.add("Add", h, back)
    grouped = n.add("Conv", h, n.weight(20, 5, 3, 3), group=4, pads=[1, 1, 1, 1])
    pooled = n.add("MaxPool", grouped, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    up = n.add("ConvTranspose", pooled, n.weight(20, 7, 2, 2), n.weight(7), strides=[2, 2])
    average = n.add("GlobalAveragePool", pooled)
    flat = n.add("Flatten", average)
    logits = n.add("Gemm", flat, n.weight(11, 20), n.weight(11), transB=1)
    return n.model({"x": ("f", ["N", 3, "H", "W"])}, [n.add("Softmax", logits, axis=1), up])


def _heads(n: Net, x: str, heads: int, depth: int) -> str:
    shaped = n.add("Reshape", x, n.constant(np.array([0, 0, heads, depth], np.int64)))
    return str(n.add("Transpose", shaped, perm=[0, 2, 1, 3]))


def transformer(heads: int = 3, depth: int = 20) -> onnx.ModelProto:
    """One encoder layer with a padding mask; any batch and length."""
    n, width = Net(2), heads * depth
    x = n.add("Gather", n.weight(50, width, scale=1.0), "ids")
    q, k, v = (
        _heads(
            n,
            n.add("Add", n.add("MatMul", x, n.weight(width, width)), n.weight(width)),
            heads,
            depth,
        )
        for _ in range(3)
    )
    scores = n.add("MatMul", q, n.add("Transpose", k, perm=[0, 1, 3, 2]))
    scores = n.add("Div", scores, n.constant(np.float32(depth**0.5)))
    mask = n.add("Cast", n.add("Unsqueeze", "mask", n.constant(np.array([1, 2]))), to=1)
    hidden = n.add(
        "Mul", n.add("Sub", n.constant(np.float32(1)), mask), n.constant(np.float32(-1e9))
    )
    weights = n.add("Softmax", n.add("Add", scores, hidden), axis=-1)
    mixed = n.add("Transpose", n.add("MatMul", weights, v), perm=[0, 2, 1, 3])
    mixed = n.add("Reshape", mixed, n.constant(np.array([0, 0, width], np.int64)))
    x = n.add("Add", x, n.add("MatMul", mixed, n.weight(width, width)))
    x = n.add("LayerNormalization", x, n.weight(width, scale=1.0), n.weight(width), axis=-1)
    h = n.add("Add", n.add("MatMul", x, n.weight(width, 2 * width)), n.weight(2 * width))
    erf = n.add("Erf", n.add("Div", h, n.constant(np.float32(2**0.5))))
    h = n.add(
        "Mul",
        n.add("Mul", h, n.add("Add", erf, n.constant(np.float32(1)))),
        n.constant(np.float32(0.5)),
    )
    x = n.add("Add", x, n.add("MatMul", h, n.weight(2 * width, width)))
    return n.model({"ids": ("i", ["N", "S"]), "mask": ("i", ["N", "S"])}, [x])


def decoder_step(heads: int = 2, depth: int = 16) -> onnx.ModelProto:
    """Attention over a past that grows; gives the result and the new past."""
    n, width = Net(3), heads * depth
    q, k, v = (
        _heads(n, n.add("MatMul", "x", n.weight(width, width)), heads, depth) for _ in range(3)
    )
    keys = n.add("Concat", "past_key", k, axis=2)
    values = n.add("Concat", "past_value", v, axis=2)
    scores = n.add("MatMul", q, n.add("Transpose", keys, perm=[0, 1, 3, 2]))
    weights = n.add("Softmax", n.add("Mul", scores, n.constant(np.float32(depth**-0.5))), axis=-1)
    mixed = n.add("Transpose", n.add("MatMul", weights, values), perm=[0, 2, 1, 3])
    y = n.add("Reshape", mixed, n.constant(np.array([0, 0, width], np.int64)))
    past = ["N", heads, "P", depth]
    inputs = {"x": ("f", ["N", "S", width]), "past_key": ("f", past), "past_value": ("f", past)}
    return n.model(inputs, [n.add("MatMul", y, n.weight(width, width)), keys, values])
