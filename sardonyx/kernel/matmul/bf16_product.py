"""A contraction in float32 whose factors are rounded to bfloat16: on request alone.

Sums stay in float32. Instructions take two steps of the depth at a time, so pairs of elements lie
side by side: rows of the left factor are copied and rounded, panels of the right one have the
columns of two steps interleaved. Denormal numbers may become 0.

Loops are those of `contraction`. The micro-kernel's, rows and vectors being written out::

    for g in 0..pairs:
        sums[r, v] += A[r, 2 g : 2 g + 2] . panel[g, v, 0:2]    # one instruction a vector
    tile[rows, vectors * lanes] = sums
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import BF16, F32, I32, I64, PTR, U16, U32, Type
from sardonyx.kernel.matmul.contraction import KernelParts, TileLoop
from sardonyx.kernel.matmul.contraction_epilogue import EpilogueWriter
from sardonyx.kernel.matmul.factors import Factors, Packing
from sardonyx.kernel.matmul.kernel_context import KernelContext, Layout
from sardonyx.kernel.matmul.left_rows import LeftRows, RowFormat
from sardonyx.kernel.matmul.long_sums import LONG
from sardonyx.kernel.matmul.packed_words import WordPacker
from sardonyx.kernel.matmul.panels import RightPanels
from sardonyx.kernel.matmul.prefetch import Prefetch
from sardonyx.kernel.matmul.prefetch_tiles import AHEAD, PrefetchTiles
from sardonyx.kernel.matmul.tile import RowProducts, call_by_rows
from sardonyx.kernel.matmul.tile_sums import VectorTiles, vector_tile_rows
from sardonyx.plan.axes import extent_of
from sardonyx.plan.groups import Contraction
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import buffer, indices, make_map

if TYPE_CHECKING:
    from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule

#: How many steps of the depth one instruction sums.
PAIR = 2
#: Shorter sums do not pay for the rounding.
_LEAST_DEPTH = 16


def may_round(group: Contraction) -> bool:
    """Whether a contraction is one of float32 numbers, long enough to gain.

    Not so long that sums are added up in float64: here they are float32 from the first to the last.
    """
    depth = sizes.product(map(extent_of, group.reduced))
    long = not isinstance(depth, int) or _LEAST_DEPTH <= depth <= LONG
    factors = (group.left.dtype, group.right.dtype, group.accumulator)
    return long and all(dtype is dtypes.FLOAT for dtype in factors)


class Bf16Factors(Factors):
    """Factors that are rounded to bfloat16: rows are always copied."""

    step, faster, may_be_long = PAIR, PAIR, False

    def __init__(self, left: Scalar, right: Scalar, element: Type) -> None:
        super().__init__(left, right, element)
        self.type = BF16

    def packings(self, s: ContractionSchedule) -> list[Packing]:
        """Panels (batch..., panel, pair, column, 2) of bfloat16."""
        lead = s.packed_axes()
        pairs = s.row_length // PAIR
        shape = (*map(extent_of, lead), s.panels(), pairs, s.width, PAIR)
        own, n = indices(shape), len(lead)
        step = own[-3] * PAIR + own[-1]
        column = own[n] * s.width + own[-2]
        atoms: dict[Atom, Dim] = dict(zip(map(sizes.variable, lead), own, strict=False))
        atoms[sizes.variable(s.axes.column)] = column
        place = step
        for axis in reversed([a for a in s.access.reduced if sizes.as_atom(a) is not None]):
            atoms[sizes.variable(axis)] = integer.modulo(place, extent_of(axis))
            place = integer.floordiv(place, extent_of(axis))
        value = scalar.cast(rewrite(self.right, atoms=atoms), dtypes.BFLOAT16)
        zero = scalar.constant(0, dtypes.BFLOAT16)
        for index, extent in ((step, s.access.depth_extent), (column, extent_of(s.axes.column))):
            inside = scalar.size(index) < scalar.size(extent)
            value = scalar.select(inside, value, zero)
        contents = make_map(shape, value)
        return [Packing(buffer(("packed", contents), shape, dtypes.BFLOAT16), contents)]


def round_to_bf16(b: Builder, value: Operand, kind: Type) -> Operand:
    """A float32 element, or lanes, as copied rows hold them."""
    return b.round_to_half(b.lift(value, F32.with_lanes(kind.lanes)))


def _end_pairs(c: KernelContext, r: Operand, depth: Operand) -> None:
    """Write a 0 behind an odd number of elements."""
    last = (r + 1) * depth - 1
    with c.b.if_(depth > 0):
        c.b.store(c.b.constant(BF16, 0), c.scratch["copy"], last)


#: Rows that are copied and rounded, in whole pairs.
PAIRS = RowFormat(round_to_bf16, _end_pairs)


def bf16_parts(c: KernelContext) -> KernelParts:
    """The parts of a kernel that multiplies rounded factors in vectors."""
    counts, epilogue = vector_tile_rows(c.schedule), EpilogueWriter(c)
    prefetch = Prefetch(c, c.schedule.width * U32.size_bytes, counts[0])
    micro = Bf16Micro(c, prefetch, counts)
    tiles = VectorTiles(LeftRows(c, PAIRS), micro, epilogue, prefetch)
    return KernelParts(RightPanels(c, pack_pairs), tiles, TileLoop(c, tiles, epilogue), epilogue)


class Bf16Micro:
    """Calls of the micro-kernels of pairs.

    Args:
        context: Of the kernel.
        prefetch: Writes what is prefetched.
        counts: Row counts of tiles, the largest first.
    """

    def __init__(self, context: KernelContext, prefetch: Prefetch, counts: tuple[int, ...]) -> None:
        self.context, self.prefetch, self.counts = context, prefetch, counts

    def functions(self) -> tuple[Program, ...]:
        """Those that are called."""
        s = self.context.schedule
        return tuple(build_half_micro(rows, s.vectors, s.lanes) for rows in self.counts)

    def layout(self) -> Layout:
        """None."""
        return []

    def multiply(self, p: RowProducts) -> None:
        """The sums of some rows."""
        s = self.context.schedule
        pairs = p.depth // PAIR
        operands = [p.table, pairs, p.panel, p.target, *self.prefetch.asked(pairs)]
        names = {rows: _micro_name(rows, s.vectors, s.lanes) for rows in self.counts}
        call_by_rows(self.context.b, p.count, names, operands)


def pack_pairs(c: KernelContext, level: Expression, first_column: Operand) -> None:
    """Copy the panel of a block to scratch, 0 beyond the last column and the last step."""
    s, b = c.schedule, c.b
    panel, words = c.scratch["panel"], U32.with_lanes(s.lanes)
    packer = WordPacker(level, s.axes.column, s.access.reduced, words, PAIR)
    length = level.dim(s.access.depth_extent)
    pairs = level.dim(s.row_length) // PAIR

    def element(here: Expression, mask: Operand) -> Operand:
        value = b.lift(here.scalar(s.factors.right), F32.with_lanes(s.lanes))
        half = b.round_to_half(b.select(mask, value, 0))
        return b.convert(b.bitcast(half, U16.with_lanes(s.lanes)), U32)

    for v in range(0, s.width, s.lanes):
        start = first_column + v
        left = level.dim(extent_of(s.axes.column)) - start

        def count(step: Operand, left: Operand = left) -> Operand:
            return b.select(step < length, left, 0)

        with b.for_(0, pairs) as g:
            word = packer.word(g, start, count, element)
            line = b.offset(panel, g, s.width * U32.size_bytes)
            b.store(word.get(), line, v, align_bytes=4)


def _micro_name(rows: int, vectors: int, lanes: int) -> str:
    return f"micro_half_{rows}x{vectors}x{lanes}"


def build_half_micro(rows: int, vectors: int, lanes: int) -> Program:
    """`(table, pairs, panel, tile, next, share)`: as `micro`, with one tap and two steps at a time.

    table: rows pointers to bfloat16. tile: rows * vectors * lanes floats, 64-byte aligned.
    """
    parameters = [("table", PTR), ("pairs", I64), ("panel", PTR), ("tile", PTR), *AHEAD]
    b = Builder(_micro_name(rows, vectors, lanes), parameters)
    table, pairs, panel, tile = (b.parameter(n) for n, _ in parameters[:4])
    prefetch_tiles = PrefetchTiles(b, rows, vectors * lanes * U32.size_bytes)
    wide, halves = F32.with_lanes(lanes), BF16.with_lanes(PAIR * lanes)
    width = vectors * lanes
    sums = [[b.variable(0, wide) for _ in range(vectors)] for _ in range(rows)]
    starts = [b.load(PTR, table, r) for r in range(rows)]
    with b.for_(0, pairs) as g:
        line = b.offset(panel, g, width * U32.size_bytes)
        prefetch_tiles.ask(g, line)
        columns = [b.load(halves, line, v * lanes * PAIR) for v in range(vectors)]
        for r in range(rows):
            factor = b.bitcast(b.splat(b.load(I32, starts[r], g, align_bytes=2), lanes), halves)
            for v in range(vectors):
                sums[r][v].set(b.dot_halves(sums[r][v].get(), factor, columns[v]))
    for r in range(rows):
        for v in range(vectors):
            b.store(sums[r][v].get(), tile, (r * vectors + v) * lanes, align_bytes=16)
    return b.program
