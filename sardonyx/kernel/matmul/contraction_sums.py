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

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import F64, I1, I64
from sardonyx.kernel.matmul.contraction_epilogue import Finish
from sardonyx.kernel.matmul.contraction_schedule import DEPTH_PART
from sardonyx.kernel.matmul.long_sums import LONG, long_sum_name
from sardonyx.kernel.matmul.micro import PART, micro_name
from sardonyx.kernel.matmul.prefetch import Prefetch
from sardonyx.plan.axes import extent_of


class Sums(Prefetch, Finish):
    """The part of a product's kernel that multiplies rows and adds up what comes of it."""

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

    def _sum_in_parts(
        self,
        level: Expression,
        rows: tuple[Operand, Operand],
        depth: Operand,
        panel: Operand,
        extents: dict[Dim, Operand],
    ) -> None:
        """The sums of all rows of a block, from the first to the one behind the last."""
        s, b = self.schedule, self.b
        low, high = rows
        zero: dict[Atom, Dim] = {sizes.variable(v): 0 for v in s.reduced}
        offset, base = substitute(s.left_offset, zero), self.places[s.left_buffer].pointer
        begin = b.variable(0, I64, name="begin")
        with b.while_(lambda: begin.get() < depth):
            start = begin.get()
            length = b.min(depth - start, DEPTH_PART)
            part = b.offset(panel, start, self._line_bytes())
            behind = b.offset(part, length, self._line_bytes())
            self._share_out(behind, high - low)
            row = b.variable(low, name="row")
            with b.while_(lambda: row.get() < high):
                first = row.get()
                count = self._rows_of_tile(high - first)
                place = first - low
                line = self._line(place)
                wide = self._wide_line(place)
                with b.for_(0, count) as r:
                    at = self._unflatten(first + r, s.rows, extents)
                    where = b.lift(level.child(at).dim(offset), I64)
                    pointer = b.offset(base, where + start, s.factor)
                    b.store(pointer, self.scratch["table"], r)
                self._add_part(count, length, part, line, (start, depth), wide)
                row.set(first + count)
            begin.set(start + length)

    def _wide_line(self, row: Operand) -> Operand | None:
        """Where a row of products is added up in float64; None where it is not."""
        s = self.schedule
        if not s.is_long:
            return None
        return self.b.offset(self.scratch["wide"], row, s.width * F64.size_bytes)

    def _add_part(
        self,
        count: Operand,
        length: Operand,
        panel: Operand,
        line: Operand,
        place: tuple[Operand, Operand],
        wide: Operand | None,
    ) -> None:
        """A part of the sums of a tile.

        Args:
            count: Its rows.
            length: Products of the part.
            panel: Where their columns are.
            line: Where the sums go.
            place: Where the part begins, and how many products there are.
            wide: Where the sums are in float64 until the last part; None if they are not.
        """
        b, table, (start, depth) = self.b, self.scratch["table"], place
        if wide is not None:
            is_last = start + length >= depth
            ends = (b.eq(start, 0), is_last)
            self._call_long(table, count, 1, length, panel, line, wide, ends)
            return
        target = b.select(b.eq(start, 0), line, self.scratch["more"])
        self._call_micro(table, count, 1, length, panel, target)
        with b.if_(b.ne(start, 0)):
            self._add_lines(line, count)

    def _add_lines(self, line: Operand, count: Operand) -> None:
        """Add the sums of a part to those of the parts before it."""
        s, b = self.schedule, self.b
        kind = s.element.with_lanes(s.lanes)
        with b.for_(0, count * s.width, s.lanes) as k:
            more = b.load(kind, self.scratch["more"], k, align_bytes=16)
            total = b.load(kind, line, k, align_bytes=16) + more
            b.store(total, line, k, align_bytes=16)

    def _sum(
        self,
        table: Operand,
        count: Operand,
        taps: Operand | int,
        depth: Operand,
        panel: Operand,
        target: Operand,
    ) -> None:
        """Multiply the rows that the table points to; see `long_sums` for long ones."""
        s, b = self.schedule, self.b
        ends = (b.lift(True, I1), b.lift(True, I1))
        if s.is_long is False:
            self._call_micro(table, count, taps, depth, panel, target)
        elif s.is_long:
            self._call_long(table, count, taps, depth, panel, target, self.scratch["wide"], ends)
        else:
            length = self.outside.dim(sizes.product(map(extent_of, s.reduced)))
            with b.if_(length > LONG):
                wide = self.scratch["wide"]
                self._call_long(table, count, taps, depth, panel, target, wide, ends)
            with b.else_():
                self._call_micro(table, count, taps, depth, panel, target)

    def _call_long(
        self,
        table: Operand,
        count: Operand,
        taps: Operand | int,
        depth: Operand,
        panel: Operand,
        target: Operand,
        wide: Operand,
        ends: tuple[Operand, Operand],
    ) -> None:
        """Add products to sums in float64; `ends`: whether these are the first, and the last."""
        s, b = self.schedule, self.b
        rows = [self.scratch[name] for name in ("more", "starts")]
        first, last = (b.convert(x, I64) for x in ends)
        operands = [self._micro(count), count, table, b.lift(taps, I64), depth, panel, target]
        b.call(
            long_sum_name(s.element, s.vectors, s.lanes),
            [*operands, wide, *rows, first, last, b.constant(I64, s.width)],
        )

    def _call_micro(
        self,
        table: Operand,
        count: Operand,
        taps: Operand | int,
        depth: Operand,
        panel: Operand,
        target: Operand,
    ) -> None:
        """Multiply the rows that the table points to."""
        b = self.b
        operands = [table, b.lift(taps, I64), depth, panel, target, b.constant(I64, PART)]
        operands += self._asked(taps * depth)
        if len(self.tile_rows) == 1:
            b.call(self._micro_name(self.tile_rows[0]), operands)
        else:
            b.call(self._micro(count), operands)

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
