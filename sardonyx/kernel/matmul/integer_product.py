"""A contraction of 8-bit codes as a kernel: that of `contraction` with the micro-kernel of bytes.

Loops are those of `contraction`. Before its tiles, a block computes what sums start from::

    for v in 0..width step lanes:
        start[v] = -left_zero * (sum of column[v] - right_zero[v] * K)
"""

from __future__ import annotations

from sardonyx.base import dtypes, sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.program import Literal, Operand, Program
from sardonyx.kernel.language.types import I8, I32, I64, U8
from sardonyx.kernel.matmul.contraction import ContractionKernel
from sardonyx.kernel.matmul.integer_schedule import IntegerSchedule
from sardonyx.kernel.matmul.left_rows import LeftRows
from sardonyx.kernel.matmul.micro_integer import (
    GROUP,
    MIDDLE,
    build_integer_micro,
    integer_micro_name,
)
from sardonyx.kernel.matmul.packed_words import WordPacker
from sardonyx.kernel.matmul.tile import RowProducts, call_by_rows
from sardonyx.plan.axes import extent_of
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar


class IntegerRows(LeftRows):
    """Rows of codes."""

    schedule: IntegerSchedule

    @property
    def leaves_taps_out(self) -> bool:
        """Never: beyond the edge there are zero points, which the sums of columns count."""
        return False

    def padding(self) -> Operand:
        """See `LeftRows`."""
        s = self.schedule
        return self.b.lift(self.outside.scalar(s.padding), s.factor)

    def copy(self, row: Expression, table: Operand, r: Operand, depth: Operand) -> None:
        """Copy one row of the left factor; what is an unsigned 0 up to a whole group."""
        b, nothing = self.b, -MIDDLE if self.schedule.factor == I8 else 0
        end = (r + 1) * depth
        with b.if_(depth > 0):
            last = end - GROUP
            b.store(
                b.constant(I8.with_lanes(GROUP), nothing), self.scratch["copy"], last, align_bytes=1
            )
        super().copy(row, table, r, depth)


class IntegerKernel(ContractionKernel):
    """Builds the kernel of one contraction of codes.

    Args:
        schedule: How it goes over the contraction's axes.
        name: Symbol name.
        packed: Whether the right factor is constant, so that it is packed beforehand.
    """

    schedule: IntegerSchedule
    # Sums of bytes take so little time that a loop around their epilogue would show.
    _unrolls = True

    def __init__(self, schedule: IntegerSchedule, name: str, packed: bool) -> None:
        super().__init__(schedule, name, packed)

    def _functions(self) -> tuple[Program, ...]:
        s = self.schedule
        micro = (
            build_integer_micro(s.factor, r, s.vectors, s.lanes, zeros=s.zeros)
            for r in self.tile_rows
        )
        return (*micro, *self.epilogue.functions())

    def _line_bytes(self) -> int:
        return self.schedule.width * GROUP

    def _other_bodies(self) -> tuple[Scalar, ...]:
        s = self.schedule
        return (s.left_zero, s.right_zero)

    def _other_layout(self) -> list[tuple[str, Dim]]:
        """Scratch for where sums start from, and for the zero points of a panel's columns."""
        s = self.schedule
        size_bytes = s.width * s.element.size_bytes
        names = ("start", "zeros") if s.zeros else ("start",)
        return [(name, size_bytes) for name in names]

    def _left_rows(self) -> LeftRows:
        return IntegerRows(self.schedule, self.outside, self.places, self.scratch)

    # -- zero points --------------------------------------------------------------------------

    def _prepare(self, level: Expression, panel: Operand, first_column: Operand) -> None:
        """Where the sums of each column start from: see `integer_schedule`."""
        s, b = self.schedule, self.b
        words = s.element.with_lanes(s.lanes)
        left = level.scalar(s.left_zero)
        total = level.dim(sizes.product(map(extent_of, s.reduced)))
        extent, atom = level.dim(extent_of(s.column)), sizes.variable(s.column)
        for v in range(0, s.width, s.lanes):
            column = first_column + v
            sums = self._sums_of_columns(level, panel, v)
            if s.zeros:
                mask = b.tail_mask(extent - column, s.lanes)
                here = level.child({atom: column}, vector=atom, lanes=s.lanes, mask=mask)
                points = b.lift(here.scalar(s.right_zero), words)
                b.store(points, self.scratch["zeros"], v, align_bytes=4)
                count = b.splat(b.convert(total, I32), s.lanes)
                sums = sums - points * count
            start = sums * b.splat(-self._value(left), s.lanes)
            b.store(start, self.scratch["start"], v, align_bytes=4)

    def _value(self, x: Operand) -> Operand:
        """Not a literal: operations need one operand that has a type of its own."""
        return self.b.variable(x).get() if isinstance(x, Literal) else x

    def _sums_of_columns(self, level: Expression, panel: Operand, first: int) -> Operand:
        """The sums of bytes of some columns: packed, or left in scratch by `_pack_now`."""
        s, b = self.schedule, self.b
        words = s.element.with_lanes(s.lanes)
        if not self.packs:
            return b.load(words, self.scratch["start"], first, align_bytes=4)
        at = self._panel_number(level, panel) * s.width
        packed = self.places[self.packs[1].packed].pointer
        return b.load(words, packed, at + first, align_bytes=4)

    # -- factors ------------------------------------------------------------------------------

    def _goes_in_parts(self) -> bool:
        """Never: panels of codes have a quarter of the bytes."""
        return False

    def _pack_now(self, level: Expression, first_column: Operand) -> Operand:
        """Copy the panel of this block to scratch, 0 beyond the last column and the last step."""
        s, b = self.schedule, self.b
        panel, words = self.scratch["panel"], s.element.with_lanes(s.lanes)
        packer = WordPacker(level, s.column, s.reduced_order(), words, GROUP)
        length = level.dim(s.depth_extent)
        groups = level.dim(self._panel_length()) // GROUP
        signed = scalar.cast(s.signed_right, dtypes.INT32)
        # Only rows with something behind their end are shorter than the panel.
        whole = s.row_length == s.depth_extent

        def element(here: Expression, mask: Operand) -> Operand:
            value = b.lift(here.scalar(signed), words)
            return b.select(mask, value, 0) & 255

        for v in range(s.vectors):
            start = first_column + v * s.lanes
            left = level.dim(extent_of(s.column)) - start
            total = b.variable(0, words)

            def count(step: Operand, left: Operand = left) -> Operand:
                return left if whole else b.select(step < length, left, 0)

            with b.for_(0, groups) as g:
                word = packer.word(g, start, count, element)
                line = b.offset(panel, g, s.width * GROUP)
                b.store(word.get(), line, v * s.lanes, align_bytes=4)
                ones = b.constant(U8.with_lanes(GROUP * s.lanes), 1)
                factors = b.bitcast(word.get(), I8.with_lanes(GROUP * s.lanes))
                total.set(b.dot(total.get(), ones, factors))
            b.store(total.get(), self.scratch["start"], v * s.lanes, align_bytes=4)
        return panel

    def _call_micro(self, p: RowProducts) -> None:
        s, b = self.schedule, self.b
        groups = p.depth // GROUP
        operands = [p.table, b.lift(p.taps, I64), groups, p.panel, p.target]
        operands += [self.scratch["start"], *([self.scratch["zeros"]] if s.zeros else [])]
        operands += self.prefetch.asked(p.taps * groups)
        names = {
            rows: integer_micro_name(s.factor, rows, s.vectors, s.lanes, zeros=s.zeros)
            for rows in self.tile_rows
        }
        call_by_rows(b, p.count, names, operands)
