"""Loops along the axes of a loop nest: full vectors and a masked one, runs of sums, pieces.

Loop nest of `vectors`, and of a long float sum, whose runs are summed apart (`_steps`)::

    for i in low..end step lanes: body(i)                 # or a loop of runs around it
    if end < high: body(end, mask)

    for first in low..high step run:
        apart = 0
        for i in first..first + run step lanes: apart += body(i)
        acc += apart                                      # in float64
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from sardonyx.base import dtypes, sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.reductions import Accumulator
from sardonyx.kernel.language.alignment import divisible
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.types import memory_type
from sardonyx.kernel.loops.loop_nest_schedule import PIECE, LoopNestSchedule
from sardonyx.plan.axes import extent_of

#: The float sums of a pass.
Sums = list[Accumulator]
#: A place along the axis of the lanes, how many lanes are there, and which of them count.
LanePlace = tuple[Operand, int, Operand | None]


class AxisLoops:
    """Writes loops along the axes of a kernel; each item of an iterator is a loop body to fill.

    Args:
        schedule: How the kernel goes over the group's axes.
        b: Writes the kernel.
    """

    def __init__(self, schedule: LoopNestSchedule, b: Builder) -> None:
        self._schedule, self._b = schedule, b

    def vectors(
        self, low: Operand, high: Operand, variable: Dim, sums: Sums | None = None
    ) -> Iterator[LanePlace]:
        """Full vectors from `low` to `high`, then one masked; each item is a loop body to fill.

        In runs, if the axis has them: what is masked is one of its own.
        """
        b, lanes, sums = self._b, self._schedule.lanes, sums or []
        if lanes == 1:
            yield from ((i, 1, None) for i in self._steps(variable, low, high, sums))
            return
        extent = extent_of(variable)
        if isinstance(low, Literal) and isinstance(high, Literal):
            extent = int(high.value) - int(low.value)
        if divisible(extent, lanes):
            yield from ((i, lanes, None) for i in self._steps(variable, low, high, sums, lanes))
            return
        end = self.end_of_full(low, high, lanes)
        if not (isinstance(end, Literal) and end.value == 0):
            yield from ((i, lanes, None) for i in self._steps(variable, low, end, sums, lanes))
        rest = high - end
        with b.if_(rest > 0), _apart(sums if self._has_runs(variable) else []):
            yield end, lanes, b.tail_mask(rest, lanes)

    def _has_runs(self, axis: Dim) -> bool:
        run = self._schedule.run
        return run is not None and run[0] is axis

    def _steps(
        self, axis: Dim, low: Operand, high: Operand, sums: Sums, step: int = 1
    ) -> Iterator[Operand]:
        """A loop along an axis, in runs that are summed apart if it has them."""
        run, b = self._schedule.run, self._b
        if not sums or run is None or run[0] is not axis:
            with b.for_(low, high, step) as i:
                yield i
            return
        with b.for_(low, high, run[1]) as first, _apart(sums):
            end = first + run[1]
            with b.for_(first, end if run[1] == step else b.min(end, high), step) as i:
                yield i

    def lanes(self, low: Operand, high: Operand, variable: Dim) -> Iterator[LanePlace]:
        """`vectors`, but one element is no vector: places at a border do not vary along it."""
        if _is_zero(low) and isinstance(high, Literal) and high.value == 1:
            yield low, 1, None
        else:
            yield from self.vectors(low, high, variable)

    def end_of_full(self, low: Operand, high: Operand, step: int) -> Operand:
        """Where steps of so many elements, a power of two, end that fit between two places."""
        b = self._b
        count = high if _is_zero(low) else high - low
        full: Operand
        if isinstance(count, Literal):
            full = b.constant(count.type, int(count.value) // step * step)
        else:
            full = b.lift(count, memory_type(dtypes.INT64)) & -step
        return full if _is_zero(low) else low + full

    def nest(
        self, level: Expression, rest: list[Dim], extents: dict[Dim, Operand], sums: Sums
    ) -> Iterator[Expression]:
        """Loops in each other; each item is the body of the innermost, to fill."""
        if not rest:
            yield level
            return
        for low, high in self._parts(rest[0], extents[rest[0]]):
            yield from self._loop(level, low, high, rest, extents, sums)

    def _parts(self, axis: Dim, extent: Operand) -> Iterator[tuple[Operand, Operand]]:
        """Bounds of the loop over an axis; each item is where that loop is to be written."""
        zero = self._b.constant(memory_type(dtypes.INT64), 0)
        if axis not in self._schedule.in_pieces:
            yield zero, extent
            return
        with self._b.pieces(zero, extent, PIECE) as (low, high):
            yield low, high

    def _loop(
        self,
        level: Expression,
        low: Operand,
        high: Operand,
        rest: list[Dim],
        extents: dict[Dim, Operand],
        sums: Sums,
    ) -> Iterator[Expression]:
        variable, *further = rest
        atom = sizes.variable(variable)
        if variable is self._schedule.vector:
            for position, lanes, mask in self.vectors(low, high, variable, sums):
                inside = level.child({atom: position}, vector=atom, lanes=lanes, mask=mask)
                yield from self.nest(inside, further, extents, sums)
            return
        for i in self._steps(variable, low, high, sums):
            inside = level.child({atom: i}, vector=level.vector, lanes=level.lanes, mask=level.mask)
            yield from self.nest(inside, further, extents, sums)


def _apart(sums: Sums) -> ExitStack:
    """A context in which the sums gather what they take in apart from what they have."""
    contexts = ExitStack()
    for accumulator in sums:
        contexts.enter_context(accumulator.run())
    return contexts


def _is_zero(x: Operand) -> bool:
    return isinstance(x, Literal) and x.value == 0
