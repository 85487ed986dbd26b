"""How tiles of a product prefetch what they, and others, will read.

A step of a tile prefetches the columns of its own panel that come some steps later, for the first
cache: the second one gives them just about as fast as they are used, and processors do not ask from
one page to the next. Tiles that share a panel prefetch the next one besides, each for a share, a
few bytes in each step, for the second cache: in memory, the first tile that reads it would wait for
it.
"""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I64, PTR, U8

#: Parameters of a micro-kernel: from where on its share of the next panel begins, and how many
#: bytes further each step asks.
AHEAD = (("next", PTR), ("share", I64))
#: Tiles of so many rows prefetch their own panel. One row reads as fast as memory gives, or from
#: the first cache, where each instruction counts.
_LEAST_OWN = 2
#: Tiles of so many rows prefetch the next one.
LEAST_SHARING = 4
#: How far ahead in its own panel a tile asks: enough for a line to come from memory, and a quarter
#: of a small first cache.
_OWN_BYTES = 8 << 10
_LINE_BYTES = 64


class PrefetchTiles:
    """What a micro-kernel prefetches.

    Args:
        b: Writes the micro-kernel.
        rows: Those of its tile.
        line_bytes: How many bytes of its panel a step reads.
        shares: Whether it has the parameters `AHEAD`, and prefetches what they say.
    """

    def __init__(self, b: Builder, rows: int, line_bytes: int, *, shares: bool = True) -> None:
        self._b = b
        self._lines = range(0, line_bytes if rows >= _LEAST_OWN else 0, _LINE_BYTES)
        self._shares = shares and rows >= LEAST_SHARING
        if self._shares:
            self._share = b.parameter("share")
            self._next = b.variable(b.parameter("next"), name="next")

    def ask(self, step: Operand, line: Operand) -> None:
        """In a step of a run that reads the panel at `line`."""
        b = self._b
        for k in self._lines:
            b.prefetch(line, _OWN_BYTES + k, U8)
        if self._shares:
            b.prefetch(self._next.get(), step * self._share, U8, near=False)

    def pass_by(self, steps: Operand) -> None:
        """Behind a run of so many steps."""
        if self._shares:
            b = self._b
            self._next.set(b.offset(self._next.get(), steps * self._share))
