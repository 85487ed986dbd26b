"""Nodes that no operator's definition allows: refused by name, before anything is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.base.errors import InvalidGraph

F, L, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
GRAPH = helper.make_graph([], "inner", [], [])
Inputs = dict[str, Any]

#: Operator, inputs (type and shape, or contents), attributes, what the error says.
CASES: list[tuple[str, Inputs, dict[str, Any], str]] = [
    ("Softmax", {"x": (F, [3, 4])}, {"axis": 1.5}, "'axis' has the wrong type. Expected int"),
    ("Softmax", {"x": (F, [3, 4])}, {"axis": [1]}, "Expected int, got a list of int"),
    ("Softmax", {"x": (F, [3, 4])}, {"axis": GRAPH}, "Expected int, got Graph"),
    ("Transpose", {"x": (F, [3, 4])}, {"perm": 1}, "Expected a list of int, got int"),
    ("Transpose", {"x": (F, [3, 4])}, {"perm": [1.0, 0.0]}, "got a list of float"),
    ("Transpose", {"x": (F, [3, 4])}, {"perm": ["a"]}, "got a list of"),
    ("LeakyRelu", {"x": (F, [3])}, {"alpha": "much"}, "Expected float or int, got str"),
    ("If", {"c": (B, [])}, {"then_branch": 1, "else_branch": GRAPH}, "Expected Graph, got int"),
    ("ConstantOfShape", {"n": np.array([3])}, {"value": [1, 2]}, "Expected Constant"),
    ("Concat", {"x": (F, [3]), "": None, "z": (F, [3])}, {"axis": 0}, "input number 1 is missing"),
    ("Compress", {"x": (F, [3, 4]), "c": (B, [1, 3])}, {"axis": 0}, "needs one axis"),
    ("Reshape", {"x": (F, [3, 4]), "s": np.float32([4, 3])}, {}, "number 1. is wrong"),
    ("Slice", {"x": (F, [3]), "b": np.float32([0]), "e": np.float32([2])}, {}, "is wrong"),
    ("Pad", {"x": (F, [3]), "p": np.float32([0, 1])}, {}, "number 1. is wrong"),
    ("Expand", {"x": (F, [3]), "s": np.float32([2, 3])}, {}, "number 1. is wrong"),
    ("Tile", {"x": (F, [3]), "s": np.float32([2])}, {}, "number 1. is wrong"),
    ("Sqrt", {"x": (L, [40])}, {}, "X .*wrong. Expected bfloat16.*got int64"),
    ("Sin", {"x": (B, [40])}, {}, "float16, got bool"),
    ("Softmax", {"x": (L, [3, 40])}, {}, "Expected bfloat16.*got int64"),
    ("BitShift", {"x": (F, [3]), "n": (F, [3])}, {"direction": "LEFT"}, "integers, got float"),
]  # fmt: skip


def model_of(op: str, inputs: Inputs, attributes: dict[str, Any]) -> onnx.ModelProto:
    given, held = [], []
    for name, what in inputs.items():
        if isinstance(what, tuple):
            given.append(helper.make_tensor_value_info(name, *what))
        elif what is not None:
            held.append(numpy_helper.from_array(what, name))
    node = helper.make_node(op, list(inputs), ["y"], name="the_node")
    for name, value in attributes.items():
        node.attribute.append(
            AttributeProto(name=name, type=AttributeProto.GRAPH, g=value)
            if isinstance(value, onnx.GraphProto)
            else helper.make_attribute(name, value)
        )
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name="y")], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("op", "inputs", "attributes", "text"), CASES)
def test_refused(op: str, inputs: Inputs, attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidGraph, match=f"the_node.*{text}"):
        sardonyx.InferenceSession(model_of(op, inputs, attributes).SerializeToString())


def test_an_int_may_stand_for_a_float() -> None:
    model = model_of("LeakyRelu", {"x": (F, [2])}, {"alpha": 2})
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": np.float32([-1, 3])})
    assert np.array_equal(got[0], np.float32([-2, 3]))
