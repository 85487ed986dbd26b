import numpy as np
import pytest

from sardonyx.base.dtypes import FLOAT, INT64
from sardonyx.base.errors import InvalidGraph
from sardonyx.base.sizes import symbol
from sardonyx.ir.constant import Constant
from sardonyx.ir.node import Node
from sardonyx.ir.patch import Patch, apply, remove_dead
from sardonyx.ir.text import graph_text
from sardonyx.ir.value import Value
from sardonyx.ir.verify import verify
from tests.ir.test_graph import chain, order, with_branches


def test_a_patch_replaces_nodes_and_carries_their_origin():
    graph = chain("A", "B", "C", "D")
    for node in graph.nodes:
        node.origin = (node.name,)
    _, b, c, _ = graph.nodes
    k = graph.add_constant("k", Constant.from_array(np.float32(1)))
    graph.set_inputs(c, (b.output, k))
    new = graph.new_value("fused")
    fused = Node("BC", "", b.inputs, (new,))
    apply(graph, Patch({c.output: new}, [fused], "fuse b and c"))
    verify(graph, "fuse b and c")
    assert order(graph) == "ABCD"
    assert [n.op_type for n in graph.nodes] == ["A", "BC", "D"]
    assert set(fused.origin) == {"n1", "n2"}
    assert (new.dtype, new.shape) == (FLOAT, (symbol("N"), 4))
    assert not graph.initializers
    assert fused.version == 17


def test_a_replaced_output_keeps_its_name():
    graph = chain("A", "B")
    new = graph.new_value("new")
    apply(graph, Patch({graph.outputs[0]: new}, [Node("C", "", (graph.inputs[0],), (new,))]))
    verify(graph)
    assert graph_text(graph).splitlines()[1:] == [
        "  %y: float[N,4] = C(%x)  # C",
        "  return %y",
    ]


def test_a_new_node_may_stand_between_a_value_and_its_readers():
    graph = chain("A", "B")
    a, b = graph.nodes
    new = graph.new_value("new")
    apply(graph, Patch({a.output: new}, [Node("N", "", (a.output,), (new,))]))
    verify(graph)
    assert order(graph) == "ANB"
    assert b.inputs == (new,)


def test_many_values_at_once_from_nodes_far_apart():
    graph = chain("A", "B", "C")
    a, _, c = graph.nodes
    new = [graph.new_value("l"), graph.new_value("r")]
    node = Node("Split", "", (graph.inputs[0],), new)
    apply(graph, Patch({a.output: new[0], c.output: new[1]}, [node]))
    verify(graph)
    assert [n.op_type for n in graph.nodes] == ["Split"]


def test_a_new_node_that_reads_a_later_value_moves():
    graph = chain("A", "B", "C")
    x = graph.inputs[0]
    late = graph.add_node(Node("L", "", (x,), (graph.new_value("l", FLOAT),)))
    a = graph.nodes.first
    new = graph.new_value("new")
    apply(graph, Patch({a.output: new}, [Node("N", "", (late.output,), (new,))]))
    verify(graph)
    assert order(graph) == "LNBC"


def test_a_value_becomes_a_constant():
    graph = chain("A", "B", "C")
    k = graph.add_constant("k", Constant.from_array(np.zeros((1, 4), np.float32)))
    _, b, c = graph.nodes
    apply(graph, Patch({b.output: k}))
    verify(graph)
    assert order(graph) == "C"
    assert c.inputs == (k,)


@pytest.mark.parametrize(
    ("dtype", "shape", "kind", "text"),
    [
        (INT64, None, "tensor", r"patch p\].*'y' cannot be.*Expected float, got int64"),
        (None, (4,), "tensor", "Expected the shape .N, 4., got .4."),
        (None, (symbol("N"), 5), "tensor", "Expected the shape"),
        (None, None, "sequence", "Expected a tensor, got a sequence"),
    ],
)
def test_values_that_differ_are_refused(dtype, shape, kind, text):
    graph = chain("A")
    before = graph_text(graph)
    new = Value("new", dtype, shape, kind=kind)
    node = Node("B", "", (graph.inputs[0],), (new,))
    with pytest.raises(InvalidGraph, match=text):
        apply(graph, Patch({graph.outputs[0]: new}, [node], "p"))
    assert graph_text(graph) == before
    verify(graph)


@pytest.mark.parametrize("shape", [None, (symbol("N"), 4), (symbol("M"), 4), (3, symbol("K"))])
def test_shapes_that_may_agree_are_accepted(shape):
    graph = chain("A")
    new = Value("new", FLOAT, shape)
    apply(graph, Patch({graph.outputs[0]: new}, [Node("B", "", (graph.inputs[0],), (new,))]))
    verify(graph)


def test_remove_dead():
    graph = with_branches()
    x = graph.value("x")
    unused = graph.add_node(Node("Abs", "", (x,), (graph.new_value("u"),)))
    graph.add_node(Node("Abs", "", unused.outputs, (graph.new_value("u"),)))
    inner = next(n for n in graph.walk() if n.name == "relu").graph
    inner.add_constant("k", Constant.from_array([1]))
    inner.add_node(Node("Abs", "", (x,), (inner.new_value("u"),)))
    assert remove_dead(graph) == 3
    verify(graph)
    assert [n.name for n in graph.walk()] == ["relu", "if"]
    graph.outputs.clear()
    assert remove_dead(graph) == 1
    assert not x.is_used
