"""Parts of one attention, each by a thread block with keys of its own: the last joins them.

A part is the largest score of each query, the sum of powers of the others, and their weighted sums
(Dao et al. 2023, Flash-Decoding). Parts are joined in their order, whoever is last.
"""

from __future__ import annotations

import math

from sardonyx.base.records import dataclass
from sardonyx.kernel.gpu.split_k_reduction import KPart, draw_ticket
from sardonyx.kernel.language.builder import Register
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.threads import ThreadBuilder
from sardonyx.kernel.language.types import F32, I1, I32


@dataclass(frozen=True, slots=True)
class RowParts:
    """What a thread has of one query.

    Attributes:
        row: The query's number in the tile.
        counts: Whether there is such a query.
        largest: Its largest score.
        total: The sum of powers of all scores.
        pairs: Weighted sums, two columns of every eight.
    """

    row: Operand
    counts: Operand
    largest: Operand
    total: Operand
    pairs: list[Operand]


class SplitKAttention:
    """Joins the parts of a tile of queries.

    Args:
        b: Where statements go.
        partial: Address of the parts: part, tile, row; the sums of a row, then its two numbers.
        shared: Address of a word of shared memory that is free.
        thread: The number of the thread in its thread block.
        member: Which pair of eight columns a thread has.
        rows, columns: Sizes of a tile.
    """

    def __init__(
        self,
        b: ThreadBuilder,
        partial: Operand,
        shared: Operand,
        thread: Operand,
        member: Operand,
        rows: int,
        columns: int,
    ) -> None:
        self.b, self.partial, self.shared = b, partial, shared
        self.thread, self.member, self.rows, self.columns = thread, member, rows, columns

    def meet(self, part: KPart, held: list[RowParts]) -> tuple[list[RowParts], Operand]:
        """What the rows have of all keys, and whether this thread block finishes the tile."""
        b = self.b
        is_last = b.variable(b.constant(I1, True), name="last")
        totals = [b.variable(x.total, name="total") for x in held]
        sums = [[b.variable(pair, name="sum") for pair in x.pairs] for x in held]
        with b.if_(part.parts > 1):
            for x in held:
                with b.if_(x.counts):
                    self._put(self._place(part, part.number, x), x)
            tickets, last = draw_ticket(b, part, self.thread, self.shared)
            is_last.set(last)
            b.barrier()
            with b.if_(last):
                b.fence("acq_rel")
                for x, total, pairs in zip(held, totals, sums, strict=True):
                    with b.if_(x.counts):
                        self._join(part, x, total, pairs)
                with b.if_(b.eq(self.thread, 0)):
                    b.store(b.constant(I32, 0), tickets)
        found = [
            RowParts(x.row, x.counts, x.largest, total.get(), [p.get() for p in pairs])
            for x, total, pairs in zip(held, totals, sums, strict=True)
        ]
        return found, is_last.get()

    def _place(self, part: KPart, number: Operand, x: RowParts) -> Operand:
        b = self.b
        cell = number * part.tiles + part.tile
        row = cell * self.rows + x.row
        return b.offset(self.partial, row * (self.columns + 2), F32)

    def _put(self, place: Operand, x: RowParts) -> None:
        b = self.b
        for n, pair in enumerate(x.pairs):
            at = self.member * 2 + 8 * n
            b.store(pair, place, at, align_bytes=8)
        with b.if_(b.eq(self.member, 0)):
            b.store(x.largest, place, self.columns)
            b.store(x.total, place, self.columns + 1)

    def _join(self, part: KPart, x: RowParts, total: Register, pairs: list[Register]) -> None:
        b = self.b
        best = b.variable(b.constant(F32, float("-inf")), name="best")
        with b.for_(0, part.parts) as other:
            place = self._place(part, other, x)
            best.set(b.max(best.get(), b.load(F32, place, self.columns)))
        # Where all are minus infinity, so is the difference of one of them and 0.
        found = best.get()
        base = b.select(b.eq(found, float("-inf")), 0.0, found)
        base = -(base * math.log2(math.e))
        total.set(0.0)
        for pair in pairs:
            pair.set(0.0)
        with b.for_(0, part.parts) as other:
            place = self._place(part, other, x)
            largest = b.load(F32, place, self.columns)
            scale = b.power_of_two(b.fma(largest, math.log2(math.e), base))
            total.set(b.fma(b.load(F32, place, self.columns + 1), scale, total.get()))
            for n, pair in enumerate(pairs):
                at = self.member * 2 + 8 * n
                loaded = b.load(F32.with_lanes(2), place, at, align_bytes=8)
                pair.set(b.fma(loaded, b.splat(scale, 2), pair.get()))
