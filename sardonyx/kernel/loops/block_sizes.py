"""How much one block of a kernel does: enough to pay for claiming it, little enough to share."""

from __future__ import annotations

from dataclasses import field, replace

from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language.thread_blocks import ThreadBlocks

#: Rows of a tile of which more vectors fit the registers: sums wait for each other there.
_FEW_ROWS = 2


@dataclass(frozen=True, slots=True)
class Tiling:
    """A device on which thread blocks with memory of their own compute tiles of products.

    Attributes:
        processors: Multiprocessors that should all have work.
        tf32: Whether factors of float32 may be rounded to 10 bits of mantissa.
        aligned: Whether buffers begin at multiples of 16 bytes.
        thread_blocks: What its thread blocks can do. Not in the text of this record, which is in
            keys of caches: what a target is named after decides on it (`Target.key`).
    """

    processors: int
    tf32: bool
    aligned: bool
    thread_blocks: ThreadBlocks = field(repr=False)


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """Sizes of blocks.

    Attributes:
        rows: Rows of a product, or queries of attention, at most.
        elements: Elements along the vector axis of a pointwise kernel, at most.
        vectors: Vectors of columns in a tile of a product.
        wide: The same where all tiles have one or two rows, and where tiles of an image are
            transformed (Winograd's filters); 0 for as many as otherwise.
        registers: How many vectors hold sums, columns and a factor of a product's tile.
        transpose_stores: Whether tiles of results are transposed to be stored along rows.
        tiles: Tiles of an image that a convolution transforms at once; 0 to transform none.
        tiling: How products are computed by thread blocks; None where there are none.
        matrices: Whether there are registers that hold matrices.
    """

    rows: int = 96
    elements: int = 4096
    vectors: int = 4
    wide: int = 0
    registers: int = 32
    transpose_stores: bool = True
    tiles: int = 24
    tiling: Tiling | None = None
    matrices: bool = False

    @property
    def has_thread_blocks(self) -> bool:
        """Whether kernels are computed by thread blocks of a device."""
        return self.tiling is not None

    def for_any_address(self) -> BlockSizes:
        """The same where buffers may begin at any address."""
        if self.tiling is None:
            return self
        return replace(self, tiling=replace(self.tiling, aligned=False))

    def vectors_of(self, rows: Dim) -> int:
        """Vectors of columns in a tile of a product of so many rows."""
        few = isinstance(rows, int) and rows <= _FEW_ROWS
        return max(self.vectors, self.wide) if few else self.vectors


#: A few cores, each with a cache that a panel of the right factor stays in.
FEW_CORES = BlockSizes()
#: The same where there are registers for matrices.
WITH_MATRICES = BlockSizes(matrices=True)
#: The same where 16 registers have to hold a tile of 6 rows, the columns of a step and a factor.
FEW_REGISTERS = BlockSizes(vectors=2, wide=4, registers=16)
