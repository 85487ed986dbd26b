"""A square of vectors transposed in registers: rows become columns.

By halves: at each distance 1, 2, 4, ... two rows so far apart exchange the lanes that belong to
the other one, so that a square of n lanes takes n log2(n) shuffles.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I64, PTR, Type


def transpose_name(element: Type, lanes: int) -> str:
    """Symbol of what `build_transpose` makes."""
    return f"transpose_{element.scalar}_{lanes}"


@cache
def build_transpose(element: Type, lanes: int) -> Program:
    """`(source, step, target, pace)`: target[c * pace + r] = source[r * step + c].

    For r and c below `lanes`; steps count elements.
    """
    parameters = [("source", PTR), ("step", I64), ("target", PTR), ("pace", I64)]
    b = Builder(transpose_name(element, lanes), parameters)
    source, step, target, pace = (b.parameter(n) for n, _ in parameters)
    vector = element.with_lanes(lanes)
    rows: list[Operand] = []
    at: Operand = source
    for _ in range(lanes):
        rows.append(b.load(vector, at, 0))
        at = b.offset(at, step, element)
    at = target
    for row in transposed(b, rows):
        b.store(row, at, 0)
        at = b.offset(at, pace, element)
    return b.program


def transposed(b: Builder, rows: Sequence[Operand]) -> list[Operand]:
    """The columns of a square, as many vectors as each has lanes: a power of two."""
    square = list(rows)
    distance = 1
    while distance < len(square):
        for r in range(len(square)):
            if not r & distance:
                upper, lower = square[r], square[r + distance]
                square[r], square[r + distance] = _exchanged(b, upper, lower, distance)
        distance *= 2
    return square


def sums_of(b: Builder, rows: Sequence[Operand]) -> Operand:
    """The sum of each row, side by side: as many rows as each has lanes, a power of two."""
    left, distance = list(rows), 1
    while len(left) > 1:
        pairs = zip(left[::2], left[1::2], strict=True)
        left = [b.binary("add", *_exchanged(b, x, y, distance)) for x, y in pairs]
        distance *= 2
    return left[0]


def _exchanged(b: Builder, x: Operand, y: Operand, distance: int) -> tuple[Operand, Operand]:
    lanes = range(x.type.lanes)
    n = len(lanes)
    low = [n + k - distance if k & distance else k for k in lanes]
    high = [n + k if k & distance else k + distance for k in lanes]
    return b.shuffle(x, y, low), b.shuffle(x, y, high)
