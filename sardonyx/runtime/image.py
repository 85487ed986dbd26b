"""What all frames of one executable share, as tables that native code reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sardonyx.base import sizes
from sardonyx.base.errors import EngineError, message
from sardonyx.base.sizes import Dim
from sardonyx.plan.plan import (
    BitsArgument,
    Guard,
    Plan,
    PointerArgument,
)
from sardonyx.plan.tape import Tape
from sardonyx.runtime.arena import Words, address_of, aligned_words
from sardonyx.runtime.native_layout import IMAGE


class Code(Protocol):
    """Compiled kernels: `LoadedCode`, or several of them as one."""

    def address(self, symbol: str) -> int:
        """The address of a kernel."""


class Image:
    """Tables of a plan.

    Args:
        plan: The plan.
        code: Its kernels.
        constants: Arrays behind its constants; they stay where they are while the image lives.
        threads: How many threads a run may use.

    Raises:
        EngineError: A size of the plan depends on what no feed gives, or a constant does not fit.
    """

    def __init__(
        self, plan: Plan, code: Code, constants: Sequence[NDArray[Any]], threads: int
    ) -> None:
        self.plan, self._code = plan, code
        self.tape = Tape()
        self.threads = threads
        self.constants = _checked(plan, constants)
        self._tables: list[Words] = []
        self._words = aligned_words(IMAGE.words)
        self._words[IMAGE["array_type"]] = id(np.ndarray)
        self._words[IMAGE["threads"]] = threads
        #: (input, axis) of each axis, and the slot of its expected size.
        self.axes: list[tuple[int, int, int]] = []
        self.guards = [*plan.guards, *self._size_guards()]
        self._add_inputs()
        self._add_buffers()
        self._add_commands()
        self._table(
            "guards", ((self.tape.slot(g.left), self.tape.slot(g.right)) for g in self.guards)
        )
        self.output_slots = [
            np.array([self.tape.slot(d) for d in x.dims], np.intp) for x in plan.outputs
        ]
        self._table("tape", self.tape.instructions)
        missing = sorted(set(self.tape.symbols) - self._bound)
        if missing:
            what = f"No input's axis gives {', '.join(missing)} a value"
            raise EngineError(message("plan", what))
        self.address = address_of(self._words)

    def _table(self, name: str, rows: Iterable[Sequence[int] | int]) -> None:
        table = np.array([*rows], np.int64).reshape(-1)
        count = len(table)
        listed = np.ascontiguousarray(table) if count else np.zeros(1, np.int64)
        self._tables.append(listed)
        self._words[IMAGE[name]] = address_of(listed)
        self._words[IMAGE[name] + 1] = count // _WIDTHS.get(name, 1)

    def _size_guards(self) -> list[Guard]:
        """Buffers of others must be as large as the plan says."""
        plan, guards = self.plan, []
        for buffer in plan.buffers:
            if buffer.kind == "input":
                actual: Dim = plan.size_of(plan.inputs[buffer.number])
            elif buffer.kind == "output":
                actual = plan.size_of(plan.outputs[buffer.number])
            elif buffer.kind == "constant":
                actual = self.constants[buffer.number].nbytes
            else:
                continue
            larger = sizes.maximum(buffer.size_bytes, actual)
            if larger != actual:
                reason = f"{buffer.kind} {buffer.number} must hold {buffer.size_bytes!r} bytes"
                guards.append(Guard(larger, actual, reason))
        return guards

    def _add_inputs(self) -> None:
        # Feeds that nothing uses are bound too; their addresses go to a word behind the buffers.
        unused = len(self.plan.buffers)
        places = {b.number: k for k, b in enumerate(self.plan.buffers) if b.kind == "input"}
        if len(places) != sum(b.kind == "input" for b in self.plan.buffers):
            raise EngineError(message("plan", "An input has two buffers"))
        inputs, binds, self._bound = [], [], set[str]()
        for number, spec in enumerate(self.plan.inputs):
            inputs.append(
                (id(spec.dtype.numpy), len(spec.dims), len(self.axes), places.get(number, unused))
            )
            for axis, dim in enumerate(spec.dims):
                atom = sizes.as_atom(dim)
                if atom is not None and atom.kind == "symbol" and atom.name not in self._bound:
                    self._bound.add(atom.name)
                    binds.append((len(self.axes), self.tape.symbol(atom.name)))
                self.axes.append((number, axis, self.tape.slot(dim)))
        self._table("inputs", inputs)
        self._table("binds", binds)
        self._table("axes", (slot for _, _, slot in self.axes))

    def _add_buffers(self) -> None:
        plan = self.plan
        self._table("buffers", (self.tape.slot(b.size_bytes) for b in plan.buffers))
        arena = [(k, b) for k, b in enumerate(plan.buffers) if b.kind == "arena"]
        # A buffer ends before those of the next command begin.
        events = [(b.first, 1, k) for k, b in arena] + [(b.last + 1, 0, -1 - k) for k, b in arena]
        self._table("events", (event for _, _, event in sorted(events)))
        outputs = {b.number: k for k, b in enumerate(plan.buffers) if b.kind == "output"}
        self._table("outputs", (outputs[k] for k in range(len(plan.outputs))))

    def _add_commands(self) -> None:
        tape, commands = self.tape, []
        moving: list[tuple[int, int, int]] = []
        resting: list[tuple[int, int, int]] = []
        numbers, first = [], 0
        bits: dict[int, int] = {}
        for command in self.plan.commands:
            address = self._code.address(command.kernel)
            slots = (tape.slot(x) for x in (command.blocks, command.cost_ns, command.scratch_bytes))
            commands.append((address, first, *slots))
            for position, argument in enumerate(command.arguments, first):
                if isinstance(argument, PointerArgument):
                    kind = self.plan.buffers[argument.buffer].kind
                    chosen = moving if kind in ("input", "output") else resting
                    chosen.append((position, argument.buffer, tape.slot(argument.offset_bytes)))
                elif isinstance(argument, BitsArgument):
                    bits[position] = argument.bits
                elif isinstance(argument.value, int):
                    bits[position] = argument.value & (1 << 64) - 1
                else:
                    numbers.append((position, tape.slot(argument.value)))
            # Argument blocks do not share cache lines with what others write.
            first += max(1, -(-len(command.arguments) // 8)) * 8
        self._table("commands", commands)
        self._table("pointers", [*moving, *resting])
        self._words[IMAGE["dynamic_count"]] = len(moving)
        self._table("numbers", numbers)
        #: Initial content of the argument slots.
        self.arguments = np.zeros(first, np.int64)
        for position, value in bits.items():
            self.arguments[position] = value - (1 << 64) if value >> 63 else value

    def buffers_of(self, kind: str) -> list[tuple[int, int]]:
        """(buffer, number) of the buffers of a kind."""
        return [(k, b.number) for k, b in enumerate(self.plan.buffers) if b.kind == kind]


_WIDTHS = {
    "inputs": 4, "binds": 2, "tape": 4, "guards": 2, "commands": 5, "pointers": 3, "numbers": 2,
}  # fmt: skip


def _checked(plan: Plan, constants: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    if len(constants) < plan.constant_count:
        what = f"There are {len(constants)} constants where {plan.constant_count} are used"
        raise EngineError(message("plan", what))
    for number, array in enumerate(constants):
        if not array.flags.c_contiguous:
            raise EngineError(message("plan", f"Constant {number} is not contiguous"))
    return list(constants)
