"""Parts of an axis of lanes between which what is read changes: borders, and what lies inside.

Rows that are mirrored or clamped at their ends (reflected pads, interpolation) read an element
through a minimum, a maximum or a division, so every lane would be gathered. Between the places
where these change they are what bounds make of them: inside, and that is most of a row, nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.loops.member import Member
from sardonyx.kernel.loops.register_blocking import members_at
from sardonyx.plan.axes import dims_of, extent_of, offset_of
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of

#: Places at most where one division has another quotient: others change all the time.
_MOST_STEPS = 4
#: Parts at most, each of which is written out.
_MOST_PARTS = 7


@dataclass(frozen=True, slots=True)
class LanePart:
    """Elements `first <= i < last` of the axis of the lanes.

    Attributes:
        first, last: Where they begin and end.
        vector: An index variable that counts them from 0.
        members: The members there, in terms of that variable.
    """

    first: int
    last: int
    vector: Dim
    members: list[Member]


def divide_lanes(
    members: Sequence[Member],
    strides: dict[Tensor, tuple[Dim, ...]],
    vector: Dim,
    lanes: int,
) -> list[LanePart]:
    """All parts of the axis if fewer loads are gathered in the longest; none if it is not worth it.

    Args:
        members: Of a group.
        strides: Elements per step along each axis, for every buffer.
        vector: The axis of the lanes.
        lanes: Of a vector.
    """
    extent = extent_of(vector)
    before = _gathered(members, strides, vector)
    if not isinstance(extent, int) or extent <= lanes or not before:
        return []
    parts = _divide(LanePart(0, extent, vector, list(members)), 0)
    longest = max(parts, key=lambda p: p.last - p.first)
    after = _gathered(longest.members, strides, longest.vector)
    if not 1 < len(parts) <= _MOST_PARTS or longest.last - longest.first < lanes:
        return []
    return parts if after < before else []


def _divide(part: LanePart, depth: int) -> list[LanePart]:
    """The part, or those that it consists of: what is simpler may show further places."""
    length = part.last - part.first
    places = sorted({0, length, *_changes(part.members, sizes.variable(part.vector), length)})
    if not 2 < len(places) <= _MOST_PARTS + 1 or depth == _MOST_STEPS:
        return [part]
    found = []
    for low, high in zip(places, places[1:], strict=False):
        vector = sizes.numbered_index(high - low, depth, "part")
        here = members_at(part.members, part.vector, vector + low)
        if vector == 0:  # one element: an axis that nothing depends on
            vector = part.vector
        found += _divide(LanePart(part.first + low, part.first + high, vector, here), depth + 1)
    return found


def away_from_borders(offset: Dim, vector: Atom) -> Dim:
    """An offset without the minima and maxima that only borders of the axis of the lanes need."""
    for _ in range(_MOST_STEPS):
        moves: dict[Atom, Dim] = {}
        for kind in ("max", "min"):
            for atom in sizes.atoms_of(offset, kind):
                moving = [a for a in atom.arguments if vector in sizes.atoms_of(a)]
                if len(moving) == 1:
                    moves[atom] = moving[0]
        if not moves:
            break
        offset = substitute(offset, moves)
    return offset


def _gathered(
    members: Sequence[Member], strides: dict[Tensor, tuple[Dim, ...]], vector: Dim
) -> int:
    atom = sizes.variable(vector)
    offsets = {
        offset_of(strides[x.tensor], x.at)
        for m in members
        for x in loads_of(m.body)
        if not any(sizes.opaque_in(i) for i in x.at)
    }
    return sum(sizes.coefficient_of(offset, atom) is None for offset in offsets)


def _changes(members: Sequence[Member], vector: Atom, extent: int) -> Iterator[int]:
    """Where a minimum, a maximum or a division in an index becomes another one."""
    seen: set[Atom] = set()
    for member in members:
        for dim in dims_of(member.body):
            for kind in ("max", "min", "floordiv"):
                seen |= sizes.atoms_of(dim, kind)
    for atom in seen:
        left, right = atom.arguments
        if atom.kind != "floordiv":
            yield from _crossings(left - right, vector, extent, 0)
        elif isinstance(right, int):
            yield from _crossings(left, vector, extent, right)


def _crossings(value: Dim, vector: Atom, extent: int, period: int) -> Iterator[int]:
    """Where a linear value crosses 0, or multiples of the period."""
    linear = sizes.coefficient_of(value, vector)
    if linear is None or linear[0] == 0 or not all(isinstance(part, int) for part in linear):
        return
    step, start = (int(part) for part in linear if isinstance(part, int))
    ends = sorted((start, start + step * (extent - 1)))
    if period == 0:
        limits = [0]
    else:
        lowest, highest = (end // period for end in ends)
        if highest - lowest > _MOST_STEPS:
            return
        limits = [period * k for k in range(lowest + 1, highest + 1)]
    for limit in limits:
        # The first element on the other side of the limit, whose own side is that above it.
        place = -((start - limit) // step) if step > 0 else (start - limit) // -step + 1
        if 0 < place < extent:
            yield place
