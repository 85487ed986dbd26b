"""Writes kernel programs: every method appends a statement and returns its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import overload

from sardonyx.kernel.language.instructions import InstructionBuilder
from sardonyx.kernel.language.program import (
    Block,
    Effect,
    For,
    If,
    Literal,
    Operand,
    Parallel,
    Read,
    Return,
    SetVariable,
    SsaValue,
    Variable,
    While,
)
from sardonyx.kernel.language.types import F32, I64, PTR, Type

#: Fault code of a cancelled run, see kernel/language/context.py.
_CANCELLED = 4


class Register:
    """Handle of a mutable register: `x.get()`, `x.set(v)`."""

    def __init__(self, builder: Builder, variable: Variable) -> None:
        self._builder, self.variable = builder, variable

    @property
    def type(self) -> Type:
        """The register's type."""
        return self.variable.type

    def get(self) -> SsaValue:
        """Its value now."""
        result = self._builder.fresh(self.variable.type)
        self._builder.append(Read(result, self.variable))
        return result

    def set(self, value: Operand | float) -> None:
        """Give it a new value."""
        lifted = self._builder.lift(value, self.variable.type)
        self._builder.append(SetVariable(self.variable, lifted))


class Builder(InstructionBuilder):
    """Collects the statements of one program: instructions, registers, control flow, effects.

    Its arguments are those of `InstructionBuilder`.
    """

    def variable(
        self, initial: Operand | float, type: Type | None = None, name: str = "v"
    ) -> Register:
        """A mutable register with its first value."""
        if type is None:
            if not isinstance(initial, (SsaValue, Literal)):
                raise self.fail("a variable that starts as a number needs a type")
            type = initial.type
        handle = Register(self, Variable(type, name))
        handle.set(initial)
        return handle

    @contextmanager
    def _block(self, block: Block) -> Iterator[None]:
        self._stack.append(block)
        try:
            yield
        finally:
            self._stack.pop()

    @contextmanager
    def for_(
        self, low: Operand | int, high: Operand | int, step: Operand | int = 1
    ) -> Iterator[SsaValue]:
        """`with b.for_(0, n) as i:`"""
        index, body = self.fresh(I64), Block()
        first, last, pace = (self.lift(x, I64) for x in (low, high, step))
        self.append(For(index, first, last, pace, body))
        with self._block(body):
            yield index

    @contextmanager
    def parallel(self) -> Iterator[SsaValue]:
        """`with b.parallel() as block:` once, at the top of a kernel."""
        index, body = self.fresh(I64), Block()
        self.append(Parallel(index, body))
        with self._block(body):
            yield index
        while self._at_end:
            self._at_end.pop()()

    @contextmanager
    def while_(self, condition: Callable[[], Operand]) -> Iterator[None]:
        """`with b.while_(lambda: i.get() < n):`; the condition is evaluated before every pass."""
        header, body = Block(), Block()
        with self._block(header):
            test = condition()
        self.append(While(header, test, body))
        with self._block(body):
            yield

    def may_go_on(self) -> SsaValue:
        """Whether the run is not cancelled; for kernels with loops that may take long."""
        return self.eq(self.load(I64, self.context("cancel"), ordering="relaxed"), 0)

    @contextmanager
    def pieces(
        self, low: Operand | int, high: Operand | int, most: int
    ) -> Iterator[tuple[SsaValue, SsaValue]]:
        """`with b.pieces(0, n, 1 << 16) as (first, end):` parts of a range, until cancelled.

        For loops in a kernel that may take long: between two parts it looks at the cancel flag, and
        leaves the rest undone when it is set.
        """
        last = self.lift(high, I64)
        at = self.variable(low, I64, name="piece")

        def going() -> Operand:
            return self.may_go_on() & (at.get() < last)

        with self.while_(going):
            first = at.get()
            end = self.min(first + most, last)
            yield first, end
            at.set(end)

    @contextmanager
    def long_for(
        self, low: Operand | int, high: Operand | int, step: Operand | int = 1, most: int = 1 << 16
    ) -> Iterator[SsaValue]:
        """`for_` over a range that may take long: a cancelled run leaves the kernel, as a fault.

        So nothing follows that would take unfinished data for places. For kernels of one block in
        whose loops no threads meet.

        Args:
            low, high, step: As of `for_`.
            most: The distance between two looks at the flag; a multiple of `step`.
        """
        last = self.lift(high, I64)
        at = self.variable(low, I64, name="piece")
        with self.while_(lambda: at.get() < last):
            with self.if_(~self.may_go_on()):
                self.fault(_CANCELLED)
                self.return_()
            first = at.get()
            end = self.min(first + most, last)
            with self.for_(first, end, step) as i:
                yield i
            at.set(end)

    @contextmanager
    def if_(self, condition: Operand) -> Iterator[None]:
        """`with b.if_(x < y):`, perhaps followed by `with b.else_():`."""
        then = Block()
        self.append(If(condition, then, Block()))
        with self._block(then):
            yield

    @contextmanager
    def else_(self) -> Iterator[None]:
        """The other branch of the `if_` just before."""
        last = self._stack[-1].statements[-1] if self._stack[-1].statements else None
        if not isinstance(last, If):
            raise self.fail("else_ must follow if_")
        with self._block(last.otherwise):
            yield

    def return_(self, value: Operand | None = None) -> None:
        """Leave the function."""
        self.append(Return(value))

    @overload
    def call(
        self,
        target: str | Operand,
        operands: Sequence[Operand],
        result: None = None,
        *,
        fixed: int | None = None,
    ) -> None: ...

    @overload
    def call(
        self,
        target: str | Operand,
        operands: Sequence[Operand],
        result: Type,
        *,
        fixed: int | None = None,
    ) -> SsaValue: ...

    def call(
        self,
        target: str | Operand,
        operands: Sequence[Operand],
        result: Type | None = None,
        *,
        fixed: int | None = None,
    ) -> SsaValue | None:
        """Call a function of the same module by name, or any by its address.

        `fixed`: for a C variadic function, how many parameters are declared.
        """
        through = () if isinstance(target, str) else (target,)
        name = target if isinstance(target, str) else None
        if result is None:
            attributes = (("fixed", fixed), ("name", name))
            self.append(Effect("call", (*through, *operands), attributes))
            return None
        return self.let(result, "call", [*through, *operands], name=name, fixed=fixed)

    def address_of(self, function: str) -> SsaValue:
        """The address of a function of the same module."""
        return self.let(PTR, "address_of", [], name=function)

    def fault(
        self, code: int, a: Operand | int = 0, b: Operand | int = 0, c: Operand | int = 0
    ) -> None:
        """Record a fault (the first one stays); execution goes on, so guard what follows."""
        operands = (self.lift(a, I64), self.lift(b, I64), self.lift(c, I64))
        self.append(Effect("fault", operands, (("code", code),)))

    def context(self, field: str) -> SsaValue:
        """A field of the calling thread's context: see kernel/language/context.py."""
        type = I64 if field in ("thread", "scratch_bytes") else PTR
        return self.let(type, "context", [], field=field)

    def clock(self) -> SsaValue:
        """What the processor's counter says, which all its cores have in common."""
        return self.let(I64, "clock", [])

    def float_mode(self) -> SsaValue:
        """How this thread's floating-point unit rounds, and what it does with denormal numbers."""
        return self.let(I64, "float_mode", [])

    def flush_denormals(self, mode: Operand) -> None:
        """The mode `mode`, but with denormal numbers read and written as zeros."""
        self.append(Effect("flush_denormals", (mode,)))

    def set_float_mode(self, mode: Operand) -> None:
        """Go back to a mode that `float_mode` gave."""
        self.append(Effect("set_float_mode", (mode,)))

    def set_condition(self, handle: Operand, value: Operand) -> None:
        """Say whether a conditional node of the graph that the kernel is part of does its part.

        On a processor, which has no such graphs, `handle` is the address of an i32 for the answer.

        Args:
            handle: What the driver calls the condition: an i64.
            value: Not 0 if it does: an i32.
        """
        self.append(Effect("set_condition", (handle, value)))

    def pause(self) -> None:
        """Tell the processor that this is a spin loop."""
        self.append(Effect("pause", ()))

    def fence(self, ordering: str = "seq_cst") -> None:
        """Order memory accesses."""
        self.append(Effect("fence", (), (("ordering", ordering),)))

    def prefetch(
        self, pointer: Operand, index: Operand | int, element: Type = F32, *, near: bool = True
    ) -> None:
        """Ask for the cache line at `pointer + index * size`: into all caches if it is `near`,
        else into those behind the first.
        """
        at = self.lift(index, I64) if isinstance(index, int) else index
        attributes = (("size_bytes", element.size_bytes), ("near", near))
        self.append(Effect("prefetch", (pointer, at), attributes))
