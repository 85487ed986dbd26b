"""Winograd's minimal filters F(m, 3): m outputs of a filter of 3 taps from m + 2 products.

    y = A^T [ (G g) * (B^T d) ]

for m + 2 inputs d and the filter g; in two dimensions once along each (S. Winograd, Arithmetic
Complexity of Computations, 1980; A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural
Networks, 2016). The matrices interpolate polynomials at `POINTS` and at infinity. F(2, 3) rounds
about as much as a direct sum. F(4, 3) at the usual points 0, +-1, +-2 rounds 7 times as much; at
the points here, twice (256 channels, normal weights, worst of 200 tiles: 2.4e-6 of the largest
output for 1.1e-6). That is a share of what the tile holds: whether its inputs are near enough in
size is decided by cells of 2 by 2, of which each output reads one as a whole. A channel counts by
its weights (`winograd_scales`).

Loop nests, loops over the side m + 2 being written out::

    for k in 0..depth step lanes:                         # `build_input`
        columns[j] = B^T d[:, j, k]
        cells[i, j] += scales[1, k] * sum of d[2i : 2i + 2, 2j : 2j + 2, k] ** 2
        total += scales[0, k] * sum of d[:, :, k] ** 2
        target[i, :, k] = B^T columns[:, i]
    for k in 0..vectors * lanes step lanes:               # `build_output`
        lines[i] = A^T products[i, :, k]
        tile[:, j, k] = A^T lines[:, j]
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, partial
from math import prod

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program, SsaValue
from sardonyx.kernel.language.types import I64, PTR, Type

#: Taps of a filter along one axis.
TAPS = 3

#: Where polynomials are interpolated, by the number of outputs.
POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(5, 8), Fraction(-5, 8), Fraction(5, 4), Fraction(-5, 4)),
}

#: How much larger the sum of a tile's squares may be than that of a cell, at most: an output rounds
#: by a share of the largest inputs of its tile, whether it reads them or not. Squares of a channel
#: are scaled by the square of its largest weight.
MOST_UNEVEN = 1 << 12
#: Tiles with larger sums of squares are not transformed: what is in between might be infinite.
MOST_SQUARES = float(1 << 100)

Matrix = tuple[tuple[Fraction, ...], ...]


@cache
def matrices(outputs: int) -> tuple[Matrix, Matrix, Matrix]:
    """A^T [m, m + 2], G [m + 2, 3] and B^T [m + 2, m + 2] of F(m, 3), exactly."""
    points = POINTS[outputs]
    back = [[p**i for p in points] + [Fraction(i == outputs - 1)] for i in range(outputs)]
    filters, forth = [], []
    for j, point in enumerate(points):
        others = points[:j] + points[j + 1 :]
        forth.append((*_coefficients(others), Fraction(0)))
        divisor = prod((point - other for other in others), start=Fraction(1))
        filters.append(tuple(point**k / divisor for k in range(TAPS)))
    forth.append(tuple(_coefficients(points)))
    filters.append(tuple(Fraction(k == TAPS - 1) for k in range(TAPS)))
    return tuple(map(tuple, back)), tuple(filters), tuple(forth)


def _coefficients(roots: Sequence[Fraction]) -> list[Fraction]:
    """Those of the polynomial with these roots, the constant one first."""
    found = [Fraction(1)]
    for root in roots:
        found = [
            (found[k - 1] if k else Fraction(0)) - root * (found[k] if k < len(found) else 0)
            for k in range(len(found) + 1)
        ]
    return found


# -- in kernels ---------------------------------------------------------------------------------


def transform(b: Builder, matrix: Matrix, inputs: Sequence[Operand]) -> list[Operand]:
    """The product of a matrix and a vector of vectors, in registers.

    Two rows that differ in signs alone (of points x and -x) share their sums.
    """
    found: list[Operand | None] = [None] * len(matrix)
    for i, row in enumerate(matrix):
        if found[i] is not None:
            continue
        twin = _twin(matrix, i)
        if twin is None:
            found[i] = _sum(b, row, inputs)
            continue
        same = [x if x == y else Fraction(0) for x, y in zip(row, matrix[twin], strict=True)]
        rest = [x - s for x, s in zip(row, same, strict=True)]
        even, odd = _sum(b, same, inputs), _sum(b, rest, inputs)
        found[i] = even + odd
        found[twin] = even - odd
    return [x for x in found if x is not None]


def _twin(matrix: Matrix, i: int) -> int | None:
    """A later row with the same numbers, some of other signs and some not."""
    for k in range(i + 1, len(matrix)):
        pairs = list(zip(matrix[i], matrix[k], strict=True))
        if all(abs(x) == abs(y) for x, y in pairs):
            signs = {x == y for x, y in pairs if x}
            if len(signs) == 2:
                return k
    return None


def _sum(b: Builder, row: Sequence[Fraction], inputs: Sequence[Operand]) -> Operand:
    """One element: the terms without a factor first, the others by fused multiplication."""
    terms = sorted(
        ((x, y) for x, y in zip(row, inputs, strict=True) if x), key=lambda term: abs(term[0]) != 1
    )
    (factor, total), *rest = terms
    if factor != 1:
        total = total * float(factor)
    for factor, term in rest:
        if factor == 1:
            total = total + term
        elif factor == -1:
            total = total - term
        else:
            total = b.fma(b.lift(float(factor), term.type), term, total)
    return total


def input_name(outputs: int, lanes: int) -> str:
    """Symbol of what `build_input` makes."""
    return f"winograd_input_{outputs}x{lanes}"


def cells_of(outputs: int) -> int:
    """Cells of a tile along an axis.

    A cell is 2 by 2 inputs. The taps of output i along an axis have all of cell (i + 1) // 2.
    """
    return outputs // 2 + 1


def is_even(least: Operand, total: Operand) -> SsaValue:
    """Whether sums of squares, of the least cell and of a tile, allow for transforming the tile.

    Not where any is infinite, or NaN.
    """
    near = total <= least * float(MOST_UNEVEN)
    return near & (total < MOST_SQUARES)


@cache
def build_input(element: Type, outputs: int, lanes: int) -> Program:
    """`(table, depth, target, step, scales, cells)`: a tile's inputs to B^T d B, for all channels.

    table: pointers to the m + 2 by m + 2 inputs, each to `depth` channels. target: the channels
    of the first product; those of the next ones lie `step` elements on each. scales: what
    `winograd_scales.build_scales` makes. The result is 1 where a first look says that the tile is
    even; else 0, and cells gets the sum of squares of each cell, and behind them that of the tile.
    """
    parameters = [
        ("table", PTR), ("depth", I64), ("target", PTR), ("step", I64), ("scales", PTR),
        ("cells", PTR),
    ]  # fmt: skip
    b = Builder(input_name(outputs, lanes), parameters, result=I64)
    table, depth, target, step, scales, cells = (b.parameter(n) for n, _ in parameters)
    side, vector = outputs + TAPS - 1, element.with_lanes(lanes)
    count = cells_of(outputs)
    squares = [b.variable(0.0, vector, name="squares") for _ in range(count**2)]
    all_squares = b.variable(0.0, vector, name="all_squares")
    forth = matrices(outputs)[2]
    stride = step * element.size_bytes
    in_cells = b.offset(scales, depth, element)
    add = partial(b.binary, "add")
    with b.for_(0, depth, lanes) as k:
        mask = b.tail_mask(depth - k, lanes)
        scale = b.load(vector, in_cells, k, mask=mask)
        columns, held, channel = [], list[Operand](), list[Operand]()
        for j in range(side):
            given: list[Operand] = []
            for i in range(side):
                pointer = b.load(PTR, table, i * side + j)
                loaded = b.load(vector, pointer, k, mask=mask)
                given.append(loaded)
                if i % 2 == j % 2 == 0:
                    held.append(loaded * loaded)
                else:
                    held[i // 2] = b.fma(loaded, loaded, held[i // 2])
            if j % 2:
                for i, square in enumerate(held):
                    cell = squares[i * count + j // 2]
                    cell.set(b.fma(square, scale, cell.get()))
                channel.append(functools.reduce(add, held))
                held = []
            columns.append(transform(b, forth, given))
        square = functools.reduce(add, channel)
        all_squares.set(b.fma(square, b.load(vector, scales, k, mask=mask), all_squares.get()))
        at: Operand = b.offset(target, k, element)
        for i in range(side):
            for value in transform(b, forth, [column[i] for column in columns]):
                b.store(value, at, 0, mask=mask)
                at = b.offset(at, stride)
    sums = [cell.get() for cell in squares]
    # Each cell has at least what is least in each lane: two sums across lanes instead of ten.
    least = functools.reduce(lambda x, y: b.select(b.compare("lt", y, x), y, x), sums)
    total = b.reduce("reduce_add", all_squares.get())
    with b.if_(is_even(b.reduce("reduce_add", least), total)):
        b.return_(b.lift(1, I64))
    for number, squared in enumerate(sums):
        b.store(b.reduce("reduce_add", squared), cells, number)
    b.store(total, cells, count**2)
    b.return_(b.lift(0, I64))
    return b.program


def output_name(outputs: int, vectors: int, lanes: int) -> str:
    """Symbol of what `build_output` makes."""
    return f"winograd_output_{outputs}x{vectors}x{lanes}"


@cache
def build_output(element: Type, outputs: int, vectors: int, lanes: int) -> Program:
    """`(products, step, tile, pitch)`: the products of a tile to its m by m outputs.

    products: `vectors * lanes` columns of the first product; those of the next ones lie `step`
    elements on each. tile: m times m rows of so many columns; from one m to the next there are
    `pitch` rows.
    """
    parameters = [("products", PTR), ("step", I64), ("tile", PTR), ("pitch", I64)]
    b = Builder(output_name(outputs, vectors, lanes), parameters)
    products, step, tile, pitch = (b.parameter(n) for n, _ in parameters)
    side, vector = outputs + TAPS - 1, element.with_lanes(lanes)
    back = matrices(outputs)[0]
    stride = step * element.size_bytes
    with b.for_(0, vectors * lanes, lanes) as k:
        at: Operand = b.offset(products, k, element)
        lines = []
        for _ in range(side):
            given = []
            for _ in range(side):
                given.append(b.load(vector, at, 0))
                at = b.offset(at, stride)
            lines.append(transform(b, back, given))
        starts = [
            b.offset(tile, pitch * i, vectors * lanes * element.size_bytes) for i in range(outputs)
        ]
        for j in range(outputs):
            column = k + j * vectors * lanes
            for start, value in zip(
                starts, transform(b, back, [line[j] for line in lines]), strict=True
            ):
                b.store(value, start, column)
    return b.program
