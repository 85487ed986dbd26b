"""The micro-kernel of products on registers for matrices: as `micro`, a block of 16 or 32 rows.

    tile[r, :] = start[:] + sum over steps of left[r, step] * panel[step, :]

A step is 64 bytes of a row. Rows lie one after the other at equal distances; the panel has, for
each 4 bytes of a row, those elements of all its columns side by side. Four registers have sums: two
sixteens of rows by two of columns, so that what is loaded is used twice.

Loop nest; t counts sixteens of rows, v two sixteens of columns::

    for first in 0..vectors step 2:
        sums[t, v] = start[first + v]                     # registers of 16 by 16
        for step in 0..steps:
            sums[t, v] += left[t, step] * panel[step, first + v]
        tile[t, first + v] = sums[t, v]
"""

from __future__ import annotations

from sardonyx.kernel.language import matrix_registers as registers
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.matrix_registers import BYTES, ROW_BYTES, SIDE
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I64, PTR, U8

#: Sums, then rows of the left factor, then columns of the right one.
_LEFT, _RIGHT = 4, 6
_TOGETHER = 2
_WORD_BYTES = 4
#: How many steps ahead the panel is prefetched: as long as a line takes to come from memory.
_AHEAD = 4


def matrix_micro_name(kind: str, sixteens: int, vectors: int) -> str:
    """Symbol of the micro-kernel for `16 * sixteens` rows by `16 * vectors` columns."""
    return f"micro_matrix_{kind}_{sixteens * SIDE}x{vectors}"


def build_matrix_micro(kind: str, sixteens: int, vectors: int) -> Program:
    """`(left, pitch, steps, panel, tile[, start])`: see the module's text.

    left: its first row. pitch: bytes from one row to the next. tile: 16 * sixteens rows of 16 *
    vectors sums of 32 bits. start: of bytes alone, what each column's sums start from.
    """
    parameters = [("left", PTR), ("pitch", I64), ("steps", I64), ("panel", PTR), ("tile", PTR)]
    starts = kind == BYTES
    more = [("start", PTR)] if starts else []
    b = Builder(matrix_micro_name(kind, sixteens, vectors), [*parameters, *more])
    left, pitch, steps, panel, tile = (b.parameter(n) for n, _ in parameters)
    line_bytes = vectors * SIDE * _WORD_BYTES
    line = b.constant(I64, line_bytes)
    for first in range(0, vectors, _TOGETHER):
        columns = range(min(_TOGETHER, vectors - first))
        sums = {(t, v): t * _TOGETHER + v for t in range(sixteens) for v in columns}
        for (_, v), register in sums.items():
            if starts:  # the same in all rows
                begin = b.offset(b.parameter("start"), (first + v) * ROW_BYTES, U8)
                registers.load(b, register, begin, b.constant(I64, 0))
            else:
                registers.zero(b, register)
        with b.for_(0, steps) as step:
            at = b.offset(panel, step, SIDE * line_bytes)
            at = b.offset(at, first * ROW_BYTES, U8)
            for v in columns:
                for row in range(SIDE):
                    place = (_AHEAD * SIDE + row) * line_bytes + v * ROW_BYTES
                    b.prefetch(at, place, U8)
            row_at = b.offset(left, step, ROW_BYTES)
            for t in range(sixteens):
                registers.load(b, _LEFT + t, _rows(b, row_at, t, pitch), pitch)
            for v in columns:
                registers.load(b, _RIGHT + v, b.offset(at, v * ROW_BYTES, U8), line)
            for (t, v), register in sums.items():
                registers.add_products(b, kind, register, _LEFT + t, _RIGHT + v)
        for (t, v), register in sums.items():
            target = b.offset(tile, (first + v) * ROW_BYTES, U8)
            registers.store(b, register, _rows(b, target, t, line), line)
    return b.program


def _rows(b: Builder, pointer: Operand, sixteens: int, pitch: Operand) -> Operand:
    """Where the rows behind so many sixteens begin."""
    skip = b.lift(sixteens * SIDE, I64) * pitch if sixteens else 0
    return b.offset(pointer, skip, U8)
