"""Operands that may be exchanged, in one order: what exporters write either way is one structure.

`x + (s + b)` and `(s + b) + x` round alike, so do `b + s` and `s + b`. Of two operands the one of
more parts comes first, so a sum with its bias is in front of what is added to it. Sums of three
keep who is added to whom first: that decides what is rounded.
"""

from __future__ import annotations

from sardonyx.tensor.scalar import Scalar, make_node

_COMMUTATIVE = frozenset(("add", "mul"))
#: Weights stop here: those of shared parts count for each use, and so may double in each step.
_MOST = 1 << 40


class Commuting:
    """Expressions with the operands of sums and products of floats in one order.

    The order depends on structure alone, so equal structures over other buffers get it, too.
    Operands of one weight stay in the order that they have.

    Args:
        first: The load that comes before others of its size, if there is one.
    """

    __slots__ = ("_first", "_known")

    def __init__(self, first: Scalar | None = None) -> None:
        self._first = first
        self._known: dict[Scalar, tuple[int, Scalar]] = {}

    def ordered(self, x: Scalar) -> Scalar:
        """The expression in that order; itself if it has it. Loads stay what they are."""
        return x if x.op == "load" else self._visit(x)[1]

    def _visit(self, x: Scalar) -> tuple[int, Scalar]:
        """What an expression weighs, and it in that order."""
        found = self._known.get(x)
        if found is not None:
            return found
        weight, arguments, same = 0, list[Scalar](), True
        for before in x.arguments:
            own, after = self._visit(before)
            same = same and after is before
            if own > weight and arguments and x.op in _COMMUTATIVE and x.dtype.is_float:
                arguments.insert(0, after)
                same = False
            else:
                arguments.append(after)
            weight += own
        if x.op == "load":
            weight = 2 * sum(not isinstance(i, int) for i in x.at) + (x is self._first)
        elif arguments:
            weight = min(_MOST, weight + 2)
        made = x if same else make_node(x.op, x.dtype, tuple(arguments), x.payload)
        self._known[x] = weight, made
        return weight, made
