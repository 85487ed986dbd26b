"""Lists of positions become Range: elements that are arithmetic on indices.

p: int64[1,1,197,1]{0, 1, 2, ...}  ->  r = Range({0}, {197}, {1}); p = Reshape(r, {1, 1, 197, 1})

Exporters fold ranges of known sizes into such lists. Masks are made by comparing them, and what
they say (all keys count, none behind the query) is seen in indices, not in numbers that are read.
"""

from __future__ import annotations

import math

import numpy as np

from sardonyx.base.dtypes import INT64
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.tensor.symbolic import ELEMENTS_LIMIT

#: The operator set since which Range is there.
_SINCE = 11
#: Longer lists are not looked at; positions are nearer to 0 than this, so that nothing wraps.
_MOST, _FAR = 1 << 20, 1 << 40


def count_positions(graph: Graph) -> int:
    """Let nodes count what constants list; short lists are known element by element anyway.

    Returns:
        The number of constants replaced.
    """
    if graph.opset.get("", 0) < _SINCE:
        return 0
    count = 0
    for owner in graph.graphs():
        for value in list(owner.initializers.values()):
            constant = value.constant
            if constant is None or not _may_be_positions(constant):
                continue
            if not value.is_fixed or value.is_graph_output or not value.use_count:
                continue
            counted = _start_and_step(constant)
            if counted is not None and len(owner.nodes):
                made = _counted(owner, value.name, constant.shape, *counted)
                owner.replace_uses(value, made)
                owner.remove_initializer(value)
                count += 1
    return count


def _may_be_positions(constant: Constant) -> bool:
    """Whether it is a long list along one axis, whatever its elements are."""
    if constant.dtype is not INT64 or not constant.has_data:
        return False
    extent = constant.element_count
    return ELEMENTS_LIMIT < extent <= _MOST and max(constant.shape) == extent


def _start_and_step(constant: Constant) -> tuple[int, int] | None:
    """The first element and how far apart all are, if they are equally far apart."""
    was_read = constant.was_read
    numbers = constant.array().reshape(-1)
    is_near = numbers.min() > -_FAR and numbers.max() < _FAR
    steps = np.diff(numbers)
    if is_near and steps[0] != 0 and (steps == steps[0]).all():
        return int(numbers[0]), int(steps[0])
    constant.was_read = was_read  # nothing hangs on it
    return None


def _counted(graph: Graph, name: str, shape: tuple[int, ...], start: int, step: int) -> Value:
    """Such elements, of nodes in front of all others."""
    bounds = (start, start + math.prod(shape) * step, step)
    first = next(iter(graph.nodes))

    def add(op_type: str, *inputs: Value) -> Value:
        made = graph.new_value(f"{name}_{op_type.lower()}", INT64)
        graph.add_node(Node(op_type, "", inputs, (made,)), before=first)
        return made

    def numbers(given: object) -> Value:
        return graph.add_constant(name, Constant.from_array(np.array(given, np.int64)))

    made = add("Range", *map(numbers, bounds))
    return made if len(shape) == 1 else add("Reshape", made, numbers(shape))
