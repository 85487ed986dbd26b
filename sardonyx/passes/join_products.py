"""Matrix products of one left factor with fixed right factors become one product.

q = Add(MatMul(x, u), a); k = Add(MatMul(x, v), b)
->  y = Add(MatMul(x, Concat(u, v)), Concat(a, b)); q = Slice(y); k = Slice(y)

The projections of an attention are such products. One product of all columns fills a GPU better
than several, one after the other; slices are index maps and cost nothing. On few cores each of
them fills the cores by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sardonyx.base.dtypes import INT64
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import Patch, apply
from sardonyx.ir.value import Value

#: First version of the operator set whose Slice takes its bounds as inputs.
_SLICES = 10


@dataclass(frozen=True, slots=True)
class _Projection:
    """One product, with the addition of a fixed row if that is all that reads it."""

    product: Node
    columns: int
    addition: Node | None = None
    bias: Value | None = None

    @property
    def result(self) -> Value:
        return (self.addition or self.product).output


def join_products(graph: Graph) -> int:
    """Join every set of products that allows it.

    Returns:
        How many products are in no set of their own any more.
    """
    sets: dict[object, list[_Projection]] = {}
    for node in graph.nodes:
        if node.op_type == "MatMul" and not node.domain and node.graph is graph:
            found = _projection(graph, node)
            if found is not None:
                weight, x = node.inputs[1], node.inputs[0]
                assert weight is not None and weight.shape is not None  # noqa: S101, PT018 - seen
                key = (x, weight.shape[0], weight.dtype, found.bias is None)
                sets.setdefault(key, []).append(found)
    count = 0
    for projections in sets.values():
        if len(projections) > 1:
            apply(graph, _patch(graph, projections))
            count += len(projections)
    return count


def _projection(graph: Graph, node: Node) -> _Projection | None:
    x, weight = node.inputs[0], node.inputs[1]
    if x is None or weight is None or node.version < _SLICES or not weight.is_fixed:
        return None
    if weight.shape is None or len(weight.shape) != 2 or not x.shape or len(x.shape) < 2:
        return None
    columns = weight.shape[1]
    if not isinstance(columns, int) or node.output.is_graph_output:
        return None
    readers = [reader for reader, _ in node.output.uses]
    if len(readers) == 1 and readers[0].op_type == "Add" and readers[0].graph is graph:
        addition = readers[0]
        bias = next((v for v in addition.inputs if v is not node.output), None)
        whole = bias is not None and bias.shape == (columns,) and bias.is_fixed
        if whole and not addition.output.is_graph_output:
            return _Projection(node, columns, addition, bias)
    return _Projection(node, columns)


def _patch(graph: Graph, projections: list[_Projection]) -> Patch:
    first = projections[0].product
    x, weight = first.inputs[0], first.inputs[1]
    assert x is not None and x.shape and weight is not None and weight.shape  # noqa: S101, PT018
    dtype, version = first.output.dtype, first.version
    origin = tuple(o for p in projections for o in (*p.product.origin, *_origin(p.addition)))
    nodes: list[Node] = []
    total = sum(p.columns for p in projections)
    name = first.output.name

    def add(
        op_type: str,
        inputs: Iterable[Value],
        shape: tuple[Dim, ...],
        attributes: dict[str, Attribute] | None = None,
    ) -> Value:
        made = graph.new_value(f"{name}_{op_type.lower()}", dtype, shape)
        nodes.append(Node(op_type, "", inputs, (made,), attributes, version=version, origin=origin))
        return made

    weights = [v for p in projections if (v := p.product.inputs[1]) is not None]
    wide = (*x.shape[:-1], total)
    joined = add("Concat", weights, (weight.shape[0], total), {"axis": 1})
    result = add("MatMul", [x, joined], wide)
    biases = [p.bias for p in projections if p.bias is not None]
    if biases:
        result = add("Add", [result, add("Concat", biases, (total,), {"axis": 0})], wide)
    replacements: dict[Value, Value] = {}
    start, axis = 0, _number(graph, len(wide) - 1)
    for p in projections:
        bounds = [_number(graph, start), _number(graph, start + p.columns), axis]
        shape = (*x.shape[:-1], p.columns)
        replacements[p.result] = add("Slice", [result, *bounds], shape)
        start += p.columns
    return Patch(replacements, nodes, "join products")


def _origin(node: Node | None) -> tuple[str, ...]:
    return node.origin if node is not None else ()


def _number(graph: Graph, number: int) -> Value:
    return graph.add_constant("bound", Constant.from_array(np.array([number]), INT64))
