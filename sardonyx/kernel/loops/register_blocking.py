"""Several results of a window at once: neighbours read mostly the same elements.

Where lanes lie along an outer axis (channels) and windows are written out, a block computes a few
neighbours along another outer axis. An element that several of them read is loaded once, and so is
each weight. Blocks at the borders of the axis are written apart, so that what lies outside is known
and left out; conditions that remain hold for all neighbours, and are asked once for a row of taps.
Rows of taps may be a loop: its variable is in what is written out.
Along an axis whose extent only a run knows, blocks that see no border are written so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sardonyx.base import integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.reductions import neutral
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.loops.member import Member
from sardonyx.plan.axes import extent_of
from sardonyx.plan.roles import index_atoms
from sardonyx.tensor import scalar
from sardonyx.tensor.operations import COMPARE
from sardonyx.tensor.rewriting import Rewriting, rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.traverse import loads_of, parts_of

#: Neighbours at most: their sums, and what they read of a row, fit 32 registers.
_MOST = 8
#: Neighbours where the extent is not known: small images should have blocks without borders.
_FEW = 4
#: So near to the least cost fewer neighbours are better: more images have them as whole blocks.
_ENOUGH = 1.02
#: Taps times neighbours at most, so that the code stays small.
_MOST_STEPS = 400


@dataclass(frozen=True, slots=True)
class WindowPart:
    """Blocks `low <= number < high`, which are written in the same way.

    Attributes:
        low, high: Their numbers.
        number: An index variable that counts them from 0; 0 if there is only one.
        first: The first result of a block.
        count: Results of a block.
    """

    low: Dim
    high: Dim
    number: Dim
    first: Dim
    count: int


@dataclass(frozen=True, slots=True)
class WindowBlocks:
    """How results along an axis are divided into blocks.

    Attributes:
        axis: The axis.
        blocks: How many blocks it has.
        parts: Kinds of blocks, in order; of an axis of unknown extent there is one, and whether
            a block is like that has to be asked.
        known: Whether the parts make up the axis: its extent is a number, or whole blocks.
    """

    axis: Dim
    blocks: Dim
    parts: tuple[WindowPart, ...]
    known: bool = True


@dataclass(frozen=True, slots=True)
class Shared:
    """What neighbours along an axis read.

    Attributes:
        axis: The axis.
        taps: Elements of a window, of all members.
        loads: What one result loads.
        saved: How much of it the one before has loaded.
    """

    axis: Dim
    taps: int
    loads: int
    saved: int

    def count(self, extent: int) -> int:
        """How many neighbours a block should have."""

        def steps(count: int) -> int:
            loads = self.loads + (self.loads - self.saved) * (count - 1)
            return max(self.taps * count, loads) + self.taps // 2

        def cost(count: int) -> int:
            rest = extent % count
            return extent // count * steps(count) + (steps(rest) if rest else 0)

        most = max(2, min(_MOST, extent, _MOST_STEPS // self.taps))
        best = min(range(2, most + 1), key=lambda n: (cost(n), n))
        whole = (n for n in range(2, best) if extent % n == 0 and cost(n) <= _ENOUGH * cost(best))
        return next(whole, best)


def choose_blocks(
    members: Sequence[Member], axes: Sequence[Dim], rows: Dim = 0, *, apart: bool = True
) -> WindowBlocks | None:
    """Blocks along the axis that saves the most loads; None if none saves enough.

    Args:
        members: Members of a group; those over its inner axes are written out.
        axes: Outer axes other than that of the lanes.
        rows: The inner axis that is not written out; 0 if all are.
        apart: Whether blocks at the borders are written apart. If not, all are equal where some
            number of neighbours divides the extent.
    """
    shared = shared_axis(members, axes, rows)
    if shared is None:
        return None
    axis, extent = shared.axis, extent_of(shared.axis)
    if not apart and isinstance(extent, int):
        for count in range(min(_MOST, _MOST_STEPS // shared.taps), 1, -1):
            if extent % count == 0:
                return _equal(axis, extent // count, count)
    if isinstance(extent, int):
        return _divide(axis, extent, shared.count(extent), _limits(members, axis))
    count = _whole_blocks(extent)
    if count:
        return _divide(axis, extent, count, _limits(members, axis))
    blocks = integer.ceildiv(extent, _FEW)
    number = sizes.numbered_index(blocks, 0, "w")
    part = WindowPart(0, 1, number, number * _FEW, _FEW)
    return WindowBlocks(axis, blocks, (part,), known=False)


def shared_axis(members: Sequence[Member], axes: Sequence[Dim], rows: Dim = 0) -> Shared | None:
    """The axis along which neighbours share most of what they read; None if they share little.

    Args:
        members: Members of a group.
        axes: Outer axes other than that of the lanes.
        rows: The inner axis that is not written out; 0 if all are.
    """
    full = [m for m in members if m.stage.full]
    if not full or not all(m.unrolled for m in full):
        return None
    bodies = [body for m in full for body in m.unrolled or ()]
    single = {x for body in bodies for x in loads_of(body)}
    best: tuple[int, Dim] | None = None
    for axis in reversed(axes):
        extent = extent_of(axis)
        if isinstance(extent, int) and extent < 2:
            continue
        step = {sizes.variable(axis): axis + 1}
        moved = Rewriting(lambda _: None, step)
        places = [(x, moved.visit(x)) for x in single]
        if rows != 0 and not any(x != there and there in single for x, there in places):
            continue  # neighbours share rows, which are not written out
        saved = sum(there in single for _, there in places)
        if 3 * saved >= len(single) and (best is None or saved > best[0]):
            best = (saved, axis)
    if best is None:
        return None
    times = 1 if rows == 0 else int(extent_of(rows))
    return Shared(best[1], times * len(bodies), times * len(single), times * best[0])


def _whole_blocks(extent: Dim) -> int:
    """Results of a block where two such blocks, and any number more, make up the extent; else 0."""
    count = math.gcd(*(coefficient for _, coefficient in sizes.terms_of(extent)))
    more = integer.floordiv(extent - 2 * count, count)
    return count if 2 <= count <= _MOST and integer.is_nonnegative(more) else 0


def _equal(axis: Dim, blocks: int, count: int) -> WindowBlocks:
    number = sizes.numbered_index(blocks, 0, "w") if blocks > 1 else 0
    first = number * count
    return WindowBlocks(axis, blocks, (WindowPart(0, blocks, number, first, count),))


def _limits(members: Sequence[Member], axis: Dim) -> list[Scalar]:
    """The comparisons in what is written out that hang on an index along an axis."""
    atom, found = sizes.variable(axis), dict[Scalar, None]()
    seen: set[Scalar] = set()
    stack = [body for m in members for body in m.unrolled or ()]
    while stack:
        x = stack.pop()
        if x not in seen:
            seen.add(x)
            stack.extend(x.arguments)
            if x.op in COMPARE and atom in index_atoms(x):
                found[x] = None
    return list(found)


def _divide(axis: Dim, extent: Dim, count: int, limits: Sequence[Scalar]) -> WindowBlocks:
    """Blocks of so many results: the first, those between, and the last, which may be smaller.

    Where the `limits` show that the first or the last see no border, they are like the others.
    """
    blocks = integer.ceildiv(extent, count)
    whole = extent + blocks * -count == 0

    def inside(low: int, high: int) -> WindowPart | None:
        """Blocks from number `low` to the `high`-th from the last, if they see no border."""
        between = blocks + (-low - high)
        if isinstance(between, int) and between < 2:
            return None
        number = sizes.numbered_index(between, 0, "w")
        first = (number + low) * count
        for k in (0, count - 1):
            moved = Rewriting(lambda _: None, {sizes.variable(axis): first + k})
            if any(moved.visit(x).op != "constant" for x in limits):
                return None
        return WindowPart(low, blocks - high, number, first, count)

    if whole:
        for low, high in ((0, 0), (0, 1), (1, 0)):
            found = inside(low, high)
            if found is not None:
                parts = [found]
                if low:
                    parts.insert(0, WindowPart(0, 1, 0, 0, count))
                if high:
                    last = blocks - 1
                    parts.append(WindowPart(last, blocks, 0, last * count, count))
                return WindowBlocks(axis, blocks, tuple(parts))
    first_count = min(count, extent) if isinstance(extent, int) else count
    parts = [WindowPart(0, 1, 0, 0, first_count)]
    last = blocks - 1
    if not isinstance(blocks, int) or blocks > 2:
        number = sizes.numbered_index(blocks - 2, 0, "w")
        parts.append(WindowPart(1, last, number, (number + 1) * count, count))
    if not isinstance(blocks, int) or blocks > 1:
        first = last * count
        rest = extent - first
        assert isinstance(rest, int)  # noqa: S101 - symbols stand for whole blocks
        parts.append(WindowPart(last, blocks, 0, first, rest))
    return WindowBlocks(axis, blocks, tuple(parts))


def members_at(members: Sequence[Member], axis: Dim, at: Dim) -> list[Member]:
    """The members with a value for one of their axes."""
    moved = Rewriting(lambda _: None, {sizes.variable(axis): at})
    return [
        replace(
            m,
            body=moved.visit(m.body),
            indices=tuple(moved.dim(i) for i in m.indices),
            unrolled=m.unrolled and [moved.visit(x) for x in m.unrolled],
        )
        for m in members
    ]


def members_inside(
    members: Sequence[Member], window: WindowBlocks, inside: Sequence[Dim]
) -> tuple[list[list[Member]], list[Scalar]]:
    """The members for each result of a block of the one kind, and what has to be true for that.

    Args:
        members: The members.
        window: The blocks, along an axis of unknown extent.
        inside: Axes of the lanes and of loops in a block: what depends on them is not asked ahead.
    """
    (part,) = window.parts
    axis, within = sizes.variable(window.axis), set(map(sizes.as_atom, inside))
    last = part.first + (part.count - 1)
    wanted = {scalar.size(last) < scalar.size(extent_of(window.axis)): None}
    freed = []
    for member in members:
        kept: list[Scalar] = []
        for body in member.unrolled or ():
            kind = value_type(member.body.dtype)
            condition, term = split_condition(body, neutral(member.stage.kind, kind))
            for one in _conjuncts(condition) if isinstance(condition, Scalar) else ():
                found = index_atoms(one)
                if axis in found and not within & found and not loads_of(one):
                    for k in range(part.count):
                        wanted[rewrite(one, atoms={axis: part.first + k})] = None
                else:
                    zero = scalar.constant(neutral(member.stage.kind, kind), term.dtype)
                    term = scalar.select(one, term, zero)
            kept.append(body if condition is False else term)
        freed.append(replace(member, unrolled=member.unrolled and kept))
    places = (part.first + k for k in range(part.count))
    copies = [members_at(freed, window.axis, at) for at in places]
    return copies, [x for x in wanted if x.op != "constant" or not x.payload]


def _conjuncts(condition: Scalar) -> Iterator[Scalar]:
    for x in parts_of(condition, lambda x: x.arguments if x.op == "and" else ()):
        if x.op != "and":
            yield x


def split_condition(body: Scalar, unchanging: float) -> tuple[Scalar | bool, Scalar]:
    """When a term counts, and what it is then; elsewhere it changes nothing.

    Args:
        body: A term of a reduction.
        unchanging: The value that changes nothing.
    """
    if body.op == "select" and _is(body.arguments[2], unchanging):
        return body.arguments[0], body.arguments[1]
    if _is(body, unchanging):
        return False, body
    if unchanging == 0 and body.op == "mul":
        for here, other in (body.arguments, body.arguments[::-1]):
            if here.op == "select" and _is(here.arguments[2], 0):
                return here.arguments[0], here.arguments[1] * other
            if _is(here, 0):
                return False, body
    return True, body


def _is(x: Scalar, value: float) -> bool:
    return x.op == "constant" and x.payload == value
