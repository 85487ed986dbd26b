"""Checks of what only the run knows; what fails is recorded as a fault (`context.FAULTS`)."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.context import code_of_range
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.types import I64

#: Given the lanes of a value, which of them count; None for all.
Counted = Callable[[int], Operand | None]


def check_divisor(b: Builder, divisor: Operand, counted: Counted) -> None:
    """A fault where an integer is divided by zero; the quotient is then 0."""
    lanes = divisor.type.lanes
    if isinstance(divisor, Literal) and divisor.value != 0:
        return
    if isinstance(divisor, Literal):
        divisor = b.variable(divisor).get()
    zero: Operand = b.eq(divisor, 0)
    mask = counted(lanes)
    if mask is not None:
        zero = zero & mask
    with b.if_(zero if lanes == 1 else b.reduce("reduce_or", zero)):
        b.fault(2)


def check_index(b: Builder, value: Operand, size: Operand, counted: Counted) -> Operand:
    """An index counted from the end if negative; a fault, and 0, outside [-size, size)."""
    lanes = value.type.lanes
    if isinstance(value, Literal):
        value = b.variable(value).get()
    moved = b.select(value < 0, value + size, value)
    outside: Operand = (moved < 0) | (moved >= size)
    mask = counted(lanes)
    failing = outside if mask is None else outside & mask
    with b.if_(failing if lanes == 1 else b.reduce("reduce_or", failing)):
        worst = value
        if lanes > 1:
            worst = b.reduce("reduce_max", b.select(failing, value, -(1 << 62)))
        b.fault(1, worst, size if size.type.lanes == 1 else b.extract(size, 0))
    return b.select(outside, b.lift(0, moved.type), moved)


def check_range(
    b: Builder, value: Operand, low: Operand, high: Operand, name: str, counted: Counted
) -> Operand:
    """A number of the data; a fault, and `low`, outside [low, high]."""
    if isinstance(value, Literal):
        value = b.variable(value).get()
    lanes = max(x.type.lanes for x in (value, low, high))
    value, low, high = (b.splat(x, lanes) for x in (value, low, high))
    outside: Operand = (value < low) | (value > high)
    mask = counted(lanes)
    failing = outside if mask is None else outside & mask
    with b.if_(failing if lanes == 1 else b.reduce("reduce_or", failing)):
        found = [value, low, high]
        if lanes > 1:
            # Ranges may differ from lane to lane: all three numbers are of the first that fails.
            number = b.iota(I64.with_lanes(lanes))
            first = b.reduce("reduce_min", b.select(failing, number, lanes))
            here = b.eq(number, first)
            found = [b.reduce("reduce_max", b.select(here, x, -(1 << 62))) for x in found]
        b.fault(code_of_range(name), *found)
    return b.select(outside, low, value)
