"""Parts of one sum, each by a thread block of its own: the last to be done adds them up.

Which block is the last, a counter in memory tells: each draws a ticket when its part can be seen.
Parts are added in their order, so results do not depend on who is last.
"""

from __future__ import annotations

from sardonyx.base.records import dataclass
from sardonyx.kernel.gpu.tile_schedule import TileSchedule
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.threads import ThreadBuilder
from sardonyx.kernel.language.types import I1, I32, I64


@dataclass(frozen=True, slots=True)
class KPart:
    """Which part of which tile a thread block computes: of `tiles` tiles, in `parts` parts."""

    tile: Operand
    number: Operand
    tiles: Operand
    parts: Operand


def draw_ticket(
    b: ThreadBuilder, part: KPart, thread: Operand, word: Operand
) -> tuple[Operand, Operand]:
    """Where the tickets of a tile are counted, and whether this thread block has the last one.

    What the block wrote before, the last one sees. All threads of the block come here.

    Args:
        b: Where statements go.
        part: What the thread block has computed.
        thread: The number of the thread in its thread block.
        word: Address of a word of shared memory that is free.
    """
    b.fence("acq_rel")
    b.barrier()
    tickets = b.offset(b.context("tickets"), part.tile, I32)
    with b.if_(b.eq(thread, 0)):
        drawn = b.atomic("add", tickets, b.constant(I32, 1), "relaxed")
        b.store(drawn, word)
    b.barrier()
    drawn = b.load(I32, word)
    return tickets, b.eq(b.convert(drawn, I64), part.parts - 1)


class SplitKReduction:
    """Adds up the parts of a tile.

    Args:
        b: Where statements go.
        schedule: Of the product.
        partial: Address of the parts: part, tile, row, column.
        shared: Address of the finished tile in shared memory.
        behind: Bytes from there to a free word.
        pitch: Elements of a row of the finished tile.
    """

    def __init__(
        self,
        b: ThreadBuilder,
        schedule: TileSchedule,
        partial: Operand,
        shared: Operand,
        behind: int,
        pitch: int,
    ) -> None:
        self.b, self.type, self.shape = b, schedule.unit.sum, schedule.shape
        self.partial, self.shared, self.pitch = partial, shared, pitch
        self.ticket = b.offset(shared, behind)

    def meet(
        self,
        part: KPart,
        thread: Operand,
        row: Operand,
        column: Operand,
        step: int,
        lanes: int,
    ) -> Operand:
        """Whether this thread block finishes the tile, whose sum then is in shared memory.

        A thread adds up rows `row`, `row + step` ... of `lanes` columns from `column` on.
        """
        b, kind = self.b, self.type.with_lanes(lanes)
        size = self.shape.rows * self.shape.columns
        align = lanes * self.type.size_bytes
        is_last = b.variable(b.constant(I1, True), name="last")
        rows = [row + step * i for i in range(self.shape.rows // step)]
        held = [r * self.pitch + column for r in rows]
        places = [r * self.shape.columns + column for r in rows]
        with b.if_(part.parts > 1):
            number = part.number * part.tiles + part.tile
            mine = b.offset(self.partial, number * size, self.type)
            for at, place in zip(held, places, strict=True):
                value = b.load(kind, self.shared, at, align_bytes=align)
                b.store(value, mine, place, align_bytes=align)
            tickets, last = draw_ticket(b, part, thread, self.ticket)
            is_last.set(last)
            with b.if_(last):
                b.fence("acq_rel")
                sums = [b.variable(b.constant(kind, 0), name="total") for _ in rows]
                with b.for_(0, part.parts) as other:
                    number = other * part.tiles + part.tile
                    theirs = b.offset(self.partial, number * size, self.type)
                    loaded = [b.load(kind, theirs, p, align_bytes=align) for p in places]
                    for total, value in zip(sums, loaded, strict=True):
                        total.set(total.get() + value)
                for at, total in zip(held, sums, strict=True):
                    b.store(total.get(), self.shared, at, align_bytes=align)
                with b.if_(b.eq(thread, 0)):
                    b.store(b.constant(I32, 0), tickets)
        return is_last.get()
