"""A `Rows` group as a kernel: blocks over the outer axes, passes over the inner ones.

Without inner axes this is a pointwise kernel. With them, each pass runs over a whole row:
reductions gather in registers, maps write. Lanes lie along an inner axis, or along an outer one
where that is the contiguous one (pooling over channels-last images): then every lane is a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from sardonyx.base import dtypes, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.builder import Builder
from sardonyx.kernel.compiled import Kernel, Parameters, Place
from sardonyx.kernel.expression import Expression
from sardonyx.kernel.program import Constant, Operand
from sardonyx.kernel.reductions import Accumulator
from sardonyx.kernel.types import memory_type
from sardonyx.plan.axes import Access, Axes, dims_of, extent_of, offset_of
from sardonyx.plan.groups import Rows, Stage
from sardonyx.plan.inline import cost_of
from sardonyx.tensor.scalar import Scalar, load, loads_of, rewrite
from sardonyx.tensor.tensor import Tensor

#: Elements of the vector axis that one block covers when nothing else makes blocks.
_CHUNK = 4096
#: Longest reduction of lanes that is written out instead of looped over.
_UNROLL = 50


@dataclass(eq=False, slots=True)
class _Member:
    """A stage after its axes were split and merged."""

    stage: Stage
    body: Scalar
    indices: tuple[Dim, ...]
    position: Dim
    level: int = 0
    in_memory: bool = True
    in_scratch: bool = False
    unrolled: list[Scalar] | None = None


class RowsKernel:
    """Builds the kernel of one group.

    Args:
        group: What to compute.
        strides: Elements per step along each axis, for every buffer that is read or written.
        lanes: Vector length for 32-bit elements.
        name: Symbol name.
        scratch: Whether rows may be handed from pass to pass in the thread's scratch. Where every
            lane is a row of its own they need memory instead.
    """

    def __init__(
        self,
        group: Rows,
        strides: dict[Tensor, tuple[Dim, ...]],
        lanes: int,
        name: str,
        *,
        scratch: bool = True,
    ) -> None:
        self.group, self.name, self.scratch = group, name, scratch
        self.strides = dict(strides)
        self._split_axes()
        self._set_levels()
        self._merge_axes()
        self.vector = self._choose_vector()
        self.vector_inside = self.vector is not None and self.vector in self.inner
        self.lanes = self._lanes(lanes)
        self.scratch_bytes: Dim = 0
        self._unroll()

    @staticmethod
    def form(
        group: Rows, strides: dict[Tensor, tuple[Dim, ...]], lanes: int, name: str
    ) -> RowsKernel:
        """The form that fits the group."""
        form = RowsKernel(group, strides, lanes, name)
        if not form.vector_inside and any(m.in_scratch for m in form.members):
            form = RowsKernel(group, strides, lanes, name, scratch=False)
        return form

    # -- preparation --------------------------------------------------------------------------

    def _split_axes(self) -> None:
        stages = self.group.stages
        position: Dim = 0
        for i, extent in ((i, extent_of(i)) for i in self.group.inner):
            position = sizes.add(sizes.multiply(position, extent), i)
        self.axes = Axes(
            (self.group.outer, self.group.inner),
            [s.body for s in stages],
            [(s.root.buffer, s.indices) for s in stages],
        )
        self.axes.split()
        position = sizes.substitute(position, self.axes.values)
        self.members = [
            _Member(s, self.axes.bodies[k], self.axes.stores[k][1], position)
            for k, s in enumerate(stages)
        ]

    def _set_levels(self) -> None:
        """In which pass each member runs, and who needs memory between passes."""
        by_buffer: dict[Tensor, _Member] = {m.stage.root.buffer: m for m in self.members}
        for member in self.members:
            for x in loads_of(member.body):
                source = by_buffer.get(x.tensor)
                if source is not None:
                    after = source.level + (source.stage.kind != "map")
                    member.level = max(member.level, after)
        last: dict[_Member, int] = {}
        for member in self.members:
            for x in loads_of(member.body):
                source = by_buffer.get(x.tensor)
                if source is not None:
                    last[source] = max(last.get(source, 0), member.level)
        for member in self.members:
            stage = member.stage
            carried = stage.full and stage.kind == "map" and last.get(member, 0) > member.level
            member.in_memory = stage.stored or (carried and not self.scratch)
            member.in_scratch = carried and not member.in_memory
            if member.in_scratch:
                self._place_in_scratch(member)

    def _place_in_scratch(self, member: _Member) -> None:
        """Give the buffer row-major strides over the inner axes and none over the outer."""
        inner = [sizes.as_atom(i) for i in self.group.inner]
        step: Dim = 1
        by_atom: dict[Atom | None, Dim] = {}
        for variable, atom in reversed(list(zip(self.group.inner, inner, strict=True))):
            by_atom[atom] = step
            step = sizes.multiply(step, extent_of(variable))
        self.strides[member.stage.root.buffer] = tuple(
            by_atom.get(sizes.as_atom(i), 0) for i in member.stage.indices
        )

    def _merge_axes(self) -> None:
        bodies = [m.body for m in self.members]
        stores = [(m.stage.root.buffer, m.indices) for m in self.members]
        needs_position = any(m.stage.kind.startswith("arg") for m in self.members)
        axes = Axes(self.axes.spaces, bodies, stores)
        given: dict[Tensor, _Member] = {m.stage.root.buffer: m for m in self.members}

        if needs_position:
            axes.spaces, held = [axes.spaces[0]], axes.spaces[1]
            axes.merge(self.strides)
            axes.spaces.append(held)
        else:
            axes.merge(self.strides)
        self.outer, self.inner = axes.spaces
        for k, member in enumerate(self.members):
            member.body, member.indices = axes.bodies[k], axes.stores[k][1]
        self._given = given

    def _choose_vector(self) -> Dim | None:
        """The axis with the most contiguous accesses; inner axes win ties."""
        best: tuple[float, int] | None = None
        chosen: Dim | None = None
        candidates = [*reversed(self.inner), *reversed(self.outer)]
        for rank, variable in enumerate(candidates):
            score = self._score(variable)
            if best is None or (score, -rank) > best:
                best, chosen = (score, -rank), variable
        return chosen

    def _score(self, variable: Dim) -> float:
        atom = sizes.variable(variable)
        score = 0.0
        for member in self.members:
            accesses: list[Access] = [(x.tensor, x.at) for x in loads_of(member.body)]
            if member.in_memory:
                accesses.append((member.stage.root.buffer, member.indices))
            for tensor, at in accesses:
                if tensor in self._given and not self._given[tensor].in_memory:
                    continue
                offset = offset_of(self.strides[tensor], at)
                linear = sizes.coefficient_of(offset, atom)
                if linear is None:
                    score -= 2
                elif linear[0] == 1:
                    score += 2
                elif linear[0] != 0:
                    score -= 2
        extent = extent_of(variable)
        if isinstance(extent, int) and extent < 8:
            score -= 6
        return score

    def _lanes(self, lanes: int) -> int:
        if self.vector is None or self._score(self.vector) <= -4 * len(self.members):
            return 1
        widths = {m.stage.root.tensor.dtype.bits for m in self.members}
        for member in self.members:
            widths |= {x.tensor.dtype.bits for x in loads_of(member.body)}
        lanes = lanes // 2 if min(widths) >= 64 else lanes
        extent = extent_of(self.vector)
        while isinstance(extent, int) and lanes > extent and lanes > 1:
            lanes //= 2
        return lanes

    def _unroll(self) -> None:
        """Write out short reductions of lanes (windows), so that their conditions are hoisted."""
        extents = [extent_of(i) for i in self.inner]
        volume = sizes.product(extents)
        if self.vector_inside or not isinstance(volume, int) or not 0 < volume <= _UNROLL:
            return
        for member in self.members:
            if not member.stage.full:
                continue
            if member.stage.kind == "map" or member.stage.kind.startswith("arg"):
                return
        for member in self.members:
            if member.stage.full:
                member.unrolled = [
                    rewrite(
                        member.body, atoms=dict(zip(sizes.variables(self.inner), at, strict=True))
                    )
                    for at in itertools.product(*(range(int(e)) for e in extents))
                ]

    def _bodies(self) -> list[Scalar]:
        """What is evaluated, in order."""
        return [b for m in self.members for b in (m.unrolled or [m.body])]

    # -- sizes --------------------------------------------------------------------------------

    def _all_dims(self) -> list[Dim]:
        found: list[Dim] = [*self.outer, *self.inner]
        for member in self.members:
            found += list(dims_of(member.body))
            found += member.indices
            found += self.strides[member.stage.root.buffer]
            for x in loads_of(member.body):
                found += self.strides[x.tensor]
        return found

    def cost_ns(self) -> Dim:
        """Estimated time on one thread."""
        inner = sizes.product(map(extent_of, self.inner))
        per_row: Dim = 0
        for member in self.members:
            steps = cost_of(member.body) + 2 + 2 * len(loads_of(member.body))
            work = sizes.multiply(inner, steps) if member.stage.full else steps
            per_row = sizes.add(per_row, work)
        volume = sizes.multiply(sizes.product(map(extent_of, self.outer)), per_row)
        return sizes.ceildiv(volume, 3 * self.lanes)

    # -- the kernel ---------------------------------------------------------------------------

    def build(self) -> Kernel:
        """The kernel, with what it asks of its caller."""
        touched: list[Tensor] = []
        for member in self.members:
            for x in loads_of(member.body):
                source = self._given.get(x.tensor)
                if source is None or source.in_memory:
                    touched.append(x.tensor)
            if member.in_memory:
                touched.append(member.stage.root.buffer)
        for member in self.members:
            if member.in_scratch:
                size = member.stage.root.tensor.dtype.size_bytes
                row = sizes.product(map(extent_of, self.inner))
                needed = sizes.multiply(sizes.ceildiv(sizes.multiply(row, size), 64), 64)
                self.scratch_bytes = sizes.add(self.scratch_bytes, needed)
        self.parameters = Parameters(touched, [*self._all_dims(), self.scratch_bytes])
        self.builder = Builder(self.name, self.parameters.types(), kind="kernel")
        self._write()
        return Kernel(
            self.builder.program,
            self.parameters.arguments,
            self._blocks(),
            self.cost_ns(),
            self.scratch_bytes,
        )

    @property
    def _block_axes(self) -> list[Dim]:
        return [o for o in self.outer if o is not self.vector]

    def _chunks(self) -> Dim:
        if self.vector is None or self.vector_inside:
            return 1
        return sizes.ceildiv(extent_of(self.vector), _CHUNK)

    def _blocks(self) -> Dim:
        blocks = sizes.multiply(sizes.product(map(extent_of, self._block_axes)), self._chunks())
        # A row of no elements still has a result; a map over nothing has no work.
        return blocks

    def _write(self) -> None:
        b = self.builder
        places = self.parameters.places(b, self.strides)
        outside = Expression(b, self.parameters.atoms(b), places.__getitem__)
        self._write_scratch_places(outside, places)
        every = [*self.outer, *self.inner]
        outside.hoist(
            [m.body for m in self.members],
            frozenset(a for a in map(sizes.as_atom, every) if a is not None),
            self._member_loads(),
        )
        extents = {v: outside.dim(extent_of(v)) for v in every}
        chunks = outside.dim(self._chunks())
        with b.parallel() as block:
            atoms, chunk = self._unflatten(outside, block, extents, chunks)
            level = outside.child(atoms)
            if self.vector is None or self.vector_inside:
                self._write_row(level, extents)
                return
            vector_atom = sizes.as_atom(self.vector)
            assert vector_atom is not None  # noqa: S101 - narrows the type for the checker
            moving = frozenset(
                a for a in map(sizes.as_atom, [self.vector, *self.inner]) if a is not None
            )
            level.hoist(self._bodies(), moving, self._member_loads())
            low, high = self._chunk_bounds(chunk, extents[self.vector])
            for position, lanes, mask in self._vector_loop(low, high, self.vector):
                inside = level.child(
                    {vector_atom: position}, vector=vector_atom, lanes=lanes, mask=mask
                )
                self._write_row(inside, extents)

    def _write_scratch_places(self, outside: Expression, places: dict[Tensor, Place]) -> None:
        b = self.builder
        offset: Dim = 0
        for member in self.members:
            if not member.in_scratch:
                continue
            pointer = b.offset(b.context("scratch"), outside.dim(offset))
            buffer = member.stage.root.buffer
            places[buffer] = Place(pointer, self.strides[buffer])
            row = sizes.product(map(extent_of, self.inner))
            size = sizes.multiply(row, buffer.dtype.size_bytes)
            offset = sizes.add(offset, sizes.multiply(sizes.ceildiv(size, 64), 64))

    def _member_loads(self) -> frozenset[Scalar]:
        """Loads of values that the group itself computes."""
        found = set()
        for member in self.members:
            for x in loads_of(member.body):
                if x.tensor in self._given:
                    found.add(x)
        return frozenset(found)

    def _unflatten(
        self,
        outside: Expression,
        block: Operand,
        extents: dict[Dim, Operand],
        chunks: Operand,
    ) -> tuple[dict[Atom, Operand], Operand]:
        b = self.builder
        rest: Operand = block
        chunk: Operand = Constant(block.type, 0)
        if not (isinstance(chunks, Constant) and chunks.value == 1):
            chunk, rest = b.binary("rem", rest, chunks), b.binary("div", rest, chunks)
        atoms: dict[Atom, Operand] = {}
        axes = self._block_axes
        for k, axis in enumerate(reversed(axes)):
            atom = sizes.as_atom(axis)
            if k == len(axes) - 1:
                atoms[atom] = rest  # type: ignore[index]
            else:
                atoms[atom] = b.binary("rem", rest, extents[axis])  # type: ignore[index]
                rest = b.binary("div", rest, extents[axis])
        return atoms, chunk

    def _chunk_bounds(self, chunk: Operand, extent: Operand) -> tuple[Operand, Operand]:
        b = self.builder
        if self._chunks() == 1:
            return Constant(chunk.type, 0), extent
        low = b.binary("mul", chunk, _CHUNK)
        return low, b.min(b.binary("add", low, _CHUNK), extent)

    def _vector_loop(
        self, low: Operand, high: Operand, variable: Dim
    ) -> Iterator[tuple[Operand, int, Operand | None]]:
        """Full vectors from `low` to `high`, then one masked; each item is a loop body to fill."""
        b, lanes = self.builder, self.lanes
        if lanes == 1:
            with b.for_(low, high) as i:
                yield i, 1, None
            return
        extent = extent_of(variable)
        whole = isinstance(extent, int) and extent % lanes == 0
        if whole:
            with b.for_(low, high, lanes) as i:
                yield i, lanes, None
            return
        count = high if _is_zero(low) else b.binary("sub", high, low)
        full = (
            b.binary("and", b.lift(count, memory_type(dtypes.INT64)), -lanes)
            if not isinstance(count, Constant)
            else Constant(count.type, int(count.value) // lanes * lanes)
        )
        end = full if _is_zero(low) else b.binary("add", low, full)
        if not (isinstance(end, Constant) and end.value == 0):
            with b.for_(low, end, lanes) as i:
                yield i, lanes, None
        rest = b.binary("sub", high, end)
        with b.if_(b.compare("gt", rest, 0)):
            yield end, lanes, b.tail_mask(rest, lanes)

    # -- one row ------------------------------------------------------------------------------

    def _write_row(self, level: Expression, extents: dict[Dim, Operand]) -> None:
        """All passes for one value of the outer variables (or one vector of them)."""
        known: dict[Scalar, Operand] = {}
        for number in range(1 + max(m.level for m in self.members)):
            here = [m for m in self.members if m.level == number]
            scalars = [m for m in here if not m.stage.full]
            row = level.child(values=known, vector=level.vector, lanes=level.lanes, mask=level.mask)
            for member in scalars:
                if member.stage.kind == "map":
                    value = row.scalar(member.body)
                    known[load(member.stage.root.buffer, member.indices)] = value
                    row = level.child(
                        values=known, vector=level.vector, lanes=level.lanes, mask=level.mask
                    )
                    if member.in_memory:
                        row.store(member.stage.root.buffer, member.indices, value)
            full = [m for m in here if m.stage.full]
            if full:
                self._write_pass(row, full, extents, known)

    def _write_pass(
        self,
        row: Expression,
        members: list[_Member],
        extents: dict[Dim, Operand],
        known: dict[Scalar, Operand],
    ) -> None:
        inner_atoms = frozenset(a for a in map(sizes.as_atom, self.inner) if a is not None)
        own = frozenset(load(m.stage.root.buffer, m.indices) for m in members)
        row.hoist([m.body for m in members], inner_atoms, own)
        lanes = self.lanes if self.vector_inside else row.lanes
        accumulators = {
            m: Accumulator(
                self.builder, m.stage.kind, m.stage.root.tensor.dtype, m.body.dtype, lanes
            )
            for m in members
            if m.stage.kind != "map"
        }
        if all(m.unrolled for m in members):
            for member in members:
                for body in member.unrolled or ():
                    accumulators[member].add_value(row, body)
        else:
            for inside in self._inner_loops(row, extents):
                self._write_element(inside, members, accumulators)
        for member, accumulator in accumulators.items():
            value = accumulator.finish(horizontal=self.vector_inside)
            known[load(member.stage.root.buffer, member.indices)] = value
            if member.in_memory:
                at_end = row.child(vector=row.vector, lanes=row.lanes, mask=row.mask)
                at_end.store(member.stage.root.buffer, member.indices, value)

    def _inner_loops(self, row: Expression, extents: dict[Dim, Operand]) -> Iterator[Expression]:
        loops = [i for i in self.inner if i is not self.vector]
        if self.vector_inside:
            loops.append(self.vector)  # type: ignore[arg-type]

        def nest(level: Expression, rest: list[Dim]) -> Iterator[Expression]:
            if not rest:
                yield level
                return
            variable, *further = rest
            atom = sizes.variable(variable)
            if variable is self.vector:
                zero = Constant(memory_type(dtypes.INT64), 0)
                for position, lanes, mask in self._vector_loop(zero, extents[variable], variable):
                    yield from nest(
                        level.child({atom: position}, vector=atom, lanes=lanes, mask=mask),
                        further,
                    )
                return
            with self.builder.for_(0, extents[variable]) as i:
                inside = level.child(
                    {atom: i},
                    vector=level.vector,
                    lanes=level.lanes,
                    mask=level.mask,
                )
                yield from nest(inside, further)

        yield from nest(row, loops)

    def _write_element(
        self,
        inside: Expression,
        members: list[_Member],
        accumulators: dict[_Member, Accumulator],
    ) -> None:
        values: dict[Scalar, Operand] = {}
        for member in members:
            level = inside.child(
                values=values, vector=inside.vector, lanes=inside.lanes, mask=inside.mask
            )
            if member in accumulators:
                mask = inside.mask if self.vector_inside else None
                if member.stage.kind.startswith("arg"):
                    position = level.dim(member.position)
                    accumulators[member].add(level.scalar(member.body), position, mask)
                else:
                    accumulators[member].add_value(level, member.body, mask)
                continue
            value = level.scalar(member.body)
            values[load(member.stage.root.buffer, member.indices)] = value
            if member.in_memory or member.in_scratch:
                level.store(member.stage.root.buffer, member.indices, value)


def _is_zero(x: Operand) -> bool:
    return isinstance(x, Constant) and x.value == 0
