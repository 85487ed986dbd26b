"""The verifier: checks what every pass may count on."""

from __future__ import annotations

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.printable import printable_lines
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.text import node_line
from sardonyx.ir.value import Value

_NEIGHBOURS_BEFORE = 5
_NEIGHBOURS_AFTER = 4


def verify(graph: Graph, after: str = "") -> None:
    """Check a graph and its subgraphs.

    Args:
        graph: The outermost graph.
        after: The pass that just ran, which the error names.

    Raises:
        InvalidGraph: Something is broken. The text shows the nodes around the fault.
    """
    checker = _Verifier(f"verify after {after}" if after else "verify")
    checker.check_graph(graph, set())
    checker.check_uses()


class _Verifier:
    def __init__(self, where: str) -> None:
        self._where = where
        self._names: dict[str, Value] = {}
        self._node_names: set[str] = set()
        self._values: dict[Value, None] = {}
        self._reads: set[tuple[Value, Node, int]] = set()
        self._outputs: dict[tuple[Value, Graph], int] = {}

    def _fail(self, graph: Graph, what: str, node: Node | None = None) -> InvalidGraph:
        text = message(f"{self._where}, graph {graph.name}", what)
        return InvalidGraph(printable_lines([text, *_neighbourhood(graph, node)]))

    def check_graph(self, graph: Graph, outside: set[Value]) -> None:
        visible = set(outside)
        for value in graph.inputs:
            if value.producer is not None or value.constant is not None:
                raise self._fail(graph, f"The graph input {value.name!r} is computed or constant")
            if graph.parent is None and value.kind == "tensor" and value.dtype is None:
                raise self._fail(graph, f"The graph input {value.name!r} has no dtype")
            self._define(graph, value, None)
            visible.add(value)
        for name, value in graph.initializers.items():
            if name != value.name or value.constant is None or value.producer is not None:
                raise self._fail(graph, f"The initializer {name!r} is not a constant of that name")
            if value.dtype is not value.constant.dtype or value.shape != value.constant.shape:
                raise self._fail(graph, f"The initializer {name!r} differs from its constant")
            self._define(graph, value, None)
            visible.add(value)
        for value in graph.overridable:
            if graph.initializers.get(value.name) is not value:
                raise self._fail(graph, f"The overridable {value.name!r} is no initializer")
        self._check_list(graph)
        for node in graph.nodes:
            self._check_node(graph, node, visible)
        for value in graph.outputs:
            if value not in visible:
                raise self._fail(graph, f"The graph output {value.name!r} is not in the graph")
            key = (value, graph)
            self._outputs[key] = self._outputs.get(key, 0) + 1

    def _check_list(self, graph: Graph) -> None:
        previous: Node | None = None
        count = 0
        node = graph.nodes.first
        while node is not None:
            if node.graph is not graph or node.previous is not previous:
                raise self._fail(graph, f"The list of nodes is broken at {node.name!r}", node)
            previous, node = node, node.next
            count += 1
        if graph.nodes.last is not previous or len(graph.nodes) != count:
            raise self._fail(graph, "The list of nodes has a wrong end or length")

    def _check_node(self, graph: Graph, node: Node, visible: set[Value]) -> None:
        if not node.name or node.name in self._node_names:
            raise self._fail(graph, f"The node name {node.name!r} is empty or not unique", node)
        self._node_names.add(node.name)
        for index, read in enumerate(node.inputs):
            if read is None:
                continue
            if read not in visible:
                what = f"Node {node.name!r} reads {read.name!r} before it is defined"
                raise self._fail(graph, what, node)
            self._reads.add((read, node, index))
        for subgraph in node.subgraphs():
            if subgraph.parent is not graph:
                raise self._fail(graph, f"A subgraph of {node.name!r} has another parent", node)
            self.check_graph(subgraph, visible)
        for index, value in enumerate(node.outputs):
            if value.producer is not node or value.producer_index != index:
                what = f"{value.name!r} does not name node {node.name!r} as its producer"
                raise self._fail(graph, what, node)
            if value.is_omitted and value.is_used:
                raise self._fail(graph, f"An omitted output of {node.name!r} is used", node)
            self._define(graph, value, node)
            visible.add(value)

    def _define(self, graph: Graph, value: Value, node: Node | None) -> None:
        self._values[value] = None
        if value.is_omitted and node is not None:
            return
        if self._names.setdefault(value.name, value) is not value or not value.name:
            raise self._fail(graph, f"The value name {value.name!r} is empty or not unique", node)
        if graph.names.values.get(value.name) is not value:
            raise self._fail(graph, f"The value name {value.name!r} is not registered", node)

    def check_uses(self) -> None:
        for value in self._values:
            for node, index in value.uses:
                if (value, node, index) not in self._reads:
                    what = f"{value.name!r} counts a use by {node.name!r} that is none"
                    raise InvalidGraph(message(self._where, what))
            for graph, count in value._output_of.items():
                if self._outputs.get((value, graph)) != count:
                    what = f"{value.name!r} counts as an output of graph {graph.name}"
                    raise InvalidGraph(message(self._where, what))
        for value, node, index in self._reads:
            if (node, index) not in value._uses and node.graph is not None:
                what = f"{value.name!r} does not count its use by {node.name!r}"
                raise self._fail(node.graph, what, node)


def _neighbourhood(graph: Graph, node: Node | None) -> list[str]:
    nodes = list(graph.nodes)
    center = nodes.index(node) if node in nodes else 0
    first = max(0, center - _NEIGHBOURS_BEFORE)
    chosen = nodes[first : center + _NEIGHBOURS_AFTER + 1]
    return [f"{'>' if n is node else ' '} {node_line(n)}" for n in chosen]
