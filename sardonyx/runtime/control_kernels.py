"""Control steps as kernels: the host's walk over steps, on a copy of a frame's tables."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program, SsaValue
from sardonyx.kernel.language.types import F64, I32, I64, PTR, U8
from sardonyx.plan.control_flow import (
    GUARD,
    HANDLES,
    MEASURE,
    OFFSET,
    SIZE,
    TABLES,
    ControlSteps,
    Gate,
)
from sardonyx.plan.steps import Enter, JumpIfLess, JumpUnless, SetSize
from sardonyx.plan.tape import (
    ADD,
    FLOORDIV,
    LIMIT,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    Instruction,
)
from sardonyx.runtime.plan_tables import PlanTables

#: So many trips a loop makes between two looks at what the host says.
_TRIPS_PER_LOOK = 64


def kernel_of(control: ControlSteps, image: PlanTables) -> tuple[Program, bool]:
    """The kernel of a control step, and whether it may find something wrong."""
    # It is written twice: the first time shows what it reads.
    reads = _Writer(control, image, ())
    reads.run()
    writer = _Writer(control, image, reads.read)
    writer.run()
    return writer.b.program, bool(writer.checks)


class _Writer:
    """Writes the kernel of a control step.

    The word `halt` is 0 when a run begins.

    Args:
        control: Which.
        image: Of the plan.
        read: What it is known to read from tables: read at the beginning, one read waits for all.

    Attributes:
        checks: How often it looks whether all is right.
    """

    def __init__(
        self, control: ControlSteps, image: PlanTables, read: Iterable[tuple[str, int]]
    ) -> None:
        self.control, self.image, self.plan, self.tape = control, image, image.plan, image.tape
        named = [*((name, PTR) for name in TABLES), *((name, I64) for name in HANDLES)]
        self.b = Builder(control.name, named, kind="kernel")
        self.first = tuple(read)
        self.read: dict[tuple[str, int], None] = {}
        self.constants = self.tape.constants
        self.known: dict[tuple[str, int], Operand] = {}
        self.stores: dict[tuple[str, int], Operand] = {}
        self.checks = 0

    def run(self) -> None:
        b = self.b
        with b.parallel():
            for table, k in self.first:
                if (table, k) not in self.known:
                    self.known[table, k] = b.load(I64, b.parameter(table), k)
            self.steps(self.control.steps)
            if self.control.gate is not None:
                self.gate(self.control.gate)
            elif self.checks:
                self.flush()
                self.set_condition("first", self.going())
            else:
                self.flush()

    def of(self, table: str, k: int) -> Operand:
        """A word of a table."""
        if table == "slots" and k in self.constants:
            return self.b.constant(I64, self.constants[k])
        found = self.known.get((table, k))
        if found is None:
            self.read.setdefault((table, k))
            found = self.known[table, k] = self.b.load(I64, self.b.parameter(table), k)
        return found

    def put(self, table: str, k: int, value: Operand) -> None:
        """Change a word, at the end of the part that is written."""
        self.known[table, k] = self.stores[table, k] = value

    def flush(self) -> None:
        """Write what was changed: no read comes behind that."""
        for (table, k), value in self.stores.items():
            self.b.store(value, self.b.parameter(table), k)
        self.stores = {}

    def going(self) -> SsaValue:
        """1 as long as nothing is wrong, else 0."""
        return self._one_if(self.b.eq(self._value(self.of("halt", 0)), 0))

    def set_condition(self, handle: str, value: SsaValue) -> None:
        """Set a condition, if there is a node for it."""
        b = self.b
        with b.if_(b.ne(b.parameter(handle), 0)):
            b.set_condition(b.parameter(handle), b.convert(value, I32))

    def gate(self, gate: Gate) -> None:
        """Decide."""
        b = self.b
        lets = self.going()
        chosen = b.value(I64, 1) if gate.flag is None else self._flag(gate.flag)
        if gate.trips is not None:
            test = self.plan.commands[gate.trips]
            assert isinstance(test, JumpIfLess)  # noqa: S101 - `plan.control_flow` says so
            left, right = (self._size(d, test.segment) for d in (test.left, test.right))
            less = self._value(left) < right
            chosen = self._unless_told(chosen & b.index_cast(less), left)
        before = dict(self.known), dict(self.stores)
        held = b.variable(lets)
        arms = [(b.ne(chosen, 0), gate.then), (b.eq(chosen, 0), gate.otherwise)]
        for condition, steps in arms:
            with b.if_(condition):
                self.steps(steps)
                self.flush()
                held.set(self.going())
            self.known, self.stores = dict(before[0]), dict(before[1])
        goes = held.get()
        self.set_condition("first", chosen & goes)
        if gate.trips is None:
            self.set_condition("second", (chosen ^ 1) & goes)

    def _flag(self, number: int) -> SsaValue:
        """1 if the condition of a jump is true, else 0."""
        b, jump = self.b, self.plan.commands[number]
        assert isinstance(jump, JumpUnless)  # noqa: S101 - `plan.control_flow` says so
        base = b.load(PTR, b.parameter("bases"), jump.buffer)
        at = b.offset(base, self._size(jump.offset_bytes, jump.segment))
        return self._one_if(b.ne(b.load(U8, at), 0))

    def _unless_told(self, lets: SsaValue, counter: Operand) -> SsaValue:
        """Now and then: 0 if the host ends the run, or a kernel has met a fault."""
        b = self.b
        held = b.variable(lets)
        if not isinstance(counter, SsaValue):  # the first trip
            return lets
        with b.if_(b.eq(counter & (_TRIPS_PER_LOOK - 1), 0)):
            told = b.load(I64, b.context("cancel"), ordering="relaxed")
            fault = b.load(I64, b.context("fault"), ordering="relaxed")
            held.set(b.select(b.eq(told | fault, 0), lets, 0))
        return held.get()

    def _size(self, dim: object, segment: int) -> Operand:
        return self.of("slots", self.tape.slot(dim, segment))  # type: ignore[arg-type]  # a Dim

    # -- steps --------------------------------------------------------------------------------

    def steps(self, numbers: Iterable[int]) -> None:
        """Do some steps."""
        for number in numbers:
            step = self.plan.commands[number]
            if isinstance(step, SetSize):
                value = self._size(step.value, step.segment)
                self.put("slots", self.tape.symbol(step.symbol), value)
            elif isinstance(step, Enter):
                self._enter(step.segment)

    def _enter(self, segment: int) -> None:
        self._measure(segment)
        self._evaluate(segment)
        b, image = self.b, self.image
        first = image.first_row("guards", segment)
        for k, (left, right) in enumerate(image.rows("guards", segment), first):
            a, c = self.of("slots", left), self.of("slots", right)
            self._fault_if(b.ne(self._value(a), c), GUARD + k, a, c)
        for table in ("moving", "resting"):
            for argument, buffer, slot in image.rows(table, segment):
                base, offset = self.of("bases", buffer), self._value(self.of("slots", slot))
                size = self.of("slots", image.size_slot(buffer))
                wrong = (offset < 0) | (offset > size)
                self._fault_if(wrong, OFFSET + buffer, offset, size)
                at = b.select(wrong, self._value(base), offset + base)
                self.put("arguments", argument, at)
        for argument, slot in image.rows("numbers", segment):
            self.put("arguments", argument, self.of("slots", slot))

    def _measure(self, segment: int) -> None:
        b, image = self.b, self.image
        first = image.first_row("measures", segment)
        for k, (slot, buffer, offset, low, high) in enumerate(
            image.rows("measures", segment), first
        ):
            base = b.load(PTR, b.parameter("bases"), buffer)
            value = b.load(I64, b.offset(base, self.of("slots", offset)))
            least, most = self.of("slots", low), self.of("slots", high)
            wrong = (value < least) | (value > most)
            self._fault_if(wrong, MEASURE + k, value, 0)
            # What comes next must not reach beyond what there is.
            self.put("slots", slot, b.select(wrong, least, value))

    def _evaluate(self, segment: int) -> None:
        """As `plan.tape.evaluate`."""
        first, end = self.tape.ranges[segment]
        wrong: SsaValue | None = None
        for instruction in self.tape.instructions[first:end]:
            value, is_wrong = self._do(instruction)
            wrong = is_wrong if wrong is None else wrong | is_wrong
            self.put("slots", instruction[1], value)
        if wrong is not None:
            self._fault_if(wrong, SIZE + segment, 0, 0)

    def _do(self, instruction: Instruction) -> tuple[SsaValue, SsaValue]:
        """The result of an instruction, and whether there is none."""
        b = self.b
        operation, _, left, right = instruction
        x, y = self._value(self.of("slots", left)), self.of("slots", right)
        if operation == MULTIPLY:
            # In floating point a product cannot wrap, and is too large if the exact one is.
            estimate = b.convert(x, F64) * b.convert(y, F64)
            wrong = b.unary("abs", estimate) >= float(LIMIT)
            return x * y, wrong
        if operation == FLOORDIV:
            wrong = self._value(y) < 1
            divisor = b.max(y, 1)
            quotient = x // divisor
            inexact = x - quotient * divisor < 0
            return quotient - b.index_cast(inexact), wrong
        combine = {ADD: operator.add, MAXIMUM: b.max, MINIMUM: b.min}[operation]
        value = combine(x, y)
        beyond = value >= LIMIT
        return value, beyond | (value <= -LIMIT)

    def _one_if(self, test: SsaValue) -> SsaValue:
        return self._value(self.b.index_cast(test))

    def _value(self, operand: Operand) -> SsaValue:
        """An operand that may be a constant, as a value."""
        if isinstance(operand, SsaValue):
            return operand
        return self.b.value(I64, int(operand.value))

    def _fault_if(self, wrong: SsaValue, code: int, a: Operand | int, c: Operand | int) -> None:
        b = self.b
        self.checks += 1
        with b.if_(wrong):
            b.fault(code, a, c)
            # At once, and only then: control steps of parts side by side share the word.
            b.store(b.constant(I64, 1), b.parameter("halt"))
        before = self.of("halt", 0)
        self.known["halt", 0] = b.select(wrong, b.value(I64, 1), before)
