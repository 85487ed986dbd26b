"""The passes of a loop nest over one row, or over a vector of rows: see `loop_nest`.

Loop nest; what is short is written out (`_write_taps`)::

    for number in levels:
        for member in maps of one element: known[member] = body
        for i in inner:
            acc[member] = reduce(acc[member], body[i])    # or out[i] = body
        known[member] = acc[member]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.reductions import Accumulator
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.loops.axis_loops import AxisLoops
from sardonyx.kernel.loops.member import Member
from sardonyx.kernel.loops.nest_context import NestContext, atoms_of
from sardonyx.kernel.loops.register_blocking import split_condition
from sardonyx.tensor.scalar import Scalar, load


class RowPasses:
    """Writes all that is computed for one value of the outer axes.

    Args:
        context: Of the kernel.
        loops: Writes loops along inner axes.
        extents: Of all axes.
    """

    def __init__(self, context: NestContext, loops: AxisLoops, extents: dict[Dim, Operand]) -> None:
        self._schedule, self._b = context.schedule, context.b
        self._loops, self._extents = loops, extents

    def write(self, level: Expression, copies: list[list[Member]]) -> None:
        """All passes for one value of the outer variables (or one vector of them), or a few."""
        known: dict[Scalar, Operand] = {}
        members = [m for copy in copies for m in copy]
        for number in range(1 + max(m.level for m in members)):
            here = [m for m in members if m.level == number]
            scalars = [m for m in here if not m.stage.full and m.stage.kind == "map"]
            row = self.write_scalars(level, scalars, known)
            full = [m for m in here if m.stage.full]
            if full:
                self.write_pass(row, full, known)

    def write_scalars(
        self, level: Expression, members: list[Member], known: dict[Scalar, Operand]
    ) -> Expression:
        """Maps of one element of a row each, in order; gives an emitter that knows them."""

        def row() -> Expression:
            return level.child(
                values=known, vector=level.vector, lanes=level.lanes, mask=level.mask
            )

        here = row()
        for member in members:
            if member.in_memory:
                here.store_element(member.stage.root.buffer, member.indices, member.body)
            known[load(member.stage.root.buffer, member.indices)] = here.scalar(member.body)
            here = row()
        return here

    def write_pass(
        self,
        row: Expression,
        members: list[Member],
        known: dict[Scalar, Operand],
    ) -> None:
        """One pass over a row: its full members, which see what is `known` and become known."""
        own = frozenset(load(m.stage.root.buffer, m.indices) for m in members)
        written_out = all(m.unrolled for m in members)
        inner = atoms_of(self._schedule.nest.inner)
        row.hoist([m.body for m in members], inner, own, addresses=not written_out)
        lanes = self._schedule.lanes if self._schedule.vector_inside else row.lanes
        accumulators = {
            m: Accumulator(self._b, m.stage.kind, m.stage.root.tensor.dtype, m.body.dtype, lanes)
            for m in members
            if m.stage.kind != "map"
        }
        if written_out:
            for inside in self._tap_rows(row):
                self._write_taps(inside, accumulators)
        else:
            sums = [a for a in accumulators.values() if a.is_float_sum]
            if self._schedule.run is not None:
                for accumulator in sums:
                    accumulator.begin_runs()
            for inside in self._loops.nest(row, self._schedule.walked(), self._extents, sums):
                self._write_element(inside, members, accumulators)
        for member, accumulator in accumulators.items():
            value = accumulator.finish(horizontal=self._schedule.vector_inside)
            known[load(member.stage.root.buffer, member.indices)] = value
            if member.in_memory:
                at_end = row.child(vector=row.vector, lanes=row.lanes, mask=row.mask)
                at_end.store(member.stage.root.buffer, member.indices, value)

    def _tap_rows(self, row: Expression) -> Iterator[Expression]:
        """Where taps are written out: once, or in the loop over their rows."""
        axis = self._schedule.tap_rows
        if axis == 0:
            yield row
            return
        with self._b.for_(0, self._extents[axis]) as k:
            at = {sizes.variable(axis): k}
            yield row.child(at, vector=row.vector, lanes=row.lanes, mask=row.mask)

    def _write_taps(self, row: Expression, accumulators: dict[Member, Accumulator]) -> None:
        """Reductions that are written out, tap by tap: neighbours share what they read.

        A condition that all of them have in common is asked once for the taps that have it.
        """
        b = self._b
        terms = [
            [
                (accumulator, body, split_condition(body, accumulator.neutral.value))
                for accumulator, body in zip(accumulators.values(), bodies, strict=True)
            ]
            for bodies in zip(*(m.unrolled or () for m in accumulators), strict=True)
        ]

        def common(tap: int) -> Operand | None:
            found = {condition for _, _, (condition, _) in terms[tap]} - {False}
            one = found.pop() if len(found) == 1 else None
            held = row.scalar(one) if isinstance(one, Scalar) else None
            return None if held is None or held.type.lanes > 1 else held

        for held, taps in itertools.groupby(range(len(terms)), key=common):
            here = [term for tap in taps for term in terms[tap] if term[2][0] is not False]
            if held is None:
                for accumulator, body, _ in here:
                    accumulator.add_value(row, body)
                continue
            with b.if_(held):
                inside = row.child(vector=row.vector, lanes=row.lanes, mask=row.mask)
                for accumulator, _, (_, term) in here:
                    accumulator.add_value(inside, term)

    def _write_element(
        self,
        inside: Expression,
        members: list[Member],
        accumulators: dict[Member, Accumulator],
    ) -> None:
        values: dict[Scalar, Operand] = {}
        for member in members:
            level = inside.child(
                values=values, vector=inside.vector, lanes=inside.lanes, mask=inside.mask
            )
            if member in accumulators:
                mask = inside.mask if self._schedule.vector_inside else None
                if member.stage.kind.startswith("arg"):
                    position = level.dim(member.position)
                    accumulators[member].add(level.scalar(member.body), position, mask)
                else:
                    accumulators[member].add_value(level, member.body, mask)
                continue
            if member.in_memory or member.in_scratch:
                level.store_element(member.stage.root.buffer, member.indices, member.body)
            values[load(member.stage.root.buffer, member.indices)] = level.scalar(member.body)
