import numpy as np
import pytest

from sardonyx.base.dtypes import BOOL, FLOAT, INT64
from sardonyx.base.errors import InvalidArgument, InvalidGraph
from sardonyx.base.sizes import symbol
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.text import graph_text
from sardonyx.ir.value import Value
from sardonyx.ir.verify import verify


def chain(*op_types):
    """A graph of nodes in a row, from x to y; the node's name is its place."""
    graph = Graph("chain", opset={"": 17})
    value = graph.add_input(Value("x", FLOAT, (symbol("N"), 4)))
    for index, op_type in enumerate(op_types):
        last = index == len(op_types) - 1
        result = Value("y" if last else f"v{index}", FLOAT, (symbol("N"), 4))
        graph.add_node(Node(op_type, "", (value,), (result,), name=f"n{index}"))
        value = result
    graph.outputs.append(value)
    return graph


def with_branches():
    """An If whose branches both read `x`; the second gives out `x` itself."""
    graph = Graph("outer", opset={"": 17})
    c = graph.add_input(Value("c", BOOL, ()))
    x = graph.add_input(Value("x", FLOAT, (2,)))
    first, second = Graph("first", parent=graph), Graph("second", parent=graph)
    inner = first.new_value("t")
    first.add_node(Node("Relu", "", (x,), (inner,), name="relu"))
    first.outputs.append(inner)
    second.outputs.append(x)
    y = Value("y", FLOAT, (2,))
    branches = {"then_branch": first, "else_branch": second}
    graph.add_node(Node("If", "", (c,), (y,), branches, name="if"))
    graph.outputs.append(y)
    return graph


def order(graph):
    return "".join(node.op_type for node in graph.nodes)


def test_nodes_are_inserted_and_removed_anywhere():
    graph = chain("A", "B", "C")
    a, b, c = graph.nodes
    x = graph.inputs[0]

    def insert_before(anchor, node):
        graph.add_node(node, before=anchor)

    for op_type, insert, anchor in [
        ("1", insert_before, a),
        ("2", graph.insert_after, a),
        ("3", insert_before, c),
        ("4", graph.insert_after, c),
    ]:
        insert(anchor, Node(op_type, "", (x,), (graph.new_value("z"),)))
    assert order(graph) == "1A2B3C4"
    assert "".join(n.op_type for n in reversed(graph.nodes)) == "4C3B2A1"
    for node in list(graph.nodes):
        if node.op_type.isdigit():
            graph.remove_node(node)
    assert (order(graph), len(graph.nodes)) == ("ABC", 3)
    verify(graph)


def test_nodes_may_change_during_iteration():
    graph = chain("A")
    x = graph.inputs[0]
    dead = [Node("D", "", (x,), (graph.new_value("d"),)) for _ in range(4)]
    for node in dead:
        graph.add_node(node)
    seen = []
    for node in graph.nodes:
        seen.append(node.op_type)
        if node is dead[1]:
            for other in dead[1:3]:
                graph.remove_node(other)
            graph.add_node(Node("N", "", (x,), (graph.new_value("d"),)))
    assert seen == ["A", "D", "D", "D", "N"]
    assert order(graph) == "ADDN"


def test_positions_hold_when_there_is_no_gap_left():
    graph = chain("A", "B")
    anchor = graph.nodes.last
    for _ in range(60):
        value = graph.new_value("z")
        anchor = graph.add_node(Node("N", "", (graph.inputs[0],), (value,)), before=anchor)
    nodes = list(graph.nodes)
    assert all(a.is_before(b) for a, b in zip(nodes, nodes[1:], strict=False))
    assert not nodes[1].is_before(nodes[0])


def test_uses_are_tracked_in_order():
    graph = chain("A")
    x = graph.inputs[0]
    add = graph.add_node(Node("Add", "", (x, x), (graph.new_value("s"),)))
    a = graph.nodes.first
    assert x.uses == ((a, 0), (add, 0), (add, 1))
    graph.set_inputs(add, (x, None, a.output))
    assert x.uses == ((a, 0), (add, 0))
    assert a.output.uses == ((add, 2),)
    graph.remove_node(add)
    assert (x.use_count, a.output.is_used) == (1, True)  # y is a graph output
    verify(graph)


def test_a_node_in_use_stays():
    graph = chain("A", "B")
    for node, reader in zip(graph.nodes, ["n1", "the outputs of the graph"], strict=True):
        with pytest.raises(InvalidGraph, match=f"is used by {reader}"):
            graph.remove_node(node)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda g: Node("A", "", (), (Value("x"),)), "two values named 'x'"),
        (lambda g: Node("A", "", (), (g.outputs[0],)), "'y' is computed by node n0"),
        (lambda g: g.nodes.first, "in a graph already"),
    ],
)
def test_nodes_that_cannot_be_added(make, text):
    graph = chain("A")
    with pytest.raises(InvalidGraph, match=text):
        graph.add_node(make(graph))


def test_names_and_versions_are_filled_in():
    graph = chain("Relu")
    nodes = [graph.add_node(Node("Relu", "", (), (graph.new_value("v"),))) for _ in range(3)]
    assert [n.name for n in nodes] == ["Relu", "Relu_1", "Relu_2"]
    assert [n.output.name for n in nodes] == ["v", "v_1", "v_2"]
    assert nodes[0].version == 17


def test_replaced_graph_outputs_keep_their_names():
    graph = chain("A", "B")
    b = graph.nodes.last
    new = graph.new_value("new", FLOAT)
    graph.add_node(Node("C", "", b.inputs, (new,)))
    graph.replace_uses(b.output, new)
    assert graph.outputs[0] is new
    assert new.name == "y"
    graph.remove_node(b)
    verify(graph)
    assert order(graph) == "AC"


@pytest.mark.parametrize("target", ["input", "other output"])
def test_outputs_that_cannot_take_the_name_get_an_identity(target):
    graph = chain("A", "B")
    a, b = graph.nodes
    if target == "other output":
        graph.outputs.append(a.output)
    new = graph.inputs[0] if target == "input" else a.output
    name = new.name
    graph.replace_uses(b.output, new)
    graph.remove_node(b)
    verify(graph)
    assert graph.outputs[0].name == "y"
    assert (graph.outputs[0].producer.op_type, new.name) == ("Identity", name)


def test_a_constant_takes_the_name_of_an_output():
    graph = chain("A")
    constant = graph.add_constant("k", Constant.from_array(np.zeros((1, 4), np.float32)))
    graph.replace_uses(graph.outputs[0], constant)
    graph.remove_node(graph.nodes.first)
    verify(graph)
    assert list(graph.initializers) == ["y"]


def test_uses_in_subgraphs_are_uses():
    graph = with_branches()
    verify(graph)
    x = graph.value("x")
    node = graph.nodes.first
    assert [n.name for n, _ in x.uses] == ["relu"]
    assert list(node.captures()) == [x]
    other = Value("z", FLOAT, (2,))
    made = Node("Abs", "", (graph.add_input(Value("w", FLOAT)),), (other,))
    graph.add_node(made, before=node)
    graph.replace_uses(x, other)
    verify(graph)
    assert not x.is_used
    assert list(node.captures()) == [other]
    graph.outputs.clear()
    graph.remove_node(node)
    assert not other.is_used
    assert graph.value("t") is None
    verify(graph)


def test_walk_gives_inner_nodes_first():
    graph = with_branches()
    assert [n.name for n in graph.walk()] == ["relu", "if"]
    assert [g.name for g in graph.graphs()] == ["outer", "first", "second"]


def test_topological_sort_is_stable():
    graph = chain("A", "B", "C")
    a, b, _ = graph.nodes
    graph.set_inputs(a, (graph.inputs[0],))
    value = graph.new_value("d")
    d = graph.add_node(Node("D", "", (graph.inputs[0],), (value,)))
    graph.set_inputs(b, (a.output, d.output))
    graph.topological_sort()
    verify(graph)
    assert order(graph) == "ADBC"


def test_topological_sort_counts_what_subgraphs_read():
    graph = with_branches()
    late = Value("late", FLOAT, (2,))
    graph.add_node(Node("Abs", "", (graph.value("x"),), (late,)))
    relu = next(n for n in graph.walk() if n.name == "relu")
    relu.graph.set_inputs(relu, (late,))
    with pytest.raises(InvalidGraph, match="reads 'late' before it is defined"):
        verify(graph)
    graph.topological_sort()
    verify(graph)
    assert order(graph) == "AbsIf"


def test_cycles_are_named():
    graph = chain("A", "B", "C")
    a, b, _ = graph.nodes
    graph.set_inputs(a, (b.output,))
    with pytest.raises(InvalidGraph, match="wait for each other: n0 <- n1 <- n0"):
        graph.topological_sort()


@pytest.mark.parametrize("build", [lambda: chain("A", "B"), with_branches])
def test_clones_share_nothing_but_constants(build):
    graph = build()
    graph.add_constant("k", Constant.from_array([1, 2]))
    values = {}
    copy = graph.clone(values)
    verify(copy)
    verify(graph)
    assert graph_text(copy) == graph_text(graph)
    assert copy.value("k").constant is graph.value("k").constant
    assert values[graph.value("y")] is copy.value("y")
    for node in list(copy.nodes):
        copy.outputs.clear()
        for value in node.outputs:
            for reader, _ in value.uses:
                copy.set_inputs(reader, ())
        copy.remove_node(node)
    verify(graph)


def test_rename_keeps_the_tables():
    graph = chain("A")
    k = graph.add_constant("k", Constant.from_array([1]))
    graph.rename(k, "q")
    assert (list(graph.initializers), graph.value("q"), graph.value("k")) == (["q"], k, None)
    with pytest.raises(InvalidGraph, match="two values named 'x'"):
        graph.rename(k, "x")
    assert k.name == "q"
    verify(graph)


def test_constants():
    constant = Constant.from_array([[1, 2], [3, 4]])
    assert (constant.dtype, constant.shape, constant.size_bytes) == (INT64, (2, 2), 32)
    assert repr(constant) == "int64[2,2]{1, 2, 3, 4}"
    assert not constant.array().flags.writeable
    same = Constant.from_array(np.array([[1, 2], [3, 4]]).T.copy().T)
    assert same.digest() == constant.digest()
    different = [
        Constant.from_array([1, 2, 3, 4]),
        Constant.from_array([[1, 2], [3, 5]]),
        Constant.from_array([[1, 2], [3, 4]], FLOAT),
        Constant.from_array([["a", "bc"]]),
        Constant.from_array([["ab", "c"]]),
    ]
    assert len({c.digest() for c in [constant, *different]}) == 6
    with pytest.raises(InvalidArgument, match="no element type for NumPy's datetime64"):
        Constant.from_array(np.zeros(1, "M8[s]"))


@pytest.mark.parametrize(
    ("array", "elements"),
    [
        ([3, -1], (3, -1)),
        (np.int32(7), (7,)),
        (np.zeros((1, 1), int), None),
        ([0.5], None),
        (np.zeros(2000, int), None),
    ],
)
def test_elements_of_constants(array, elements):
    value = Value("v", constant=Constant.from_array(array))
    assert value.elements == elements


def test_text():
    graph = with_branches()
    relu, node = graph.walk()
    assert repr(relu) == "%t: ?[?] = Relu(%x)  # relu"
    assert repr(graph.inputs[1]) == "%x: float[2]"
    assert repr(node).startswith("%y: float[2] = If(%c, then_branch=graph first, else_branch=graph")
    assert repr(graph) == "graph outer(%c: bool[], %x: float[2]) -> (%y: float[2]): 1 nodes"
    node.attributes["pads"] = list(range(20))
    node.attributes["text"] = "x" * 100
    assert "pads=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ... 20 in all]" in repr(
        node
    )
    assert f"text='{'x' * 59}...'" in repr(node)


def test_a_name_is_given_once():
    graph = Graph("g")
    given = [graph.fresh_name(hint) for hint in ("x", "x", "x_1", "x", "x_1")]
    assert len(set(given)) == len(given)


def test_what_no_caller_replaces_is_fixed():
    graph = Graph("outer", opset={"": 17})
    made = Constant.from_array(np.ones(2, np.float32))
    fixed, given = graph.add_constant("fixed", made), graph.add_constant("given", made)
    graph.overridable.append(given)
    x = graph.add_input(Value("x", FLOAT, (2,)))
    assert [v.is_fixed for v in (fixed, given, x)] == [True, False, False]
    assert Value("in no graph", constant=made).is_fixed
    graph.overridable.clear()
    assert given.is_fixed
