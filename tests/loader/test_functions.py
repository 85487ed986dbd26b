import onnx
import pytest
from onnx import TensorProto, helper

from sardonyx.base.errors import InvalidGraph
from sardonyx.ir.verify import verify
from sardonyx.loader.load import load
from tests.loader import models


def test_nested_functions_are_inlined():
    graph = load(models.functions())
    verify(graph)
    nodes = [(n.op_type, n.name, n.version, n.origin) for n in graph.nodes]
    assert nodes == [
        ("Mul", "call/first/mul", 16, ("call",)),
        ("If", "call/if", 16, ("call",)),
        ("Mul", "call/last/mul", 16, ("call",)),
        ("Identity", "call/Identity", 16, ("call",)),
        ("Mul", "call_1/first/mul", 16, ("call_1",)),
        ("If", "call_1/if", 16, ("call_1",)),
        ("Mul", "call_1/last/mul", 16, ("call_1",)),
    ]
    factors = {v.name: float(v.constant.array()) for v in graph.initializers.values()}
    # The first passes its own attribute on, the last takes the default.
    assert factors == {
        "call/first/k": 3.0,
        "call/last/k": 2.0,
        "call_1/first/k": 4.0,
        "call_1/last/k": 2.0,
    }
    branch = graph.value("y").producer.attributes["then_branch"]
    assert [float(v.constant.array()) for v in branch.initializers.values()] == [5.0]
    assert graph.value("z").producer.inputs == (graph.value("x"),)
    assert [v.name for v in graph.outputs] == ["v", "w", "z"]


def function(name, nodes, inputs=("a",), outputs=("b",), **options):
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, inputs, outputs, nodes, imports, **options)


def call(name, inputs=("x",), outputs=("y",), **attributes):
    return helper.make_node(name, inputs, outputs, domain="f", **attributes)


def model_of(functions, node):
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N"]) for n in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=functions)


@pytest.mark.parametrize(
    ("functions", "node", "text"),
    [
        ([function("A", [call("A", "a", "b")])], call("A"), "calls itself: A -> A"),
        (
            [function("A", [call("B", "a", "b")]), function("B", [call("A", "a", "b")])],
            call("A"),
            "calls itself: A -> B -> A",
        ),
        ([function("A", [], ["a"], ["b"])], call("A"), "function A.*its output 'b'"),
        ([function("A", [])], call("A", ("x", "x")), "more operands than the function"),
        ([function("A", [])] * 2, call("A"), "function A.*defined twice"),
        (
            [function("A", [helper.make_node("Relu", ["x"], ["b"])])],
            call("A"),
            "node A/number 0 .Relu.*input 'x'",
        ),
        (
            [function("A", [helper.make_node("Relu", ["a"], ["b"])] * 2)],
            call("A"),
            "'b' is defined twice",
        ),
    ],
)
def test_functions_that_are_refused(functions, node, text):
    model = model_of(functions[:1], node)
    for other in functions[1:]:
        model.functions.add().CopyFrom(other)
    with pytest.raises(InvalidGraph, match=text):
        load(model)


def test_an_omitted_operand_is_omitted_inside():
    body = [helper.make_node("Clip", ["a", "low", "high"], ["b"])]
    model = model_of([function("A", body, ["a", "low", "high"])], call("A", ["x", "", "x"]))
    (node,) = load(model).nodes
    assert [v and v.name for v in node.inputs] == ["x", None, "x"]


def test_an_attribute_without_value_and_default_is_left_out():
    node = helper.make_node("Elu", ["a"], ["b"])
    node.attribute.append(
        onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    )
    local = function("A", [node], attributes=["slope"])
    assert next(iter(load(model_of([local], call("A"))).nodes)).attributes == {}
    given = load(model_of([local], call("A", slope=0.5)))
    assert next(iter(given.nodes)).attributes == {"alpha": 0.5}


def test_functions_win_over_operators_and_are_told_apart_by_overload():
    first = function("A", [helper.make_node("Neg", ["a"], ["b"])])
    second = function("A", [helper.make_node("Abs", ["a"], ["b"])])
    second.overload = "other"
    node = call("A")
    node.overload = "other"
    assert [n.op_type for n in load(model_of([first, second], node)).nodes] == ["Abs"]


def test_a_function_may_compute_an_output_as_a_constant():
    body = [helper.make_node("Constant", [], ["b"], value_floats=[1.0, 2.0])]
    graph = load(model_of([function("A", body)], call("A")))
    verify(graph)
    assert graph.outputs[0].constant.array().tolist() == [1.0, 2.0]
