"""How the kernel of a product calls micro-kernels: all products of a tile at once, or in parts.

In parts go sums of which a panel does not stay in the cache of a core
(`contraction_schedule.DEEP`), and those that are added up in float64 (`long_sums`).

Where a panel does not stay in the cache (`SumsInParts.write`)::

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
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import F64, I1, I64
from sardonyx.kernel.matmul.contraction_epilogue import EpilogueWriter
from sardonyx.kernel.matmul.contraction_schedule import DEPTH_PART
from sardonyx.kernel.matmul.kernel_context import KernelContext, Layout
from sardonyx.kernel.matmul.long_sums import LONG, build_long_sum, long_sum_name
from sardonyx.kernel.matmul.micro import PART, build_micro, micro_name
from sardonyx.kernel.matmul.prefetch import Prefetch
from sardonyx.kernel.matmul.tile import RowBlock, RowProducts, rows_of_next_tile, unflattened
from sardonyx.plan.axes import extent_of


class FloatMicro:
    """Calls of the micro-kernels of floats, and of the sums in float64 that are made of them.

    Args:
        context: Of the kernel.
        prefetch: Writes what is prefetched.
        counts: Row counts of tiles, the largest first.
    """

    def __init__(self, context: KernelContext, prefetch: Prefetch, counts: tuple[int, ...]) -> None:
        self.context, self.prefetch, self.counts = context, prefetch, counts
        self.schedule, self.b, self.scratch = context.schedule, context.b, context.scratch

    def functions(self) -> tuple[Program, ...]:
        """Those that are called."""
        s = self.schedule
        micro = (
            build_micro(s.element, r, s.vectors, s.lanes, at_once=s.at_once(r)) for r in self.counts
        )
        long = [build_long_sum(s.element, s.vectors, s.lanes)] if s.loops.may_be_long else []
        return (*micro, *long)

    def layout(self) -> Layout:
        """Scratch for the sums of a part; for those in float64, and where their rows begin."""
        s, most, layout = self.schedule, self.counts[0], Layout()
        if s.goes_in_parts or s.loops.may_be_long:
            layout.append(("more", most * s.width * s.element.size_bytes))
        if s.loops.may_be_long:
            rows = s.loops.rows if s.goes_in_parts else most
            layout.append(("wide", rows * (s.width * F64.size_bytes)))
            layout.append(("starts", most * 8))
        return layout

    def multiply(self, products: RowProducts) -> None:
        """Multiply rows; see `long_sums` for long ones."""
        s, b = self.schedule, self.b
        ends = (b.lift(True, I1), b.lift(True, I1))
        if s.loops.is_long is False:
            self.call(products)
        elif s.loops.is_long:
            self.call_long(products, self.scratch["wide"], ends)
        else:
            length = self.context.outside.dim(sizes.product(map(extent_of, s.access.reduced)))
            with b.if_(length > LONG):
                self.call_long(products, self.scratch["wide"], ends)
            with b.else_():
                self.call(products)

    def call_long(self, p: RowProducts, wide: Operand, ends: tuple[Operand, Operand]) -> None:
        """Add products to sums in float64; `ends`: whether these are the first, and the last."""
        s, b = self.schedule, self.b
        rows = [self.scratch[name] for name in ("more", "starts")]
        first, last = (b.convert(x, I64) for x in ends)
        operands = [self._address(p.count), p.count, p.table, b.lift(p.taps, I64), p.depth]
        operands += [p.panel, p.target]
        b.call(
            long_sum_name(s.element, s.vectors, s.lanes),
            [*operands, wide, *rows, first, last, b.constant(I64, s.width)],
        )

    def call(self, p: RowProducts) -> None:
        """Multiply rows by the micro-kernel for so many."""
        b = self.b
        operands = [p.table, b.lift(p.taps, I64), p.depth, p.panel, p.target]
        operands += [b.constant(I64, PART), *self.prefetch.asked(p.taps * p.depth)]
        if len(self.counts) == 1:
            b.call(self._name(self.counts[0]), operands)
        else:
            b.call(self._address(p.count), operands)

    def _name(self, rows: int) -> str:
        s = self.schedule
        return micro_name(s.element, rows, s.vectors, s.lanes, at_once=s.at_once(rows))

    def _address(self, count: Operand) -> Operand:
        """The address of the micro-kernel for a tile of so many rows.

        One call without branches is half as much for LLVM as a call for each.
        """
        b = self.b
        *others, least = self.counts
        micro: Operand = b.address_of(self._name(least))
        for rows in reversed(others):
            address = b.address_of(self._name(rows))
            micro = b.select(b.eq(count, rows), address, micro)
        return micro


class SumsInParts:
    """The rows of a block, all of which pass one part of the panel after the other.

    Args:
        micro: Multiplies parts.
        epilogue: Finishes sums.
    """

    def __init__(self, micro: FloatMicro, epilogue: EpilogueWriter) -> None:
        self.micro, self.epilogue, self.context = micro, epilogue, micro.context
        self.schedule, self.b, self.scratch = micro.schedule, micro.b, micro.scratch

    def kept_rows(self) -> Dim:
        """Rows whose sums are kept."""
        return self.schedule.loops.rows

    def write(self, rows: RowBlock) -> None:
        """All rows of a block."""
        self._sum(rows)
        self._finish(rows)

    def _sum(self, rows: RowBlock) -> None:
        s, b, depth = self.schedule, self.b, rows.depth
        low, high, prefetch = rows.low, rows.high, self.micro.prefetch
        line_bytes = s.width * s.element.size_bytes
        zero: dict[Atom, Dim] = {sizes.variable(v): 0 for v in s.access.reduced}
        offset = substitute(s.access.offset, zero)
        base = self.context.places[s.factors.body.tensor].pointer
        begin = b.variable(0, I64, name="begin")
        with b.while_(lambda: begin.get() < depth):
            start = begin.get()
            length = b.min(depth - start, DEPTH_PART)
            part = b.offset(rows.panel, start, line_bytes)
            behind = b.offset(part, length, line_bytes)
            prefetch.share_out(behind, high - low)
            row = b.variable(low, name="row")
            with b.while_(lambda: row.get() < high):
                first = row.get()
                count = rows_of_next_tile(b, high - first, self.micro.counts)
                place = first - low
                line = self.epilogue.line(place)
                wide = self._wide_line(place)
                with b.for_(0, count) as r:
                    at = unflattened(b, first + r, s.axes.rows, rows.extents)
                    where = b.lift(rows.level.child(at).dim(offset), I64)
                    pointer = b.offset(base, where + start, s.factors.type)
                    b.store(pointer, self.scratch["table"], r)
                products = RowProducts(self.scratch["table"], count, 1, length, part, line)
                self._add_part(products, start, depth, wide)
                row.set(first + count)
            begin.set(start + length)

    def _wide_line(self, row: Operand) -> Operand | None:
        """Where a row of products is added up in float64; None where it is not."""
        s = self.schedule
        if not s.loops.is_long:
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
            self.micro.call_long(part, wide, ends)
            return
        target = b.select(b.eq(start, 0), part.target, self.scratch["more"])
        self.micro.call(replace(part, target=target))
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

    def _finish(self, rows: RowBlock) -> None:
        """The epilogue of all rows of a block."""
        s, b = self.schedule, self.b
        if s.axes.run is not None:
            self.epilogue.write_block(rows)
            return
        with b.for_(rows.low, rows.high) as row:
            here = rows.level.child(unflattened(b, row, s.axes.rows, rows.extents))
            line = self.epilogue.line(row - rows.low)
            self.epilogue.write_row(here, line, rows.first_column)
