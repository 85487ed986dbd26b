"""Sums of very many products, that are as exact as short ones.

Micro-kernels add up runs of `PART` products in float32. Each addition rounds, by 6e-8 of what is
there by then, so that a sum of K equal numbers drifts by 6e-8 * (PART + K / PART) / 2 of itself at
most: 1.6e-5 in the first 65,536 products, and 1.2e-4 in a million. From `LONG` on, runs have
`LONG_RUN` products, the sums of `LONG_RUNS` runs are added up in float32, and those sums in
float64: an error is below 6e-8 * (LONG_RUN + LONG_RUNS) / 2 + 6e-8 = 1.02e-6 of the sum of
magnitudes, whatever the length and the numbers (Higham, Accuracy and Stability of Numerical
Algorithms, 4.2).

Loop nest, `width` being `vectors * lanes`::

    wide[count, width] = 0                                # float64; where `first`
    while tap < taps:
        part[count, width] = micro(table[tap], products begin.. of at most _PART, run LONG_RUN)
        for k in 0..count * width step lanes: wide[k] += part[k]
    for r in 0..count, k in 0..width step lanes:          # where `last`
        tile[r, k] = wide[r, k]
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import sizes
from sardonyx.base.remembering import remembering
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import F32, F64, I64, PTR, Type
from sardonyx.plan.axes import extent_of

#: Sums of more products are added up in float64. No layer of a usual network has as many.
LONG = 1 << 16
#: Products of a run, and runs whose sums are added up in float32.
LONG_RUN, LONG_RUNS = 24, 8
_PART = LONG_RUN * LONG_RUNS


def is_long(reduced: Sequence[Dim], element: Type) -> bool | None:
    """Whether sums over so many axes are added up in float64; None where a run says so."""
    if element.scalar != F32.scalar:
        return False
    length = sizes.product(map(extent_of, reduced))
    return length > LONG if isinstance(length, int) else None


def long_sum_name(element: Type, vectors: int, lanes: int, *, apart: bool = False) -> str:
    """Symbol of what `build_long_sum` makes."""
    return f"long_sum_{element.scalar}_{vectors}x{lanes}" + ("_apart" if apart else "")


@remembering(16)
def build_long_sum(element: Type, vectors: int, lanes: int, *, apart: bool = False) -> Program:
    """`(micro, count, table, taps, depth, panel, tile, wide, part, starts, first, last, pitch)`.

    Adds products of a tile to its sums in float64, by a micro-kernel for tiles of its size.

    micro, count: That micro-kernel, and how many rows it has. table, taps, depth, panel, tile: What
    it takes. wide: count * vectors * lanes doubles. part: As many elements. starts: Room for count
    pointers. first: Whether the sums begin with 0, not with what is in `wide`. last: Whether the
    tile gets them, rounded. pitch: Elements from one row of the tile to the next. apart: Whether
    the micro-kernel has that parameter.
    """
    names = ("table", "taps", "depth", "panel", "tile", "wide", "part", "starts", "first", "last")
    integers = ("count", "taps", "depth", "first", "last", "pitch")
    parameters = [(n, I64 if n in integers else PTR) for n in ("micro", "count", *names, "pitch")]
    b = Builder(long_sum_name(element, vectors, lanes, apart=apart), parameters)
    micro, count = b.parameter("micro"), b.parameter("count")
    table, taps, depth, panel, tile, wide, part, starts, first, last = map(b.parameter, names)
    kind, double = element.with_lanes(lanes), F64.with_lanes(lanes)
    width = vectors * lanes
    total = count * width
    with b.if_(b.ne(first, 0)), b.for_(0, total, lanes) as k:
        b.store(b.splat(b.constant(F64, 0.0), lanes), wide, k, align_bytes=16)
    together = b.max(b.constant(I64, _PART) // b.max(depth, 1), 1)
    tap, begin = b.variable(0, I64, name="tap"), b.variable(0, I64, name="begin")
    with b.while_(lambda: tap.get() < taps):
        several = b.min(together, taps - tap.get())
        start = begin.get()
        length = b.min(depth - start, _PART)
        pointers = b.offset(table, tap.get() * count, 8)
        with b.if_(b.ne(start, 0)), b.for_(0, count) as r:
            b.store(b.offset(b.load(PTR, pointers, r), start, element), starts, r)
        pointers = b.select(b.eq(start, 0), pointers, starts)
        step = tap.get() * depth + start
        line = b.offset(panel, step, width * element.size_bytes)
        more = [b.constant(I64, width)] if apart else [line, b.constant(I64, 0)]
        b.call(micro, [pointers, several, length, line, part, b.constant(I64, LONG_RUN), *more])
        with b.for_(0, total, lanes) as k:
            of_part = b.convert(b.load(kind, part, k, align_bytes=16), F64)
            b.store(b.load(double, wide, k, align_bytes=16) + of_part, wide, k)
        behind = start + length
        is_over = behind >= depth
        begin.set(b.select(is_over, 0, behind))
        tap.set(tap.get() + b.select(is_over, several, 0))
    with b.if_(b.ne(last, 0)), b.for_(0, count) as r, b.for_(0, width, lanes) as k:
        line = b.offset(wide, r * width, F64)
        rounded = b.convert(b.load(double, line, k, align_bytes=16), element)
        target = b.offset(tile, r * b.parameter("pitch"), element)
        b.store(rounded, target, k, align_bytes=16)
    return b.program
