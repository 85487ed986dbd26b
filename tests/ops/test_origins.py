"""Faults and errors name nodes of the file: not what a lowering or a pass made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.base.errors import IndexOutOfRange
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from tests.support.session import model_of

_INT64, _FLOAT = TensorProto.INT64, TensorProto.FLOAT


def _scan(directions: list[int], names: tuple[str, str, str], *, around: bool) -> Any:
    """A Scan of version 8, whose lengths are checked in its body; perhaps in a branch."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["s", "i"], ["m"], names[1]),
            helper.make_node("Add", ["m", "i"], ["t"], names[2]),
            helper.make_node("Identity", ["t"], ["o"]),
        ],
        "body",
        [value("s", _FLOAT, [2]), value("i", _FLOAT, [2])],
        [value("t", _FLOAT, [2]), value("o", _FLOAT, [2])],
    )
    facts = {"body": body, "num_scan_inputs": 1, "directions": directions}
    nodes = [helper.make_node("Scan", ["lengths", "s0", "x"], ["y", "z"], names[0], **facts)]
    shown = [value("y", _FLOAT, ["b", 2]), value("z", _FLOAT, ["b", "n", 2])]
    given = [value("lengths", _INT64, ["b"]), value("s0", _FLOAT, ["b", 2])]
    given.append(value("x", _FLOAT, ["b", "n", 2]))
    if around:
        yes = helper.make_graph(nodes, "yes", [], shown)
        same = [helper.make_node("Identity", ["s0"], ["y2"], "same")]
        same.append(helper.make_node("Identity", ["x"], ["z2"], "same too"))
        outputs = [value("y2", _FLOAT, ["b", 2]), value("z2", _FLOAT, ["b", "n", 2])]
        no = helper.make_graph(same, "no", [], outputs)
        nodes = [
            helper.make_node("If", ["c"], ["y", "z"], "the branch", then_branch=yes, else_branch=no)
        ]
        given.append(value("c", TensorProto.BOOL, []))
    graph = helper.make_graph(nodes, "g", given, shown)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=9)


@pytest.mark.parametrize("level", ["ORT_ENABLE_ALL", "ORT_DISABLE_ALL"])
@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("directions", [[0], [1]], ids=["forward", "backward"])
@pytest.mark.parametrize(
    ("names", "scan"),
    [
        (("the scan", "first", "second"), "the scan"),
        (("the scan", "", ""), "the scan"),
        (("", "first", "second"), "Scan_0"),
    ],
)
def test_what_an_operator_checks_in_its_body(
    names: tuple[str, str, str], scan: str, directions: list[int], around: bool, level: str
) -> None:
    """The operator comes first; nodes that share a kernel with the check may follow."""
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel[level]
    model = _scan(directions, names, around=around).SerializeToString()
    session = sardonyx.InferenceSession(model, options)
    feeds = {"s0": np.zeros((2, 2), np.float32), "x": np.ones((2, 3, 2), np.float32)}
    feeds |= {"c": np.array(True)} if around else {}
    for wrong in ([9, 1], [1, 4], [-1, 2]):
        with pytest.raises(IndexOutOfRange, match=rf"\[node {scan}[],].*sequence_lens"):
            session.run(None, {**feeds, "lengths": np.array(wrong)})
    session.run(None, {**feeds, "lengths": np.array([3, 0])})


def _names(graph: Graph) -> set[str]:
    found = set()
    for node in graph.nodes:
        found |= {node.name}.union(*map(_names, node.subgraphs()))
    return found


def _nodes(graph: Graph) -> list[Node]:
    found = list(graph.nodes)
    for node in graph.nodes:
        for inner in node.subgraphs():
            found += _nodes(inner)
    return found


_MODELS = {
    "products that are joined": model_of(
        "g (float[n, 8] x) => (float[n, 4] y) { a = MatMul(x, w) b = MatMul(x, w2) y = Add(a, b) }",
        {"w": np.ones((8, 4), np.float32), "w2": np.ones((8, 4), np.float32)},
    ),
    "a norm that is folded": model_of(
        """g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y) {
            c = Conv<pads = [1, 1, 1, 1]>(x, w) y = BatchNormalization(c, s, s, s, s)
        }""",
        {"w": np.ones((4, 3, 3, 3), np.float32), "s": np.ones(4, np.float32)},
    ),
    "a map over a sequence": model_of(
        """g (float[n] x) => (float[m] y) {
            s = SequenceConstruct(x, x)
            t = SequenceMap<body = b (float[n] i) => (float[n] o) { o = Neg(i) }>(s)
            y = ConcatFromSequence<axis = 0>(t)
        }"""
    ),
    "a scan": _scan([1], ("the scan", "first", ""), around=True),
}


@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize("model", _MODELS.values(), ids=_MODELS)
def test_passes_and_lowerings_name_nodes_of_the_file(model: Any, level: int) -> None:
    graph = load(model)
    names = _names(graph)
    optimise(graph, level)
    for node in _nodes(graph):
        assert node.written and names.issuperset(node.written), node.name
    for origin in lower(graph).origins.values():
        assert origin and names.issuperset(origin)


@pytest.mark.parametrize(
    ("name", "origin", "where"),
    [
        ("a", (), "node a (Add)"),
        ("a", ("a",), "node a (Add)"),
        ("Add_joined", ("a", "b"), "node a, b (Add)"),
        ("call/inner", ("call",), "node call/inner (Add)"),
    ],
)
def test_how_errors_name_a_node(name: str, origin: tuple[str, ...], where: str) -> None:
    assert Node("Add", name=name, origin=origin).where == where
