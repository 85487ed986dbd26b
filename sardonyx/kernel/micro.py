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
    sums = [[b.variable(0, vector) for _ in range(vectors)] for _ in range(rows)]
    at = b.variable(panel, name="panel")
    pitch = b.parameter("step") if apart else b.lift(width, I64)

    def store(added: Operand) -> None:
        """Write the sums to the tile, with what is there already where something is `added`."""
        with b.if_(added):
            for place, held in places():
                held.set(b.binary("add", b.load(vector, *place, align_bytes=16), held.get()))
        for place, held in places():
            b.store(held.get(), *place, align_bytes=16)

    def places() -> Iterator[tuple[tuple[Operand, int], Register]]:
        line: Operand = tile
        for r in range(rows):
            for v in range(vectors):
                yield (line, v * lanes), sums[r][v]
            line = b.offset(line, pitch, element)

    run, moved = b.variable(0, I64), b.variable(0, I1)
    with b.for_(0, taps) as tap:
        first = b.offset(table, tap, rows * 8)
        starts = [b.load(PTR, first, r) for r in range(rows)]
        with b.for_(0, depth, PART) as part:
            with b.if_(run.get() >= PART):
                store(moved.get())
                for _, held in places():
                    held.set(0)
                moved.set(True)
                run.set(0)
            end = b.binary("min", part + PART, depth)
            with b.for_(part, end) as k:
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
            run.set(run.get() + end - part)
        at.set(b.offset(at.get(), depth, width * element.size_bytes))
    store(moved.get())
    return b.program
