"""Models as careless exporters write them, for test_sloppy.py.

`onnxruntime` says where onnxruntime 1.31.1 does otherwise; it does the same in all other rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from sardonyx.base import errors
from tests.support.session import model_of

X = np.float32([[1, -2, 3], [4, 5, -6]])
Y = np.float32([[-1, 0, -3], [-4, -5, 0]])  # of `base`
Model = onnx.ModelProto


def base() -> Model:
    return model_of("g (float[n,3] x) => (float[n,3] y) { z = Relu(x) y = Neg(z) }")


def added(**fields: Any) -> Model:
    """y = x + w, and w as its fields say."""
    model = model_of("g (float[n,3] x) => (float[n,3] y) { c = Cast <to=1> (w) y = Add(x, c) }")
    tensor = model.graph.initializer.add(name="w")
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return model


def changed(change: Callable[[Model], Any], model: Model | None = None) -> Model:
    model = model or base()
    change(model)
    return model


def branches(then: str, rest: str = "") -> Model:
    return model_of(
        f"""g (float[n,3] x, bool c) => (float[] y) {{ z = Relu(x) w = If (c) <
        then_branch = t () => (float[] {then.split()[0]}) {{ {then} }},
        else_branch = e () => (float[] q) {{ q = Abs(z) }}> y = Add(z, w) {rest} }}"""
    )


def reverse(nodes: Any) -> None:
    copies = list(nodes)[::-1]
    del nodes[:]
    nodes.extend(copies)


def bits(values: Any, dtype: Any) -> list[int]:
    return np.array(values, dtype).view(np.uint16).tolist()


def attribute(model: Model, name: str, kind: Any = None, **values: Any) -> Model:
    found = model.graph.node[0].attribute.add(name=name)
    if kind is not None:
        found.type = kind
    for key, value in values.items():
        if isinstance(value, list):
            getattr(found, key).extend(value)
        else:
            setattr(found, key, value)
    return model


LEAKY = "g (float[n,3] x) => (float[n,3] y) { y = LeakyRelu(x) }"
HALVED = np.where(X < 0, X / 2, X)
INFO = helper.make_tensor_value_info

#: What it is, the model, what it gives for X.
TAKEN: dict[str, tuple[Callable[[], Model], Any]] = {
    # -- nodes and names ----------------------------------------------------------------------
    "nodes backwards": (lambda: changed(lambda m: reverse(m.graph.node)), Y),
    "nodes without names": (
        lambda: changed(lambda m: [n.ClearField("name") for n in m.graph.node]),
        Y,
    ),
    "nodes of one name (onnxruntime: an error)": (
        lambda: changed(lambda m: [setattr(n, "name", "n") for n in m.graph.node]),
        Y,
    ),
    "graph without a name": (lambda: changed(lambda m: setattr(m.graph, "name", "")), Y),
    "odd names": (
        lambda: changed(
            lambda m: (
                m.graph.node[0].output.__setitem__(0, "é /\n\"'\\0"),
                m.graph.node[1].input.__setitem__(0, "é /\n\"'\\0"),
            )
        ),
        Y,
    ),
    "a dead node of an unknown operator (onnxruntime: an error)": (
        lambda: changed(lambda m: m.graph.node.append(helper.make_node("Bogus", ["x"], ["q"]))),
        Y,
    ),
    "a node without outputs (onnxruntime: an error)": (
        lambda: changed(lambda m: m.graph.node.append(helper.make_node("Relu", ["x"], []))),
        Y,
    ),
    "an output twice": (
        lambda: changed(lambda m: m.graph.output.append(m.graph.output[0])),
        [Y, Y],
    ),
    "an input as output": (
        lambda: changed(lambda m: m.graph.output.append(INFO("x", 1, ["n", 3]))),
        [Y, X],
    ),
    "an initializer as output": (
        lambda: changed(
            lambda m: (
                m.graph.initializer.append(numpy_helper.from_array(X, "w")),
                m.graph.output.append(INFO("w", 1, [2, 3])),
            )
        ),
        [Y, X],
    ),
    "no nodes": (
        lambda: changed(
            lambda m: (m.graph.ClearField("node"), setattr(m.graph.output[0], "name", "x"))
        ),
        X,
    ),
    # -- versions and domains -----------------------------------------------------------------
    "an unused domain": (
        lambda: changed(lambda m: m.opset_import.append(helper.make_opsetid("nowhere", 7))),
        Y,
    ),
    "a domain twice": (
        lambda: changed(lambda m: m.opset_import.append(helper.make_opsetid("", 17))),
        Y,
    ),
    "both names of ONNX's domain": (
        lambda: changed(lambda m: m.opset_import.append(helper.make_opsetid("ai.onnx", 17))),
        Y,
    ),
    "nodes of the domain's other name": (
        lambda: changed(lambda m: [setattr(n, "domain", "ai.onnx") for n in m.graph.node]),
        Y,
    ),
    "a used domain that is not imported": (
        lambda: changed(
            lambda m: (
                setattr(m.graph.node[0], "domain", "com.microsoft"),
                setattr(m.graph.node[0], "op_type", "QuickGelu"),
            )
        ),
        -X / (1 + np.exp(-1.702 * X)),
    ),
    "only another domain is imported": (
        lambda: changed(lambda m: setattr(m.opset_import[0], "domain", "com.microsoft")),
        Y,
    ),
    **{
        f"format version {k}": (lambda k=k: changed(lambda m: setattr(m, "ir_version", k)), Y)
        for k in (0, 1, 2, 3, 4)
    },
    # -- declarations -------------------------------------------------------------------------
    "an output without type": (lambda: changed(lambda m: m.graph.output[0].ClearField("type")), Y),
    "an output of wrong type (onnxruntime: an error)": (
        lambda: changed(lambda m: m.graph.output[0].CopyFrom(INFO("y", 7, ["n", 3]))),
        Y,
    ),
    "an output of wrong rank": (
        lambda: changed(lambda m: m.graph.output[0].CopyFrom(INFO("y", 1, [1, 2, 3, 4]))),
        Y,
    ),
    "an output of wrong size": (
        lambda: changed(lambda m: m.graph.output[0].CopyFrom(INFO("y", 1, [7, 8]))),
        Y,
    ),
    "a value of wrong type (onnxruntime: an error)": (
        lambda: changed(lambda m: m.graph.value_info.append(INFO("z", 7, [9]))),
        Y,
    ),
    "a tensor declared as a sequence (onnxruntime: an error)": (
        lambda: changed(
            lambda m: m.graph.value_info.append(
                helper.make_tensor_sequence_value_info("z", 1, None)
            )
        ),
        Y,
    ),
    "a value of wrong shape": (
        lambda: changed(lambda m: m.graph.value_info.append(INFO("z", 1, ["n", 4]))),
        Y,
    ),
    "a value that is not there": (
        lambda: changed(lambda m: m.graph.value_info.append(INFO("nobody", 1, [1]))),
        Y,
    ),
    "a value without type": (
        lambda: changed(lambda m: m.graph.value_info.append(onnx.ValueInfoProto(name="z"))),
        Y,
    ),
    "one dimension's name twice": (
        lambda: changed(
            lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_param", "n")
        ),
        Y,
    ),
    "a dimension of -1": (
        lambda: changed(
            lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", -1)
        ),
        Y,
    ),
    "a dimension called 3": (
        lambda: changed(
            lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "3")
        ),
        Y,
    ),
    "a dimension that is an expression": (
        lambda: changed(
            lambda m: setattr(
                m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "b*2 + 1"
            )
        ),
        Y,
    ),
    # -- weights ------------------------------------------------------------------------------
    "weights listed as inputs, format 3": (
        lambda: changed(
            lambda m: setattr(m, "ir_version", 3),
            model_of(
                "g (float[n,3] x, float[3] w) => (float[n,3] y) { y = Add(x, w) }",
                {"w": np.float32([1, 2, 3])},
            ),
        ),
        X + np.float32([1, 2, 3]),
    ),
    "a weight twice: the last one": (
        lambda: changed(
            lambda m: m.graph.initializer.append(numpy_helper.from_array(np.float32(5), "w")),
            model_of("g (float[n,3] x) => (float[n,3] y) { y = Add(x, w) }", {"w": np.float32(1)}),
        ),
        X + 5,
    ),
    "a weight that nothing reads": (
        lambda: changed(lambda m: m.graph.initializer.append(numpy_helper.from_array(X, "w"))),
        Y,
    ),
    "float16 as numbers": (
        lambda: added(data_type=10, dims=[3], int32_data=bits([1, 2, -3], np.float16)),
        X + [1, 2, -3],
    ),
    "bfloat16 as numbers": (
        lambda: added(data_type=16, dims=[3], int32_data=[0x3F80, 0x4000, 0xC040]),
        X + [1, 2, -3],
    ),
    "bool as numbers": (lambda: added(data_type=9, dims=[3], int32_data=[1, 0, 7]), X + [1, 0, 1]),
    "int8 as numbers": (
        lambda: added(data_type=3, dims=[3], int32_data=[-1, 0, 9]),
        X + [-1, 0, 9],
    ),
    "uint8 too large": (
        lambda: added(data_type=2, dims=[3], int32_data=[256, -1, 9]),
        X + [0, 255, 9],
    ),
    "uint32 as numbers": (
        lambda: added(data_type=12, dims=[3], uint64_data=[1, 2, 2**31]),
        X + [1, 2, 2**31],
    ),
    "raw bytes and numbers": (
        lambda: added(
            data_type=1, dims=[3], float_data=[7, 7, 7], raw_data=np.float32([1, 2, 3]).tobytes()
        ),
        X + [1, 2, 3],
    ),
    "a number without dimensions": (lambda: added(data_type=1, float_data=[2]), X + 2),
    # -- attributes and operands --------------------------------------------------------------
    "an attribute without type (onnxruntime: an error)": (
        lambda: attribute(model_of(LEAKY), "alpha", f=0.5),
        HALVED,
    ),
    "an attribute with two values (onnxruntime: an error)": (
        lambda: attribute(model_of(LEAKY), "alpha", AttributeProto.FLOAT, f=0.5, floats=[7]),
        HALVED,
    ),
    "an attribute that is zero, so not written": (
        lambda: attribute(model_of(LEAKY), "alpha", AttributeProto.FLOAT),
        np.maximum(X, 0),
    ),
    "an empty list for no list (onnxruntime: an error)": (
        lambda: attribute(
            model_of("g (float[n,3] x) => (float[] y) { y = Transpose(x) }"),
            "perm",
            AttributeProto.INTS,
        ),
        X.T,
    ),
    "an integer for a float (onnxruntime: an error)": (
        lambda: attribute(model_of(LEAKY), "alpha", AttributeProto.INT, i=2),
        np.where(X < 0, 2 * X, X),
    ),
    "empty optional outputs": (
        lambda: changed(
            lambda m: m.graph.node[0].output.append(""),
            model_of("g (float[n,3] x) => (float[n,3] y) { y = Dropout(x) }"),
        ),
        X,
    ),
    "empty optional inputs": (
        lambda: changed(
            lambda m: m.graph.node[0].input.extend(["", ""]),
            model_of("g (float[n,3] x) => (float[n,3] y) { y = Clip(x) }"),
        ),
        X,
    ),
    "an empty list of axes": (
        lambda: model_of(
            "g (float[n,3] x) => (float[] y) { u = Unsqueeze(x, k) y = Squeeze(u, e) }",
            {"k": np.int64([0]), "e": np.int64([])},
        ),
        X,
    ),
    "lists that are numbers (onnxruntime: an error)": (
        lambda: model_of(
            "g (float[n,3] x) => (float[] y) { y = Slice(x, a, b) }",
            {"a": np.int64(0), "b": np.int64(1)},
        ),
        X[:1],
    ),
    "Upsample after it was withdrawn (onnxruntime: an error)": (
        lambda: model_of(
            "g (float[n,3] x) => (float[] y) { y = Upsample(x, b) }", {"b": np.float32([1, 2])}, 10
        ),
        X.repeat(2, 1),
    ),
    "an empty roi, and sizes": (
        lambda: model_of(
            "g (float[n,3] x) => (float[] y) { y = Resize(x, e, e, s) }",
            {"e": np.float32([]), "s": np.int64([2, 6])},
        ),
        X.repeat(2, 1),
    ),
    # -- subgraphs ----------------------------------------------------------------------------
    "a branch computes a name anew (onnxruntime: an error)": (
        lambda: branches("z = Neg(x)"),
        np.maximum(X, 0) - X,
    ),
    "a branch uses the name of a later value": (lambda: branches("y = Neg(z)"), np.zeros((2, 3))),
    "a branch has a weight of an outer name (onnxruntime: an error)": (
        lambda: changed(
            lambda m: (
                m.graph.node[1]
                .attribute[0]
                .g.initializer.append(numpy_helper.from_array(np.float32([9]), "x"))
            ),
            branches("p = Neg(x)"),
        ),
        np.maximum(X, 0) - 9,
    ),
    "a branch gives an outer value (onnxruntime: an error)": (
        lambda: changed(
            lambda m: (
                m.graph.node[1].attribute[0].g.ClearField("node"),
                setattr(m.graph.node[1].attribute[0].g.output[0], "name", "x"),
            ),
            branches("p = Neg(x)"),
        ),
        np.maximum(X, 0) + X,
    ),
    "nodes of a branch backwards (onnxruntime: an error)": (
        lambda: changed(
            lambda m: reverse(m.graph.node[1].attribute[0].g.node),
            branches("p = Neg(v) v = Neg(x)"),
        ),
        np.maximum(X, 0) + X,
    ),
    "a branch reads what comes later": (
        lambda: changed(lambda m: reverse(m.graph.node), branches("p = Neg(z)")),
        np.zeros((2, 3)),
    ),
    "a loop's body calls its input as an outer value": (
        lambda: model_of(
            """g (float[n,3] x, bool c) => (float[] y) { m = Constant <value_int = 3> ()
            y = Loop (m, c, x) <body = b (int64 i, bool k, float[] x) => (bool o, float[] r) {
            o = Identity(k) r = Add(x, x) }> }"""
        ),
        8 * X,
    ),
}

#: What it is, the model, the error, a part of its text.
REFUSED: dict[str, tuple[Callable[[], Model], type[Exception], str]] = {
    "a value computed twice": (
        lambda: changed(lambda m: m.graph.node.append(helper.make_node("Abs", ["x"], ["z"]))),
        errors.InvalidGraph,
        r"'z' is defined twice, by node number 0 \(Relu\) and by node number 2",
    ),
    "a weight and a node": (
        lambda: changed(lambda m: m.graph.initializer.append(numpy_helper.from_array(X, "z"))),
        errors.InvalidGraph,
        "'z' is defined twice, by the initializers and by node number 0",
    ),
    "an input twice": (
        lambda: changed(lambda m: m.graph.input.append(m.graph.input[0])),
        errors.InvalidGraph,
        "'x' is defined twice",
    ),
    "an output that nothing computes": (
        lambda: changed(lambda m: m.graph.output.append(INFO("nope", 1, [1]))),
        errors.InvalidGraph,
        "Nothing computes its output 'nope'",
    ),
    "no versions at all": (
        lambda: changed(lambda m: m.ClearField("opset_import")),
        errors.InvalidGraph,
        "imports no version of ONNX's operator set",
    ),
    "no format version": (
        lambda: changed(lambda m: m.ClearField("ir_version")),
        errors.InvalidGraph,
        "no ONNX model.*ir_version.*got none",
    ),
    "an operator of a domain that is not known": (
        lambda: changed(lambda m: setattr(m.graph.node[0], "domain", "nowhere")),
        errors.InvalidGraph,
        "Relu of nowhere, version 0, is not supported",
    ),
    "an attribute that the operator has not": (
        lambda: attribute(base(), "is_test", AttributeProto.INT, i=1),
        errors.InvalidGraph,
        "Relu-14 has no attribute 'is_test'",
    ),
    "an attribute twice": (
        lambda: attribute(
            attribute(model_of(LEAKY), "alpha", AttributeProto.FLOAT, f=1),
            "alpha",
            AttributeProto.FLOAT,
            f=2,
        ),
        errors.InvalidGraph,
        "'alpha' comes twice",
    ),
    "a constant with two values (onnxruntime: the first)": (
        lambda: attribute(
            model_of(
                "g (float[n,3] x) => (float[] y) { c = Constant <value_float=1.0> () y = Add(x,c)}"
            ),
            "value_floats",
            AttributeProto.FLOATS,
            floats=[2],
        ),
        errors.InvalidGraph,
        "A constant has one attribute. Got value_float, value_floats",
    ),
    "a weight without data": (
        lambda: added(data_type=1, dims=[3]),
        errors.InvalidGraph,
        "tensor w.*Expected 3 numbers, got 0",
    ),
    "numbers in the wrong field": (
        lambda: added(data_type=7, dims=[3], int32_data=[1, 2, 3]),
        errors.InvalidGraph,
        "tensor w.*int64_data",
    ),
    "an input without type": (
        lambda: changed(lambda m: m.graph.input[0].ClearField("type")),
        errors.InvalidGraph,
        "input x.*type is not declared",
    ),
}
