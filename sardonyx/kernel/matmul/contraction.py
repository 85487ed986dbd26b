"""A `Contraction` group as a kernel: packed panels, register tiles, epilogues on tiles in L1.

`contraction_schedule` decides on the loops. Constant right factors are packed once, before any run
(`Packing`); others are packed into scratch by each block.

Loop nest of a block, `width` being `vectors * lanes` (`_write`, `_write_tiles`)::

    parallel block in 0..rest * panels * chunks:          # rest: batches and outer columns
        panel[depth, width] = B[:, first_column:]         # packed before the run, or here
        for row in low..high step count:                  # count: 6, 4, 3, 2 or 1 rows of a tile
            for r in 0..count:
                table[tap, r] = address of A[row + r, tap]    # or of a copy of the row
            tile[count, width] = micro(table, taps, depth, panel)
            for r in 0..count:
                C[row + r, first_column:] = epilogue(tile[r])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.compiled import Kernel, KernelParameters, PerBlock
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import F64, I64
from sardonyx.kernel.matmul.contraction_epilogue import EpilogueWriter
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule, Packing
from sardonyx.kernel.matmul.contraction_sums import Sums
from sardonyx.kernel.matmul.left_rows import LeftRows
from sardonyx.kernel.matmul.long_sums import build_long_sum
from sardonyx.kernel.matmul.micro import build_micro, tile_rows
from sardonyx.kernel.matmul.prefetch import Prefetch
from sardonyx.kernel.matmul.tile import (
    RowBlock,
    RowProducts,
    RowTile,
    rows_of_next_tile,
    unflattened,
)
from sardonyx.plan.axes import dims_of, extent_of
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.traverse import loads_of

_ALIGN = 64
#: Panels of so many bytes stay in the second cache of a core, with what is read beside them.
_TOGETHER_BYTES = 512 << 10
#: Blocks that share a panel; of more, few wait for it.
_FEW_BLOCKS = 4


class ContractionKernel(Sums):
    """Builds the kernel of one contraction.

    Args:
        schedule: How it goes over the contraction's axes.
        name: Symbol name.
        packed: Whether the right factor is constant, so that it is packed beforehand.
    """

    #: Whether the vectors of a row are finished without a loop over them.
    _unrolls = False

    def __init__(self, schedule: ContractionSchedule, name: str, packed: bool) -> None:
        self.schedule, self.name, self.packed = schedule, name, packed

    def build(self) -> tuple[Kernel, list[Packing]]:
        """The kernel, and how its right factor is packed if that happens beforehand."""
        s = self.schedule
        if self.packed:
            s.balance()
        # Where nothing has rows, a block has one, and is not entered.
        self.tile_rows = self._tile_rows() or (1,)
        self.packs = self._packings() if self.packed else []
        others = self._other_bodies()
        touched = [x.buffer for x in loads_of(s.left)]
        touched += [p.packed for p in self.packs] or [x.buffer for x in loads_of(s.right)]
        for body in (*others, s.epilogue):
            touched += [x.buffer for x in loads_of(body) if x is not s.token]
        touched.append(s.group.root.buffer)
        dims: list[Dim] = [*s.batch, *s.rows, s.column, *s.outer_columns, *s.reduced]
        for tensor in touched:
            dims += s.strides.get(tensor, ()) or ()
        for body in (s.left, s.right, *others, s.epilogue):
            dims += list(dims_of(body))
        dims += [*s.store_at, s.block_rows]
        parameters = KernelParameters(touched, dims)
        for pack in self.packs:
            s.strides[pack.packed] = (0,) * len(pack.packed.shape)
        self.b = b = Builder(self.name, parameters.types(), kind="kernel")
        self.places = parameters.places(b, s.strides)
        self.outside = Expression(b, parameters.atoms(b), self.places.__getitem__)
        self.scratch = {}
        self.epilogue = EpilogueWriter(s, b, self.places, self.scratch, self._unrolls)
        self.left = self._left_rows()
        line_bytes, most_rows = self._line_bytes(), self.tile_rows[0]
        self.prefetch = Prefetch(s, self.outside, self.places, line_bytes, most_rows)
        self._write()
        kernel = Kernel(
            b.program, parameters.arguments, self._blocks(), self.cost_ns(), self.scratch_bytes,
            self._functions(), per_block=self._per_block(),
        )  # fmt: skip
        return kernel, self.packs

    def _left_rows(self) -> LeftRows:
        """What finds, or copies, rows of the left factor."""
        return LeftRows(self.schedule, self.outside, self.places, self.scratch)

    def _other_bodies(self) -> tuple[Scalar, ...]:
        """Expressions that a block evaluates besides factors and epilogue."""
        return ()

    def _tile_rows(self) -> tuple[int, ...]:
        """Row counts of tiles that a run may need."""
        if self.schedule.is_brief:
            return (1,)
        return tile_rows(self.schedule.row_count(), self.schedule.block_rows)

    def _packings(self) -> list[Packing]:
        return self.schedule.packings()

    def _functions(self) -> tuple[Program, ...]:
        """What the kernel calls."""
        s = self.schedule
        micro = (
            build_micro(s.element, r, s.vectors, s.lanes, at_once=s.at_once(r))
            for r in self.tile_rows
        )
        long = [build_long_sum(s.element, s.vectors, s.lanes)] if self._may_be_long() else []
        return (*micro, *long, *self.epilogue.functions())

    def _blocks(self) -> Dim:
        return self.schedule.blocks()

    def _per_block(self) -> PerBlock:
        return ("rows", self.schedule.block_rows), ("columns", self.schedule.width)

    def cost_ns(self) -> Dim:
        """Estimated time of all blocks on one thread."""
        return self.schedule.cost_ns()

    def _write(self) -> None:
        s = self.schedule
        b, dim = self.b, self.outside.dim
        taps = s.tap_count()
        depth = dim(s.row_length)
        size = s.factor.size_bytes
        extents = {v: dim(extent_of(v)) for v in (*s.lead(), *s.rows, *s.reduced)}
        n_rows, panels = dim(s.row_count()), dim(s.panels())
        chunks, block_rows = dim(integer.ceildiv(s.row_count(), s.block_rows)), dim(s.block_rows)
        self._set_scratch(taps, size)
        self.left.zero(depth)
        self._enter(n_rows)
        with b.parallel() as block:
            rest, panel, chunk = self._parts_of(block, panels, chunks)
            number = rest * panels + panel
            lead = unflattened(b, rest, s.lead(), extents)
            level = self.outside.child(lead)
            first_column = panel * s.width
            at = self._panel(level, number, panel, depth, first_column)
            low = chunk * block_rows
            high = b.min(low + block_rows, n_rows)
            self._share_next(level, at, high - low, chunks)
            self._begin_rows(rest * chunks + chunk)
            rows = RowBlock(level, low, high, first_column, at, depth, extents)
            if self._goes_in_parts():
                self._sum_in_parts(rows)
                self._finish_all(rows)
            else:
                self._write_tiles(rows)
        self._leave(n_rows)

    def _enter(self, rows: Operand) -> None:
        """What a call of the kernel does before its first block; a batch has so many rows."""

    def _leave(self, rows: Operand) -> None:
        """What it does after its last."""

    def _begin_rows(self, number: Operand) -> None:
        """What a block does first with its rows, by their number among all batches and chunks."""

    def _write_tiles(self, rows: RowBlock) -> None:
        """The rows of a block, tile by tile."""
        s, b = self.schedule, self.b
        row = b.variable(rows.low, name="row")
        with b.while_(lambda: row.get() < rows.high):
            first = row.get()
            count = self._rows_of_tile(rows.high - first)
            line = self.epilogue.line(first - rows.low if s.run is not None else 0)
            self._tile(rows, RowTile(first, count, line))
            if s.run is None:
                self.epilogue.write_rows(rows.level, count, rows.first_column)
            row.set(first + count)
        if s.run is not None:
            self.epilogue.write_block(rows)

    def _parts_of(
        self, block: Operand, panels: Operand, chunks: Operand
    ) -> tuple[Operand, Operand, Operand]:
        """Batches and outer columns, panel, and chunk of the rows, of a block.

        A few rows pass as many panels as stay in a core's cache before the next rows do: threads
        have adjacent blocks, so the same rows of the contractions of a chain, and what lies in
        memory is read once for several panels.
        """
        b = self.b
        if not self.packs:
            number, chunk = b.parted(block, chunks)
            return (*b.parted(number, panels), chunk)
        size_bytes = b.lift(self.outside.dim(self._panel_bytes()), I64)
        together = b.max(b.constant(I64, _TOGETHER_BYTES) // b.max(size_bytes, 1), 1)
        together = b.min(together, b.max(panels, 1))
        rest, place = b.parted(block, panels * chunks)
        group, inside = b.parted(place, together * chunks)
        first = group * together
        count = b.min(together, panels - first)
        chunk, panel = b.parted(inside, count)
        return rest, first + panel, chunk

    def _finish_all(self, rows: RowBlock) -> None:
        """The epilogue of all rows of a block."""
        s, b = self.schedule, self.b
        if s.run is not None:
            self.epilogue.write_block(rows)
            return
        with b.for_(rows.low, rows.high) as row:
            here = rows.level.child(unflattened(b, row, s.rows, rows.extents))
            line = self.epilogue.line(row - rows.low)
            self.epilogue.write_row(here, line, rows.first_column)

    def _rows_of_tile(self, rest: Operand) -> Operand:
        """How many of the `rest` rows the next tile has."""
        return rows_of_next_tile(self.b, rest, self.tile_rows)

    def _set_scratch(self, taps: int, size: int) -> None:
        """Scratch holds parts, each aligned.

        Which panel it has, tile, pointer table, zero row, copied rows, panel.
        """
        s = self.schedule
        most = self.tile_rows[0]
        depth = s.row_length
        in_parts = self._goes_in_parts()
        kept = most if s.run is None and not in_parts else self._block_rows()
        layout = self._first_layout()
        layout += self.epilogue.layout(kept)
        if in_parts or self._may_be_long():
            layout.append(("more", most * s.width * size))
        if self._may_be_long():
            lines = kept if in_parts else most
            layout.append(("wide", lines * (s.width * F64.size_bytes)))
            layout.append(("starts", most * 8))
        copied = self._copied_rows()
        layout.append(("table", copied * (taps * 8)))
        layout.append(("coordinates", most * max(1, len(s.rows)) * 8))
        if s.window is not None and s.direct:
            layout.append(("zero", depth * size))
        if not s.direct:
            layout.append(("copy", depth * copied * size))
        if not self.packed:
            layout.append(("panel", self._panel_length() * (s.width * size)))
        self._divide_scratch([*layout, *self._other_layout()])

    def _first_layout(self) -> list[tuple[str, Dim]]:
        """The first parts of scratch, whose first word is 0 where a command begins."""
        return [("kept", 8)] if not self.packed and self.schedule.transpose_stores else []

    def _block_rows(self) -> Dim:
        """How many rows of sums a block has, where those of all its tiles are kept."""
        return self.schedule.block_rows

    def _copied_rows(self) -> Dim:
        """How many rows of the left factor are found, or copied, at a time."""
        return self.tile_rows[0]

    def _other_layout(self) -> list[tuple[str, Dim]]:
        """Further parts of scratch, in bytes."""
        return []

    def _panel_length(self) -> Dim:
        """Steps of the reduced axes in a panel."""
        s = self.schedule
        return s.row_length * s.tap_count()

    def _panel_bytes(self) -> Dim:
        s = self.schedule
        return self._panel_length() * (s.width * s.factor.size_bytes)

    def _divide_scratch(self, layout: Sequence[tuple[str, Dim]]) -> None:
        """Names for parts of scratch, each of so many bytes."""
        b = self.b
        scratch = b.context("scratch")
        offset: Dim = 0
        for name, wanted in layout:
            self.scratch[name] = b.offset(scratch, self.outside.dim(offset))
            rounded = integer.ceildiv(wanted, _ALIGN) * _ALIGN
            offset = offset + rounded
        self.scratch_bytes = offset

    def _share_next(
        self, level: Expression, panel: Operand, rows: Operand, chunks: Operand
    ) -> None:
        """Share out the panel behind that of a block of so many rows.

        Not where panels are packed by each thread, nor where so many blocks (`chunks`) have the
        same panel that hardly any waits for it.
        """
        b = self.b
        if not self.packs:
            self.prefetch.share_out(panel, b.value(I64, 0))
            return
        behind = b.offset(panel, b.lift(level.dim(self._panel_bytes()), I64))
        few = chunks <= _FEW_BLOCKS
        self.prefetch.share_out(behind, b.select(few, rows, 0))

    def _prepare(self, level: Expression, panel: Operand, first_column: Operand) -> None:
        """What a block does after its panel is there and before its first tile."""

    def _panel(
        self,
        level: Expression,
        number: Operand,
        panel: Operand,
        depth: Operand,
        first_column: Operand,
    ) -> Operand:
        """Where the panel of a block lies, once all is there that its tiles need.

        `number` is that of the panel among all there are.
        """
        if "kept" not in self.scratch:
            at = self._panel_pointer(level, panel, depth, first_column)
            self._prepare(level, panel, first_column)
            return at
        with self._unless_kept(number):
            inside = level.child()
            self._pack_now(inside, first_column)
            self._prepare(inside, self.scratch["panel"], first_column)
        return self.scratch["panel"]

    @contextmanager
    def _unless_kept(self, number: Operand) -> Iterator[None]:
        """Put into scratch what has a number, unless the thread's last block put the same there.

        See `native.walk.forget_kept`.
        """
        b = self.b
        kept, mark = self.scratch["kept"], number + 1
        with b.if_(b.ne(b.load(I64, kept), mark)):
            yield
            b.store(mark, kept)

    def _panel_pointer(
        self, level: Expression, panel: Operand, depth: Operand, first_column: Operand
    ) -> Operand:
        """Where the packed panel lies; packs it now if nobody did before."""
        b = self.b
        if self.packs:
            number = self._panel_number(level, panel)
            step = b.lift(level.dim(self._panel_bytes()), I64)
            packed = self.places[self.packs[0].packed].pointer
            return b.offset(packed, number * step)
        return self._pack_now(level, first_column)

    def _panel_number(self, level: Expression, panel: Operand) -> Operand:
        """Which of all packed panels this one is."""
        s, b = self.schedule, self.b
        flat: Dim = 0
        for variable in s.packed_axes():
            flat = flat * extent_of(variable) + variable
        flat = flat * s.panels()
        return panel + b.lift(level.dim(flat), I64)

    def _pack_now(self, level: Expression, first_column: Operand) -> Operand:
        """Copy the panel of this block to scratch, zero beyond the last column."""
        s = self.schedule
        b = self.b
        panel = self.scratch["panel"]
        atom = sizes.variable(s.column)
        extent = level.dim(extent_of(s.column))
        order = s.reduced_order()
        k = b.variable(0, I64, name="k")

        def nest(inner: Expression, rest: list[Dim]) -> None:
            if rest:
                with b.for_(0, inner.dim(extent_of(rest[0]))) as i:
                    child = inner.child({sizes.variable(rest[0]): i})
                    nest(child, rest[1:])
                return
            line = b.offset(panel, k.get(), s.width * s.element.size_bytes)
            for v in range(s.vectors):
                start = first_column + v * s.lanes
                mask = b.tail_mask(extent - start, s.lanes)
                here = inner.child({atom: start}, vector=atom, lanes=s.lanes, mask=mask)
                value = b.lift(here.scalar(s.right), s.element.with_lanes(s.lanes))
                value = b.select(mask, value, 0)
                b.store(value, line, v * s.lanes, align_bytes=16)
            k.set(k.get() + 1)

        nest(level, order)
        return panel

    # -- one tile -----------------------------------------------------------------------------

    def _tile(self, rows: RowBlock, tile: RowTile) -> None:
        """Find, or copy, the rows of a tile, and sum their products."""
        s, b, depth, count = self.schedule, self.b, rows.depth, tile.count
        table, taps = self.scratch["table"], s.tap_count()
        live = b.variable(0, I64, name="live") if self.left.leaves_taps_out else None
        with b.for_(0, count) as r:
            at = self._row_of_tile(tile.first, r, rows.extents)
            inner = rows.level.child(at)
            if s.run is None:
                self.prefetch.ask_ahead(inner, rows.first_column)
            if s.direct:
                self.left.point(inner, table, r, count, live)
            else:
                self.left.copy(inner, table, r, depth)
        if live is None:
            self._sum(RowProducts(table, count, taps, depth, rows.panel, tile.line))
            return
        first, behind = self.left.live_taps(live.get(), taps, depth)
        begin = b.offset(rows.panel, first * depth, s.width * s.element.size_bytes)
        pointers = b.offset(table, first * count, 8)
        self._sum(RowProducts(pointers, count, behind - first, depth, begin, tile.line))

    def _row_of_tile(
        self, first: Operand, r: Operand, extents: dict[Dim, Operand]
    ) -> dict[Atom, Operand]:
        """Where row `r` of the tile from `first` on is; the epilogue finds it in scratch."""
        s, b = self.schedule, self.b
        at = unflattened(b, first + r, s.rows, extents)
        place = r * max(1, len(s.rows))
        for k, variable in enumerate(s.rows):
            b.store(
                at[sizes.variable(variable)],
                self.scratch["coordinates"],
                place + k,
            )
        return at
