"""A batch normalisation behind a convolution or product goes into its weights.

y = BatchNormalization(Conv(x, w, b), gain, shift, mean, variance)
->  y = Conv(x, w * s, (b - mean) * s + shift)  with s = gain / sqrt(variance + epsilon) per channel

The arithmetic on weights is written as nodes like any other: the engine computes it once, when the
session is made. Half floats stay as they are: there the scale is applied to the float sum, which
loses less than rounding scaled weights.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sardonyx.base.dtypes import DOUBLE, FLOAT, INT64
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import Patch, apply
from sardonyx.ir.value import Value
from sardonyx.ops.core.registry import record_of

#: First version of the operator set whose arithmetic broadcasts without being told to.
_BROADCASTS = 7


def fold_batch_norm(graph: Graph) -> int:
    """Fold every batch normalisation that allows it.

    Returns:
        How many there were.
    """
    count = 0
    for node in graph.nodes:
        if node.op_type == "BatchNormalization" and not node.domain and node.graph is graph:
            patch = _folded(graph, node)
            if patch is not None:
                apply(graph, patch)
                count += 1
    return count


def _folded(graph: Graph, norm: Node) -> Patch | None:
    x = norm.input(0)
    product = x.producer if x is not None else None
    if product is None or x is None or x.use_count != 1 or x.is_graph_output:
        return None
    if norm.version < _BROADCASTS:
        return None
    if norm.attributes.get("training_mode") or len(norm.outputs) != 1 or len(norm.inputs) != 5:
        return None
    weight, bias = product.input(1), product.input(2)
    axis = _channel_axis(product)
    parts = (weight, *norm.inputs[1:], *((bias,) if bias is not None else ()))
    if axis is None or not all(part is not None and part.is_fixed for part in parts):
        return None
    if weight is None or weight.dtype not in (FLOAT, DOUBLE) or not weight.shape:
        return None
    channels = weight.shape[axis]
    if any(part is None or part.dtype is not weight.dtype for part in parts):
        return None
    if any(part is None or part.shape != (channels,) for part in parts[1:]):
        return None
    return _patch(graph, norm, product, axis)


def _channel_axis(product: Node) -> int | None:
    """Which axis of the weights is that of the output's channels; None if none is."""
    attributes = product.attributes
    if product.domain:
        return None
    if product.op_type == "Conv":
        return 0
    if product.op_type == "ConvTranspose":
        return 1 if attributes.get("group", 1) == 1 else None
    if product.op_type == "Gemm":
        plain = attributes.get("alpha", 1.0) == 1.0 and attributes.get("beta", 1.0) == 1.0
        return (0 if attributes.get("transB") else 1) if plain else None
    return None


def _patch(graph: Graph, norm: Node, product: Node, axis: int) -> Patch:
    gain, shift, mean, variance = (v for v in norm.inputs[1:] if v is not None)
    weight, bias = product.inputs[1], product.input(2)
    if weight is None or weight.dtype is None or weight.shape is None:
        raise TypeError("weights without a type")  # _folded has looked
    dtype, shape = weight.dtype, weight.shape
    nodes: list[Node] = []

    def add(op_type: str, inputs: Iterable[Value], like: tuple[Dim, ...]) -> Value:
        made = graph.new_value(f"{norm.output.name}_{op_type.lower()}", dtype, like)
        nodes.append(Node(op_type, "", inputs, (made,), version=norm.version))
        return made

    number: Attribute = norm.attributes.get("epsilon", record_of(norm).defaults["epsilon"])
    epsilon = graph.add_constant("epsilon", Constant.from_array(np.array(number, dtype.numpy)))
    column = [1] * len(shape)
    column[axis] = -1
    per_channel = graph.add_constant("per_channel", Constant.from_array(np.array(column), INT64))
    spread = add("Sqrt", [add("Add", [variance, epsilon], variance.shape or ())], gain.shape or ())
    scale = add("Div", [gain, spread], gain.shape or ())
    along = tuple(d if k == axis else 1 for k, d in enumerate(shape))
    new_weight = add("Mul", [weight, add("Reshape", [scale, per_channel], along)], shape)
    if bias is None:
        offset = add("Neg", [mean], mean.shape or ())
    else:
        offset = add("Sub", [bias, mean], mean.shape or ())
    new_bias = add("Add", [add("Mul", [offset, scale], mean.shape or ()), shift], mean.shape or ())
    result = graph.new_value(norm.output.name, norm.output.dtype, norm.output.shape)
    nodes.append(
        Node(
            product.op_type,
            "",
            (product.inputs[0], new_weight, new_bias),
            (result,),
            product.attributes,
            version=product.version,
            origin=(*product.origin, *norm.origin),
        )  # fmt: skip
    )
    return Patch({norm.output: result}, nodes, "fold batch normalisation")
