"""The branches and loops of a plan as a tree, for a device that decides by itself where to go.

A plan's commands lie in a row with jumps between them, as `compiler.assembler` writes them. A graph
of a device has no jumps: it has nodes with graphs of their own that are done if a value is not 0,
or while it is. What decides, and what follows for sizes and addresses, is a *control step*: a
kernel of one thread block that takes the place of the steps in between.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from sardonyx.base.records import dataclass
from sardonyx.plan.plan import Command, Plan
from sardonyx.plan.steps import Enter, Grow, Jump, JumpIfLess, JumpUnless, SetSize, Together

#: Parameters of a control step: the tables on the device, a word that is not 0 once something is
#: wrong, and what the driver calls its two conditions, or 0.
TABLES = ("slots", "bases", "arguments", "halt")
HANDLES = ("first", "second")
#: Faults of control steps, beside those of `kernel.language.context`: a guard, a measured value, a
#: size, an argument. What they belong to is added to the code.
_KIND = 1 << 40
GUARD, MEASURE, SIZE, OFFSET = (_KIND * k for k in range(1, 5))


class NotOnDevice(Exception):
    """A plan that a device cannot control; the text says why."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What a control step decides.

    Attributes:
        flag: The command with the condition; None if there is none.
        trips: The command that compares a counter; None if there is none.
        then: Steps that follow if both let the run in, by number.
        otherwise: Steps that follow if not.
    """

    flag: int | None
    trips: int | None
    then: tuple[int, ...]
    otherwise: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlSteps:
    """Steps that no kernel lies between, and what is decided then.

    Attributes:
        number: Of the control step.
        command: Of its first step; faults name it.
        steps: `SetSize` and `Enter` steps, by number.
        gate: What is decided; None if nothing is.
    """

    number: int
    command: int
    steps: tuple[int, ...]
    gate: Gate | None = None

    @property
    def name(self) -> str:
        """Of its kernel."""
        return f"turn_{self.number}"


@dataclass(frozen=True, slots=True)
class Launch:
    """A command."""

    command: int


@dataclass(frozen=True, slots=True)
class ControlChoice:
    """A branch: what is done if the control step lets the run in, and if not."""

    control: ControlSteps
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: `first` decides whether it begins, `last`, behind the body, whether it goes on."""

    first: ControlSteps
    body: tuple[Node, ...]
    last: ControlSteps


@dataclass(frozen=True, slots=True)
class ParallelParts:
    """Parts of which none needs another."""

    parts: tuple[tuple[Node, ...], ...]


Node = Launch | ControlSteps | ControlChoice | Loop | ParallelParts


def fault_of_control(code: int) -> tuple[int, int]:
    """The kind of a fault, and the number of what it belongs to; 0 if no control step has it."""
    return code // _KIND * _KIND, code % _KIND


def hoisted(plan: Plan) -> Plan:
    """The plan with all sizes that no trip changes worked out before the run begins.

    Those of branches, too, though a run may pass them by: if one of them cannot be, the run is
    none for this plan.
    """
    segments = tuple(replace(s, conditional=False) for s in plan.segments)
    return replace(plan, segments=segments)


def commands_in_loops(plan: Plan) -> list[int]:
    """Numbers of the commands that a run may do more than once."""
    found: set[int] = set()
    for number, command in enumerate(plan.commands):
        if isinstance(command, (Jump, JumpIfLess)) and command.target <= number:
            found.update(range(command.target, number))
    return [k for k in sorted(found) if isinstance(plan.commands[k], Command)]


def stretches_of(plan: Plan, apart: Container[int], least: int) -> list[range]:
    """Commands in a row, done once in a run at most, with nothing between them.

    Args:
        plan: A plan that the host controls.
        apart: Numbers of commands that are in none.
        least: How many commands one has at least.
    """
    kept = (Jump, JumpUnless, JumpIfLess)
    targets = {c.target for c in plan.commands if isinstance(c, kept)}
    again = set(commands_in_loops(plan))
    found: list[range] = []
    first = 0
    for number, command in enumerate([*plan.commands, None]):
        goes_on = isinstance(command, Command) and command.host is None
        goes_on = goes_on and number not in again and number not in apart
        if not goes_on or number in targets:
            if number - first >= least:
                found.append(range(first, number))
            first = number if goes_on else number + 1
    return found


def tree_of(plan: Plan) -> tuple[tuple[Node, ...], tuple[ControlSteps, ...]]:
    """The nodes of a plan, and all control steps in them in order.

    Raises:
        NotOnDevice: Something grows, is done by the host, or is not where it is known to be.
    """
    reader = _Reader(plan)
    nodes = reader.nodes(0, len(plan.commands))
    return nodes, tuple(reader.controls)


class _Reader:
    def __init__(self, plan: Plan) -> None:
        self.commands = plan.commands
        self.controls: list[ControlSteps] = []

    def nodes(self, first: int, end: int) -> tuple[Node, ...]:
        """What the commands from `first` up to `end` do."""
        found: list[Node] = []
        steps: list[int] = []
        at = first
        while at < end:
            command = self.commands[at]
            match command:
                case Command():
                    if command.host is not None:
                        raise NotOnDevice(f"{command.where} is done by the host")
                    if steps:
                        found.append(self._control(steps))
                        steps = []
                    found.append(Launch(at))
                    at += 1
                case SetSize() | Enter():
                    steps.append(at)
                    at += 1
                case Together(parts) if len(parts) > 1:
                    if steps:
                        found.append(self._control(steps))
                        steps = []
                    found.append(ParallelParts(tuple(self.nodes(p.first, p.end) for p in parts)))
                    at = parts[-1].end
                case Together():
                    at += 1
                case JumpIfLess() | JumpUnless() if (begin := self._loop_at(at)) is not None:
                    loop, at = self._loop(at, begin, steps)
                    found.append(loop)
                    steps = []
                case JumpUnless():
                    choice, at = self._choice(at, steps)
                    found.append(choice)
                    steps = []
                case Grow():
                    raise NotOnDevice("a value grows from trip to trip, or differs in size")
                case _:
                    raise NotOnDevice(f"step {at} leads to where nothing is known to begin")
        if steps:
            found.append(self._control(steps))
        return tuple(found)

    def _control(
        self, steps: list[int], gate: Gate | None = None, command: int = -1
    ) -> ControlSteps:
        first = steps[0] if steps else command
        made = ControlSteps(len(self.controls), first, tuple(steps), gate)
        self.controls.append(made)
        return made

    def _leading(self, first: int, end: int) -> tuple[int, ...]:
        """The steps that a part of the plan begins with."""
        at = first
        while at < end and isinstance(self.commands[at], (SetSize, Enter)):
            at += 1
        return tuple(range(first, at))

    def _loop_at(self, at: int) -> int | None:
        """Where the test of a loop's first trip is, if a loop begins at `at`."""
        listed = [*self.commands[at : at + 3], None, None]
        command, following, leave = listed[:3]
        if isinstance(command, JumpIfLess) and isinstance(following, Jump):
            return at if command.target == at + 2 < following.target else None
        if isinstance(command, JumpUnless) and isinstance(leave, Jump):
            is_one = leave.target == command.target and self._loop_at(at + 1) is not None
            return at + 1 if is_one else None
        return None

    def _loop(self, at: int, test: int, steps: list[int]) -> tuple[Loop, int]:
        begin, leave = test + 2, self.commands[test + 1]
        assert isinstance(leave, Jump)  # noqa: S101 - `_loop_at` has looked
        end = leave.target
        back = self.commands[end - 1]
        if not isinstance(back, JumpIfLess) or back.target != begin:
            raise NotOnDevice(f"the loop at step {at} does not go back where it begins")
        last = end - 1
        exit_ = self.commands[last - 1]
        flag = None
        if isinstance(exit_, JumpUnless) and exit_.target == end:
            flag = last = last - 1
        entering = self._leading(begin, last)
        first = self._control(steps, Gate(at if at < test else None, test, entering), at)
        closing = last
        while closing > begin + len(entering) and isinstance(self.commands[closing - 1], SetSize):
            closing -= 1
        body = self.nodes(begin + len(entering), closing)
        again = self._control([*range(closing, last)], Gate(flag, end - 1, entering), last)
        return Loop(first, body, again), end

    def _choice(self, at: int, steps: list[int]) -> tuple[ControlChoice, int]:
        jump = self.commands[at]
        assert isinstance(jump, JumpUnless)  # noqa: S101 - the caller has looked
        middle = jump.target
        skip = self.commands[middle - 1]
        if not isinstance(skip, Jump) or not at < middle <= skip.target:
            raise NotOnDevice(f"the branch at step {at} does not end where it is known to")
        end = skip.target
        closing = self.commands[end - 1]
        if not isinstance(closing, Jump) or closing.target != end:
            raise NotOnDevice(f"the branch at step {at} does not end where it is known to")
        arms = (at + 1, middle - 1), (middle, end - 1)
        leading = [self._leading(*arm) for arm in arms]
        control = self._control(steps, Gate(at, None, *leading), at)
        then, otherwise = (
            self.nodes(first + len(skipped), last)
            for (first, last), skipped in zip(arms, leading, strict=True)
        )
        return ControlChoice(control, then, otherwise), end
