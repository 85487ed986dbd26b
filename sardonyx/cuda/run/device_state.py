"""What a plan has on a device: weights, frames with their memory, and faults of runs in them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.base.errors import SardonyxError
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.module import Module
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.libraries.libraries import Libraries
from sardonyx.cuda.memory import staging
from sardonyx.cuda.memory.arena import Arena, MemoryBlock
from sardonyx.cuda.memory.memory import RunMemory
from sardonyx.cuda.memory.values import CudaMemory
from sardonyx.cuda.run.device_control_flow import find_control_flow
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.plan.control_flow import commands_in_loops, fault_of_control, stretches_of
from sardonyx.plan.plan import Command, Plan, PointerArgument
from sardonyx.runtime import refusals
from sardonyx.runtime.arena import Memory
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.plan_tables import PlanTables
from sardonyx.runtime.storage import Array
from sardonyx.runtime.team import Team

_ALIGNMENT = 256
#: So many kernels in a row are a graph of their own, where the host controls: to launch them from
#: native code takes longer than what Python does for a graph.
LEAST_COMMANDS = 12


class DeviceState(Executable):
    """The part of `executable.CudaExecutable` that lasts from run to run.

    Args:
        plan: What to do.
        module: Its kernels.
        constants: Arrays behind the plan's constants; they are copied.
        device: Where.
        budget: What its memory counts in.
        arena: Where memory of the device comes from; by default that of all values.
        libraries: What does some of the commands.
        controls_flow: Whether the device may control runs itself.
        shares: What has the constants already.
        copies_apart: Whether feeds and results of the host are copied in streams of their own.

    Attributes:
        control_flow: How the device controls runs; None if it does not.
        not_on_device: Why it does not, if there is anything to be controlled.
        mapped: Whether the host controls: it reads values of the device on the way.
        stretches: Then: what becomes a graph between its steps, by the first command.
    """

    def __init__(
        self,
        plan: Plan,
        module: Module,
        constants: Sequence[Array],
        device: Device,
        budget: Budget | None,
        arena: Arena | None,
        libraries: Libraries | None,
        controls_flow: bool = True,
        shares: DeviceState | None = None,
        copies_apart: bool = False,
        by_command: bool = False,
    ) -> None:
        self.device, self.module, self.copies_apart = device, module, copies_apart
        self.control_flow, self.not_on_device = None, "the host was asked to control"
        if controls_flow:
            self.control_flow, self.not_on_device = find_control_flow(plan, device)
        if self.control_flow is not None:
            plan = self.control_flow.plan
        self.mapped = len(plan.segments) > 1 and self.control_flow is None
        self.device_memory = CudaMemory(device, arena)
        if shares is None:
            with device.entered():
                self._weights, self._addresses = self._upload(constants)
        else:
            self._weights, self._addresses = shares._weights, shares._addresses
        self.libraries = libraries or Libraries({})
        self._calls = self.libraries.calls_of(plan)
        if self.control_flow is not None:  # a library's arguments are part of the graph
            for number in self.control_flow.varying:
                self._calls.pop(number, None)
        elif self.mapped:  # in a loop native code would stop for them in each trip
            for number in commands_in_loops(plan):
                self._calls.pop(number, None)
        self.stretches: dict[int, range] = {}
        if self.mapped and controls_flow:
            moving = {k for k in self._calls if _moves(plan, k)}
            found = stretches_of(plan, moving, LEAST_COMMANDS)
            self.stretches = {stretch.start: stretch for stretch in found}
        hosted = {*self._calls, *self.stretches}
        if by_command:
            hosted = {k for k, command in enumerate(plan.commands) if isinstance(command, Command)}
        self.image = PlanTables(
            plan, module, constants, Team(), remote=self._addresses, hosted=hosted
        )
        super().__init__(plan, module, constants, budget=budget, image=self.image)
        self.device_memory.arena.reclaim_from(self)

    @property
    def runs_on(self) -> str:
        """The device, as its maker calls it."""
        return f"{self.device.name} ({self.device.architecture})"

    @property
    def is_settling(self) -> bool:
        """See `Executable.is_settling`."""
        libraries = self.libraries
        return bool(libraries.pending or libraries.searching or self.module.pending)

    @property
    def plans_version(self) -> int:
        """Changes when calls of this plan are done otherwise than before."""
        return self.libraries.version if self._calls else 0

    @property
    def memory_kind(self) -> CudaMemory:
        """See `Executable.memory_kind`."""
        return self.device_memory

    def memory(
        self,
        purpose: str,
        budget: Budget | None,
        uses: dict[Stream | None, Event] | None = None,
    ) -> Memory:
        """New memory for values of a run; see `RunMemory`."""
        return RunMemory(self.device_memory.arena, purpose, budget, uses)

    def _upload(self, constants: Sequence[Array]) -> tuple[MemoryBlock, list[int]]:
        """Copy the constants; gives their memory, and their addresses."""
        sizes = [-(-max(1, a.nbytes) // _ALIGNMENT) * _ALIGNMENT for a in constants]
        weights = self.device_memory.arena.allocate(sum(sizes), "weights", exact=True)
        found, at = [], weights.address
        stream = self.device.copying
        for array, size in zip(constants, sizes, strict=True):
            kept = staging.upload(at, np.ascontiguousarray(array), stream)
            if isinstance(kept, MemoryBlock):  # it may be used again for what comes next
                kept.uses[stream] = stream.record()
            found.append(at)
            at += size
        # The streams of runs wait for no other.
        stream.synchronize()
        return weights, found

    # -- frames -------------------------------------------------------------------------------

    def _new_frame(self) -> CudaFrame:
        return CudaFrame(self)

    def _take_for(self, queue: Stream | None) -> CudaFrame:
        """A frame whose next run need not wait for one in another stream."""
        for _ in range(len(self._free)):
            try:
                frame = self._free.pop()
            except IndexError:  # another thread had it
                break
            assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
            if frame.may_run_in(queue):
                return frame
            self._free.insert(0, frame)
        made = self._new_frame()
        self._frames.append(made)
        return made

    def give_back(self, frame: CudaFrame) -> None:
        """Another run may have the frame."""
        self._free.append(frame)

    def trim(self) -> None:
        """See `Executable.trim`; waits for what is under way in these frames."""
        self._drop_frames()
        self.device_memory.arena.trim()

    def trim_staging(self) -> None:
        """See `Executable.trim_staging`; all sessions share that memory."""
        staging.pinned_arena(self.device).trim()

    def _drop_frames(self) -> None:
        faulty = []
        while True:
            try:
                frame = self._free.pop()
            except IndexError:
                break
            assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
            frame.wait()
            if frame.has_fault:  # of a run for which nobody waited: somebody must hear of it
                faulty.append(frame)
            else:
                self._frames.remove(frame)
        self._free += faulty

    def __del__(self) -> None:
        # Kernels may be under way that read the weights, and memory that frames have.
        with contextlib.suppress(SardonyxError, ImportError, AttributeError, TypeError):
            for frame in self._frames:
                assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
                frame.wait()

    def device_statistics(self) -> dict[str, dict[str, Any]]:
        """See `Executable.device_statistics`."""
        pinned = staging.pinned_arena(self.device)
        return {
            f"cuda:{self.device.number}": self.device_memory.arena.statistics(),
            "pinned, of all sessions": pinned.statistics(),
        }

    def settle(self) -> None:
        """See `Executable.settle`."""
        for frame in list(self._frames):
            assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
            frame.wait()
            try:
                self._free.remove(frame)
            except ValueError:  # another run has it, which looks for faults itself
                continue
            try:
                frame.busy = None
                self.check_fault(frame, None)
            finally:
                self._free.append(frame)

    def check_fault(self, frame: CudaFrame, cancel: CancelFlag | None) -> None:
        """After a run has happened.

        Raises:
            RuntimeException: A kernel met data that it cannot work on.
        """
        fault = frame.take_fault()
        if fault is not None:
            code, *rest = fault
            if fault_of_control(code)[0]:
                raise refusals.turned(code, rest[1], rest[2], frame, self.image)
            for name, value in zip(("command", "a", "b", "c"), rest, strict=True):
                frame.note_fault(name, value)
            raise refusals.fault(code, frame, self.plan, cancel)


def _moves(plan: Plan, number: int) -> bool:
    """Whether a library reads a feed, or writes a result, where a graph could not look it up."""
    command = plan.commands[number]
    assert isinstance(command, Command)  # noqa: S101 - steps have no calls
    buffers = (a.buffer for a in command.library_arguments if isinstance(a, PointerArgument))
    return any(plan.buffers[b].kind in ("input", "output") for b in buffers)
