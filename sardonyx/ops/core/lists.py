"""Sequences that a loop only adds to: slices of one tensor, as its other results are.

Exporters write a list that grows in a loop as SequenceInsert at its end. Where all items have one
shape, the loop stacks them; the sequence is a split of that tensor, which is never made if its
readers join it again or look at items.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base.dtypes import INT64
from sardonyx.base.object_types import ObjectType, object_type
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ops.core.object_values import call_for_object, element_shape
from sardonyx.tensor.host import CONSTRUCT, call_behind
from sardonyx.tensor.language import gather, known_tensor, transpose
from sardonyx.tensor.tensor import Tensor

_SPLIT = "sequence.split"


def items_of(x: Tensor) -> tuple[Tensor, ...] | None:
    """The items of a sequence, if it is made of tensors that the model names."""
    found = call_behind(x, CONSTRUCT)
    return found[0].operands if found is not None else None


def only_added_to(body: Graph, initial: Sequence[Tensor]) -> tuple[int, ...]:
    """Which carried values of a loop are lists: empty at first, and the body only adds an item.

    Args:
        body: The graph of a Loop: inputs are the iteration, the condition and what is carried.
        initial: The first values of what is carried.
    """
    found = []
    for k, first in enumerate(initial):
        if k + 2 >= len(body.inputs) or k + 1 >= len(body.outputs) or items_of(first) != ():
            continue
        carried, result = body.inputs[k + 2], body.outputs[k + 1]
        readers, node = carried.uses, result.producer
        if (
            node is not None
            and readers == ((node, 0),)
            and not carried.is_graph_output
            and (node.domain, node.op_type, node.graph) == ("", "SequenceInsert", body)
            and node.input(2) is None
            and not result.uses
            and list(body.outputs).count(result) == 1
        ):
            found.append(k)
    return tuple(found)


def unstacked(stacked: Tensor) -> Tensor:
    """The slices of a tensor along its first axis, as a sequence."""
    dtype = object_type("sequence", stacked.dtype, element_shape(stacked.shape[1:]))
    return split_sequence(stacked, 0, False, dtype)


def split_sequence(x: Tensor, axis: int, keepdims: bool, dtype: ObjectType) -> Tensor:
    """Slices of one along an axis, as a sequence."""
    return call_for_object(_SPLIT, [x, None], dtype, axis=axis, keepdims=keepdims)


class Slices:
    """A sequence that is made of the slices of a tensor along an axis.

    Args:
        x: The tensor.
        axis: Which axis.
        keepdims: Whether slices still have it.
    """

    def __init__(self, x: Tensor, axis: int, keepdims: bool) -> None:
        self._x, self._axis, self._keepdims = x, axis, keepdims

    @staticmethod
    def behind(sequence: Tensor) -> Slices | None:
        """The slices that a sequence is made of, if it is."""
        found = call_behind(sequence, _SPLIT)
        if found is None or found[1].given != (True, False):
            return None
        axis, keepdims = found[1].fact("axis"), found[1].fact("keepdims")
        assert isinstance(axis, int)  # noqa: S101 - narrows the type for the checker
        return Slices(found[0].operands[0], axis, bool(keepdims))

    def length(self) -> Tensor:
        """How many there are, int64."""
        return known_tensor((self._x.shape[self._axis],), (), INT64)

    def at(self, position: Tensor) -> Tensor:
        """One of them; a run checks the position."""
        found = gather(self._x, position.reshape(), self._axis)
        return found.reshape(*self._with_one(found.shape)) if self._keepdims else found

    def _with_one(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return (*shape[: self._axis], 1, *shape[self._axis :])

    def stacked(self, axis: int) -> Tensor | None:
        """All of them along a new axis; None where they have the old one still."""
        return None if self._keepdims else self._moved(axis)

    def joined(self, axis: int) -> Tensor | None:
        """All of them, one after the other along an axis that they have."""
        if self._keepdims:
            return self._x if axis == self._axis else None
        moved = self._moved(axis)
        shape = moved.shape
        length = shape[axis] * shape[axis + 1]
        return moved.reshape(*shape[:axis], length, *shape[axis + 2 :])

    def _moved(self, axis: int) -> Tensor:
        order = [k for k in range(self._x.rank) if k != self._axis]
        order.insert(axis, self._axis)
        return self._x if order == sorted(order) else transpose(self._x, order)
