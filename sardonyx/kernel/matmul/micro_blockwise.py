"""The micro-kernel of products with codes: a tile of rows by a few vectors of columns.

    tile[r, :] = sum over blocks g of
        scale[g, :] * s[r][g] * (start[r][g] + sum of digits * codes) + shift[g, :] * c[r][g]

Codes of 2, 4 or 8 bits are unsigned and stay packed in memory; they become bytes in registers, and
four products of bytes at a time are added to 32-bit sums. Of a left factor with several digits
each has starts and sums of its own, which are exact. The second term is there with shifts alone.

Loop nest; r, digit, and the vectors v of a pass are written out::

    for first in 0..vectors step at_once:
        totals[r, v] = 0
        for g in 0..blocks:
            sums[r, digit, v] = start[r, digit][g]
            for w in 0..coded_lines:
                sums[r, digit, v] += codes[g, w, first + v] . digits[r, digit][g, w]
            totals[r, v] += scale[g, first + v] * s[r][g] * sums + shift[g, first + v] * c[r][g]
        tile[r, first:] = totals
"""

from __future__ import annotations

from sardonyx.base.records import dataclass
from sardonyx.kernel.language.builder import Builder, Register
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import F32, I8, I32, I64, PTR, U8, U32

#: Vector registers that sums may take.
_SUMS = 26
_WORD = 4


@dataclass(frozen=True, slots=True)
class Panel:
    """How codes lie: for each block lines of codes, then of scales, of shifts if there are any.

    A tile reads them in this order, so that the processor prefetches them ahead.
    A line has a word for each column. Byte `i` of a word holds the codes of elements `4 j + i`, one
    for each `j`, lower bits first.

    Attributes:
        block: Elements of a block.
        bits: Of a code.
        shifted: Whether there are shifts.
        digits: Of the left factor.
        vectors: Vectors of a line.
        lanes: Words of a vector.
    """

    block: int
    bits: int
    shifted: bool
    digits: int
    vectors: int
    lanes: int

    @property
    def parts(self) -> int:
        """Codes in a byte."""
        return 8 // self.bits

    @property
    def coded_lines(self) -> int:
        """Lines of codes of a block."""
        return self.block // (_WORD * self.parts)

    @property
    def lines(self) -> int:
        """Lines of a block."""
        return self.coded_lines + 1 + self.shifted

    @property
    def line_bytes(self) -> int:
        """Bytes of a line."""
        return self.vectors * self.lanes * _WORD

    @property
    def pointers(self) -> int:
        """Pointers of a row: to digits, lowest first, their starts, scales, and sums if shifted."""
        return 2 * self.digits + 1 + self.shifted

    def micro_name(self, rows: int) -> str:
        """Symbol of the micro-kernel for a tile of so many rows."""
        shape = f"{rows}x{self.vectors}x{self.lanes}"
        return f"blockwise_{self.bits}_{self.block}_{self.digits}_{int(self.shifted)}_{shape}"

    def at_once(self, rows: int) -> int:
        """Vectors of columns whose sums fit into registers together."""
        fitting = (v for v in (4, 3, 2, 1) if self.vectors % v == 0)
        return next((v for v in fitting if v * rows * (self.digits + 1) <= _SUMS), 1)


def build_micro_blockwise(panel: Panel, rows: int) -> Program:
    """`(table, blocks, panel, tile)`: see the module's text.

    table: rows * pointers. tile: rows * vectors * lanes floats, 64-byte aligned.
    """
    parameters = [("table", PTR), ("blocks", I64), ("panel", PTR), ("tile", PTR)]
    b = Builder(panel.micro_name(rows), parameters)
    table, blocks, codes, tile = (b.parameter(n) for n, _ in parameters)
    pointers: list[list[Operand]] = [
        [b.load(PTR, table, r * panel.pointers + k) for k in range(panel.pointers)]
        for r in range(rows)
    ]
    at_once, lanes = panel.at_once(rows), panel.lanes
    with b.for_(0, panel.vectors, at_once) as first:
        begin = b.offset(codes, first, lanes * _WORD)
        totals = [
            [b.variable(0, F32.with_lanes(lanes)) for _ in range(at_once)] for _ in range(rows)
        ]
        with b.for_(0, blocks) as g:
            block = b.offset(begin, g, panel.lines * panel.line_bytes)
            sums = _multiply(b, panel, pointers, block, g, at_once)
            for r in range(rows):
                _add_block(b, panel, pointers[r], (block, g), sums[r], totals[r])
        line = b.offset(tile, first, lanes * F32.size_bytes)
        for r in range(rows):
            for v in range(at_once):
                place = (r * panel.vectors + v) * lanes
                b.store(totals[r][v].get(), line, place, align_bytes=16)
    return b.program


def _multiply(
    b: Builder,
    panel: Panel,
    pointers: list[list[Operand]],
    block: Operand,
    g: Operand,
    at_once: int,
) -> list[list[list[Register]]]:
    """Sums over one block: by row, digit and vector."""
    lanes, digits = panel.lanes, range(panel.digits)
    wide = I32.with_lanes(lanes)
    sums = []
    for row in pointers:
        starts = [b.splat(b.load(I32, row[panel.digits + d], g), lanes) for d in digits]
        sums.append([[b.variable(start, wide) for _ in range(at_once)] for start in starts])
    start = g * (panel.block // _WORD)
    mask = 0x01010101 * ((1 << panel.bits) - 1)
    with b.for_(0, panel.coded_lines) as w:
        line = b.offset(block, w, panel.line_bytes)
        words = [b.load(U32.with_lanes(lanes), line, v * lanes) for v in range(at_once)]
        place = start + w * panel.parts
        for j in range(panel.parts):
            moved: list[Operand] = [x >> (panel.bits * j) if j else x for x in words]
            if panel.parts > 1:
                moved = [x & mask for x in moved]
            codes = [b.bitcast(x, U8.with_lanes(_WORD * lanes)) for x in moved]
            here = place + j
            for r, row in enumerate(pointers):
                for d in digits:
                    four = b.splat(b.load(I32, row[d], here), lanes)
                    four = b.bitcast(four, I8.with_lanes(_WORD * lanes))
                    for v in range(at_once):
                        total = sums[r][d][v]
                        total.set(b.dot(total.get(), codes[v], four))
    return sums


def _add_block(
    b: Builder,
    panel: Panel,
    pointers: list[Operand],
    place: tuple[Operand, Operand],
    sums: list[list[Register]],
    totals: list[Register],
) -> None:
    """What a block adds to one row: the digits' sums as one number, scaled.

    `place`: where the block lies, and its number.
    """
    lanes, (block, g) = panel.lanes, place
    kind = F32.with_lanes(lanes)
    scale = b.splat(b.load(F32, pointers[2 * panel.digits], g), lanes)
    heads = b.offset(block, panel.coded_lines, panel.line_bytes)
    for v, total in enumerate(totals):
        value = b.convert(sums[-1][v].get(), F32)
        for lower in reversed(sums[:-1]):
            value = b.fma(
                value, b.splat(b.constant(F32, 256.0), lanes), b.convert(lower[v].get(), F32)
            )
        value = value * scale
        factor = b.load(kind, heads, v * lanes)
        total.set(b.fma(value, factor, total.get()))
        if panel.shifted:
            rest = b.splat(b.load(F32, pointers[2 * panel.digits + 1], g), lanes)
            shift = b.load(kind, heads, (panel.vectors + v) * lanes)
            total.set(b.fma(rest, shift, total.get()))
