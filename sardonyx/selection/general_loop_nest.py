"""Windows for any sizes: one kernel serves the depthwise convolutions and pools of many layers.

Lanes lie along the channels, which are whole vectors; what of an image's border a block sees is
known if its rows are whole blocks. So a row of 56 results, in blocks of 7, becomes one of 7 a + 14:
the first block, a in between, the last. The other axis of the image, and batches, are any number.

Maps of plain loads (a gate times an image), and means of images whose channels lie side by side,
are over any numbers of elements, too.
"""

from __future__ import annotations

import itertools
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

#: Reductions of shorter rows have kernels of their own: their sums go in one run, which only code
#: with numbers knows (norms of 64 elements took 1.45 times as long, of 128 1.23, of 768 1.02).
_LEAST_ROW_VECTORS = 32

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
_TWO_AXES = Reason("rows alone are reduced so, not elements of several axes")
_ROWS_APART = Reason("its rows do not lie side by side in all that it reads and writes")


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
        along = _lane_axis(canonical)
        if along is None or along.elements % self.lanes:
            return Reason(
                "its results are no whole vectors of {} that lie side by side", self.lanes
            )
        lanes = along.axis
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
    merged = _merged(canonical)
    found = _lane_axis(canonical, merged)
    if found is None or found.elements % lanes:
        return Reason("its results are no whole vectors of {} that lie side by side", lanes)
    axis, merged = found.axis, merged - found.apart
    axes = frozenset((0, *g.outer, *g.inner))
    width, count = found.elements, sizes.product(map(extent_of, g.inner))
    if width < _LEAST_VECTORS * lanes:
        return Reason("rows of {}, fewer than {} vectors of {}", width, _LEAST_VECTORS, lanes)
    if g.inner and (not isinstance(count, int) or count < _LEAST_REDUCED):
        return Reason("{} elements to reduce, fewer than {}", count, _LEAST_REDUCED)
    if not all(
        s.kind in _KINDS and axes.issuperset(s.indices) and _is_plain(s.body, axes)
        for s in g.stages
    ):
        return _NOT_PLAIN
    # Elements that lie apart along the lanes have forms that depend on how far.
    if not _lie_dense(canonical, g, g.outer[axis]):
        return _APART
    return _Making(canonical).make({axis: lanes}, inner=int(bool(g.inner)), merged=merged)


def general_rows(canonical: Canonical, lanes: int) -> GeneralLoopNest | Reason:
    """Rows that are reduced, with lanes along them; why their form depends on their sizes.

    Such are the norms and softmaxes of transformers, and means of rows.
    """
    g = canonical.group
    assert isinstance(g, LoopNest)  # noqa: S101 - narrows the type for the checker
    inner = [v for v in g.inner if v != 0]
    if len(inner) != 1:
        return _TWO_AXES
    length = extent_of(inner[0])
    if not isinstance(length, int) or length <= _LEAST_ROW_VECTORS * lanes:
        what = "{} elements are reduced, no more than {} vectors of {}"
        return Reason(what, length, _LEAST_ROW_VECTORS, lanes)
    axes = frozenset((0, *g.outer, *g.inner))
    if not all(
        s.kind in _KINDS and axes.issuperset(s.indices) and _is_plain(s.body, axes)
        for s in g.stages
    ):
        return _NOT_PLAIN
    if not _lie_dense(canonical, g, inner[0]):
        return _ROWS_APART
    unit = 1 if length % lanes else lanes
    return _Making(canonical).make({}, inner=unit, merged=_merged(canonical))


def accesses_of(g: LoopNest) -> list[tuple[Tensor, tuple[Dim, ...]]]:
    """What a loop nest writes and reads, and at which indices."""
    found: list[tuple[Tensor, tuple[Dim, ...]]]
    found = [(s.root.buffer, s.indices) for s in g.stages]
    found += [(x.tensor, x.at) for s in g.stages for x in loads_of(s.body)]
    return found


def _lie_dense(canonical: Canonical, g: LoopNest, axis: Dim) -> bool:
    """Whether elements along an axis lie side by side wherever it is walked."""
    return all(
        step == 1
        for tensor, at in accesses_of(g)
        for step, index in zip(canonical.strides[tensor], at, strict=True)
        if index == axis
    )


def _is_plain(x: Scalar, axes: frozenset[Dim]) -> bool:
    """Whether an expression is of floats alone, loaded from where they lie along whole axes."""
    return all(
        part.dtype == dtypes.FLOAT and (part.op != "load" or axes.issuperset(part.at))
        for part in parts_of(x)
    )


def _is_window(group: LoopNest) -> bool:
    extent = sizes.product(map(extent_of, group.inner))
    return isinstance(extent, int) and 1 < extent <= LONGEST_WINDOW


@dataclass(frozen=True, slots=True)
class _LaneAxis:
    """Where results lie side by side.

    Attributes:
        axis: The position of the outer axis along which they do.
        elements: How many do, with the axes that are merged into it.
        apart: Those of the merged axes that stay axes, since only a run knows their extents.
    """

    axis: int
    elements: int
    apart: frozenset[int]


def _lane_axis(canonical: Canonical, merged: frozenset[int] = frozenset()) -> _LaneAxis | None:
    """The outer axis along which results lie side by side, if a number of them do.

    Args:
        canonical: The loop nest.
        merged: Positions of the axes that are merged into the next one.
    """
    g = canonical.group
    assert isinstance(g, LoopNest)  # noqa: S101 - narrows the type for the checker
    last = g.stages[-1]
    steps = zip(canonical.strides[last.root.buffer], last.indices, strict=True)
    index = next((i for step, i in steps if step == 1 and i in g.outer and i != 0), None)
    elements = 0 if index is None else extent_of(index)
    if index is None or not isinstance(elements, int):
        return None
    axis = g.outer.index(index)
    for k in reversed([k for k in range(axis) if g.outer[k] != 0]):
        extent = extent_of(g.outer[k])
        if k not in merged or not isinstance(extent, int):
            return _LaneAxis(axis, elements, merged & {k})
        elements *= extent
    return _LaneAxis(axis, elements, frozenset())


def _merged(canonical: Canonical) -> frozenset[int]:
    """Positions of the outer axes that go on where the next one ends, in every buffer."""
    g = canonical.group
    assert isinstance(g, LoopNest)  # noqa: S101 - narrows the type for the checker
    steps = []
    for tensor, at in accesses_of(g):
        by_axis: dict[Dim, Dim] = {}
        for step, index in zip(canonical.strides[tensor], at, strict=True):
            by_axis[index] = by_axis.get(index, 0) + step
        steps.append(by_axis)
    walked = [k for k, axis in enumerate(g.outer) if axis != 0]
    pairs = [(k, g.outer[k], g.outer[after]) for k, after in itertools.pairwise(walked)]
    return frozenset(
        k
        for k, axis, after in pairs
        if all(s.get(axis, 0) == s.get(after, 0) * extent_of(after) for s in steps)
    )


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
        inner: int = 0,
        merged: frozenset[int] | None = None,
    ) -> GeneralLoopNest:
        """The group with symbols for the extents of its outer axes.

        Args:
            units: Numbers of elements of which an axis is a multiple, by its position.
            blocks: The axis that is cut into blocks of so many, at least two.
            fixed: The axis that keeps its extent.
            inner: Number of elements of which inner axes are multiples, which have symbols for
                their extents, too; 0 if they keep them.
            merged: Positions of the axes that become one with the next one. Axes of one element
                are left out then, so that ranks do not count. None where positions shall stay.
        """
        g = self._canonical.group
        assert isinstance(g, LoopNest)  # noqa: S101 - narrows the type for the checker
        self._drops_ones = merged is not None
        outer: list[Dim] = []
        rows: Dim = 1  # of the axes before that the next one goes on with
        for k, axis in enumerate(g.outer):
            extent = extent_of(axis) * rows if axis != 0 else 1
            number = k if merged is None else sum(v != 0 for v in outer)
            if merged is not None and k in merged:
                self._extents[sizes.variable(axis)], rows = 1, extent
            elif axis != 0:
                unit, least, rows = units.get(k, 1), 2 * int(k == blocks), 1
                if k != fixed:
                    count = extent // unit - least if isinstance(extent, int) else extent
                    symbol = self._symbol(f"axis {number}", count) + least
                    extent = symbol * unit
                self._extents[sizes.variable(axis)] = extent
            outer.append(self._variable(axis, number, "o"))
        reduced = g.inner
        if inner:
            for k, axis in enumerate(v for v in g.inner if v != 0):
                length = extent_of(axis)
                count = length // inner if isinstance(length, int) else length
                self._extents[sizes.variable(axis)] = self._symbol(f"inner {k}", count) * inner
            reduced = tuple(self._variable(v, k, "n") for k, v in enumerate(g.inner))
            self._count = (
                sizes.product(map(extent_of, g.inner)),
                sizes.product(map(extent_of, reduced)),
            )
        self._atoms = sizes.in_place_of(g.outer, outer)
        if inner:
            self._atoms |= sizes.in_place_of(g.inner, reduced)
        stages = [self._stage(s) for s in g.stages]
        kept = tuple(v for v in outer if v != 0 or merged is None)
        group = LoopNest(kept, reduced, stages)
        shapes = tuple((b.shape, b.dtype, self._strides[b]) for b in self._stand_ins.values())
        return GeneralLoopNest(
            group, self._strides, ("general", *structure_of(group), shapes),
            self.actual, self.values,
        )  # fmt: skip

    def _stage(self, s: Stage) -> Stage:
        body = self._window(s.body, {})
        root = replace(s.root, buffer=self._stand_in(s.root.buffer, s.indices))
        at = tuple(substitute(i, self._atoms) for i in self._at(s.root.buffer, s.indices))
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
