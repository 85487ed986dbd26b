"""Checks that a kernel program is well formed, before anything is made of it."""

from __future__ import annotations

from typing import NoReturn

from sardonyx.base.errors import EngineError, message
from sardonyx.kernel.language import text
from sardonyx.kernel.language.check_threads import BLOCK_EFFECTS, BLOCK_LETS, effect_fault
from sardonyx.kernel.language.check_types import type_fault
from sardonyx.kernel.language.context import FIELDS
from sardonyx.kernel.language.matrix_registers import EFFECTS as MATRIX_EFFECTS
from sardonyx.kernel.language.matrix_registers import fault_of as fault_of_matrices
from sardonyx.kernel.language.operations import COMPARE
from sardonyx.kernel.language.program import (
    Block,
    Effect,
    For,
    If,
    Let,
    Literal,
    Operand,
    Parallel,
    Program,
    Read,
    Return,
    SetVariable,
    SsaValue,
    Statement,
    Store,
    Variable,
    While,
)
from sardonyx.kernel.language.types import I1, I64, PTR

_NEIGHBOURS = 5


def verify(program: Program) -> None:
    """Check scopes, types, variables and structure.

    Raises:
        EngineError: With the lines around the faulty statement.
    """
    _Verifier(program).run()


class _Verifier:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.defined: set[SsaValue] = {p.value for p in program.parameters}
        self.ever: set[SsaValue] = set(self.defined)
        self.set: frozenset[Variable] = frozenset()
        self.place: Statement | None = None
        self.names = {p.name for p in program.parameters}

    def fail(self, what: str) -> NoReturn:
        shown = list(text.lines(self.program.body))
        at = next((i for i, (s, _) in enumerate(shown) if s is self.place), 0)
        near = shown[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS]
        listing = "\n".join(
            f"{'>' if statement is self.place else ' '} {one}" for statement, one in near
        )
        where = message(f"kernel {self.program.name}", what)
        raise EngineError(f"{where}\n  {text.heading(self.program)}\n{listing}")

    def run(self) -> None:
        parallels = [s for s in self.program.body.statements if isinstance(s, Parallel)]
        if self.program.kind in ("kernel", "block"):
            if len(parallels) != 1:
                self.fail(f"A kernel needs one top-level parallel, this has {len(parallels)}")
            if self.program.result is not None:
                self.fail("A kernel has no result")
        elif self.program.kind != "function":
            self.fail(f"Unknown kind of program {self.program.kind!r}")
        ended = self.block(self.program.body, 0)
        if self.program.result is not None and not ended:
            self.fail("A function with a result must return one on every path")

    # -- operands -----------------------------------------------------------------------------

    def use(self, operand: Operand) -> None:
        if isinstance(operand, Literal):
            if isinstance(operand.value, float) and not operand.type.is_float:
                self.fail(f"{operand!r} is a fraction as {operand.type}")
            return
        if operand not in self.defined:
            known = operand in self.ever
            self.fail(
                f"{operand!r} is used {'outside its block' if known else 'before it is made'}"
            )

    def uses(self, *operands: Operand) -> None:
        for operand in operands:
            self.use(operand)

    def define(self, value: SsaValue) -> None:
        if value in self.ever:
            self.fail(f"{value!r} is made twice")
        self.defined.add(value)
        self.ever.add(value)

    def want(self, operand: Operand, expected: object, what: str) -> None:
        if operand.type != expected:
            self.fail(f"{what} is {operand.type}, not {expected}")

    # -- statements ---------------------------------------------------------------------------

    def block(self, block: Block, depth: int) -> bool:
        """Check a block; whether it always returns."""
        for position, statement in enumerate(block.statements):
            self.place = statement
            if self.statement(statement, depth):
                if position + 1 < len(block.statements):
                    self.place = block.statements[position + 1]
                    self.fail("Nothing may follow a return")
                return True
        return False

    def inner(self, *blocks: Block, depth: int) -> bool:
        """Check blocks whose values are not seen outside; variables keep what they set."""
        outer = set(self.defined)
        ended = [self.block(block, depth) for block in blocks]
        self.defined = outer
        return any(ended)

    def statement(self, statement: Statement, depth: int) -> bool:
        match statement:
            case Let():
                self.let(statement)
            case Read(result, variable):
                if variable not in self.set:
                    self.fail(f"${variable.name} is read where it may not be set")
                self.define(result)
            case SetVariable(variable, value):
                self.use(value)
                self.want(value, variable.type, f"The value of ${variable.name}")
                self.set |= {variable}
            case Store():
                self.store(statement)
            case Effect():
                self.effect(statement)
            case Return(value):
                self.leave(value)
                return True
            case If():
                return self.branch(statement, depth)
            case _:
                self.loop(statement, depth)
        return False

    def loop(self, statement: For | Parallel | While, depth: int) -> None:
        before, outer = self.set, set(self.defined)
        if isinstance(statement, While):
            self.block(statement.header, depth + 1)
            self.place = statement
            self.use(statement.condition)
            self.want(statement.condition, I1, "The condition of a loop")
            after = self.set
            # what the header makes is there afterwards as well
            outer = set(self.defined)
            self.inner(statement.body, depth=depth + 1)
            self.defined, self.set = outer, after
            return
        if isinstance(statement, For):
            self.uses(statement.low, statement.high, statement.step)
            for operand in (statement.low, statement.high, statement.step):
                self.want(operand, I64, "A bound of a loop")
            step = statement.step
            if isinstance(step, Literal) and step.value <= 0:
                self.fail("The step of a loop must be positive")
        elif depth or self.program.kind == "function":
            self.fail("parallel belongs at the top of a kernel")
        self.define(statement.index)
        self.block(statement.body, depth + 1)
        self.defined, self.set = outer, before

    def branch(self, statement: If, depth: int) -> bool:
        self.use(statement.condition)
        self.want(statement.condition, I1, "The condition of a branch")
        before = self.set
        states = []
        for block in (statement.then, statement.otherwise):
            self.set = before
            if not self.inner(block, depth=depth + 1):
                states.append(self.set)
        self.set = frozenset.intersection(*states) if states else before
        return not states

    def let(self, statement: Let) -> None:
        self.uses(*statement.operands)
        fault = type_fault(statement)
        if fault:
            self.fail(fault)
        if statement.op == "context":
            self.field(str(statement.attribute("field")))
        if statement.op in BLOCK_LETS:
            self.of_threads(statement.op)
        if statement.op in COMPARE and statement.result.type.scalar != "i1":
            self.fail("A comparison gives i1")
        self.define(statement.result)

    def field(self, name: str) -> None:
        if name not in FIELDS:
            self.fail(f"The context has no field {name!r}")
        self.needs_context()

    def needs_context(self) -> None:
        if self.program.kind == "function" and "context" not in self.names:
            self.fail("A function reaches the context by its parameter called context; it has none")

    def store(self, statement: Store) -> None:
        self.uses(statement.pointer, statement.index, statement.value)
        self.want(statement.pointer, PTR, "The address of a store")
        lanes = statement.index.type.lanes
        if not statement.index.type.is_integer:
            self.fail(f"An index is an integer, not {statement.index.type}")
        if lanes > 1 and lanes != statement.value.type.lanes:
            self.fail(f"{lanes} indices for {statement.value.type.lanes} lanes")
        if statement.mask is not None:
            self.use(statement.mask)
            self.want(statement.mask, I1.with_lanes(statement.value.type.lanes), "The mask")

    def effect(self, statement: Effect) -> None:
        self.uses(*statement.operands)
        if statement.op == "fault":
            self.needs_context()
        elif statement.op in BLOCK_EFFECTS:
            self.of_threads(statement.op)
            fault = effect_fault(statement)
            if fault:
                self.fail(fault)
        elif statement.op in ("flush_denormals", "set_float_mode"):
            self.want(statement.operands[0], I64, "The mode")
        elif statement.op in MATRIX_EFFECTS:
            wanted = MATRIX_EFFECTS[statement.op]
            if len(statement.operands) != len(wanted):
                self.fail(f"{statement.op} has {len(wanted)} operands")
            for operand, kind in zip(statement.operands, wanted, strict=True):
                self.want(operand, kind, "An operand")
            fault = fault_of_matrices(statement)
            if fault:
                self.fail(fault)
        elif statement.op not in ("call", "pause", "fence", "prefetch", "set_condition"):
            self.fail(f"Unknown statement {statement.op!r}")

    def of_threads(self, op: str) -> None:
        if self.program.kind != "block":
            self.fail(f"{op} belongs in a program of kind block, not {self.program.kind}")

    def leave(self, value: Operand | None) -> None:
        if value is not None:
            self.use(value)
        found = None if value is None else value.type
        if found != self.program.result:
            self.fail(f"Returns {found}, not {self.program.result}")
