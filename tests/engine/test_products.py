"""Matrix products of every element type, at sizes around those of the register tiles."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.api.inspection import inspect
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(9)

#: ONNX type, NumPy type, error allowed relative to the largest element of the result.
TYPES = [
    (TensorProto.FLOAT, np.float32, 2e-6),
    (TensorProto.DOUBLE, np.float64, 1e-14),
    (TensorProto.FLOAT16, np.float16, 1e-3),
    (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 8e-3),
    (TensorProto.INT32, np.int32, 0),
    (TensorProto.INT64, np.int64, 0),
    (TensorProto.UINT32, np.uint32, 0),
    (TensorProto.UINT64, np.uint64, 0),
]
SIZES = [(1, 1, 1), (6, 64, 64), (7, 33, 70), (13, 130, 65), (97, 5, 16), (0, 5, 3), (3, 0, 4)]


def _session(op: str, types: list[int], result: int) -> Any:
    shapes = [["M", "K"], ["K", "N"]]
    given = [
        helper.make_tensor_value_info(f"i{k}", t, s)
        for k, (t, s) in enumerate(zip(types, shapes, strict=True))
    ]
    wanted = [helper.make_tensor_value_info("y", result, ["M", "N"])]
    node = helper.make_node(op, ["i0", "i1"], ["y"])
    model = helper.make_model(
        helper.make_graph([node], "g", given, wanted),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    model.ir_version = 8
    return sardonyx.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize(("onnx_type", "dtype", "allowed"), TYPES)
def test_products(onnx_type: int, dtype: Any, allowed: float) -> None:
    session = _session("MatMul", [onnx_type] * 2, onnx_type)
    for m, k, n in SIZES:
        a, b = (_random.integers(0, 50, s).astype(dtype) / dtype(1) for s in ((m, k), (k, n)))
        a, b = a.astype(dtype), b.astype(dtype)
        if np.dtype(dtype).kind not in "iu":
            a, b = ((x.astype(np.float64) / 7).astype(dtype) for x in (a, b))
        got = session.run(None, {"i0": a, "i1": b})[0]
        want = a.astype(np.float64) @ b.astype(np.float64)
        assert got.dtype == dtype
        largest = np.abs(want).max(initial=1e-30)
        assert np.abs(got.astype(np.float64) - want).max(initial=0) <= allowed * largest


def test_bytes() -> None:
    session = _session("MatMulInteger", [TensorProto.UINT8, TensorProto.INT8], TensorProto.INT32)
    for m, k, n in SIZES:
        a = _random.integers(0, 256, (m, k)).astype(np.uint8)
        b = _random.integers(-128, 128, (k, n)).astype(np.int8)
        got = session.run(None, {"i0": a, "i1": b})[0]
        assert np.array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


def test_weights_that_the_graph_fills() -> None:
    """A fill stays an array that a product packs: a scalar in its place left plain loops."""
    model = model_of(
        """graph (float[1,8,H,W] x) => (float[1,24,H,W] y, float[1,8,H,8] z)
        <int64[4] s = {24, 8, 3, 3}, int64[2] t = {32, 8}> {
            w = ConstantOfShape<value = float[1] {0.5}>(s)
            y = Conv<pads = [1, 1, 1, 1]>(x, w)
            u = ConstantOfShape<value = float[1] {-2.0}>(t)
            z = MatMul(x, u)
        }"""
    )
    session = sardonyx.InferenceSession(model.SerializeToString())
    for height in (5, 2):
        x = _random.standard_normal((1, 8, height, 32)).astype(np.float32)
        y, z = session.run(None, {"x": x})
        padded = np.pad(x.astype(np.float64).sum(1), ((0, 0), (1, 1), (1, 1)))
        box = sum(padded[:, i : i + height, j : j + 32] for i in range(3) for j in range(3))
        assert_near(y, np.broadcast_to(0.5 * box, (1, 24, height, 32)), "float: outputs of layers")
        want = np.broadcast_to(-2 * x.astype(np.float64).sum(-1, keepdims=True), z.shape)
        assert_near(z, want, "float: outputs of layers")
    kernels = inspect(session).kernels
    assert [name.split("_")[0] for name in kernels].count("product") == 2


@pytest.mark.parametrize("columns", [5, 16, 40, 64, 72, 128, 130])
def test_gelu_behind_sums(columns: int) -> None:
    """Some vectors of a row are finished together: of panels that are full, and that are not."""
    model = model_of(
        f"""graph (float[R,24] x, float[24,{columns}] v)
                => (float[R,{columns}] y, float[R,{columns}] z) {{
            c = Constant<value_float = 1.4142135>()
            one = Constant<value_float = 1.0>()
            half = Constant<value_float = 0.5>()
            p = MatMul(x, w)
            a = Div(p, c)
            e = Erf(a)
            f = Add(e, one)
            g = Mul(p, f)
            y = Mul(g, half)
            q = MatMul(x, v)
            z = Gelu(q)
        }}""",
        opset=20,
    )
    weights = _random.standard_normal((24, columns)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    session = sardonyx.InferenceSession(model.SerializeToString())
    for rows in (1, 6, 13):
        x = _random.standard_normal((rows, 24)).astype(np.float32)
        for got in session.run(None, {"x": x, "v": weights}):
            p = x.astype(np.float64) @ weights.astype(np.float64)
            chance = np.vectorize(math.erfc, otypes=[float])(-p / math.sqrt(2)) / 2
            assert np.abs(got - p * chance).max() <= 8e-6
