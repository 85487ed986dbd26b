"""Which function an epilogue applies to its sum, whatever operators it was written with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.base.dtypes import DType
from sardonyx.tensor.scalar import Scalar

_POINTS = np.linspace(-6.0, 6.0, 97)
#: Constants are rounded to a half float at the worst.
_TOLERANCE = 5e-4
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
}  # fmt: skip
_UNARY: dict[str, Callable[[Any], Any]] = {"tanh": np.tanh, "neg": np.negative}


def gelu_of(x: Scalar, kinds: tuple[DType, ...]) -> Scalar | None:
    """The expression whose Gelu, by its approximation with tanh, another is; None if it is none.

    (Hendrycks and Gimpel 2016: `0.5 u (1 + tanh(sqrt(2 / pi) (u + 0.044715 u^3)))`.) Exporters
    write it in many ways, so values are compared, at points between -6 and 6. The exact one,
    with erf, has another form.

    Args:
        x: An expression.
        kinds: Types between which what is cast does not count.
    """
    nodes = _nodes(x)
    if sum(node.op == "tanh" for node in nodes) != 1:
        return None
    wanted = 0.5 * _POINTS
    wanted = wanted * (1 + np.tanh(math.sqrt(2 / math.pi) * (_POINTS + 0.044715 * _POINTS**3)))
    for node in nodes[1:]:
        if node.op in ("constant", "cast", "tanh"):
            continue
        found = _value(x, node, kinds, {})
        if found is not None and float(np.abs(found - wanted).max()) <= _TOLERANCE:
            return node
    return None


def _nodes(x: Scalar) -> list[Scalar]:
    """All nodes, each before those in it."""
    found: dict[Scalar, None] = {}
    stack = [x]
    while stack:
        node = stack.pop(0)
        if node not in found:
            found[node] = None
            stack.extend(node.arguments)
    return list(found)


def _value(x: Scalar, leaf: Scalar, kinds: tuple[DType, ...], known: dict[Scalar, Any]) -> Any:
    """What an expression is where `leaf` has the values of all points; None if more matters."""
    if x is leaf:
        return _POINTS
    if x in known:
        return known[x]
    values = [_value(a, leaf, kinds, known) for a in x.arguments]
    found: Any = None
    if x.op == "constant":
        found = float(x.payload)
    elif all(v is not None for v in values):
        if x.op == "cast" and x.dtype in kinds and x.arguments[0].dtype in kinds:
            found = values[0]
        elif x.op in _BINARY:
            found = _BINARY[x.op](*values)
        elif x.op in _UNARY:
            found = _UNARY[x.op](*values)
    known[x] = found
    return found
