"""Rows of the left factor, as micro-kernels read them: pointers to their taps, or copies.

Loop nest for a row, with pointers and with copies::

    for tap in taps: table[tap, r] = address of A[row, tap]      # or of zeros, beyond the edge
    for k in reduced, the last axis step lanes: copy[r, k:] = A[row, k:]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.base.substitution import substitute
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Builder, Register
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.types import I64, PTR, Type
from sardonyx.kernel.matmul.kernel_context import KernelContext, Layout
from sardonyx.kernel.matmul.micro import PART
from sardonyx.plan.axes import extent_of
from sardonyx.tensor.rewriting import rewrite

#: Pointers to more taps than these are written in loops: LLVM's time grows with their square.
_MOST_WRITTEN_OUT = 64


def _zero(c: KernelContext) -> Operand:
    return c.b.constant(c.schedule.factors.type, 0)


@dataclass(frozen=True, slots=True)
class RowFormat:
    """How elements of the left factor lie in rows that micro-kernels read.

    Attributes:
        rounded: Makes of an element, or lanes, what copied rows hold: of this type.
        end: Writes what is behind the elements of a copied row: `(context, row, depth)`.
        padding: Gives what rows hold where a window hangs over the edge.
        may_leave_taps_out: Whether what is beyond the edge counts nothing in sums.
    """

    rounded: Callable[[Builder, Operand, Type], Operand]
    end: Callable[[KernelContext, Operand, Operand], None] | None = None
    padding: Callable[[KernelContext], Operand] = _zero
    may_leave_taps_out: bool = True


#: Elements as they are.
PLAIN = RowFormat(lambda b, value, kind: b.lift(value, kind))


class LeftRows:
    """Finds, or copies, rows of the left factor.

    Args:
        context: Of the kernel. Parts of its scratch are `zero` and `copy`, where there are such.
        row_format: How elements lie.
    """

    def __init__(self, context: KernelContext, row_format: RowFormat = PLAIN) -> None:
        self.context, self.row_format = context, row_format
        self.schedule, self.b = context.schedule, context.b
        self.places, self.scratch = context.places, context.scratch

    @property
    def leaves_taps_out(self) -> bool:
        """Whether tiles leave out taps at which all of their rows are beyond the edge."""
        return self.row_format.may_leave_taps_out and self.schedule.has_far_taps

    def table_layout(self, rows: Dim) -> Layout:
        """Scratch for pointers to the taps of so many rows."""
        return [("table", rows * (self.schedule.access.tap_count() * PTR.size_bytes))]

    def copy_layout(self, rows: Dim) -> Layout:
        """Scratch for what is beyond the edge, and for copies of so many rows."""
        s = self.schedule
        row_bytes = s.row_length * s.factors.type.size_bytes
        if not s.access.direct:
            return [("copy", row_bytes * rows)]
        return [] if s.factors.window is None else [("zero", row_bytes)]

    def zero(self, depth: Operand) -> None:
        """Fill the row that stands for what is beyond the edge."""
        if "zero" in self.scratch:
            value = self.row_format.padding(self.context)
            with self.b.for_(0, depth) as k:
                self.b.store(value, self.scratch["zero"], k)

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
        self, row: Expression, r: Operand, count: Operand, live: Register | None = None
    ) -> None:
        """Where each tap of a row begins, among `count` rows of a table in scratch.

        `live` gets a bit for each tap that is not beyond the edge.
        """
        s, b, table = self.schedule, self.b, self.scratch["table"]
        if s.access.tap_count() <= _MOST_WRITTEN_OUT:
            for number, taps in enumerate(s.access.tap_values()):
                at = {sizes.variable(t): v for t, v in zip(s.access.taps, taps, strict=True)}
                inside = (
                    None
                    if s.factors.window is None
                    else row.scalar(rewrite(s.factors.window, atoms=at))
                )
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
            inside = None if s.factors.window is None else level.scalar(s.factors.window)
            b.store(self._tap_pointer(level, {}, inside), table, index.get())
            index.set(index.get() + count)

        nest(row, s.access.taps)

    def _tap_pointer(
        self, level: Expression, at: dict[Atom, int], inside: Operand | None
    ) -> Operand:
        """Where a tap of a row begins: `at` has its place, or else `level`."""
        s, b = self.schedule, self.b
        others = {sizes.variable(v): 0 for v in s.access.reduced if v not in s.access.taps}
        offset = substitute(s.access.offset, {**others, **at})
        pointer: Operand = b.offset(
            self.places[s.factors.body.tensor].pointer, level.dim(offset), s.factors.type
        )
        if isinstance(inside, Literal):
            return pointer if inside.value else self.scratch["zero"]
        return pointer if inside is None else b.select(inside, pointer, self.scratch["zero"])

    def copy(self, row: Expression, r: Operand, depth: Operand) -> None:
        """Copy one row of the left factor, all reduced axes in order, to scratch."""
        s, b, rounded = self.schedule, self.b, self.row_format.rounded
        if self.row_format.end is not None:
            self.row_format.end(self.context, r, depth)
        skip = r * depth
        start = b.offset(self.scratch["copy"], skip, s.factors.type)
        k = b.variable(0, I64, name="k")

        def nest(inner: Expression, rest: list[Dim]) -> None:
            if not rest:
                b.store(rounded(b, inner.scalar(s.factors.left), s.factors.type), start, k.get())
                k.set(k.get() + 1)
                return
            inner.hoist([s.factors.left], frozenset(map(sizes.variable, rest)))
            extent = inner.dim(extent_of(rest[0]))
            if len(rest) == 1:
                line = b.offset(start, k.get(), s.factors.type)
                self._copy_vectors(inner, rest[0], extent, line)
                k.set(k.get() + extent)
                return
            with b.for_(0, extent) as i:
                nest(inner.child({sizes.variable(rest[0]): i}), rest[1:])

        nest(row, list(s.access.reduced))
        b.store(start, self.scratch["table"], r)

    def _copy_vectors(self, row: Expression, variable: Dim, extent: Operand, line: Operand) -> None:
        """Copy along the last reduced axis, vector by vector."""
        s = self.schedule
        b, atom = self.b, sizes.variable(variable)
        lanes = s.lanes * s.element.size_bytes // s.factors.type.size_bytes
        known = extent_of(variable)
        while isinstance(known, int) and lanes // 2 >= known and lanes > 1:
            lanes //= 2
        kind = s.factors.type.with_lanes(lanes)
        with b.for_(0, extent, lanes) as i:
            mask = None
            if not (isinstance(known, int) and known % lanes == 0) and lanes > 1:
                mask = b.tail_mask(extent - i, lanes)
            here = row.child({atom: i}, vector=atom, lanes=lanes, mask=mask)
            value = self.row_format.rounded(b, here.scalar(s.factors.left), kind)
            b.store(value, line, i, mask=mask)
