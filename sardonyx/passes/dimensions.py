"""Dimensions of inputs whose names say less than they seem to.

x: float[?, 3, ?, ?]  ->  x: float[x.0, 3, x.2, x.3]

Files use one name for sizes that differ: a placeholder (`?`, `None`), or one name twice in a
shape. Those become dimensions of their own. A name that two inputs share stays one dimension.
"""

from __future__ import annotations

from collections import Counter

from sardonyx.base import sizes
from sardonyx.ir.graph import Graph

#: Names that exporters write where they know nothing.
PLACEHOLDERS = frozenset(("?", "None", "none", "-1", "unk", "unknown", "dynamic"))


def separate_dimensions(graph: Graph, *, all_names: bool = False) -> int:
    """Give a symbol of its own to every dimension whose name cannot be relied on.

    Args:
        graph: Its inputs are changed.
        all_names: Rely on none.

    Returns:
        The number of dimensions changed.
    """
    count = 0
    for value in graph.inputs:
        if value.shape is None:
            continue
        names = Counter(d for d in value.shape if not isinstance(d, int))
        shape: list[sizes.Dim] = []
        for axis, dim in enumerate(value.shape):
            doubtful = not isinstance(dim, int) and (
                all_names or names[dim] > 1 or repr(dim) in PLACEHOLDERS
            )
            count += doubtful
            shape.append(sizes.symbol(f"{value.name}.{axis}") if doubtful else dim)
        value.shape = tuple(shape)
    return count
