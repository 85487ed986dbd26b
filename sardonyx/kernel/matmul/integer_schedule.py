"""How a contraction of 8-bit codes becomes loops: as any other, four steps of the depth at a time.

Rows of the left factor are read where they lie if their length is a multiple of four; else they are
copied, with zeros behind. Signed codes are made unsigned by adding 128, unsigned ones of the right
factor signed by taking 128 away, and zero points with them. What the zero points add to the sums

    sum (a - p) (w - q) = sum a w + p (K q - sum w) - q sum a

is where sums start from, and, unless q is 0, what the micro-kernel takes away at the end.
"""

from __future__ import annotations

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.language.types import memory_type
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule, Packing
from sardonyx.kernel.matmul.micro_integer import GROUP, MIDDLE
from sardonyx.plan.axes import extent_of
from sardonyx.plan.codes import Codes, codes_of, moved
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import buffer, indices, make_map, make_reduce, reduced_indices

#: Shorter rows than this are copied, where there are taps.
_LEAST_ROW = 8


class IntegerSchedule(ContractionSchedule):
    """How the kernel of one contraction of codes goes over its axes.

    Attributes:
        padding: The code that stands for 0 in rows.
        left_zero, right_zero: Zero points of unsigned left and signed right codes.
        zeros: Whether the right factor's zero points may differ from 0.
        signed_right: The right factor in signed bytes.
    """

    def _set_depth(self) -> None:
        left, right = codes_of(self.left), codes_of(self.right)
        assert left is not None  # noqa: S101 - `integer_factors` looked
        assert right is not None  # noqa: S101 - `integer_factors` looked
        self.codes = left
        self.factor = memory_type(left.code.dtype)
        self.left = left.filled
        self.padding = scalar.cast(left.zero, left.code.dtype)
        self.left_zero = moved(left.zero, MIDDLE if left.code.dtype is dtypes.INT8 else 0)
        unsigned = right.code.dtype is dtypes.UINT8
        self.right_zero = moved(right.zero, -MIDDLE if unsigned else 0)
        self.signed_right = _signed(right)
        self.zeros = self.right_zero.op != "constant" or self.right_zero.payload != 0
        super()._set_depth()

    def _rows_body(self) -> Scalar:
        self.window = self.codes.window
        return self.codes.code

    def _takes(self, tapped: bool) -> bool:
        extent = extent_of(self.depth)
        if not isinstance(extent, int) or extent % GROUP:
            return False
        return not tapped or extent >= _LEAST_ROW

    def _set_width(self, vectors: int) -> None:
        # The sums of rows need registers, too.
        super()._set_width(max(1, vectors - 1) if self.zeros else vectors)

    @property
    def row_length(self) -> Dim:
        """Bytes of a row in scratch: whole groups."""
        groups = integer.ceildiv(self.depth_extent, GROUP)
        return groups * GROUP

    def cost_ns(self) -> Dim:
        """Estimated time of all blocks on one thread."""
        return integer.ceildiv(super().cost_ns(), 3)

    def packings(self) -> list[Packing]:
        """Panels (batch..., panel, taps..., group, column, 4), and the sum of each column."""
        lead = self.packed_axes()
        taps = self.taps if self.direct else []
        groups = self.row_length // GROUP
        shape = (
            *map(extent_of, lead), self.panels(), *map(extent_of, taps), groups, self.width, GROUP,
        )  # fmt: skip
        own, n = indices(shape), len(lead)
        atoms: dict[Atom, Dim] = dict(zip(map(sizes.variable, lead), own, strict=False))
        atoms |= dict(zip(map(sizes.variable, taps), own[n + 1 :], strict=False))
        step = own[-3] * GROUP + own[-1]
        atoms |= self._at_step(step)
        column = own[n] * self.width + own[-2]
        value = self._inside(column, rewrite(self.signed_right, atoms=atoms | self._at(column)))
        last = scalar.size(step) < scalar.size(self.depth_extent)
        value = scalar.select(last, value, scalar.constant(0, dtypes.INT8))
        contents = make_map(shape, value)
        packed = buffer(("packed", contents), shape, dtypes.INT8)
        return [Packing(packed, contents), self._column_sums()]

    def _at(self, column: Dim) -> dict[Atom, Dim]:
        return {sizes.variable(self.column): column}

    def _at_step(self, step: Dim) -> dict[Atom, Dim]:
        """The reduced axes that rows walk, of the place in a row."""
        axes = self.reduced if self.depth == 0 else [self.depth]
        atoms: dict[Atom, Dim] = {}
        for axis in reversed([a for a in axes if sizes.as_atom(a) is not None]):
            atoms[sizes.variable(axis)] = integer.modulo(step, extent_of(axis))
            step = integer.floordiv(step, extent_of(axis))
        return atoms

    def _inside(self, column: Dim, value: Scalar) -> Scalar:
        """0 beyond the last column."""
        inside = scalar.size(column) < scalar.size(extent_of(self.column))
        return scalar.select(inside, value, scalar.constant(0, value.dtype))

    def _column_sums(self) -> Packing:
        """The sums of the right factor's bytes: (batch..., panel * width)."""
        lead = self.packed_axes()
        shape = (*map(extent_of, lead), self.panels() * self.width)
        extents = tuple(map(extent_of, self.reduced))
        own = indices(shape)
        atoms: dict[Atom, Dim] = dict(zip(map(sizes.variable, lead), own, strict=False))
        for axis, at in zip(self.reduced, reduced_indices(extents), strict=True):
            if sizes.as_atom(axis) is not None:
                atoms[sizes.variable(axis)] = at
        wide = scalar.cast(self.signed_right, dtypes.INT32)
        value = self._inside(own[-1], rewrite(wide, atoms=atoms | self._at(own[-1])))
        contents = make_reduce(shape, extents, "sum", value, dtypes.INT32)
        return Packing(buffer(("sums", contents), shape, dtypes.INT32), contents)


def _signed(codes: Codes) -> Scalar:
    """The codes as signed bytes, unsigned ones less 128."""
    if codes.code.dtype is dtypes.INT8:
        return codes.filled
    wide = scalar.cast(codes.filled, dtypes.INT32)
    return scalar.cast(wide - MIDDLE, dtypes.INT8)
