"""Rows of the left factor, as micro-kernels read them: pointers to their taps, or copies.

Loop nest for a row, with pointers and with copies::

    for tap in taps: table[tap, r] = address of A[row, tap]      # or of zeros, beyond the edge
    for k in reduced, the last axis step lanes: copy[r, k:] = A[row, k:]
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import sizes
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Register
from sardonyx.kernel.language.compiled import Place
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.types import I64, Type
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.micro import PART
from sardonyx.plan.axes import extent_of
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.tensor import Tensor

#: Pointers to more taps than these are written in loops: LLVM's time grows with their square.
_MOST_WRITTEN_OUT = 64


class LeftRows:
    """Finds, or copies, rows of the left factor.

    Args:
        schedule: How the kernel goes over the contraction's axes.
        outside: What no block changes.
        places: Where tensors lie.
        scratch: Parts of the thread's memory by name: `zero` and `copy`, where there are such.
    """

    def __init__(
        self,
        schedule: ContractionSchedule,
        outside: Expression,
        places: dict[Tensor, Place],
        scratch: dict[str, Operand],
    ) -> None:
        self.schedule, self.outside, self.places, self.scratch = schedule, outside, places, scratch
        self.b = outside.builder

    @property
    def leaves_taps_out(self) -> bool:
        """Whether tiles leave out taps at which all of their rows are beyond the edge."""
        return self.schedule.has_far_taps

    def zero(self, depth: Operand) -> None:
        """Fill the row that stands for what is beyond the edge."""
        if "zero" in self.scratch:
            value = self.padding()
            with self.b.for_(0, depth) as k:
                self.b.store(value, self.scratch["zero"], k)

    def padding(self) -> Operand:
        """What rows hold where a window hangs over the edge."""
        return self.b.constant(self.schedule.factor, 0)

    def live_taps(self, live: Operand, taps: int, depth: Operand) -> tuple[Operand, Operand]:
        """The first tap that a tile sums, and the one behind the last.

        Sums of few elements are added up in parts of several taps, whose borders must not depend
        on what else is in the tile: results are the same bits however rows are shared by threads.
        Taps of long sums are so long that each has parts of its own.

        Args:
            live: A bit for each tap at which some row is not beyond the edge.
            taps: How many there are.
            depth: Elements of a tap.
        """
        b = self.b
        first, behind = b.variable(0, I64, name="first"), b.variable(taps, I64, name="behind")

        def is_dead(tap: Operand) -> Operand:
            return b.eq((live >> tap) & 1, 0)

        with b.while_(lambda: (first.get() + 1 < behind.get()) & is_dead(first.get())):
            first.set(first.get() + 1)
        with b.while_(lambda: (first.get() + 1 < behind.get()) & is_dead(behind.get() - 1)):
            behind.set(behind.get() - 1)
        steps = b.max(b.min(depth, PART), 1)
        together = (steps + (PART - 1)) // steps
        return first.get() - first.get() % together, behind.get()

    def point(
        self,
        row: Expression,
        table: Operand,
        r: Operand,
        count: Operand,
        live: Register | None = None,
    ) -> None:
        """Where each tap of a row begins; `live` gets a bit for each not beyond the edge."""
        s, b = self.schedule, self.b
        if s.tap_count() <= _MOST_WRITTEN_OUT:
            for number, taps in enumerate(s.tap_values()):
                at = {sizes.variable(t): v for t, v in zip(s.taps, taps, strict=True)}
                inside = None if s.window is None else row.scalar(rewrite(s.window, atoms=at))
                if live is not None and inside is not None:
                    bit = b.select(inside, b.value(I64, 1 << number), 0)
                    live.set(live.get() | bit)
                place = count * number + r
                b.store(self._tap_pointer(row, at, inside), table, place)
            return
        index = b.variable(r, I64, name="index")

        def nest(level: Expression, rest: Sequence[Dim]) -> None:
            if rest:
                with b.for_(0, level.dim(extent_of(rest[0]))) as i:
                    nest(level.child({sizes.variable(rest[0]): i}), rest[1:])
                return
            inside = None if s.window is None else level.scalar(s.window)
            b.store(self._tap_pointer(level, {}, inside), table, index.get())
            index.set(index.get() + count)

        nest(row, s.taps)

    def _tap_pointer(
        self, level: Expression, at: dict[Atom, int], inside: Operand | None
    ) -> Operand:
        """Where a tap of a row begins: `at` has its place, or else `level`."""
        s, b = self.schedule, self.b
        others = {sizes.variable(v): 0 for v in s.reduced if v not in s.taps}
        offset = substitute(s.left_offset, {**others, **at})
        pointer: Operand = b.offset(self.places[s.left_buffer].pointer, level.dim(offset), s.factor)
        if isinstance(inside, Literal):
            return pointer if inside.value else self.scratch["zero"]
        return pointer if inside is None else b.select(inside, pointer, self.scratch["zero"])

    def copy(self, row: Expression, table: Operand, r: Operand, depth: Operand) -> None:
        """Copy one row of the left factor, all reduced axes in order, to scratch."""
        s = self.schedule
        b = self.b
        skip = r * depth
        start = b.offset(self.scratch["copy"], skip, s.factor)
        k = b.variable(0, I64, name="k")

        def nest(inner: Expression, rest: list[Dim]) -> None:
            if not rest:
                b.store(self.rounded(inner.scalar(s.left), s.factor), start, k.get())
                k.set(k.get() + 1)
                return
            inner.hoist([s.left], frozenset(map(sizes.variable, rest)))
            extent = inner.dim(extent_of(rest[0]))
            if len(rest) == 1:
                line = b.offset(start, k.get(), s.factor)
                self._copy_vectors(inner, rest[0], extent, line)
                k.set(k.get() + extent)
                return
            with b.for_(0, extent) as i:
                nest(inner.child({sizes.variable(rest[0]): i}), rest[1:])

        nest(row, list(s.reduced))
        b.store(start, table, r)

    def rounded(self, value: Operand, kind: Type) -> Operand:
        """An element of the left factor, or lanes, as copied rows hold them."""
        return self.b.lift(value, kind)

    def _copy_vectors(self, row: Expression, variable: Dim, extent: Operand, line: Operand) -> None:
        """Copy along the last reduced axis, vector by vector."""
        s = self.schedule
        b, atom = self.b, sizes.variable(variable)
        lanes = s.lanes * s.element.size_bytes // s.factor.size_bytes
        known = extent_of(variable)
        while isinstance(known, int) and lanes // 2 >= known and lanes > 1:
            lanes //= 2
        kind = s.factor.with_lanes(lanes)
        with b.for_(0, extent, lanes) as i:
            mask = None
            if not (isinstance(known, int) and known % lanes == 0) and lanes > 1:
                mask = b.tail_mask(extent - i, lanes)
            here = row.child({atom: i}, vector=atom, lanes=lanes, mask=mask)
            b.store(self.rounded(here.scalar(s.left), kind), line, i, mask=mask)
