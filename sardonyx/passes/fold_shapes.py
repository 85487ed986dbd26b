"""Values whose contents inference has found become constants, and what computed them goes.

n = Gather(Shape(x: float[2,3,S]), 1)  ->  n = {3}
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.patch import remove_dead
from sardonyx.ir.value import Value


def fold_shapes(graph: Graph) -> int:
    """Replace what `infer` knows in plain numbers by constants.

    Returns:
        The number of values replaced.
    """
    made: dict[tuple[object, ...], Value] = {}
    count = 0
    for node in list(graph.nodes):
        for value in node.outputs:
            constant = _constant(value)
            if constant is None:
                continue
            key = (constant.dtype, constant.shape, constant.array().tobytes())
            found = made.get(key)
            if found is None:
                found = made[key] = graph.add_constant(value.name, constant)
                found.elements = value.elements
            graph.replace_uses(value, found)
            count += 1
    if count:
        remove_dead(graph)
    return count


def _constant(value: Value) -> Constant | None:
    elements, shape, dtype = value.elements, value.shape, value.dtype
    # A tensor without elements saves nothing, and its node may check the sizes that make it so.
    if not elements or shape is None or dtype is None or not value.is_used:
        return None
    if not all(isinstance(x, (int, float)) for x in (*elements, *shape)):
        return None
    plain = tuple(d for d in shape if isinstance(d, int))
    return Constant.from_array(np.array(elements, dtype.numpy).reshape(plain), dtype)
