"""Windows for any sizes: one kernel serves the depthwise convolutions and pools of many layers.

Lanes lie along the channels, which are whole vectors; what of an image's border a block sees is
known if its rows are whole blocks. So a row of 56 results, in blocks of 7, becomes one of 7 a + 14:
the first block, a in between, the last. The other axis of the image, and batches, are any number.

Maps of plain loads (a gate times an image), and means of images whose channels lie side by side,
are over any numbers of elements, too.
"""

from __future__ import annotations

from dataclasses import field, replace

from sardonyx.base import dtypes, sizes
from sardonyx.base.forks import compiling
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.loops.block_sizes import BlockSizes
from sardonyx.kernel.loops.loop_nest_schedule import LoopNestSchedule
from sardonyx.kernel.loops.register_blocking import Shared, shared_axis
from sardonyx.plan.axes import extent_of
from sardonyx.plan.canonical import Canonical, structure_of
from sardonyx.plan.groups import LoopNest, Stage
from sardonyx.plan.reasons import Reason
from sardonyx.plan.swap_operands import LONGEST_WINDOW
from sardonyx.selection.general_group import Generaliser
from sardonyx.selection.unfolded import unfolded
from sardonyx.tensor import scalar
from sardonyx.tensor.operations import CHECKS, COMPARE
from sardonyx.tensor.rewriting import remake
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, Tensor
from sardonyx.tensor.traverse import loads_of, parts_of

#: Maps over shorter rows have kernels of their own: with sizes as arguments a row costs two
#: divisions (12,544 rows of 2 vectors: 52 us instead of 35; 3,136 of 9: 44 instead of 39).
_LEAST_VECTORS = 8

#: Reductions of fewer elements may be written out.
_LEAST_REDUCED = 32
_KINDS = ("map", "sum", "max", "min")
#: Operations with symbolic integers of their own, which may have loads in them.
_WITH_DIMS = frozenset(("load", "size")) | CHECKS


_NO_WINDOW = Reason("it reduces no windows of 2 to {} elements", LONGEST_WINDOW)
_NOT_SHARED = Reason("neighbours of its windows share no elements that a block could load once")
_UNKNOWN = Reason("only a run knows how many windows there are in a row")
_NOT_PLAIN = Reason(
    "it computes with other types than float, or reads elements along no whole axes"
)
_APART = Reason("what it reads does not lie side by side along its lanes")


@dataclass(frozen=True, slots=True)
class GeneralLoopNest:
    """Maps and reductions whose sizes are symbols.

    Attributes:
        group: They, over stand-ins.
        strides: Of the stand-ins.
        key: Equal where one kernel serves.
        actual: What the stand-ins stand for.
        values: What the symbols stand for.
    """

    group: LoopNest
    strides: dict[Tensor, tuple[Dim, ...]]
    key: tuple[object, ...]
    actual: dict[Buffer, Buffer]
    values: dict[Atom, Dim]

    def build(self, lanes: int, block_sizes: BlockSizes, name: str) -> Kernel:
        """The kernel."""
        with compiling:
            from sardonyx.kernel.loops.loop_nest import LoopNestKernel

        schedule = LoopNestSchedule.fitting(self.group, self.strides, lanes, block_sizes)
        made = LoopNestKernel(schedule, name).build()
        made.program.as_written = True
        return made


@dataclass(slots=True)
class GeneralWindows:
    """Makes windows general.

    Attributes:
        lanes: 32-bit lanes of a vector register.
        block_sizes: How much a block does.
    """

    lanes: int
    block_sizes: BlockSizes
    _shared: dict[object, tuple[int, Shared] | None] = field(default_factory=dict)

    def of(self, canonical: Canonical) -> GeneralLoopNest | Reason:
        """A window for any sizes; why its form depends on them."""
        g = canonical.group
        assert isinstance(g, LoopNest)  # noqa: S101 - narrows the type for the checker
        lanes = _lane_axis(canonical, self.lanes)
        if lanes is None:
            return Reason(
                "its results are no whole vectors of {} that lie side by side", self.lanes
            )
        if not _is_window(g):
            return _NO_WINDOW
        canonical = unfolded(canonical)
        widths = {lanes: self.lanes}
        first = _Making(canonical).make(widths)
        if first.key not in self._shared:
            self._shared[first.key] = self._find(first)
        found = self._shared[first.key]
        if found is None:
            return _NOT_SHARED
        position, shared = found
        extent = extent_of(g.outer[position])
        if not isinstance(extent, int):
            return _UNKNOWN
        count = shared.count(extent)
        if extent % count or extent < 2 * count:
            return _Making(canonical).make(widths, fixed=position)
        return _Making(canonical).make({**widths, position: count}, blocks=position)

    def _find(self, general: GeneralLoopNest) -> tuple[int, Shared] | None:
        """Which axis has neighbours that share a block, and what they share."""
        schedule = LoopNestSchedule(general.group, general.strides, self.lanes, self.block_sizes)
        if schedule.vector_inside or schedule.lanes != self.lanes or schedule.window is None:
            return None
        shared = shared_axis(schedule.nest.members, schedule.block_axes, schedule.tap_rows)
        if shared is None or shared.axis not in general.group.outer:
            return None
        return general.group.outer.index(shared.axis), shared


def general_map(canonical: Canonical, lanes: int) -> GeneralLoopNest | Reason:
    """Maps of plain loads, or what reduces them; why their form depends on their sizes."""
    g = canonical.group
    assert isinstance(g, LoopNest)  # noqa: S101 - narrows the type for the checker
    axis = _lane_axis(canonical, lanes)
    if axis is None:
        return Reason("its results are no whole vectors of {} that lie side by side", lanes)
    axes = frozenset((0, *g.outer, *g.inner))
    width, count = extent_of(g.outer[axis]), sizes.product(map(extent_of, g.inner))
    if not isinstance(width, int) or width < _LEAST_VECTORS * lanes:
        return Reason("rows of {}, fewer than {} vectors of {}", width, _LEAST_VECTORS, lanes)
    if g.inner and (not isinstance(count, int) or count < _LEAST_REDUCED):
        return Reason("{} elements are reduced, fewer than {}", count, _LEAST_REDUCED)
    if not all(
        s.kind in _KINDS and axes.issuperset(s.indices) and _is_plain(s.body, axes)
        for s in g.stages
    ):
        return _NOT_PLAIN
    # Elements that lie apart along the lanes have forms that depend on how far.
    accesses: list[tuple[Tensor, tuple[Dim, ...]]]
    accesses = [(s.root.buffer, s.indices) for s in g.stages]
    accesses += [(x.tensor, x.at) for s in g.stages for x in loads_of(s.body)]
    if not all(
        step == 1
        for tensor, at in accesses
        for step, index in zip(canonical.strides[tensor], at, strict=True)
        if index == g.outer[axis]
    ):
        return _APART
    return _Making(canonical).make({axis: lanes}, inner=bool(g.inner))


def _is_plain(x: Scalar, axes: frozenset[Dim]) -> bool:
    """Whether an expression is of floats alone, loaded from where they lie along whole axes."""
    return all(
        part.dtype == dtypes.FLOAT and (part.op != "load" or axes.issuperset(part.at))
        for part in parts_of(x)
    )


def _is_window(group: LoopNest) -> bool:
    extent = sizes.product(map(extent_of, group.inner))
    return isinstance(extent, int) and 1 < extent <= LONGEST_WINDOW


def _lane_axis(canonical: Canonical, lanes: int) -> int | None:
    """The outer axis along which results lie side by side, if it is whole vectors."""
    g = canonical.group
    assert isinstance(g, LoopNest)  # noqa: S101 - narrows the type for the checker
    last = g.stages[-1]
    for step, index in zip(canonical.strides[last.root.buffer], last.indices, strict=True):
        if step == 1 and index in g.outer and index != 0:
            extent = extent_of(index)
            if isinstance(extent, int) and extent % lanes == 0:
                return g.outer.index(index)
    return None


class _Making(Generaliser):
    """Makes a `GeneralLoopNest`."""

    #: How many elements are reduced, as a number and with symbols.
    _count: tuple[Dim, Dim] | None = None

    def make(
        self,
        units: dict[int, int],
        blocks: int | None = None,
        fixed: int | None = None,
        *,
        inner: bool = False,
    ) -> GeneralLoopNest:
        """The group with symbols for the extents of its outer axes.

        Args:
            units: Numbers of elements of which an axis is a multiple, by its position.
            blocks: The axis that is cut into blocks of so many, at least two.
            fixed: The axis that keeps its extent.
            inner: Whether there are symbols for the extents of the inner axes, too.
        """
        g = self._canonical.group
        assert isinstance(g, LoopNest)  # noqa: S101 - narrows the type for the checker
        for k, axis in enumerate(g.outer):
            if axis == 0:
                continue
            extent = extent_of(axis)
            unit, least = units.get(k, 1), 2 * int(k == blocks)
            if k != fixed:
                count = extent // unit - least if isinstance(extent, int) else extent
                symbol = self._symbol(f"axis {k}", count) + least
                extent = symbol * unit
            self._extents[sizes.variable(axis)] = extent
        outer = tuple(self._variable(v, k, "o") for k, v in enumerate(g.outer))
        reduced = g.inner
        if inner:
            for k, axis in enumerate(v for v in g.inner if v != 0):
                self._extents[sizes.variable(axis)] = self._symbol(f"inner {k}", extent_of(axis))
            reduced = tuple(self._variable(v, k, "n") for k, v in enumerate(g.inner))
            self._count = (
                sizes.product(map(extent_of, g.inner)),
                sizes.product(map(extent_of, reduced)),
            )
        self._atoms = sizes.in_place_of(g.outer, outer)
        if inner:
            self._atoms |= sizes.in_place_of(g.inner, reduced)
        stages = [self._stage(s) for s in g.stages]
        group = LoopNest(outer, reduced, stages)
        shapes = tuple((b.shape, b.dtype, self._strides[b]) for b in self._stand_ins.values())
        return GeneralLoopNest(
            group, self._strides, ("general", *structure_of(group), shapes),
            self.actual, self.values,
        )  # fmt: skip

    def _stage(self, s: Stage) -> Stage:
        body = self._window(s.body, {})
        root = replace(s.root, buffer=self._stand_in(s.root.buffer, s.indices))
        at = tuple(substitute(i, self._atoms) for i in s.indices)
        return Stage(root, s.kind, body, at, s.full, s.stored)

    def _window(self, x: Scalar, known: dict[Scalar, Scalar]) -> Scalar:
        """An expression over the stand-ins, its indices compared with where they end."""
        found = known.get(x)
        if found is None:
            found = known[x] = self._moved(x, known)
        return found

    def _moved(self, x: Scalar, known: dict[Scalar, Scalar]) -> Scalar:
        if x.op in _WITH_DIMS:
            return self._body(x)
        if x.op == "constant" and self._count is not None and x.payload == self._count[0]:
            # What a mean divides by. Whatever else has that value has it here in all runs.
            return scalar.cast(scalar.size(self._count[1]), x.dtype)
        if x.op in COMPARE and [a.op for a in x.arguments] == ["size", "constant"]:
            index, end = x.arguments
            value = int(end.payload)
            moved = self._end(index.dim, value) if value > 1 else None
            limit = end if moved is None else scalar.size(moved)
            return scalar.compare(x.op, self._window(index, known), limit)
        if not x.arguments:
            return x
        return remake(x, tuple(self._window(a, known) for a in x.arguments))
