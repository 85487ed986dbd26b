"""What follows a product, channel by channel, goes into its weights and its bias.

Add(Conv(x, w, b), c)  ->  Conv(x, w, b + c)
Mul(Conv(x, w, b), c)  ->  Conv(x, w * c, b * c)
Add(MatMul(a, w), c)   ->  Gemm(a, w, c)             where a is a matrix

A bias has 32 bits among codes; as an operand of its own it would have 8.
"""

from __future__ import annotations

from sardonyx.base import dtypes
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.quantization.arithmetic import Array

#: First version of the operator set whose arithmetic broadcasts without being told to.
_BROADCASTS = 7


def fold_affine(graph: Graph) -> None:
    """Fold every such node, in place. Types have been found."""
    for node in list(graph.nodes):
        is_affine = node.op_type in ("Add", "Mul") and not node.domain
        if node.graph is not graph or not is_affine or node.version < _BROADCASTS:
            continue
        for index in (0, 1):
            product, operand = node.inputs[index], node.inputs[1 - index]
            if product is not None and operand is not None and _fold(graph, node, product, operand):
                break


def _fold(graph: Graph, node: Node, x: Value, operand: Value) -> bool:
    product = x.producer
    if product is None or product.graph is not graph or product.domain:
        return False
    if x.use_count != 1 or x.is_graph_output or not _is_float(operand):
        return False
    if product.op_type == "Conv":
        done = _fold_conv(graph, node, product, operand)
    else:
        done = node.op_type == "Add" and _make_gemm(graph, product, operand)
    if done:
        graph.replace_uses(node.outputs[0], product.outputs[0])
        graph.remove_node(node)
    return done


def _is_float(value: Value | None) -> bool:
    return value is not None and value.constant is not None and value.dtype is dtypes.FLOAT


def _array(value: Value) -> Array:
    if value.constant is None:
        raise TypeError(f"{value.name} is no constant")  # callers have looked
    return value.constant.array()


def _fold_conv(graph: Graph, node: Node, conv: Node, operand: Value) -> bool:
    weight, bias = conv.inputs[1], conv.input(2)
    if weight is None or not _is_float(weight) or (bias is not None and not _is_float(bias)):
        return False
    filters, numbers = _array(weight), _array(operand)
    channels, rank = filters.shape[0], filters.ndim
    shape = (1,) * (rank - numbers.ndim) + numbers.shape
    if numbers.ndim > rank or shape != (1, channels, *[1] * (rank - 2)):
        return False
    column = numbers.reshape(channels)
    if node.op_type == "Mul":
        scaled = filters * column.reshape(channels, *[1] * (rank - 1))
        weight = graph.add_constant(weight.name, Constant.from_array(scaled))
        new = None if bias is None else _array(bias) * column
    else:
        new = column if bias is None else _array(bias) + column
    name = operand.name if bias is None else bias.name
    made = None if new is None else graph.add_constant(name, Constant.from_array(new))
    inputs = (conv.inputs[0], weight, *(() if made is None else (made,)))
    graph.set_inputs(conv, inputs)
    return True


def _make_gemm(graph: Graph, product: Node, operand: Value) -> bool:
    """Let a MatMul of matrices take up a bias."""
    a, b = product.input(0), product.input(1)
    if product.op_type != "MatMul" or a is None or b is None or not _is_float(b):
        return False
    numbers = _array(operand)
    is_row = numbers.ndim == 1 and numbers.shape == _array(b).shape[1:]
    if a.shape is None or len(a.shape) != 2 or _array(b).ndim != 2 or not is_row:
        return False
    product.op_type = "Gemm"
    graph.set_inputs(product, (a, b, operand))
    return True
