"""How much one block of a kernel does: enough to pay for claiming it, little enough to share."""

from __future__ import annotations

from sardonyx.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Tiling:
    """A device on which thread blocks with memory of their own compute tiles of products.

    Attributes:
        processors: Multiprocessors that should all have work.
        tf32: Whether factors of float32 may be rounded to 10 bits of mantissa.
        aligned: Whether buffers begin at multiples of 16 bytes.
    """

    processors: int = 132
    tf32: bool = True
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class Grain:
    """Sizes of blocks.

    Attributes:
        rows: Rows of a product, or queries of attention, at most.
        elements: Elements along the vector axis of a pointwise kernel, at most.
        vectors: Vectors of columns in a tile of a product.
        turns: Whether squares of results are turned in registers to be stored along rows.
        tiles: Tiles of an image that a convolution transforms at once; 0 to transform none.
        tiling: How products are computed by thread blocks; None where there are none.
    """

    rows: int = 96
    elements: int = 4096
    vectors: int = 4
    turns: bool = True
    tiles: int = 24
    tiling: Tiling | None = None


#: A few cores, each with a cache that a panel of the right factor stays in.
FEW_CORES = Grain()
