"""The micro-kernel of every contraction: a tile of rows by a few vectors of columns, in registers.

    tile[r, :] = sum over taps t and k < depth of rows[t][r][k] * panel[t * depth + k, :]

Rows are found through a table of pointers (one per tap and row), so a matrix product is the case
of one tap, and a convolution over channels-last images has one tap for each element of its window.
The panel is packed: the columns of one k lie side by side, 64-byte aligned.

Loop nest; `rows`, and the vectors of a pass, are written out::

    for first in 0..vectors step at_once:
        while tap < taps:                                 # at least once
            sums[rows, at_once] = 0                       # vectors in registers
            while summed < run and tap < taps:
                for k in done..min(done + run, depth):
                    columns[at_once] = panel[tap * depth + k, first:]
                    sums[r, v] += splat(rows[tap][r][k]) * columns[v]
            tile[:, first:] = sums                        # added to it after the first pass
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.remembering import remembering
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language.builder import Builder, Register
from sardonyx.kernel.language.program import Operand, Program, SsaValue
from sardonyx.kernel.language.types import I1, I64, PTR, Type
from sardonyx.kernel.matmul.prefetch_tiles import AHEAD, PrefetchTiles

#: Products that are summed in registers, unless the caller says otherwise (`long_sums`); sums of
#: more are added up in parts.
PART = 256
#: The last steps of a sum go row by row where there are more vectors of sums than these: a row is
#: stored while the next is summed. Stores of a whole tile at once keep the next tile waiting for as
#: long as they take (24 vectors of 64 bytes: 45 cycles on Zen 4).
_STEPS_BY_ROW, _STORED_AT_ONCE = 3, 16
#: Row counts for which a micro-kernel exists.
ROWS = (6, 4, 3, 2, 1)


def ends_well(rows: int) -> bool:
    """Whether a tile of so many rows may leave a single one: that loads a panel for little work."""
    return rows <= 3


def tile_rows(count: Dim, block: Dim) -> tuple[int, ...]:
    """Row counts of the tiles that `count` rows in blocks of `block` can be cut into."""
    if not isinstance(block, int):
        return ROWS
    step = math.gcd(block, *(coefficient for _, coefficient in sizes.terms_of(count)))
    lengths = {count % block, min(count, block)} if isinstance(count, int) else set()
    found = set()
    for length in lengths or range(step, block + 1, step):
        rest = length
        while rest > 0:
            rows = next(r for r in ROWS if r <= rest and (ends_well(r) or r + 1 != rest))
            found.add(rows)
            rest -= rows
    return tuple(r for r in ROWS if r in found)


def vectors_at_once(rows: int, vectors: int, registers: int) -> int:
    """Vectors of a tile that registers hold sums of, with a step's columns and one factor."""
    most = max(1, (registers - 1) // (rows + 1))
    parts = max(1, -(-vectors // most))
    return -(-vectors // parts)


def micro_name(
    element: Type,
    rows: int,
    vectors: int,
    lanes: int,
    *,
    apart: bool = False,
    at_once: int | None = None,
) -> str:
    """Symbol of the micro-kernel for a tile of `rows` by `vectors * lanes`."""
    parts = f"_by{at_once}" if at_once is not None and at_once < vectors else ""
    return f"micro_{element.scalar}_{rows}x{vectors}x{lanes}{parts}" + ("_apart" if apart else "")


@remembering(64)
def build_micro(
    element: Type,
    rows: int,
    vectors: int,
    lanes: int,
    *,
    apart: bool = False,
    at_once: int | None = None,
) -> Program:
    """`(table, taps, depth, panel, tile, run, next, share)`, or `pitch` for the last two.

    table: taps * rows pointers. tile: rows * vectors * lanes elements, 64-byte aligned; rows that
    lie `apart` follow each other in steps of `pitch` elements. run: how many products are summed in
    registers before they are added to the tile, at least `_STEPS_BY_ROW`. next, share: see
    `prefetch_tiles`. at_once: how many vectors are summed in one pass over the depth; all of them
    if it is None.
    """
    parameters = [("table", PTR), ("taps", I64), ("depth", I64), ("panel", PTR), ("tile", PTR)]
    parameters.append(("run", I64))
    name = micro_name(element, rows, vectors, lanes, apart=apart, at_once=at_once)
    b = Builder(name, [*parameters, *([("pitch", I64)] if apart else AHEAD)])
    width = vectors * lanes
    pitch = b.parameter("pitch") if apart else b.lift(width, I64)
    step = max(1, at_once or vectors)
    for first in range(0, vectors, step):
        kind = element.with_lanes(lanes)
        held = min(step, vectors - first)
        line_bytes = held * lanes * element.size_bytes
        prefetch_tiles = PrefetchTiles(b, rows, line_bytes, shares=not (apart or first))
        part = _Part(kind, rows, held, first * lanes, width)
        _write_part(b, part, pitch, prefetch_tiles)
    return b.program


@dataclass(frozen=True, slots=True)
class _Part:
    """The columns of a tile whose sums registers hold at once.

    Attributes:
        vector: Type of a vector of sums.
        rows: Of the tile.
        vectors: Of columns, from column `first` on.
        first: The first column.
        width: Columns of the panel.
    """

    vector: Type
    rows: int
    vectors: int
    first: int
    width: int


def _write_part(b: Builder, part: _Part, pitch: Operand, prefetch_tiles: PrefetchTiles) -> None:
    """The sums of one part."""
    vector, rows, vectors = part.vector, part.rows, part.vectors
    first, width = part.first, part.width
    element, lanes = vector.element, vector.lanes
    table, taps, depth = (b.parameter(n) for n in ("table", "taps", "depth"))
    panel, tile, run = (b.parameter(n) for n in ("panel", "tile", "run"))
    if first:
        panel, tile = (b.offset(x, first, element) for x in (panel, tile))
    at = b.variable(panel, name="panel")
    tap, done = b.variable(0, I64), b.variable(0, I64)
    moved, over = b.variable(0, I1), b.variable(0, I1)
    # At least once, since a sum of nothing is 0; each pass fills the registers and empties them.
    with b.while_(lambda: ~over.get()):
        sums = [[b.variable(0, vector) for _ in range(vectors)] for _ in range(rows)]
        summed, stored = b.variable(0, I64), b.variable(0, I1)

        def going(summed: Register = summed) -> Operand:
            few = summed.get() < run
            return few & (tap.get() < taps)

        with b.while_(going):
            pointers = b.offset(table, tap.get(), rows * 8)
            starts = [b.load(PTR, pointers, r) for r in range(rows)]
            begin = done.get()
            end = b.min(begin + run, depth)
            by_row: Operand = b.constant(I1, False)
            stop: Operand = end
            if rows * vectors > _STORED_AT_ONCE:
                full = summed.get() + end - begin >= run
                out = (end >= depth) & (tap.get() + 1 >= taps)
                by_row = (full | out) & (end - begin >= _STEPS_BY_ROW)
                stop = b.select(by_row, end - _STEPS_BY_ROW, end)
            with b.for_(begin, stop) as k:
                column = b.offset(at.get(), k, width * element.size_bytes)
                prefetch_tiles.ask(k, column)
                columns = [b.load(vector, column, v * lanes) for v in range(vectors)]
                for row, start in zip(sums, starts, strict=True):
                    factor = b.splat(b.load(element, start, k), lanes)
                    for held, of_column in zip(row, columns, strict=True):
                        held.set(_accumulated(b, factor, of_column, held.get()))
            if rows * vectors > _STORED_AT_ONCE:
                with b.if_(by_row):
                    last = [b.offset(start, stop, element.size_bytes) for start in starts]
                    column = b.offset(at.get(), stop, width * element.size_bytes)
                    with b.if_(moved.get()):
                        _sum_and_store(b, sums, last, (column, width), (tile, pitch), added=True)
                    with b.else_():
                        _sum_and_store(b, sums, last, (column, width), (tile, pitch), added=False)
                stored.set(by_row)
            summed.set(summed.get() + end - begin)
            done.set(end)
            with b.if_(end >= depth):
                done.set(0)
                tap.set(tap.get() + 1)
                at.set(b.offset(at.get(), depth, width * element.size_bytes))
                prefetch_tiles.pass_by(depth)
        with b.if_(b.eq(stored.get(), False)):
            _store(b, sums, vector, tile, pitch, moved.get())
        moved.set(True)
        over.set(tap.get() >= taps)


def _accumulated(b: Builder, factor: Operand, column: Operand, total: Operand) -> Operand:
    """`total + factor * column`."""
    if total.type.is_float:
        return b.fma(factor, column, total)
    return total + factor * column


def _sum_and_store(
    b: Builder,
    sums: list[list[Register]],
    starts: list[SsaValue],
    panel: tuple[Operand, int],
    target: tuple[Operand, Operand],
    *,
    added: bool,
) -> None:
    """The last steps, row by row, each row stored as soon as it is summed.

    Columns of the first step stay in registers, each row reads the others again.

    Args:
        b: Writes the micro-kernel.
        sums: What there is so far.
        starts: Where the steps' factors of each row begin.
        panel: Where their columns do, and elements from one step to the next.
        target: The tile, and elements from one of its rows to the next.
        added: Whether what is in the tile is added.
    """
    vector, vectors = sums[0][0].type, len(sums[0])
    lanes, (line, pitch), (column, width) = vector.lanes, target, panel
    kept = [b.load(vector, column, v * lanes) for v in range(vectors)]
    for row, start in zip(sums, starts, strict=True):
        for step in range(_STEPS_BY_ROW):
            factor = b.splat(b.load(vector.element, start, step), lanes)
            for v, held in enumerate(row):
                place = step * width + v * lanes
                of_column = b.load(vector, column, place) if step else kept[v]
                held.set(_accumulated(b, factor, of_column, held.get()))
        for v, held in enumerate(row):
            total = held.get()
            if added:
                total = b.load(vector, line, v * lanes, align_bytes=16) + total
            b.store(total, line, v * lanes, align_bytes=16)
        line = b.offset(line, pitch, vector.element)


def _store(
    b: Builder,
    sums: list[list[Register]],
    vector: Type,
    tile: Operand,
    pitch: Operand,
    added: Operand,
) -> None:
    """Write sums to the tile, with what is there already where something is `added`."""

    def places() -> Iterator[tuple[tuple[Operand, int], Register]]:
        line: Operand = tile
        for row in sums:
            for v, held in enumerate(row):
                yield (line, v * vector.lanes), held
            line = b.offset(line, pitch, vector.element)

    with b.if_(added):
        for place, held in places():
            held.set(b.load(vector, *place, align_bytes=16) + held.get())
    for place, held in places():
        b.store(held.get(), *place, align_bytes=16)
