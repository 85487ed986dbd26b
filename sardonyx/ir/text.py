"""Graphs as text: one readable line for each value, node and graph."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from sardonyx.base.printable import printable_lines
from sardonyx.ir.constant import Constant
from sardonyx.ir.long_list import LongList
from sardonyx.ir.types import ValueType

if TYPE_CHECKING:
    from sardonyx.ir.graph import Graph
    from sardonyx.ir.node import Attribute, Node
    from sardonyx.ir.value import Value

_LONGEST_LIST = 16
_LONGEST_TEXT = 60


def type_text(value: Value) -> str:
    """The type, such as `float[N,64]`; `?` for what is not known."""
    if value.kind != "tensor":
        return str(value.type or value.declared or value.kind)
    name = value.dtype.name if value.dtype else "?"
    return name + ("[?]" if value.shape is None else f"[{','.join(map(str, value.shape))}]")


def value_text(value: Value) -> str:
    """The value with its type, such as `%y: float[N,64]`."""
    return f"%{value.name}: {type_text(value)}"


def attribute_text(attribute: Attribute) -> str:
    """An attribute's value; long lists and texts are shortened, subgraphs named."""
    from sardonyx.ir.graph import Graph

    if isinstance(attribute, list | LongList):
        first = list(itertools.islice(attribute, _LONGEST_LIST))
        shown = ", ".join(attribute_text(item) for item in first)
        more = f", ... {len(attribute)} in all" if len(attribute) > _LONGEST_LIST else ""
        return f"[{shown}{more}]"
    if isinstance(attribute, Graph):
        return f"graph {attribute.name}"
    if isinstance(attribute, Constant | ValueType):
        return str(attribute)
    if isinstance(attribute, float):
        return f"{attribute:.8g}"
    text = repr(attribute)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}...{text[-1]}"


def node_line(node: Node) -> str:
    """The node in one line: `%y: float[N,64] = Relu(%x)  # node_name`."""
    outputs = ", ".join("_" if v.is_omitted else value_text(v) for v in node.outputs)
    operands = ["_" if v is None else f"%{v.name}" for v in node.inputs]
    operands += [f"{name}={attribute_text(a)}" for name, a in node.attributes.items()]
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return f"{outputs} = {operator}({', '.join(operands)})  # {node.name}"


def graph_text(graph: Graph, indent: str = "") -> str:
    """The whole graph: head, constants, nodes with their subgraphs below them, outputs."""
    versions = ", ".join(f"{domain or 'ai.onnx'} {v}" for domain, v in graph.opset.items())
    head = f"{indent}graph {graph.name}({', '.join(map(value_text, graph.inputs))})"
    lines = [head if graph.parent else f"{head}  # {versions}"]
    for value in graph.initializers.values():
        note = "  # overridable" if value in graph.overridable else ""
        lines.append(f"{indent}  %{value.name} = {value.constant!r}{note}")
    for node in graph.nodes:
        lines.append(f"{indent}  {node_line(node)}")
        for subgraph in node.subgraphs():
            lines.extend(graph_text(subgraph, indent + "    ").split("\n"))
    lines.append(f"{indent}  return {', '.join(f'%{v.name}' for v in graph.outputs)}")
    return printable_lines(lines)
