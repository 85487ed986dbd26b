"""Contractions on registers for matrices: of bfloat16 (`bf16_product`) and of bytes
(`integer_product`), with wider panels, and rows that are copied once for several of them.

One instruction sums 8,192 or 16,384 products, so what else is done for a tile counts. Where panels
are packed beforehand, all of them pass the same rows: these are copied (rounded, made unsigned)
when the first one does, and the others find them in the thread's scratch.

Loops are those of `contraction`, with tiles of 32 rows, which all panels of a block share::

    parallel block in 0..rest * chunks * panels:          # panels follow each other
        for row in low..high step 32:
            for r in 0..count: copy[row + r, depth] = A[row + r]      # for the first panel alone
            tile[count, width] = matrix_micro(copy, panel)    # or a few rows, in vectors
            for r in 0..count: C[row + r, first_column:] = epilogue(tile[r])
"""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base import integer
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language import matrix_registers
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.matrix_registers import ROW_BYTES, SIDE
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I1, I8, I64, PTR, U8, Type
from sardonyx.kernel.matmul.bf16_product import (
    PAIR,
    build_half_micro,
    pack_pairs,
    round_to_bf16,
)
from sardonyx.kernel.matmul.contraction import KernelParts, TileLoop
from sardonyx.kernel.matmul.contraction_epilogue import EpilogueWriter
from sardonyx.kernel.matmul.integer_product import integer_panels
from sardonyx.kernel.matmul.kernel_context import KernelContext, Layout
from sardonyx.kernel.matmul.left_rows import LeftRows, RowFormat
from sardonyx.kernel.matmul.matrix_unit import TILE, MatrixUnit
from sardonyx.kernel.matmul.micro_integer import GROUP, MIDDLE, build_integer_micro
from sardonyx.kernel.matmul.micro_matrix import build_matrix_micro, matrix_micro_name
from sardonyx.kernel.matmul.panels import RightPanels
from sardonyx.kernel.matmul.prefetch import Prefetch
from sardonyx.kernel.matmul.tile import RowBlock, RowProducts, RowTile, call_by_rows
from sardonyx.kernel.matmul.tile_sums import TileSums

#: Of bfloat16, and of codes, whose epilogue is written out for each vector.
BF16_UNIT, CODE_UNIT = MatrixUnit(8, 3, 2), MatrixUnit(4, 4, 4)


@dataclass(frozen=True, slots=True)
class MatrixKind:
    """Factors of one type, and what multiplies them.

    Attributes:
        name: Of the registers' products.
        rounded: Makes of elements what copied rows hold, see `RowFormat`.
        begins: Parts of scratch that sums of a panel's columns start from, where that is not 0.
        few: Micro-kernels of a few rows in vectors, by their rows.
        few_operands: Their operands, up to what is prefetched ahead: `(rows, products)`, `rows`
            being pointers.
    """

    name: str
    rounded: Callable[[Builder, Operand, Type], Operand]
    begins: tuple[str, ...]
    few: dict[int, Program]
    few_operands: Callable[[Operand, RowProducts], list[Operand]]


def bf16_matrix_parts(c: KernelContext) -> KernelParts:
    """The parts of a kernel that multiplies rounded factors."""
    s = c.schedule

    def few_operands(rows: Operand, p: RowProducts) -> list[Operand]:
        return [rows, p.depth // PAIR, p.panel, p.target]

    few = {rows: build_half_micro(rows, s.vectors, s.lanes) for rows in _few_rows(c)}
    kind = MatrixKind(matrix_registers.HALVES, round_to_bf16, (), few, few_operands)
    return _parts(c, kind, RightPanels(c, pack_pairs), EpilogueWriter(c))


def integer_matrix_parts(c: KernelContext) -> KernelParts:
    """The parts of a kernel that multiplies codes.

    Those are unsigned bytes, or signed ones that 128 is added to, by signed ones.
    """
    s, b = c.schedule, c.b

    def unsigned(b: Builder, value: Operand, kind: Type) -> Operand:
        lifted = b.lift(value, kind)
        return lifted ^ -MIDDLE if kind.element == I8 else lifted

    def few_operands(rows: Operand, p: RowProducts) -> list[Operand]:
        groups = p.depth // GROUP
        return [rows, b.value(I64, 1), groups, p.panel, p.target, c.scratch["start"]]

    few = {
        rows: build_integer_micro(U8, rows, s.vectors, s.lanes, zeros=False)
        for rows in _few_rows(c)
    }
    kind = MatrixKind(matrix_registers.BYTES, unsigned, ("start",), few, few_operands)
    return _parts(c, kind, integer_panels(c), EpilogueWriter(c, unrolls=True))


def _unit(c: KernelContext) -> MatrixUnit:
    unit = c.schedule.matrices
    assert unit is not None  # noqa: S101 - the kernel is one of such registers
    return unit


def _few_rows(c: KernelContext) -> range:
    return range(1, _unit(c).few + 1)


def _parts(
    c: KernelContext, kind: MatrixKind, panels: RightPanels, epilogue: EpilogueWriter
) -> KernelParts:
    tiles = MatrixTiles(c, kind, epilogue)
    return KernelParts(panels, tiles, TileLoop(c, tiles, epilogue), epilogue)


class MatrixTiles(TileSums):
    """Tiles on registers for matrices, of rows that are copied; a few rows go in vectors.

    Args:
        context: Of the kernel.
        kind: What is multiplied.
        epilogue: Finds the rows again.
    """

    is_by_rows = True

    def __init__(self, context: KernelContext, kind: MatrixKind, epilogue: EpilogueWriter) -> None:
        super().__init__(context, (TILE,))
        self.schedule, self.b, self.unit = context.schedule, context.b, _unit(context)
        self.kind, self.epilogue = kind, epilogue
        self.left = LeftRows(context, RowFormat(kind.rounded, _end_steps))
        # Of epilogues alone: steps prefetch their own panel, and at its end the next one.
        self.prefetch = Prefetch(context, 0, TILE)
        self._are_new: Operand = self.b.constant(I1, True)

    def functions(self) -> tuple[Program, ...]:
        """See `TileSums`."""
        kind, vectors = self.kind.name, self.schedule.vectors
        micro = (build_matrix_micro(kind, n, vectors) for n in self._sixteens())
        return (*self.kind.few.values(), *micro)

    def rows_of_next(self, rest: Operand) -> Operand:
        """See `TileSums`."""
        return self.b.min(rest, TILE)

    def _are_many(self, rows: Operand) -> Operand:
        return rows > self.unit.few

    def _sixteens(self) -> tuple[int, ...]:
        """Sixteens of rows that tiles may have."""
        rows = self.schedule.row_count()
        return (1,) if isinstance(rows, int) and rows <= SIDE else (1, 2)

    # -- scratch ------------------------------------------------------------------------------

    def block_rows(self) -> Dim:
        """Rows of a block, in whole tiles."""
        rows = self.schedule.loops.rows
        return integer.ceildiv(rows, TILE) * TILE

    def mark_layout(self) -> Layout:
        """Which rows a thread has copied, where panels share them, and the registers' shapes."""
        rows: Layout = [("rows", 8)] if self.context.packs else []
        return [*rows, ("shapes", ROW_BYTES)]

    def layout(self) -> Layout:
        """See `TileSums`."""
        copied = self.block_rows() if self.context.packs else TILE
        return [
            *self.left.table_layout(copied), *self.epilogue.rows_layout(TILE),
            *self.left.copy_layout(copied),
        ]  # fmt: skip

    def enter(self, rows: Operand, depth: Operand) -> None:
        """See `TileSums`."""
        with self.b.if_(self._are_many(rows)):
            matrix_registers.set_shapes(self.b, self.context.scratch["shapes"])

    def leave(self, rows: Operand) -> None:
        """See `TileSums`."""
        with self.b.if_(self._are_many(rows)):
            matrix_registers.release(self.b)

    # -- tiles --------------------------------------------------------------------------------

    def begin_rows(self, number: Operand) -> None:
        """Whether the rows of this block, by their number among all, are those of the last one."""
        b = self.b
        if self.context.packs:
            kept, mark = self.context.scratch["rows"], number + 1
            self._are_new = b.ne(b.load(I64, kept), mark)
            b.store(mark, kept)

    def multiply(self, rows: RowBlock, tile: RowTile) -> None:
        """Copy the rows of a tile unless an earlier panel did, and sum their products."""
        s, b, level = self.schedule, self.b, rows.level
        # Of copied rows that no other panel passes there are those of a tile.
        inside: Operand = b.constant(I64, 0)
        if self.context.packs:
            inside = tile.first % self.context.outside.dim(s.loops.rows)
        with b.for_(0, tile.count) as r:
            at = self.epilogue.note_row(rows, tile.first, r)
            if s.axes.run is None:
                self.prefetch.ask_ahead(level.child(at), rows.first_column)
            with b.if_(self._are_new):
                row = inside + r
                self.left.copy(level.child(at), row, rows.depth)
        table = self.context.scratch["table"]
        products = RowProducts(
            table, tile.count, s.access.tap_count(), rows.depth, rows.panel, tile.line
        )
        with b.if_(self._are_many(tile.count)):
            self._multiply_many(products, inside)
        with b.else_():
            self._multiply_few(products, inside)

    def _multiply_few(self, p: RowProducts, inside: Operand) -> None:
        """Multiply copied rows, from number `inside` on, in vectors."""
        b = self.b
        rows = b.offset(p.table, inside * PTR.size_bytes, U8)
        operands = self.kind.few_operands(rows, p)
        ahead = [p.panel, b.value(I64, 0)]  # nothing
        names = {few: micro.name for few, micro in self.kind.few.items()}
        call_by_rows(b, p.count, names, [*operands, *ahead])

    def _multiply_many(self, p: RowProducts, inside: Operand) -> None:
        s, b, scratch, kind = self.schedule, self.b, self.context.scratch, self.kind.name
        pitch = p.depth * s.factors.type.size_bytes
        rows = b.offset(scratch["copy"], inside * p.depth, s.factors.type)
        begins = [scratch[name] for name in self.kind.begins]
        operands = [
            rows,
            pitch,
            p.depth // self.unit.step(s.factors.type.size_bytes),
            p.panel,
            p.target,
            *begins,
        ]
        names = [matrix_micro_name(kind, n, s.vectors) for n in self._sixteens()]
        micro: Operand = b.address_of(names[0])
        for name in names[1:]:
            micro = b.select(p.count > SIDE, b.address_of(name), micro)
        b.call(micro, operands)


def _end_steps(c: KernelContext, r: Operand, depth: Operand) -> None:
    """Write zeros behind a copied row, up to a whole step."""
    b = c.b
    end = (r + 1) * depth
    with b.if_(depth > 0):
        last = b.offset(c.scratch["copy"], end, c.schedule.factors.type)
        b.store(b.constant(U8.with_lanes(ROW_BYTES), 0), last, -ROW_BYTES, align_bytes=1)
