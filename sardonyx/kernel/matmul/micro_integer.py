"""The micro-kernel of products of bytes: as `micro`, with four steps of the depth at a time.

    tile[r, :] = start[:] + sum over taps t and k < depth of a(rows[t][r][k]) * panel[t, k, :]
                 - zeros[:] * (the sum of all a of row r)

`a` makes unsigned bytes of the row's: itself, or 128 more where they are signed. The panel has
signed bytes; those of four k lie side by side for each column:

    panel[(t * groups + g) * width + column, j] = w[t, 4 g + j, column]

which is what instructions that sum four products of bytes take. Sums wrap at 32 bits.

Loop nest, rows and vectors being written out::

    sums[r, v] = start[v]
    for tap in 0..taps:
        for g in 0..groups:
            sums[r, v] += a(rows[tap][r][4 g : 4 g + 4]) . panel[tap, g, v]
            totals[r] += a(rows[tap][r][4 g : 4 g + 4]) . 1
    tile[r, v] = sums[r, v] - zeros[v] * totals[r]
"""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import I8, I32, I64, PTR, U8, Type
from sardonyx.kernel.matmul.prefetch_tiles import AHEAD, PrefetchTiles

#: How many steps of the depth one instruction sums.
GROUP = 4
#: What is added to a signed byte to make it unsigned, and taken from an unsigned one.
MIDDLE = 128


def integer_micro_name(element: Type, rows: int, vectors: int, lanes: int, *, zeros: bool) -> str:
    """Symbol of the micro-kernel for rows of type `element` (`u8`, `i8`)."""
    return f"micro_{element.scalar}{'_zeros' if zeros else ''}_{rows}x{vectors}x{lanes}"


def build_integer_micro(
    element: Type, rows: int, vectors: int, lanes: int, *, zeros: bool
) -> Program:
    """`(table, taps, groups, panel, tile, start[, zeros], next, share)`: see the module's text.

    table: taps * rows pointers to bytes. groups: a quarter of the depth. tile: rows * vectors *
    lanes i32, 64-byte aligned. start, zeros: vectors * lanes i32. next, share: see
    `prefetch_tiles`.
    """
    parameters = [
        ("table", PTR), ("taps", I64), ("groups", I64), ("panel", PTR), ("tile", PTR),
        ("start", PTR), *([("zeros", PTR)] if zeros else []), *AHEAD,
    ]  # fmt: skip
    b = Builder(integer_micro_name(element, rows, vectors, lanes, zeros=zeros), parameters)
    table, taps, groups, panel, tile, start = (b.parameter(n) for n, _ in parameters[:6])
    words, width = I32.with_lanes(lanes), vectors * lanes
    left, right = U8.with_lanes(GROUP * lanes), I8.with_lanes(GROUP * lanes)
    sums = []
    for _ in range(rows):
        firsts = [b.load(words, start, v * lanes, align_bytes=4) for v in range(vectors)]
        sums.append([b.variable(first, words) for first in firsts])
    totals = [b.variable(0, words) for _ in range(rows if zeros else 0)]
    at = b.variable(panel, name="panel")
    prefetch_tiles = PrefetchTiles(b, rows, width * GROUP)
    with b.for_(0, taps) as tap:
        first = b.offset(table, tap, rows * 8)
        starts = [b.load(PTR, first, r) for r in range(rows)]
        with b.for_(0, groups) as g:
            line = b.offset(at.get(), g, width * GROUP)
            prefetch_tiles.ask(g, line)
            columns = [b.load(right, line, v * lanes * GROUP) for v in range(vectors)]
            for r in range(rows):
                word = b.splat(b.load(I32, starts[r], g, align_bytes=1), lanes)
                factor = b.bitcast(word, left)
                if element == I8:
                    factor = factor ^ MIDDLE
                for v in range(vectors):
                    sums[r][v].set(b.dot(sums[r][v].get(), factor, columns[v]))
                if zeros:
                    totals[r].set(b.dot(totals[r].get(), factor, b.constant(right, 1)))
        at.set(b.offset(at.get(), groups, width * GROUP))
        prefetch_tiles.pass_by(groups)
    for r in range(rows):
        for v in range(vectors):
            total = sums[r][v].get()
            if zeros:
                own = b.load(words, b.parameter("zeros"), v * lanes, align_bytes=4)
                total = total - own * totals[r].get()
            b.store(total, tile, (r * vectors + v) * lanes, align_bytes=16)
    return b.program
