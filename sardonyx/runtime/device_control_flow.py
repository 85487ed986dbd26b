"""Kernels by which a device controls a run: the control steps of a plan, and whether they suffice.

The host controls by a walk over a plan's steps, with a tape of sizes beside it. Here each control
step of `plan.control_flow` becomes a kernel that does the same to a copy of the frame's tables in
the device's memory: slots of sizes, addresses of buffers, arguments of kernels. Memory is what the
host has packed before the run, so no size of a buffer may be the run's to decide.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from sardonyx.base.records import dataclass
from sardonyx.kernel.language.program import Program
from sardonyx.plan.control_flow import (
    ControlChoice,
    ControlSteps,
    Launch,
    Loop,
    Node,
    NotOnDevice,
    ParallelParts,
    hoisted,
    tree_of,
)
from sardonyx.plan.plan import Command, Plan
from sardonyx.plan.steps import Enter, JumpIfLess
from sardonyx.runtime.arena import Words
from sardonyx.runtime.control_kernels import kernel_of
from sardonyx.runtime.largest import writer_of
from sardonyx.runtime.plan_tables import PlanTables
from sardonyx.runtime.team import Team

#: A round of a loop takes the device some microseconds beside its kernels, so it has so many trips:
#: the most that leave none over. Each number needs a graph of its own, of so many kernels at most.
_TRIPS, _MOST_NODES = (10, 8, 5, 4), 80


@dataclass(frozen=True, slots=True)
class DeviceControlFlow:
    """How a device controls a plan.

    Attributes:
        plan: The plan, hoisted.
        nodes: What is done.
        controls: Those in the nodes.
        programs: A kernel for each control step.
        checked: Numbers of control steps that may find something wrong: then nothing may follow.
        unscheduled: Commands that the host does not schedule, since what they cost depends on the
            trip.
        varying: Commands whose blocks or arguments control steps decide.
        lanes: For commands that others may run beside, which of the lanes each has; 0 for the rest.
        counted: Loops whose trips are known when a run begins, by the number of their last control
            step: the slot of the trips, and how many trips a round may have.
    """

    plan: Plan
    nodes: tuple[Node, ...]
    controls: tuple[ControlSteps, ...]
    programs: tuple[Program, ...]
    checked: frozenset[int]
    unscheduled: tuple[int, ...]
    varying: frozenset[int]
    lanes: Mapping[int, int]
    counted: Mapping[int, tuple[int, int]]

    def trips_by_round(self, slots: Words) -> dict[int, int]:
        """How many trips each round of such a loop has: as many each time, so none needs a test."""
        found = {}
        for control, (slot, most) in self.counted.items():
            trips = int(slots[slot])
            fitting = (k for k in _TRIPS if k <= most and trips and trips % k == 0)
            found[control] = next(fitting, 1)
        return found

    @property
    def has_loops(self) -> bool:
        """Whether runs may take any time."""
        return any(
            control.gate is not None and control.gate.trips is not None for control in self.controls
        )


def control_flow_of(plan: Plan) -> DeviceControlFlow:
    """How a device controls a plan.

    Raises:
        NotOnDevice: It cannot; the text says why.
    """
    nodes, controls = tree_of(plan)
    plan = hoisted(plan)
    image = _tables_of(plan)
    _check_sizes(plan, image)
    inner = range(1, len(plan.segments))
    changed = {
        row[0]
        for segment in inner
        for table in ("moving", "resting", "numbers")
        for row in image.rows(table, segment)
    }
    varying = set()
    for number, first in image.argument_places.items():
        command = plan.commands[number]
        assert isinstance(command, Command)  # noqa: S101 - steps have no arguments
        # In front of the arguments there is the number of blocks.
        if not changed.isdisjoint(range(first - 1, first + len(command.arguments))):
            varying.add(number)
    unscheduled = [row[0] for segment in inner for row in image.rows("scheduled", segment)]
    lanes: dict[int, int] = {}
    nodes = _laned(nodes, image, lanes, itertools.count(1), 0)
    kernels = [kernel_of(control, image) for control in controls]
    return DeviceControlFlow(
        plan, nodes, controls, tuple(program for program, _ in kernels),
        frozenset(k for k, (_, is_checked) in enumerate(kernels) if is_checked), tuple(unscheduled),
        frozenset(varying), lanes, dict(_counted(nodes, plan, image)),
    )  # fmt: skip


def commands_of(nodes: Iterable[Node]) -> Iterator[int]:
    """The commands in nodes."""
    for node in nodes:
        match node:
            case Launch(command):
                yield command
            case Loop(_, body, _):
                yield from commands_of(body)
            case ControlChoice(_, then, otherwise):
                yield from commands_of((*then, *otherwise))
            case ParallelParts(parts):
                yield from commands_of(itertools.chain.from_iterable(parts))


def _laned(
    nodes: tuple[Node, ...],
    image: PlanTables,
    lanes: dict[int, int],
    fresh: Iterator[int],
    lane: int,
) -> tuple[Node, ...]:
    """The nodes, with a lane for each command; parts in a row that may not run side by side."""
    found: list[Node] = []
    for node in nodes:
        match node:
            case Launch(command):
                lanes[command] = lane
                found.append(node)
            case Loop(first, body, last):
                found.append(Loop(first, _laned(body, image, lanes, fresh, lane), last))
            case ControlChoice(control, then, otherwise):
                sides = (_laned(side, image, lanes, fresh, lane) for side in (then, otherwise))
                found.append(ControlChoice(control, *sides))
            case ParallelParts(parts):
                # What kernels work in belongs to warps by their numbers in a grid.
                working = [any(_works(k, image) for k in commands_of(part)) for part in parts]
                if sum(working) > 1:
                    for part in parts:
                        found += _laned(part, image, lanes, fresh, lane)
                    continue
                others = [lane, *(next(fresh) for _ in parts[1:])]
                laned = (
                    _laned(part, image, lanes, fresh, own)
                    for part, own in zip(parts, others, strict=True)
                )
                found.append(ParallelParts(tuple(laned)))
            case ControlSteps():
                found.append(node)
    return tuple(found)


def _counted(
    nodes: Iterable[Node], plan: Plan, image: PlanTables
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Loops that end when no trips are left, and not before; see `DeviceControlFlow.counted`."""
    for node in nodes:
        match node:
            case Loop(_, body, last) if last.gate is not None:
                yield from _counted(body, plan, image)
                test = plan.commands[last.gate.trips or 0]
                entered = [plan.commands[k] for k in last.gate.then]
                guards = [
                    slot
                    for step in entered
                    if isinstance(step, Enter)
                    for row in image.rows("guards", step.segment)
                    for slot in row
                ]
                most = _MOST_NODES // (1 + sum(1 for _ in commands_of(body)))
                # What no trip changes holds in all of them, if it does in the first one.
                if (
                    isinstance(test, JumpIfLess)
                    and last.gate.flag is None
                    and most >= min(_TRIPS)
                    and all(isinstance(inner, Launch) for inner in body)
                    and not any(image.tape.segment_of[slot] for slot in guards)
                ):
                    slot = image.tape.slot(test.right, test.segment)
                    if not image.tape.segment_of[slot]:
                        yield last.number, (slot, most)
            case ControlChoice(_, then, otherwise):
                yield from _counted((*then, *otherwise), plan, image)
            case ParallelParts(parts):
                yield from _counted(itertools.chain.from_iterable(parts), plan, image)


def _works(number: int, image: PlanTables) -> bool:
    """Whether a command needs memory to work in."""
    return image.tape.constants.get(image.slots_of(number)[1]) != 0


def control_programs(plan: Plan) -> list[Program]:
    """The kernels by which a device controls a plan; none if it cannot, or need not."""
    if len(plan.segments) < 2:
        return []
    try:
        return list(control_flow_of(plan).programs)
    except NotOnDevice:
        return []


class _NoCode:
    """Stands for kernels that are not needed."""

    def address(self, symbol: str) -> int:
        return 1


def _tables_of(plan: Plan) -> PlanTables:
    """The tables of a plan whose constants are not there: never touched, so they take no memory."""
    held = {b.number: b.size_bytes for b in plan.buffers if b.kind == "constant"}
    sized = [held.get(k, 0) for k in range(plan.constant_count)]
    constants = [np.empty(size if isinstance(size, int) else 0, np.uint8) for size in sized]
    return PlanTables(plan, _NoCode(), constants, Team(), remote=[0] * len(constants))


def _check_sizes(plan: Plan, image: PlanTables) -> None:
    for number, buffer in enumerate(plan.buffers):
        if image.buffer_segment(number):
            writer = writer_of(plan, number)
            what = f"the size of what {writer} gives" if writer else f"the size of b{number}"
            raise NotOnDevice(f"{what} is known only when the run gets there ({buffer.size_bytes})")
    for output in plan.outputs:
        if output.segment:
            what = f"the shape of output {output.name} is known only when the run gets there"
            raise NotOnDevice(what)
    for number, command in enumerate(plan.commands):
        if isinstance(command, Command) and image.tape.segment_of[image.slots_of(number)[1]]:
            what = f"what {command.where} works in is known only when the run gets there"
            raise NotOnDevice(what)
