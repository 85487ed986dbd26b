"""The results of a block that computes several neighbours of a window: see `register_blocking`."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import Type
from sardonyx.kernel.loops.member import Member
from sardonyx.kernel.loops.nest_context import NestContext
from sardonyx.kernel.loops.register_blocking import WindowBlocks, members_at, members_inside
from sardonyx.plan.axes import extent_of


@dataclass(frozen=True, slots=True)
class BlockCopies:
    """What a block computes.

    Attributes:
        level: The emitter inside the block.
        copies: The members for each result of the block.
        first: Which result is the first along the axis of a window; None without windows.
    """

    level: Expression
    copies: list[list[Member]]
    first: Dim | None = None


def copies_of(
    context: NestContext, atoms: dict[Atom, Operand], members: list[Member]
) -> Iterator[BlockCopies]:
    """The members, once for each result of a block; each item is a block's body to fill."""
    window, b, outside = context.schedule.window, context.b, context.outside
    if window is None:
        yield BlockCopies(outside.child(atoms), [members])
        return
    atoms = dict(atoms)
    block = atoms.pop(sizes.variable(window.axis))
    if not window.known:
        yield from _copies_inside(context, atoms, window, block)
        return
    for part in window.parts:
        places = (part.first + k for k in range(part.count))
        copies = [members_at(members, window.axis, at) for at in places]
        number = sizes.as_atom(part.number)
        low, high = outside.dim(part.low), outside.dim(part.high)
        own = {} if number is None else {number: block - low}
        if len(window.parts) == 1:
            yield BlockCopies(outside.child(atoms | own), copies, part.first)
            return
        after = block >= low
        with b.if_(after & (block < high)):
            yield BlockCopies(outside.child(atoms | own), copies, part.first)


def _copies_inside(
    context: NestContext, atoms: dict[Atom, Operand], window: WindowBlocks, block: Operand
) -> Iterator[BlockCopies]:
    """Where only a run knows the extent: all results of a block at once, or one by one."""
    s, b, outside = context.schedule, context.b, context.outside
    members, vector = s.nest.members, s.vector
    assert vector is not None  # noqa: S101 - narrows the type for the checker
    (part,) = window.parts
    level = outside.child(atoms | {sizes.variable(part.number): block})
    copies, conditions = members_inside(members, window, [vector, s.tap_rows])
    tests = [b.lift(level.scalar(x), Type("i1")) for x in conditions]
    if not tests:
        yield BlockCopies(level, copies, part.first)
        return
    with b.if_(functools.reduce(functools.partial(b.binary, "and"), tests)):
        yield BlockCopies(level.child(), copies, part.first)
    with b.else_():
        first = level.dim(part.first)
        extent = outside.dim(extent_of(window.axis))
        with b.for_(first, b.min(first + part.count, extent)) as at:
            here = outside.child(atoms | {sizes.variable(window.axis): at})
            yield BlockCopies(here, [members])
