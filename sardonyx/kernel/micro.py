"""The micro-kernel of every contraction: a tile of rows by a few vectors of columns, in registers.

    tile[r, :] = sum over taps t and k < depth of rows[t][r][k] * panel[t * depth + k, :]

Rows are found through a table of pointers (one per tap and row), so a matrix product is the case
of one tap, and a convolution over channels-last images has one tap for each element of its window.
The panel is packed: the columns of one k lie side by side, 64-byte aligned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sardonyx.base import sizes
from sardonyx.base.remembering import remembering
from sardonyx.base.sizes import Dim
from sardonyx.kernel.builder import Builder, Register
from sardonyx.kernel.program import Operand, Program
from sardonyx.kernel.types import I1, I64, PTR, Type

#: Products that are summed in registers; sums of more are added up in parts.
PART = 256
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


def micro_name(element: Type, rows: int, vectors: int, lanes: int, *, apart: bool = False) -> str:
    """Symbol of the micro-kernel for a tile of `rows` by `vectors * lanes`."""
    return f"micro_{element.scalar}_{rows}x{vectors}x{lanes}" + ("_apart" if apart else "")


@remembering(64)
def build_micro(
    element: Type, rows: int, vectors: int, lanes: int, *, apart: bool = False
) -> Program:
    """`(table, taps, depth, panel, tile)`: see the module's text.

    table: taps * rows pointers. tile: rows * vectors * lanes elements, 64-byte aligned; rows that
    lie `apart` follow each other in steps of one more parameter.
    """
    parameters = [("table", PTR), ("taps", I64), ("depth", I64), ("panel", PTR), ("tile", PTR)]
    name = micro_name(element, rows, vectors, lanes, apart=apart)
    b = Builder(name, [*parameters, ("step", I64)] if apart else parameters)
    table, taps, depth, panel, tile = (b.parameter(n) for n, _ in parameters)
    vector = element.with_lanes(lanes)
    width = vectors * lanes
    at = b.variable(panel, name="panel")
    pitch = b.parameter("step") if apart else b.lift(width, I64)
    tap, part = b.variable(0, I64), b.variable(0, I64)
    moved, over = b.variable(0, I1), b.variable(0, I1)
    # At least once, since a sum of nothing is 0; each pass fills the registers and empties them.
    with b.while_(lambda: b.binary("xor", over.get(), True)):
        sums = [[b.variable(0, vector) for _ in range(vectors)] for _ in range(rows)]
        run = b.variable(0, I64)

        def going(run: Register = run) -> Operand:
            few = b.compare("lt", run.get(), PART)
            return b.binary("and", few, b.compare("lt", tap.get(), taps))

        with b.while_(going):
            first = b.offset(table, tap.get(), rows * 8)
            starts = [b.load(PTR, first, r) for r in range(rows)]
            begin = part.get()
            end = b.binary("min", begin + PART, depth)
            with b.for_(begin, end) as k:
                column = b.offset(at.get(), k, width * element.size_bytes)
                columns = [b.load(vector, column, v * lanes) for v in range(vectors)]
                for r in range(rows):
                    factor = b.splat(b.load(element, starts[r], k), lanes)
                    for v in range(vectors):
                        old = sums[r][v].get()
                        if element.is_float:
                            sums[r][v].set(b.fma(factor, columns[v], old))
                        else:
                            sums[r][v].set(
                                b.binary("add", old, b.binary("mul", factor, columns[v]))
                            )
            run.set(run.get() + end - begin)
            part.set(end)
            with b.if_(b.compare("ge", end, depth)):
                part.set(0)
                tap.set(tap.get() + 1)
                at.set(b.offset(at.get(), depth, width * element.size_bytes))
        _store(b, sums, vector, tile, pitch, moved.get())
        moved.set(True)
        over.set(b.compare("ge", tap.get(), taps))
    return b.program


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
            held.set(b.binary("add", b.load(vector, *place, align_bytes=16), held.get()))
    for place, held in places():
        b.store(held.get(), *place, align_bytes=16)
