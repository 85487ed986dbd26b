"""What a product's kernel prefetches before it is needed, so that it does not wait for memory.

The panel behind that of a block, by its tiles (`prefetch_tiles`), and what the epilogue of a row
reads and writes, before the row's products are summed.
"""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Register
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I64, memory_type
from sardonyx.kernel.matmul.contraction_schedule import SHORTEST_AHEAD
from sardonyx.kernel.matmul.kernel_context import KernelContext
from sardonyx.kernel.matmul.prefetch_tiles import LEAST_SHARING
from sardonyx.plan.axes import extent_of, offset_of
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of

_LINE_BYTES = 64


class Prefetch:
    """Writes what a contraction's kernel prefetches.

    Args:
        context: Of the kernel.
        line_bytes: Bytes of a panel that a step of a micro-kernel reads.
        most_rows: Rows of the largest tile.
    """

    def __init__(self, context: KernelContext, line_bytes: int, most_rows: int) -> None:
        self.schedule, self.outside, self.places = context.schedule, context.outside, context.places
        self.b, self._line_bytes, self._most_rows = context.b, line_bytes, most_rows
        self._next: Register
        self._share: Operand

    # -- panels -------------------------------------------------------------------------------

    def share_out(self, start: Operand, rows: Operand) -> None:
        """Share out as much as a panel, from `start` on, among the tiles of so many rows."""
        b, most = self.b, self._most_rows
        self._next = b.variable(start, name="next")
        if most < LEAST_SHARING:
            self._share = b.value(I64, 0)
            return
        tiles = (rows + (most - 1)) // most
        share = (tiles + (self._line_bytes - 1)) // b.max(tiles, 1)
        self._share = b.select(b.eq(tiles, 0), 0, share)

    def asked(self, steps: Operand) -> list[Operand]:
        """What a tile of so many steps prefetches; the next one goes on behind it."""
        asked = self._next.get()
        self._next.set(self.b.offset(asked, steps * self._share))
        return [asked, self._share]

    # -- epilogues ----------------------------------------------------------------------------

    def _awaited(self) -> list[tuple[Tensor, Dim]]:
        """Where the epilogue of a row reads, and writes, along the columns: tensor and offset."""
        s = self.schedule
        column, rows = sizes.variable(s.axes.column), set(map(sizes.variable, s.axes.rows))
        places = [(x.tensor, x.at) for x in loads_of(s.epilogue.body) if x is not s.epilogue.token]
        found: dict[tuple[Tensor, Dim], None] = {}
        for tensor, at in (*places, (s.group.root.buffer, s.epilogue.store_at)):
            offset = offset_of(s.strides[tensor], at)
            step = sizes.step_along(offset, column)
            own = rows & sizes.atoms_of(offset, "index") and not sizes.opaque_in(offset)
            if step == 1 and own:
                found[tensor, offset] = None
        return list(found)

    def ask_ahead(self, row: Expression, first_column: Operand) -> None:
        """Let what the epilogue of a row needs come from memory while its products are summed."""
        s, b = self.schedule, self.b
        depth = sizes.product(map(extent_of, s.access.reduced))
        awaited = self._awaited()
        if not awaited or (isinstance(depth, int) and depth < SHORTEST_AHEAD):
            return
        if isinstance(depth, int):
            self._ask_for(awaited, row, first_column)
            return
        with b.if_(self.outside.dim(depth) >= SHORTEST_AHEAD):
            self._ask_for(awaited, row.child(), first_column)

    def _ask_for(
        self, places: list[tuple[Tensor, Dim]], row: Expression, first_column: Operand
    ) -> None:
        s, b = self.schedule, self.b
        here = row.child({sizes.variable(s.axes.column): first_column})
        for tensor, offset in places:
            element = memory_type(tensor.dtype)
            start = b.lift(here.dim(offset), I64)
            for line in range(0, s.width, max(1, _LINE_BYTES // element.size_bytes)):
                b.prefetch(self.places[tensor].pointer, start + line, element)
