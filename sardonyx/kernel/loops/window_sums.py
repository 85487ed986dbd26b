"""What is made of several sums of windows, written once: it may be longer than the sums.

The sums of a block's neighbours come out of registers, since they share what they read. An error
function of each, written out as often, and again for blocks at the borders, is most of the code of
such a kernel, and takes LLVM as much of its time. So the sums go to memory of the block, and a loop
takes one after the other from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sardonyx.base import sizes
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.loops.loop_nest_schedule import LoopNestSchedule
from sardonyx.kernel.loops.member import Member, loads_of_members
from sardonyx.plan.inline import cost_of
from sardonyx.tensor.scalar import Scalar, load

#: So many instructions are worth the loop: a few are done while the next sums go on.
_LONG = 24


def long_rest(members: Sequence[Member]) -> list[Member] | None:
    """What is made of the one sum of a group, if that is long; None otherwise."""
    full = [m for m in members if m.stage.full]
    rest = [m for m in members if not m.stage.full]
    if len(full) != 1 or full[0].level or full[0].in_memory:
        return None
    if not rest or not all(m.level and m.stage.kind == "map" for m in rest):
        return None
    return rest if sum(cost_of(m.body) for m in rest) >= _LONG else None


def each_sum(
    level: Expression, schedule: LoopNestSchedule, values: Sequence[Operand], first: Operand
) -> Iterator[tuple[Expression, dict[Scalar, Operand]]]:
    """A loop over sums: an emitter for its body, and the sum that it takes.

    Args:
        level: Where the sums were written.
        schedule: Of the kernel, whose blocks have several windows.
        values: The sums of neighbours.
        first: The index of the first one along the window's axis.
    """
    b, window = level.builder, schedule.window
    assert window is not None  # noqa: S101 - narrows the type for the checker
    axis = sizes.variable(window.axis)
    kind = values[0].type.with_lanes(level.lanes)
    held = b.local(kind, len(values))
    for number, value in enumerate(values):
        b.store(b.lift(value, kind), held, number * kind.lanes, align_bytes=16)
    (total,) = (m for m in schedule.nest.members if m.stage.full)
    result = load(total.stage.root.buffer, total.indices)
    row = level.child(vector=level.vector, lanes=level.lanes, mask=level.mask)
    rest = [m.body for m in schedule.nest.members if not m.stage.full]
    row.hoist(
        rest, frozenset((axis,)), loads_of_members(schedule.nest.members, schedule.nest.by_buffer)
    )
    with b.for_(0, len(values)) as k:
        place = k * kind.lanes
        known: dict[Scalar, Operand] = {result: b.load(kind, held, place, align_bytes=16)}
        at = {axis: first + k}
        yield (
            row.child(at, values=known, vector=level.vector, lanes=level.lanes, mask=level.mask),
            known,
        )
