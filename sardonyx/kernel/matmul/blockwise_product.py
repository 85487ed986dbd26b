"""A contraction with constant codes of few bits: they stay packed in memory (see `plan.blockwise`).

Rows are digits of 8 bits; a tile of them is multiplied with a panel of codes in integers, block by
block, and finished like any product.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import dtypes, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import I64, PTR, memory_type
from sardonyx.kernel.matmul.contraction import ContractionKernel, KernelParts, TileLoop
from sardonyx.kernel.matmul.contraction_epilogue import EpilogueWriter
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.factors import Packing
from sardonyx.kernel.matmul.kernel_context import KernelContext, Layout
from sardonyx.kernel.matmul.micro_blockwise import Panel, build_micro_blockwise
from sardonyx.kernel.matmul.panels import RightPanels
from sardonyx.kernel.matmul.prefetch import Prefetch
from sardonyx.kernel.matmul.tile import RowBlock, RowTile, call_by_rows
from sardonyx.kernel.matmul.tile_sums import TileSums, vector_tile_rows
from sardonyx.plan.axes import extent_of, offset_of
from sardonyx.plan.blockwise import Blockwise
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Buffer, Map, buffer, indices, make_map
from sardonyx.tensor.traverse import loads_of

_WORD = 4


class BlockwiseKernel:
    """Builds the kernel of one contraction.

    Attributes:
        beside: Buffers of what the left factor became, in the order of a row's pointers.
        packs: What the kernel reads; each contraction has contents of its own.

    Args:
        schedule: How it goes over the contraction's axes.
        blockwise: What it multiplies, over the buffers of the schedule.
        digits: How many digits the left factor has.
        name: Symbol name.
    """

    def __init__(
        self, schedule: ContractionSchedule, blockwise: Blockwise, digits: int, name: str
    ) -> None:
        self.schedule, self.blockwise, self.name = schedule, blockwise, name
        (first,) = loads_of(schedule.factors.left)
        shape = first.tensor.shape
        assert isinstance(first.tensor, Buffer)  # noqa: S101 - `plan.blockwise` made it
        more = [buffer(("digit", k), shape, dtypes.INT8) for k in range(1, digits)]
        more += [buffer(("start", k), shape[:-1], dtypes.INT32) for k in range(digits)]
        names = ("scale", "sum") if blockwise.shift is not None else ("scale",)
        more += [buffer(name, shape[:-1], dtypes.FLOAT) for name in names]
        self.beside = [first.tensor, *more]
        for other in more:
            schedule.strides[other] = (0,) * len(other.shape)
        self.panel = Panel(
            blockwise.block, blockwise.bits, blockwise.shift is not None, digits, schedule.vectors,
            schedule.lanes,
        )  # fmt: skip
        self.packs: list[Packing] = []

    def build(self) -> tuple[Kernel, list[Packing]]:
        """The kernel, and how its codes are packed."""
        self.schedule.balance()
        contents = self.contents(self.blockwise)
        self.packs = [Packing(buffer("packed", contents.shape, dtypes.UINT32), contents)]
        beside = tuple(load(x, (0,) * len(x.shape)) for x in self.beside[1:])
        kernel = ContractionKernel(self.schedule, self.name, True, self._make_parts)
        return kernel.build_with(self.packs, beside), self.packs

    def _make_parts(self, c: KernelContext) -> KernelParts:
        epilogue = EpilogueWriter(c)
        panel_bytes = self.blockwise.blocks * self.panel.lines * self.panel.line_bytes
        tiles = BlockwiseTiles(c, self.panel, self.beside, self.blockwise.blocks, epilogue)
        panels = RightPanels(c, panel_bytes=panel_bytes)
        return KernelParts(panels, tiles, TileLoop(c, tiles, epilogue), epilogue)

    # -- packing ------------------------------------------------------------------------------

    def contents(self, c: Blockwise) -> Map:
        """Codes, scales and shifts: (columns..., panel, block, line, lane), words of 32 bits."""
        s, p = self.schedule, self.panel
        lead = s.packed_axes()
        shape = (*map(extent_of, lead), s.panels(), c.blocks, p.lines, s.width)
        own = indices(shape)
        n = len(lead)
        within = own[n] * s.width + own[-1]
        atoms = {sizes.variable(s.axes.column): within} if s.axes.column != 0 else {}
        for variable, at in zip(lead, own, strict=False):
            atoms[sizes.variable(variable)] = at
        # The stand-in's first index says which column of the factor an element is in.
        column = rewrite(s.factors.right, atoms=atoms)
        (place,) = loads_of(column)
        line = own[n + 2]
        word = self._word(c, place.at[0], own[n + 1], line)
        if c.shift is not None:
            second = scalar.compare("eq", scalar.size(line), p.coded_lines + 1)
            word = scalar.select(second, self._head(c, c.shift, place.at[0], own[n + 1]), word)
        first = scalar.compare("eq", scalar.size(line), p.coded_lines)
        word = scalar.select(first, self._head(c, c.scale, place.at[0], own[n + 1]), word)
        inside = scalar.size(within) < scalar.size(extent_of(s.axes.column))
        return make_map(shape, scalar.select(inside, word, 0))

    def _head(self, c: Blockwise, x: Scalar, column: Dim, number: Dim) -> Scalar:
        return scalar.bitcast(rewrite(x, atoms=_places(c, column, number, 0)), dtypes.UINT32)

    def _word(self, c: Blockwise, column: Dim, number: Dim, word: Dim) -> Scalar:
        """The codes of one column that lie in one word."""
        p = self.panel
        depth = sizes.product(map(extent_of, self.schedule.access.reduced))
        found: Scalar | None = None
        for j in range(p.parts):
            for i in range(_WORD):
                inside = word * (_WORD * p.parts) + (_WORD * j + i)
                code = rewrite(c.code, atoms=_places(c, column, number, inside))
                flat = number * c.block + inside
                if depth != c.blocks * c.block:
                    real = scalar.size(flat) < scalar.size(depth)
                    code = scalar.select(real, code, 0)
                code = scalar.cast(code, dtypes.UINT32)
                part = scalar.binary("shl", code, 8 * i + p.bits * j) if i or j else code
                found = part if found is None else found | part
        assert found is not None  # noqa: S101 - a word has codes
        return found


class BlockwiseTiles(TileSums):
    """Tiles of digits, which are multiplied with codes in integers, block by block.

    Args:
        context: Of the kernel.
        panel: How codes lie.
        beside: Buffers of what the left factor became, in the order of a row's pointers.
        blocks: How many there are along the depth.
        epilogue: Finds the rows again.
    """

    def __init__(
        self,
        context: KernelContext,
        panel: Panel,
        beside: Sequence[Buffer],
        blocks: int,
        epilogue: EpilogueWriter,
    ) -> None:
        super().__init__(context, vector_tile_rows(context.schedule))
        self.panel, self.beside, self.blocks, self.epilogue = panel, beside, blocks, epilogue
        # It does not prefetch the next panel: those of a few bits are short.
        self.prefetch = Prefetch(context, panel.line_bytes, self.counts[0])

    def functions(self) -> tuple[Program, ...]:
        """See `TileSums`."""
        return tuple(build_micro_blockwise(self.panel, rows) for rows in self.counts)

    def layout(self) -> Layout:
        """See `TileSums`."""
        most = self.counts[0]
        table_bytes = most * self.panel.pointers * PTR.size_bytes
        return [("table", table_bytes), *self.epilogue.rows_layout(most)]

    def multiply(self, rows: RowBlock, tile: RowTile) -> None:
        """Find digits, starts and scales of the rows of a tile, and sum their products."""
        c, s, b = self.context, self.context.schedule, self.context.b
        table = c.scratch["table"]
        atoms = dict.fromkeys(sizes.variables(s.access.reduced), 0)
        (first,) = loads_of(s.factors.left)
        offset = substitute(offset_of(s.strides[first.tensor], first.at), atoms)
        with b.for_(0, tile.count) as r:
            inner = rows.level.child(self.epilogue.note_row(rows, tile.first, r))
            if s.axes.run is None:
                self.prefetch.ask_ahead(inner, rows.first_column)
            begin = b.lift(inner.dim(offset), I64)
            block = begin // self.panel.block
            line = r * self.panel.pointers
            for k, x in enumerate(self.beside):
                number = begin if k < self.panel.digits else block
                pointer = b.offset(c.places[x].pointer, number, memory_type(x.dtype))
                b.store(pointer, table, line + k)
        operands = [table, b.constant(I64, self.blocks), rows.panel, tile.line]
        names = {count: self.panel.micro_name(count) for count in self.counts}
        call_by_rows(b, tile.count, names, operands)


def _places(c: Blockwise, column: Dim, number: Dim, inside: Dim) -> dict[Atom, Dim]:
    """What stands for the variables of a contraction's codes."""
    return sizes.in_place_of((c.column, c.number, c.inside), (column, number, inside))
