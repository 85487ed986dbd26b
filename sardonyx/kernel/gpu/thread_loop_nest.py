"""A `LoopNest` group for thread blocks: each thread has vectors of its own, 16 bytes wide.

Two forms. In `PointKernel` lanes lie along an outer axis, and every thread computes a few elements
of it. In `LineKernel` they lie along the inner axis: a warp, or a thread block, has a line in its
registers from the first pass to the last, and reductions exchange words between threads.

Loop nest of `PointKernel`::

    parallel block in 0..ceil(vectors / THREADS):
        flat = block * THREADS + thread
        for number in levels, i in inner: acc[lanes] = reduce(acc[lanes], body[flat, i])
        out[flat] = body(acc)

Loop nest of `LineKernel`; pieces of a line are written out::

    parallel block in 0..lines:                           # a line of each of WARPS warps, if short
        piece[number] = line[(thread + number * sharing) * lanes:]
        for number in levels:
            acc = reduce(pieces), shared by all threads of the line
            out[piece] = body(piece, acc)
"""

from __future__ import annotations

from sardonyx.base import integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.reductions import Accumulator
from sardonyx.kernel.gpu.tile_copy import unflatten
from sardonyx.kernel.language.alignment import divisible, runs
from sardonyx.kernel.language.compiled import Kernel, PerBlock, symbols_of
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.thread_blocks import ThreadBlocks
from sardonyx.kernel.language.threads import ThreadBuilder
from sardonyx.kernel.language.types import I1, I32
from sardonyx.kernel.loops.axis_loops import AxisLoops
from sardonyx.kernel.loops.block_copies import copies_of
from sardonyx.kernel.loops.block_sizes import BlockSizes, Tiling
from sardonyx.kernel.loops.loop_nest_schedule import LoopNestSchedule
from sardonyx.kernel.loops.member import Member
from sardonyx.kernel.loops.nest_context import NestContext, begin_loop_nest
from sardonyx.kernel.loops.row_passes import RowPasses
from sardonyx.plan.axes import extent_of, offset_of
from sardonyx.plan.groups import LoopNest
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of

#: Bytes that a thread reads at once, and most lanes of its vectors.
_ACCESS_BYTES, _MOST_LANES = 16, 8
#: Thread blocks of a multiprocessor that may have all registers between them.
_FEW_BLOCKS = 2
#: Elements of a line that a thread holds: a warp takes a line up to the first number.
_FEW, _MOST = 32, 64


def thread_form(
    group: LoopNest,
    strides: dict[Tensor, tuple[Dim, ...]],
    tiling: Tiling,
    block_sizes: BlockSizes,
    name: str,
) -> PointKernel | LineKernel | None:
    """The kernel of a group for thread blocks; None if it has another form.

    Args:
        group: What to compute.
        strides: Elements per step along each axis, for every buffer.
        tiling: What is known of the device.
        block_sizes: How much a block does.
        name: Symbol name.
    """
    schedule = LoopNestSchedule.fitting(group, strides, _MOST_LANES, block_sizes)
    if schedule.vector is None or schedule.endless:
        return None
    if not schedule.vector_inside:
        if any(m.in_scratch for m in schedule.nest.members):
            return None
        return PointKernel(schedule, tiling, name)
    length = extent_of(schedule.vector)
    positions = any(m.stage.kind.startswith("arg") for m in schedule.nest.members)
    if positions or len(schedule.nest.inner) > 1 or not isinstance(length, int) or length < 1:
        return None
    return (
        LineKernel(schedule, tiling, name)
        if length <= _MOST * tiling.thread_blocks.threads
        else None
    )


class ThreadLanes:
    """The axis of the lanes, along which each thread has vectors of its own.

    Args:
        schedule: How the kernel goes over the group's axes.
        tiling: What is known of the device.
    """

    def __init__(self, schedule: LoopNestSchedule, tiling: Tiling) -> None:
        assert schedule.vector is not None  # noqa: S101 - `thread_form` saw to it
        self.schedule, self.tiling, self.device = schedule, tiling, tiling.thread_blocks
        self.vector: Dim = schedule.vector
        self.axis, self.length = sizes.variable(schedule.vector), extent_of(schedule.vector)

    def begin(self, name: str) -> NestContext:
        """A kernel without statements."""
        return begin_loop_nest(self.schedule, lambda types: ThreadBuilder(name, types, self.device))

    def per_block(self, lanes: int) -> PerBlock:
        """What a block does, of vectors of so many lanes."""
        return ("threads", self.device.threads), ("elements of a thread", lanes)

    def widest(self) -> int:
        """Lanes of the narrowest type that is walked along the axis, as far as they fit."""
        widths = [_ACCESS_BYTES]
        for member in self.schedule.nest.members:
            tensors = [(x.tensor, x.at) for x in loads_of(member.body)]
            if member.in_memory:
                tensors.append((member.stage.root.buffer, member.indices))
            for tensor, at in tensors:
                offset = offset_of(self.schedule.nest.strides[tensor], at)
                if sizes.step_along(offset, self.axis) == 1:
                    widths.append(tensor.dtype.size_bytes)
        lanes = min(_MOST_LANES, _ACCESS_BYTES // min(widths))
        while lanes > 1 and not divisible(self.length, lanes):
            lanes //= 2
        return lanes

    def vector_at(self, level: Expression, position: Operand, lanes: int) -> Expression:
        """An emitter for a vector of so many lanes from a place on."""
        inside = level.child({self.axis: position}, vector=self.axis, lanes=lanes)
        if lanes > 1:
            inside.aligned = lambda offset: self.tiling.aligned and runs(offset, self.axis, lanes)
        return inside


def _builder(c: NestContext) -> ThreadBuilder:
    assert isinstance(c.b, ThreadBuilder)  # noqa: S101 - `ThreadLanes.begin` made it
    return c.b


def _thread_of_block(b: ThreadBuilder, device: ThreadBlocks) -> Operand:
    """The number of a thread in its thread block."""
    return b.warp_of_block() * device.subgroup_size + b.thread()


class PointKernel:
    """Lanes along an outer axis, each thread a vector of them.

    Where too few threads would have work, vectors are shorter. If a run decides that, and elements
    are sums that are worth it (windows), the kernel has both forms.

    Attributes:
        short: Lanes where few threads have work; 0 if there is one form.

    Args:
        schedule: How the kernel goes over the group's axes.
        tiling: What is known of the device.
        name: Symbol name.
    """

    def __init__(self, schedule: LoopNestSchedule, tiling: Tiling, name: str) -> None:
        self.schedule, self.name, self.along = schedule, name, ThreadLanes(schedule, tiling)
        self.lanes, self.short = self.along.widest(), 0
        least = self._least_lanes()
        if isinstance(self._vectors(1), int):
            self.lanes = least
        elif least < self.lanes and schedule.nest.inner:
            self.short = least
        schedule.lanes = self.lanes

    def build(self) -> Kernel:
        """The kernel, with what it asks of its caller.

        Where few threads have much to read, what counts is how many loads are under way. An
        assembler that keeps registers for threads that do not come has fewer.
        """
        s, device = self.schedule, self.along.device
        c = self.along.begin(self.name)
        self._write(c)
        kernel = Kernel(
            c.b.program, c.arguments, self._blocks(), s.cost_ns(), c.scratch_bytes,
            per_block=self.along.per_block(self.lanes),
        )  # fmt: skip
        if s.nest.inner and isinstance(kernel.blocks, int):
            of_each = -(-kernel.blocks // (device.subgroups * self.along.tiling.processors))
            kernel.program.resident = max(1, of_each) if of_each <= _FEW_BLOCKS else 0
        return kernel

    def _least_lanes(self) -> int:
        """Of vectors with which all threads have work, even where sizes of a run are 1."""
        lanes = self.lanes
        while lanes > 1:
            count = self._vectors(lanes)
            symbols = {atom.name: 1 for atom in symbols_of(count)}
            if sizes.evaluate(count, symbols) >= self._most_threads:
                break
            lanes //= 2
        return lanes

    @property
    def _most_threads(self) -> int:
        """Threads that the device has room for."""
        return self.along.tiling.processors * self.along.device.threads

    def _vectors(self, lanes: int) -> Dim:
        along = integer.floordiv(self.along.length, lanes)
        counts = map(self.schedule.block_count, self.schedule.block_axes)
        return sizes.product((*counts, along))

    def _blocks(self) -> Dim:
        long = self._blocks_of(self.lanes)
        if not self.short:
            return long
        is_many = integer.minimum(
            1, integer.floordiv(self._vectors(self.lanes), self._most_threads)
        )
        is_few = 1 - is_many
        short = self._blocks_of(self.short)
        return is_many * long + is_few * short

    def _blocks_of(self, lanes: int) -> Dim:
        device = self.along.device
        return integer.ceildiv(self._vectors(lanes), device.threads) * device.subgroups

    def _write(self, c: NestContext) -> None:
        s, b, outside, device = self.schedule, _builder(c), c.outside, self.along.device
        every = [*s.nest.outer, *s.nest.inner]
        c.hoist(outside, s.nest.members, every)
        extents = {v: outside.dim(extent_of(v)) for v in every}
        counts = [outside.dim(s.block_count(axis)) for axis in s.block_axes]
        forms = [
            (n, outside.dim(integer.floordiv(self.along.length, n)), outside.dim(self._vectors(n)))
            for n in (self.lanes, self.short)
            if n
        ]
        rows = RowPasses(c, AxisLoops(s, b), extents)
        first = _thread_of_block(b, device)
        with b.parallel() as block:
            flat = block * device.threads + first

            def write(lanes: int, along: Operand, total: Operand) -> None:
                s.lanes = lanes
                with b.if_(flat < total):
                    self._write_vector(c, rows, b.coordinates(flat, [*counts, along]))

            if not self.short:
                write(*forms[0])
                return
            long, short = forms
            with b.if_(long[-1] < self._most_threads):
                write(*short)
            with b.else_():
                write(*long)

    def _write_vector(self, c: NestContext, rows: RowPasses, found: list[Operand]) -> None:
        """What one thread computes, by the coordinates of its vector."""
        s, along = self.schedule, self.along
        *found, place = found
        atoms = dict(zip(map(sizes.variable, s.block_axes), found, strict=True))
        position = place * s.lanes
        for block in copies_of(c, atoms, s.nest.members):
            level, copies = block.level, block.copies
            members = [m for copy in copies for m in copy]
            c.hoist(level, members, [along.vector, *s.nest.inner], unrolled=True)
            rows.write(along.vector_at(level, position, s.lanes), copies)


@dataclass(frozen=True, slots=True)
class LineShape:
    """How threads share a line.

    Attributes:
        size: Elements of the line.
        in_subgroup: Whether a warp has one; else a thread block does.
        sharing: Threads that have a line between them.
        lanes: Of their vectors.
        pieces: Vectors of each.
    """

    size: int
    in_subgroup: bool
    sharing: int
    lanes: int
    pieces: int


def _line_shape(along: ThreadLanes) -> LineShape:
    size, d = along.length, along.device
    assert isinstance(size, int)  # noqa: S101 - `thread_form` saw to it
    in_subgroup = size <= _FEW * d.subgroup_size
    sharing = d.subgroup_size if in_subgroup else d.threads
    lanes = along.widest()
    while lanes > 1 and lanes * sharing > size:
        lanes //= 2
    return LineShape(size, in_subgroup, sharing, lanes, -(-size // (lanes * sharing)))


class LineKernel:
    """Lanes along the inner axis: a line stays in the registers of a warp or a thread block.

    Args:
        schedule: How the kernel goes over the group's axes.
        tiling: What is known of the device.
        name: Symbol name.
    """

    def __init__(self, schedule: LoopNestSchedule, tiling: Tiling, name: str) -> None:
        self.schedule, self.name, self.along = schedule, name, ThreadLanes(schedule, tiling)
        self.shape = _line_shape(self.along)
        schedule.lanes = self.shape.lanes

    def build(self) -> Kernel:
        """The kernel, with what it asks of its caller."""
        s, shape, subgroups = self.schedule, self.shape, self.along.device.subgroups
        c = self.along.begin(self.name)
        _LineWriter(c, self.along, shape).write()
        lines = sizes.product(map(extent_of, s.nest.outer))
        blocks = integer.ceildiv(lines, subgroups) if shape.in_subgroup else lines
        lines_of_block = subgroups if shape.in_subgroup else 1
        return Kernel(
            c.b.program, c.arguments, blocks * subgroups, s.cost_ns(), c.scratch_bytes,
            per_block=(("lines", lines_of_block), *self.along.per_block(shape.lanes)),
        )  # fmt: skip


class _LineWriter:
    """Writes the lines of a kernel.

    Args:
        context: Of the kernel.
        along: The axis of the lanes.
        shape: How threads share a line.
    """

    def __init__(self, context: NestContext, along: ThreadLanes, shape: LineShape) -> None:
        self.context, self.along, self.shape = context, along, shape
        self.threads, self.device = _builder(context), along.device

    def write(self) -> None:
        """All blocks."""
        c, b = self.context, self.threads
        s, outside, in_subgroup = c.schedule, c.outside, self.shape.in_subgroup
        c.hoist(outside, s.nest.members, [*s.nest.outer, *s.nest.inner])
        for axis in s.nest.outer:
            outside.dim(extent_of(axis))
        lines = outside.dim(sizes.product(map(extent_of, s.nest.outer)))
        reductions = sum(m.stage.full and m.stage.kind != "map" for m in s.nest.members)
        if not in_subgroup and reductions:
            self.split_k = b.shared_by_block(8 * self.device.subgroups * reductions)
        self.warp, self.number = b.warp_of_block(), b.thread()
        self.first = self.number if in_subgroup else _thread_of_block(b, self.device)
        with b.parallel() as block:
            line = block
            if in_subgroup:
                line = block * self.device.subgroups + self.warp
            with b.if_(line < lines):
                level = outside.child(unflatten(b, outside, line, s.nest.outer))
                c.hoist(level, s.nest.members, s.nest.inner)
                self._write_line(level)
            if not in_subgroup and reductions:
                b.barrier()

    def _write_line(self, level: Expression) -> None:
        b, s, shape = self.threads, self.context.schedule, self.shape
        axis, lanes = self.along.axis, shape.lanes
        pieces, self.inside = [], []
        for number in range(shape.pieces):
            vector = self.first + number * shape.sharing
            position = vector * lanes
            whole = (number + 1) * shape.sharing * lanes <= shape.size
            self.inside.append(None if whole else position < shape.size)
            if not whole:  # what is read there counts nothing
                position = b.min(position, shape.size - lanes)
            pieces.append(self.along.vector_at(level, position, lanes))
        known: dict[Scalar, Operand] = {}
        self.exchanges = 0
        for number in range(1 + max(m.level for m in s.nest.members)):
            here = [m for m in s.nest.members if m.level == number]
            for member in (m for m in here if not m.stage.full):
                value = level.scalar(member.body)
                self._give(level, member, value, known)
                level = level.child(values=known)
            pieces = [p.child(values=known, vector=axis, lanes=lanes) for p in pieces]
            pieces, found = self._pass(pieces, [m for m in here if m.stage.full])
            for member, accumulator in found:
                self._give(level, member, self._together(accumulator), known)
            level = level.child(values=known)

    def _pass(
        self, pieces: list[Expression], members: list[Member]
    ) -> tuple[list[Expression], list[tuple[Member, Accumulator]]]:
        """One pass over the pieces of a line; also where the next one finds its values."""
        b, axis, lanes = self.threads, self.along.axis, self.shape.lanes
        sums: list[tuple[Member, Accumulator]] = []
        for member in members:
            stage = member.stage
            if stage.kind != "map":
                kinds = stage.root.tensor.dtype, member.body.dtype
                sums.append((member, Accumulator(b, stage.kind, *kinds, lanes)))
        accumulators = dict(sums)
        following: list[Expression] = []
        written: list[tuple[Expression, Member, Operand, Operand | None]] = []
        for piece, inside in zip(pieces, self.inside, strict=True):
            level = piece
            for member in members:
                if member in accumulators:
                    mask = None if inside is None else b.splat(inside, lanes)
                    accumulators[member].add_value(level, member.body, mask)
                    continue
                value = level.scalar(member.body)
                if member.in_memory:
                    written.append((level, member, level.stored(member.body), inside))
                own = {load(member.stage.root.buffer, member.indices): value}
                level = level.child(values=own, vector=axis, lanes=lanes)
            following.append(level)
        # All is read before anything is written: no read waits for a write.
        for each in written:
            self._store(*each)
        return following, sums

    def _store(
        self, level: Expression, member: Member, stored: Operand, inside: Operand | None
    ) -> None:
        """Write an element, or the lanes, where they count."""
        buffer = member.stage.root.buffer
        if inside is None:
            level.write(buffer, member.indices, stored)
            return
        with self.threads.if_(inside):
            here = level.child(vector=level.vector, lanes=level.lanes)
            here.write(buffer, member.indices, stored)

    def _give(
        self, level: Expression, member: Member, value: Operand, known: dict[Scalar, Operand]
    ) -> None:
        """What a line has one of: later passes read it, and one thread writes it."""
        b = self.threads
        known[load(member.stage.root.buffer, member.indices)] = value
        if member.in_memory:
            with b.if_(b.eq(self.first, 0)):
                level.child().store(member.stage.root.buffer, member.indices, value)

    def _together(self, accumulator: Accumulator) -> Operand:
        """One value of all threads of a line."""
        b = self.threads
        value: Operand = accumulator.finish(horizontal=True)
        distance = self.device.subgroup_size // 2
        while distance:
            value = accumulator.joined(value, b.across(value, distance))
            distance //= 2
        if self.shape.in_subgroup:
            return value
        kind = value.type
        place = b.offset(self.split_k, 8 * self.device.subgroups * self.exchanges)
        self.exchanges += 1
        with b.if_(b.eq(self.number, 0)):
            b.store(b.convert(value, I32) if kind == I1 else value, place, self.warp)
        b.barrier()
        held = I32 if kind == I1 else kind
        parts = [b.convert(b.load(held, place, k), kind) for k in range(self.device.subgroups)]
        value = parts[0]
        for part in parts[1:]:
            value = accumulator.joined(value, part)
        return value
