"""What thread blocks of a device can do: sizes and capabilities, as plain data.

A device with thread blocks computes a kernel as many blocks of threads that share memory on the
chip. Kernels ask this record, never which maker's device it is.
"""

from __future__ import annotations

from sardonyx.base.errors import EngineError, message
from sardonyx.base.records import dataclass

#: What `ThreadBuilder.multiply_matrices` spreads matrices over: threads of a subgroup. Tiles for
#: matrices are made for so many subgroups.
MATRIX_THREADS, MATRIX_SUBGROUPS = 32, 4


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """A product that the threads of a subgroup compute together: an instruction of the device.

    Who holds which element of the factors and of the sums is laid down by
    `ThreadBuilder.multiply_matrices`. A device that keeps this to itself has no such shapes.

    Attributes:
        kind: How factors are rounded: `f16`, `bf16` or `tf32`. Sums are in float32.
        rows, columns: Of the sums.
        depth: Summed at a time.
    """

    kind: str
    rows: int
    columns: int
    depth: int


@dataclass(frozen=True, slots=True)
class ProductCosts:
    """Cycles that products in tiles take; `kernel.gpu.tile_shape` chooses tiles by them.

    Attributes:
        busy: By the kind of the unit: a step of 128 by 128 elements when thread blocks keep a
            multiprocessor busy; `fma` is the unit without matrices.
        alone: The same, beyond `step`, when one thread block is alone there.
        step: Any step.
        tile: Beginning and end of a tile.
        meet: Parts of a sum that are added up.
        part: Each of these parts.
    """

    busy: tuple[tuple[str, int], ...]
    alone: tuple[tuple[str, int], ...]
    step: int
    tile: int
    meet: int
    part: int


@dataclass(frozen=True, slots=True)
class ThreadBlocks:
    """What a device with thread blocks has.

    Raises:
        EngineError: These numbers do not fit each other.

    Attributes:
        subgroup_size: Threads that exchange words without memory; a power of two.
        threads: Threads of a thread block; a multiple of `subgroup_size`.
        shared_bytes: Memory on the chip that every thread block can have.
        matrix_shapes: Products of small matrices that a subgroup computes; none without units.
        async_copy: Whether copies to shared memory go on while threads do something else. Without,
            threads copy through their registers.
        pointer_bits: Bits of an address of the device. Arguments of kernels are words of 64 bits.
        costs: What products take.
    """

    subgroup_size: int
    threads: int
    shared_bytes: int
    costs: ProductCosts
    matrix_shapes: tuple[MatrixShape, ...] = ()
    async_copy: bool = False
    pointer_bits: int = 64

    def __post_init__(self) -> None:
        size, what = self.subgroup_size, ""
        if size < 1 or size & size - 1 or self.threads % size or self.threads < size:
            what = f"{self.threads} threads cannot be subgroups of {size}"
        elif self.matrix_shapes and (size, self.subgroups) != (MATRIX_THREADS, MATRIX_SUBGROUPS):
            what = f"Matrices cannot be spread over {self.subgroups} subgroups of {size} threads"
        if what:
            raise EngineError(message("thread blocks", what))

    @property
    def subgroups(self) -> int:
        """Subgroups of a thread block: so many times a kernel's blocks are counted."""
        return self.threads // self.subgroup_size

    def has_matrices(self, kind: str) -> bool:
        """Whether there are units for matrices of a kind."""
        return any(shape.kind == kind for shape in self.matrix_shapes)
