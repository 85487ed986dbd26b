"""The parts in which kinds of contractions differ: what sums a tile, and calls of micro-kernels.

Loop nest of a tile in vectors (`VectorTiles.multiply`)::

    for r in 0..count:
        table[tap, r] = address of A[row + r, tap]        # or of a copy of the row
    tile[count, width] = micro(table, taps, depth, panel)
"""

from __future__ import annotations

from typing import Protocol

from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I64
from sardonyx.kernel.matmul.contraction_epilogue import EpilogueWriter
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.kernel_context import KernelContext, Layout
from sardonyx.kernel.matmul.left_rows import LeftRows
from sardonyx.kernel.matmul.micro import tile_rows
from sardonyx.kernel.matmul.prefetch import Prefetch
from sardonyx.kernel.matmul.tile import RowBlock, RowProducts, RowTile, rows_of_next_tile

#: Blocks that share a panel; of more, few wait for it.
_FEW_BLOCKS = 4


class MicroKernels(Protocol):
    """Calls of the micro-kernels of one kind.

    Attributes:
        counts: Row counts of tiles, the largest first.
    """

    counts: tuple[int, ...]

    def functions(self) -> tuple[Program, ...]:
        """Those that are called."""

    def layout(self) -> Layout:
        """Scratch that they need."""

    def multiply(self, products: RowProducts) -> None:
        """The sums of some rows."""


class TileSums:
    """Sums the products of tiles: what most kinds do, and what each has to say.

    Attributes:
        is_by_rows: Whether blocks that follow each other have the same rows and the next panel,
            where panels are packed before the run.

    Args:
        context: Of the kernel.
        counts: Row counts of tiles, the largest first.
    """

    is_by_rows = False

    def __init__(self, context: KernelContext, counts: tuple[int, ...]) -> None:
        self.context, self.counts = context, counts

    def functions(self) -> tuple[Program, ...]:
        """What is called."""
        raise NotImplementedError

    def multiply(self, rows: RowBlock, tile: RowTile) -> None:
        """The sums of a tile."""
        raise NotImplementedError

    def rows_of_next(self, rest: Operand) -> Operand:
        """How many of the `rest` rows the next tile has."""
        return rows_of_next_tile(self.context.b, rest, self.counts)

    # -- scratch ------------------------------------------------------------------------------

    def block_rows(self) -> Dim:
        """Rows of sums that a block has where those of all its tiles are kept."""
        return self.context.schedule.loops.rows

    def mark_layout(self) -> Layout:
        """The first parts of scratch, behind what `RightPanels` has there."""
        return []

    def layout(self) -> Layout:
        """Further scratch."""
        raise NotImplementedError

    # -- around tiles -------------------------------------------------------------------------

    def enter(self, rows: Operand, depth: Operand) -> None:
        """Before the first block: a batch has so many rows, of so many elements each."""

    def leave(self, rows: Operand) -> None:
        """Behind the last block."""

    def begin_panel(
        self, level: Expression, panel: Operand, rows: Operand, chunks: Operand
    ) -> None:
        """When the panel of a block of so many rows is there, which `chunks` blocks have."""

    def begin_rows(self, number: Operand) -> None:
        """Before the first tile; `number`: of the block's rows among all batches and chunks."""


def vector_tile_rows(s: ContractionSchedule) -> tuple[int, ...]:
    """Row counts of tiles that a run may need, the largest first."""
    if s.loops.is_brief:
        return (1,)
    # Where nothing has rows, a block has one, and is not entered.
    return tile_rows(s.row_count(), s.loops.rows) or (1,)


class VectorTiles(TileSums):
    """Tiles that micro-kernels for up to six rows sum, of rows that are found or copied.

    Args:
        left: Finds or copies rows.
        micro: Multiplies them.
        epilogue: Finds the rows again.
        prefetch: Writes what is prefetched.
    """

    def __init__(
        self, left: LeftRows, micro: MicroKernels, epilogue: EpilogueWriter, prefetch: Prefetch
    ) -> None:
        super().__init__(left.context, micro.counts)
        self.left, self.micro, self.epilogue, self.prefetch = left, micro, epilogue, prefetch

    def functions(self) -> tuple[Program, ...]:
        """See `TileSums`."""
        return self.micro.functions()

    def layout(self) -> Layout:
        """See `TileSums`."""
        most = self.counts[0]
        return [
            *self.micro.layout(), *self.left.table_layout(most), *self.epilogue.rows_layout(most),
            *self.left.copy_layout(most),
        ]  # fmt: skip

    def enter(self, rows: Operand, depth: Operand) -> None:
        """See `TileSums`."""
        self.left.zero(depth)

    def begin_panel(
        self, level: Expression, panel: Operand, rows: Operand, chunks: Operand
    ) -> None:
        """Share out the panel behind that of a block of so many rows.

        Not where panels are packed by each thread, nor where so many blocks (`chunks`) have the
        same panel that hardly any waits for it.
        """
        c, b = self.context, self.context.b
        if not c.packs:
            self.prefetch.share_out(panel, b.value(I64, 0))
            return
        behind = b.offset(panel, b.lift(level.dim(c.schedule.panel_bytes()), I64))
        few = chunks <= _FEW_BLOCKS
        self.prefetch.share_out(behind, b.select(few, rows, 0))

    def multiply(self, rows: RowBlock, tile: RowTile) -> None:
        """Find, or copy, the rows of a tile, and sum their products."""
        c, b = self.context, self.context.b
        s, depth, count = c.schedule, rows.depth, tile.count
        table, taps = c.scratch["table"], s.access.tap_count()
        live = b.variable(0, I64, name="live") if self.left.leaves_taps_out else None
        with b.for_(0, count) as r:
            inner = rows.level.child(self.epilogue.note_row(rows, tile.first, r))
            if s.axes.run is None:
                self.prefetch.ask_ahead(inner, rows.first_column)
            if s.access.direct:
                self.left.point(inner, r, count, live)
            else:
                self.left.copy(inner, r, depth)
        if live is None:
            self.micro.multiply(RowProducts(table, count, taps, depth, rows.panel, tile.line))
            return
        first, behind = self.left.live_taps(live.get(), taps, depth)
        begin = b.offset(rows.panel, first * depth, s.width * s.element.size_bytes)
        pointers = b.offset(table, first * count, 8)
        products = RowProducts(pointers, count, behind - first, depth, begin, tile.line)
        self.micro.multiply(products)
