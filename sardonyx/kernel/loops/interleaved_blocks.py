"""Results that lie between each other along the lanes: computed together, stored side by side.

An image that becomes twice as large, or whose channels become pixels, has neighbours along a short
axis, and the axis of the lanes steps over them. Storing one neighbour after the other would scatter
lanes; a block computes a vector for each neighbour, and the vectors are stored interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.strided import interleaved, pays
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.loops.member import Member
from sardonyx.plan.axes import extent_of, offset_of
from sardonyx.plan.cuts import node_count
from sardonyx.tensor.tensor import Tensor

#: Neighbours at most.
_MOST = 8
#: A body of more nodes is not written out for every neighbour.
_MOST_NODES = 80


def choose_interleaved(
    members: Sequence[Member],
    strides: dict[Tensor, tuple[Dim, ...]],
    vector: Dim,
    axes: Sequence[Dim],
    lanes: int,
) -> Dim | None:
    """The axis whose elements fill what lies between the lanes; None if there is none.

    Args:
        members: Of a group; only a single map has results to interleave.
        strides: Elements per step along each axis, for every buffer.
        vector: The axis of the lanes.
        axes: Other outer axes.
        lanes: Lanes of a vector, a power of two.
    """
    if len(members) > 1 or not pays(lanes):
        return None
    (member,) = members
    if member.stage.kind != "map" or member.stage.full:
        return None
    if node_count(member.body, _MOST_NODES) >= _MOST_NODES:
        return None
    offset = offset_of(strides[member.stage.root.buffer], member.indices)
    step = sizes.step_along(offset, sizes.variable(vector))
    if not isinstance(step, int) or not 2 <= step <= _MOST:
        return None
    filled = (a for a in axes if extent_of(a) == step)
    return next((a for a in filled if sizes.step_along(offset, sizes.variable(a)) == 1), None)


def store_interleaved(b: Builder, inside: Expression, copies: Sequence[Member]) -> None:
    """Compute the result of each neighbour, a vector of each, and store all of them side by side.

    Args:
        b: Where statements go.
        inside: At a vector of the axis of the lanes, perhaps a masked one.
        copies: The map for each neighbour.
    """
    where = inside.place(copies[0].stage.root.buffer)
    at = inside.with_scalar_vector().dim(where.offset(copies[0].indices))
    results = [b.splat(inside.stored(copy.body), inside.lanes) for copy in copies]
    store_between(b, results, where.pointer, at, inside.mask)


def store_between(
    b: Builder, results: Sequence[Operand], pointer: Operand, at: Operand, mask: Operand | None
) -> None:
    """Store vectors whose lanes lie between each other's.

    Args:
        b: Where statements go.
        results: Vectors as they are in memory.
        pointer, at: Where the first lane of the first goes; the second vector's is the next.
        mask: Which lanes of each are stored; None for all.
    """
    lanes, count = results[0].type.lanes, len(results)
    for number, row in enumerate(interleaved(b, results)):
        kept = mask
        if mask is not None:
            lane_of = [(number * lanes + k) // count for k in range(lanes)]
            kept = b.shuffle(mask, mask, lane_of)
        b.store(row, pointer, at + number * lanes, mask=kept)
