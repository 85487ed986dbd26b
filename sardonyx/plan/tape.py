"""All symbolic integers of a plan as one flat list of instructions over numbered slots.

A slot holds a symbol, a constant or a result. Every expression is computed once, whatever number of
places use it. `native/resolve.py` runs the list natively; `evaluate` is its reference.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from sardonyx.base import sizes
from sardonyx.base.errors import EngineError, message
from sardonyx.base.sizes import Atom, Dim
from sardonyx.plan.steps import Segment

#: (operation, result, left, right)
Instruction = tuple[int, int, int, int]

ADD, MULTIPLY, FLOORDIV, MAXIMUM, MINIMUM = range(5)
#: Results whose magnitude reaches this are faults: sums of two of them still fit into 64 bits.
LIMIT = 1 << 62
_OPERATIONS = {"floordiv": FLOORDIV, "max": MAXIMUM, "min": MINIMUM}


class TapeFault(ArithmeticError):
    """A result does not exist.

    Attributes:
        instruction: Number of the instruction.
        division: The divisor is not positive; else the result is too large.
    """

    def __init__(self, instruction: int, division: bool) -> None:
        super().__init__(f"instruction {instruction}: {'division' if division else 'overflow'}")
        self.instruction, self.division = instruction, division


class Tape:
    """Collects expressions; `slot` gives where the value of one will be.

    Every instruction belongs to a segment of the plan, the earliest one in which its operands are
    known, but none before a conditional segment that asks for it.

    Args:
        segments: The plan's segments.

    Attributes:
        slots: Initial content: constants, and 0 elsewhere.
        symbols: Slot of each symbol.
        segment_of: The segment in which each slot gets its value.
        chains: For each segment, itself and all that lie on every way to it, the last one first.
    """

    def __init__(self, segments: Sequence[Segment] = (Segment(-1),)) -> None:
        self.slots: list[int] = []
        self.symbols: dict[str, int] = {}
        self.segment_of: list[int] = []
        self._segments = segments
        self._owners = {
            name: number
            for number, segment in enumerate(segments)
            for name in (*segment.counters, *(m.symbol for m in segment.measures))
        }
        self.chains: list[tuple[int, ...]] = []
        for number, segment in enumerate(segments):
            before = self.chains[segment.parent] if segment.parent >= 0 else ()
            self.chains.append((number, *before))
        self._constants: dict[int, int] = {}
        self._steps: list[list[tuple[Instruction, Dim]]] = [[] for _ in segments]
        self._known: list[dict[tuple[int, int, int], int]] = [{} for _ in segments]
        self._dims: list[dict[Dim | Atom, int]] = [{} for _ in segments]

    @property
    def instructions(self) -> list[Instruction]:
        """(operation, result, left, right), operands before their users, segment by segment."""
        return [step for steps in self._steps for step, _ in steps]

    @property
    def expressions(self) -> list[Dim]:
        """For each instruction, an expression that needs it, for error texts."""
        return [dim for steps in self._steps for _, dim in steps]

    @property
    def constants(self) -> dict[int, int]:
        """The slots of constants, with their values."""
        return {slot: value for value, slot in self._constants.items()}

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """For each segment, its first instruction and the one behind its last."""
        ends = [*itertools.accumulate(map(len, self._steps))]
        return list(zip([0, *ends], ends, strict=False))

    def _new(self, value: int, segment: int) -> int:
        self.slots.append(value)
        self.segment_of.append(segment)
        return len(self.slots) - 1

    def _constant(self, value: int) -> int:
        # "To the end" is often written as the largest integer: any bound beyond all sizes will do.
        value = max(1 - LIMIT, min(value, LIMIT - 1))
        if value not in self._constants:
            self._constants[value] = self._new(value, 0)
        return self._constants[value]

    def _home(self, segment: int, needed: int) -> int:
        """Where, on the way to `segment`, to compute what is known from `needed` on."""
        for number in self.chains[segment]:
            if number <= needed or self._segments[number].conditional:
                return number
        return 0

    def _do(self, operation: int, left: int, right: int, dim: Dim, segment: int) -> int:
        if operation != FLOORDIV and left > right:
            left, right = right, left
        key = (operation, left, right)
        for number in self.chains[segment]:
            found = self._known[number].get(key)
            if found is not None:
                return found
        home = self._home(segment, max(self.segment_of[left], self.segment_of[right]))
        result = self._known[home][key] = self._new(0, home)
        self._steps[home].append(((operation, result, left, right), dim))
        return result

    def slot(self, dim: Dim, segment: int = 0) -> int:
        """The slot that holds `dim` once the tape has run up to `segment`.

        Raises:
            EngineError: It contains an index variable or a value that only a kernel knows.
        """
        if isinstance(dim, int):
            return self._constant(dim)
        slot = self._found(dim, segment)
        if slot is None:
            slot = self._sum(dim, segment)
            self._dims[self.segment_of[slot]][dim] = slot
        return slot

    def _found(self, dim: Dim | Atom, segment: int) -> int | None:
        for number in self.chains[segment]:
            found = self._dims[number].get(dim)
            if found is not None:
                return found
        return None

    def _sum(self, dim: Dim, segment: int) -> int:
        total: int | None = None
        for monomial, coefficient in sizes.terms_of(dim):
            value: int | None = None
            for atom in monomial:
                factor = self._atom(atom, segment)
                value = factor if value is None else self._do(MULTIPLY, value, factor, dim, segment)
            if value is None:
                value = self._constant(coefficient)
            elif coefficient != 1:
                value = self._do(MULTIPLY, value, self._constant(coefficient), dim, segment)
            total = value if total is None else self._do(ADD, total, value, dim, segment)
        return self._constant(0) if total is None else total

    def _atom(self, atom: Atom, segment: int) -> int:
        if atom.kind == "symbol":
            definition = sizes.definition_of(atom)
            if definition is not None:
                for inner in sizes.definitions_in(
                    definition,
                    lambda x: self._found(sizes.stands_for(x), segment) is not None,
                ):
                    self.slot(sizes.stands_for(inner), segment)
                return self.slot(definition, segment)
            slot = self.symbol(atom.name)
            if self.segment_of[slot] not in self.chains[segment]:
                raise EngineError(message("plan", f"{atom!r} is not known in segment {segment}"))
            return slot
        found = self._found(atom, segment)
        if found is not None:
            return found
        operation = _OPERATIONS.get(atom.kind)
        if operation is None:
            raise EngineError(message("plan", f"{atom!r} has no value before a kernel runs"))
        left, right = (self.slot(x, segment) for x in atom.arguments)
        found = self._do(operation, left, right, sizes.of_atom(atom), segment)
        self._dims[self.segment_of[found]][atom] = found
        return found

    def symbol(self, name: str) -> int:
        """The slot of a symbol."""
        if name not in self.symbols:
            self.symbols[name] = self._new(0, self._owners.get(name, 0))
        return self.symbols[name]


def evaluate(tape: Tape, symbols: Mapping[str, int]) -> list[int]:
    """All slots after a run of the tape.

    Raises:
        TapeFault: A divisor is not positive, or a result is too large.
    """
    slots = list(tape.slots)
    for name, slot in tape.symbols.items():
        slots[slot] = symbols[name]
    for number, (operation, result, left, right) in enumerate(tape.instructions):
        a, b = slots[left], slots[right]
        if operation == ADD:
            value = a + b
        elif operation == MULTIPLY:
            value = a * b
        elif operation == FLOORDIV:
            if b <= 0:
                raise TapeFault(number, True)
            value = a // b
        else:
            value = max(a, b) if operation == MAXIMUM else min(a, b)
        if abs(value) >= LIMIT:
            raise TapeFault(number, False)
        slots[result] = value
    return slots
