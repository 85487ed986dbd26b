"""`half_product` on registers for matrices: panels wider, rows rounded once for several of them.

One instruction sums 8,192 products, so what else is done for a tile counts. Where panels are packed
beforehand, all of them pass the same rows: these are copied and rounded when the first one does,
and the others find them in the thread's scratch.
"""

from __future__ import annotations

from sardonyx.base import integer, sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel import matrix_registers
from sardonyx.kernel.expression import Expression
from sardonyx.kernel.half_product import HalfKernel, HalfSchedule
from sardonyx.kernel.matrix_registers import ROW_BYTES, SIDE
from sardonyx.kernel.micro_matrix import build_matrix_micro, matrix_micro_name
from sardonyx.kernel.program import Constant, Operand, Program
from sardonyx.kernel.types import BF16, I1, I64, U16

_KIND = "halves"
#: Elements of a row that an instruction takes.
_STEP = ROW_BYTES // BF16.size_bytes
#: Rows of a tile at most.
_TILE = 2 * SIDE
#: Rows of a block stay in the second cache of a core while all panels pass, and so does a panel.
_ROWS_BYTES, _PANEL_BYTES = 1 << 20, 512 << 10
#: Rows of a block at most, and where only a run knows how long they are.
_MOST_ROWS, _TYPICAL_ROWS = 192, 96
#: Vectors of a panel: of more columns, sums of a tile leave the first cache.
_MOST_VECTORS, _LEAST_VECTORS = 8, 2
#: How many times as fast products are as those of floats, with what else a kernel does.
_FASTER = 6


class MatrixSchedule(HalfSchedule):
    """How the kernel of such a contraction goes over its axes."""

    @property
    def row_length(self) -> Dim:
        """Elements of a row in scratch: whole steps."""
        return sizes.multiply(integer.ceildiv(self.depth_extent, _STEP), _STEP)

    def _set_width(self, vectors: int) -> None:
        length = self.row_length
        if isinstance(length, int):
            fit = _PANEL_BYTES // max(1, length * SIDE * BF16.size_bytes)
            vectors = max(_LEAST_VECTORS, min(_MOST_VECTORS, fit // 2 * 2))
        super()._set_width(vectors)

    def balance(self) -> None:
        """Choose rows of blocks: whole tiles, as many as stay in a core's cache."""
        length, count = self.row_length, self.row_count()
        most = _TYPICAL_ROWS
        if isinstance(length, int):
            most = min(_MOST_ROWS, _ROWS_BYTES // max(1, length * BF16.size_bytes))
        tiles = max(1, most // _TILE)
        if isinstance(count, int):  # equal blocks
            whole = max(1, -(-count // _TILE))
            tiles = -(-whole // -(-whole // tiles))
        self.block_rows = tiles * _TILE

    def cost_ns(self) -> Dim:
        """Estimated time of all blocks on one thread."""
        return integer.ceildiv(super().cost_ns(), _FASTER // 2)


class MatrixKernel(HalfKernel):
    """Builds the kernel of one contraction.

    Args:
        schedule: How it goes over the contraction's axes.
        name: Symbol name.
        packed: Whether the right factor is constant, so that it is packed beforehand.
    """

    schedule: MatrixSchedule

    def _tile_rows(self) -> tuple[int, ...]:
        return (_TILE,)

    def _rows_of_tile(self, rest: Operand) -> Operand:
        return self.b.min(rest, _TILE)

    def _functions(self) -> tuple[Program, ...]:
        micro = (build_matrix_micro(_KIND, n, self.schedule.vectors) for n in self._sixteens())
        return (*micro, *self._finish_functions())

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
        rest, place = b.parted(block, b.binary("mul", panels, chunks))
        chunk, panel = b.parted(place, panels)
        return rest, panel, chunk

    # -- scratch ------------------------------------------------------------------------------

    def _block_rows(self) -> Dim:
        """Rows of a block, in whole tiles."""
        rows = self.schedule.block_rows
        return sizes.multiply(integer.ceildiv(rows, _TILE), _TILE)

    def _copied_rows(self) -> Dim:
        return self._block_rows()

    def _first_layout(self) -> list[tuple[str, Dim]]:
        return [("rows" if self.packed else "kept", 8), ("shapes", ROW_BYTES)]

    def _enter(self) -> None:
        matrix_registers.set_shapes(self.b, self.scratch["shapes"])

    def _leave(self) -> None:
        matrix_registers.release(self.b)

    # -- tiles --------------------------------------------------------------------------------

    def _begin_rows(self, number: Operand) -> None:
        """Whether the rows of this block, by their number among all, are those of the last one."""
        b = self.b
        self._are_new: Operand = Constant(I1, True)
        if self.packed:
            kept, mark = self.scratch["rows"], b.binary("add", number, 1)
            self._are_new = b.ne(b.load(I64, kept), mark)
            b.store(mark, kept)

    def _share_next(
        self, level: Expression, panel: Operand, rows: Operand, chunks: Operand
    ) -> None:
        """Nothing: steps ask for their own panel, and at its end for the next."""

    def _tile(
        self,
        level: Expression,
        first: Operand,
        count: Operand,
        taps: int,
        depth: Operand,
        panel: Operand,
        tile: Operand,
        first_column: Operand,
        extents: dict[Dim, Operand],
    ) -> None:
        s, b = self.schedule, self.b
        inside = b.binary("rem", first, self.outside.dim(s.block_rows))
        coordinates = self.scratch["coordinates"]
        with b.for_(0, count) as r:
            at = self._unflatten(b.binary("add", first, r), s.rows, extents)
            place = b.binary("mul", r, max(1, len(s.rows)))
            for k, variable in enumerate(s.rows):
                b.store(at[sizes.variable(variable)], coordinates, b.binary("add", place, k))
            if s.run is None:
                self._ask_ahead(level.child(at), first_column)
            with b.if_(self._are_new):
                row = b.binary("add", inside, r)
                self._copy_row(level.child(at), self.scratch["table"], row, depth)
        rows = b.offset(self.scratch["copy"], b.binary("mul", inside, depth), BF16)
        self._call_micro(rows, count, taps, depth, panel, tile)

    def _copy_row(self, row: Expression, table: Operand, r: Operand, depth: Operand) -> None:
        """Copy one row of the left factor, with zeros up to a whole step."""
        b = self.b
        end = b.binary("mul", b.binary("add", r, 1), depth)
        with b.if_(b.compare("gt", depth, 0)):
            zeros = b.constant(U16.with_lanes(_STEP), 0)
            b.store(zeros, self.scratch["copy"], b.binary("sub", end, _STEP), align_bytes=2)
        super(HalfKernel, self)._copy_row(row, table, r, depth)

    def _call_micro(
        self,
        table: Operand,
        count: Operand,
        taps: Operand | int,
        depth: Operand,
        panel: Operand,
        target: Operand,
    ) -> None:
        """Multiply the rows at `table`, which lie one after the other."""
        s, b = self.schedule, self.b
        pitch = b.binary("mul", depth, BF16.size_bytes)
        operands = [table, pitch, b.binary("div", depth, _STEP), panel, target]
        names = [matrix_micro_name(_KIND, n, s.vectors) for n in self._sixteens()]
        micro: Operand = b.address_of(names[0])
        for name in names[1:]:
            micro = b.select(b.compare("gt", count, SIDE), b.address_of(name), micro)
        b.call(micro, operands)
