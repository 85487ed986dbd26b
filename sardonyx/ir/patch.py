"""Patches: what a rewrite wants changed, checked and applied in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.integer import known_equal
from sardonyx.base.records import dataclass
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value


@dataclass(frozen=True)
class Patch:
    """A change of a graph.

    Attributes:
        replacements: Old value -> the value that its readers are to read instead.
        nodes: New nodes, in order, that are in no graph yet.
        reason: What was done, in words.
    """

    replacements: Mapping[Value, Value]
    nodes: Sequence[Node] = field(default=())
    reason: str = ""


def apply(graph: Graph, patch: Patch) -> None:
    """Check a patch and apply it.

    New nodes take the place of the nodes that computed the old values, and their origin where they
    have none. Nodes and constants that nothing uses any more are removed.

    Args:
        graph: The graph, or subgraph, that the new nodes go into.
        patch: The change.

    Raises:
        InvalidGraph: Old and new values differ in kind, dtype or shape. The graph is unchanged.
    """
    for old, new in patch.replacements.items():
        _check(old, new, patch.reason)
    producers = [v.producer for v in patch.replacements if v.producer is not None]
    local = [p for p in dict.fromkeys(producers) if p.graph is graph]
    anchor = min(local, key=lambda node: node._position, default=None)
    added = [graph.add_node(node, before=anchor) for node in patch.nodes]
    inputs = [node.inputs for node in added]
    misplaced = anchor is None or any(_is_misplaced(node, patch) for node in added)
    for old, new in patch.replacements.items():
        new.dtype = new.dtype or old.dtype
        new.shape = old.shape if new.shape is None else new.shape
        new.declared = new.declared or old.declared
        if new.elements is None:
            new.elements = old.elements
        graph.replace_uses(old, new)
    for node, read in zip(added, inputs, strict=True):
        # A new node may read the old value, to put itself between it and its readers.
        if node.inputs != read:
            graph.set_inputs(node, read)
    dead = _remove_dead(list(patch.replacements))
    origin = tuple(dict.fromkeys(name for node in dead for name in node.origin))
    if not dead:
        origin = tuple(dict.fromkeys(name for p in producers for name in p.origin))
    for node in added:
        node.origin = node.origin or origin
    if added and misplaced:
        graph.topological_sort()


def remove_dead(graph: Graph) -> int:
    """Remove all nodes and constants of a graph and its subgraphs that nothing uses.

    Nodes stay whose symbols inference has given to others, too.

    Returns:
        The number of nodes removed.
    """
    count = 0
    for node in reversed(graph.nodes):
        for subgraph in node.subgraphs():
            count += remove_dead(subgraph)
        if not node.measured and not any(value.is_used for value in node.outputs):
            graph.remove_node(node)
            count += 1
    for value in list(graph.initializers.values()):
        if not value.is_used and value not in graph.overridable:
            graph.remove_initializer(value)
    return count


def _check(old: Value, new: Value, reason: str) -> None:
    where = f"patch {reason}" if reason else "patch"
    what = f"{old.name!r} cannot be replaced by {new.name!r}"
    if old.kind != new.kind:
        raise InvalidGraph(message(where, what, expected=f"a {old.kind}", got=f"a {new.kind}"))
    if old.dtype is not None and new.dtype is not None and old.dtype is not new.dtype:
        raise InvalidGraph(message(where, what, expected=str(old.dtype), got=str(new.dtype)))
    if old.shape is None or new.shape is None:
        return
    if len(old.shape) != len(new.shape) or any(
        known_equal(a, b) is False for a, b in zip(old.shape, new.shape, strict=True)
    ):
        raise InvalidGraph(
            message(where, what, expected=f"the shape {list(old.shape)}", got=str(list(new.shape)))
        )


def _is_misplaced(node: Node, patch: Patch) -> bool:
    """Whether a new node stands before something that it reads, or reads what it replaces."""
    read = [value for value in node.inputs if value is not None]
    read.extend(node.captures())
    return any(
        value in patch.replacements
        or (
            value.producer is not None
            and value.producer.graph is node.graph
            and not value.producer.is_before(node)
        )
        for value in read
    )


def _remove_dead(values: list[Value]) -> list[Node]:
    """Remove what computes these values, as far up as nothing else needs it."""
    removed: dict[Node, None] = {}
    while values:
        value = values.pop()
        node = value.producer
        if value.is_used:
            continue
        if node is None:
            _remove_constant(value)
            continue
        if node.graph is None or node.measured or any(output.is_used for output in node.outputs):
            continue
        needed = [read for read in node.inputs if read is not None]
        needed.extend(node.captures())
        node.graph.remove_node(node)
        removed[node] = None
        values.extend(needed)
    return list(removed)


def _remove_constant(value: Value) -> None:
    graph = value.graph
    if graph is not None and value.is_fixed:
        graph.remove_initializer(value)
