"""8-bit codes as factors of a contraction: micro-kernels take four steps of the depth at a time.

Rows of the left factor are read where they lie if their length is a multiple of four; else they are
copied, with zeros behind. Signed codes are made unsigned by adding 128, unsigned ones of the right
factor signed by taking 128 away, and zero points with them. What the zero points add to the sums

    sum (a - p) (w - q) = sum a w + p (K q - sum w) - q sum a

is where sums start from, and, unless q is 0, what the micro-kernel takes away at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.language.types import Type, memory_type
from sardonyx.kernel.matmul.factors import Factors, Packing
from sardonyx.kernel.matmul.micro_integer import GROUP, MIDDLE
from sardonyx.plan.axes import extent_of
from sardonyx.plan.codes import Codes, codes_of, moved
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import buffer, indices, make_map, make_reduce, reduced_indices

if TYPE_CHECKING:
    from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule

#: Shorter rows than this are copied, where there are taps.
_LEAST_ROW = 8


class CodeFactors(Factors):
    """The factors of one contraction of codes.

    Attributes:
        padding: The code that stands for 0 in rows.
        left_zero, right_zero: Zero points of unsigned left and signed right codes.
        zeros: Whether the right factor's zero points may differ from 0.
        signed_right: The right factor in signed bytes.
    """

    step, faster, may_be_long = GROUP, 3, False

    def __init__(self, left: Scalar, right: Scalar, element: Type) -> None:
        super().__init__(left, right, element)
        codes, others = codes_of(left), codes_of(right)
        assert codes is not None  # noqa: S101 - `integer_factors` looked
        assert others is not None  # noqa: S101 - `integer_factors` looked
        self.type = memory_type(codes.code.dtype)
        self.left, self.window, self.body = codes.filled, codes.window, codes.code
        self.padding = scalar.cast(codes.zero, codes.code.dtype)
        self.left_zero = moved(codes.zero, MIDDLE if codes.code.dtype is dtypes.INT8 else 0)
        unsigned = others.code.dtype is dtypes.UINT8
        self.right_zero = moved(others.zero, -MIDDLE if unsigned else 0)
        self.signed_right = _signed(others)
        self.beside = (self.left_zero, self.right_zero)
        self.zeros = self.right_zero.op != "constant" or self.right_zero.payload != 0

    def may_walk(self, extent: Dim, *, tapped: bool, on_device: bool) -> bool:  # noqa: ARG002
        """See `Factors`."""
        if not isinstance(extent, int) or extent % GROUP:
            return False
        return not tapped or extent >= _LEAST_ROW

    def most_vectors(self, vectors: int) -> int:
        """See `Factors`: the sums of rows need registers, too."""
        return max(1, vectors - 1) if self.zeros else vectors

    def packings(self, s: ContractionSchedule) -> list[Packing]:
        """Panels (batch..., panel, taps..., group, column, 4), and the sum of each column."""
        lead = s.packed_axes()
        taps = s.access.taps if s.access.direct else []
        groups = s.row_length // GROUP
        shape = (
            *map(extent_of, lead), s.panels(), *map(extent_of, taps), groups, s.width, GROUP,
        )  # fmt: skip
        own, n = indices(shape), len(lead)
        atoms: dict[Atom, Dim] = dict(zip(map(sizes.variable, lead), own, strict=False))
        atoms |= dict(zip(map(sizes.variable, taps), own[n + 1 :], strict=False))
        step = own[-3] * GROUP + own[-1]
        atoms |= _at_step(s, step)
        column = own[n] * s.width + own[-2]
        value = _inside(s, column, rewrite(self.signed_right, atoms=atoms | _at(s, column)))
        last = scalar.size(step) < scalar.size(s.access.depth_extent)
        value = scalar.select(last, value, scalar.constant(0, dtypes.INT8))
        contents = make_map(shape, value)
        packed = buffer(("packed", contents), shape, dtypes.INT8)
        return [Packing(packed, contents), self._column_sums(s)]

    def _column_sums(self, s: ContractionSchedule) -> Packing:
        """The sums of the right factor's bytes: (batch..., panel * width)."""
        lead = s.packed_axes()
        shape = (*map(extent_of, lead), s.panels() * s.width)
        extents = tuple(map(extent_of, s.access.reduced))
        own = indices(shape)
        atoms: dict[Atom, Dim] = dict(zip(map(sizes.variable, lead), own, strict=False))
        for axis, at in zip(s.access.reduced, reduced_indices(extents), strict=True):
            if sizes.as_atom(axis) is not None:
                atoms[sizes.variable(axis)] = at
        wide = scalar.cast(self.signed_right, dtypes.INT32)
        value = _inside(s, own[-1], rewrite(wide, atoms=atoms | _at(s, own[-1])))
        contents = make_reduce(shape, extents, "sum", value, dtypes.INT32)
        return Packing(buffer(("sums", contents), shape, dtypes.INT32), contents)


def _at(s: ContractionSchedule, column: Dim) -> dict[Atom, Dim]:
    return {sizes.variable(s.axes.column): column}


def _at_step(s: ContractionSchedule, step: Dim) -> dict[Atom, Dim]:
    """The reduced axes that rows walk, of the place in a row."""
    axes = s.access.reduced if s.access.depth == 0 else [s.access.depth]
    atoms: dict[Atom, Dim] = {}
    for axis in reversed([a for a in axes if sizes.as_atom(a) is not None]):
        atoms[sizes.variable(axis)] = integer.modulo(step, extent_of(axis))
        step = integer.floordiv(step, extent_of(axis))
    return atoms


def _inside(s: ContractionSchedule, column: Dim, value: Scalar) -> Scalar:
    """0 beyond the last column."""
    inside = scalar.size(column) < scalar.size(extent_of(s.axes.column))
    return scalar.select(inside, value, scalar.constant(0, value.dtype))


def _signed(codes: Codes) -> Scalar:
    """The codes as signed bytes, unsigned ones less 128."""
    if codes.code.dtype is dtypes.INT8:
        return codes.filled
    wide = scalar.cast(codes.filled, dtypes.INT32)
    return scalar.cast(wide - MIDDLE, dtypes.INT8)
