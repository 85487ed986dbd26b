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

from functools import cached_property

from sardonyx.base import integer
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language import matrix_registers
from sardonyx.kernel.language.matrix_registers import ROW_BYTES, SIDE
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I1, I8, I64, PTR, U8, Type
from sardonyx.kernel.matmul.bf16_product import (
    PAIR,
    Bf16Kernel,
    Bf16Rows,
    Bf16Schedule,
    build_half_micro,
)
from sardonyx.kernel.matmul.contraction import ContractionKernel
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.integer_product import IntegerKernel, IntegerRows
from sardonyx.kernel.matmul.integer_schedule import IntegerSchedule
from sardonyx.kernel.matmul.left_rows import LeftRows
from sardonyx.kernel.matmul.micro_integer import GROUP, MIDDLE, build_integer_micro
from sardonyx.kernel.matmul.micro_matrix import build_matrix_micro, matrix_micro_name
from sardonyx.kernel.matmul.tile import RowBlock, RowProducts, RowTile, call_by_rows

#: Rows of a tile at most.
_TILE = 2 * SIDE
#: Rows of a block stay in the second cache of a core while all panels pass, and so does a panel.
_ROWS_BYTES, _PANEL_BYTES = 1 << 20, 512 << 10
#: Rows of a block at most, and where only a run knows how long they are.
_MOST_ROWS, _TYPICAL_ROWS = 192, 96
#: Vectors of a panel at least: as many as a step sums at a time.
_LEAST_VECTORS = 2


class _MatrixSchedule(ContractionSchedule):
    """How the kernel of such a contraction goes over its axes: rows are always copied.

    Attributes:
        most_vectors: Those of a panel at most: of more columns, sums of a tile leave the first
            cache.
        faster: How many times as fast products are as in vectors, with what else a kernel does.
        few: Rows that vectors multiply as fast: an instruction on registers takes as long for one
            row as for sixteen, and what they need before and after takes longer than a small
            product.
    """

    most_vectors: int
    faster: int
    few: int

    @property
    def has_few_rows(self) -> bool:
        """Whether vectors multiply as fast in every run."""
        rows = self.row_count()
        return isinstance(rows, int) and rows <= self.few

    @property
    def step(self) -> int:
        """Elements of a row that an instruction takes."""
        return ROW_BYTES // self.factor.size_bytes

    @property
    def row_length(self) -> Dim:
        """Elements of a row in scratch: whole steps."""
        return integer.ceildiv(self.depth_extent, self.step) * self.step

    def _takes(self, tapped: bool) -> bool:
        return False

    def _set_width(self, vectors: int) -> None:
        length = self.row_length
        if isinstance(length, int):
            fit = _PANEL_BYTES // max(1, length * SIDE * self.factor.size_bytes)
            vectors = max(_LEAST_VECTORS, min(self.most_vectors, fit // 2 * 2))
        super()._set_width(vectors)

    def balance(self) -> None:
        """Choose rows of blocks: whole tiles, as many as stay in a core's cache."""
        length, count = self.row_length, self.row_count()
        most = _TYPICAL_ROWS
        if isinstance(length, int):
            most = min(_MOST_ROWS, _ROWS_BYTES // max(1, length * self.factor.size_bytes))
        tiles = max(1, most // _TILE)
        if isinstance(count, int):  # equal blocks
            whole = max(1, -(-count // _TILE))
            tiles = -(-whole // -(-whole // tiles))
        self.block_rows = tiles * _TILE

    def cost_ns(self) -> Dim:
        """Estimated time of all blocks on one thread."""
        return integer.ceildiv(super().cost_ns(), self.faster)


class Bf16MatrixSchedule(_MatrixSchedule, Bf16Schedule):
    """That of a contraction in bfloat16."""

    most_vectors, faster, few = 8, 3, 2


class IntegerMatrixSchedule(_MatrixSchedule, IntegerSchedule):
    """That of a contraction of codes, whose right zero points are 0."""

    # An epilogue of codes is written out for each vector.
    most_vectors, faster, few = 4, 4, 4


class _MatrixRows(LeftRows):
    """Rows that are copied, in whole steps."""

    def copy(self, row: Expression, table: Operand, r: Operand, depth: Operand) -> None:
        """Copy one row of the left factor, with zeros up to a whole step."""
        b, factor = self.b, self.schedule.factor
        end = (r + 1) * depth
        with b.if_(depth > 0):
            last = b.offset(self.scratch["copy"], end, factor)
            b.store(b.constant(U8.with_lanes(ROW_BYTES), 0), last, -ROW_BYTES, align_bytes=1)
        LeftRows.copy(self, row, table, r, depth)


class _Bf16MatrixRows(_MatrixRows, Bf16Rows):
    """Those are rounded to bfloat16."""


class _IntegerMatrixRows(_MatrixRows, IntegerRows):
    """Those are made unsigned."""

    def rounded(self, value: Operand, kind: Type) -> Operand:
        """See `LeftRows`."""
        lifted = self.b.lift(value, kind)
        signed = kind.element == I8
        return lifted ^ -MIDDLE if signed else lifted


class _MatrixKernel(ContractionKernel):
    """Builds the kernel of one contraction; a few rows are multiplied in vectors.

    Args:
        schedule: How it goes over the contraction's axes.
        name: Symbol name.
        packed: Whether the right factor is constant, so that it is packed beforehand.
    """

    schedule: _MatrixSchedule
    _kind: str

    def _tile_rows(self) -> tuple[int, ...]:
        return (_TILE,)

    def _rows_of_tile(self, rest: Operand) -> Operand:
        return self.b.min(rest, _TILE)

    def _functions(self) -> tuple[Program, ...]:
        vectors = self.schedule.vectors
        micro = (build_matrix_micro(self._kind, n, vectors) for n in self._sixteens())
        return (*self._few.values(), *micro, *self.epilogue.functions())

    @cached_property
    def _few(self) -> dict[int, Program]:
        return {rows: self._few_micro(rows) for rows in range(1, self.schedule.few + 1)}

    def _few_micro(self, rows: int) -> Program:
        """The micro-kernel of so few rows, in vectors."""
        raise NotImplementedError

    def _few_operands(
        self, rows: Operand, depth: Operand, panel: Operand, target: Operand
    ) -> list[Operand]:
        """Its operands, up to what is prefetched ahead; `rows` are pointers."""
        raise NotImplementedError

    def _are_many(self, rows: Operand) -> Operand:
        return rows > self.schedule.few

    def _sixteens(self) -> tuple[int, ...]:
        """Sixteens of rows that tiles may have."""
        rows = self.schedule.row_count()
        return (1,) if isinstance(rows, int) and rows <= SIDE else (1, 2)

    def _parts_of(
        self, block: Operand, panels: Operand, chunks: Operand
    ) -> tuple[Operand, Operand, Operand]:
        """Batches and outer columns, panel, and chunk of the rows, which all panels pass."""
        b = self.b
        if not self.packed:
            return super()._parts_of(block, panels, chunks)
        rest, place = b.parted(block, panels * chunks)
        chunk, panel = b.parted(place, panels)
        return rest, panel, chunk

    # -- scratch ------------------------------------------------------------------------------

    def _block_rows(self) -> Dim:
        """Rows of a block, in whole tiles."""
        rows = self.schedule.block_rows
        return integer.ceildiv(rows, _TILE) * _TILE

    def _copied_rows(self) -> Dim:
        return self._block_rows() if self.packed else _TILE

    def _first_layout(self) -> list[tuple[str, Dim]]:
        return [("rows" if self.packed else "kept", 8), ("shapes", ROW_BYTES)]

    def _enter(self, rows: Operand) -> None:
        with self.b.if_(self._are_many(rows)):
            matrix_registers.set_shapes(self.b, self.scratch["shapes"])

    def _leave(self, rows: Operand) -> None:
        with self.b.if_(self._are_many(rows)):
            matrix_registers.release(self.b)

    # -- tiles --------------------------------------------------------------------------------

    def _begin_rows(self, number: Operand) -> None:
        """Whether the rows of this block, by their number among all, are those of the last one."""
        b = self.b
        self._are_new: Operand = b.constant(I1, True)
        if self.packed:
            kept, mark = self.scratch["rows"], number + 1
            self._are_new = b.ne(b.load(I64, kept), mark)
            b.store(mark, kept)

    def _share_next(
        self, level: Expression, panel: Operand, rows: Operand, chunks: Operand
    ) -> None:
        """Nothing: steps prefetch their own panel, and at its end for the next."""

    def _tile(self, rows: RowBlock, tile: RowTile) -> None:
        """Copy the rows of a tile unless an earlier panel did, and sum their products."""
        s, b, level = self.schedule, self.b, rows.level
        table = self.scratch["table"]
        # Of copied rows that no other panel passes there are those of a tile.
        inside: Operand = b.constant(I64, 0)
        if self.packed:
            inside = tile.first % self.outside.dim(s.block_rows)
        with b.for_(0, tile.count) as r:
            at = self._row_of_tile(tile.first, r, rows.extents)
            if s.run is None:
                self.prefetch.ask_ahead(level.child(at), rows.first_column)
            with b.if_(self._are_new):
                row = inside + r
                self.left.copy(level.child(at), table, row, rows.depth)
        self._inside = inside
        taps = s.tap_count()
        self._call_micro(RowProducts(table, tile.count, taps, rows.depth, rows.panel, tile.line))

    def _call_micro(self, p: RowProducts) -> None:
        """Multiply copied rows, from the tile's first one on."""
        b = self.b
        with b.if_(self._are_many(p.count)):
            self._call_matrix_micro(p)
        with b.else_():
            rows = b.offset(p.table, self._inside * PTR.size_bytes, U8)
            operands = self._few_operands(rows, p.depth, p.panel, p.target)
            ahead = [p.panel, b.value(I64, 0)]  # nothing
            names = {few: micro.name for few, micro in self._few.items()}
            call_by_rows(b, p.count, names, [*operands, *ahead])

    def _call_matrix_micro(self, p: RowProducts) -> None:
        s, b = self.schedule, self.b
        pitch = p.depth * s.factor.size_bytes
        rows = b.offset(self.scratch["copy"], self._inside * p.depth, s.factor)
        operands = [rows, pitch, p.depth // s.step, p.panel, p.target, *self._begins()]
        names = [matrix_micro_name(self._kind, n, s.vectors) for n in self._sixteens()]
        micro: Operand = b.address_of(names[0])
        for name in names[1:]:
            micro = b.select(p.count > SIDE, b.address_of(name), micro)
        b.call(micro, operands)

    def _begins(self) -> list[Operand]:
        """What sums of a panel's columns start from, where that is not 0."""
        return []


class Bf16MatrixKernel(_MatrixKernel, Bf16Kernel):
    """Factors are rounded to bfloat16."""

    schedule: Bf16MatrixSchedule
    _kind = matrix_registers.HALVES

    def _left_rows(self) -> LeftRows:
        return _Bf16MatrixRows(self.schedule, self.outside, self.places, self.scratch)

    def _few_micro(self, rows: int) -> Program:
        return build_half_micro(rows, self.schedule.vectors, self.schedule.lanes)

    def _few_operands(
        self, rows: Operand, depth: Operand, panel: Operand, target: Operand
    ) -> list[Operand]:
        return [rows, depth // PAIR, panel, target]


class IntegerMatrixKernel(_MatrixKernel, IntegerKernel):
    """Factors are codes: unsigned bytes, or signed ones that 128 is added to, by signed ones."""

    schedule: IntegerMatrixSchedule
    _kind = matrix_registers.BYTES

    def _left_rows(self) -> LeftRows:
        return _IntegerMatrixRows(self.schedule, self.outside, self.places, self.scratch)

    def _few_micro(self, rows: int) -> Program:
        s = self.schedule
        return build_integer_micro(U8, rows, s.vectors, s.lanes, zeros=False)

    def _few_operands(
        self, rows: Operand, depth: Operand, panel: Operand, target: Operand
    ) -> list[Operand]:
        b = self.b
        groups = depth // GROUP
        return [rows, b.value(I64, 1), groups, panel, target, self.scratch["start"]]

    def _begins(self) -> list[Operand]:
        return [self.scratch["start"]]
