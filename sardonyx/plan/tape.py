"""All symbolic integers of a plan as one flat list of instructions over numbered slots.

A slot holds a symbol, a constant or a result. Every expression is computed once, whatever number of
places use it. `runtime/native_resolve.py` runs the list natively; `evaluate` is its reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sardonyx.base import sizes
from sardonyx.base.errors import EngineError, message
from sardonyx.base.sizes import Atom, Dim

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


@dataclass(slots=True)
class Tape:
    """Collects expressions; `slot` gives where the value of one will be.

    Attributes:
        slots: Initial content: constants, and 0 elsewhere.
        symbols: Slot of each symbol.
        instructions: (operation, result, left, right), operands before their users.
        expressions: For each instruction, an expression that needs it, for error texts.
    """

    slots: list[int] = field(default_factory=list)
    symbols: dict[str, int] = field(default_factory=dict)
    instructions: list[tuple[int, int, int, int]] = field(default_factory=list)
    expressions: list[Dim] = field(default_factory=list)
    _constants: dict[int, int] = field(default_factory=dict)
    _known: dict[tuple[int, int, int], int] = field(default_factory=dict)
    _dims: dict[Dim, int] = field(default_factory=dict)

    def _new(self, value: int = 0) -> int:
        self.slots.append(value)
        return len(self.slots) - 1

    def _constant(self, value: int) -> int:
        # "To the end" is often written as the largest integer: any bound beyond all sizes will do.
        value = max(1 - LIMIT, min(value, LIMIT - 1))
        if value not in self._constants:
            self._constants[value] = self._new(value)
        return self._constants[value]

    def _do(self, operation: int, left: int, right: int, dim: Dim) -> int:
        if operation != FLOORDIV and left > right:
            left, right = right, left
        key = (operation, left, right)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._new()
            self.instructions.append((operation, found, left, right))
            self.expressions.append(dim)
        return found

    def slot(self, dim: Dim) -> int:
        """The slot that holds `dim` once the tape has run.

        Raises:
            EngineError: It contains an index variable or a value that only a kernel knows.
        """
        if isinstance(dim, int):
            return self._constant(dim)
        found = self._dims.get(dim)
        if found is None:
            found = self._dims[dim] = self._sum(dim)
        return found

    def _sum(self, dim: Dim) -> int:
        total: int | None = None
        for monomial, coefficient in sizes.terms_of(dim):
            value: int | None = None
            for atom in monomial:
                factor = self._atom(atom)
                value = factor if value is None else self._do(MULTIPLY, value, factor, dim)
            if value is None:
                value = self._constant(coefficient)
            elif coefficient != 1:
                value = self._do(MULTIPLY, value, self._constant(coefficient), dim)
            total = value if total is None else self._do(ADD, total, value, dim)
        return self._constant(0) if total is None else total

    def _atom(self, atom: Atom) -> int:
        if atom.kind == "symbol":
            return self.symbol(atom.name)
        operation = _OPERATIONS.get(atom.kind)
        if operation is None:
            raise EngineError(message("plan", f"{atom!r} has no value before a kernel runs"))
        left, right = (self.slot(x) for x in atom.arguments)
        return self._do(operation, left, right, sizes.of_atom(atom))

    def symbol(self, name: str) -> int:
        """The slot of a symbol."""
        if name not in self.symbols:
            self.symbols[name] = self._new()
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
