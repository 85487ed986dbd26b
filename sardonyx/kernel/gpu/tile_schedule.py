"""How a contraction becomes tiles of thread blocks: axes, factors, units that multiply.

Rows are the axes that only the left factor has, columns those that only the right one has; the
factors change places where the result lies along the rows. Both are walked as one flat axis each.
The summed axes are `taps` and one `depth`, which runs along what lies side by side; where that is
short all of them become one flat depth.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.representation import HALVES, value_type
from sardonyx.kernel.gpu.tile_factor import WORD, Factor, FactorAxes, SharedTile
from sardonyx.kernel.gpu.tile_shape import (
    STEP_BYTES,
    Extents,
    TileShape,
    choose,
    cycles,
    shapes_of,
)
from sardonyx.kernel.language.types import F32, Type, memory_type
from sardonyx.kernel.loops.block_sizes import Tiling
from sardonyx.kernel.matmul.factors import Packing
from sardonyx.plan.axes import Axes, dims_of, extent_of, offset_of
from sardonyx.plan.groups import Contraction
from sardonyx.plan.layout import row_major
from sardonyx.plan.roles import roles
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor, buffer, indices, make_map
from sardonyx.tensor.traverse import loads_of

#: Types whose sums a thread can keep, where no matrix unit takes them.
_SUMMED = ("f32", "f64", "i32", "i64", "u32", "u64")


@dataclass(frozen=True, slots=True)
class Unit:
    """What multiplies.

    Attributes:
        kind: `f16`, `bf16` or `tf32` for matrix units, else `fma`.
        element: How factors lie in shared memory.
        sum: The type of the sums.
    """

    kind: str
    element: Type
    sum: Type

    @property
    def is_matrix(self) -> bool:
        """Whether it is a matrix unit."""
        return self.kind != "fma"


def unit_of(group: Contraction, tiling: Tiling) -> Unit | None:
    """What multiplies the factors of a contraction; None if nothing here does."""
    total, has_matrices = value_type(group.accumulator), tiling.thread_blocks.has_matrices
    if group.accumulator is dtypes.FLOAT:
        left, right = group.left.dtype, group.right.dtype
        if left is right and left in HALVES:
            kind = memory_type(left)
            if has_matrices(kind.scalar):
                return Unit(kind.scalar, kind, F32)
        if tiling.tf32 and has_matrices("tf32"):
            return Unit("tf32", F32, F32)
    if total.scalar not in _SUMMED or group.accumulator.is_narrow_float:
        return None
    return None if group.accumulator.is_complex else Unit("fma", total, total)


def takes(group: Contraction, tiling: Tiling) -> bool:
    """Whether a contraction can be computed in tiles."""
    unit = unit_of(group, tiling)
    if unit is None or roles(group) is None:
        return False
    return bool(shapes_of(unit.kind, unit.sum.size_bytes, tiling))


class TileSchedule:
    """How the kernel of one contraction goes over its axes. See the module's text.

    Attributes:
        unit: What multiplies.
        lead: Axes that both factors have, which tiles are made for separately.
        rows, columns: Axes of the left and of the right factor.
        taps, depth: Summed axes.
        left, right: The factors.
        epilogue: What is stored; `token` stands for the sum.
        store_at: Where.
        shape: Sizes of a tile.
        choices: What shapes runs of all sizes should use.

    Args:
        group: What to compute.
        strides: Elements per step along each axis, for every buffer.
        tiling: What is known of the device.
        shape: Sizes of a tile; the first choice if it is None.
    """

    def __init__(
        self,
        group: Contraction,
        strides: dict[Tensor, tuple[Dim, ...]],
        tiling: Tiling,
        shape: TileShape | None = None,
    ) -> None:
        unit = unit_of(group, tiling)
        found = roles(group)
        assert unit is not None and found is not None  # noqa: S101, PT018 - `takes` saw to it
        self.group, self.unit, self.strides, self.tiling = group, unit, dict(strides), tiling
        left, right, reduced = self._set_axes(*found)
        self.depth_tile = STEP_BYTES // unit.element.size_bytes
        left, right = self._set_depth(left, right, reduced)
        extents = Extents(self.row_count(), self.column_count(), self.lead_count(), self.steps())
        shapes = shapes_of(unit.kind, unit.sum.size_bytes, tiling)
        self.choices = choose(unit.kind, shapes, extents, tiling)
        self.shape = shape or self.choices[0].shape
        self.left = self._factor(left, self.rows, self.shape.rows)
        self.right = self._factor(right, self.columns, self.shape.columns)

    # -- axes ---------------------------------------------------------------------------------

    def _set_axes(
        self, batch: list[Dim], rows: list[Dim], columns: list[Dim]
    ) -> tuple[Scalar, Scalar, list[Dim]]:
        g = self.group
        left, right = g.left, g.right
        if self.unit.kind in ("tf32", "fma"):
            left, right = (scalar.cast(x, g.accumulator) for x in (left, right))
        # The sum has no place in memory: a load of rank 0 stands for it.
        self.token = scalar.make_load(buffer("sum", (), g.result.dtype), ())
        self.strides[self.token.tensor] = ()
        epilogue = rewrite(g.epilogue, lambda x: self.token if x is g.result else None)
        axes = Axes(
            (batch, rows, columns, g.reduced), [left, right, epilogue], [(g.root.buffer, g.at)]
        )
        axes.split()
        axes.merge(self.strides)
        self.lead, rows, columns, reduced = axes.spaces
        left, right, self.epilogue = axes.bodies
        self.store_at = axes.stores[0][1]
        self.offset = offset_of(self.strides[g.root.buffer], self.store_at)
        if self._side_by_side(rows) and not self._side_by_side(columns):
            rows, columns, left, right = columns, rows, right, left
        self.rows, self.columns = self._ordered(rows), self._ordered(columns)
        return left, right, reduced

    def _unit_step(self, axis: Dim) -> bool:
        return sizes.step_along(self.offset, sizes.variable(axis)) == 1

    def _side_by_side(self, axes: list[Dim]) -> bool:
        return any(self._unit_step(a) for a in axes)

    def _ordered(self, axes: list[Dim]) -> list[Dim]:
        """The axis along which results lie side by side comes last."""
        return sorted(axes, key=self._unit_step)

    def _set_depth(self, left: Scalar, right: Scalar, reduced: list[Dim]) -> tuple[Scalar, Scalar]:
        found = [self._contiguous(body, reduced) for body in (left, right)]
        depth = next((d for d in (*found, *reduced[-1:]) if d is not None), None)
        self.taps = [r for r in reduced if r is not depth]
        self.depth: Dim = 0 if depth is None else depth
        extent = extent_of(self.depth)
        if self.taps and isinstance(extent, int):
            padded = -(-extent // self.depth_tile) * self.depth_tile
            if 3 * padded > 4 * extent:
                order = [*self.taps, self.depth]
                self.depth, (left, right) = flattened(order, (left, right), "k")
                self.taps = []
        return left, right

    def _contiguous(self, body: Scalar, reduced: list[Dim]) -> Dim | None:
        for variable in reduced:
            for x in loads_of(body):
                offset = offset_of(self.strides[x.tensor], x.at)
                if sizes.step_along(offset, sizes.variable(variable)) == 1:
                    return variable
        return None

    def _factor(
        self, body: Scalar, lines: list[Dim], tile_lines: int, limit: Dim | None = None
    ) -> Factor:
        words, aligned = self.unit.kind == "tf32", self.tiling.aligned
        axes = FactorAxes(lines, self.taps, self.depth, limit)
        threads = self.tiling.thread_blocks.threads
        tile = SharedTile(self.unit.element, tile_lines, self.depth_tile, threads, words, aligned)
        return Factor(body, axes, self.strides, tile)

    # -- packing ------------------------------------------------------------------------------

    def pack(self, fixed: Callable[[Tensor], bool]) -> list[Packing]:
        """Replace factors that never change by packed ones, where that saves work in every run.

        Those are factors that cannot be copied in words, and floats, which are rounded beforehand.
        """
        found = []
        for factor, lines in ((self.left, self.rows), (self.right, self.columns)):
            loads = list(loads_of(factor.body))
            useful = factor.unit_bytes < WORD or self.unit.kind == "tf32"
            if not useful or not loads or not all(fixed(x.tensor) for x in loads):
                continue
            packing = self._packing(factor, lines)
            if packing is None:
                continue
            found.append(packing)
            shape = packing.packed.shape
            self.strides[packing.packed] = row_major(shape)
            body = scalar.load(packing.packed, (*self._packed_axes(factor, lines), self.depth))
            made = self._factor(body, lines, factor.tile_lines, shape[-1])
            made.is_rounded = self.unit.kind == "tf32"
            if factor is self.left:
                self.left = made
            else:
                self.right = made
        return found

    def _packed_axes(self, factor: Factor, lines: list[Dim]) -> list[Dim]:
        used = {a for d in dims_of(factor.body) for a in sizes.atoms_of(d, "index")}
        return [*(v for v in self.lead if sizes.as_atom(v) in used), *lines, *self.taps]

    def _packing(self, factor: Factor, lines: list[Dim]) -> Packing | None:
        """The factor with its depth last, which ends in zeros where a word is not full."""
        axes = self._packed_axes(factor, lines)
        depth = extent_of(self.depth)
        if not isinstance(depth, int) or not all(isinstance(extent_of(a), int) for a in axes):
            return None
        padded = -(-depth // factor.word) * factor.word
        shape = (*map(extent_of, axes), padded)
        own = indices(shape)
        atoms: dict[Atom, Dim] = {}
        for axis, at in zip((*axes, self.depth), own, strict=True):
            if sizes.as_atom(axis) is not None:
                atoms[sizes.variable(axis)] = at
        value = rewrite(factor.body_before, atoms=atoms)
        value = rounded(value) if self.unit.kind == "tf32" else value
        if padded != depth:
            inside = scalar.size(own[-1]) < scalar.size(depth)
            value = scalar.select(inside, value, scalar.constant(0, value.dtype))
        contents = make_map(shape, value)
        return Packing(buffer(("packed", contents), shape, value.dtype), contents)

    # -- sizes --------------------------------------------------------------------------------

    def row_count(self) -> Dim:
        """Rows of one matrix."""
        return sizes.product(map(extent_of, self.rows))

    def column_count(self) -> Dim:
        """Columns of one matrix."""
        return sizes.product(map(extent_of, self.columns))

    def lead_count(self) -> Dim:
        """Matrices."""
        return sizes.product(map(extent_of, self.lead))

    def steps(self) -> Dim:
        """Steps along the summed axes, `depth_tile` elements each."""
        along = integer.ceildiv(extent_of(self.depth), self.depth_tile)
        return sizes.product(map(extent_of, self.taps)) * along

    def row_tiles(self) -> Dim:
        """Tiles along the rows."""
        return integer.ceildiv(self.row_count(), self.shape.rows)

    def column_tiles(self) -> Dim:
        """Tiles along the columns."""
        return integer.ceildiv(self.column_count(), self.shape.columns)

    def tiles(self) -> Dim:
        """Tiles of all matrices."""
        return sizes.product((self.lead_count(), self.row_tiles(), self.column_tiles()))


def rounded(value: Scalar) -> Scalar:
    """A float with 10 bits of mantissa, ties away from zero; what is not finite stays."""
    bits = scalar.bitcast(value, dtypes.INT32) + 0x1000
    short = scalar.bitcast(bits & ~0x1FFF, dtypes.FLOAT)
    finite = scalar.unary("abs", value) < math.inf
    return scalar.select(finite, short, value)


def flattened(
    axes: list[Dim], bodies: tuple[Scalar, ...], name: str
) -> tuple[Dim, tuple[Scalar, ...]]:
    """One axis in place of several, and the expressions over it."""
    flat = rest = sizes.numbered_index(sizes.product(map(extent_of, axes)), 0, name)
    atoms: dict[Atom, Dim] = {}
    for number, axis in enumerate(reversed(axes)):
        last = number == len(axes) - 1
        atoms[sizes.variable(axis)] = rest if last else integer.modulo(rest, extent_of(axis))
        rest = integer.floordiv(rest, extent_of(axis))
    return flat, tuple(rewrite(body, atoms=atoms) for body in bodies)


def cycles_of(
    group: Contraction, strides: dict[Tensor, tuple[Dim, ...]], tiling: Tiling
) -> int | None:
    """Cycles of the device that a contraction takes in tiles; None where a run brings sizes."""
    s = TileSchedule(group, strides, tiling)
    extents = Extents(s.row_count(), s.column_count(), s.lead_count(), s.steps())
    shapes = shapes_of(s.unit.kind, s.unit.sum.size_bytes, tiling)
    return cycles(s.unit.kind, shapes, extents, tiling)
