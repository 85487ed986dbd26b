"""Small networks as exporters write them: layers in elementary operators, random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

_TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}


class Net:
    """A graph being written: every method adds nodes and gives the name of their result."""

    def __init__(self, opset: int = 17, seed: int = 0) -> None:
        self.opset = opset
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Any] = []
        self.feeds: dict[str, Any] = {}
        self.outputs: list[str] = []

    def input(self, name: str, shape: list[Any], array: Any) -> str:
        """A graph input, and what to feed it."""
        self.inputs.append(helper.make_tensor_value_info(name, _TYPES[array.dtype], shape))
        self.feeds[name] = array
        return name

    def op(self, op_type: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """A node; numbers and arrays among its inputs become constants."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        made = [f"{op_type}_{len(self.nodes)}_{k}" for k in range(outputs)]
        domain = attributes.pop("domain", "")
        self.nodes.append(helper.make_node(op_type, names, made, domain=domain, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, x: Any) -> str:
        """A constant: floats for numbers with a point, else integers."""
        array = np.asarray(x)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int) -> Any:
        """Random weights of about such a size that activations stay as they are."""
        return (self.random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def linear(self, x: str, inner: int, outer: int, *, bias: bool = True) -> str:
        """x @ w + b."""
        y = self.op("MatMul", x, self.weight(inner, outer))
        return self.op("Add", self.weight(outer), y) if bias else y

    def norm(self, x: str, size: int) -> str:
        """A layer normalisation: the operator where there is one, else written out."""
        gain, shift = 1 + self.weight(size) / 4, self.weight(size) / 4
        if self.opset >= 17:
            return self.op("LayerNormalization", x, gain, shift, axis=-1, epsilon=1e-5)
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        variance = self.op("ReduceMean", self.op("Pow", centred, 2.0), axes=[-1])
        normal = self.op("Div", centred, self.op("Sqrt", self.op("Add", variance, 1e-5)))
        return self.op("Add", self.op("Mul", normal, gain), shift)

    def rms_norm(self, x: str, size: int) -> str:
        """x / sqrt(mean(x ** 2) + epsilon) * gain, as Llama's exports have it."""
        mean = self.op("ReduceMean", self.op("Pow", x, 2.0), axes=[-1])
        root = self.op("Sqrt", self.op("Add", mean, 1e-6))
        return self.op(
            "Mul", 1 + self.weight(size) / 4, self.op("Mul", x, self.op("Div", 1.0, root))
        )

    def gelu(self, x: str) -> str:
        """GELU by erf, as PyTorch exports it."""
        bent = self.op("Add", self.op("Erf", self.op("Div", x, np.sqrt(2.0))), 1.0)
        return self.op("Mul", self.op("Mul", x, bent), 0.5)

    def tanh_gelu(self, x: str) -> str:
        """GELU by tanh, as GPT-2's exports have it."""
        inner = self.op("Add", x, self.op("Mul", self.op("Pow", x, 3.0), 0.044715))
        bent = self.op("Add", self.op("Tanh", self.op("Mul", inner, np.sqrt(2 / np.pi))), 1.0)
        return self.op("Mul", self.op("Mul", x, 0.5), bent)

    def split(self, x: str, heads: int, size: int, perm: tuple[int, ...] = (0, 2, 1, 3)) -> str:
        """Heads of a projection, their shape computed from that of `x`."""
        sizes = self.op("Shape", x)
        batch, length = (self.op("Gather", sizes, np.array([k]), axis=0) for k in (0, 1))
        target = self.op("Concat", batch, length, np.array([heads]), np.array([size]), axis=0)
        return self.op("Transpose", self.op("Reshape", x, target), perm=perm)

    def join(self, heads: str, like: str, channels: int) -> str:
        """Heads side by side again."""
        sizes = self.op("Shape", like)
        batch, length = (self.op("Gather", sizes, np.array([k]), axis=0) for k in (0, 1))
        target = self.op("Concat", batch, length, np.array([channels]), axis=0)
        turned = self.op("Transpose", heads, perm=(0, 2, 1, 3))
        return self.op("Reshape", turned, target)

    def attention(
        self,
        x: str,
        heads: int,
        channels: int,
        *,
        other: str | None = None,
        mask: str | None = None,
        scale: str = "scores",
        key_bias: bool = True,
        second: str | None = None,
    ) -> str:
        """Attention of `x` to `other` or itself, without the projection after it."""
        size = channels // heads
        source = other or x
        q = self.linear(x, channels, channels)
        if scale == "queries":
            q = self.op("Mul", q, size**-0.5)
        q = self.split(q, heads, size)
        k = self.linear(source, channels, channels, bias=key_bias)
        v = self.split(self.linear(source, channels, channels), heads, size)
        if scale == "both":
            q = self.op("Mul", q, size**-0.25)
            turned = self.op("Transpose", self.split(k, heads, size), perm=(0, 1, 3, 2))
            scores = self.op("MatMul", q, self.op("Mul", turned, size**-0.25))
        else:
            scores = self.op("MatMul", q, self.split(k, heads, size, (0, 2, 3, 1)))
        if scale == "scores":
            scores = self.op("Div", scores, size**0.5)
        for added in (mask, second):
            if added is not None:
                scores = self.op("Add", scores, added)
        return self.join(self.op("MatMul", self.op("Softmax", scores, axis=-1), v), x, channels)

    def padding_mask(self, mask: str) -> str:
        """(N, S) of zeros and ones -> (N, 1, 1, S): 0 and a large negative number."""
        wide = self.op("Unsqueeze", self.op("Unsqueeze", mask, np.array([1])), np.array([2]))
        number = self.op("Cast", wide, to=TensorProto.FLOAT)
        return self.op("Mul", self.op("Sub", 1.0, number), -10000.0)

    def model(self, *outputs: str) -> Any:
        """The whole as a ModelProto."""
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, values, self.weights)
        imports = [helper.make_opsetid("", self.opset)]
        if any(node.domain for node in self.nodes):
            imports.append(helper.make_opsetid("com.microsoft", 1))
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def bert(opset: int = 17, layers: int = 2) -> tuple[Any, dict[str, Any]]:
    """Embeddings of words, places and segments; attention with a padding mask; GELU by erf."""
    net, size, heads = Net(opset), 32, 4
    ids = net.input("ids", ["N", "S"], net.random.integers(0, 50, (2, 6)))
    types = net.input("types", ["N", "S"], net.random.integers(0, 2, (2, 6)))
    mask = net.input("mask", ["N", "S"], np.array([[1] * 6, [1] * 4 + [0] * 2]))
    words = net.op("Gather", net.weight(50, size), ids)
    length = net.op("Gather", net.op("Shape", ids), np.array([1]), axis=0)
    count = np.arange(16)[None]
    places = net.op("Slice", count, np.array([0]), length, np.array([1]))
    placed = net.op("Gather", net.weight(16, size), places)
    typed = net.op("Gather", net.weight(2, size), types)
    x = net.norm(net.op("Add", net.op("Add", words, typed), placed), size)
    added = net.padding_mask(mask)
    for _ in range(layers):
        y = net.linear(net.attention(x, heads, size, mask=added), size, size)
        x = net.norm(net.op("Add", y, x), size)
        y = net.linear(net.gelu(net.linear(x, size, 2 * size)), 2 * size, size)
        x = net.norm(net.op("Add", y, x), size)
    return net.model(x), net.feeds


def vit(layers: int = 2) -> tuple[Any, dict[str, Any]]:
    """Normalisation first, keys without bias, queries scaled, GELU by erf: ViT and Whisper."""
    net, size, heads = Net(), 24, 3
    x = net.input("x", ["N", 10, size], net.weight(2, 10, size))
    for _ in range(layers):
        y = net.attention(net.norm(x, size), heads, size, scale="queries", key_bias=False)
        x = net.op("Add", x, net.linear(y, size, size))
        y = net.gelu(net.linear(net.norm(x, size), size, 2 * size))
        x = net.op("Add", x, net.linear(y, 2 * size, size))
    return net.model(net.norm(x, size)), net.feeds


def gpt(layers: int = 2) -> tuple[Any, dict[str, Any]]:
    """One projection for queries, keys and values; earlier keys and values; GELU by tanh."""
    net, size, heads = Net(), 32, 4
    ids = net.input("ids", ["N", "S"], net.random.integers(0, 50, (2, 3)))
    past = [
        net.input(f"{name}_{k}", ["N", heads, "P", size // heads], net.weight(2, heads, 5, 8))
        for k in range(layers)
        for name in ("key", "value")
    ]
    count = net.op("Gather", net.op("Shape", past[0]), 2, axis=0)
    length = net.op("Gather", net.op("Shape", ids), 1, axis=0)
    total = net.op("Add", count, length)
    places = net.op("Unsqueeze", net.op("Range", count, total, 1), np.array([0]))
    x = net.op("Add", net.op("Gather", net.weight(50, size), ids),
               net.op("Gather", net.weight(16, size), places))  # fmt: skip
    row = net.op("Unsqueeze", net.op("Range", 0, total, 1), np.array([0]))
    column = net.op("Unsqueeze", places, np.array([2]))
    seen = net.op("LessOrEqual", net.op("Unsqueeze", row, np.array([1])), column)
    mask = net.op("Where", net.op("Unsqueeze", seen, np.array([1])), 0.0, -3.4e38)
    present = []
    for k in range(layers):
        y = net.norm(x, size)
        flat = net.op("Reshape", y, np.array([-1, size]))
        flat = net.op("Gemm", flat, net.weight(size, 3 * size), net.weight(3 * size))
        sizes = net.op("Shape", y)
        batch, length = (net.op("Gather", sizes, np.array([axis])) for axis in (0, 1))
        back = net.op("Concat", batch, length, np.array([3 * size]), axis=0)
        parts = net.op(
            "Split", net.op("Reshape", flat, back), np.array([size] * 3), axis=2, outputs=3
        )
        q, key, value = (net.split(part, heads, size // heads) for part in parts)
        key = net.op("Concat", past[2 * k], key, axis=-2)
        value = net.op("Concat", past[2 * k + 1], value, axis=-2)
        present += [key, value]
        scores = net.op("MatMul", q, net.op("Transpose", key, perm=(0, 1, 3, 2)))
        scores = net.op("Add", net.op("Mul", scores, 8**-0.5), mask)
        y = net.op("MatMul", net.op("Softmax", scores, axis=-1), value)
        x = net.op("Add", x, net.linear(net.join(y, x, size), size, size))
        y = net.tanh_gelu(net.linear(net.norm(x, size), size, 2 * size))
        x = net.op("Add", x, net.linear(y, 2 * size, size))
    return net.model(net.norm(x, size), *present), net.feeds


def llama(
    layers: int = 2, groups: int = 2, *, past: bool = False, table: bool = False, batch: Any = "N"
) -> tuple[Any, dict[str, Any]]:
    """Heads turned by their place, keys and values shared by groups, gates, no biases."""
    net, size, heads = Net(), 32, 4
    each, items = size // heads, 2 if batch == "N" else batch
    x = net.input("x", [batch, "S", size], net.weight(items, 3, size))
    ids = net.input("places", [batch, "S"], np.arange(3)[None].repeat(items, 0) + 5 * past)
    later = np.triu(np.full((items, 1, 3, 3 + 5 * past), -1e9, np.float32), 1 + 5 * past)
    mask = net.input("mask", [batch, 1, "S", "T"], later)
    speeds = (100.0 ** -np.arange(0, 1, 2 / each)).astype(np.float32)
    if table:
        angles = np.arange(16)[:, None] * np.concatenate([speeds, speeds])
        turns = [net.op("Gather", f(angles).astype(np.float32), ids) for f in (np.cos, np.sin)]
    else:
        number = net.op("Cast", net.op("Unsqueeze", ids, np.array([1])), to=TensorProto.FLOAT)
        angles = net.op(
            "Transpose", net.op("MatMul", speeds[None, :, None], number), perm=[0, 2, 1]
        )
        both = net.op("Concat", angles, angles, axis=-1)
        turns = [net.op(name, both) for name in ("Cos", "Sin")]
    cos, sin = (net.op("Unsqueeze", turn, np.array([1])) for turn in turns)

    def turned(y: str) -> str:
        lower = net.op("Slice", y, np.array([0]), np.array([each // 2]), np.array([3]))
        upper = net.op("Slice", y, np.array([each // 2]), np.array([2**62]), np.array([3]))
        other = net.op("Concat", net.op("Neg", upper), lower, axis=-1)
        return net.op("Add", net.op("Mul", y, cos), net.op("Mul", other, sin))

    def repeated(y: str) -> str:
        if groups == heads:
            return y
        wide = net.op("Unsqueeze", y, np.array([2]))
        sizes = [net.op("Gather", net.op("Shape", y), np.array([axis])) for axis in (0, 2)]
        count, end = np.array([heads // groups]), np.array([each])
        to = net.op("Concat", sizes[0], np.array([groups]), count, sizes[1], end, axis=0)
        back = net.op("Concat", sizes[0], np.array([heads]), sizes[1], end, axis=0)
        return net.op("Reshape", net.op("Expand", wide, to), back)

    present: list[str] = []
    for layer in range(layers):
        y = net.rms_norm(x, size)
        q = turned(net.split(net.linear(y, size, size, bias=False), heads, each))
        k = turned(net.split(net.linear(y, size, groups * each, bias=False), groups, each))
        v = net.split(net.linear(y, size, groups * each, bias=False), groups, each)
        if past:
            shape = [batch, groups, "P", each]
            earlier = [
                net.input(f"{name}_{layer}", shape, net.weight(items, groups, 5, each))
                for name in ("key", "value")
            ]
            k, v = (
                net.op("Concat", e, new, axis=2) for e, new in zip(earlier, (k, v), strict=True)
            )
            present += [k, v]
        scores = net.op("MatMul", q, net.op("Transpose", repeated(k), perm=(0, 1, 3, 2)))
        scores = net.op("Add", net.op("Div", scores, each**0.5), mask)
        y = net.op("MatMul", net.op("Softmax", scores, axis=-1), repeated(v))
        x = net.op("Add", x, net.linear(net.join(y, x, size), size, size, bias=False))
        y = net.rms_norm(x, size)
        gate = net.linear(y, size, 2 * size, bias=False)
        gate = net.op("Mul", gate, net.op("Sigmoid", gate))
        y = net.op("Mul", gate, net.linear(y, size, 2 * size, bias=False))
        x = net.op("Add", x, net.linear(y, 2 * size, size, bias=False))
    return net.model(net.rms_norm(x, size), *present), net.feeds
