"""A contraction of 8-bit codes as a kernel: that of `contraction` with the micro-kernel of bytes.

Loops are those of `contraction`. Before its tiles, a block computes what sums start from::

    for v in 0..width step lanes:
        start[v] = -left_zero * (sum of column[v] - right_zero[v] * K)
"""

from __future__ import annotations

from sardonyx.base import dtypes, sizes
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Literal, Operand, Program
from sardonyx.kernel.language.types import I8, I32, I64, U8
from sardonyx.kernel.matmul.code_factors import CodeFactors
from sardonyx.kernel.matmul.contraction import KernelParts, TileLoop
from sardonyx.kernel.matmul.contraction_epilogue import EpilogueWriter
from sardonyx.kernel.matmul.kernel_context import KernelContext, Layout
from sardonyx.kernel.matmul.left_rows import PLAIN, LeftRows, RowFormat
from sardonyx.kernel.matmul.micro_integer import (
    GROUP,
    MIDDLE,
    build_integer_micro,
    integer_micro_name,
)
from sardonyx.kernel.matmul.packed_words import WordPacker
from sardonyx.kernel.matmul.panels import RightPanels
from sardonyx.kernel.matmul.prefetch import Prefetch
from sardonyx.kernel.matmul.tile import RowProducts, call_by_rows
from sardonyx.kernel.matmul.tile_sums import VectorTiles, vector_tile_rows
from sardonyx.plan.axes import extent_of
from sardonyx.tensor import scalar


def integer_parts(c: KernelContext) -> KernelParts:
    """The parts of a kernel that multiplies codes in vectors."""
    counts = vector_tile_rows(c.schedule)
    # Sums of bytes take so little time that a loop around their epilogue would show.
    epilogue = EpilogueWriter(c, unrolls=True)
    prefetch = Prefetch(c, c.schedule.width * GROUP, counts[0])
    micro = IntegerMicro(c, prefetch, counts)
    tiles = VectorTiles(LeftRows(c, CODES), micro, epilogue, prefetch)
    return KernelParts(integer_panels(c), tiles, TileLoop(c, tiles, epilogue), epilogue)


def integer_panels(c: KernelContext) -> RightPanels:
    """Panels of codes, and where their sums start from."""
    return RightPanels(c, pack_groups, SumStarts(c))


def _codes(c: KernelContext) -> CodeFactors:
    factors = c.schedule.factors
    assert isinstance(factors, CodeFactors)  # noqa: S101 - the kernel is one of codes
    return factors


def _zero_point(c: KernelContext) -> Operand:
    codes = _codes(c)
    return c.b.lift(c.outside.scalar(codes.padding), codes.type)


def _end_groups(c: KernelContext, r: Operand, depth: Operand) -> None:
    """Write what is an unsigned 0 behind a copied row, up to a whole group."""
    b, nothing = c.b, -MIDDLE if c.schedule.factors.type == I8 else 0
    end = (r + 1) * depth
    with b.if_(depth > 0):
        last = end - GROUP
        zeros = b.constant(I8.with_lanes(GROUP), nothing)
        b.store(zeros, c.scratch["copy"], last, align_bytes=1)


#: Rows of codes. Beyond the edge there are zero points, which the sums of columns count.
CODES = RowFormat(PLAIN.rounded, _end_groups, _zero_point, may_leave_taps_out=False)


class IntegerMicro:
    """Calls of the micro-kernels of bytes.

    Args:
        context: Of the kernel.
        prefetch: Writes what is prefetched.
        counts: Row counts of tiles, the largest first.
    """

    def __init__(self, context: KernelContext, prefetch: Prefetch, counts: tuple[int, ...]) -> None:
        self.context, self.prefetch, self.counts = context, prefetch, counts
        self._zeros = _codes(context).zeros

    def functions(self) -> tuple[Program, ...]:
        """Those that are called."""
        s, zeros = self.context.schedule, self._zeros
        return tuple(
            build_integer_micro(s.factors.type, r, s.vectors, s.lanes, zeros=zeros)
            for r in self.counts
        )

    def layout(self) -> Layout:
        """None: what sums start from is there for each panel."""
        return []

    def multiply(self, p: RowProducts) -> None:
        """The sums of some rows."""
        s, b, scratch = self.context.schedule, self.context.b, self.context.scratch
        groups = p.depth // GROUP
        operands = [p.table, b.lift(p.taps, I64), groups, p.panel, p.target]
        operands += [scratch["start"], *([scratch["zeros"]] if self._zeros else [])]
        operands += self.prefetch.asked(p.taps * groups)
        element, zeros = s.factors.type, self._zeros
        names = {
            rows: integer_micro_name(element, rows, s.vectors, s.lanes, zeros=zeros)
            for rows in self.counts
        }
        call_by_rows(b, p.count, names, operands)


class SumStarts:
    """Where the sums of a panel's columns start from: see `code_factors`.

    Args:
        context: Of the kernel.
    """

    def __init__(self, context: KernelContext) -> None:
        self.context, self.codes = context, _codes(context)

    def layout(self) -> Layout:
        """Scratch for them, and for the zero points of a panel's columns."""
        s = self.context.schedule
        size_bytes = s.width * s.element.size_bytes
        names = ("start", "zeros") if self.codes.zeros else ("start",)
        return [(name, size_bytes) for name in names]

    def prepare(
        self, level: Expression, panels: RightPanels, panel: Operand, first_column: Operand
    ) -> None:
        """See `panels.PanelFacts`."""
        s, b, scratch = self.context.schedule, self.context.b, self.context.scratch
        words = s.element.with_lanes(s.lanes)
        left = level.scalar(self.codes.left_zero)
        total = level.dim(sizes.product(map(extent_of, s.access.reduced)))
        extent, atom = level.dim(extent_of(s.axes.column)), sizes.variable(s.axes.column)
        for v in range(0, s.width, s.lanes):
            column = first_column + v
            sums = self._sums_of_columns(level, panels, panel, v)
            if self.codes.zeros:
                mask = b.tail_mask(extent - column, s.lanes)
                here = level.child({atom: column}, vector=atom, lanes=s.lanes, mask=mask)
                points = b.lift(here.scalar(self.codes.right_zero), words)
                b.store(points, scratch["zeros"], v, align_bytes=4)
                count = b.splat(b.convert(total, I32), s.lanes)
                sums = sums - points * count
            start = sums * b.splat(-_with_type(b, left), s.lanes)
            b.store(start, scratch["start"], v, align_bytes=4)

    def _sums_of_columns(
        self, level: Expression, panels: RightPanels, panel: Operand, first: int
    ) -> Operand:
        """The sums of bytes of some columns: packed, or left in scratch by `pack_groups`."""
        s, c, b = self.context.schedule, self.context, self.context.b
        words = s.element.with_lanes(s.lanes)
        if not c.packs:
            return b.load(words, c.scratch["start"], first, align_bytes=4)
        at = panels.number(level, panel) * s.width
        packed = c.places[c.packs[1].packed].pointer
        return b.load(words, packed, at + first, align_bytes=4)


def _with_type(b: Builder, x: Operand) -> Operand:
    """Not a literal: operations need one operand that has a type of its own."""
    return b.variable(x).get() if isinstance(x, Literal) else x


def pack_groups(c: KernelContext, level: Expression, first_column: Operand) -> None:
    """Copy the panel of a block to scratch, 0 beyond the last column and the last step.

    The sums of its columns go where what sums start from comes later.
    """
    s, b, panel = c.schedule, c.b, c.scratch["panel"]
    words = s.element.with_lanes(s.lanes)
    packer = WordPacker(level, s.axes.column, s.access.reduced_order(), words, GROUP)
    length = level.dim(s.access.depth_extent)
    groups = level.dim(s.panel_length()) // GROUP
    signed = scalar.cast(_codes(c).signed_right, dtypes.INT32)
    # Only rows with something behind their end are shorter than the panel.
    whole = s.row_length == s.access.depth_extent

    def element(here: Expression, mask: Operand) -> Operand:
        value = b.lift(here.scalar(signed), words)
        return b.select(mask, value, 0) & 255

    for v in range(s.vectors):
        start = first_column + v * s.lanes
        left = level.dim(extent_of(s.axes.column)) - start
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
        b.store(total.get(), c.scratch["start"], v * s.lanes, align_bytes=4)
