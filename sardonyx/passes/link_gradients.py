"""What Gradient nodes name becomes what they read, so that passes see it.

g = Gradient(u, v) {xs: [a], zs: [b], y: c}  ->  g = Gradient(u, v, a, b, c) {the same}

A graph inside another sees what is outside as given. So where a Gradient is in such a graph, nodes
outside that lie between what it names are written once more beside it. Initializers among `xs` are
marked as overridable: no pass may take their contents for granted.
"""

from __future__ import annotations

from collections.abc import Iterable

from sardonyx.base import errors
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.graph import Graph
from sardonyx.ir.long_list import LongList
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.ops.core.registry import where

_DOMAIN = "ai.onnx.preview.training"


def link_gradients(graph: Graph) -> int:
    """Add the values that each Gradient names to its inputs.

    Returns:
        The number of nodes changed.

    Raises:
        InvalidGraph: A node names what does not exist, or has another number of inputs than names.
        NotImplemented: A node with graphs of its own, outside of the graph of a Gradient, lies
            between what that names.
    """
    found = [n for n in graph.walk() if n.op_type == "Gradient" and n.domain == _DOMAIN]
    for node in found:
        names = [*_names(node, "xs"), *_names(node, "zs")]
        if len(node.inputs) != len(names):
            what = "It must have one input for each of xs and zs"
            expected, got = str(len(names)), str(len(node.inputs))
            raise InvalidGraph(message(where(node), what, expected=expected, got=got))
        *named, target = (_value(node, name) for name in (*names, *_names(node, "y")))
        for value in named[: len(_names(node, "xs"))]:
            owner = value.graph
            if owner is not None and value.is_fixed:
                owner.overridable.append(value)
        if node.graph is not None:
            inside = _brought_inside(node, node.graph, named, target)
            node.graph.set_inputs(node, (*node.inputs, *named, inside))
    if found:
        graph.topological_sort()
    return len(found)


def _names(node: Node, attribute: str) -> list[str]:
    found = node.attributes.get(attribute, [])
    items = found if isinstance(found, list | LongList) else [found]
    return [i.decode("utf-8", "replace") if isinstance(i, bytes) else str(i) for i in items]


def _value(node: Node, name: str) -> Value:
    found = None if node.graph is None else node.graph.value(name)
    around = node.graph
    while around is not None and found is not None and found.graph is not around:
        around = around.parent
    if found is None or around is None:
        raise InvalidGraph(message(where(node), f"It names {name!r}, which does not exist here"))
    return found


def _brought_inside(node: Node, graph: Graph, named: Iterable[Value], target: Value) -> Value:
    """The target, computed in the graph of the Gradient from what it names."""
    copies: dict[Value, Value] = {}
    if graph.parent is None:
        return target
    for inner in _between(named, target):
        if inner.graph is graph and not any(v in copies for v in _captured(inner)):
            if any(v in copies for v in inner.inputs):
                graph.set_inputs(inner, [_copy_of(v, copies) for v in inner.inputs])
            continue
        if inner.graph is graph or any(True for _ in inner.subgraphs()):
            what = f"It differentiates {inner.name} ({inner.op_type}), which has graphs, from a"
            raise errors.NotImplemented(message(where(node), f"{what} graph inside another"))
        outputs = [graph.new_value(v.name, v.dtype, v.shape) for v in inner.outputs]
        inputs = [_copy_of(v, copies) for v in inner.inputs]
        name = graph.fresh_node_name(inner.name)
        graph.add_node(
            Node(
                inner.op_type, inner.domain, inputs, outputs, dict(inner.attributes), name,
                inner.version, inner.origin,
            )
        )  # fmt: skip
        copies.update(zip(inner.outputs, outputs, strict=True))
    return copies.get(target, target)


def _copy_of(value: Value | None, copies: dict[Value, Value]) -> Value | None:
    return None if value is None else copies.get(value, value)


def _between(named: Iterable[Value], target: Value) -> list[Node]:
    """The nodes on the ways from what is named to the target, in order."""
    depends = dict.fromkeys(named, True)
    found: dict[Node, None] = {}
    stack = [(target, False)]
    while stack:
        value, expanded = stack.pop()
        maker = value.producer
        if value in depends and not expanded:
            continue
        if maker is None:
            depends[value] = False
            continue
        read = [v for v in (*maker.inputs, *_captured(maker)) if v is not None]
        if not expanded:
            depends[value] = False  # a circle is found where nodes are sorted
            stack.append((value, True))
            stack.extend((v, False) for v in read)
            continue
        depends[value] = any(depends.get(v) for v in read)
        if depends[value]:
            found.setdefault(maker)
    return list(found)


def _captured(node: Node) -> Iterable[Value]:
    return node.captures() if any(True for _ in node.subgraphs()) else ()
