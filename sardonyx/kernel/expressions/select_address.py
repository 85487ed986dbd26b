"""Lanes that lie in one of several tensors, all of them in the same one: one load.

    select(row < past, load a[row, lane], load b[row - past, lane])

Where the condition is one for all lanes, as in a Concat along another axis than that of the lanes,
the place is chosen, not the value. Two loads with masks would also ask for what is not chosen, at
an address that may be anywhere: processors take hundreds of cycles to find out that a page
is missing which no lane needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.kernel.expressions.dependence import is_total, needs_guard
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I64, memory_type
from sardonyx.tensor.scalar import Scalar

if TYPE_CHECKING:
    from sardonyx.kernel.expressions.expression import Expression


def load_chosen(level: Expression, x: Scalar, guard: Operand | None) -> Operand | None:
    """The lanes of a `select` between loads, as they lie in memory.

    None if its parts are not of that kind, or are at hand already.

    Args:
        level: Where it is written.
        x: The select.
        guard: As of `Expression.scalar`.
    """
    if not _lies_in_one(level, x):
        return None
    return _ChosenLanes(level, guard).load(x)


def _lies_in_one(level: Expression, x: Scalar) -> bool:
    """Whether all lanes are side by side in one tensor, at a place that can always be computed."""
    if level.is_written(x) or not level.is_vector(x):
        return False
    if x.op == "load":
        offset = level.place(x.tensor).offset(x.at)
        return level.is_dense(offset) and is_total(offset, level.is_written)
    if x.op != "select":
        return False
    condition, *others = x.arguments
    return (
        not level.is_vector(condition)
        and not any(part.op == "select" and needs_guard(part.arguments[0]) for part in others)
        and all(_lies_in_one(level, part) for part in others)
    )


class _ChosenLanes:
    def __init__(self, level: Expression, guard: Operand | None) -> None:
        self._level, self._guard = level, guard
        self._align_bytes: set[int | None] = set()

    def load(self, x: Scalar) -> Operand:
        level, b = self._level, self._level.builder
        pointer, at = self._place(x)
        kind = memory_type(x.dtype).with_lanes(level.lanes)
        align = self._align_bytes.pop() if len(self._align_bytes) == 1 else None
        mask = level.load_mask(self._guard, level.lanes)
        return b.load(kind, pointer, at, mask=mask, align_bytes=align)

    def _place(self, x: Scalar) -> tuple[Operand, Operand]:
        """The tensor's pointer, and how many elements behind it lane 0 is."""
        level, b = self._level, self._level.builder
        if x.op == "load":
            where = level.place(x.tensor)
            offset = where.offset(x.at)
            self._align_bytes.add(level.align_bytes(offset, memory_type(x.dtype)))
            return where.pointer, b.lift(level.with_scalar_vector().dim(offset), I64)
        condition = level.scalar(x.arguments[0], self._guard)
        (pointer, at), (other, other_at) = map(self._place, x.arguments[1:])
        return b.select(condition, pointer, other), b.select(condition, at, other_at)
