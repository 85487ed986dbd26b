"""A `Product` group as a kernel: packed panels, a register tile, the epilogue on the tile in L1.

Index variables have roles: `columns` appear in the right factor only, `rows` in the left only,
`batch` in both. One column axis runs along the panels; the reduced axis that is contiguous in the
left factor is the depth, the other reduced axes are taps. Where the left factor is not contiguous,
or not of the accumulator's type, rows are first copied to scratch.

A block is one panel and up to 96 rows of one batch. Constant right factors are packed once, before
any run (`Packing`); others are packed into scratch by each block.
"""

from __future__ import annotations

from dataclasses import dataclass

from sardonyx.base import sizes
from sardonyx.base.errors import EngineError, message
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.builder import Builder
from sardonyx.kernel.compiled import Kernel, Parameters
from sardonyx.kernel.expression import Expression
from sardonyx.kernel.micro import ROWS, build_micro, micro_name
from sardonyx.kernel.program import Constant, Operand
from sardonyx.kernel.representation import value_type
from sardonyx.kernel.types import I64, memory_type
from sardonyx.plan.axes import Axes, dims_of, extent_of, offset_of
from sardonyx.plan.groups import Product
from sardonyx.plan.inline import cost_of
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar, loads_of, rewrite
from sardonyx.tensor.tensor import Buffer, Map, Tensor, buffer, indices, make_map

_BLOCK_ROWS = 96
_ALIGN = 64


@dataclass(eq=False, slots=True)
class Packing:
    """A right factor to be packed before the kernel can run.

    Attributes:
        packed: The buffer that the kernel reads.
        contents: What it holds: a map over the factor's own buffers.
    """

    packed: Buffer
    contents: Map


def roles(group: Product) -> tuple[list[Dim], list[Dim], list[Dim]] | None:
    """Batch, row and column variables; None where no panel form fits."""
    left, right = (_atoms(b) for b in (group.left, group.right))
    batch: list[Dim] = []
    rows: list[Dim] = []
    columns: list[Dim] = []
    for variable in group.loops:
        atom = sizes.as_atom(variable)
        if atom is None:
            continue
        if atom in right and atom not in left:
            columns.append(variable)
        elif atom in left and atom not in right:
            rows.append(variable)
        else:
            batch.append(variable)
    return (batch, rows, columns) if columns else None


def _atoms(body: Scalar) -> set[Atom]:
    found: set[Atom] = set()
    for dim in dims_of(body):
        found |= sizes.atoms_of(dim, "index")
    return found


class ProductKernel:
    """Builds the kernel of one contraction.

    Args:
        group: What to compute.
        strides: Elements per step along each axis, for every buffer.
        lanes: 32-bit lanes of a vector register.
        vectors: Vectors of columns in a tile.
        name: Symbol name.
        packed: Whether the right factor is constant, so that it is packed beforehand.
    """

    def __init__(
        self,
        group: Product,
        strides: dict[Tensor, tuple[Dim, ...]],
        lanes: int,
        vectors: int,
        name: str,
        packed: bool,
    ) -> None:
        found = roles(group)
        if found is None:
            raise EngineError(message(f"kernel {name}", "The contraction has no columns"))
        self.group, self.name, self.packed = group, name, packed
        self.strides = dict(strides)
        self.element = value_type(group.accumulator)
        self.lanes = lanes * 32 // max(32, self.element.bits)
        self._set_axes(*found)
        self._set_depth()
        self._set_width(vectors)

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
        axes.split()
        axes.merge(self.strides)
        self.batch, self.rows, columns, reduced = axes.spaces
        self.left, self.right, self.epilogue = axes.bodies
        self.store_at = axes.stores[0][1]
        self._choose_column(columns)
        self.reduced = reduced

    def _choose_column(self, columns: list[Dim]) -> None:
        """The panel axis is the one that is contiguous in the output; others become batches."""
        offset = offset_of(self.strides[self.group.root.buffer], self.store_at)
        chosen = columns[-1]
        for variable in columns:
            linear = sizes.coefficient_of(offset, sizes.variable(variable))
            if linear is not None and linear[0] == 1:
                chosen = variable
        self.column = chosen
        self.outer_columns = [c for c in columns if c is not chosen]
        self._flatten_columns()

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
        if short >= self.lanes or whole > 4 * self.lanes:
            return
        flat = rest = sizes.numbered_index(whole, 0, "c")
        atoms: dict[Atom, Dim] = {}
        for axis, extent in reversed(list(zip(axes, extents, strict=True))):
            atoms[sizes.variable(axis)] = sizes.modulo(rest, extent)
            rest = sizes.floordiv(rest, extent)
        self.right, self.epilogue = (rewrite(x, atoms=atoms) for x in (self.right, self.epilogue))
        self.store_at = tuple(sizes.substitute(i, atoms) for i in self.store_at)
        self.column, self.outer_columns = flat, []

    def _set_depth(self) -> None:
        """Which reduced axis the rows walk; `direct` if they can be read in place."""
        body = self.left
        self.window: Scalar | None = None
        if body.op == "select" and body.arguments[2].op == "constant":
            self.window, body = body.arguments[0], body.arguments[1]
        self.direct = body.op == "load" and value_type(body.dtype) == memory_type(body.dtype)
        self.direct = self.direct and value_type(body.dtype) == self.element
        self.depth: Dim = 0
        if self.direct:
            self.left_offset = offset_of(self.strides[body.tensor], body.at)
            self.left_buffer = body.tensor
            for variable in self.reduced:
                linear = sizes.coefficient_of(self.left_offset, sizes.variable(variable))
                windowed = self.window is not None and sizes.variable(variable) in _atoms(
                    self.window
                )
                if linear is not None and linear[0] == 1 and not windowed:
                    self.depth = variable
        taps = [r for r in self.reduced if r is not self.depth]
        extent = extent_of(self.depth)
        few = isinstance(extent, int) and extent < 8 and taps
        many = not all(isinstance(extent_of(t), int) for t in taps)
        if self.depth == 0 and self.reduced or few or many:
            self.direct = False
        if not self.direct:
            self.depth, taps = 0, []
            self.reduced.sort(key=self._is_contiguous)
        self.taps = taps

    def _is_contiguous(self, variable: Dim) -> bool:
        """Whether the left factor's elements lie side by side along a reduced axis."""
        extent = extent_of(variable)
        if isinstance(extent, int) and extent < 4:
            return False
        atom = sizes.variable(variable)
        for x in loads_of(self.left):
            linear = sizes.coefficient_of(offset_of(self.strides[x.tensor], x.at), atom)
            if linear is None or linear[0] != 1:
                return False
        return True

    @property
    def _depth_extent(self) -> Dim:
        """Elements of a row that one tap reads."""
        if self.direct:
            return extent_of(self.depth)
        return sizes.product(map(extent_of, self.reduced))

    def _tap_count(self) -> int:
        count = 1
        for tap in self.taps:
            extent = extent_of(tap)
            assert isinstance(extent, int)  # noqa: S101 - `_set_depth` saw to it
            count *= extent
        return count

    def _set_width(self, vectors: int) -> None:
        extent = extent_of(self.column)
        self.vectors = vectors
        if isinstance(extent, int):
            needed = -(-extent // self.lanes)
            self.vectors = min(vectors, needed)
            if needed > vectors:  # the last panel should not be mostly padding
                self.vectors = min(
                    range(max(1, vectors // 2), vectors + 1),
                    key=lambda v: (-(-needed // v) * v - needed, -v),
                )
        self.width = self.vectors * self.lanes

    def _panels(self) -> Dim:
        return sizes.ceildiv(extent_of(self.column), self.width)

    # -- packing ------------------------------------------------------------------------------

    def _packed_axes(self) -> list[Dim]:
        """Axes of the packed factor before panel and lane."""
        right = _atoms(self.right)
        return [v for v in (*self.batch, *self.outer_columns) if sizes.as_atom(v) in right]

    def _reduced_order(self) -> list[Dim]:
        """Reduced axes in the order in which the panel holds them."""
        return [*self.taps, self.depth] if self.direct and self.depth != 0 else list(self.reduced)

    def packing(self) -> Packing:
        """The packed right factor: (batch..., panel, reduced..., lane)."""
        lead, order = self._packed_axes(), self._reduced_order()
        shape = (
            *map(extent_of, lead), self._panels(), *map(extent_of, order), self.width,
        )  # fmt: skip
        own = indices(shape)
        column = sizes.add(sizes.multiply(own[len(lead)], self.width), own[-1])
        atoms = {sizes.variable(self.column): column}
        for variable, at in zip(lead, own, strict=False):
            atoms[sizes.variable(variable)] = at
        for variable, at in zip(order, own[len(lead) + 1 :], strict=False):
            atoms[sizes.variable(variable)] = at
        value = rewrite(self.right, atoms=atoms)
        extent = extent_of(self.column)
        inside = scalar.compare("lt", scalar.size(column), scalar.size(extent))
        zero = scalar.constant(0, self.group.accumulator)
        contents = make_map(shape, scalar.select(inside, value, zero))
        packed = buffer(("packed", contents), shape, self.group.accumulator)
        return Packing(packed, contents)

    # -- the kernel ---------------------------------------------------------------------------

    def build(self) -> tuple[Kernel, Packing | None]:
        """The kernel, and how its right factor is packed if that happens beforehand."""
        self.pack = self.packing() if self.packed else None
        touched: list[Tensor] = [x.tensor for x in loads_of(self.left)]
        touched += [self.pack.packed] if self.pack else [x.tensor for x in loads_of(self.right)]
        touched += [x.tensor for x in loads_of(self.epilogue) if x is not self.token]
        touched.append(self.group.root.buffer)
        dims: list[Dim] = [*self.batch, *self.rows, self.column, *self.outer_columns, *self.reduced]
        for tensor in touched:
            dims += self.strides.get(tensor, ()) or ()
        for body in (self.left, self.right, self.epilogue):
            dims += list(dims_of(body))
        dims += self.store_at
        parameters = Parameters(touched, dims)
        if self.pack is not None:
            self.strides[self.pack.packed] = (0,) * len(self.pack.packed.shape)
        self.b = b = Builder(self.name, parameters.types(), kind="kernel")
        self.places = parameters.places(b, self.strides)
        self.outside = Expression(b, parameters.atoms(b), self.places.__getitem__)
        self._write()
        functions = tuple(build_micro(self.element, r, self.vectors, self.lanes) for r in ROWS)
        kernel = Kernel(
            b.program, parameters.arguments, self._blocks(), self._cost_ns(), self.scratch_bytes,
            functions,
        )  # fmt: skip
        return kernel, self.pack

    def _row_count(self) -> Dim:
        return sizes.product(map(extent_of, self.rows))

    def _lead(self) -> list[Dim]:
        return [*self.batch, *self.outer_columns]

    def _blocks(self) -> Dim:
        lead = sizes.product(map(extent_of, self._lead()))
        chunks = sizes.ceildiv(self._row_count(), _BLOCK_ROWS)
        return sizes.multiply(sizes.multiply(lead, self._panels()), chunks)

    def _cost_ns(self) -> Dim:
        lead = sizes.product(map(extent_of, self._lead()))
        outputs = sizes.multiply(sizes.multiply(lead, self._row_count()), extent_of(self.column))
        depth = sizes.product(map(extent_of, self.reduced))
        work = sizes.multiply(outputs, sizes.add(depth, cost_of(self.epilogue) + 8))
        return sizes.ceildiv(work, 3 * self.lanes)

    def _write(self) -> None:
        b, dim = self.b, self.outside.dim
        taps = self._tap_count()
        depth = dim(self._depth_extent)
        size = self.element.size_bytes
        extents = {v: dim(extent_of(v)) for v in (*self._lead(), *self.rows, *self.reduced)}
        n_rows, panels = dim(self._row_count()), dim(self._panels())
        chunks = dim(sizes.ceildiv(self._row_count(), _BLOCK_ROWS))
        self._set_scratch(taps, size)
        self._zero_row(depth)
        with b.parallel() as block:
            chunk, rest = b.binary("rem", block, chunks), b.binary("div", block, chunks)
            panel, rest = b.binary("rem", rest, panels), b.binary("div", rest, panels)
            lead = self._unflatten(rest, self._lead(), extents)
            level = self.outside.child(lead)
            first_column = b.binary("mul", panel, self.width)
            at = self._panel_pointer(level, panel, depth, first_column)
            low = b.binary("mul", chunk, _BLOCK_ROWS)
            high = b.min(b.binary("add", low, _BLOCK_ROWS), n_rows)
            row = b.variable(low, name="row")
            with b.while_(lambda: b.compare("lt", row.get(), high)):
                count = self._rows_of_tile(b.binary("sub", high, row.get()))
                self._tile(level, row.get(), count, taps, depth, at, first_column, extents)
                row.set(b.binary("add", row.get(), count))

    def _rows_of_tile(self, rest: Operand) -> Operand:
        """The largest row count that has a micro-kernel and is not over `rest`."""
        b = self.b
        count: Operand = Constant(I64, 1)
        for rows in reversed(ROWS[:-1]):
            enough = b.compare("ge", rest, rows)
            count = b.select(enough, b.value(I64, rows), count)
        return count

    def _set_scratch(self, taps: int, size: int) -> None:
        """Scratch holds: tile, pointer table, zero row, copied rows, panel, each aligned."""
        b = self.b
        most = ROWS[0]
        depth = self._depth_extent
        layout: list[tuple[str, Dim]] = [("tile", most * self.width * size)]
        layout.append(("table", taps * most * 8))
        layout.append(("coordinates", most * max(1, len(self.rows)) * 8))
        if self.window is not None and self.direct:
            layout.append(("zero", sizes.multiply(depth, size)))
        if not self.direct:
            layout.append(("copy", sizes.multiply(depth, most * size)))
        if not self.packed:
            whole = sizes.product(map(extent_of, self.reduced))
            layout.append(("panel", sizes.multiply(whole, self.width * size)))
        scratch = b.context("scratch")
        offset: Dim = 0
        self.scratch: dict[str, Operand] = {}
        for name, wanted in layout:
            self.scratch[name] = b.offset(scratch, self.outside.dim(offset))
            rounded = sizes.multiply(sizes.ceildiv(wanted, _ALIGN), _ALIGN)
            offset = sizes.add(offset, rounded)
        self.scratch_bytes = offset

    def _zero_row(self, depth: Operand) -> None:
        if "zero" in self.scratch:
            with self.b.for_(0, depth) as k:
                self.b.store(Constant(self.element, 0), self.scratch["zero"], k)

    def _unflatten(
        self, flat: Operand, axes: list[Dim], extents: dict[Dim, Operand]
    ) -> dict[Atom, Operand]:
        b, rest = self.b, flat
        found: dict[Atom, Operand] = {}
        for k, axis in enumerate(reversed(axes)):
            last = k == len(axes) - 1
            found[sizes.variable(axis)] = rest if last else b.binary("rem", rest, extents[axis])
            if not last:
                rest = b.binary("div", rest, extents[axis])
        return found

    def _panel_pointer(
        self, level: Expression, panel: Operand, depth: Operand, first_column: Operand
    ) -> Operand:
        """Where the packed panel lies; packs it now if nobody did before."""
        b, size = self.b, self.element.size_bytes
        whole = sizes.product(map(extent_of, self.reduced))
        if self.pack is not None:
            flat: Dim = 0
            for variable in self._packed_axes():
                flat = sizes.add(sizes.multiply(flat, extent_of(variable)), variable)
            flat = sizes.multiply(flat, self._panels())
            number = b.binary("add", panel, b.lift(level.dim(flat), I64))
            step = b.lift(level.dim(sizes.multiply(whole, self.width * size)), I64)
            return b.offset(self.places[self.pack.packed].pointer, b.binary("mul", number, step))
        return self._pack_now(level, first_column)

    def _pack_now(self, level: Expression, first_column: Operand) -> Operand:
        """Copy the panel of this block to scratch, zero beyond the last column."""
        b = self.b
        panel = self.scratch["panel"]
        atom = sizes.variable(self.column)
        extent = level.dim(extent_of(self.column))
        order = self._reduced_order()
        k = b.variable(0, I64, name="k")

        def nest(inner: Expression, rest: list[Dim]) -> None:
            if rest:
                with b.for_(0, inner.dim(extent_of(rest[0]))) as i:
                    child = inner.child({sizes.variable(rest[0]): i})
                    nest(child, rest[1:])
                return
            line = b.offset(panel, k.get(), self.width * self.element.size_bytes)
            for v in range(self.vectors):
                start = b.binary("add", first_column, v * self.lanes)
                mask = b.tail_mask(b.binary("sub", extent, start), self.lanes)
                here = inner.child({atom: start}, vector=atom, lanes=self.lanes, mask=mask)
                value = b.lift(here.scalar(self.right), self.element.with_lanes(self.lanes))
                value = b.select(mask, value, 0)
                b.store(value, line, v * self.lanes, align_bytes=16)
            k.set(b.binary("add", k.get(), 1))

        nest(level, order)
        return panel

    # -- one tile -----------------------------------------------------------------------------

    def _tile(
        self,
        level: Expression,
        first: Operand,
        count: Operand,
        taps: int,
        depth: Operand,
        panel: Operand,
        first_column: Operand,
        extents: dict[Dim, Operand],
    ) -> None:
        b = self.b
        table, coordinates = self.scratch["table"], self.scratch["coordinates"]
        with b.for_(0, count) as r:
            at = self._unflatten(b.binary("add", first, r), self.rows, extents)
            place = b.binary("mul", r, max(1, len(self.rows)))
            for k, variable in enumerate(self.rows):
                b.store(at[sizes.variable(variable)], coordinates, b.binary("add", place, k))
            inner = level.child(at)
            if self.direct:
                self._row_pointers(inner, table, r, count)
            else:
                self._copy_row(inner, table, r, depth)
        tile = self.scratch["tile"]
        for rows in ROWS:
            with b.if_(b.eq(count, rows)):
                name = micro_name(self.element, rows, self.vectors, self.lanes)
                b.call(name, [table, Constant(I64, taps), depth, panel, tile])
        with b.for_(0, count) as r:
            place = b.binary("mul", r, max(1, len(self.rows)))
            atoms: dict[Atom, Operand] = {
                sizes.variable(v): b.load(I64, coordinates, b.binary("add", place, k))
                for k, v in enumerate(self.rows)
            }
            line = b.offset(tile, r, self.width * self.element.size_bytes)
            self._epilogue(level.child(atoms), line, first_column)

    def _row_pointers(self, row: Expression, table: Operand, r: Operand, count: Operand) -> None:
        b = self.b
        zero = {sizes.variable(self.depth): 0} if self.depth != 0 else {}
        base = self.places[self.left_buffer].pointer
        for number, taps in enumerate(_tap_values(self.taps)):
            atoms = {sizes.variable(t): v for t, v in zip(self.taps, taps, strict=True)}
            offset = sizes.substitute(self.left_offset, {**zero, **atoms})
            pointer: Operand = b.offset(base, row.dim(offset), self.element)
            if self.window is not None:
                inside = row.scalar(rewrite(self.window, atoms=atoms))
                if not isinstance(inside, Constant):
                    pointer = b.select(inside, pointer, self.scratch["zero"])
                elif not inside.value:
                    pointer = self.scratch["zero"]
            b.store(pointer, table, b.binary("add", b.binary("mul", count, number), r))

    def _copy_row(self, row: Expression, table: Operand, r: Operand, depth: Operand) -> None:
        """Copy one row of the left factor, all reduced axes in order, to scratch."""
        b = self.b
        skip = b.binary("mul", r, depth)
        start = b.offset(self.scratch["copy"], skip, self.element)
        k = b.variable(0, I64, name="k")

        def nest(inner: Expression, rest: list[Dim]) -> None:
            if not rest:
                b.store(b.lift(inner.scalar(self.left), self.element), start, k.get())
                k.set(b.binary("add", k.get(), 1))
                return
            inner.hoist([self.left], frozenset(map(sizes.variable, rest)))
            extent = inner.dim(extent_of(rest[0]))
            if len(rest) == 1:
                line = b.offset(start, k.get(), self.element)
                self._copy_vectors(inner, rest[0], extent, line)
                k.set(b.binary("add", k.get(), extent))
                return
            with b.for_(0, extent) as i:
                nest(inner.child({sizes.variable(rest[0]): i}), rest[1:])

        nest(row, list(self.reduced))
        b.store(start, table, r)

    def _copy_vectors(self, row: Expression, variable: Dim, extent: Operand, line: Operand) -> None:
        """Copy along the last reduced axis, vector by vector."""
        b, atom, lanes = self.b, sizes.variable(variable), self.lanes
        known = extent_of(variable)
        while isinstance(known, int) and lanes // 2 >= known and lanes > 1:
            lanes //= 2
        kind = self.element.with_lanes(lanes)
        with b.for_(0, extent, lanes) as i:
            mask = None
            if not (isinstance(known, int) and known % lanes == 0) and lanes > 1:
                mask = b.tail_mask(b.binary("sub", extent, i), lanes)
            here = row.child({atom: i}, vector=atom, lanes=lanes, mask=mask)
            b.store(b.lift(here.scalar(self.left), kind), line, i, mask=mask)

    def _epilogue(self, row: Expression, line: Operand, first_column: Operand) -> None:
        """Pointwise work on one row of the tile, and its store."""
        b, lanes = self.b, self.lanes
        atom = sizes.variable(self.column)
        row.hoist([self.epilogue], frozenset((atom,)), frozenset((self.token,)))
        extent = row.dim(extent_of(self.column))
        kind = self.element.with_lanes(lanes)
        result = value_type(self.token.dtype)
        with b.for_(0, self.width, lanes) as j:
            start = b.binary("add", first_column, j)
            left = b.binary("sub", extent, start)
            with b.if_(b.compare("gt", left, 0)):
                mask = None
                if not (isinstance(extent, Constant) and int(extent.value) % lanes == 0):
                    mask = b.tail_mask(left, lanes)
                total = b.convert(b.load(kind, line, j, align_bytes=16), result)
                here = row.child(
                    {atom: start}, values={self.token: total}, vector=atom, lanes=lanes, mask=mask
                )
                here.store(self.group.root.buffer, self.store_at, here.scalar(self.epilogue))


def _tap_values(taps: list[Dim]) -> list[tuple[int, ...]]:
    values: list[tuple[int, ...]] = [()]
    for tap in taps:
        extent = extent_of(tap)
        assert isinstance(extent, int)  # noqa: S101 - `_set_depth` saw to it
        values = [(*v, i) for v in values for i in range(extent)]
    return values
