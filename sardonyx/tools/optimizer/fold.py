"""Nodes that read only constants are computed once, and are constants themselves afterwards."""

from __future__ import annotations

import numpy as np

from sardonyx.base.errors import SardonyxError
from sardonyx.base.log import get_logger
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.patch import remove_dead
from sardonyx.ir.value import Value
from sardonyx.ops.core.evaluate import evaluate_lowered
from sardonyx.ops.core.lower import lower
from sardonyx.passes.infer import infer
from sardonyx.tools.optimizer.pattern import is_fixed

_logger = get_logger("optimize")
#: What draws numbers, and what keeps weights small in a file.
_KEPT = frozenset(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial Dropout"
    " QuantizeLinear DequantizeLinear".split()
)
#: A result may have so many bytes more than twice what it is made of.
_GROWTH_BYTES = 1 << 20


def fold_constants(graph: Graph) -> int:
    """Fold the nodes of a graph and of its subgraphs.

    Nodes stay that draw random numbers, that dequantise, or whose results would make the file much
    larger. Shapes must have been inferred.

    Returns:
        How many nodes became constants.
    """
    count = 0
    for inner in list(graph.graphs()):
        for node in list(inner.nodes):
            if node.graph is inner and _is_foldable(node):
                count += _fold(inner, node)
    if count:
        remove_dead(graph)
    return count


def _is_foldable(node: Node) -> bool:
    if (
        node.domain
        or node.op_type in _KEPT
        or not node.inputs
        or any(True for _ in node.subgraphs())
    ):
        return False
    if not all(value is None or is_fixed(value) for value in node.inputs):
        return False
    given = sum(v.constant.size_bytes for v in node.inputs if v is not None and v.constant)
    made = 0
    for value in node.outputs:
        if value.is_omitted:
            continue
        if value.kind != "tensor" or value.dtype is None or value.shape is None:
            return False
        if not all(isinstance(d, int) for d in value.shape):
            return False
        made += value.dtype.size_bytes * int(np.prod([int(str(d)) for d in value.shape]))
    return made <= 2 * given + _GROWTH_BYTES


def _fold(graph: Graph, node: Node) -> bool:
    alone = Graph("fold", opset=graph.opset)
    for value in dict.fromkeys(v for v in node.inputs if v is not None):
        alone.add_initializer(Value(value.name, constant=value.constant))
    given = [None if v is None else alone.value(v.name) for v in node.inputs]
    made = [Value(v.name) for v in node.outputs]
    alone.add_node(
        Node(node.op_type, node.domain, given, made, node.attributes, node.name, node.version)
    )
    wanted = [v for v in made if not v.is_omitted]
    alone.outputs.extend(wanted)
    try:
        infer(alone)
        arrays = evaluate_lowered(lower(alone), {})
    except (SardonyxError, ArithmeticError, MemoryError) as error:
        _logger.debug("%s stays: %s", node.name, error)
        return False
    kept = [v for v in node.outputs if not v.is_omitted]
    for old, new, array in zip(kept, wanted, arrays, strict=True):
        if new.dtype is None:
            return False
        constant = Constant.from_array(array, new.dtype)
        graph.replace_uses(old, graph.add_constant(old.name, constant))
    graph.remove_node(node)
    return True
