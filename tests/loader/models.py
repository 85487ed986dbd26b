"""Small models, as code."""

import pathlib

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


def shared():
    """Exporters' graphs that lie beside the repository on some machines; none on others."""
    for parent in pathlib.Path(__file__).parents:
        if (parent / "shared" / "models").is_dir():
            return sorted((parent / "shared" / "models").glob("*.onnx"))
    return []


def every_attribute():
    """A node of an unknown operator with one attribute of each kind, and empty lists."""
    tensor = numpy_helper.from_array(np.arange(3, dtype=np.int16), "t")
    inner = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["inner"])], "inner", [], [_value("inner", ["N"])]
    )
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("values", TensorProto.FLOAT, [2], [5.0, 6.0]),
        helper.make_tensor("indices", TensorProto.INT64, [2], [1, 3]),
        [2, 2],
    )
    type_proto = helper.make_sequence_type_proto(
        helper.make_tensor_type_proto(TensorProto.INT64, ["K", 2])
    )
    node = helper.make_node("Everything", ["x"], ["y"], "all", domain="test")
    values = {
        "f": 0.25,
        "i": -7,
        "s": "text",
        "raw": b"\xff\x00",
        "t": tensor,
        "g": inner,
        "sp": sparse,
        "tp": type_proto,
        "fs": [1.0, -0.5],
        "is": [1, -(2**63), 2**63 - 1],
        "ss": ["a", b"\xfe"],
        "ts": [tensor, tensor],
        "gs": [inner],
        "tps": [type_proto],
        "sps": [sparse],
    }
    for name, value in values.items():
        node.attribute.append(helper.make_attribute(name, value))
    for name, kind in (("no_floats", 6), ("no_strings", 8)):
        node.attribute.add(name=name, type=kind)
    inputs, outputs = [_value("x", ["N"])], [_value("y", ["N"])]
    graph = helper.make_graph([node], "attributes", inputs, outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("test", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def functions():
    """Nested functions: a default, a reference to an attribute, one inside a subgraph."""
    scale = helper.make_node("Constant", [], ["k"])
    reference = scale.attribute.add(name="value_float", type=1, ref_attr_name="factor")
    assert reference.ref_attr_name == "factor"
    leaf = helper.make_function(
        "f",
        "Scale",
        ["a", "unused"],
        ["b"],
        [scale, helper.make_node("Mul", ["a", "k"], ["b"], "mul")],
        [helper.make_opsetid("", 16)],
        attribute_protos=[helper.make_attribute("factor", 2.0)],
    )
    forwarded = helper.make_node("Scale", ["a"], ["t"], "first", domain="f")
    forwarded.attribute.add(name="factor", type=1, ref_attr_name="by")
    branch = helper.make_graph(
        [helper.make_node("Scale", ["t"], ["u"], domain="f", factor=5.0)],
        "branch",
        [],
        [_value("u", ["N"])],
    )
    outer = helper.make_function(
        "f",
        "Twice",
        ["a", "c"],
        ["b", "a", "d"],
        [
            forwarded,
            helper.make_node("If", ["c"], ["b"], "if", then_branch=branch, else_branch=branch),
            helper.make_node("Scale", ["t"], ["d"], "last", domain="f"),
        ],
        [helper.make_opsetid("", 16), helper.make_opsetid("f", 1)],
        attributes=["by"],
    )
    nodes = [
        helper.make_node("Twice", ["x", "c"], ["y", "z"], "call", domain="f", by=3.0),
        helper.make_node("Twice", ["y", "c"], ["v", "", "w"], "call", domain="f", by=4.0),
    ]
    inputs = [_value("x", ["N"]), _value("c", [], TensorProto.BOOL)]
    outputs = [_value(name, ["N"]) for name in ("v", "w", "z")]
    graph = helper.make_graph(nodes, "functions", inputs, outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, functions=[leaf, outer])


ALL = (mlp, branches, every_attribute, functions)
