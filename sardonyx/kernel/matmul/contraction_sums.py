"""How the kernel of a product calls micro-kernels: all products of a tile at once, or in parts.

In parts go sums of which a panel does not stay in the cache of a core
(`contraction_schedule.DEEP`), and those that are added up in float64 (`long_sums`).

Where a panel does not stay in the cache (`_sum_in_parts`)::

    for begin in 0..depth step DEPTH_PART:
        for row in low..high step count:
            table[r] = address of A[row + r, begin]
            line[count, width] += micro(table, DEPTH_PART, panel[begin:])
"""

from __future__ import annotations

from dataclasses import replace

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.compiled import Place
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import F64, I1, I64
from sardonyx.kernel.matmul.contraction_epilogue import EpilogueWriter
from sardonyx.kernel.matmul.contraction_schedule import DEPTH_PART, ContractionSchedule
from sardonyx.kernel.matmul.long_sums import LONG, long_sum_name
from sardonyx.kernel.matmul.micro import PART, micro_name
from sardonyx.kernel.matmul.prefetch import Prefetch
from sardonyx.kernel.matmul.tile import RowBlock, RowProducts, unflattened
from sardonyx.plan.axes import extent_of
from sardonyx.tensor.tensor import Tensor


class Sums:
    """The part of a contraction's kernel that multiplies rows and adds up what comes of it.

    Attributes:
        schedule: How the kernel goes over the contraction's axes.
        b: Writes the kernel.
        outside: What no block changes.
        places: Where tensors lie.
        scratch: Parts of the thread's memory by name.
        tile_rows: Row counts of tiles, the largest first.
        epilogue: Writes what follows sums.
        prefetch: Writes what is prefetched.
    """

    schedule: ContractionSchedule
    b: Builder
    outside: Expression
    places: dict[Tensor, Place]
    scratch: dict[str, Operand]
    tile_rows: tuple[int, ...]
    epilogue: EpilogueWriter
    prefetch: Prefetch

    def _line_bytes(self) -> int:
        """Bytes of a panel that a step of a micro-kernel reads."""
        return self.schedule.width * self.schedule.element.size_bytes

    def _rows_of_tile(self, rest: Operand) -> Operand:
        """How many rows the next tile has, of so many that are left: the kernel's own knows."""
        raise NotImplementedError

    def _goes_in_parts(self) -> bool:
        """Whether all rows of a block pass one part of the panel after the other."""
        s = self.schedule
        return s.is_deep and s.direct and not s.taps and s.window is None

    def _may_be_long(self) -> bool:
        """Whether sums may be so long that they are added up in float64."""
        return self.schedule.is_long is not False

    def _sum_in_parts(self, rows: RowBlock) -> None:
        """The sums of all rows of a block."""
        s, b, depth = self.schedule, self.b, rows.depth
        low, high = rows.low, rows.high
        zero: dict[Atom, Dim] = {sizes.variable(v): 0 for v in s.reduced}
        offset, base = substitute(s.left_offset, zero), self.places[s.left_buffer].pointer
        begin = b.variable(0, I64, name="begin")
        with b.while_(lambda: begin.get() < depth):
            start = begin.get()
            length = b.min(depth - start, DEPTH_PART)
            part = b.offset(rows.panel, start, self._line_bytes())
            behind = b.offset(part, length, self._line_bytes())
            self.prefetch.share_out(behind, high - low)
            row = b.variable(low, name="row")
            with b.while_(lambda: row.get() < high):
                first = row.get()
                count = self._rows_of_tile(high - first)
                place = first - low
                line = self.epilogue.line(place)
                wide = self._wide_line(place)
                with b.for_(0, count) as r:
                    at = unflattened(b, first + r, s.rows, rows.extents)
                    where = b.lift(rows.level.child(at).dim(offset), I64)
                    pointer = b.offset(base, where + start, s.factor)
                    b.store(pointer, self.scratch["table"], r)
                products = RowProducts(self.scratch["table"], count, 1, length, part, line)
                self._add_part(products, start, depth, wide)
                row.set(first + count)
            begin.set(start + length)

    def _wide_line(self, row: Operand) -> Operand | None:
        """Where a row of products is added up in float64; None where it is not."""
        s = self.schedule
        if not s.is_long:
            return None
        return self.b.offset(self.scratch["wide"], row, s.width * F64.size_bytes)

    def _add_part(
        self, part: RowProducts, start: Operand, depth: Operand, wide: Operand | None
    ) -> None:
        """A part of the sums of a tile.

        Args:
            part: Its products.
            start: Where they begin.
            depth: How many products there are in all parts.
            wide: Where the sums are in float64 until the last part; None if they are not.
        """
        b = self.b
        if wide is not None:
            is_last = start + part.depth >= depth
            ends = (b.eq(start, 0), is_last)
            self._call_long(part, wide, ends)
            return
        target = b.select(b.eq(start, 0), part.target, self.scratch["more"])
        self._call_micro(replace(part, target=target))
        with b.if_(b.ne(start, 0)):
            self._add_lines(part.target, part.count)

    def _add_lines(self, line: Operand, count: Operand) -> None:
        """Add the sums of a part to those of the parts before it."""
        s, b = self.schedule, self.b
        kind = s.element.with_lanes(s.lanes)
        with b.for_(0, count * s.width, s.lanes) as k:
            more = b.load(kind, self.scratch["more"], k, align_bytes=16)
            total = b.load(kind, line, k, align_bytes=16) + more
            b.store(total, line, k, align_bytes=16)

    def _sum(self, products: RowProducts) -> None:
        """Multiply rows; see `long_sums` for long ones."""
        s, b = self.schedule, self.b
        ends = (b.lift(True, I1), b.lift(True, I1))
        if s.is_long is False:
            self._call_micro(products)
        elif s.is_long:
            self._call_long(products, self.scratch["wide"], ends)
        else:
            length = self.outside.dim(sizes.product(map(extent_of, s.reduced)))
            with b.if_(length > LONG):
                self._call_long(products, self.scratch["wide"], ends)
            with b.else_():
                self._call_micro(products)

    def _call_long(self, p: RowProducts, wide: Operand, ends: tuple[Operand, Operand]) -> None:
        """Add products to sums in float64; `ends`: whether these are the first, and the last."""
        s, b = self.schedule, self.b
        rows = [self.scratch[name] for name in ("more", "starts")]
        first, last = (b.convert(x, I64) for x in ends)
        operands = [self._micro(p.count), p.count, p.table, b.lift(p.taps, I64), p.depth]
        operands += [p.panel, p.target]
        b.call(
            long_sum_name(s.element, s.vectors, s.lanes),
            [*operands, wide, *rows, first, last, b.constant(I64, s.width)],
        )

    def _call_micro(self, p: RowProducts) -> None:
        """Multiply rows by the micro-kernel for so many."""
        b = self.b
        operands = [p.table, b.lift(p.taps, I64), p.depth, p.panel, p.target]
        operands += [b.constant(I64, PART), *self.prefetch.asked(p.taps * p.depth)]
        if len(self.tile_rows) == 1:
            b.call(self._micro_name(self.tile_rows[0]), operands)
        else:
            b.call(self._micro(p.count), operands)

    def _micro_name(self, rows: int) -> str:
        s = self.schedule
        return micro_name(s.element, rows, s.vectors, s.lanes, at_once=s.at_once(rows))

    def _micro(self, count: Operand) -> Operand:
        """The address of the micro-kernel for a tile of so many rows.

        One call without branches is half as much for LLVM as a call for each.
        """
        b = self.b
        *others, least = self.tile_rows
        micro: Operand = b.address_of(self._micro_name(least))
        for rows in reversed(others):
            address = b.address_of(self._micro_name(rows))
            micro = b.select(b.eq(count, rows), address, micro)
        return micro
