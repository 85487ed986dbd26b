"""How a `LoopNest` group becomes loops: which axes, the pass of each member, where lanes lie.

Lanes lie along an inner axis, or along an outer one where that is the contiguous one (pooling over
channels-last images): then every lane is a row.
"""

from __future__ import annotations

import itertools

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.expressions.strided import LONGEST_STRIDE
from sardonyx.kernel.loops.block_sizes import FEW_CORES, BlockSizes
from sardonyx.kernel.loops.interleaved_blocks import choose_interleaved
from sardonyx.kernel.loops.member import Member
from sardonyx.kernel.loops.nest_axes import nest_axes
from sardonyx.kernel.loops.peel_borders import LanePart, away_from_borders, divide_lanes
from sardonyx.kernel.loops.register_blocking import WindowBlocks, choose_blocks, members_at
from sardonyx.kernel.loops.transpose_tiles import TransposeTiles, choose_squares
from sardonyx.plan.axes import dims_of, extent_of, offset_of
from sardonyx.plan.cuts import node_count
from sardonyx.plan.groups import LoopNest
from sardonyx.plan.inline import cost_of
from sardonyx.plan.swap_operands import LONGEST_WINDOW
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor
from sardonyx.tensor.traverse import loads_of

#: Elements of an axis that no memory bounds, between two looks at the cancel flag.
PIECE = 1 << 16
#: Inner steps that are over soon enough, whatever bounds them.
_SHORT = 1 << 20
#: Accumulators of a loop over rows that lie apart, and nodes of what is written out for them.
_ACCUMULATORS, _MOST_NODES = 8, 200
#: So many terms are written out though no neighbours share them.
_FEW_TAPS = 16
#: Terms of a float sum that are gathered apart. Each rounds by 6e-8 of what is there by then, at
#: most: if all are equal, by 1e-6 of the sum together.
_RUN_TERMS = 32
#: The same in float64.
_WIDE_RUN_TERMS = 128


@dataclass(eq=False, frozen=True, slots=True)
class AcrossLanes:
    """What a kernel does about elements that do not lie along the lanes.

    Attributes:
        copies: The members, or the one map for each element of the axis that is interleaved.
        squares: How a block turns what lies along another axis than the lanes; None if nothing.
        interleaved: The axis whose elements lie between the lanes, all of which a block computes.
        parts: Parts of the axis of the lanes that are written apart; none if all is alike.
    """

    copies: list[Member]
    squares: TransposeTiles | None = None
    interleaved: Dim | None = None
    parts: tuple[LanePart, ...] = ()


class LoopNestSchedule:
    """How the kernel of one group goes over its axes.

    Attributes:
        nest: The stages of the group over its axes.
        vector: The axis along which the lanes lie; None without axes.
        vector_inside: Whether that is an inner axis.
        lanes: Vector length.
        endless: Inner axes whose length no memory bounds.
        in_pieces: Inner axes between whose pieces the kernel looks at the cancel flag.
        chunk: Elements of the vector axis that one block covers when nothing else makes blocks.
        window: How neighbours that read the same elements share a block; None if none do.
        tap_rows: The inner axis that is a loop around taps that are written out; 0 if none is.
        reads_anyway: Whether what lies outside is read elsewhere, see `Expression.has_lanes`.
        across: What is done about what does not lie along the lanes.
        together: Vectors of rows that go over the inner axes in step.
        run: The inner axis of which so many elements are summed apart from the others, before those
            sums are added up in float64: errors do not grow with the length (Higham, Accuracy and
            Stability of Numerical Algorithms, 4.2). None for short sums, and on a device, whose
            loops over many elements are only as fast as they have loads under way at once.

    Args:
        group: What to compute.
        strides: Elements per step along each axis, for every buffer that is read or written.
        lanes: Vector length for 32-bit elements.
        block_sizes: How much a block does.
        scratch: Whether rows may be handed from pass to pass in the thread's scratch. Where every
            lane is a row of its own they need memory instead.
    """

    def __init__(
        self,
        group: LoopNest,
        strides: dict[Tensor, tuple[Dim, ...]],
        lanes: int,
        block_sizes: BlockSizes = FEW_CORES,
        *,
        scratch: bool = True,
    ) -> None:
        self.chunk = block_sizes.elements
        joined = lanes if block_sizes.transpose_stores else 1
        self.nest = nest_axes(group, strides, joined, scratch=scratch)
        self.vector = self._choose_vector()
        self.vector_inside = self.vector is not None and self.vector in self.nest.inner
        self.lanes = self._lanes(lanes)
        self.tap_rows: Dim = 0
        self.window = self._choose_window(block_sizes)
        self.reads_anyway = False
        if self.window is not None:
            # Many subgroups have one vector each, and code that is short and the same for all.
            self.reads_anyway = block_sizes.has_thread_blocks
            if self.reads_anyway:
                self.chunk = self.lanes
        self.across = self._choose_across(block_sizes)
        self.together = 1 if self.window is not None else self._vectors_together(block_sizes)
        self.run = None if block_sizes.has_thread_blocks else self._choose_run()
        self.endless = self._find_endless()
        self.in_pieces = (
            self.endless if self.nest.outer or block_sizes.has_thread_blocks else self._long_axes()
        )

    @staticmethod
    def fitting(
        group: LoopNest,
        strides: dict[Tensor, tuple[Dim, ...]],
        lanes: int,
        block_sizes: BlockSizes = FEW_CORES,
    ) -> LoopNestSchedule:
        """The schedule that fits the group."""
        found = LoopNestSchedule(group, strides, lanes, block_sizes)
        if not found.vector_inside and any(m.in_scratch for m in found.nest.members):
            found = LoopNestSchedule(group, strides, lanes, block_sizes, scratch=False)
        return found

    # -- lanes --------------------------------------------------------------------------------

    def _choose_vector(self) -> Dim | None:
        """The axis with the most contiguous accesses; inner axes win ties."""
        best: tuple[float, int] | None = None
        chosen: Dim | None = None
        candidates = [*reversed(self.nest.inner), *reversed(self.nest.outer)]
        for rank, variable in enumerate(candidates):
            score = self._score(variable)
            if best is None or (score, -rank) > best:
                best, chosen = (score, -rank), variable
        return chosen

    def _score(self, variable: Dim) -> float:
        atom = sizes.variable(variable)
        score = 0.0
        for member in self.nest.members:
            # A window reads its taps, and stores one result.
            weight = 4 if member.stage.full and member.stage.kind != "map" else 1
            for x in loads_of(member.body):
                source = self.nest.by_buffer.get(x.tensor)
                if source is None or source.in_memory:
                    score += weight * self._ease(x.tensor, x.at, atom, shuffled=True)
            if member.in_memory:
                score += self._ease(member.stage.root.buffer, member.indices, atom)
        extent = extent_of(variable)
        if isinstance(extent, int) and extent < 8:
            score -= 6
        return score

    def _ease(
        self, tensor: Tensor, at: tuple[Dim, ...], atom: Atom, *, shuffled: bool = False
    ) -> int:
        """How well lanes along a variable suit an access; some loads come out of whole vectors."""
        offset = away_from_borders(offset_of(self.nest.strides[tensor], at), atom)
        step = sizes.step_along(offset, atom)
        if step in (0, 1):
            return 2 * int(step == 1)
        if shuffled and isinstance(step, int) and 2 <= step <= LONGEST_STRIDE:
            return 1
        repeated = any(
            a.arguments[0] is sizes.of_atom(atom) for a in sizes.atoms_of(offset, "floordiv")
        )
        return 1 if shuffled and step is None and repeated else -2

    def _lanes(self, lanes: int) -> int:
        if self.vector is None or self._score(self.vector) <= -4 * len(self.nest.members):
            return 1
        widths = {m.stage.root.tensor.dtype.bits for m in self.nest.members}
        for member in self.nest.members:
            widths |= {x.tensor.dtype.bits for x in loads_of(member.body)}
        lanes = lanes // 2 if min(widths) >= 64 else lanes
        extent = extent_of(self.vector)
        while isinstance(extent, int) and lanes > extent and lanes > 1:
            lanes //= 2
        return lanes

    def _choose_across(self, block_sizes: BlockSizes) -> AcrossLanes:
        """See `AcrossLanes`."""
        nest, vector, lanes = self.nest, self.vector, self.lanes
        if vector is None or not block_sizes.transpose_stores:
            return AcrossLanes(nest.members)
        squares, interleaved, copies, parts = None, None, nest.members, list[LanePart]()
        if not nest.inner:
            axes = self.block_axes
            squares = choose_squares(nest.members, nest.strides, vector, axes, lanes)
            if squares is None:
                interleaved = choose_interleaved(nest.members, nest.strides, vector, axes, lanes)
        if interleaved is not None:
            neighbours = range(extent_of(interleaved))  # type: ignore[arg-type]  # a number
            at = (members_at(nest.members, interleaved, k) for k in neighbours)
            copies = [m for (m,) in at]
        is_plain = self.window is None and squares is None and lanes > 1 and not self.vector_inside
        if is_plain and not any(m.unrolled for m in nest.members) and self.chunks() == 1:
            parts = divide_lanes(copies, nest.strides, vector, lanes)
        return AcrossLanes(copies, squares, interleaved, tuple(parts))

    def _choose_window(self, block_sizes: BlockSizes) -> WindowBlocks | None:
        """Write out short reductions, and choose how neighbours share what they read.

        Of an image one row of taps is written out where neighbours along the row share it: the
        rows are a loop, and the code is as many times shorter.
        """
        apart = not block_sizes.has_thread_blocks
        if self.vector_inside or self.lanes == 1:
            self._unroll(self.nest.inner)
            return None
        if apart and len(self.nest.inner) > 1:
            self.tap_rows = self.nest.inner[0]
            self._unroll(self.nest.inner[1:])
            found = choose_blocks(self.nest.members, self.block_axes, self.tap_rows)
            if found is not None:
                return found
            self.tap_rows = 0
        self._unroll(self.nest.inner)
        found = choose_blocks(self.nest.members, self.block_axes, apart=apart)
        if found is None and apart and self._is_long_and_plain():
            for member in self.nest.members:
                member.unrolled = None  # several vectors in step, instead
        return found

    def _is_long_and_plain(self) -> bool:
        """Whether what is written out is long, and all of it counts, whichever row it is."""
        bodies = [body for m in self.nest.members for body in m.unrolled or ()]
        return len(bodies) > _FEW_TAPS and not any(_asks(body) for body in bodies)

    def _unroll(self, axes: list[Dim]) -> None:
        """Write out short reductions of lanes (windows), so that their conditions are hoisted."""
        volume = sizes.product(map(extent_of, self.nest.inner))
        if self.vector_inside or not isinstance(volume, int) or not 0 < volume <= LONGEST_WINDOW:
            return
        for member in self.nest.members:
            if not member.stage.full:
                continue
            if member.stage.kind == "map" or member.stage.kind.startswith("arg"):
                return
        for member in self.nest.members:
            if member.stage.full:
                member.unrolled = [
                    rewrite(member.body, atoms=dict(zip(sizes.variables(axes), at, strict=True)))
                    for at in itertools.product(*(range(int(extent_of(i))) for i in axes))
                ]

    def _vectors_together(self, block_sizes: BlockSizes) -> int:
        """How many vectors of rows: one alone waits for its sum, and takes little of each line."""
        full = [m for m in self.nest.members if m.stage.full]
        if self.vector is None or self.vector_inside or self.lanes == 1:
            return 1
        if not full or block_sizes.has_thread_blocks or all(m.unrolled for m in full):
            return 1
        nodes = sum(node_count(m.body, _MOST_NODES) for m in self.nest.members)
        extent = extent_of(self.vector)
        count = min(_ACCUMULATORS // len(full), _MOST_NODES // nodes)
        if isinstance(extent, int):
            count = min(count, extent // self.lanes)
        return 1 << max(0, count.bit_length() - 1)

    def has_lanes(self, tensor: Tensor) -> bool:
        """Whether a tensor has as many elements as there are lanes, wherever there is a block."""
        there = {extent_of(axis) for axis in self.nest.outer}
        known = [1 if d in there and not isinstance(d, int) else d for d in tensor.shape]
        count = sizes.product(known)
        return isinstance(count, int) and count >= self.lanes

    def walked(self) -> list[Dim]:
        """The inner axes in the order of their loops, from the outermost."""
        apart = [i for i in self.nest.inner if i is not self.vector]
        return [*apart, self.vector] if self.vector_inside and self.vector is not None else apart

    def _choose_run(self) -> tuple[Dim, int] | None:
        """See `run`."""
        sums = [m for m in self.nest.members if m.stage.kind == "sum" and m.body.dtype.is_float]
        if all(m.unrolled for m in sums):
            return None
        is_wide = all(m.body.dtype == dtypes.DOUBLE for m in sums)
        most = _WIDE_RUN_TERMS if is_wide else _RUN_TERMS
        terms = 1  # that a sum takes in, from the innermost loop on
        for axis in reversed(self.walked()):
            width = self.lanes if axis is self.vector else 1
            steps = integer.ceildiv(extent_of(axis), width)
            if not isinstance(steps, int) or terms * steps > most:
                return axis, max(1, most // terms) * width
            terms *= max(1, steps)
        return None

    def _find_endless(self) -> frozenset[Dim]:
        """Inner axes whose length no memory bounds: what runs over them is computed on the way.

        Short kernels have none; others look at the cancel flag between pieces of such an axis.
        """
        volume = sizes.product(map(extent_of, self.nest.inner))
        if isinstance(volume, int) and volume <= _SHORT:
            return frozenset()
        best: set[Dim] = set()
        for member in self.nest.members:
            stage = member.stage
            if stage.full and stage.kind == "map" and (member.in_scratch or member.in_memory):
                return frozenset()
            for x in loads_of(member.body):
                source = self.nest.by_buffer.get(x.tensor)
                if source is None or source.in_memory:
                    walked = zip(x.tensor.shape, x.at, strict=True)
                    covered = {i for d, i in walked if i in self.nest.inner and extent_of(i) == d}
                    best = max(best, covered, key=len)
        return frozenset(self.nest.inner) - best

    def _long_axes(self) -> frozenset[Dim]:
        """All inner axes, where one block walks along them and that may take long."""
        volume = sizes.product(map(extent_of, self.nest.inner))
        return frozenset(() if isinstance(volume, int) and volume <= _SHORT else self.nest.inner)

    # -- sizes --------------------------------------------------------------------------------

    def all_dims(self) -> list[Dim]:
        """Every size that the kernel computes with."""
        found: list[Dim] = [*self.nest.outer, *self.nest.inner]
        for member in self.nest.members:
            found += list(dims_of(member.body))
            found += member.indices
            found += self.nest.strides[member.stage.root.buffer]
            for x in loads_of(member.body):
                found += self.nest.strides[x.tensor]
        return found

    def cost_ns(self) -> Dim:
        """Estimated time on one thread."""
        inner = sizes.product(map(extent_of, self.nest.inner))
        per_row: Dim = 0
        for member in self.nest.members:
            steps = cost_of(member.body) + 2 + 2 * len(loads_of(member.body))
            if self.window is not None and member.stage.full:
                steps = 1  # what neighbours share, and what is asked once, hardly counts
            work = inner * steps if member.stage.full else steps
            per_row = per_row + work
        volume = sizes.product(map(extent_of, self.nest.outer)) * per_row
        return integer.ceildiv(volume, 3 * self.lanes)

    @property
    def block_axes(self) -> list[Dim]:
        """Outer axes that blocks go over, but for the chunks of the vector axis."""
        return [o for o in self.nest.outer if o is not self.vector]

    def block_count(self, axis: Dim) -> Dim:
        """How many blocks an outer axis other than that of the lanes has."""
        if self.window is not None and axis is self.window.axis:
            return self.window.blocks
        if self.across.squares is not None and axis is self.across.squares.axis:
            return self.across.squares.blocks
        if axis is self.across.interleaved:
            return 1
        return extent_of(axis)

    def chunks(self) -> Dim:
        """How many chunks the vector axis is cut into."""
        if self.vector is None or self.vector_inside:
            return 1
        return integer.ceildiv(extent_of(self.vector), self.chunk)

    def blocks(self) -> Dim:
        """How many blocks the kernel has."""
        counts = map(self.block_count, self.block_axes)
        blocks = sizes.product(counts) * self.chunks()
        # A row of no elements still has a result; a map over nothing has no work.
        return blocks


def _asks(body: Scalar) -> bool:
    """Whether an expression has a condition on where it is."""
    stack, seen = [body], set[Scalar]()
    while stack:
        x = stack.pop()
        if x.op == "size":
            return True
        if x not in seen:
            seen.add(x)
            stack.extend(x.arguments)
    return False
