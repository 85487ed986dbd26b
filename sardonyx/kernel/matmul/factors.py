"""The factors of a contraction as micro-kernels read them, and how they find rows of the left one.

Rows are read where they lie, if the left factor has the type that is multiplied, and lies side by
side along a reduced axis: that one is the depth, the other reduced axes are taps. Where rows are
dense along all reduced axes, they are walked as one. Otherwise rows are first copied to scratch.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.language.types import Type, memory_type
from sardonyx.plan.axes import extent_of, offset_of
from sardonyx.plan.roles import index_atoms
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, Map, Reduce, Tensor, buffer, indices, make_map
from sardonyx.tensor.traverse import loads_of

if TYPE_CHECKING:
    from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule

#: Elements that a tap walks in place, at least: shorter runs are copied. On a device, too.
_LEAST_RUN, _LEAST_ON_DEVICE = 5, 8


@dataclass(eq=False, slots=True)
class Packing:
    """A right factor to be packed before the kernel can run.

    Attributes:
        packed: The buffer that the kernel reads.
        contents: What it holds: a map, or sums, over the factor's own buffers.
    """

    packed: Buffer
    contents: Map | Reduce


class Factors:
    """The factors of one contraction: here of the type of its sums.

    Attributes:
        left, right: Expressions over the axes.
        window: Condition under which the left factor is not zero; None if always.
        body: What rows of it hold inside of the window.
        type: Of elements where rows lie.
        step: Elements of a row that an instruction takes: rows in scratch have whole steps.
        faster: How many times as many products an instruction sums.
        may_be_long: Whether sums of many products are added up in float64.
        beside: Expressions that blocks evaluate besides factors and epilogue.

    Args:
        left, right: Expressions of the accumulator's type.
        element: Type of sums.
    """

    step = faster = 1
    may_be_long = True
    beside: tuple[Scalar, ...] = ()

    def __init__(self, left: Scalar, right: Scalar, element: Type) -> None:
        self.left, self.right, self.type = left, right, element
        self.window: Scalar | None = None
        self.body = left
        if left.op == "select" and left.arguments[2].op == "constant":
            self.window, self.body = left.arguments[0], left.arguments[1]

    def may_walk(self, extent: Dim, *, tapped: bool, on_device: bool) -> bool:
        """Whether rows may be walked in place along a depth; `tapped`: there are taps."""
        least = _LEAST_ON_DEVICE if on_device else _LEAST_RUN
        return not (tapped and isinstance(extent, int) and extent < least)

    def most_vectors(self, vectors: int) -> int:
        """Vectors of a panel, where others have so many."""
        return vectors

    def packings(self, s: ContractionSchedule) -> list[Packing]:
        """What has to be packed before a kernel can run: first the right factor's panels.

        These are (batch..., panel, reduced..., lane).
        """
        lead, order = s.packed_axes(), s.access.reduced_order()
        shape = (
            *map(extent_of, lead), s.panels(), *map(extent_of, order), s.width,
        )  # fmt: skip
        own = indices(shape)
        column = own[len(lead)] * s.width + own[-1]
        atoms = {sizes.variable(s.axes.column): column}
        for variable, at in zip(lead, own, strict=False):
            atoms[sizes.variable(variable)] = at
        for variable, at in zip(order, own[len(lead) + 1 :], strict=False):
            atoms[sizes.variable(variable)] = at
        value = rewrite(self.right, atoms=atoms)
        extent = extent_of(s.axes.column)
        inside = scalar.size(column) < scalar.size(extent)
        zero = scalar.constant(0, s.group.accumulator)
        contents = make_map(shape, scalar.select(inside, value, zero))
        packed = buffer(("packed", contents), shape, s.group.accumulator)
        return [Packing(packed, contents)]


@dataclass(eq=False, frozen=True, slots=True)
class LeftAccess:
    """How rows of the left factor are read.

    Attributes:
        reduced: Reduced axes in the order in which rows have them.
        depth, taps: Which of them the rows walk in place, and the others, where `direct`; with 0
            for the former, rows walk all of them, in their order.
        direct: Whether rows are read where they lie.
        offset: Where they lie in the tensor then, in elements.
    """

    reduced: list[Dim]
    depth: Dim
    taps: list[Dim]
    direct: bool
    offset: Dim

    @property
    def depth_extent(self) -> Dim:
        """Elements of a row that one tap reads."""
        if self.depth != 0:
            return extent_of(self.depth)
        return sizes.product(map(extent_of, self.reduced))

    def tap_count(self) -> int:
        """How many runs of the depth one output sums."""
        count = 1
        for tap in self.taps:
            extent = extent_of(tap)
            assert isinstance(extent, int)  # noqa: S101 - `access_of` saw to it
            count *= extent
        return count

    def tap_values(self) -> list[tuple[int, ...]]:
        """The values of the taps, in the order in which the panel holds them."""
        extents = [extent_of(tap) for tap in self.taps]
        return list(itertools.product(*(range(int(e)) for e in extents)))

    def reduced_order(self) -> list[Dim]:
        """Reduced axes in the order in which the panel holds them."""
        return [*self.taps, self.depth] if self.depth != 0 else list(self.reduced)


def access_of(
    factors: Factors,
    reduced: list[Dim],
    strides: dict[Tensor, tuple[Dim, ...]],
    *,
    copied: bool,
    on_device: bool,
) -> LeftAccess:
    """How rows of a left factor are read.

    Args:
        factors: It, and the other one.
        reduced: The axes that are summed.
        strides: Elements per step along each axis, for every buffer.
        copied: Whether rows are copied in any case.
        on_device: Whether a device reads them.
    """
    body, window = factors.body, factors.window
    plain = body.op == "load" and value_type(body.dtype) == memory_type(body.dtype) == factors.type
    offset = offset_of(strides[body.tensor], body.at) if plain else 0

    def may_walk(depth: Dim, *, tapped: bool) -> bool:
        extent = extent_of(depth)
        return not copied and factors.may_walk(extent, tapped=tapped, on_device=on_device)

    depth: Dim = 0
    if plain:
        for variable in reduced:
            atom = sizes.variable(variable)
            linear = sizes.coefficient_of(offset, atom)
            windowed = window is not None and atom in index_atoms(window)
            if linear is not None and linear[0] == 1 and not windowed:
                depth = variable
    taps = [r for r in reduced if r is not depth]
    direct = plain and all(isinstance(extent_of(t), int) for t in taps)
    if (depth == 0 and reduced) or not may_walk(depth, tapped=bool(taps)):
        direct = False
    if plain and window is None and (taps or not direct) and may_walk(depth, tapped=False):
        dense = _dense_order(reduced, offset)
        if dense:
            return LeftAccess(dense, 0, [], True, offset)
    if direct:
        return LeftAccess(reduced, depth, taps, True, offset)
    order = sorted(reduced, key=lambda variable: _is_contiguous(variable, body, strides))
    return LeftAccess(order, 0, [], False, 0)


def _dense_order(reduced: list[Dim], offset: Dim) -> list[Dim] | None:
    """The summed axes in the order in which rows are dense along them; None if they are not."""
    steps = dict[Dim, int]()
    for variable in reduced:
        step = sizes.step_along(offset, sizes.variable(variable))
        if not isinstance(step, int) or step < 1:
            return None
        steps[variable] = step
    length: Dim = 1
    order = sorted(steps, key=steps.__getitem__)
    for variable in order:
        if steps[variable] != length:
            return None
        length = length * extent_of(variable)
    return order[::-1]


def _is_contiguous(variable: Dim, body: Scalar, strides: dict[Tensor, tuple[Dim, ...]]) -> bool:
    """Whether a left factor's elements lie side by side along a reduced axis."""
    extent = extent_of(variable)
    if isinstance(extent, int) and extent < 4:
        return False
    atom = sizes.variable(variable)
    return all(
        sizes.step_along(offset_of(strides[x.tensor], x.at), atom) == 1 for x in loads_of(body)
    )
