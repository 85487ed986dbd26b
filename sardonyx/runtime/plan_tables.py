"""What all frames of one executable share, as tables that native code reads."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sardonyx.base import sizes
from sardonyx.base.errors import ContradictingSizes, EngineError, InvalidArgument, message
from sardonyx.base.sizes import Dim
from sardonyx.native.layout import (
    COMMAND,
    ENTER,
    GROW,
    HOST,
    IMAGE,
    JUMP,
    JUMP_IF_LESS,
    JUMP_UNLESS,
    LARGEST_BYTES,
    LAUNCH,
    ROW_WORDS,
    SEGMENT,
    SET,
    TOGETHER,
)
from sardonyx.plan.host_epilogue import epilogue_commands
from sardonyx.plan.plan import BitsArgument, Command, Guard, Plan, PointerArgument
from sardonyx.plan.steps import Enter, Grow, Jump, JumpIfLess, JumpUnless, SetSize, Step, Together
from sardonyx.plan.tape import Tape
from sardonyx.runtime.arena import Words, address_of, aligned_words
from sardonyx.runtime.plan_checks import checked, size_guards
from sardonyx.runtime.team import Team
from sardonyx.tensor.assumptions import is_left_to_the_run

Row = TypeVar("Row")


class PlanCode(Protocol):
    """Compiled kernels: `LoadedCode`, or several of them as one."""

    def address(self, symbol: str) -> int:
        """The address of a kernel."""


class PlanTables:
    """Tables of a plan.

    Args:
        plan: The plan.
        code: Its kernels.
        constants: Arrays behind its constants; they stay where they are while the image lives.
        team: How threads share a run.
        remote: Addresses of the constants on a device, where kernels are launched. There a
            kernel's arguments follow the number of its blocks, so that the device can read both.
        hosted: Numbers of commands at which native code stops, for the host to do them.

    Raises:
        EngineError: A size of the plan depends on what no feed gives, or a constant does not fit.
    """

    def __init__(
        self,
        plan: Plan,
        code: PlanCode,
        constants: Sequence[NDArray[Any]],
        team: Team,
        remote: Sequence[int] | None = None,
        hosted: Collection[int] = (),
    ) -> None:
        self.plan, self.code = plan, code
        self.tape = Tape(plan.segments)
        self.team = team
        self.constants = checked(plan, constants)
        self._is_remote, self.hosted = remote is not None, hosted
        #: Where the constants lie.
        self.addresses = [*map(address_of, self.constants)] if remote is None else list(remote)
        self._tables: dict[str, Words] = {}
        self._words = aligned_words(IMAGE.words)
        self._words[IMAGE["array_type"]] = id(np.ndarray)
        self._words[IMAGE["threads"]] = team.threads
        self._words[IMAGE["branches"]] = team.branches
        self._words[IMAGE["share"]] = team.share
        self._bound: set[str] = set()
        #: (input, axis) of each axis, and the slot of its expected size.
        self.axes: list[tuple[int, int, int]] = []
        #: What must hold, as numbered by the native code.
        self.guards: list[Guard] = []
        #: Measured symbols, as numbered by the native code.
        self.measures = [m for segment in plan.segments for m in segment.measures]
        #: For each segment, the outputs that get memory when it is entered.
        self.later: list[list[int]] = [[] for _ in plan.segments]
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        self._parts: list[tuple[int, int, int]] = []
        self._reads: list[set[int]] = [set() for _ in plan.segments]
        self._add_inputs()
        self._add_measures()
        self._add_outputs()
        self._add_buffers()
        self._add_commands()
        self._add_guards()
        self._add_tape()
        self._add_segments()
        self.address = address_of(self._words)

    def _by_segment(self, name: str, rows: Iterable[tuple[int, Row]]) -> list[Row]:
        """Write (segment, row) pairs as a table sorted by segment; gives it back in that order."""
        parts: list[list[Row]] = [[] for _ in self.plan.segments]
        for segment, row in rows:
            parts[segment].append(row)
        ends = [*itertools.accumulate(map(len, parts))]
        self._ranges[name] = list(zip([0, *ends], ends, strict=False))
        return list(itertools.chain.from_iterable(parts))

    def _slot(self, dim: Dim, segment: int) -> int:
        return self.tape.slot(dim, segment)

    def _segment_of(self, *slots: int) -> int:
        """The segment in which the last of some slots gets its value."""
        return max(self.tape.segment_of[slot] for slot in slots)

    def _table(self, name: str, rows: Iterable[Sequence[int] | int]) -> None:
        table = np.array([*rows], np.int64).reshape(-1)
        count = len(table)
        listed = np.ascontiguousarray(table) if count else np.zeros(1, np.int64)
        self._tables[name] = listed
        self._words[IMAGE[name]] = address_of(listed)
        self._words[IMAGE[name] + 1] = count // ROW_WORDS.get(name, 1)

    def _add_guards(self) -> None:
        rows = []
        for guard in (*self.plan.guards, *size_guards(self.plan, self.constants)):
            # A guard is looked at where it belongs, even if its sides are known before.
            slots = (self._slot(guard.left, guard.segment), self._slot(guard.right, guard.segment))
            rows.append((guard.segment, (guard, slots)))
        ordered = self._by_segment("guards", rows)
        self.guards = [guard for guard, _ in ordered]
        self._table("guards", (slots for _, slots in ordered))
        for segment, (_, slots) in rows:
            self._note_reads(segment, *slots)

    def misfit(
        self, slots: Words, segment: int, failed: Guard | None = None
    ) -> type[InvalidArgument]:
        """The error for sizes that cannot be: ContradictingSizes if a general plan may do better.

        It may where an assumption that it does without does not hold, or is not known to. `slots`
        are known for segments before `segment`, and for it if a guard of its `failed`.
        """
        for guard in self.guards:
            if is_left_to_the_run(guard.reason):
                left, right = (self._slot(d, guard.segment) for d in (guard.left, guard.right))
                known = guard.segment < segment + (failed is not None)
                if not known or slots[left] != slots[right]:
                    return ContradictingSizes
        return InvalidArgument

    def _add_inputs(self) -> None:
        # Feeds that nothing uses are bound too; their addresses go to a word behind the buffers.
        unused = len(self.plan.buffers)
        places = {b.number: k for k, b in enumerate(self.plan.buffers) if b.kind == "input"}
        if len(places) != sum(b.kind == "input" for b in self.plan.buffers):
            raise EngineError(message("plan", "An input has two buffers"))
        inputs, binds = [], []
        for number, spec in enumerate(self.plan.inputs):
            inputs.append(
                (id(spec.dtype.stored), len(spec.dims), len(self.axes), places.get(number, unused))
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

    def _add_measures(self) -> None:
        rows = []
        for number, segment in enumerate(self.plan.segments):
            before = max(segment.parent, 0)
            self._bound.update(segment.counters)
            for m in segment.measures:
                self._bound.add(m.symbol)
                places = [self._slot(d, before) for d in (m.offset_bytes, m.low, m.high)]
                rows.append((number, (self.tape.symbol(m.symbol), m.buffer, *places)))
        self._table("measures", self._by_segment("measures", rows))

    def _add_outputs(self) -> None:
        plan = self.plan
        buffers = {b.number: k for k, b in enumerate(plan.buffers) if b.kind == "output"}
        #: Slots of each output's sizes.
        self.output_slots: list[Words] = []
        first: list[tuple[int, ...]] = []
        shapes: list[int] = []
        for number, spec in enumerate(plan.outputs):
            slots = [self._slot(d, spec.segment) for d in spec.dims]
            self.output_slots.append(np.array(slots, np.intp))
            segment = spec.segment
            self.later[segment].append(number)
            if segment == 0:
                descr = id(spec.dtype.stored)
                first.append((len(first), buffers[number], descr, len(slots), len(shapes)))
                shapes += slots
        #: Buffer of each output.
        self.output_buffers = buffers
        self._table("outputs", first)
        self._table("shapes", shapes)

    def _add_buffers(self) -> None:
        sized, events = [], []
        slots = []
        for number, buffer in enumerate(self.plan.buffers):
            # How large a growing buffer is, its capacity says.
            size = LARGEST_BYTES if buffer.kind == "grown" else buffer.size_bytes
            slot = self._slot(size, buffer.segment)
            segment = self._segment_of(slot)
            slots.append(slot)
            sized.append((segment, number))
            if buffer.kind == "arena":
                # A buffer ends before those of the next command begin.
                events.append((segment, (buffer.first, 1, number)))
                events.append((segment, (buffer.last + 1, 0, -1 - number)))
        self._buffer_segments = [0] * len(slots)
        for segment, number in sized:
            self._buffer_segments[number] = segment
            self._note_reads(segment, slots[number])
        #: Slots of the sizes of buffers, in bytes.
        self.buffer_slots = slots
        self._table("buffers", slots)
        self._table("sized", self._by_segment("sized", sized))
        self._table("events", (event for _, _, event in self._by_segment("events", sorted(events))))

    def _note_reads(self, segment: int, *slots: int) -> None:
        self._reads[segment].update(self.tape.segment_of[slot] for slot in slots)

    def _add_commands(self) -> None:
        commands: list[tuple[int, ...]] = []
        scheduled: list[tuple[int, int]] = []
        moving: list[tuple[int, tuple[int, int, int]]] = []
        resting: list[tuple[int, tuple[int, int, int]]] = []
        numbers, first = [], 0
        #: Where the arguments of each command begin.
        self.argument_places: dict[int, int] = {}
        bits: dict[int, int] = {}
        for number, command in enumerate(self.plan.commands):
            if not isinstance(command, Command):
                commands.append((0, *self._step(command)))
                continue
            here, start = command.segment, first
            if command.host is not None:
                commands.append((0, HOST, 0, 0, 0))
            else:
                sized = (command.blocks, command.cost_ns, command.scratch_bytes)
                slots = tuple(self._slot(x, here) for x in sized)
                if self._is_remote:
                    numbers.append((self._segment_of(slots[0]), (first, slots[0])))
                    first += 1
                    commands.append((0, HOST if number in self.hosted else LAUNCH, *slots))
                else:
                    commands.append((self.code.address(command.kernel), first, *slots))
                segment = self._segment_of(*slots)
                scheduled.append((segment, number))
                self._note_reads(segment, *slots)
            self.argument_places[number] = first
            for position, argument in enumerate(command.arguments, first):
                if isinstance(argument, PointerArgument):
                    offset = self._slot(argument.offset_bytes, here)
                    if self._buffer_segments[argument.buffer] not in self.tape.chains[here]:
                        what = f"Buffer {argument.buffer} is not known in segment {here}"
                        raise EngineError(message("plan", what))
                    segment = max(self._segment_of(offset), self._buffer_segments[argument.buffer])
                    kind = self.plan.buffers[argument.buffer].kind
                    chosen = moving if kind in ("input", "output") else resting
                    chosen.append((segment, (position, argument.buffer, offset)))
                    self._note_reads(segment, offset)
                    self._reads[segment].add(self._buffer_segments[argument.buffer])
                elif isinstance(argument, BitsArgument):
                    bits[position] = argument.bits
                elif isinstance(argument.value, int):
                    bits[position] = argument.value & (1 << 64) - 1
                else:
                    slot = self._slot(argument.value, here)
                    numbers.append((self._segment_of(slot), (position, slot)))
                    self._note_reads(self._segment_of(slot), slot)
            # Argument blocks do not share cache lines with what others write.
            used = first + len(command.arguments) - start
            first = start + max(1, -(-used // 8)) * 8
        self._table("scheduled", self._by_segment("scheduled", scheduled))
        for number, command in enumerate(self.plan.commands):
            if isinstance(command, Together) and not self._may_walk_together(command):
                commands[number] = (0, JUMP, number + 1, 0, 0)
        self._table("commands", commands)
        #: Whether the first segment brings the shapes of all results, and no host takes part.
        self.is_known = (
            not self._is_remote and not self.plan.has_objects and not any(self.later[1:])
        )
        #: Whether the host has objects, but takes part at the end alone.
        self.ends_on_host = (
            not self._is_remote
            and self.plan.has_objects
            and epilogue_commands(self.plan) is not None
        )
        self._table("parts", self._parts)
        #: Arguments in feeds and results: place, buffer, and the slot of the bytes from its start.
        self.moving = [row for _, row in moving]
        self._add_pointers(moving, resting)
        self._table("numbers", self._by_segment("numbers", numbers))
        #: Initial content of the argument slots.
        self.arguments = np.zeros(first, np.int64)
        for position, value in bits.items():
            self.arguments[position] = value - (1 << 64) if value >> 63 else value

    def _add_pointers(
        self,
        moving: list[tuple[int, tuple[int, int, int]]],
        resting: list[tuple[int, tuple[int, int, int]]],
    ) -> None:
        """One table: pointers to feeds and results, the others, and those to growing buffers."""
        rows = self._by_segment("moving", moving)
        start = len(rows)
        rows += self._by_segment("resting", resting)
        self._ranges["resting"] = [(a + start, b + start) for a, b in self._ranges["resting"]]
        grown = []
        for number, buffer in enumerate(self.plan.buffers):
            if buffer.kind == "grown":
                own = [row for _, row in resting if row[1] == number]
                grown.append((buffer.number, (number, len(rows), len(rows) + len(own))))
                rows += own
        self._table("pointers", rows)
        self._table("grown", (row for _, row in sorted(grown)))

    def _may_walk_together(self, step: Together) -> bool:
        """Whether no part stops for the host, asks for memory, or changes what a run needs."""
        bare = ("measures", "events", "scheduled")
        for part in step.parts:
            for command in self.plan.commands[part.first : part.end]:
                if isinstance(command, Grow):
                    return False
                if isinstance(command, Command) and (self._is_remote or command.host is not None):
                    return False
                if isinstance(command, Enter):
                    ranges = (self._ranges[name][command.segment] for name in bare)
                    if self.later[command.segment] or any(a < b for a, b in ranges):
                        return False
        return True

    @property
    def part_count(self) -> int:
        """Parts of the plan that may be walked together."""
        return len(self._parts)

    def _step(self, step: Step) -> tuple[int, int, int, int]:
        """A step's number and its three words."""
        match step:
            case Enter(segment):
                return ENTER, segment, 0, 0
            case Jump(target):
                return JUMP, target, 0, 0
            case JumpUnless(buffer, target, offset, segment):
                return JUMP_UNLESS, buffer, target, self._slot(offset, segment)
            case JumpIfLess(left, right, target, segment):
                return JUMP_IF_LESS, self._slot(left, segment), self._slot(right, segment), target
            case SetSize(symbol, value, owner, segment):
                return SET, self.tape.symbol(symbol), self._slot(value, segment), owner
            case Together(parts, segment):
                first = len(self._parts)
                self._parts += [(p.first, p.end, self._slot(p.trips, segment)) for p in parts]
                return TOGETHER, first, len(parts), 0
            case Grow(buffer, size, keep, segment):
                number = self.plan.buffers[buffer].number
                return GROW, number, self._slot(size, segment), self._slot(keep, segment)

    def _add_tape(self) -> None:
        self._table("tape", self.tape.instructions)
        self._ranges["tape"] = self.tape.ranges
        for segment, (first, end) in enumerate(self.tape.ranges):
            for _, _, left, right in self.tape.instructions[first:end]:
                self._note_reads(segment, left, right)
        missing = sorted(set(self.tape.symbols) - self._bound)
        if missing:
            what = f"No input's axis gives {', '.join(missing)} a value"
            raise EngineError(message("plan", what))

    def _add_segments(self) -> None:
        needed = [
            (number, before)
            for number, reads in enumerate(self._reads)
            for before in sorted(reads - {number})
        ]
        self._table("needed", self._by_segment("needed", needed))
        order = [name for name in SEGMENT.names if name != "later" and not name.endswith("_end")]
        rows = []
        for number, later in enumerate(self.later):
            ranges = [bound for name in order for bound in self._ranges[name][number]]
            rows.append([*ranges, int(number > 0 and bool(later))])
        self._table("segments", rows)

    def through(self, function: int) -> tuple[PlanTables, Words]:
        """The same with the address `function` in place of those of all kernels; and those."""
        made = copy.copy(self)
        commands = self._tables["commands"].copy()
        rows = commands[: len(self.plan.commands) * COMMAND.words].reshape(-1, COMMAND.words)
        kernels = np.append(rows[:, COMMAND["kernel"]], 0)
        rows[rows[:, COMMAND["kernel"]] != 0, COMMAND["kernel"]] = function
        made._tables = {**self._tables, "commands": commands}
        made._words = aligned_words(IMAGE.words)
        made._words[:] = self._words
        made._words[IMAGE["commands"]] = address_of(commands)
        made.address = address_of(made._words)
        return made, kernels

    def rows(self, table: str, segment: int) -> list[list[int]]:
        """The rows of a table that belong to a segment."""
        name = "pointers" if table in ("moving", "resting") else table
        width = ROW_WORDS.get(name, 1)
        first, end = self._ranges[table][segment]
        part = self._tables[name][first * width : end * width].reshape(-1, width)
        return [[int(word) for word in row] for row in part]

    def first_row(self, table: str, segment: int) -> int:
        """The number of the first of these rows."""
        return self._ranges[table][segment][0]

    def size_slot(self, buffer: int) -> int:
        """The slot of a buffer's size."""
        return int(self._tables["buffers"][buffer])

    def buffer_segment(self, buffer: int) -> int:
        """The segment from which a buffer's size is known."""
        return self._buffer_segments[buffer]

    def slots_of(self, number: int) -> tuple[int, int]:
        """The slots of a command's blocks, and of what it works in."""
        row = self._tables["commands"].reshape(-1, COMMAND.words)[number]
        return int(row[COMMAND["blocks"]]), int(row[COMMAND["scratch"]])

    def buffers_of(self, kind: str) -> list[tuple[int, int]]:
        """(buffer, number) of the buffers of a kind."""
        return [(k, b.number) for k, b in enumerate(self.plan.buffers) if b.kind == kind]
