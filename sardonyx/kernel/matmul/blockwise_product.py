"""A contraction with constant codes of few bits: they stay packed in memory (see `plan.blockwise`).

Rows are digits of 8 bits; a tile of them is multiplied with a panel of codes in integers, block by
block, and finished like any product.
"""

from __future__ import annotations

from sardonyx.base import dtypes, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I64, PTR, memory_type
from sardonyx.kernel.matmul.contraction import ContractionKernel
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule, Packing
from sardonyx.kernel.matmul.micro_blockwise import Panel, build_micro_blockwise
from sardonyx.kernel.matmul.tile import RowBlock, RowTile, call_by_rows
from sardonyx.plan.axes import extent_of, offset_of
from sardonyx.plan.blockwise import Blockwise
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Buffer, Map, buffer, indices, make_map
from sardonyx.tensor.traverse import loads_of

_WORD = 4


class BlockwiseKernel(ContractionKernel):
    """Builds the kernel of one contraction.

    Attributes:
        beside: Buffers of what the left factor became, in the order of a row's pointers.

    Args:
        schedule: How it goes over the contraction's axes.
        blockwise: What it multiplies, over the buffers of the schedule.
        digits: How many digits the left factor has.
        name: Symbol name.
    """

    def __init__(
        self, schedule: ContractionSchedule, blockwise: Blockwise, digits: int, name: str
    ) -> None:
        super().__init__(schedule, name, packed=True)
        self.blockwise = blockwise
        (first,) = loads_of(schedule.left)
        self._at = first.at
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

    def _other_bodies(self) -> tuple[Scalar, ...]:
        return tuple(load(x, (0,) * len(x.shape)) for x in self.beside[1:])

    def _functions(self) -> tuple[Program, ...]:
        micro = (build_micro_blockwise(self.panel, rows) for rows in self.tile_rows)
        return (*micro, *self.epilogue.functions())

    # -- packing ------------------------------------------------------------------------------

    def _packings(self) -> list[Packing]:
        """The buffer that the kernel reads; each contraction has contents of its own."""
        contents = self.contents(self.blockwise)
        return [Packing(buffer("packed", contents.shape, dtypes.UINT32), contents)]

    def contents(self, c: Blockwise) -> Map:
        """Codes, scales and shifts: (columns..., panel, block, line, lane), words of 32 bits."""
        s, p = self.schedule, self.panel
        lead = s.packed_axes()
        shape = (*map(extent_of, lead), s.panels(), c.blocks, p.lines, s.width)
        own = indices(shape)
        n = len(lead)
        within = own[n] * s.width + own[-1]
        atoms = {sizes.variable(s.column): within} if s.column != 0 else {}
        for variable, at in zip(lead, own, strict=False):
            atoms[sizes.variable(variable)] = at
        # The stand-in's first index says which column of the factor an element is in.
        column = rewrite(s.right, atoms=atoms)
        (place,) = loads_of(column)
        line = own[n + 2]
        word = self._word(c, place.at[0], own[n + 1], line)
        if c.shift is not None:
            second = scalar.compare("eq", scalar.size(line), p.coded_lines + 1)
            word = scalar.select(second, self._head(c, c.shift, place.at[0], own[n + 1]), word)
        first = scalar.compare("eq", scalar.size(line), p.coded_lines)
        word = scalar.select(first, self._head(c, c.scale, place.at[0], own[n + 1]), word)
        inside = scalar.size(within) < scalar.size(extent_of(s.column))
        return make_map(shape, scalar.select(inside, word, 0))

    def _head(self, c: Blockwise, x: Scalar, column: Dim, number: Dim) -> Scalar:
        return scalar.bitcast(rewrite(x, atoms=_places(c, column, number, 0)), dtypes.UINT32)

    def _word(self, c: Blockwise, column: Dim, number: Dim, word: Dim) -> Scalar:
        """The codes of one column that lie in one word."""
        p = self.panel
        depth = sizes.product(map(extent_of, self.schedule.reduced))
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

    def _panel_pointer(
        self, level: Expression, panel: Operand, depth: Operand, first_column: Operand
    ) -> Operand:
        b, p = self.b, self.panel
        number = self._panel_number(level, panel)
        step = self.blockwise.blocks * p.lines * p.line_bytes
        return b.offset(self.places[self.packs[0].packed].pointer, number * step)

    def _share_next(
        self, level: Expression, panel: Operand, rows: Operand, chunks: Operand
    ) -> None:
        """Nothing prefetches it: panels of a few bits are short."""

    # -- one tile -----------------------------------------------------------------------------

    def _set_scratch(self, taps: int, size: int) -> None:
        s = self.schedule
        most = self.tile_rows[0]
        kept = most if s.run is None else s.block_rows
        assert isinstance(kept, int)  # noqa: S101 - only general products have none
        layout = self.epilogue.layout(kept)
        layout.append(("table", most * self.panel.pointers * PTR.size_bytes))
        layout.append(("coordinates", most * max(1, len(s.rows)) * I64.size_bytes))
        self._divide_scratch(layout)

    def _tile(self, rows: RowBlock, tile: RowTile) -> None:
        """Find digits, starts and scales of the rows of a tile, and sum their products."""
        s, b = self.schedule, self.b
        table = self.scratch["table"]
        atoms = dict.fromkeys(sizes.variables(s.reduced), 0)
        offset = substitute(offset_of(s.strides[self.beside[0]], self._at), atoms)
        with b.for_(0, tile.count) as r:
            at = self._row_of_tile(tile.first, r, rows.extents)
            inner = rows.level.child(at)
            if s.run is None:
                self.prefetch.ask_ahead(inner, rows.first_column)
            begin = b.lift(inner.dim(offset), I64)
            block = begin // self.panel.block
            line = r * self.panel.pointers
            for k, x in enumerate(self.beside):
                number = begin if k < self.panel.digits else block
                pointer = b.offset(self.places[x].pointer, number, memory_type(x.dtype))
                b.store(pointer, table, line + k)
        operands = [table, b.constant(I64, self.blockwise.blocks), rows.panel, tile.line]
        names = {count: self.panel.micro_name(count) for count in self.tile_rows}
        call_by_rows(b, tile.count, names, operands)


def _places(c: Blockwise, column: Dim, number: Dim, inside: Dim) -> dict[Atom, Dim]:
    """What stands for the variables of a contraction's codes."""
    return sizes.in_place_of((c.column, c.number, c.inside), (column, number, inside))
