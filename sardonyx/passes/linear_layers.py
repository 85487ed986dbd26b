"""Linear layers behind which something mixes channels once more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sardonyx.base import sizes
from sardonyx.base.integer import known_equal
from sardonyx.base.records import dataclass
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value

#: Nodes between a linear layer and an image that may be looked through.
_MOST_STEPS = 6
#: So many nodes may have made a weight of others.
_MOST_DEPTH = 4


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A linear layer, and what lies between it and an image.

    Attributes:
        product: MatMul of anything with a matrix; bias: a row that is added.
        steps: Nodes that follow, each with the axis of its output that has the channels.
    """

    product: Node
    bias: Value | None
    steps: tuple[tuple[Node, int], ...]


def is_same_always(value: Value, depth: int = _MOST_DEPTH) -> bool:
    """Whether a value is the same in all runs: fixed, or made of what is."""
    if value.constant is not None:
        return value.is_fixed
    made = value.producer
    if made is None or depth == 0 or made.subgraphs():
        return False
    return all(v is None or is_same_always(v, depth - 1) for v in made.inputs)


def made_for_one(graph: Graph, value: Value, op_types: Iterable[str]) -> Node | None:
    """What makes a value that one node alone reads, if it is one of these."""
    made = value.producer
    if made is None or made.graph is not graph or made.domain or made.op_type not in op_types:
        return None
    return made if value.use_count == 1 and not value.is_graph_output else None


def layer_of(graph: Graph, image: Value, channels: int, out: int) -> LinearLayer | None:
    """The linear layer that an image comes from, if one with fewer products can replace it."""
    steps: list[tuple[Node, int]] = []
    value, axis = image, 1
    bias: Value | None = None
    for _ in range(_MOST_STEPS):
        node = made_for_one(graph, value, ("Reshape", "Transpose", "Add", "MatMul"))
        if node is None or value.shape is None:
            return None
        last = axis == len(value.shape) - 1
        source = node.inputs[0]
        if node.op_type == "MatMul":
            return _checked(node, bias, steps, channels, out) if last else None
        if node.op_type == "Add":
            inputs = [v for v in node.inputs if v is not None]
            rows = [v for v in inputs if v.shape == (channels,) and is_same_always(v)]
            others = [v for v in inputs if v not in rows]
            if not last or len(rows) != 1 or len(others) != 1:
                return None
            bias, source = rows[0], others[0]
            if made_for_one(graph, source, ("MatMul",)) is None:
                return None
        elif node.op_type == "Transpose":
            steps.append((node, axis))
            perm: Any = node.attributes.get("perm") or [*range(len(value.shape))][::-1]
            axis = perm[axis]
        else:
            found = _axis_before(source, value, axis, channels)
            if found is None or (found != axis and _may_copy(node.inputs[1], found)):
                return None
            steps.append((node, axis))
            axis = found
        if source is None:
            return None
        value = source
    return None


def _axis_before(x: Value | None, value: Value, axis: int, channels: int) -> int | None:
    """Which axis a Reshape leaves the channels of, with everything before and behind them."""
    if x is None or x.shape is None or value.shape is None:
        return None
    for k, size in enumerate(x.shape):
        before = sizes.product(x.shape[:k]), sizes.product(value.shape[:axis])
        behind = sizes.product(x.shape[k + 1 :]), sizes.product(value.shape[axis + 1 :])
        if size == channels and known_equal(*before) and known_equal(*behind):
            return k
    return None


def _may_copy(wanted: Value | None, axis: int) -> bool:
    """Whether a Reshape may take over the size of an axis as that of another one's number."""
    elements = wanted.elements if wanted is not None else None
    return elements is None or (axis < len(elements) and elements[axis] == 0)


def _checked(
    product: Node, bias: Value | None, steps: list[tuple[Node, int]], channels: int, out: int
) -> LinearLayer | None:  # fmt: skip
    weight = product.inputs[1]
    if weight is None or not is_same_always(weight) or weight.shape is None:
        return None
    if (
        len(weight.shape) != 2
        or weight.shape[1] != channels
        or not isinstance(weight.shape[0], int)
    ):
        return None
    given = weight.shape[0]
    if given * out >= given * channels + channels * out:
        return None  # a narrow layer between two wide ones
    return LinearLayer(product, bias, tuple(reversed(steps)))
