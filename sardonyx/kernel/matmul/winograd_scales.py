"""How much the inputs of each channel count where tiles are checked for outliers (see `winograd`).

A large input moves an output that does not read it by a share of its product with the weights of
its channel. So a channel's squares are scaled by the square of its largest weight: else an outlier
would hide behind channels that are as large and have no weight. Cells do not count channels whose
taps are uneven, since outputs may not see what is there; where that leaves out too much, windows
scale each input by the largest weight of its tap.

Loop nests::

    for k in 0..depth step lanes:                         # `build_scales`
        scales[0, k] = (max of weights[:, k] / largest of all) ** 2
        scales[1, k] = scales[0, k] where taps are even, else 0
    for row in 0..rows, column in 0..columns:             # `build_windows`
        for k in 0..depth step lanes, loop over taps being written out:
            window += (weights[tap, k] / largest of all * d[row + i, column + j, k]) ** 2
        least = min(least, sum of window)
"""

from __future__ import annotations

import math
from functools import cache, partial, reduce

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import I64, PTR, Type
from sardonyx.kernel.matmul.winograd import TAPS, cells_of, is_even

#: How much larger the largest weight of a channel may be than that of one of its taps, for cells to
#: count it.
MOST_UNEVEN_TAPS = 32.0
#: Filters with larger weights are not used: what is in between might be infinite.
MOST_WEIGHT = float(1 << 64)


def scales_name(lanes: int) -> str:
    """Symbol of what `build_scales` makes."""
    return f"winograd_scales_{lanes}"


@cache
def build_scales(element: Type, lanes: int) -> Program:
    """`(weights, depth, scales)`: how much the squares of each channel count.

    weights: nine rows of `depth` elements: for each tap the largest magnitude in any filter.
    scales: two rows of `depth` elements: the square of the largest of all taps, as a part of that
    of all channels; the same for cells, 0 where a tap has hardly any weight. Behind them is what
    makes a weight such a part. NaN or infinite where weights are not finite, too large to be used,
    or all 0. The result is 1 where taps have hardly any weight, so that cells do not say enough.
    """
    parameters = [("weights", PTR), ("depth", I64), ("scales", PTR)]
    b = Builder(scales_name(lanes), parameters, result=I64)
    weights, depth, scales = (b.parameter(n) for n, _ in parameters)
    vector = element.with_lanes(lanes)
    in_cells = b.offset(scales, depth, element)
    most, unseen = (b.variable(0.0, vector, name=n) for n in ("most", "unseen"))
    with b.for_(0, depth, lanes) as k:
        mask = b.tail_mask(depth - k, lanes)
        taps = [
            b.load(vector, b.offset(weights, depth * tap, element), k, mask=mask)
            for tap in range(TAPS**2)
        ]
        largest = reduce(partial(b.binary, "max"), taps)
        least = reduce(partial(b.binary, "min"), taps)
        most.set(b.max(most.get(), largest))
        b.store(largest, scales, k, mask=mask)
        seen = b.select(least * MOST_UNEVEN_TAPS >= largest, largest, 0.0)
        unseen.set(b.max(unseen.get(), largest - seen))
        b.store(seen, in_cells, k, mask=mask)
    # The sum has the size of the largest; unlike comparisons it keeps NaN.
    total = b.reduce("reduce_add", most.get())
    part = b.select(total <= MOST_WEIGHT, 1.0 / total, math.nan)
    with b.for_(0, 2) as row, b.for_(0, depth, lanes) as k:
        mask = b.tail_mask(depth - k, lanes)
        at = b.offset(scales, row * depth, element)
        scale = b.load(vector, at, k, mask=mask) * part
        b.store(scale * scale, at, k, mask=mask)
    b.store(part, in_cells, depth)
    b.return_(b.convert(b.reduce("reduce_add", unseen.get()) > 0.0, I64))
    return b.program


def windows_name(outputs: int, lanes: int) -> str:
    """Symbol of what `build_windows` makes."""
    return f"winograd_windows_{outputs}x{lanes}"


@cache
def build_windows(element: Type, outputs: int, lanes: int) -> Program:
    """`(table, depth, weights, scales, cells, rows, columns)`: whether a tile is even, by windows.

    Unlike sums of cells this counts each input as much as the largest weight of its tap, for each
    of `rows * columns` outputs. It costs half as much as a transform, so it decides only where
    cells do not say enough. table, cells: see `build_input`; weights, scales: see `build_scales`.
    """
    parameters = [
        ("table", PTR), ("depth", I64), ("weights", PTR), ("scales", PTR), ("cells", PTR),
        ("rows", I64), ("columns", I64),
    ]  # fmt: skip
    b = Builder(windows_name(outputs, lanes), parameters, result=I64)
    table, depth, weights, scales, cells, rows, columns = (b.parameter(n) for n, _ in parameters)
    side, vector = outputs + TAPS - 1, element.with_lanes(lanes)
    total = b.load(element, cells, cells_of(outputs) ** 2)
    least = b.variable(total, name="least")
    part = b.load(element, scales, depth * 2)
    with b.for_(0, rows) as row, b.for_(0, columns) as column:
        first = row * side + column
        squares = b.variable(0.0, vector, name="squares")
        with b.for_(0, depth, lanes) as k:
            mask = b.tail_mask(depth - k, lanes)
            for tap in range(TAPS**2):
                pointer = b.load(PTR, table, first + (tap // TAPS * side + tap % TAPS))
                at = b.offset(weights, depth * tap, element)
                scale = b.load(vector, at, k, mask=mask) * part
                scaled = scale * b.load(vector, pointer, k, mask=mask)
                squares.set(b.fma(scaled, scaled, squares.get()))
        least.set(b.min(least.get(), b.reduce("reduce_add", squares.get())))
    # A window has nine inputs where a cell has four.
    b.return_(b.convert(is_even(least.get() * (4 / TAPS**2), total), I64))
    return b.program
