"""A `LoopNest` group as a kernel: blocks over the outer axes, passes over the inner ones.

Without inner axes this is a pointwise kernel. With them, each pass runs over a whole row:
reductions gather in registers, maps write. `loop_nest_schedule` decides on the loops.

Loop nest where lanes lie along an inner axis (softmax, normalisation)::

    parallel block in 0..outer:
        for number in levels:                             # passes over a row, see `RowPasses`
            for i in inner, the axis of the lanes step lanes:
                acc[member] = reduce(acc[member], body[block, i])     # or out[block, i] = body
            known[member] = acc[member]                   # what later passes read

Where they lie along an outer axis (maps, pooling over channels-last images)::

    parallel block in 0..outer * chunks:
        for first in low..high step lanes:                # a chunk of that axis
            for number in levels:
                for i in inner: acc[lanes] = reduce(acc[lanes], body[first.., i])
                out[first : first + lanes] = body(acc)
"""

from __future__ import annotations

from collections.abc import Iterator

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.compiled import Kernel, PerBlock, Place
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.loops.axis_loops import AxisLoops
from sardonyx.kernel.loops.block_copies import BlockCopies, copies_of
from sardonyx.kernel.loops.interleaved_blocks import store_interleaved
from sardonyx.kernel.loops.loop_nest_schedule import LoopNestSchedule
from sardonyx.kernel.loops.member import Member
from sardonyx.kernel.loops.nest_context import NestContext, begin_loop_nest, row_bytes
from sardonyx.kernel.loops.register_blocking import members_at
from sardonyx.kernel.loops.row_passes import RowPasses
from sardonyx.kernel.loops.transpose_tiles import ask_for_ends, store_transposed, transposed_loads
from sardonyx.kernel.loops.window_sums import each_sum, long_rest
from sardonyx.plan.axes import extent_of
from sardonyx.tensor.scalar import Scalar


class LoopNestKernel:
    """Builds the kernel of one group.

    Args:
        schedule: How it goes over the group's axes.
        name: Symbol name.
    """

    def __init__(self, schedule: LoopNestSchedule, name: str) -> None:
        self.schedule, self.name = schedule, name

    def build(self) -> Kernel:
        """The kernel, with what it asks of its caller."""
        s = self.schedule
        c = begin_loop_nest(s, lambda types: Builder(self.name, types, kind="kernel"))
        c.outside.whole_vectors = True
        _place_scratch(c)
        every = [*s.nest.outer, *s.nest.inner]
        c.hoist(c.outside, s.nest.members, every)
        _BlockWriter(c, {axis: c.outside.dim(extent_of(axis)) for axis in every}).write()
        return Kernel(
            c.b.program, c.arguments, s.blocks(), s.cost_ns(), c.scratch_bytes,
            per_block=self._per_block(),
        )  # fmt: skip

    def _per_block(self) -> PerBlock:
        s = self.schedule
        if s.vector is None or s.vector_inside:
            return (("lanes", s.lanes),)
        return ("elements", s.chunk), ("lanes", s.lanes)


def _place_scratch(c: NestContext) -> None:
    """Give rows that are handed from pass to pass their places in the thread's scratch."""
    s, b = c.schedule, c.b
    offset: Dim = 0
    for member in s.nest.members:
        if member.in_scratch:
            pointer = b.offset(b.context("scratch"), c.outside.dim(offset))
            buffer = member.stage.root.buffer
            c.places[buffer] = Place(pointer, s.nest.strides[buffer])
            offset = offset + row_bytes(s, member)


class _BlockWriter:
    """Writes the blocks of a kernel in the form that its schedule chose.

    Args:
        context: Of the kernel.
        extents: Of all axes.
    """

    def __init__(self, context: NestContext, extents: dict[Dim, Operand]) -> None:
        self.context, self.schedule, self.outside = context, context.schedule, context.outside
        self.builder, self.extents = context.b, extents
        self.loops = AxisLoops(context.schedule, context.b)
        self.rows = RowPasses(context, self.loops, extents)

    def write(self) -> None:
        """All blocks."""
        s, b, outside = self.schedule, self.builder, self.outside
        chunks = outside.dim(s.chunks())
        with b.parallel() as block:
            atoms, chunk = self._unflatten(block, chunks)
            if s.vector is None or s.vector_inside:
                self.rows.write(outside.child(atoms), [s.nest.members])
                return
            low, high = self._chunk_bounds(chunk, self.extents[s.vector])
            if s.across.squares is not None:
                self._write_squares(atoms, low, high)
                return
            for members, vector, start, end in self._pieces(low, high):
                if s.across.interleaved is not None:
                    self._write_interleaved(atoms, members, vector, start, end)
                    continue
                for each in copies_of(self.context, atoms, members):
                    self._write_lanes(each, vector, start, end)

    def _pieces(
        self, low: Operand, high: Operand
    ) -> Iterator[tuple[list[Member], Dim, Operand, Operand]]:
        """Parts of the axis of the lanes: the members there, its variable, and its bounds."""
        schedule = self.schedule
        assert schedule.vector is not None  # noqa: S101 - narrows the type for the checker
        for part in schedule.across.parts:
            zero, length = (
                self.builder.constant(high.type, 0),
                self.builder.constant(high.type, part.last - part.first),
            )
            yield part.members, part.vector, zero, length
        if not schedule.across.parts:
            yield schedule.across.copies, schedule.vector, low, high

    def _write_lanes(
        self,
        block: BlockCopies,
        vector: Dim,
        low: Operand,
        high: Operand,
    ) -> None:
        """All results of a block, a vector of each at a time."""
        level, copies = block.level, block.copies
        count, lanes = self.schedule.together, self.schedule.lanes
        end = self.loops.end_of_full(low, high, count * lanes) if count > 1 else low
        if end != low:
            places = (vector + k * lanes for k in range(count))
            together = [members_at(copies[0], vector, at) for at in places]
            self._hoist_lanes(level, together, vector)
            atom = sizes.variable(vector)
            with self.builder.for_(low, end, count * lanes) as first:
                inside = level.child({atom: first}, vector=atom, lanes=lanes)
                self.rows.write(inside, together)
            low = end
        rest = long_rest(self.schedule.nest.members) if len(copies) > 1 else None
        if block.first is not None and rest is not None:
            sums = [[m for m in copy if m.stage.full] for copy in copies]
            self._hoist_lanes(level, sums, vector)
            place = level.dim(block.first)
            for position, width, mask in self.loops.lanes(low, high, vector):
                atom = sizes.variable(vector)
                inside = level.child({atom: position}, vector=atom, lanes=width, mask=mask)
                values: dict[Scalar, Operand] = {}
                self.rows.write_pass(inside, [m for (m,) in sums], values)
                for row, known in each_sum(inside, self.schedule, list(values.values()), place):
                    self.rows.write_scalars(row, rest, known)
            return
        self._hoist_lanes(level, copies, vector)
        for position, width, mask in self.loops.lanes(low, high, vector):
            atom = sizes.variable(vector)
            inside = level.child({atom: position}, vector=atom, lanes=width, mask=mask)
            self.rows.write(inside, copies)

    def _hoist_lanes(self, level: Expression, copies: list[list[Member]], vector: Dim) -> None:
        members = [m for copy in copies for m in copy]
        self.context.hoist(level, members, [vector, *self.schedule.nest.inner], unrolled=True)

    def _write_squares(
        self,
        atoms: dict[Atom, Operand],
        low: Operand,
        high: Operand,
    ) -> None:
        """A block of as many neighbours as there are lanes, square by square; fewer one by one."""
        schedule, b = self.schedule, self.builder
        squares, vector = schedule.across.squares, schedule.vector
        assert squares is not None  # noqa: S101 - narrows the type for the checker
        assert vector is not None  # noqa: S101 - the same
        axis, atom = sizes.variable(squares.axis), sizes.variable(vector)
        first = atoms.pop(axis) * schedule.lanes
        after = first + schedule.lanes
        extent = self.extents[squares.axis]
        with b.if_(after <= extent):
            level = self.outside.child(atoms | {sizes.variable(squares.number): first})
            places = [squares.number + k for k in range(schedule.lanes)]
            copies = [members_at(schedule.nest.members, squares.axis, at) for at in places]
            self.context.hoist(level, [m for c in copies for m in c], [vector])
            for position, lanes, mask in self.loops.vectors(low, high, vector):
                if mask is None:
                    inside = level.child({atom: position}, vector=atom, lanes=lanes)
                    if squares.transposes_result:
                        store_transposed(b, inside, [m for (m,) in copies])
                        continue
                    ask_for_ends(b, inside, [m for c in copies for m in c])
                    known = transposed_loads(b, inside, squares, lanes)
                    inside = inside.child(values=known, vector=atom, lanes=lanes)
                    self.rows.write(inside, copies)
                    continue
                with b.for_(first, after) as at:
                    apart = self.outside.child(atoms | {axis: at, atom: position})
                    inside = apart.child(vector=atom, lanes=lanes, mask=mask)
                    self.rows.write(inside, [schedule.nest.members])
        with b.else_():
            for position, lanes, mask in self.loops.vectors(low, high, vector):
                # All of the rest read the same lines, which are still near then.
                with b.for_(first, extent) as at:
                    apart = self.outside.child(atoms | {axis: at, atom: position})
                    inside = apart.child(vector=atom, lanes=lanes, mask=mask)
                    self.rows.write(inside, [schedule.nest.members])

    def _write_interleaved(
        self,
        atoms: dict[Atom, Operand],
        members: list[Member],
        vector: Dim,
        low: Operand,
        high: Operand,
    ) -> None:
        """A block with all neighbours that lie between the lanes."""
        axis = self.schedule.across.interleaved
        assert axis is not None  # noqa: S101 - narrows the type for the checker
        own, atom = sizes.variable(axis), sizes.variable(vector)
        level = self.outside.child({a: x for a, x in atoms.items() if a is not own})
        self.context.hoist(level, members, [vector])
        for position, lanes, mask in self.loops.vectors(low, high, vector):
            inside = level.child({atom: position}, vector=atom, lanes=lanes, mask=mask)
            store_interleaved(self.builder, inside, members)

    def _unflatten(
        self,
        block: Operand,
        chunks: Operand,
    ) -> tuple[dict[Atom, Operand], Operand]:
        b = self.builder
        rest: Operand = block
        chunk: Operand = b.constant(block.type, 0)
        if not (isinstance(chunks, Literal) and chunks.value == 1):
            rest, chunk = b.parted(rest, chunks)
        axes = self.schedule.block_axes
        found = b.coordinates(rest, [self.outside.dim(self.schedule.block_count(a)) for a in axes])
        return dict(zip(map(sizes.variable, axes), found, strict=True)), chunk

    def _chunk_bounds(self, chunk: Operand, extent: Operand) -> tuple[Operand, Operand]:
        b = self.builder
        if self.schedule.chunks() == 1:
            return b.constant(chunk.type, 0), extent
        low = chunk * self.schedule.chunk
        return low, b.min(low + self.schedule.chunk, extent)
