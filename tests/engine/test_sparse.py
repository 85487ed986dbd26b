"""Sparse tensors: weights, and what Constant holds, in every type."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidGraph

SHAPE = (3, 4)
TYPES = [d for d in dtypes.ALL if d.kind != "s"]


def sparse(values, places, name, shape=SHAPE):
    proto = onnx.SparseTensorProto(dims=shape)
    proto.values.CopyFrom(numpy_helper.from_array(values, name))
    proto.indices.CopyFrom(numpy_helper.from_array(np.asarray(places), f"{name}_places"))
    return proto


def model_of(nodes, inputs=(), sparse_weights=(), outputs=("y",)):
    graph = helper.make_graph(
        nodes, "g", inputs, [onnx.ValueInfoProto(name=n) for n in outputs],
        sparse_initializer=sparse_weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 28), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=14)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("places", [[1, 6, 11], [[0, 1], [1, 2], [2, 3]]], ids=["flat", "pairs"])
def test_weights_and_constants_of_every_type(dtype, places):
    values = np.array([1, 1, 1]).astype(dtype.numpy)
    dense = np.zeros(12, np.int64)
    dense[[1, 6, 11]] = 1
    proto = sparse(values, places, "w")
    nodes = [
        helper.make_node("Identity", ["w"], ["y"]),
        helper.make_node("Constant", [], ["z"], sparse_value=proto),
    ]
    model = model_of(nodes, sparse_weights=[proto], outputs=("y", "z"))
    for found in sardonyx.InferenceSession(model.SerializeToString()).run(None, {}):
        assert found.dtype == dtype.numpy
        expected = dense.reshape(SHAPE).astype(np.complex128)
        if dtype is dtypes.FLOAT8E8M0:  # it has no zero; this is code 0
            expected = np.where(expected == 1, 1, 2.0**-127)
        np.testing.assert_array_equal(found.astype(np.complex128), expected)


def test_strings():
    proto = sparse(np.array(["a", "b"], object), [0, 11], "w")
    node = helper.make_node("Constant", [], ["y"], sparse_value=proto)
    (found,) = sardonyx.InferenceSession(model_of([node]).SerializeToString()).run(None, {})
    assert found.ravel().tolist() == ["a", *[""] * 10, "b"]


@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [
        (np.float32, {}),
        (np.float64, {"alpha": 0.5}),
        (np.int64, {"transA": 1}),
        (np.float32, {"transB": 1}),
        (np.float32, {"transA": 1, "transB": 1, "alpha": 2.0}),
    ],
)
def test_sparse_to_dense_matmul(dtype, attributes):
    dense = np.zeros(SHAPE, dtype)
    dense[[0, 0, 2], [1, 3, 2]] = [2, -3, 4]
    proto = sparse(np.array([2, -3, 4], dtype), [1, 3, 10], "a")
    left = dense.T if attributes.get("transA") else dense
    shape = (left.shape[1], 5)
    b = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    if attributes.get("transB"):
        b = np.ascontiguousarray(b.T)
    right = b.T if attributes.get("transB") else b
    node = helper.make_node(
        "SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft", **attributes
    )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info("b", kind, ["m", "n"])]
    model = model_of([node], inputs, [proto])
    (found,) = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"b": b})
    np.testing.assert_allclose(found, left @ right * attributes.get("alpha", 1), rtol=1e-6)
    assert found.dtype == dtype


def test_a_sparse_input_is_refused_by_name():
    declared = helper.make_sparse_tensor_value_info("x", TensorProto.FLOAT, [2, 2])
    node = helper.make_node("Identity", ["x"], ["y"])
    with pytest.raises(sardonyx.base.errors.NotImplemented, match="x.*sparse_tensor"):
        sardonyx.InferenceSession(model_of([node], [declared]).SerializeToString())


def test_places_outside_are_refused():
    proto = sparse(np.float32([1]), [12], "w")
    node = helper.make_node("Constant", [], ["y"], sparse_value=proto)
    with pytest.raises(InvalidGraph, match="An index is outside"):
        sardonyx.InferenceSession(model_of([node]).SerializeToString())
