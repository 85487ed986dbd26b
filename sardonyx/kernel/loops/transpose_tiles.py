"""Lanes along one axis of what lies along another: squares of elements, transposed in registers.

A map that stores along one axis and reads a tensor that lies along another (a transposition, a
change of layout) would gather its lanes one by one, each from another cache line. Instead a block
takes as many neighbours along the other axis as there are lanes: one vector of each row of the
square is read where it lies, and transposing the square gives a vector for each neighbour. Where
most of what is read lies along the lanes and the result does not (channels become planes), results
are transposed before they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.representation import HALVES, from_memory
from sardonyx.kernel.expressions.transpose import transposed
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import memory_type
from sardonyx.kernel.loops.member import Member
from sardonyx.plan.axes import extent_of, offset_of
from sardonyx.plan.cuts import node_count
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import parts_of

#: A body of more nodes is not written out for every neighbour.
_MOST_NODES = 80
#: Fewer lanes than this are gathered as fast.
_FEWEST_LANES = 4


@dataclass(frozen=True, slots=True)
class TransposeTiles:
    """How a block covers squares.

    Attributes:
        axis: The axis along which the tensors lie that are transposed.
        number: The index variable of the first neighbour of a block.
        blocks: How many blocks the axis has.
        loads: What is transposed; nothing where the one result is.
    """

    axis: Dim
    number: Dim
    blocks: Dim
    loads: tuple[Scalar, ...]

    @property
    def transposes_result(self) -> bool:
        """Whether the result is transposed."""
        return not self.loads


def choose_squares(
    members: Sequence[Member],
    strides: dict[Tensor, tuple[Dim, ...]],
    vector: Dim,
    axes: Sequence[Dim],
    lanes: int,
) -> TransposeTiles | None:
    """The axis along which most of what would be gathered lies; None if nothing does.

    Args:
        members: Maps; others have no squares.
        strides: Elements per step along each axis, for every buffer.
        vector: The axis of the lanes.
        axes: Other outer axes.
        lanes: Lanes of a vector, a power of two.
    """
    if lanes < _FEWEST_LANES or any(m.stage.kind != "map" or m.stage.full for m in members):
        return None
    own = {m.stage.root.buffer for m in members}
    gathered = {
        x: offset_of(strides[x.tensor], x.at)
        for member in members
        for x in _certain_loads(member.body)
        if x.tensor not in own and x.dtype not in HALVES
    }
    result = _result_to_control(members, strides)
    best: TransposeTiles | None = None
    for axis in axes:
        extent = extent_of(axis)
        if isinstance(extent, int) and extent < lanes:
            continue
        found = tuple(x for x, at in gathered.items() if _lies_along(at, axis, vector))
        transposes_result = result is not None and _lies_along(result, axis, vector)
        if (found or transposes_result) and (best is None or len(found) > len(best.loads)):
            blocks = integer.ceildiv(extent, lanes)
            best = TransposeTiles(axis, sizes.numbered_index(extent, 0, "q"), blocks, found)
    return best


def _result_to_control(
    members: Sequence[Member], strides: dict[Tensor, tuple[Dim, ...]]
) -> Dim | None:
    """Where the one result lies, if squares of it may be transposed."""
    if len(members) > 1 or members[0].stage.root.tensor.dtype in HALVES:
        return None
    if node_count(members[0].body, _MOST_NODES) >= _MOST_NODES:
        return None
    return offset_of(strides[members[0].stage.root.buffer], members[0].indices)


def transposed_loads(
    b: Builder, inside: Expression, squares: TransposeTiles, lanes: int
) -> dict[Scalar, Operand]:
    """What the neighbours of a block load, by the load that each of them has.

    Args:
        b: Where statements go.
        inside: At full vectors of the axis of the lanes, with the first neighbour's number.
        squares: What is transposed.
        lanes: Lanes of a vector, and neighbours of a block.
    """
    axis = sizes.variable(squares.axis)
    known: dict[Scalar, Operand] = {}
    for x in squares.loads:
        here = rewrite(x, atoms={axis: squares.number})
        where, element = inside.place(x.tensor), memory_type(x.dtype)
        offset = where.offset(here.at)
        linear = sizes.coefficient_of(offset, inside.vector)  # type: ignore[arg-type]  # squares have one
        step = inside.dim(linear[0])  # type: ignore[index]  # what is transposed is linear
        at = inside.with_scalar_vector().dim(offset)
        rows: list[Operand] = []
        for _ in range(lanes):
            rows.append(b.load(element.with_lanes(lanes), where.pointer, at))
            at = at + step
        for k, lane_values in enumerate(transposed(b, rows)):
            own = rewrite(x, atoms={axis: squares.number + k})
            known[own] = from_memory(b, lane_values, x.dtype)
    return known


def ask_for_ends(b: Builder, inside: Expression, members: Sequence[Member]) -> None:
    """Let the cache lines come that vectors of results end in.

    A store across two lines asks for the first alone while it waits, and for the second, which
    mostly no other has asked for yet, when nothing is before it any more.
    """
    here = inside.with_scalar_vector()
    for member in members:
        if member.in_memory:
            tensor = member.stage.root.buffer
            where = inside.place(tensor)
            last = here.dim(where.offset(member.indices)) + (inside.lanes - 1)
            b.prefetch(where.pointer, last, memory_type(tensor.dtype))


def store_transposed(b: Builder, inside: Expression, copies: Sequence[Member]) -> None:
    """Compute the result of each neighbour of a block, a vector of each, and store the square.

    Args:
        b: Where statements go.
        inside: At full vectors of the axis of the lanes, with the first neighbour's number.
        copies: The map for each neighbour.
    """
    where = inside.place(copies[0].stage.root.buffer)
    offset = where.offset(copies[0].indices)
    linear = sizes.coefficient_of(offset, inside.vector)  # type: ignore[arg-type]  # squares have one
    step = inside.dim(linear[0])  # type: ignore[index]  # what is transposed is linear
    places = [inside.with_scalar_vector().dim(offset)]
    for _ in copies[1:]:
        places.append(places[-1] + step)
    results = [b.splat(inside.stored(copy.body), len(copies)) for copy in copies]
    for at in places:  # see `ask_for_ends`
        b.prefetch(where.pointer, at + (len(copies) - 1), results[0].type.element)
    for row, at in zip(transposed(b, results), places, strict=True):
        b.store(row, where.pointer, at)


def _lies_along(offset: Dim, axis: Dim, vector: Dim) -> bool:
    """Whether elements lie side by side along `axis`, and apart along `vector`."""
    along, apart = (sizes.coefficient_of(offset, sizes.variable(v)) for v in (axis, vector))
    if along is None or apart is None or along[0] != 1:
        return False
    step = apart[0]
    return step not in (0, 1) and not sizes.atoms_of(step, "index")


def _certain_loads(body: Scalar) -> Iterator[Scalar]:
    """Loads that happen in every lane: none under a condition, none at places that are loaded."""
    for x in parts_of(body, lambda x: x.arguments[:1] if x.op == "select" else x.arguments):
        if x.op == "load" and not any(sizes.opaque_in(i) for i in x.at):
            yield x
