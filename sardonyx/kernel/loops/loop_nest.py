"""A `LoopNest` group as a kernel: blocks over the outer axes, passes over the inner ones.

Without inner axes this is a pointwise kernel. With them, each pass runs over a whole row:
reductions gather in registers, maps write. `loop_nest_schedule` decides on the loops.

Loop nest where lanes lie along an inner axis (softmax, normalisation)::

    parallel block in 0..outer:
        for number in levels:                             # passes over a row, see `_write_row`
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

import functools
import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.reductions import Accumulator
from sardonyx.kernel.language.alignment import divisible
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.compiled import Kernel, KernelParameters, PerBlock, Place
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.types import Type, memory_type
from sardonyx.kernel.loops.interleaved_blocks import store_interleaved
from sardonyx.kernel.loops.loop_nest_schedule import PIECE, LoopNestSchedule
from sardonyx.kernel.loops.member import Member, loads_of_members
from sardonyx.kernel.loops.register_blocking import (
    WindowBlocks,
    members_at,
    members_inside,
    split_condition,
)
from sardonyx.kernel.loops.transpose_tiles import ask_for_ends, store_transposed, transposed_loads
from sardonyx.kernel.loops.window_sums import each_sum, long_rest
from sardonyx.plan.axes import extent_of
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Buffer, Tensor
from sardonyx.tensor.traverse import loads_of

#: The float sums of a pass.
_Sums = list[Accumulator]


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


class LoopNestKernel:
    """Builds the kernel of one group.

    Args:
        schedule: How it goes over the group's axes.
        name: Symbol name.
    """

    def __init__(self, schedule: LoopNestSchedule, name: str) -> None:
        self.schedule, self.name = schedule, name
        self.scratch_bytes: Dim = 0

    def build(self) -> Kernel:
        """The kernel, with what it asks of its caller."""
        touched: list[Buffer] = []
        for member in self.schedule.members:
            for x in loads_of(member.body):
                source = self.schedule.by_buffer.get(x.tensor)
                if source is None or source.in_memory:
                    touched.append(x.buffer)
            if member.in_memory:
                touched.append(member.stage.root.buffer)
        for member in self.schedule.members:
            if member.in_scratch:
                size = member.stage.root.tensor.dtype.size_bytes
                row = sizes.product(map(extent_of, self.schedule.inner))
                needed = integer.ceildiv(row * size, 64) * 64
                self.scratch_bytes = self.scratch_bytes + needed
        self.parameters = KernelParameters(touched, [*self.schedule.all_dims(), self.scratch_bytes])
        self.builder = self._new_builder()
        self._write()
        return Kernel(
            self.builder.program,
            self.parameters.arguments,
            self._blocks(),
            self.schedule.cost_ns(),
            self.scratch_bytes,
            per_block=self._per_block(),
        )

    def _new_builder(self) -> Builder:
        return Builder(self.name, self.parameters.types(), kind="kernel")

    def _blocks(self) -> Dim:
        return self.schedule.blocks()

    def _per_block(self) -> PerBlock:
        s = self.schedule
        if s.vector is None or s.vector_inside:
            return (("lanes", s.lanes),)
        return ("elements", s.chunk), ("lanes", s.lanes)

    def _write(self) -> None:
        b = self.builder
        places = self.parameters.places(b, self.schedule.strides)
        outside = Expression(b, self.parameters.atoms(b), places.__getitem__)
        outside.whole_vectors = True
        if self.schedule.reads_anyway:
            outside.has_lanes = self.schedule.has_lanes
        self._write_scratch_places(outside, places)
        every = [*self.schedule.outer, *self.schedule.inner]
        self._hoist(outside, self.schedule.members, every, unrolled=False)
        extents = {v: outside.dim(extent_of(v)) for v in every}
        chunks = outside.dim(self.schedule.chunks())
        with b.parallel() as block:
            atoms, chunk = self._unflatten(outside, block, chunks)
            if self.schedule.vector is None or self.schedule.vector_inside:
                self._write_row(outside.child(atoms), [self.schedule.members], extents)
                return
            low, high = self._chunk_bounds(chunk, extents[self.schedule.vector])
            if self.schedule.squares is not None:
                self._write_squares(outside, atoms, low, high, extents)
                return
            for members, vector, start, end in self._pieces(low, high):
                if self.schedule.interleaved is not None:
                    self._write_interleaved(outside, atoms, members, vector, start, end)
                    continue
                for each in self._copies(outside, atoms, members):
                    self._write_lanes(each, vector, start, end, extents)

    def _pieces(
        self, low: Operand, high: Operand
    ) -> Iterator[tuple[list[Member], Dim, Operand, Operand]]:
        """Parts of the axis of the lanes: the members there, its variable, and its bounds."""
        schedule = self.schedule
        assert schedule.vector is not None  # noqa: S101 - narrows the type for the checker
        for part in schedule.parts:
            zero, length = (
                self.builder.constant(high.type, 0),
                self.builder.constant(high.type, part.last - part.first),
            )
            yield part.members, part.vector, zero, length
        if not schedule.parts:
            yield schedule.copies, schedule.vector, low, high

    def _copies(
        self, outside: Expression, atoms: dict[Atom, Operand], members: list[Member]
    ) -> Iterator[BlockCopies]:
        """The members, once for each result of a block; each item is a block's body to fill."""
        window, b = self.schedule.window, self.builder
        if window is None:
            yield BlockCopies(outside.child(atoms), [members])
            return
        atoms = dict(atoms)
        block = atoms.pop(sizes.variable(window.axis))
        if not window.known:
            yield from self._copies_inside(outside, atoms, window, block)
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
        self, outside: Expression, atoms: dict[Atom, Operand], window: WindowBlocks, block: Operand
    ) -> Iterator[BlockCopies]:
        """Where only a run knows the extent: all results of a block at once, or one by one."""
        members, vector, b = self.schedule.members, self.schedule.vector, self.builder
        assert vector is not None  # noqa: S101 - narrows the type for the checker
        (part,) = window.parts
        level = outside.child(atoms | {sizes.variable(part.number): block})
        copies, conditions = members_inside(members, window, [vector, self.schedule.tap_rows])
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

    def _write_lanes(
        self,
        block: BlockCopies,
        vector: Dim,
        low: Operand,
        high: Operand,
        extents: dict[Dim, Operand],
    ) -> None:
        """All results of a block, a vector of each at a time."""
        level, copies = block.level, block.copies
        count, lanes = self.schedule.together, self.schedule.lanes
        end = self._end_of_full(low, high, count * lanes) if count > 1 else low
        if end != low:
            places = (vector + k * lanes for k in range(count))
            together = [members_at(copies[0], vector, at) for at in places]
            self._hoist_lanes(level, together, vector)
            atom = sizes.variable(vector)
            with self.builder.for_(low, end, count * lanes) as first:
                inside = level.child({atom: first}, vector=atom, lanes=lanes)
                self._write_row(inside, together, extents)
            low = end
        rest = long_rest(self.schedule.members) if len(copies) > 1 else None
        if block.first is not None and rest is not None:
            sums = [[m for m in copy if m.stage.full] for copy in copies]
            self._hoist_lanes(level, sums, vector)
            place = level.dim(block.first)
            for position, width, mask in self._lane_loop(low, high, vector):
                atom = sizes.variable(vector)
                inside = level.child({atom: position}, vector=atom, lanes=width, mask=mask)
                values: dict[Scalar, Operand] = {}
                self._write_pass(inside, [m for (m,) in sums], extents, values)
                for row, known in each_sum(inside, self.schedule, list(values.values()), place):
                    self._write_scalars(row, rest, known)
            return
        self._hoist_lanes(level, copies, vector)
        for position, width, mask in self._lane_loop(low, high, vector):
            atom = sizes.variable(vector)
            inside = level.child({atom: position}, vector=atom, lanes=width, mask=mask)
            self._write_row(inside, copies, extents)

    def _hoist_lanes(self, level: Expression, copies: list[list[Member]], vector: Dim) -> None:
        members = [m for copy in copies for m in copy]
        self._hoist(level, members, [vector, *self.schedule.inner], unrolled=True)

    def _write_squares(
        self,
        outside: Expression,
        atoms: dict[Atom, Operand],
        low: Operand,
        high: Operand,
        extents: dict[Dim, Operand],
    ) -> None:
        """A block of as many neighbours as there are lanes, square by square; fewer one by one."""
        schedule, b = self.schedule, self.builder
        squares, vector = schedule.squares, schedule.vector
        assert squares is not None  # noqa: S101 - narrows the type for the checker
        assert vector is not None  # noqa: S101 - the same
        axis, atom = sizes.variable(squares.axis), sizes.variable(vector)
        first = atoms.pop(axis) * schedule.lanes
        after = first + schedule.lanes
        extent = extents[squares.axis]
        with b.if_(after <= extent):
            level = outside.child(atoms | {sizes.variable(squares.number): first})
            places = [squares.number + k for k in range(schedule.lanes)]
            copies = [members_at(schedule.members, squares.axis, at) for at in places]
            self._hoist(level, [m for c in copies for m in c], [vector], unrolled=False)
            for position, lanes, mask in self._vector_loop(low, high, vector):
                if mask is None:
                    inside = level.child({atom: position}, vector=atom, lanes=lanes)
                    if squares.transposes_result:
                        store_transposed(b, inside, [m for (m,) in copies])
                        continue
                    ask_for_ends(b, inside, [m for c in copies for m in c])
                    known = transposed_loads(b, inside, squares, lanes)
                    inside = inside.child(values=known, vector=atom, lanes=lanes)
                    self._write_row(inside, copies, extents)
                    continue
                with b.for_(first, after) as at:
                    apart = outside.child(atoms | {axis: at, atom: position})
                    inside = apart.child(vector=atom, lanes=lanes, mask=mask)
                    self._write_row(inside, [schedule.members], extents)
        with b.else_():
            for position, lanes, mask in self._vector_loop(low, high, vector):
                # All of the rest read the same lines, which are still near then.
                with b.for_(first, extent) as at:
                    apart = outside.child(atoms | {axis: at, atom: position})
                    inside = apart.child(vector=atom, lanes=lanes, mask=mask)
                    self._write_row(inside, [schedule.members], extents)

    def _write_interleaved(
        self,
        outside: Expression,
        atoms: dict[Atom, Operand],
        members: list[Member],
        vector: Dim,
        low: Operand,
        high: Operand,
    ) -> None:
        """A block with all neighbours that lie between the lanes."""
        axis = self.schedule.interleaved
        assert axis is not None  # noqa: S101 - narrows the type for the checker
        own, atom = sizes.variable(axis), sizes.variable(vector)
        level = outside.child({a: x for a, x in atoms.items() if a is not own})
        self._hoist(level, members, [vector], unrolled=False)
        for position, lanes, mask in self._vector_loop(low, high, vector):
            inside = level.child({atom: position}, vector=atom, lanes=lanes, mask=mask)
            store_interleaved(self.builder, inside, members)

    def _hoist(
        self, level: Expression, members: Sequence[Member], moving: list[Dim], *, unrolled: bool
    ) -> None:
        """Write what none of the axes changes. A block has outer indices, perhaps no inner ones."""
        atoms, own = _atoms_of(moving), loads_of_members(members, self.schedule.by_buffer)
        inner = _atoms_of(self.schedule.inner)
        for member in members:
            bodies = member.unrolled if unrolled and member.unrolled else [member.body]
            level.hoist(bodies, atoms, own, inner if member.stage.full else frozenset())

    def _write_scratch_places(self, outside: Expression, places: dict[Tensor, Place]) -> None:
        b = self.builder
        offset: Dim = 0
        for member in self.schedule.members:
            if not member.in_scratch:
                continue
            pointer = b.offset(b.context("scratch"), outside.dim(offset))
            buffer = member.stage.root.buffer
            places[buffer] = Place(pointer, self.schedule.strides[buffer])
            row = sizes.product(map(extent_of, self.schedule.inner))
            size = row * buffer.dtype.size_bytes
            offset = offset + integer.ceildiv(size, 64) * 64

    def _unflatten(
        self,
        outside: Expression,
        block: Operand,
        chunks: Operand,
    ) -> tuple[dict[Atom, Operand], Operand]:
        b = self.builder
        rest: Operand = block
        chunk: Operand = b.constant(block.type, 0)
        if not (isinstance(chunks, Literal) and chunks.value == 1):
            rest, chunk = b.parted(rest, chunks)
        axes = self.schedule.block_axes
        found = b.coordinates(rest, [outside.dim(self.schedule.block_count(a)) for a in axes])
        return dict(zip(map(sizes.variable, axes), found, strict=True)), chunk

    def _chunk_bounds(self, chunk: Operand, extent: Operand) -> tuple[Operand, Operand]:
        b = self.builder
        if self.schedule.chunks() == 1:
            return b.constant(chunk.type, 0), extent
        low = chunk * self.schedule.chunk
        return low, b.min(low + self.schedule.chunk, extent)

    def _vector_loop(
        self, low: Operand, high: Operand, variable: Dim, sums: _Sums | None = None
    ) -> Iterator[tuple[Operand, int, Operand | None]]:
        """Full vectors from `low` to `high`, then one masked; each item is a loop body to fill.

        In runs, if the axis has them: what is masked is one of its own.
        """
        b, lanes, sums = self.builder, self.schedule.lanes, sums or []
        if lanes == 1:
            yield from ((i, 1, None) for i in self._steps(variable, low, high, sums))
            return
        extent = extent_of(variable)
        if isinstance(low, Literal) and isinstance(high, Literal):
            extent = int(high.value) - int(low.value)
        if divisible(extent, lanes):
            yield from ((i, lanes, None) for i in self._steps(variable, low, high, sums, lanes))
            return
        end = self._end_of_full(low, high, lanes)
        if not (isinstance(end, Literal) and end.value == 0):
            yield from ((i, lanes, None) for i in self._steps(variable, low, end, sums, lanes))
        rest = high - end
        with b.if_(rest > 0), _apart(sums if self._has_runs(variable) else []):
            yield end, lanes, b.tail_mask(rest, lanes)

    def _has_runs(self, axis: Dim) -> bool:
        run = self.schedule.run
        return run is not None and run[0] is axis

    def _steps(
        self, axis: Dim, low: Operand, high: Operand, sums: _Sums, step: int = 1
    ) -> Iterator[Operand]:
        """A loop along an axis, in runs that are summed apart if it has them."""
        run, b = self.schedule.run, self.builder
        if not sums or run is None or run[0] is not axis:
            with b.for_(low, high, step) as i:
                yield i
            return
        with b.for_(low, high, run[1]) as first, _apart(sums):
            end = first + run[1]
            with b.for_(first, end if run[1] == step else b.min(end, high), step) as i:
                yield i

    def _lane_loop(
        self, low: Operand, high: Operand, variable: Dim
    ) -> Iterator[tuple[Operand, int, Operand | None]]:
        """`_vector_loop`, but one element is no vector: places at a border do not vary along it."""
        if _is_zero(low) and isinstance(high, Literal) and high.value == 1:
            yield low, 1, None
        else:
            yield from self._vector_loop(low, high, variable)

    def _end_of_full(self, low: Operand, high: Operand, step: int) -> Operand:
        """Where steps of so many elements, a power of two, end that fit between two places."""
        b = self.builder
        count = high if _is_zero(low) else high - low
        full: Operand
        if isinstance(count, Literal):
            full = b.constant(count.type, int(count.value) // step * step)
        else:
            full = b.lift(count, memory_type(dtypes.INT64)) & -step
        return full if _is_zero(low) else low + full

    # -- one row ------------------------------------------------------------------------------

    def _write_row(
        self, level: Expression, copies: list[list[Member]], extents: dict[Dim, Operand]
    ) -> None:
        """All passes for one value of the outer variables (or one vector of them), or a few."""
        known: dict[Scalar, Operand] = {}
        members = [m for copy in copies for m in copy]
        for number in range(1 + max(m.level for m in members)):
            here = [m for m in members if m.level == number]
            scalars = [m for m in here if not m.stage.full and m.stage.kind == "map"]
            row = self._write_scalars(level, scalars, known)
            full = [m for m in here if m.stage.full]
            if full:
                self._write_pass(row, full, extents, known)

    def _write_scalars(
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

    def _write_pass(
        self,
        row: Expression,
        members: list[Member],
        extents: dict[Dim, Operand],
        known: dict[Scalar, Operand],
    ) -> None:
        own = frozenset(load(m.stage.root.buffer, m.indices) for m in members)
        written_out = all(m.unrolled for m in members)
        inner = _atoms_of(self.schedule.inner)
        row.hoist([m.body for m in members], inner, own, addresses=not written_out)
        lanes = self.schedule.lanes if self.schedule.vector_inside else row.lanes
        accumulators = {
            m: Accumulator(
                self.builder, m.stage.kind, m.stage.root.tensor.dtype, m.body.dtype, lanes
            )
            for m in members
            if m.stage.kind != "map"
        }
        if written_out:
            for inside in self._tap_rows(row, extents):
                self._write_taps(inside, accumulators)
        else:
            sums = [a for a in accumulators.values() if a.is_float_sum]
            if self.schedule.run is not None:
                for accumulator in sums:
                    accumulator.begin_runs()
            for inside in self._nest(row, self.schedule.walked(), extents, sums):
                self._write_element(inside, members, accumulators)
        for member, accumulator in accumulators.items():
            value = accumulator.finish(horizontal=self.schedule.vector_inside)
            known[load(member.stage.root.buffer, member.indices)] = value
            if member.in_memory:
                at_end = row.child(vector=row.vector, lanes=row.lanes, mask=row.mask)
                at_end.store(member.stage.root.buffer, member.indices, value)

    def _tap_rows(self, row: Expression, extents: dict[Dim, Operand]) -> Iterator[Expression]:
        """Where taps are written out: once, or in the loop over their rows."""
        axis = self.schedule.tap_rows
        if axis == 0:
            yield row
            return
        with self.builder.for_(0, extents[axis]) as k:
            at = {sizes.variable(axis): k}
            yield row.child(at, vector=row.vector, lanes=row.lanes, mask=row.mask)

    def _write_taps(self, row: Expression, accumulators: dict[Member, Accumulator]) -> None:
        """Reductions that are written out, tap by tap: neighbours share what they read.

        A condition that all of them have in common is asked once for the taps that have it.
        """
        b = self.builder
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

    def _nest(
        self, level: Expression, rest: list[Dim], extents: dict[Dim, Operand], sums: _Sums
    ) -> Iterator[Expression]:
        """Loops in each other; each item is the body of the innermost, to fill."""
        if not rest:
            yield level
            return
        for low, high in self._parts(rest[0], extents[rest[0]]):
            yield from self._loop(level, low, high, rest, extents, sums)

    def _parts(self, axis: Dim, extent: Operand) -> Iterator[tuple[Operand, Operand]]:
        """Bounds of the loop over an axis; each item is where that loop is to be written."""
        zero = self.builder.constant(memory_type(dtypes.INT64), 0)
        if axis not in self.schedule.in_pieces:
            yield zero, extent
            return
        with self.builder.pieces(zero, extent, PIECE) as (low, high):
            yield low, high

    def _loop(
        self,
        level: Expression,
        low: Operand,
        high: Operand,
        rest: list[Dim],
        extents: dict[Dim, Operand],
        sums: _Sums,
    ) -> Iterator[Expression]:
        variable, *further = rest
        atom = sizes.variable(variable)
        if variable is self.schedule.vector:
            for position, lanes, mask in self._vector_loop(low, high, variable, sums):
                inside = level.child({atom: position}, vector=atom, lanes=lanes, mask=mask)
                yield from self._nest(inside, further, extents, sums)
            return
        for i in self._steps(variable, low, high, sums):
            inside = level.child({atom: i}, vector=level.vector, lanes=level.lanes, mask=level.mask)
            yield from self._nest(inside, further, extents, sums)

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
                mask = inside.mask if self.schedule.vector_inside else None
                if member.stage.kind.startswith("arg"):
                    position = level.dim(member.position)
                    accumulators[member].add(level.scalar(member.body), position, mask)
                else:
                    accumulators[member].add_value(level, member.body, mask)
                continue
            if member.in_memory or member.in_scratch:
                level.store_element(member.stage.root.buffer, member.indices, member.body)
            values[load(member.stage.root.buffer, member.indices)] = level.scalar(member.body)


def _apart(sums: _Sums) -> ExitStack:
    """A context in which the sums gather what they take in apart from what they have."""
    contexts = ExitStack()
    for accumulator in sums:
        contexts.enter_context(accumulator.run())
    return contexts


def _atoms_of(axes: list[Dim]) -> frozenset[Atom]:
    return frozenset(a for a in map(sizes.as_atom, axes) if a is not None)


def _is_zero(x: Operand) -> bool:
    return isinstance(x, Literal) and x.value == 0
