"""Small networks with weights of their own: one of convolutions, one transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tests.support.session import model_of

Feeds = dict[str, Any]

_CONVOLUTIONS = """
net (float[N, 3, 16, 16] x) => (float[N, 10] scores) {
  c0 = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w0)
  n0 = BatchNormalization(c0, g0, h0, m0, v0)
  r0 = Relu(n0)
  p0 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r0)
  c1 = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 4>(p0, w1, b1)
  r1 = Clip(c1, zero, six)
  c2 = Conv<kernel_shape = [1, 1]>(r1, w2, b2)
  s2 = Add(c2, p0)
  r2 = Relu(s2)
  k2 = Concat<axis = 1>(r2, p0)
  e2 = Sigmoid(k2)
  q2 = Mul(k2, e2)
  a2 = GlobalAveragePool(q2)
  f2 = Flatten<axis = 1>(a2)
  scores = Gemm<transB = 1>(f2, w3, b3)
}
"""

_TRANSFORMER = """
net (int64[N, S] ids) => (float[N, S, 32] hidden, float[N, 7] scores) {
  e = Gather<axis = 0>(table, ids)
  l0 = LayerNormalization<axis = -1>(e, lg0, lb0)
  q0 = MatMul(l0, wq)
  q1 = Add(q0, bq)
  q2 = Reshape(q1, heads)
  q = Transpose<perm = [0, 2, 1, 3]>(q2)
  k0 = MatMul(l0, wk)
  k2 = Reshape(k0, heads)
  k = Transpose<perm = [0, 2, 3, 1]>(k2)
  v0 = MatMul(l0, wv)
  v2 = Reshape(v0, heads)
  v = Transpose<perm = [0, 2, 1, 3]>(v2)
  s0 = MatMul(q, k)
  s1 = Div(s0, root)
  p = Softmax<axis = -1>(s1)
  o0 = MatMul(p, v)
  o1 = Transpose<perm = [0, 2, 1, 3]>(o0)
  o2 = Reshape(o1, flat)
  o3 = MatMul(o2, wo)
  o4 = Add(o3, bo)
  a0 = Add(o4, l0)
  hidden = LayerNormalization<axis = -1>(a0, lg1, lb1)
  first = Gather<axis = 1>(hidden, nought)
  scores = Gemm(first, wc, bc)
}
"""


def convolutions(opset: int = 17) -> onnx.ModelProto:
    """x (N, 3, 16, 16) -> scores (N, 10): batch normalisation, residual sum, groups, a Clip."""
    random = np.random.default_rng(1)

    def normal(*shape: int, scale: float = 1.0) -> Any:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    weights = {
        "w0": normal(16, 3, 3, 3, scale=0.3),
        "g0": random.uniform(0.5, 2, 16).astype(np.float32),
        "h0": normal(16),
        "m0": normal(16),
        "v0": random.uniform(0.5, 2, 16).astype(np.float32),
        "w1": normal(16, 4, 3, 3, scale=0.2),
        "b1": normal(16),
        "zero": np.float32(0),
        "six": np.float32(6),
        "w2": normal(16, 16, 1, 1, scale=0.2),
        "b2": normal(16, scale=0.3),
        "w3": normal(10, 32, scale=0.3),
        "b3": normal(10, scale=0.3),
    }
    model = model_of(_CONVOLUTIONS, weights, opset)
    return _named(model)


def transformer(opset: int = 17) -> onnx.ModelProto:
    """ids (N, S), below 50 -> hidden (N, S, 32), scores (N, 7): one layer of four heads."""
    random = np.random.default_rng(2)

    def normal(*shape: int, scale: float = 1.0) -> Any:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    weights = {
        "table": normal(50, 32),
        "lg0": random.uniform(0.5, 1.5, 32).astype(np.float32),
        "lb0": normal(32, scale=0.1),
        "lg1": random.uniform(0.5, 1.5, 32).astype(np.float32),
        "lb1": normal(32, scale=0.1),
        **{name: normal(32, 32, scale=0.2) for name in ("wq", "wk", "wv", "wo")},
        "bq": normal(32, scale=0.1),
        "bo": normal(32, scale=0.1),
        "heads": np.array([0, 0, 4, 8]),
        "flat": np.array([0, 0, 32]),
        "root": np.float32(8**0.5),
        "nought": np.array(0),
        "wc": normal(32, 7, scale=0.3),
        "bc": normal(7, scale=0.1),
    }
    return _named(model_of(_TRANSFORMER, weights, opset))


def _named(model: onnx.ModelProto) -> onnx.ModelProto:
    for node in model.graph.node:
        node.name = f"{node.op_type}_{node.output[0]}"
    return model


def pictures(count: int, seed: int = 0) -> list[Feeds]:
    """Feeds of `convolutions`."""
    random = np.random.default_rng(seed)
    return [{"x": random.standard_normal((2, 3, 16, 16)).astype(np.float32)} for _ in range(count)]


def sentences(count: int, seed: int = 0) -> list[Feeds]:
    """Feeds of `transformer`."""
    random = np.random.default_rng(seed)
    return [{"ids": random.integers(0, 50, (2, 12))} for _ in range(count)]


NETS = {
    "convolutions": (convolutions, pictures),
    "transformer": (transformer, sentences),
}
