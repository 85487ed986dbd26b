"""Panels of the right factor, as blocks find them: packed before the run, or by each thread.

A thread packs a panel into its scratch where the factor changes from run to run; blocks that follow
each other with the same panel find it there. Loop nest, `width` being `vectors * lanes`::

    for k in taps, depth:
        for v in 0..width step lanes:
            panel[k, v:] = B[k, first_column + v:]        # 0 beyond the last column
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I64
from sardonyx.kernel.matmul.kernel_context import KernelContext, Layout
from sardonyx.plan.axes import extent_of

#: Copies the columns from a number on to the part of scratch called "panel".
Pack = Callable[[KernelContext, Expression, Operand], None]


class PanelFacts(Protocol):
    """What a block needs besides its panel before its first tile, one for each panel."""

    def layout(self) -> Layout:
        """Parts of scratch."""

    def prepare(
        self, level: Expression, panels: RightPanels, panel: Operand, first_column: Operand
    ) -> None:
        """Compute it for the panel of this number, whose columns begin at `first_column`."""


def pack_columns(c: KernelContext, level: Expression, first_column: Operand) -> None:
    """Copy the panel of a block to scratch, zero beyond the last column."""
    s, b, panel = c.schedule, c.b, c.scratch["panel"]
    atom = sizes.variable(s.axes.column)
    extent = level.dim(extent_of(s.axes.column))
    k = b.variable(0, I64, name="k")

    def nest(inner: Expression, rest: list[Dim]) -> None:
        if rest:
            with b.for_(0, inner.dim(extent_of(rest[0]))) as i:
                child = inner.child({sizes.variable(rest[0]): i})
                nest(child, rest[1:])
            return
        line = b.offset(panel, k.get(), s.width * s.element.size_bytes)
        for v in range(s.vectors):
            start = first_column + v * s.lanes
            mask = b.tail_mask(extent - start, s.lanes)
            here = inner.child({atom: start}, vector=atom, lanes=s.lanes, mask=mask)
            value = b.lift(here.scalar(s.factors.right), s.element.with_lanes(s.lanes))
            value = b.select(mask, value, 0)
            b.store(value, line, v * s.lanes, align_bytes=16)
        k.set(k.get() + 1)

    nest(level, s.access.reduced_order())


class RightPanels:
    """Finds the panels of the right factor.

    Args:
        context: Of the kernel.
        pack: Packs a panel, where none are packed before the run.
        facts: What is computed besides for each panel; None for nothing.
        panel_bytes: Bytes of a panel, where a schedule does not know them.
    """

    def __init__(
        self,
        context: KernelContext,
        pack: Pack = pack_columns,
        facts: PanelFacts | None = None,
        panel_bytes: Dim | None = None,
    ) -> None:
        self.context, self.pack, self.facts = context, pack, facts
        self._panel_bytes = panel_bytes

    def mark_layout(self) -> Layout:
        """Scratch for which panel a thread has: its first word, 0 where a command begins."""
        c = self.context
        return [("kept", 8)] if not c.packs and c.schedule.block_sizes.transpose_stores else []

    def layout(self) -> Layout:
        """Further scratch."""
        c = self.context
        panel: Layout = [] if c.packs else [("panel", c.schedule.panel_bytes())]
        return panel if self.facts is None else [*panel, *self.facts.layout()]

    def of_block(
        self, level: Expression, number: Operand, panel: Operand, first_column: Operand
    ) -> Operand:
        """Where the panel of a block lies, once all is there that its tiles need.

        Args:
            level: The emitter inside the block.
            number: Of the panel among all there are.
            panel: Its number among those of its batch.
            first_column: Its first column.
        """
        scratch = self.context.scratch
        if "kept" not in scratch:
            if self.context.packs:
                at = self.packed(level, panel)
            else:
                self.pack(self.context, level, first_column)
                at = scratch["panel"]
            self._prepare(level, panel, first_column)
            return at
        with self.unless_kept(number):
            inside = level.child()
            self.pack(self.context, inside, first_column)
            self._prepare(inside, panel, first_column)
        return scratch["panel"]

    def _prepare(self, level: Expression, panel: Operand, first_column: Operand) -> None:
        if self.facts is not None:
            self.facts.prepare(level, self, panel, first_column)

    @contextmanager
    def unless_kept(self, number: Operand) -> Iterator[None]:
        """Put into scratch what has a number, unless the thread's last block put the same there.

        See `native.walk.forget_kept`.
        """
        b, kept, mark = self.context.b, self.context.scratch["kept"], number + 1
        with b.if_(b.ne(b.load(I64, kept), mark)):
            yield
            b.store(mark, kept)

    def packed(self, level: Expression, panel: Operand) -> Operand:
        """Where a panel lies that was packed before the run."""
        b, c = self.context.b, self.context
        number = self.number(level, panel)
        size_bytes = c.schedule.panel_bytes() if self._panel_bytes is None else self._panel_bytes
        step = b.lift(level.dim(size_bytes), I64)
        return b.offset(c.places[c.packs[0].packed].pointer, number * step)

    def number(self, level: Expression, panel: Operand) -> Operand:
        """Which of all packed panels this one is."""
        s, b = self.context.schedule, self.context.b
        flat: Dim = 0
        for variable in s.packed_axes():
            flat = flat * extent_of(variable) + variable
        flat = flat * s.panels()
        return panel + b.lift(level.dim(flat), I64)
