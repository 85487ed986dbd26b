"""Small models, as code."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def _value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def mlp():
    """Three nodes, weights, a Constant node, missing and repeated node names."""
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    axes = helper.make_tensor("axes_value", TensorProto.INT64, [1], [-1])
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], "gemm", alpha=0.5),
        helper.make_node("Constant", [], ["axes"], value=axes),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("ReduceSum", ["r", "axes"], ["y"], "Relu_2", keepdims=0),
    ]
    initializers = [
        numpy_helper.from_array(w, "w"),
        helper.make_tensor("b", TensorProto.FLOAT, [3], [0.5, -1.0, 2.0]),
    ]
    inputs, outputs = [_value("x", ["N", 4])], [_value("y", ["N"])]
    graph = helper.make_graph(nodes, "mlp", inputs, outputs, initializers)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="maker",
        model_version=3,
    )
    helper.set_model_props(model, {"k": "v"})
    return model


def branches():
    """An If whose branches read an outer value that a later node computes, with equal names."""
    then = helper.make_graph(
        [helper.make_node("Relu", ["outer"], ["t"], "inner")], "then", [], [_value("t", ["N"])]
    )
    otherwise = helper.make_graph(
        [helper.make_node("Neg", ["outer"], ["t"], "inner")], "else", [], [_value("t", ["N"])]
    )
    nodes = [
        helper.make_node("If", ["c"], ["y"], "if", then_branch=then, else_branch=otherwise),
        helper.make_node("Abs", ["x"], ["outer"], "abs"),
    ]
    inputs = [_value("c", [], TensorProto.BOOL), _value("x", ["N"])]
    graph = helper.make_graph(nodes, "branches", inputs, [_value("y", ["N"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
