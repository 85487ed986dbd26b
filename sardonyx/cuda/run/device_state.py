"""What a plan has on a device: weights, tables, kernels, and who does which command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.records import dataclass
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.module import Module
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.libraries.libraries import Libraries
from sardonyx.cuda.memory import staging
from sardonyx.cuda.memory.arena import Arena, MemoryBlock
from sardonyx.cuda.memory.memory import RunMemory
from sardonyx.cuda.memory.values import CudaMemory
from sardonyx.cuda.run.device_control_flow import find_control_flow
from sardonyx.plan.control_flow import commands_in_loops, stretches_of
from sardonyx.plan.plan import Command, Plan, PointerArgument
from sardonyx.runtime.arena import Memory
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.plan_tables import PlanTables
from sardonyx.runtime.storage import Array
from sardonyx.runtime.team import Team

if TYPE_CHECKING:
    from sardonyx.runtime.device_control_flow import DeviceControlFlow

_ALIGNMENT = 256
#: So many kernels in a row are a graph of their own, where the host controls: to launch them from
#: native code takes longer than what Python does for a graph.
LEAST_COMMANDS = 12


@dataclass(frozen=True, slots=True)
class CudaRunSettings:
    """How an executable runs on a device.

    Attributes:
        device: Where.
        budget: What its memory counts in; None for what the machine has.
        arena: Where memory of the device comes from; None for that of all values.
        stream: Handle of the stream of runs that name none; 0 for our own.
        graphs: Whether runs become graphs: `automatic`, `off`, or `wanted`: then a warning says
            why if they do not.
        libraries: What does some of the commands.
        controls_flow: Whether the device may control runs itself; it does where it can.
        copies_apart: Whether feeds and results of the host are copied in streams of their own.
        by_command: Whether the host stops at each command, to measure it.
    """

    device: Device
    budget: Budget | None = None
    arena: Arena | None = None
    stream: int = 0
    graphs: str = "automatic"
    libraries: Libraries | None = None
    controls_flow: bool = True
    copies_apart: bool = False
    by_command: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class DeviceWeights:
    """Constants on a device.

    Attributes:
        block: Their memory.
        addresses: Where each lies.
    """

    block: MemoryBlock
    addresses: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class DevicePlan:
    """A plan with all that its executables on a device are made of; twins differ in settings.

    Attributes:
        plan: What to do.
        module: Its kernels.
        constants: Arrays behind the plan's constants.
        settings: How it runs.
        weights: The constants, if they are on the device already; None if they are to be copied.
    """

    plan: Plan
    module: Module
    constants: Sequence[Array]
    settings: CudaRunSettings
    weights: DeviceWeights | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DeviceState:
    """See the module's text. All parts of an executable read it, and none changes it.

    Attributes:
        device: Where.
        module: The plan's kernels.
        memory: Where feeds are wanted, and results lie at first.
        budget: What memory counts in.
        weights: The plan's constants.
        plan: What is done; control steps are among its commands if the device controls.
        image: Its tables.
        control_flow: How the device controls runs; None if it does not.
        not_on_device: Why it does not, if there is anything to be controlled.
        stretches: Where the host controls: what becomes a graph between its steps, by the first
            command.
        libraries: What does some of the commands.
        calls: Their calls, by the number of the command.
        stream: The stream of runs that name none; None for our own.
        copies_apart: Whether feeds and results of the host are copied in streams of their own.
        purposes: What memory of each output is called.
    """

    device: Device
    module: Module
    memory: CudaMemory
    budget: Budget
    weights: DeviceWeights
    plan: Plan
    image: PlanTables
    control_flow: DeviceControlFlow | None
    not_on_device: str
    stretches: dict[int, range]
    libraries: Libraries
    calls: dict[int, Any]
    stream: Stream | None
    copies_apart: bool
    purposes: list[str]

    @property
    def mapped(self) -> bool:
        """Whether the host controls: it reads values of the device on the way."""
        return len(self.plan.segments) > 1 and self.control_flow is None

    @property
    def is_settling(self) -> bool:
        """See `Executable.is_settling`."""
        libraries = self.libraries
        return bool(libraries.pending or libraries.searching or self.module.pending)

    @property
    def plans_version(self) -> int:
        """Changes when calls of this plan are done otherwise than before."""
        return self.libraries.version if self.calls else 0

    def new_memory(
        self,
        purpose: str,
        budget: Budget | None,
        uses: dict[Stream | None, Event] | None = None,
    ) -> Memory:
        """New memory for values of a run; see `RunMemory`."""
        return RunMemory(self.memory.arena, purpose, budget, uses)


def device_state(given: DevicePlan) -> DeviceState:
    """What a plan has on a device from now on."""
    plan, module, settings, weights = given.plan, given.module, given.settings, given.weights
    device = settings.device
    may_control = settings.controls_flow and settings.graphs != "off"
    control_flow, not_on_device = None, "the host was asked to control"
    if may_control:
        control_flow, not_on_device = find_control_flow(plan, device)
    if control_flow is not None:
        plan = control_flow.plan
    memory = CudaMemory(device, settings.arena)
    if weights is None:
        with device.entered():
            weights = _uploaded(memory, given.constants)
    is_by_host = len(plan.segments) > 1 and control_flow is None
    libraries = settings.libraries or Libraries({})
    calls = libraries.calls_of(plan)
    # A library's arguments are part of the graph; in a loop native code would stop for them in
    # each trip.
    apart = control_flow.varying if control_flow is not None else ()
    for number in commands_in_loops(plan) if is_by_host else apart:
        calls.pop(number, None)
    stretches: dict[int, range] = {}
    if is_by_host and may_control:
        moving = {k for k in calls if _moves(plan, k)}
        found = stretches_of(plan, moving, LEAST_COMMANDS)
        stretches = {stretch.start: stretch for stretch in found}
    hosted = {*calls, *stretches}
    if settings.by_command:
        hosted = {k for k, command in enumerate(plan.commands) if isinstance(command, Command)}
    image = PlanTables(
        plan, module, given.constants, Team(), remote=weights.addresses, hosted=hosted
    )
    return DeviceState(
        device=device, module=module, memory=memory, budget=settings.budget or Budget(),
        weights=weights, plan=plan, image=image, control_flow=control_flow,
        not_on_device=not_on_device, stretches=stretches, libraries=libraries, calls=calls,
        stream=device.callers_stream(settings.stream) if settings.stream else None,
        copies_apart=settings.copies_apart,
        purposes=[f"output {spec.name}" for spec in plan.outputs],
    )  # fmt: skip


def _uploaded(memory: CudaMemory, constants: Sequence[Array]) -> DeviceWeights:
    """Copy the constants to new memory."""
    sizes = [-(-max(1, a.nbytes) // _ALIGNMENT) * _ALIGNMENT for a in constants]
    block = memory.arena.allocate(sum(sizes), "weights", exact=True)
    found, at = [], block.address
    stream = memory.device.copying
    for array, size in zip(constants, sizes, strict=True):
        kept = staging.upload(at, np.ascontiguousarray(array), stream)
        if isinstance(kept, MemoryBlock):  # it may be used again for what comes next
            kept.uses[stream] = stream.record()
        found.append(at)
        at += size
    # The streams of runs wait for no other.
    stream.synchronize()
    return DeviceWeights(block, found)


def _moves(plan: Plan, number: int) -> bool:
    """Whether a library reads a feed, or writes a result, where a graph could not look it up."""
    command = plan.commands[number]
    assert isinstance(command, Command)  # noqa: S101 - steps have no calls
    buffers = (a.buffer for a in command.library_arguments if isinstance(a, PointerArgument))
    return any(plan.buffers[b].kind in ("input", "output") for b in buffers)
