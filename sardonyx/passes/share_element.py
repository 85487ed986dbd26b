"""Constants whose elements are all equal become one element, where they only meet others.

Add(x: float[n,12,197,197], mask: float[1,1,197,197]{0, 0, ...})  ->  Add(x, {0}: float[1,1,1,1])

Tools that fold constants write masks of known sizes as such arrays. One element is a number in a
kernel, where an array would be read for every element of the result, and keep a library from the
whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base.integer import known_equal
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value

#: Operators that go over their inputs element by element, and the version since which those are
#: stretched as in NumPy.
_ELEMENTWISE = {
    "Add": 7, "Sub": 7, "Mul": 7, "Div": 7, "Min": 8, "Max": 8, "Where": 9, "And": 7, "Or": 7,
}  # fmt: skip
#: Axes with more than one element: those of one axis are weights, which differ between models of
#: the same structure. These share kernels, and plans, as long as no plan looks at weights.
_LEAST_AXES = 2


def share_element(graph: Graph) -> int:
    """Let nodes read one element instead of a constant with nothing but equal ones.

    Returns:
        The number of operands replaced.
    """
    made: dict[Value, Value | None] = {}
    count = 0
    for node in graph.walk():
        if node.domain or node.version < _ELEMENTWISE.get(node.op_type, node.version + 1):
            continue
        for index, value in enumerate(node.inputs):
            if value is None or not _is_stretched(node, value):
                continue
            if value not in made:
                made[value] = _shared(value)
            one = made[value]
            if one is not None and node.graph is not None:
                inputs = list(node.inputs)
                inputs[index] = one
                node.graph.set_inputs(node, inputs)
                count += 1
    return count


def _is_stretched(node: Node, value: Value) -> bool:
    """Whether an operand is a large constant without which the result has the same shape."""
    shape, constant = node.outputs[0].shape, value.constant
    if constant is None or shape is None:
        return False
    if sum(extent > 1 for extent in constant.shape) < _LEAST_AXES or not value.is_fixed:
        return False
    return any(_has_shape(other, shape) for other in node.inputs if other is not value)


def _has_shape(value: Value | None, shape: Sequence[Dim]) -> bool:
    if value is None or value.shape is None or len(value.shape) != len(shape):
        return False
    return all(map(known_equal, value.shape, shape))


def _shared(value: Value) -> Value | None:
    constant, owner = value.constant, value.graph
    if constant is None or owner is None:
        return None
    element = constant.equal_element()
    if element is None:
        return None
    one = Constant.from_array(element.reshape((1,) * len(constant.shape)), constant.dtype)
    return owner.add_constant(value.name, one)
