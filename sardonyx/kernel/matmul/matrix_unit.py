"""How registers for matrices take factors: whole steps of 64 bytes, tiles of 32 rows."""

from __future__ import annotations

from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language.matrix_registers import ROW_BYTES, SIDE

#: Rows of a tile at most.
TILE = 2 * SIDE
#: Rows of a block stay in the second cache of a core while all panels pass, and so does a panel.
_ROWS_BYTES, _PANEL_BYTES = 1 << 20, 512 << 10
#: Rows of a block at most, and where only a run knows how long they are.
_MOST_ROWS, _TYPICAL_ROWS = 192, 96
#: Vectors of a panel at least: as many as a step sums at a time.
_LEAST_VECTORS = 2


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """Registers for matrices, for factors of one type.

    Attributes:
        most_vectors: Those of a panel at most: of more columns, sums of a tile leave the first
            cache.
        faster: How many times as fast products are as in vectors, with what else a kernel does.
        few: Rows that vectors multiply as fast: an instruction on registers takes as long for one
            row as for sixteen, and what they need before and after takes longer than a small
            product.
    """

    most_vectors: int
    faster: int
    few: int

    def step(self, size_bytes: int) -> int:
        """Elements of a row that an instruction takes, of so many bytes."""
        return ROW_BYTES // size_bytes

    def has_few(self, rows: Dim) -> bool:
        """Whether vectors multiply so many rows as fast in every run."""
        return isinstance(rows, int) and rows <= self.few

    def vectors(self, vectors: int, length: Dim, size_bytes: int) -> int:
        """Vectors of a panel for rows of so many elements, where others have so many."""
        if not isinstance(length, int):
            return vectors
        fit = _PANEL_BYTES // max(1, length * SIDE * size_bytes)
        return max(_LEAST_VECTORS, min(self.most_vectors, fit // 2 * 2))

    def block_rows(self, count: Dim, length: Dim, size_bytes: int) -> int:
        """Rows of blocks, of so many: whole tiles, as many as stay in a core's cache."""
        most = _TYPICAL_ROWS
        if isinstance(length, int):
            most = min(_MOST_ROWS, _ROWS_BYTES // max(1, length * size_bytes))
        tiles = max(1, most // TILE)
        if isinstance(count, int):  # equal blocks
            whole = max(1, -(-count // TILE))
            tiles = -(-whole // -(-whole // tiles))
        return tiles * TILE
