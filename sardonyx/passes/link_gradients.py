"""What Gradient nodes name becomes what they read, so that passes see it.

g = Gradient(u, v) {xs: [a], zs: [b], y: c}  ->  g = Gradient(u, v, a, b, c) {the same}
"""

from __future__ import annotations

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.graph import Graph
from sardonyx.ir.long_list import LongList
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.ops.registry import where

_DOMAIN = "ai.onnx.preview.training"


def link_gradients(graph: Graph) -> int:
    """Add the values that each Gradient names to its inputs.

    Returns:
        The number of nodes changed.

    Raises:
        InvalidGraph: A node names what does not exist, or has another number of inputs than names.
    """
    found = [n for n in graph.walk() if n.op_type == "Gradient" and n.domain == _DOMAIN]
    for node in found:
        names = [*_names(node, "xs"), *_names(node, "zs")]
        if len(node.inputs) != len(names):
            what = "It must have one input for each of xs and zs"
            expected, got = str(len(names)), str(len(node.inputs))
            raise InvalidGraph(message(where(node), what, expected=expected, got=got))
        values = [_value(node, name) for name in (*names, *_names(node, "y"))]
        if node.graph is not None:
            node.graph.set_inputs(node, (*node.inputs, *values))
    if found:
        graph.topological_sort()
    return len(found)


def _names(node: Node, attribute: str) -> list[str]:
    found = node.attributes.get(attribute, [])
    items = found if isinstance(found, list | LongList) else [found]
    return [i.decode("utf-8", "replace") if isinstance(i, bytes) else str(i) for i in items]


def _value(node: Node, name: str) -> Value:
    found = None if node.graph is None else node.graph.value(name)
    if found is None:
        raise InvalidGraph(message(where(node), f"It names {name!r}, which does not exist"))
    return found
