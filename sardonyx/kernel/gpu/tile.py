"""A `Contraction` in tiles of thread blocks: factors staged in shared memory, sums in registers.

Steps of the sum are copied ahead of their use, into as many stages as shared memory has. The
finished tile goes through shared memory, too, so that the epilogue runs over whole rows of it.
`tile_schedule` decides on axes and sizes.

Loop nest of a thread block::

    parallel block in 0..tiles * parts:
        sums[rows, columns] = 0                           # in registers of all threads
        for number in first..last:                        # copied `stages - 1` steps ahead
            left[rows, depth_tile], right[columns, depth_tile] = factors at that step
            sums += left * right^T
        for passed in 0..rows step pass_rows:
            shared[pass_rows, columns] = sums[passed:]    # all parts, where the sum is split
            for r in start..high step step:               # `lanes` columns a thread
                C[first_row + passed + r, first_column + column:] = epilogue(shared[r, column:])
"""

from __future__ import annotations

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.gpu.split_k_reduction import KPart, SplitKReduction
from sardonyx.kernel.gpu.tile_copy import Copier, CopyStep, unflatten
from sardonyx.kernel.gpu.tile_multiply import MatrixMultiplier, Multiplier, SumMultiplier
from sardonyx.kernel.gpu.tile_pipeline import TilePipeline
from sardonyx.kernel.gpu.tile_schedule import TileSchedule
from sardonyx.kernel.gpu.tile_shape import BEHIND_BYTES, GAP
from sardonyx.kernel.language.alignment import divisible, runs
from sardonyx.kernel.language.compiled import Kernel, KernelParameters
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.threads import ThreadBuilder
from sardonyx.kernel.language.types import I64
from sardonyx.plan.axes import dims_of, extent_of
from sardonyx.tensor.tensor import Buffer, buffer
from sardonyx.tensor.traverse import loads_of


class TileKernel:
    """Builds the kernel of one contraction.

    Args:
        schedule: Its axes and sizes.
        name: Symbol name.
        parts: Into how many parts the sum is cut.
        used: 1 if a run uses the kernel, else 0.

    Attributes:
        partial: Where parts of the sum meet; None if there is one part.
    """

    def __init__(self, schedule: TileSchedule, name: str, parts: Dim = 1, used: Dim = 1) -> None:
        self.schedule, self.name, self.parts, self.used = schedule, name, parts, used
        self.device = schedule.tiling.thread_blocks
        self.partial: Buffer | None = None
        if parts != 1:
            s = schedule
            # One part meets no other: it needs no memory.
            held = sizes.product((parts, integer.minimum(1, parts - 1), used))
            shape = (held, s.tiles(), s.shape.rows, s.shape.columns)
            self.partial = buffer("partial sums", shape, s.group.accumulator)
            s.strides[self.partial] = (0,) * len(shape)

    def build(self) -> Kernel:
        """The kernel; its blocks are counted in warps."""
        s = self.schedule
        bodies = (s.left.body, s.right.body, s.epilogue)
        touched = [x.buffer for body in bodies for x in loads_of(body) if x is not s.token]
        touched.append(s.group.root.buffer)
        dims: list[Dim] = [*s.lead, *s.rows, *s.columns, *s.taps, s.depth, *s.store_at]
        dims += [s.left.limit, s.right.limit, self.parts]
        if self.partial is not None:
            touched.append(self.partial)
        for tensor in touched:
            dims += s.strides.get(tensor, ()) or ()
        for body in bodies:
            dims += list(dims_of(body))
        parameters = KernelParameters(touched, dims)
        self.b = b = ThreadBuilder(self.name, parameters.types(), self.device)
        self.places = places = parameters.places(b, s.strides)
        self.outside = Expression(b, parameters.atoms(b), places.__getitem__)
        self._write()
        blocks = sizes.product((s.tiles(), self.parts, self.used, self.device.subgroups))
        work = sizes.product((s.lead_count(), s.row_count(), s.column_count(), s.steps()))
        tile = (("rows", s.shape.rows), ("columns", s.shape.columns), ("depth", s.depth_tile))
        parts = () if self.parts == 1 else (("parts of a sum", self.parts),)
        return Kernel(
            b.program, parameters.arguments, blocks, integer.ceildiv(work, 8),
            per_block=(*tile, *parts),
        )  # fmt: skip

    # -- frame --------------------------------------------------------------------------------

    def _write(self) -> None:
        s, b, dim = self.schedule, self.b, self.outside.dim
        self.thread = b.warp_of_block() * self.device.subgroup_size + b.thread()
        self.shared = b.shared_by_block(self._shared_bytes())
        maker = MatrixMultiplier if s.unit.is_matrix else SumMultiplier
        self.multiplier: Multiplier = maker(b, s)
        steps, parts = dim(s.steps()), dim(self.parts)
        each = (steps + (parts - 1)) // parts
        row_tiles, column_tiles = dim(s.row_tiles()), dim(s.column_tiles())
        tiles = dim(s.tiles())
        for axis in (*s.lead, *s.rows, *s.columns, *s.taps, s.depth):
            dim(extent_of(axis))
        with b.parallel() as block:
            tile, part = block % tiles, block // tiles
            tile_row, rest = tile % row_tiles, tile // row_tiles
            column, rest = rest % column_tiles, rest // column_tiles
            level = self.outside.child(unflatten(b, self.outside, rest, s.lead))
            first = part * each
            last = b.min(first + each, steps)
            first_row = tile_row * s.shape.rows
            first_column = column * s.shape.columns
            self.multiplier.clear()
            self._sum(level, first, last, first_row, first_column)
            self._finish(level, first_row, first_column, KPart(tile, part, tiles, parts))
            b.barrier()

    def _stage_bytes(self) -> int:
        return self.schedule.left.size_bytes + self.schedule.right.size_bytes

    def _shared_bytes(self) -> int:
        s = self.schedule
        self.pitch = s.shape.columns + GAP
        row_bytes = self.pitch * s.unit.sum.size_bytes
        self.pass_rows = s.shape.rows
        while self.pass_rows * row_bytes + BEHIND_BYTES > self.device.shared_bytes:
            self.pass_rows //= 2
        self.behind = self.pass_rows * row_bytes
        return max(s.shape.stages * self._stage_bytes(), self.behind + BEHIND_BYTES)

    # -- the sum ------------------------------------------------------------------------------

    def _sum(
        self, level: Expression, first: Operand, last: Operand, row: Operand, column: Operand
    ) -> None:
        """Sum the steps from `first` to `last`."""
        s, b = self.schedule, self.b
        copiers = [Copier(f, level, self.thread) for f in (s.left, s.right)]
        lines = [c.lines(first) for c, first in zip(copiers, (row, column), strict=True)]
        counter = _Steps(level, s, first)

        def fetch(number: Operand) -> list[CopyStep]:
            taps, depth = counter.values()
            counter.advance()
            return [CopyStep(x, taps, depth) for x in lines]

        def use(tiles: list[Operand], number: Operand) -> None:
            self.multiplier.step(*tiles)

        pipeline = TilePipeline(b, self.shared, copiers, s.shape.stages)
        pipeline.run(first, last, fetch, use)

    # -- the result ---------------------------------------------------------------------------

    def _finish(
        self, level: Expression, first_row: Operand, first_column: Operand, part: KPart
    ) -> None:
        s, b = self.schedule, self.b
        lanes = self._lanes()
        per_row = s.shape.columns // lanes
        step = max(1, self.device.threads // per_row)
        column = self.thread % per_row * lanes
        start = self.thread // per_row
        at_column = first_column + column
        n_rows, n_columns = level.dim(s.row_count()), level.dim(s.column_count())
        for passed in range(0, s.shape.rows, self.pass_rows):
            if passed:
                b.barrier()
            self.multiplier.put(self.shared, self.pitch, passed, self.pass_rows)
            b.barrier()
            low = first_row + passed
            high = b.min(n_rows - low, self.pass_rows)
            finishes: Operand = at_column < n_columns
            if self.partial is not None:
                split_k = SplitKReduction(
                    b, s, self.places[self.partial].pointer, self.shared, self.behind, self.pitch
                )
                is_last = split_k.meet(part, self.thread, start, column, step, lanes)
                finishes = finishes & is_last
            with b.if_(finishes):
                axis = sizes.variable(s.columns[-1]) if s.columns else None
                atoms = unflatten(b, level, at_column, s.columns)
                inner = level.child(atoms, vector=axis, lanes=lanes)
                inner.aligned = self._aligned if lanes > 1 else None
                moving = frozenset(map(sizes.variable, s.rows))
                inner.hoist([s.epilogue], moving, frozenset((s.token,)))
                with b.for_(start, high, step) as r:
                    place = r * self.pitch + column
                    self._row(inner, low + r, place, lanes)

    def _row(self, level: Expression, row: Operand, place: Operand, lanes: int) -> None:
        s, b = self.schedule, self.b
        size = s.unit.sum.size_bytes
        total: Operand = b.load(
            s.unit.sum.with_lanes(lanes), self.shared, place, align_bytes=lanes * size
        )
        total = b.convert(total, value_type(s.token.dtype))
        atoms: dict[Atom, Operand] = unflatten(b, level, row, s.rows)
        here = level.child(atoms, values={s.token: total}, vector=level.vector, lanes=lanes)
        here.store(s.group.root.buffer, s.store_at, here.scalar(s.epilogue))

    def _aligned(self, offset: Dim) -> bool:
        axis = sizes.variable(self.schedule.columns[-1])
        return self.schedule.tiling.aligned and runs(offset, axis, self._lanes())

    def _lanes(self) -> int:
        """Neighbouring columns that a thread finishes at once."""
        s = self.schedule
        if not s.columns:
            return 1
        lanes = 16 // s.unit.sum.size_bytes
        while lanes > 1 and not divisible(extent_of(s.columns[-1]), lanes):
            lanes //= 2
        return lanes


class _Steps:
    """Where the sum is: the values of the taps, and the first element along the depth."""

    def __init__(self, level: Expression, schedule: TileSchedule, first: Operand) -> None:
        self.b, self.schedule = level.builder, schedule
        b, s = self.b, schedule
        along = level.dim(integer.ceildiv(extent_of(s.depth), s.depth_tile))
        self.end = along * s.depth_tile
        self.extents = [level.dim(extent_of(t)) for t in s.taps]
        self.depth = b.variable(0, I64, name="depth")
        self.taps = [b.variable(0, I64, name="tap") for _ in s.taps]
        if not s.taps:
            self.depth.set(first * s.depth_tile)
            return
        self.depth.set(first % along * s.depth_tile)
        rest = first // along
        for tap, value in zip(self.taps, b.coordinates(rest, self.extents), strict=True):
            tap.set(value)

    def values(self) -> tuple[dict[Atom, Operand], Operand]:
        """The taps' values, and the first element."""
        pairs = zip(self.schedule.taps, self.taps, strict=True)
        return {sizes.variable(t): r.get() for t, r in pairs}, self.depth.get()

    def advance(self) -> None:
        """Go on by one step."""
        b = self.b
        following = self.depth.get() + self.schedule.depth_tile
        if not self.taps:
            self.depth.set(following)
            return
        over: Operand = following >= self.end
        self.depth.set(b.select(over, 0, following))
        for tap, extent in reversed(list(zip(self.taps, self.extents, strict=True))):
            moved = tap.get() + b.convert(over, I64)
            over = b.eq(moved, extent)
            tap.set(b.select(over, b.value(I64, 0), moved))
