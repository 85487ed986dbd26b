"""How a contraction becomes loops: the axes by role, its panels, and how its factors are read.

The roles of axes are chosen by `contraction_axes`, how rows of the left factor are found by
`factors`. A block is one panel and up to 96 rows of one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sardonyx.base import integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.language.types import Type
from sardonyx.kernel.loops.block_sizes import FEW_CORES, BlockSizes
from sardonyx.kernel.matmul.balance import balanced_rows
from sardonyx.kernel.matmul.contraction_axes import AxisChoice
from sardonyx.kernel.matmul.factors import Factors, Packing, access_of
from sardonyx.kernel.matmul.long_sums import is_long as is_long_sum
from sardonyx.kernel.matmul.matrix_unit import MatrixUnit
from sardonyx.kernel.matmul.micro import vectors_at_once
from sardonyx.plan.axes import extent_of
from sardonyx.plan.groups import Contraction
from sardonyx.plan.inline import cost_of
from sardonyx.plan.roles import index_atoms
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import parts_of

#: Sums of fewer products take less time than prefetching memory ahead saves.
SHORTEST_AHEAD = 64
#: Operations of an epilogue of which several vectors are finished at once.
_LONG = range(16, 49)
#: Taps are far apart from so many rows of the image on, and left out if they have so many elements.
_FAR, _LEAST_LEFT_OUT = 4, 32
#: Sums of more elements go in parts of so many: a panel's part stays in the cache of a core while
#: all rows of a block pass it (64 columns: 256 KB), a whole panel would come from memory for each
#: tile.
DEEP, DEPTH_PART = 4096, 1024
#: Blocks have so many times as many rows then: a panel comes from memory once for each block.
DEEP_BLOCKS = 2
#: Rows of one tile: what passes once needs no cache.
_ONE_TILE = 6
#: Taps that a word has bits for.
_MOST_BITS = 63

#: Makes factors of a kind, see `Factors`: `(left, right, element)`.
FactorsOf = Callable[[Scalar, Scalar, Type], Factors]


@dataclass(frozen=True, slots=True)
class BlockLoops:
    """How a block goes over its rows and sums.

    Attributes:
        rows: Rows of a block, at most: a number, or an argument of the kernel.
        is_brief: Whether little code is worth more than speed: a tile has one row.
        is_deep: Whether sums are of so many elements that they should go in parts.
        is_long: Whether sums are added up in float64 (`long_sums`); None where a run says so.
    """

    rows: Dim
    is_brief: bool
    is_deep: bool
    is_long: bool | None

    @property
    def may_be_long(self) -> bool:
        """Whether sums may be so long that they are added up in float64."""
        return self.is_long is not False


class ContractionSchedule:
    """How the kernel of one contraction goes over its axes.

    Attributes:
        axes: The axes by role; `axes.column` runs along the panels.
        epilogue: What becomes of sums.
        factors: What is multiplied.
        access: How rows of the left factor are read.
        element: Type of sums.
        lanes: Those of a vector of sums.
        vectors: Vectors of columns of a panel.
        loops: How a block goes over its rows.

    Args:
        group: What to compute.
        strides: Elements per step along each axis, for every buffer.
        lanes: 32-bit lanes of a vector register.
        block_sizes: How much a block does.
        factors: How they are multiplied.
        matrices: Registers for matrices, which multiply; None where vectors do.
    """

    def __init__(
        self,
        group: Contraction,
        strides: dict[Tensor, tuple[Dim, ...]],
        lanes: int,
        block_sizes: BlockSizes = FEW_CORES,
        factors: FactorsOf = Factors,
        matrices: MatrixUnit | None = None,
    ) -> None:
        on_device = block_sizes.has_thread_blocks
        self.group, self.block_sizes, self.matrices = group, block_sizes, matrices
        self.strides = dict(strides)
        self.element = value_type(group.accumulator)
        self.lanes = lanes * 32 // max(32, self.element.bits)
        choice = AxisChoice(group, self.strides, self.lanes, block_sizes.transpose_stores)
        self.axes, self.epilogue = choice.roles(), choice.epilogue
        self.factors = factors(choice.left, choice.right, self.element)
        self.access = access_of(
            self.factors, choice.reduced, self.strides, copied=matrices is not None,
            on_device=on_device,
        )  # fmt: skip
        self.vectors = self._vectors()
        deep = not on_device and is_deep(self.access.depth_extent, self.row_count())
        rows = DEEP_BLOCKS * block_sizes.rows if deep else block_sizes.rows
        floats = self.factors.may_be_long and not on_device
        long = floats and is_long_sum(self.access.reduced, self.element)
        self.loops = BlockLoops(rows, False, deep, long)

    # -- rows ---------------------------------------------------------------------------------

    @property
    def has_far_taps(self) -> bool:
        """Whether rows are read in place by taps that are apart, and may be beyond an edge.

        Near taps are beyond it for few tiles, and to ask costs more than a few elements do.
        """
        window, access = self.factors.window, self.access
        if not access.direct or window is None or access.tap_count() > _MOST_BITS:
            return False
        depth = access.depth_extent
        if isinstance(depth, int) and depth < _LEAST_LEFT_OUT:
            return False
        positions = [x.dim for x in parts_of(window) if x.op == "size"]
        steps = (
            sizes.coefficient_of(position, sizes.variable(tap))
            for position in positions
            for tap in access.taps
        )
        return any(s is not None and isinstance(s[0], int) and s[0] >= _FAR for s in steps)

    @property
    def goes_in_parts(self) -> bool:
        """Whether all rows of a block pass one part of the panel after the other."""
        access = self.access
        is_plain = access.direct and not access.taps and self.factors.window is None
        return self.loops.is_deep and is_plain

    @property
    def row_length(self) -> Dim:
        """Elements of a row in scratch, and of the panel for it: whole steps of an instruction."""
        size_bytes = self.factors.type.size_bytes
        step = self.factors.step if self.matrices is None else self.matrices.step(size_bytes)
        extent = self.access.depth_extent
        return extent if step == 1 else integer.ceildiv(extent, step) * step

    def row_count(self) -> Dim:
        """Rows of one batch."""
        return sizes.product(map(extent_of, self.axes.rows))

    # -- panels -------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    def _vectors(self) -> int:
        vectors = self.block_sizes.vectors_of(self.row_count())
        if self.matrices is not None:
            size_bytes = self.factors.type.size_bytes
            vectors = self.matrices.vectors(vectors, self.row_length, size_bytes)
        vectors = self.factors.most_vectors(vectors)
        extent = extent_of(self.axes.column)
        if self.lanes % self.axes.phases:
            return -(-int(extent) // self.lanes)
        return panel_vectors(extent, self.lanes, vectors) if isinstance(extent, int) else vectors

    def at_once(self, rows: int) -> int:
        """Vectors of columns that a tile of so many rows sums in one pass."""
        return vectors_at_once(rows, self.vectors, self.block_sizes.registers)

    def panels(self) -> Dim:
        """How many panels the columns make."""
        return integer.ceildiv(extent_of(self.axes.column), self.width)

    def panel_length(self) -> Dim:
        """Steps of the reduced axes in a panel."""
        return self.row_length * self.access.tap_count()

    def panel_bytes(self) -> Dim:
        """Bytes of a panel."""
        return self.panel_length() * (self.width * self.factors.type.size_bytes)

    def packed_axes(self) -> list[Dim]:
        """Axes of the packed factor before panel and lane."""
        right = index_atoms(self.factors.right)
        return [v for v in self.axes.lead() if sizes.as_atom(v) in right]

    def packings(self) -> list[Packing]:
        """What has to be packed before the kernel can run: first the right factor's panels."""
        return self.factors.packings(self)

    # -- blocks -------------------------------------------------------------------------------

    def balance(self) -> None:
        """Choose rows of blocks by how a few threads share them; for factors packed beforehand.

        Not where a run gives them.
        """
        loops, count = self.loops, self.row_count()
        if self.matrices is not None:
            size_bytes = self.factors.type.size_bytes
            rows = self.matrices.block_rows(count, self.row_length, size_bytes)
            self.loops = replace(loops, rows=rows)
        elif isinstance(loops.rows, int):
            others = self._lead_count() * self.panels()
            self.loops = replace(loops, rows=balanced_rows(count, others, loops.rows))

    def _lead_count(self) -> Dim:
        return sizes.product(map(extent_of, self.axes.lead()))

    def blocks(self) -> Dim:
        """How many blocks the kernel has."""
        chunks = integer.ceildiv(self.row_count(), self.loops.rows)
        return self._lead_count() * self.panels() * chunks

    def cost_ns(self) -> Dim:
        """Estimated time of all blocks on one thread."""
        outputs = self._lead_count() * self.row_count() * extent_of(self.axes.column)
        depth = sizes.product(map(extent_of, self.access.reduced))
        work = outputs * (depth + (cost_of(self.epilogue.body) + 8))
        cost = integer.ceildiv(work, 3 * self.lanes)
        if self.factors.faster > 1:
            cost = integer.ceildiv(cost, self.factors.faster)
        return cost if self.matrices is None else integer.ceildiv(cost, self.matrices.faster)


def is_deep(depth: Dim, rows: Dim) -> bool:
    """Whether sums of so many elements should go in parts, for so many rows."""
    few = isinstance(rows, int) and rows <= _ONE_TILE
    return isinstance(depth, int) and depth > DEEP and not few


def panel_vectors(columns: int, lanes: int, most: int) -> int:
    """Vectors of a panel for so many columns: the last one should not be mostly padding."""
    needed = -(-columns // lanes)
    if needed <= most:
        return needed
    counts = range(max(1, most // 2), most + 1)
    return min(counts, key=lambda v: (-(-needed // v) * v - needed, -v))


def is_long(epilogue: Scalar) -> bool:
    """Whether several vectors of a full panel are finished at once: one would wait for itself."""
    return cost_of(epilogue) in _LONG
