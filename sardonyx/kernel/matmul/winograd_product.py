"""Convolutions of 3 by 3 taps, step 1, as products of transformed tiles (see `winograd`).

A block transforms the inputs of a few tiles into scratch, multiplies them with the transformed
filters of a panel, one product for each of the (m + 2)^2 places, and transforms what comes out
into m by m outputs per tile, which the epilogue finishes. Blocks that follow each other mostly have
the same tiles and the next panel: a thread transforms inputs once for all of those it gets. The
filters are transformed when they are packed. Where taps are d elements apart, so are the inputs and
outputs of a tile, and d tiles along an axis interlock: a convolution with its taps side by side on
each d-th element.

A tile whose inputs are too different in size, or not finite, is summed directly: the micro-kernel
of products goes over its taps where they lie, with filters that are packed besides as they are.

Loop nest of a block, m by m outputs a tile, `f.places` being (m + 2)^2::

    parallel block in 0..rest * panels * chunks:          # a chunk has up to f.tiles tiles
        inputs[f.places, :, depth] = B^T d B              # `winograd_inputs`, unless kept
        for place in 0..f.places:
            for row in 0..count step rows:
                products[place, row:, width] = micro(inputs[place, row:], filters[place])
        for tile in 0..count step together:
            lines[m, m * together, width] = A^T products A    # `winograd.build_output`
            for i in 0..m, j in 0..m * together:
                C[y + i, x + j, first_column:] = epilogue(lines[i, j])
"""

from __future__ import annotations

from fractions import Fraction

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I64, PTR
from sardonyx.kernel.matmul.contraction_epilogue import EpilogueWriter
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.contraction_sums import FloatMicro
from sardonyx.kernel.matmul.factors import Packing
from sardonyx.kernel.matmul.kernel_context import begin_kernel
from sardonyx.kernel.matmul.micro import PART, build_micro, micro_name, tile_rows
from sardonyx.kernel.matmul.panels import RightPanels
from sardonyx.kernel.matmul.prefetch import Prefetch
from sardonyx.kernel.matmul.tile import RowProducts, rows_of_next_tile, unflattened
from sardonyx.kernel.matmul.winograd import TAPS, build_output, matrices, output_name
from sardonyx.kernel.matmul.winograd_choice import MOST_KEPT_BYTES, WinogradTiles
from sardonyx.kernel.matmul.winograd_inputs import TileInputs
from sardonyx.plan.axes import extent_of
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import buffer, indices, make_map, make_reduce, reduced_indices


class WinogradKernel:
    """Builds the kernel of one convolution.

    Args:
        schedule: How it goes over the contraction's axes.
        form: How the contraction is such a convolution.
        name: Symbol name.
    """

    def __init__(self, schedule: ContractionSchedule, form: WinogradTiles, name: str) -> None:
        self.schedule, self.form, self.name = schedule, form, name

    def build(self) -> tuple[Kernel, list[Packing]]:
        """The kernel, and how its filters are packed."""
        s = self.schedule
        s.balance()
        self.tile_rows = tile_rows(self._tiles(), self.form.tiles) or (1,)
        self.packs = self._packings()
        c = begin_kernel(s, self.name, self.packs)
        self.b, self.outside, self.places, self.scratch = c.b, c.outside, c.places, c.scratch
        self.left = TileInputs(c, self.form, self.packs[2].packed)
        self.epilogue, self.panels = EpilogueWriter(c), RightPanels(c)
        self.prefetch = Prefetch(c, s.width * s.element.size_bytes, self.tile_rows[0])
        self.micro = FloatMicro(c, self.prefetch, self.tile_rows)
        self._write()
        per_block = ("tiles", self.form.tiles), ("columns", s.width)
        kernel = Kernel(
            c.b.program, c.arguments, self._blocks(), self.cost_ns(), c.scratch.bytes,
            self._functions(), per_block=per_block,
        )  # fmt: skip
        return kernel, self.packs

    def _functions(self) -> tuple[Program, ...]:
        s, outputs = self.schedule, self.form.outputs
        found = (*self.micro.functions(), *self.epilogue.functions())
        if outputs not in self.tile_rows:  # rows of tiles that are summed directly
            at_once = s.at_once(outputs)
            found += (build_micro(s.element, outputs, s.vectors, s.lanes, at_once=at_once),)
        return (
            *found,
            *self.left.functions(),
            build_output(s.element, outputs, s.vectors, s.lanes),
        )

    def _tiles(self) -> Dim:
        return sizes.product(self.form.tile_axes())

    def _blocks(self) -> Dim:
        s, f = self.schedule, self.form
        lead = sizes.product(map(extent_of, s.axes.lead()))
        chunks = integer.ceildiv(self._tiles(), f.tiles)
        return lead * chunks * s.panels()

    def cost_ns(self) -> Dim:
        """Estimated time of all blocks on one thread."""
        s, f = self.schedule, self.form
        lead = sizes.product(map(extent_of, s.axes.lead()))
        each = (
            f.places * int(s.access.depth_extent) * int(extent_of(s.axes.column)) // (3 * s.lanes)
        )
        return lead * self._tiles() * max(1, each)

    def _packings(self) -> list[Packing]:
        """The transformed filters, (batch..., panel, place..., depth, lane); those as they are; the
        largest magnitudes of all filters, (batch..., tap..., depth).
        """
        s, f = self.schedule, self.form
        lead = s.packed_axes()
        shape = (
            *map(extent_of, lead), s.panels(), f.side, f.side, s.access.depth_extent, s.width,
        )  # fmt: skip
        own = indices(shape)
        n = len(lead)
        column = own[n] * s.width + own[-1]
        atoms = {sizes.variable(s.axes.column): column, sizes.variable(s.access.depth): own[-2]}
        for variable, at in zip(lead, own, strict=False):
            atoms[sizes.variable(variable)] = at
        total = None
        for i in range(TAPS):
            for j in range(TAPS):
                taps = {sizes.variable(t): v for t, v in zip(f.taps, (i, j), strict=True)}
                tap = scalar.cast(rewrite(s.factors.right, atoms=atoms | taps), dtypes.DOUBLE)
                factor = _factor(f.outputs, own[n + 1], i) * _factor(f.outputs, own[n + 2], j)
                term = factor * tap
                total = term if total is None else total + term
        assert total is not None  # noqa: S101 - there are taps
        value = scalar.cast(total, s.group.accumulator)
        inside = scalar.size(column) < scalar.size(extent_of(s.axes.column))
        zero = scalar.constant(0, s.group.accumulator)
        contents = make_map(shape, scalar.select(inside, value, zero))
        packed = buffer(("packed", contents), shape, s.group.accumulator)
        return [Packing(packed, contents), *s.packings(), self._largest_weights()]

    def _largest_weights(self) -> Packing:
        s, f = self.schedule, self.form
        own, columns = [*s.packed_axes(), *f.taps, s.access.depth], (extent_of(s.axes.column),)
        shape = tuple(map(extent_of, own))
        atoms = dict(zip(map(sizes.variable, own), indices(shape), strict=True))
        atoms[sizes.variable(s.axes.column)] = reduced_indices(columns)[0]
        value = scalar.unary(
            "abs", scalar.cast(rewrite(s.factors.right, atoms=atoms), s.group.accumulator)
        )
        contents = make_reduce(shape, columns, "max", value, s.group.accumulator)
        return Packing(buffer(("largest", contents), shape, s.group.accumulator), contents)

    # -- the kernel ---------------------------------------------------------------------------

    def _write(self) -> None:
        s, f, b = self.schedule, self.form, self.b
        dim = self.outside.dim
        depth, panels = dim(s.access.depth_extent), dim(s.panels())
        self._lay_out()
        self.left.zero(depth)
        axes = {v: dim(extent_of(v)) for v in s.axes.lead()}
        tiles = dim(self._tiles())
        chunks = dim(integer.ceildiv(self._tiles(), f.tiles))
        with b.parallel() as block:
            if self._keeps_filters():
                number, chunk = b.parted(block, chunks)
                rest, panel = b.parted(number, panels)
                number = rest * chunks + chunk
            else:
                number, panel = b.parted(block, panels)
                rest, chunk = b.parted(number, chunks)
            level = self.outside.child(unflattened(b, rest, s.axes.lead(), axes))
            first = chunk * f.tiles
            count = b.min(tiles - first, f.tiles)
            with self.panels.unless_kept(number):
                self.left.find_scales(level.child(), depth)
                with b.for_(0, count) as t:
                    self.left.transform(level.child(), first, t, depth)
            first_column = panel * s.width
            self._multiply(level, panel, count, depth)
            tile = b.variable(0, I64, name="tile")
            with b.while_(lambda: tile.get() < count):
                place = (panel, tile.get(), first_column)
                done = self._transform_outputs(level.child(), place, count, depth)
                tile.set(tile.get() + done)

    def _keeps_filters(self) -> bool:
        """Whether blocks that follow each other share a panel, which stays in the cache of a core.

        Where there are more panels than chunks of tiles, threads share out the filters: most of
        what such a kernel reads.
        """
        s, f = self.schedule, self.form
        size_bytes = f.places * int(s.access.depth_extent) * s.width * s.element.size_bytes
        chunks, panels = integer.ceildiv(self._tiles(), f.tiles), s.panels()
        few = isinstance(chunks, int) and isinstance(panels, int) and chunks < panels
        return few and size_bytes <= MOST_KEPT_BYTES

    def _lay_out(self) -> None:
        """Scratch holds: which tiles it has, their inputs, transformed, and what else is known of
        them; products, the outputs of tiles that are finished together, pointers.
        """
        s, f = self.schedule, self.form
        size = s.element.size_bytes
        depth = int(s.access.depth_extent)
        layout: dict[str, Dim] = {
            "kept": I64.size_bytes,
            "inputs": f.places * f.tiles * depth * size,
            "products": f.places * f.tiles * s.width * size,
            **dict(self.epilogue.layout(f.outputs**2 * self._most_together())),
            **self.left.layout(),
            "window": TAPS**2 * f.outputs * PTR.size_bytes,
            "table": self.tile_rows[0] * PTR.size_bytes,
            "zero": depth * size,
        }
        self.scratch.divide(self.outside, list(layout.items()))

    def _multiply(self, level: Expression, panel: Operand, count: Operand, depth: Operand) -> None:
        """All products of the tiles with one panel."""
        s, f, b = self.schedule, self.form, self.b
        filters = self._filters(level, panel)
        line_bytes = s.width * s.element.size_bytes
        with b.for_(0, f.places) as place:
            weights = b.offset(filters, place * depth, line_bytes)
            start = place * f.tiles
            self.prefetch.share_out(b.offset(weights, depth, line_bytes), count)
            row = b.variable(0, I64, name="row")
            with b.while_(lambda: row.get() < count):
                rows = rows_of_next_tile(b, count - row.get(), self.tile_rows)
                first = start + row.get()
                with b.for_(0, rows) as r:
                    skip = (first + r) * depth
                    b.store(
                        b.offset(self.scratch["inputs"], skip, s.element), self.scratch["table"], r
                    )
                target = b.offset(self.scratch["products"], first, line_bytes)
                table = self.scratch["table"]
                self.micro.call(RowProducts(table, rows, 1, depth, weights, target))
                row.set(row.get() + rows)

    def _filters(self, level: Expression, panel: Operand) -> Operand:
        """Where the transformed filters of a panel lie."""
        s, f, b = self.schedule, self.form, self.b
        each = s.access.depth_extent * (f.places * s.width * s.element.size_bytes)
        step = b.lift(level.dim(each), I64)
        number = self.panels.number(level, panel)
        return b.offset(self.places[self.packs[0].packed].pointer, number * step)

    def _ends_in_planes(self) -> bool:
        """Whether the results of a tile's row lie side by side, as in planes, or phases between."""
        return self.schedule.axes.run is self.form.image[1] and self.form.apart[1] == 1

    def _most_together(self) -> int:
        """How many tiles side by side are finished together, at most: those of one vector."""
        if not self._ends_in_planes():
            return 1
        return max(1, self.schedule.lanes // self.form.outputs)

    def _transform_outputs(
        self,
        level: Expression,
        place: tuple[Operand, Operand, Operand],
        count: Operand,
        depth: Operand,
    ) -> Operand:
        """From a tile on: transform its products, and finish the outputs that are in the image.

        `place`: panel, number of the tile, and first column of the panel. Gives how many tiles that
        did, of as many as are left of `count`.
        """
        s, f, b = self.schedule, self.form, self.b
        panel, t, first_column = place
        start = t * len(s.axes.rows)
        at: dict[Atom, Operand] = {
            sizes.variable(v): b.load(I64, self.scratch["coordinates"], start + k)
            for k, v in enumerate(s.axes.rows)
        }
        y, x = (sizes.variable(v) for v in f.image)
        ends = [b.lift(level.dim(extent_of(v)), I64) for v in f.image]
        below, beside = (
            self.left.outputs_in(end - at[v], apart)
            for end, v, apart in zip(ends, (y, x), f.apart, strict=True)
        )
        together: Operand = b.constant(I64, 1)
        if self._ends_in_planes():
            in_row = (beside + (f.outputs - 1)) // f.outputs
            together = b.min(b.min(in_row, count - t), self._most_together())
        pitch = together * f.outputs
        direct = self._panel_pointer_of(level, panel, depth)
        self._transform_products(t, together, pitch, (direct, depth))
        level = level.child(at)
        rows, columns = b.min(below, f.outputs), b.min(beside, pitch)
        if self._ends_in_planes():
            self.epilogue.turn(pitch * f.outputs)
        with b.for_(0, rows) as i:
            row = {**at, y: at[y] + i * f.apart[0]}
            first = i * pitch
            if self._ends_in_planes():
                assert s.axes.run is not None  # noqa: S101 - narrows the type for the checker
                self.epilogue.write_run(level.child(row), s.axes.run, columns, first, first_column)
            else:
                with b.for_(0, columns) as j:
                    here = {**row, x: at[x] + j * f.apart[1]}
                    line = self.epilogue.line(first + j)
                    self.epilogue.write_row(level.child(here), line, first_column)
        return together

    def _panel_pointer_of(self, level: Expression, panel: Operand, depth: Operand) -> Operand:
        """Where a panel of the filters as they are lies."""
        s, b = self.schedule, self.b
        step = depth * (TAPS**2 * s.width * s.element.size_bytes)
        start = self.panels.number(level, panel) * step
        return b.offset(self.places[self.packs[1].packed].pointer, start)

    def _transform_products(
        self, t: Operand, together: Operand, pitch: Operand, direct: tuple[Operand, Operand]
    ) -> None:
        """The outputs of some tiles from `t` on, of which each row follows that of the one before.

        Args:
            t: The first tile.
            together: How many.
            pitch: Outputs of a row of all of them.
            direct: A panel of the filters as they are, and its depth.
        """
        s, f, b = self.schedule, self.form, self.b
        line_bytes = s.width * s.element.size_bytes
        step = b.constant(I64, f.tiles * s.width)
        name = output_name(f.outputs, s.vectors, s.lanes)
        with b.for_(0, together) as k:
            tile, first = t + k, k * f.outputs
            with b.if_(b.ne(b.load(I64, self.scratch["even"], tile), 0)):
                products = b.offset(self.scratch["products"], tile, line_bytes)
                b.call(name, [products, step, self.epilogue.line(first), pitch])
            with b.else_():
                self._sum_directly(self.left.sources(tile), direct, first, pitch)

    def _sum_directly(
        self, sources: Operand, direct: tuple[Operand, Operand], first: Operand, pitch: Operand
    ) -> None:
        """The outputs of one tile, row by row, as products of its inputs where they lie."""
        s, f, b = self.schedule, self.form, self.b
        panel, depth = direct
        name = micro_name(s.element, f.outputs, s.vectors, s.lanes, at_once=s.at_once(f.outputs))
        window = self.scratch["window"]
        with b.for_(0, f.outputs) as row:
            with b.for_(0, TAPS) as i, b.for_(0, TAPS) as j, b.for_(0, f.outputs) as r:
                line = (row + i) * f.side
                source = b.load(PTR, sources, line + (j + r))
                tap = i * TAPS + j
                b.store(source, window, tap * f.outputs + r)
            target = self.epilogue.line(first + row * pitch)
            taps, nothing = b.lift(TAPS**2, I64), b.lift(0, I64)
            run = b.constant(I64, PART)
            b.call(name, [window, taps, depth, panel, target, run, panel, nothing])


def _factor(outputs: int, row: Dim, tap: int) -> Scalar:
    """An element of G, in a row that only the kernel knows."""
    column = [line[tap] for line in matrices(outputs)[1]]
    found = _number(column[-1])
    for k in reversed(range(len(column) - 1)):
        is_it = scalar.compare("eq", scalar.size(row), scalar.size(k))
        found = scalar.select(is_it, _number(column[k]), found)
    return found


def _number(x: Fraction) -> Scalar:
    return scalar.constant(float(x), dtypes.DOUBLE)
