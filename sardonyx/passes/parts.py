"""Parts of a graph: connected nodes of a set, as many together as can be computed in one go."""

from __future__ import annotations

from collections.abc import Collection

from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.order import dependencies
from sardonyx.ir.value import Value


def find_parts(graph: Graph, chosen: Collection[Node]) -> list[list[Node]]:
    """Divide nodes of a graph into parts.

    A part is connected and convex: nothing that it computes comes back to it through a node outside
    it, nor through another part. Two parts are never joined by an edge that could be inside one.

    Args:
        graph: The outermost graph, its nodes sorted.
        chosen: Nodes of it.

    Returns:
        Parts in the order of their first nodes; the nodes of each in the graph's order.
    """
    return _Parts(graph, chosen).find()


class _Parts:
    """Nodes, joined step by step: each is named by one of its nodes' numbers."""

    def __init__(self, graph: Graph, chosen: Collection[Node]) -> None:
        self._nodes = list(graph.nodes)
        number = {node: k for k, node in enumerate(self._nodes)}
        self._chosen = {number[node] for node in chosen}
        self._home = list(range(len(self._nodes)))
        self._after: list[set[int]] = [set() for _ in self._nodes]
        for k, node in enumerate(self._nodes):
            for earlier in dependencies(node):
                self._after[number[earlier]].add(k)

    def find(self) -> list[list[Node]]:
        """The parts, in order."""
        # From the end: what comes after a node is joined already, and is soon walked through.
        while any([self._join(k) for k in sorted(self._chosen, reverse=True)]):
            pass
        found: dict[int, list[Node]] = {}
        for k in sorted(self._chosen):
            found.setdefault(self._of(k), []).append(self._nodes[k])
        return list(found.values())

    def _of(self, k: int) -> int:
        while self._home[k] != k:
            k = self._home[k]
        return k

    def _followers(self, k: int) -> set[int]:
        found = self._after[k] = {self._of(n) for n in self._after[k]} - {k}
        return found

    def _join(self, own: int) -> bool:
        """Take in the parts that this one hands something directly, and in no other way."""
        if self._home[own] != own:
            return False
        joined = False
        for other in sorted(self._followers(own)):
            if other in self._chosen and not self._is_detour(own, other):
                self._home[other] = own
                self._after[own] |= self._after[other]
                joined = True
        return joined

    def _is_detour(self, first: int, last: int) -> bool:
        """Whether something else lies on a way from one to the other."""
        waiting = [k for k in self._followers(first) if k != last]
        seen = set(waiting)
        while waiting:
            for k in self._followers(waiting.pop()):
                if k == last:
                    return True
                if k not in seen:
                    seen.add(k)
                    waiting.append(k)
        return False


def as_graph(graph: Graph, nodes: list[Node]) -> tuple[Graph, list[Value], list[Value]]:
    """A part as a graph of its own, under the same names; and what it reads and gives outside.

    Constants are shared.

    Args:
        graph: The graph that the nodes are in.
        nodes: In an order in which they can be computed, without graphs among their attributes.
    """
    inside = set(nodes)
    made = Graph(graph.name, opset=graph.opset)
    made.header.ir_version = graph.header.ir_version
    copies: dict[Value, Value] = {}
    inputs: list[Value] = []
    for node in nodes:
        for value in node.inputs:
            if value is None or value in copies or value.producer in inside:
                continue
            copy = copies[value] = Value(value.name, value.dtype, value.shape)
            copy.constant = value.constant
            if value.constant is not None:
                made.add_initializer(copy)
            else:
                inputs.append(value)
                made.add_input(copy)
        for value in node.outputs:
            copies[value] = Value(value.name, value.dtype, value.shape)
        made.add_node(
            Node(
                node.op_type, node.domain, [None if v is None else copies[v] for v in node.inputs],
                [copies[v] for v in node.outputs], node.attributes, node.name, node.version,
                node.origin,
            )
        )  # fmt: skip
    outputs = [
        value
        for node in nodes
        for value in node.outputs
        if value.is_graph_output or any(reader not in inside for reader, _ in value.uses)
    ]
    made.outputs.extend(copies[v] for v in outputs)
    return made, inputs, outputs
