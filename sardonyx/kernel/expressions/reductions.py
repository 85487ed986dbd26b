"""Accumulators of reductions: registers that gather values lane by lane."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sardonyx.base.dtypes import DType
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.representation import require_numbers, value_type
from sardonyx.kernel.language.builder import Builder, Register
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.types import F64, I64, Type
from sardonyx.tensor.scalar import Scalar


def neutral(kind: str, type: Type) -> float | int | bool:
    """What a reduction over nothing gives: the value that changes no other."""
    if kind == "sum":
        return 0
    if kind == "prod":
        return 1
    low = kind.startswith(("max", "argmax"))
    if type.is_float:
        return float("-inf") if low else float("inf")
    if type.scalar == "i1":
        return not low
    bits = type.bits - (not type.is_unsigned)
    if low:
        return 0 if type.is_unsigned else -(1 << bits)
    return (1 << bits) - 1


class Accumulator:
    """One reduction under way.

    Args:
        builder: Where statements go.
        kind: One of `tensor.REDUCTIONS`.
        result: Element type of the result.
        body: Element type of what is reduced.
        lanes: Lanes that gather independently.
    """

    def __init__(self, builder: Builder, kind: str, result: DType, body: DType, lanes: int) -> None:
        self.builder, self.kind = builder, kind
        require_numbers(body)
        self.type = value_type(body).with_lanes(lanes)
        self.result = value_type(result)
        self.neutral = builder.constant(self.type, neutral(kind, self.type.element))
        self.best = builder.variable(self.neutral, name=kind)
        self.total: Register | None = None
        if kind.startswith("arg"):
            self.at = builder.variable(builder.constant(I64.with_lanes(lanes), -1), name="at")

    @property
    def is_float_sum(self) -> bool:
        """Whether values of a floating-point type are added."""
        return self.kind == "sum" and self.type.is_float

    def begin_runs(self) -> None:
        """What is taken in from here on comes in runs, whose sums are added up in float64."""
        self.total = self.builder.variable(0.0, F64.with_lanes(self.type.lanes), name="total")

    @contextmanager
    def run(self) -> Iterator[None]:
        """What is taken in inside is gathered apart, from nothing, and then joined to the rest."""
        b, total = self.builder, self.total
        assert total is not None  # noqa: S101 - `begin_runs` was called
        self.best = b.variable(self.neutral, name="run")
        yield
        total.set(total.get() + b.convert(self.best.get(), F64))

    def add_value(self, level: Expression, body: Scalar, mask: Operand | None = None) -> None:
        """Take in the value of `body`; a sum of products is fused, rounded once per term."""
        b = self.builder
        if self.kind == "sum" and body.op == "mul" and self.type.is_float and mask is None:
            factors = (level.scalar(a) for a in body.arguments)
            x, y = (
                b.constant(self.type, f.value) if isinstance(f, Literal) else b.lift(f, self.type)
                for f in factors
            )
            self.best.set(b.fma(x, y, self.best.get()))
            return
        self.add(level.scalar(body), None, mask)

    def add(self, value: Operand, position: Operand | None, mask: Operand | None) -> None:
        """Take in `value`, in the lanes of `mask`."""
        b = self.builder
        value = (
            b.lift(value, self.type)
            if not isinstance(value, Literal)
            else b.constant(self.type, value.value)
        )
        best = self.best.get()
        if position is not None:
            self._add_position(best, value, b.lift(position, self.at.type), mask)
            return
        if mask is not None:
            value = b.select(mask, value, self.neutral)
        self.best.set(self.joined(best, value))

    def joined(self, x: Operand, y: Operand) -> Operand:
        """What two parts of a reduction, other than one of positions, give together."""
        if self.type.scalar == "i1":
            op = {"sum": "or", "max": "or", "prod": "and", "min": "and"}[self.kind]
        else:
            op = {"sum": "add", "prod": "mul"}.get(self.kind, self.kind)
        return self.builder.binary(op, x, y)

    def _add_position(
        self, best: Operand, value: Operand, position: Operand, mask: Operand | None
    ) -> None:
        b = self.builder
        op = "gt" if self.kind.startswith("argmax") else "lt"
        if self.kind.endswith("_last"):
            op = op[0] + "e"
        better = b.compare(op, value, best)
        at = self.at.get()
        better = better | (at < 0)
        if self.type.is_float:  # the first NaN stays
            is_nan = b.ne(value, value) & b.eq(best, best)
            better = better | is_nan
        if mask is not None:
            better = better & mask
        self.best.set(b.select(better, value, best))
        self.at.set(b.select(better, position, at))

    def finish(self, *, horizontal: bool) -> Operand:
        """The result; `horizontal`: one value out of all lanes."""
        b = self.builder
        if self.total is not None:
            total: Operand = self.total.get()
            if horizontal and self.type.lanes > 1:
                total = b.reduce("reduce_add", total)
            return b.convert(total, self.type.element)
        best = self.best.get()
        if self.kind.startswith("arg"):
            at = self.at.get()
            if horizontal and self.type.lanes > 1:
                return self._finish_position(best, at)
            return at
        if not horizontal or self.type.lanes == 1:
            return best
        if self.type.scalar == "i1":
            op = "reduce_or" if self.kind in ("sum", "max") else "reduce_and"
        else:
            op = {"sum": "reduce_add", "prod": "reduce_mul"}.get(self.kind, f"reduce_{self.kind}")
        return b.reduce(op, best)

    def _finish_position(self, best: Operand, at: Operand) -> Operand:
        """Of the lanes that hold the extreme, the first (or last) position."""
        b = self.builder
        last = self.kind.endswith("_last")
        used = at >= 0
        guarded = b.select(used, best, self.neutral)
        top = b.reduce("reduce_max" if "argmax" in self.kind else "reduce_min", guarded)
        equal = b.eq(best, top)
        if self.type.is_float:
            nan = b.ne(best, best)
            equal = equal | nan
        held = equal & used
        limit = -1 if last else (1 << 62)
        chosen = b.select(held, at, limit)
        return b.reduce("reduce_max" if last else "reduce_min", chosen)
