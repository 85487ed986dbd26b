"""How a contraction becomes loops: the roles of its axes, its panels, how its left factor is read.

Index variables have roles: `columns` appear in the right factor only, `rows` in the left only,
`batch` in both. One column axis runs along the panels; the reduced axis that is contiguous in the
left factor is the depth, the other reduced axes are taps; where rows are dense along all of them,
they are walked as one. Where the left factor is not contiguous,
or not of the accumulator's type, rows are first copied to scratch.

A block is one panel and up to 96 rows of one batch.
"""

from __future__ import annotations

import itertools
import math

from sardonyx.base import integer, sizes
from sardonyx.base.errors import EngineError, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.expressions.strided import pays
from sardonyx.kernel.language.types import memory_type
from sardonyx.kernel.loops.block_sizes import FEW_CORES, BlockSizes
from sardonyx.kernel.matmul.balance import balanced_rows
from sardonyx.kernel.matmul.long_sums import is_long as is_long_sum
from sardonyx.kernel.matmul.micro import vectors_at_once
from sardonyx.plan.axes import Axes, extent_of, offset_of
from sardonyx.plan.groups import Contraction
from sardonyx.plan.inline import cost_of
from sardonyx.plan.roles import index_atoms, roles
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, Map, Reduce, Tensor, buffer, indices, make_map
from sardonyx.tensor.traverse import loads_of, parts_of

#: Sums of fewer products take less time than prefetching memory ahead saves.
SHORTEST_AHEAD = 64
#: Operations of an epilogue of which several vectors are finished at once.
_LONG = range(16, 49)
#: Elements that a tap walks in place, at least: shorter runs are copied. On a device, too.
_LEAST_RUN, _LEAST_ON_DEVICE = 5, 8
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
#: Phases that are stored between each other, at most. Columns with phases that do not divide a
#: vector are in one panel, of so many vectors at most.
_MOST_PHASES, _ONE_PANEL = 8, 2
#: Vectors of a panel axis that is put together of all short ones.
_FLAT = 4


@dataclass(eq=False, slots=True)
class Packing:
    """A right factor to be packed before the kernel can run.

    Attributes:
        packed: The buffer that the kernel reads.
        contents: What it holds: a map, or sums, over the factor's own buffers.
    """

    packed: Buffer
    contents: Map | Reduce


class ContractionSchedule:
    """How the kernel of one contraction goes over its axes.

    Attributes:
        batch, rows, column, outer_columns: Axes by role; `column` runs along the panels.
        phases: So many columns follow each other between neighbours of the last row axis: results
            of the pixels of a block, where an image becomes larger.
        reduced: Reduced axes.
        depth, taps: Which of them the rows walk in place, and the others, where `direct`; with 0
            for the former, rows walk all of them, in their order.
        direct: Whether rows of the left factor are read where they lie.
        window: Condition under which the left factor is not zero; None if always.
        left, right, epilogue: Expressions over these axes; `token` stands for the sum.
        element: Type of sums.
        factor: Type of factors where rows of the left one lie.
        store_at: Indices of the result.
        width: Columns of a panel: `vectors` times `lanes`.
        is_deep: Whether sums are of so many elements that they should go in parts.
        is_long: Whether sums are added up in float64 (`long_sums`); None where a run says so.
        is_brief: Whether little code is worth more than speed: a tile has one row.
        block_rows: Rows of a block, at most: a number, or an argument of the kernel.

    Args:
        group: What to compute.
        strides: Elements per step along each axis, for every buffer.
        lanes: 32-bit lanes of a vector register.
        block_sizes: How much a block does.
    """

    def __init__(
        self,
        group: Contraction,
        strides: dict[Tensor, tuple[Dim, ...]],
        lanes: int,
        block_sizes: BlockSizes = FEW_CORES,
    ) -> None:
        found = roles(group)
        if found is None:
            raise EngineError(message("product", "The contraction has no columns"))
        self.group, self.transpose_stores, self._registers = (
            group,
            block_sizes.transpose_stores,
            block_sizes.registers,
        )
        self._least_run = _LEAST_ON_DEVICE if block_sizes.has_thread_blocks else _LEAST_RUN
        self.block_rows: Dim = block_sizes.rows
        self.strides = dict(strides)
        self.element = self.factor = value_type(group.accumulator)
        self.lanes = lanes * 32 // max(32, self.element.bits)
        self._set_axes(*found)
        self._set_depth()
        self._set_width(block_sizes.vectors_of(self.row_count()))
        self.is_brief = False
        on_device = block_sizes.has_thread_blocks
        self.is_deep = not on_device and is_deep(self.depth_extent, self.row_count())
        if self.is_deep:
            self.block_rows = DEEP_BLOCKS * block_sizes.rows
        self.is_long = not on_device and is_long_sum(self.reduced, self.element)

    # -- axes ---------------------------------------------------------------------------------

    def _set_axes(self, batch: list[Dim], rows: list[Dim], columns: list[Dim]) -> None:
        g = self.group
        accumulator = g.accumulator
        left, right = (scalar.cast(x, accumulator) for x in (g.left, g.right))
        # The sum has no place in memory: a load of rank 0 stands for it.
        self.token = scalar.make_load(buffer("sum", (), g.result.dtype), ())
        self.strides[self.token.tensor] = ()
        epilogue = rewrite(g.epilogue, lambda x: self.token if x is g.result else None)
        axes = Axes(
            (batch, rows, columns, g.reduced),
            [left, right, epilogue],
            [(g.root.buffer, g.at)],
        )
        axes.split(whole=self._walked_axes(left))
        axes.merge(self.strides)
        self.batch, self.rows, columns, reduced = axes.spaces
        self.left, self.right, self.epilogue = axes.bodies
        self.store_at = axes.stores[0][1]
        self._choose_column(columns)
        self.reduced = reduced

    def _walked_axes(self, left: Scalar) -> set[Atom]:
        """Reduced axes that rows walk in place as they are.

        They are not split where the right factor alone divides them: its panels are packed.
        """
        offsets = [offset_of(self.strides[x.tensor], x.at) for x in loads_of(left)]

        def is_walked(atom: Atom) -> bool:
            own = [sizes.step_along(o, atom) for o in offsets if atom in sizes.atoms_of(o)]
            return bool(own) and all(step == 1 for step in own)

        axes = (sizes.as_atom(v) for v in self.group.reduced)
        return {atom for atom in axes if atom is not None and is_walked(atom)}

    def _choose_column(self, columns: list[Dim]) -> None:
        """The panel axis is the one that is contiguous in the output; others become batches.

        Unless it is shorter than a register and another one is not.
        """
        phase = self._phase_among(columns)
        self.phases = 1 if phase is None else int(extent_of(phase))
        others = [c for c in columns if c is not phase] or columns
        long = [c for c in others if not self._is_short(c)] or others
        chosen = long[-1]
        for variable in long:
            if self._step_of(variable) == 1:
                chosen = variable
        self.column = chosen
        self.outer_columns = [c for c in others if c is not chosen]
        if phase is not None and phase is not chosen:
            self._flatten_phases(phase)
        else:
            self._flatten_columns()

    def _step_of(self, variable: Dim) -> Dim | None:
        """Elements between results along an axis, if it is the same everywhere."""
        offset = offset_of(self.strides[self.group.root.buffer], self.store_at)
        return sizes.step_along(offset, sizes.variable(variable))

    def _phase_among(self, columns: list[Dim]) -> Dim | None:
        """The axis whose results fill what lies between neighbours along the last row axis."""
        if not self.transpose_stores or not self.rows:
            return None
        step = self._step_of(self.rows[-1])
        if not isinstance(step, int) or not 2 <= step <= _MOST_PHASES or not pays(self.lanes):
            return None
        if not all(isinstance(extent_of(c), int) for c in columns):
            return None
        if self.lanes % step:
            # Rows of a matrix with so few columns are stored as they are.
            count = math.prod(int(extent_of(c)) for c in columns)
            if len(columns) == 1 or count > _ONE_PANEL * self.lanes:
                return None
        return next((c for c in columns if extent_of(c) == step and self._step_of(c) == 1), None)

    def _flatten_phases(self, phase: Dim) -> None:
        """Let phases be the last part of the panel axis; of short axes it has all."""
        every = [*self.outer_columns, self.column, phase]
        extents = [int(extent_of(a)) for a in every]
        few = math.prod(extents) <= _FLAT * self.lanes
        self._flatten(every if few else every[-2:])
        self.outer_columns = [] if few else self.outer_columns

    def _is_short(self, variable: Dim) -> bool:
        extent = extent_of(variable)
        return isinstance(extent, int) and extent < self.lanes

    def _flatten_columns(self) -> None:
        """Make one panel axis of several short ones (the phases of a pixel shuffle).

        Indices then divide it, which costs less than panels that are mostly padding.
        """
        axes = [*self.outer_columns, self.column]
        extents = [extent_of(a) for a in axes]
        whole = sizes.product(extents)
        short = extents[-1]
        if len(axes) < 2 or not isinstance(whole, int) or not isinstance(short, int):
            return
        if short >= self.lanes or whole > _FLAT * self.lanes:
            return
        self._flatten(axes)
        self.outer_columns = []

    def _flatten(self, axes: list[Dim]) -> None:
        """Let the panel axis run over several, of which the last is the innermost."""
        extents = [extent_of(a) for a in axes]
        flat = rest = sizes.numbered_index(sizes.product(extents), 0, "c")
        atoms: dict[Atom, Dim] = {}
        for axis, extent in reversed(list(zip(axes, extents, strict=True))):
            atoms[sizes.variable(axis)] = integer.modulo(rest, extent)
            rest = integer.floordiv(rest, extent)
        self.right, self.epilogue = (rewrite(x, atoms=atoms) for x in (self.right, self.epilogue))
        self.store_at = tuple(substitute(i, atoms) for i in self.store_at)
        self.column = flat

    def _set_depth(self) -> None:
        """Which reduced axis the rows walk; `direct` if they can be read in place."""
        body = self.walked = self._rows_body()
        self.direct = body.op == "load" and value_type(body.dtype) == memory_type(body.dtype)
        self.direct = self.direct and value_type(body.dtype) == self.factor
        self.depth: Dim = 0
        if self.direct:
            self.left_offset = offset_of(self.strides[body.tensor], body.at)
            self.left_buffer = body.tensor
            for variable in self.reduced:
                linear = sizes.coefficient_of(self.left_offset, sizes.variable(variable))
                windowed = self.window is not None and sizes.variable(variable) in index_atoms(
                    self.window
                )
                if linear is not None and linear[0] == 1 and not windowed:
                    self.depth = variable
        taps = [r for r in self.reduced if r is not self.depth]
        many = not all(isinstance(extent_of(t), int) for t in taps)
        if self.depth == 0 and self.reduced or many or not self._takes(bool(taps)):
            self.direct = False
        if (taps or not self.direct) and self._walk_all():
            self.direct, self.depth, taps = True, 0, []
        elif not self.direct:
            self.depth, taps = 0, []
            self.reduced.sort(key=self._is_contiguous)
        self.taps = taps

    def _walk_all(self) -> bool:
        """Whether rows are dense along all reduced axes, which are put into their order then."""
        body = self.walked
        if body.op != "load" or self.window is not None or not self._takes(tapped=False):
            return False
        if not value_type(body.dtype) == memory_type(body.dtype) == self.factor:
            return False
        offset = offset_of(self.strides[body.tensor], body.at)
        steps = dict[Dim, int]()
        for variable in self.reduced:
            step = sizes.step_along(offset, sizes.variable(variable))
            if not isinstance(step, int) or step < 1:
                return False
            steps[variable] = step
        length: Dim = 1
        order = sorted(steps, key=steps.__getitem__)
        for variable in order:
            if steps[variable] != length:
                return False
            length = length * extent_of(variable)
        self.reduced, self.left_offset, self.left_buffer = order[::-1], offset, body.tensor
        return bool(order)

    def _rows_body(self) -> Scalar:
        """What rows hold; sets `window`."""
        body = self.left
        self.window: Scalar | None = None
        if body.op == "select" and body.arguments[2].op == "constant":
            self.window, body = body.arguments[0], body.arguments[1]
        return body

    @property
    def has_far_taps(self) -> bool:
        """Whether rows are read in place by taps that are apart, and may be beyond an edge.

        Near taps are beyond it for few tiles, and to ask costs more than a few elements do.
        """
        if not self.direct or self.window is None or self.tap_count() > _MOST_BITS:
            return False
        depth = self.depth_extent
        if isinstance(depth, int) and depth < _LEAST_LEFT_OUT:
            return False
        positions = [x.dim for x in parts_of(self.window) if x.op == "size"]
        steps = (
            sizes.coefficient_of(position, sizes.variable(tap))
            for position in positions
            for tap in self.taps
        )
        return any(s is not None and isinstance(s[0], int) and s[0] >= _FAR for s in steps)

    def _takes(self, tapped: bool) -> bool:
        """Whether rows may be walked in place along the depth; `tapped`: there are taps."""
        extent = extent_of(self.depth)
        return not (tapped and isinstance(extent, int) and extent < self._least_run)

    def _is_contiguous(self, variable: Dim) -> bool:
        """Whether the left factor's elements lie side by side along a reduced axis."""
        extent = extent_of(variable)
        if isinstance(extent, int) and extent < 4:
            return False
        atom = sizes.variable(variable)
        for x in loads_of(self.walked):
            if sizes.step_along(offset_of(self.strides[x.tensor], x.at), atom) != 1:
                return False
        return True

    @property
    def depth_extent(self) -> Dim:
        """Elements of a row that one tap reads."""
        if self.depth != 0:
            return extent_of(self.depth)
        return sizes.product(map(extent_of, self.reduced))

    @property
    def row_length(self) -> Dim:
        """Elements of a row in scratch, and of the panel for it: `depth_extent`, or a few more."""
        return self.depth_extent

    def tap_count(self) -> int:
        """How many runs of the depth one output sums."""
        count = 1
        for tap in self.taps:
            extent = extent_of(tap)
            assert isinstance(extent, int)  # noqa: S101 - `_set_depth` saw to it
            count *= extent
        return count

    def _set_width(self, vectors: int) -> None:
        extent = extent_of(self.column)
        self.vectors = vectors
        if self.lanes % self.phases:
            self.vectors = -(-int(extent) // self.lanes)
        elif isinstance(extent, int):
            self.vectors = panel_vectors(extent, self.lanes, vectors)
        self.width = self.vectors * self.lanes

    def at_once(self, rows: int) -> int:
        """Vectors of columns that a tile of so many rows sums in one pass."""
        return vectors_at_once(rows, self.vectors, self._registers)

    @property
    def run(self) -> Dim | None:
        """The last row axis, where results lie side by side along it and not along columns.

        Or along it and the phases between. None where the target does not turn results.
        """
        if not self.transpose_stores or not self.rows:
            return None
        if self.phases == 1 and self._step_of(self.column) == 1:
            return None
        return self.rows[-1] if self._step_of(self.rows[-1]) == self.phases else None

    def balance(self) -> None:
        """Choose rows of blocks by how a few threads share them; for factors packed beforehand.

        Not where a run gives them.
        """
        if not isinstance(self.block_rows, int):
            return
        lead = sizes.product(map(extent_of, self.lead()))
        others = lead * self.panels()
        self.block_rows = balanced_rows(self.row_count(), others, self.block_rows)

    def panels(self) -> Dim:
        """How many panels the columns make."""
        return integer.ceildiv(extent_of(self.column), self.width)

    def tap_values(self) -> list[tuple[int, ...]]:
        """The values of the taps, in the order in which the panel holds them."""
        extents = [extent_of(tap) for tap in self.taps]
        return list(itertools.product(*(range(int(e)) for e in extents)))

    def row_count(self) -> Dim:
        """Rows of one batch."""
        return sizes.product(map(extent_of, self.rows))

    def lead(self) -> list[Dim]:
        """Axes that blocks go over besides panels and rows."""
        return [*self.batch, *self.outer_columns]

    def blocks(self) -> Dim:
        """How many blocks the kernel has."""
        lead = sizes.product(map(extent_of, self.lead()))
        chunks = integer.ceildiv(self.row_count(), self.block_rows)
        return lead * self.panels() * chunks

    def cost_ns(self) -> Dim:
        """Estimated time of all blocks on one thread."""
        lead = sizes.product(map(extent_of, self.lead()))
        outputs = lead * self.row_count() * extent_of(self.column)
        depth = sizes.product(map(extent_of, self.reduced))
        work = outputs * (depth + (cost_of(self.epilogue) + 8))
        return integer.ceildiv(work, 3 * self.lanes)

    # -- packing ------------------------------------------------------------------------------

    def packed_axes(self) -> list[Dim]:
        """Axes of the packed factor before panel and lane."""
        right = index_atoms(self.right)
        return [v for v in (*self.batch, *self.outer_columns) if sizes.as_atom(v) in right]

    def reduced_order(self) -> list[Dim]:
        """Reduced axes in the order in which the panel holds them."""
        return [*self.taps, self.depth] if self.depth != 0 else list(self.reduced)

    def packings(self) -> list[Packing]:
        """What has to be packed before the kernel can run: first the right factor's panels.

        These are (batch..., panel, reduced..., lane).
        """
        lead, order = self.packed_axes(), self.reduced_order()
        shape = (
            *map(extent_of, lead), self.panels(), *map(extent_of, order), self.width,
        )  # fmt: skip
        own = indices(shape)
        column = own[len(lead)] * self.width + own[-1]
        atoms = {sizes.variable(self.column): column}
        for variable, at in zip(lead, own, strict=False):
            atoms[sizes.variable(variable)] = at
        for variable, at in zip(order, own[len(lead) + 1 :], strict=False):
            atoms[sizes.variable(variable)] = at
        value = rewrite(self.right, atoms=atoms)
        extent = extent_of(self.column)
        inside = scalar.size(column) < scalar.size(extent)
        zero = scalar.constant(0, self.group.accumulator)
        contents = make_map(shape, scalar.select(inside, value, zero))
        packed = buffer(("packed", contents), shape, self.group.accumulator)
        return [Packing(packed, contents)]


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
