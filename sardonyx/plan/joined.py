"""Joined tensors of many parts: choices between expressions by where along one axis an element is.

`i < e1 ? a[i] : i < e2 ? b[i - e1] : ...`, or a tree of such choices, as Concat is lowered.
"""

from __future__ import annotations

from typing import NamedTuple

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Dim
from sardonyx.plan.axes import extent_of
from sardonyx.plan.groups import LoopNest, Stage
from sardonyx.tensor.scalar import Scalar, whole_number

#: Choices between fewer parts are one kernel.
_LEAST_PARTS = 65


class Share(NamedTuple):
    """What a joined tensor holds from one index on along its axis, so far."""

    begin: Dim
    length: Dim
    body: Scalar


class Joined(NamedTuple):
    """A map that chooses between many parts.

    Attributes:
        group: The map alone.
        axis: The axis along which they lie one after the other.
        shares: The parts, in order.
    """

    group: LoopNest
    axis: int
    shares: list[Share]

    @property
    def stage(self) -> Stage:
        """The map."""
        return self.group.stages[0]


def joined(group: LoopNest) -> Joined | None:
    """The parts of a group; None for one that does not choose between many of them."""
    if len(group.stages) != 1 or group.inner:
        return None
    (stage,) = group.stages
    if stage.kind != "map" or stage.body.op != "select" or stage.indices != group.outer:
        return None
    if stage.root.buffer.constant is not None:
        return None  # it is computed once: its kernel has the constant to itself
    index = _left_of(stage.body.arguments[0])
    if index is None or index == 0 or index not in group.outer:
        return None
    shares = _shares(stage.body, index)
    if shares is None or len(shares) < _LEAST_PARTS:
        return None
    return Joined(group, group.outer.index(index), shares)


def _left_of(condition: Scalar) -> Dim | None:
    if condition.op != "lt" or condition.arguments[0].op != "size":
        return None
    return condition.arguments[0].dim


def _shares(body: Scalar, index: Dim) -> list[Share] | None:
    """What is chosen where, in order; None where a length is not known to be one."""
    found: list[Share] = []
    stack: list[tuple[Dim, Dim, Scalar]] = [(0, extent_of(index), body)]
    while stack:
        begin, end, part = stack.pop()
        middle = _middle(part, index)
        if middle is not None:
            _, chosen, other = part.arguments
            stack += (middle, end, other), (begin, middle, chosen)
        else:
            found.append(Share(begin, end - begin, part))
    if len(found) >= _LEAST_PARTS and not all(integer.is_nonnegative(x.length) for x in found):
        return None
    return found


def _middle(x: Scalar, index: Dim) -> Dim | None:
    """From where on another part is chosen; None if an expression is one part."""
    if x.op != "select" or _left_of(x.arguments[0]) != index:
        return None
    found = whole_number(x.arguments[0].arguments[1])
    if found is None or sizes.atoms_of(found, "index") or sizes.opaque_in(found):
        return None
    return found
