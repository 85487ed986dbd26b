"""Order of nodes: every value before its readers."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from sardonyx.base.errors import InvalidGraph, message

if TYPE_CHECKING:
    from sardonyx.ir.graph import Graph
    from sardonyx.ir.node import Node


def dependencies(node: Node) -> list[Node]:
    """Nodes of the same graph whose outputs the node, or a subgraph of it, reads."""
    read = [value for value in node.inputs if value is not None]
    read.extend(node.captures())
    found = (value.producer for value in read)
    return [p for p in dict.fromkeys(found) if p is not None and p.graph is node.graph]


def is_sorted(graph: Graph) -> bool:
    """Whether each node stands after those that it depends on."""
    seen: set[Node] = set()
    for node in graph.nodes:
        if any(dependency not in seen for dependency in dependencies(node)):
            return False
        seen.add(node)
    return True


def sort(graph: Graph) -> None:
    """Sort the nodes of a graph and of its subgraphs, moving as few as possible.

    Raises:
        InvalidGraph: Nodes wait for each other.
    """
    for node in graph.nodes:
        for subgraph in node.subgraphs():
            sort(subgraph)
    if is_sorted(graph):
        return
    nodes = list(graph.nodes)
    position = {node: index for index, node in enumerate(nodes)}
    waiting = {node: dependencies(node) for node in nodes}
    missing = {node: len(needed) for node, needed in waiting.items()}
    readers: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node, needed in waiting.items():
        for dependency in needed:
            readers[dependency].append(node)
    ready = [position[node] for node in nodes if not missing[node]]
    order: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        order.append(node)
        for reader in readers[node]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, position[reader])
    if len(order) < len(nodes):
        raise InvalidGraph(_cycle_text(graph, waiting, set(nodes) - set(order)))
    for node in order:
        graph.nodes._unlink(node)
        graph.nodes._link(node, None)


def _cycle_text(graph: Graph, waiting: dict[Node, list[Node]], stuck: set[Node]) -> str:
    node = min(stuck, key=lambda n: n.name)
    path: dict[Node, None] = {}
    while node not in path:
        path[node] = None
        node = next(d for d in waiting[node] if d in stuck)
    names = [n.name for n in path]
    cycle = [*names[names.index(node.name) :], node.name]
    return message(f"graph {graph.name}", f"Nodes wait for each other: {' <- '.join(cycle)}")
