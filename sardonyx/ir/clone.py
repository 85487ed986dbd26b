"""Copies of graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sardonyx.ir.graph import Graph
from sardonyx.ir.long_list import LongList
from sardonyx.ir.node import Attribute, EmptyList, Item, Node
from sardonyx.ir.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable


def clone(graph: Graph, values: dict[Value, Value], parent: Graph | None = None) -> Graph:
    """A copy of a graph; see `Graph.clone`.

    Args:
        graph: What to copy.
        values: The copies made so far, extended here.
        parent: The graph that the copy is to be a subgraph of. Names that it has in use are
            replaced by fresh ones.
    """
    copy = Graph(graph.name, opset=graph.opset, parent=parent)
    copy.header, copy.doc_string = replace(graph.header), graph.doc_string
    copy.metadata, copy.files = dict(graph.metadata), list(graph.files)

    def copied(value: Value) -> Value:
        name = value.name
        if parent is not None and name and (name in copy.names.values):
            name = copy.fresh_name(name)
        return values.setdefault(value, _copy_value(value, name))

    for value in graph.inputs:
        copy.add_input(copied(value))
    for value in graph.initializers.values():
        copy.add_initializer(copied(value))
    copy.overridable = [values[value] for value in graph.overridable]
    # Names first: nodes may stand in any order, and subgraphs read what comes later.
    for node in graph.nodes:
        for value in node.outputs:
            copy.register(copied(value))
    for node in graph.nodes:
        copy.add_node(
            Node(
                node.op_type,
                node.domain,
                [None if v is None else values.get(v, v) for v in node.inputs],
                [values[v] for v in node.outputs],
                {
                    name: copy_attribute(attribute, lambda g: clone(g, values, copy))
                    for name, attribute in node.attributes.items()
                },
                node.name,
                node.version,
                node.origin,
            )
        )
    copy.outputs.extend(values.get(value, value) for value in graph.outputs)
    return copy


def _copy_value(value: Value, name: str) -> Value:
    copy = Value(name, value.dtype, value.shape, kind=value.kind)
    copy.constant, copy.declared, copy.type = value.constant, value.declared, value.type
    copy.elements, copy.doc_string = value._elements, value.doc_string
    return copy


def copy_attribute(attribute: Attribute, copy_graph: Callable[[Graph], Graph]) -> Attribute:
    """A copy of an attribute, with graphs as `copy_graph` copies them."""

    def item(value: Item) -> Item:
        return copy_graph(value) if isinstance(value, Graph) else value

    if isinstance(attribute, EmptyList | LongList):
        return attribute
    if isinstance(attribute, list):
        return [item(value) for value in attribute]
    return item(attribute)
