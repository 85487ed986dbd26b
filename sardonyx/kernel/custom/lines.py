"""Moving elements between views: one at a time, or vectors along the last axis."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base.records import dataclass
from sardonyx.kernel.custom.frame import KernelFrame
from sardonyx.kernel.custom.task import View
from sardonyx.kernel.expressions import complex_numbers
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I1, I64

#: How elements are combined. Truth values count as 0 and 1, and sums of them saturate.
_COMBINE = {"add": "add", "mul": "mul", "min": "min", "max": "max"}
_COMBINE_TRUTH = {"add": "or", "max": "or", "mul": "and", "min": "and"}


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a view, or the first of some that lie side by side."""

    view: View
    at: Sequence[Operand]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a view along its last axis; `at` names the others (its last entry is not read)."""

    view: View
    at: Sequence[Operand]

    def element(self, i: Operand) -> Element:
        """Element `i`."""
        return Element(self.view, [*self.at[:-1], i])


def combine(
    frame: KernelFrame, target: Element, source: Element, reduction: str, lanes: int = 1
) -> None:
    """Replace what lies in `target` by, or reduce into it, what lies in `source`.

    With `lanes`, as many elements side by side; both views are contiguous there.
    """
    if reduction == "none":
        frame.store_raw(target.view, target.at, frame.load_raw(source.view, source.at, lanes))
        return
    if target.view.dtype.is_complex:
        before, more = (frame.load_raw(x.view, x.at, lanes) for x in (target, source))
        result = complex_numbers.binary(frame.builder, reduction, before, more, target.view.dtype)
        frame.store_raw(target.view, target.at, result)
        return
    old, new = (frame.load(x.view, x.at, lanes) for x in (target, source))
    table = _COMBINE_TRUTH if old.type.element == I1 else _COMBINE
    combined = frame.builder.binary(table[reduction], old, new)
    frame.store(target.view, target.at, combined)


def copy_line(
    frame: KernelFrame,
    target: Line,
    source: Line,
    low: Operand | int,
    high: Operand,
    reduction: str,
) -> None:
    """Combine the elements from `low` to `high` of two lines."""
    b = frame.builder
    start = b.lift(low, I64)
    if target.view.strides[-1] == source.view.strides[-1] == 1:
        lanes = max(1, frame.task.lanes * 4 // max(4, target.view.dtype.size_bytes))
        count = high - start
        whole = start + (count & -lanes)
        with b.for_(start, whole, lanes) as i:
            combine(frame, target.element(i), source.element(i), reduction, lanes)
        start = whole
    with b.for_(start, high) as i:
        combine(frame, target.element(i), source.element(i), reduction)
