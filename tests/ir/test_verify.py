import numpy as np
import pytest

from sardonyx.base.dtypes import FLOAT
from sardonyx.base.errors import InvalidGraph
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.ir.verify import verify
from tests.ir.test_graph import chain, with_branches


def forget_use(graph):
    graph.inputs[0]._uses.clear()


def invent_use(graph):
    graph.inputs[0]._uses[graph.nodes.last, 0] = None


def bypass_set_inputs(graph):
    graph.nodes.last.inputs = (graph.inputs[0],)


def wrong_producer(graph):
    graph.nodes.first.output.producer = graph.nodes.last


def repeat_value_name(graph):
    graph.nodes.first.output.name = "x"


def forget_name(graph):
    del graph.names.values["v0"]


def repeat_node_name(graph):
    graph.nodes.last.name = "n0"


def foreign_output(graph):
    graph.outputs.append(Value("stray"))


def no_dtype(graph):
    graph.inputs[0].dtype = None


def wrong_initializer_name(graph):
    value = graph.add_constant("k", Constant.from_array(np.zeros(2)))
    graph.initializers["other"] = graph.initializers.pop(value.name)


def wrong_constant_shape(graph):
    graph.add_constant("k", Constant.from_array(np.zeros(2))).shape = (3,)


def wrong_order(graph):
    first = graph.nodes.first
    graph.nodes._unlink(first)
    graph.nodes._link(first, None)


def broken_list(graph):
    graph.nodes.last._previous = None


def wrong_parent(graph):
    stray = Graph("stray")
    graph.nodes.last.attributes["body"] = stray


def computed_input(graph):
    graph.inputs[0].producer = graph.nodes.last


def unlisted_overridable(graph):
    graph.overridable.append(graph.inputs[0])


def forgotten_output(graph):
    graph.outputs._items.clear()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (forget_use, "'x' does not count its use by 'n0'"),
        (invent_use, "'x' counts a use by 'n3' that is none"),
        (bypass_set_inputs, "'v2' counts a use by 'n3' that is none"),
        (wrong_producer, "'v0' does not name node 'n0' as its producer"),
        (repeat_value_name, "value name 'x' is empty or not unique"),
        (forget_name, "value name 'v0' is not registered"),
        (repeat_node_name, "node name 'n0' is empty or not unique"),
        (foreign_output, "graph output 'stray' is not in the graph"),
        (no_dtype, "graph input 'x' has no dtype"),
        (wrong_initializer_name, "initializer 'other' is not a constant of that name"),
        (wrong_constant_shape, "initializer 'k' differs from its constant"),
        (wrong_order, "Node 'n1' reads 'v0' before it is defined"),
        (broken_list, "list of nodes is broken at 'n3'"),
        (wrong_parent, "subgraph of 'n3' has another parent"),
        (computed_input, "graph input 'x' is computed"),
        (unlisted_overridable, "overridable 'x' is no initializer"),
        (forgotten_output, "'y' counts as an output of graph chain"),
    ],
)
def test_faults_are_found_and_the_pass_is_named(damage, text):
    graph = chain("A", "B", "C", "D")
    verify(graph)
    damage(graph)
    with pytest.raises(InvalidGraph, match=rf"\[verify after fold constants.*{text}"):
        verify(graph, after="fold constants")


def test_a_value_of_a_sibling_subgraph_is_not_visible():
    graph = with_branches()
    first, second = graph.nodes.first.subgraphs()
    second.outputs[0] = first.outputs[0]
    with pytest.raises(InvalidGraph, match="graph second.*graph output 't' is not in the graph"):
        verify(graph)


def test_the_ten_nodes_around_the_fault_are_shown():
    graph = chain(*[f"Op{i}" for i in range(20)])
    node = list(graph.nodes)[10]
    graph.set_inputs(node, (Value("stray", FLOAT),))
    with pytest.raises(InvalidGraph) as caught:
        verify(graph)
    head, *lines = str(caught.value).splitlines()
    assert head == "[verify, graph chain] Node 'n10' reads 'stray' before it is defined."
    assert [line.split("# ")[1] for line in lines] == [f"n{i}" for i in range(5, 15)]
    assert lines[5].startswith("> %v10: float[N,4] = Op10(%stray)")


def test_omitted_outputs_may_repeat_but_not_be_read():
    graph = chain("A")
    node = graph.add_node(Node("B", "", (graph.inputs[0],), (Value(""), Value(""))))
    verify(graph)
    graph.add_node(Node("C", "", (node.outputs[1],), (graph.new_value("c"),)))
    with pytest.raises(InvalidGraph, match="omitted output of 'B' is used"):
        verify(graph)
