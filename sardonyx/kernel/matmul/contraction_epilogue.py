"""What happens to sums of a product: the epilogue, and the stores.

Where results lie side by side along columns, a row of a tile is finished vector by vector. Where
they do so along rows (images whose channels come first), storing a row's columns would touch as
many cache lines, perhaps all of one set: squares of sums are turned first, and lanes run along
rows. Where columns lie between rows (the pixels that an image gains), vectors of neighbouring
columns are stored between each other.
"""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.expressions.transpose import build_transpose, transpose_name
from sardonyx.kernel.language.alignment import divisible
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I64
from sardonyx.kernel.loops.interleaved_blocks import store_between
from sardonyx.kernel.matmul.contraction_schedule import is_long
from sardonyx.kernel.matmul.kernel_context import KernelContext, Layout
from sardonyx.kernel.matmul.tile import RowBlock, unflattened
from sardonyx.plan.axes import extent_of, offset_of
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.traverse import loads_of

#: Vectors of a row that are finished side by side, so that none waits for its own operations alone:
#: as many of these as divide those of a panel.
_TOGETHER = (4, 2, 1)


class EpilogueWriter:
    """Writes what a contraction's kernel does behind its sums.

    Args:
        context: Of the kernel.
        unrolls: Whether the vectors of a row are finished without a loop over them.
    """

    def __init__(self, context: KernelContext, *, unrolls: bool = False) -> None:
        self.schedule, self.b = context.schedule, context.b
        self.places, self.scratch = context.places, context.scratch
        self._unrolls, self._kept = unrolls, 0

    def functions(self) -> tuple[Program, ...]:
        """What the kernel calls for it."""
        s = self.schedule
        return () if s.axes.run is None else (build_transpose(s.element, s.lanes),)

    def layout(self, rows: Dim) -> Layout:
        """Scratch for the sums of so many rows, and for the same turned."""
        s = self.schedule
        if s.axes.run is not None:
            assert isinstance(rows, int)  # noqa: S101 - where results are turned it is a number
            rows = self._kept = -(-rows // s.lanes) * s.lanes
        size_bytes = rows * (s.width * s.element.size_bytes)
        names = ("tile",) if s.axes.run is None else ("tile", "turned")
        return [(name, size_bytes) for name in names]

    def rows_layout(self, rows: int) -> Layout:
        """Scratch for where so many rows of a tile are."""
        return [("coordinates", rows * max(1, len(self.schedule.axes.rows)) * I64.size_bytes)]

    def note_row(self, rows: RowBlock, first: Operand, r: Operand) -> dict[Atom, Operand]:
        """Where row `r` of the tile from `first` on is; `write_rows` finds it in scratch."""
        axes, b = self.schedule.axes.rows, self.b
        at = unflattened(b, first + r, axes, rows.extents)
        place = r * max(1, len(axes))
        for k, variable in enumerate(axes):
            b.store(at[sizes.variable(variable)], self.scratch["coordinates"], place + k)
        return at

    def line(self, row: Operand | int) -> Operand:
        """Where a row of products lies in scratch."""
        s = self.schedule
        return self.b.offset(self.scratch["tile"], row, s.width * s.element.size_bytes)

    def write_rows(self, level: Expression, count: Operand, first_column: Operand) -> None:
        """The epilogue of a tile, row by row."""
        s, b = self.schedule, self.b
        with b.for_(0, count) as r:
            place = r * max(1, len(s.axes.rows))
            atoms: dict[Atom, Operand] = {
                sizes.variable(v): b.load(I64, self.scratch["coordinates"], place + k)
                for k, v in enumerate(s.axes.rows)
            }
            self.write_row(level.child(atoms), self.line(r), first_column)

    def write_block(self, rows: RowBlock) -> None:
        """The epilogue of all rows of a block, in runs whose results lie side by side."""
        s, b = self.schedule, self.b
        assert s.axes.run is not None  # noqa: S101 - the caller looked
        self.turn(rows.high - rows.low)
        row = b.variable(rows.low, name="row")
        with b.while_(lambda: row.get() < rows.high):
            first = row.get()
            at = unflattened(b, first, s.axes.rows, rows.extents)
            left = rows.extents[s.axes.run] - at[sizes.variable(s.axes.run)]
            count = b.min(left, rows.high - first)
            line = first - rows.low
            self.write_run(rows.level.child(at), s.axes.run, count, line, rows.first_column)
            row.set(first + count)

    def write_row(self, row: Expression, line: Operand, first_column: Operand) -> None:
        """Pointwise work on one row of the tile, and its store."""
        s = self.schedule
        b, lanes = self.b, self._lanes_at_once()
        atom = sizes.variable(s.axes.column)
        row.hoist(
            [s.epilogue.body], frozenset((atom,)), frozenset((s.epilogue.token,)), frozenset()
        )
        extent = row.dim(extent_of(s.axes.column))
        kind = s.element.with_lanes(lanes)
        result = value_type(s.epilogue.token.dtype)

        def finish(start: Operand, j: Operand | int, mask: Operand | None) -> None:
            total = b.convert(b.load(kind, line, j, align_bytes=16), result)
            here = row.child(
                {atom: start}, values={s.epilogue.token: total}, vector=atom, lanes=lanes, mask=mask
            )
            here.store(s.group.root.buffer, s.epilogue.store_at, here.scalar(s.epilogue.body))

        if divisible(extent_of(s.axes.column), s.width) and (self._unrolls or lanes == s.width):
            for column in range(0, s.width, lanes):
                finish(first_column + column, column, None)
            return
        with b.for_(0, s.width, lanes) as j:
            start = first_column + j
            left = extent - start
            with b.if_(left > 0):
                whole = divisible(extent_of(s.axes.column), lanes)
                finish(start, j, None if whole else b.tail_mask(left, lanes))

    def _lanes_at_once(self) -> int:
        """Lanes that a row is finished by: several vectors where panels are full, loads dense."""
        s = self.schedule
        full = divisible(extent_of(s.axes.column), s.width) and is_long(s.epilogue.body)
        if not full or not all(map(self._lies_dense, loads_of(s.epilogue.body))):
            return s.lanes
        return next(n for n in _TOGETHER if s.vectors % n == 0) * s.lanes

    def _lies_dense(self, load: Scalar) -> bool:
        """Whether what an epilogue loads lies side by side along the columns, or is the same."""
        s, column = self.schedule, sizes.variable(self.schedule.axes.column)
        if load is s.epilogue.token:
            return True
        offset = offset_of(s.strides[load.tensor], load.at)
        if column not in sizes.atoms_of(offset):
            return not sizes.opaque_in(offset)
        return sizes.step_along(offset, column) == 1

    def turn(self, count: Operand | int) -> None:
        """Turn the sums of some rows: those of a column lie side by side then."""
        s, b = self.schedule, self.b
        name, size = transpose_name(s.element, s.lanes), s.element.size_bytes
        with b.for_(0, count, s.lanes) as r, b.for_(0, s.width, s.lanes) as c:
            source = b.offset(self.line(r), c, size)
            column = b.offset(self.scratch["turned"], c, self._kept * size)
            target = b.offset(column, r, size)
            b.call(name, [source, b.constant(I64, s.width), target, b.constant(I64, self._kept)])

    def write_run(
        self,
        start: Expression,
        axis: Dim,
        count: Operand,
        first_row: Operand,
        first_column: Operand,
    ) -> None:
        """The epilogue of some rows, with lanes along them: column after column.

        Args:
            start: The emitter at the first of the rows.
            axis: The axis along which they follow each other.
            count: How many rows.
            first_row: Number of the first row among those that were turned.
            first_column: Number of the first sum's column.
        """
        s, b, lanes = self.schedule, self.b, self.schedule.lanes
        atom, column = sizes.variable(axis), sizes.variable(s.axes.column)
        kind, result = s.element.with_lanes(lanes), value_type(s.epilogue.token.dtype)
        first = start.atoms[atom]
        columns = b.min(start.dim(extent_of(s.axes.column)) - first_column, s.width)
        where = self.places[s.group.root.buffer]
        with b.for_(0, columns, s.axes.phases) as c:
            phases: list[tuple[Operand, Expression]] = []
            for k in range(s.axes.phases):
                own = c + k
                here = start.child({column: first_column + own})
                here.hoist(
                    [s.epilogue.body],
                    frozenset((atom,)),
                    frozenset((s.epilogue.token,)),
                    frozenset(),
                )
                line = own * self._kept + first_row
                phases.append((line, here))
            with b.for_(0, count, lanes) as r:
                mask = b.tail_mask(count - r, lanes)
                row = first + r
                results: list[Operand] = []
                for turned, here in phases:
                    at = turned + r
                    loaded = b.load(kind, self.scratch["turned"], at, mask=mask)
                    total = b.convert(loaded, result)
                    inner = here.child(
                        {atom: row},
                        values={s.epilogue.token: total},
                        vector=atom,
                        lanes=lanes,
                        mask=mask,
                    )
                    results.append(b.splat(inner.stored(s.epilogue.body), lanes))
                begin = phases[0][1].child({atom: row}).dim(where.offset(s.epilogue.store_at))
                store_between(b, results, where.pointer, b.lift(begin, I64), mask)
