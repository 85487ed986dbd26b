"""A `Contraction` group as a kernel: packed panels, register tiles, epilogues on tiles in L1.

`contraction_schedule` decides on the loops. Constant right factors are packed once, before any run
(`Packing`); others are packed into scratch by each block. The outer loops are the same for all
kinds, which differ in their parts: what sums a tile (`tile_sums`) of rows (`left_rows`), and where
panels come from (`panels`).

Loop nest of a block, `width` being `vectors * lanes` (`_write_blocks`, `TileLoop.write`)::

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

from collections.abc import Callable, Iterable
from typing import Protocol

from sardonyx.base import integer
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I64
from sardonyx.kernel.matmul.contraction_epilogue import EpilogueWriter
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.contraction_sums import FloatMicro, SumsInParts
from sardonyx.kernel.matmul.factors import Packing
from sardonyx.kernel.matmul.kernel_context import KernelContext, begin_kernel
from sardonyx.kernel.matmul.left_rows import LeftRows
from sardonyx.kernel.matmul.panels import RightPanels, pack_columns
from sardonyx.kernel.matmul.prefetch import Prefetch
from sardonyx.kernel.matmul.tile import RowBlock, RowTile, unflattened
from sardonyx.kernel.matmul.tile_sums import TileSums, VectorTiles, vector_tile_rows
from sardonyx.plan.axes import extent_of
from sardonyx.tensor.scalar import Scalar

#: Panels of so many bytes stay in the second cache of a core, with what is read beside them.
_TOGETHER_BYTES = 512 << 10


class RowLoop(Protocol):
    """Goes over the rows of a block."""

    def kept_rows(self) -> Dim:
        """Rows whose sums are in scratch at the same time."""

    def write(self, rows: RowBlock) -> None:
        """All rows of a block, from sums to results."""


@dataclass(frozen=True, slots=True)
class KernelParts:
    """What the kernel of one contraction is put together from.

    Attributes:
        panels: Finds the right factor.
        tiles: Sums the products of a tile.
        rows: Goes over the rows of a block.
        epilogue: Makes results of sums.
    """

    panels: RightPanels
    tiles: TileSums
    rows: RowLoop
    epilogue: EpilogueWriter


class TileLoop:
    """The rows of a block, tile by tile.

    Args:
        context: Of the kernel.
        tiles: Sums a tile.
        epilogue: Finishes it.
    """

    def __init__(self, context: KernelContext, tiles: TileSums, epilogue: EpilogueWriter) -> None:
        self.context, self.tiles, self.epilogue = context, tiles, epilogue

    def kept_rows(self) -> Dim:
        """Those of a tile, or of all tiles where results are turned."""
        in_runs = self.context.schedule.axes.run is not None
        return self.tiles.block_rows() if in_runs else self.tiles.counts[0]

    def write(self, rows: RowBlock) -> None:
        """All rows of a block."""
        s, b = self.context.schedule, self.context.b
        row = b.variable(rows.low, name="row")
        with b.while_(lambda: row.get() < rows.high):
            first = row.get()
            count = self.tiles.rows_of_next(rows.high - first)
            line = self.epilogue.line(first - rows.low if s.axes.run is not None else 0)
            self.tiles.multiply(rows, RowTile(first, count, line))
            if s.axes.run is None:
                self.epilogue.write_rows(rows.level, count, rows.first_column)
            row.set(first + count)
        if s.axes.run is not None:
            self.epilogue.write_block(rows)


def float_parts(c: KernelContext) -> KernelParts:
    """The parts of a kernel whose factors are of the type of its sums."""
    s, counts = c.schedule, vector_tile_rows(c.schedule)
    epilogue = EpilogueWriter(c)
    prefetch = Prefetch(c, s.width * s.element.size_bytes, counts[0])
    micro = FloatMicro(c, prefetch, counts)
    tiles = VectorTiles(LeftRows(c), micro, epilogue, prefetch)
    in_parts = s.goes_in_parts
    rows = SumsInParts(micro, epilogue) if in_parts else TileLoop(c, tiles, epilogue)
    return KernelParts(RightPanels(c, pack_columns), tiles, rows, epilogue)


class ContractionKernel:
    """Builds the kernel of one contraction.

    Args:
        schedule: How it goes over the contraction's axes.
        name: Symbol name.
        packed: Whether the right factor is constant, so that it is packed beforehand.
        make_parts: Makes what the kernel is put together from.
    """

    def __init__(
        self,
        schedule: ContractionSchedule,
        name: str,
        packed: bool,
        make_parts: Callable[[KernelContext], KernelParts] = float_parts,
    ) -> None:
        self.schedule, self.name, self.packed = schedule, name, packed
        self.make_parts = make_parts

    def build(self) -> tuple[Kernel, list[Packing]]:
        """The kernel, and how its right factor is packed if that happens beforehand."""
        if self.packed:
            self.schedule.balance()
        packs = self.schedule.packings() if self.packed else []
        return self.build_with(packs, self.schedule.factors.beside), packs

    def build_with(self, packs: list[Packing], beside: Iterable[Scalar]) -> Kernel:
        """The kernel.

        Args:
            packs: What is packed before the run.
            beside: Expressions that blocks evaluate besides factors and epilogue.
        """
        s = self.schedule
        c = begin_kernel(s, self.name, packs, beside)
        parts = self.make_parts(c)
        _write_blocks(c, parts)
        return Kernel(
            c.b.program, c.arguments, s.blocks(), s.cost_ns(), c.scratch.bytes,
            (*parts.tiles.functions(), *parts.epilogue.functions()),
            per_block=(("rows", s.loops.rows), ("columns", s.width)),
        )  # fmt: skip


def _write_blocks(c: KernelContext, parts: KernelParts) -> None:
    """All blocks: see the module's text."""
    s, b, dim, tiles = c.schedule, c.b, c.outside.dim, parts.tiles
    depth = dim(s.row_length)
    extents = {v: dim(extent_of(v)) for v in (*s.axes.lead(), *s.axes.rows, *s.access.reduced)}
    n_rows, panels = dim(s.row_count()), dim(s.panels())
    chunks, block_rows = dim(integer.ceildiv(s.row_count(), s.loops.rows)), dim(s.loops.rows)
    c.scratch.divide(
        c.outside,
        [
            *parts.panels.mark_layout(), *tiles.mark_layout(),
            *parts.epilogue.layout(parts.rows.kept_rows()), *tiles.layout(), *parts.panels.layout(),
        ],
    )  # fmt: skip
    tiles.enter(n_rows, depth)
    with b.parallel() as block:
        rest, panel, chunk = _parts_of(c, block, panels, chunks, by_rows=tiles.is_by_rows)
        number = rest * panels + panel
        level = c.outside.child(unflattened(b, rest, s.axes.lead(), extents))
        first_column = panel * s.width
        at = parts.panels.of_block(level, number, panel, first_column)
        low = chunk * block_rows
        high = b.min(low + block_rows, n_rows)
        tiles.begin_panel(level, at, high - low, chunks)
        tiles.begin_rows(rest * chunks + chunk)
        parts.rows.write(RowBlock(level, low, high, first_column, at, depth, extents))
    tiles.leave(n_rows)


def _parts_of(
    c: KernelContext, block: Operand, panels: Operand, chunks: Operand, *, by_rows: bool
) -> tuple[Operand, Operand, Operand]:
    """Batches and outer columns, panel, and chunk of the rows, of a block.

    A few rows pass as many panels as stay in a core's cache before the next rows do: threads
    have adjacent blocks, so the same rows of the contractions of a chain, and what lies in
    memory is read once for several panels. Or, `by_rows`, they pass all panels.
    """
    b = c.b
    if not c.packs:
        number, chunk = b.parted(block, chunks)
        return (*b.parted(number, panels), chunk)
    if by_rows:
        rest, place = b.parted(block, panels * chunks)
        chunk, panel = b.parted(place, panels)
        return rest, panel, chunk
    size_bytes = b.lift(c.outside.dim(c.schedule.panel_bytes()), I64)
    together = b.max(b.constant(I64, _TOGETHER_BYTES) // b.max(size_bytes, 1), 1)
    together = b.min(together, b.max(panels, 1))
    rest, place = b.parted(block, panels * chunks)
    group, inside = b.parted(place, together * chunks)
    first = group * together
    count = b.min(together, panels - first)
    chunk, panel = b.parted(inside, count)
    return rest, first + panel, chunk
