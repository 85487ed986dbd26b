"""Runs plans on the processor: checks feeds, leases a frame, enters native code once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.records import dataclass
from sardonyx.cpu.binding import Binder
from sardonyx.cpu.fast_path import fast_path
from sardonyx.cpu.launcher import CpuLauncher
from sardonyx.cpu.stops import HostStops
from sardonyx.plan.plan import Plan
from sardonyx.runtime.arena import Words, address_of
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.executable import DeviceFacts, Executable, ExecutableReport, FrameReport
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.frame_pool import FramePool
from sardonyx.runtime.growable_values import HOST_BUFFERS
from sardonyx.runtime.host_calls import HostPlan
from sardonyx.runtime.host_epilogue import HostEpilogue
from sardonyx.runtime.native_runs import NativeRuns
from sardonyx.runtime.plan_tables import PlanCode, PlanTables
from sardonyx.runtime.pool import Pool
from sardonyx.runtime.results import check_outputs, new_results
from sardonyx.runtime.storage import HOST, Array, OutputPlacement, place
from sardonyx.runtime.team import Team
from sardonyx.runtime.try_run import TryRun
from sardonyx.targets.target import host_target

if TYPE_CHECKING:
    from sardonyx.runtime.recording import Sink
    from sardonyx.store.model_record import ModelRecord


@dataclass(frozen=True, slots=True)
class CpuParts:
    """What an executable of the processor is made of.

    Attributes:
        image: The plan, with code and constants.
        budget: What memory counts in.
        functions: Addresses of shared functions, for the context's field of that name.
        stops: What happens where native code stops.
        frames: The frames of runs.
        launcher: What does their commands.
        epilogue: The host's functions at the end of the plan, if it has no others.
        try_run: The fast path.
    """

    image: PlanTables
    budget: Budget
    functions: Words
    stops: HostStops
    frames: FramePool[Any]
    launcher: CpuLauncher
    epilogue: HostEpilogue | None
    try_run: TryRun


class CpuExecutable:
    """See `runtime.executable.Executable`.

    Args:
        parts: What it is made of; see `executable_of`.
    """

    def __init__(self, parts: CpuParts) -> None:
        self.parts, self.plan, self.budget = parts, parts.image.plan, parts.budget
        self.team, self.frames, self.try_run = parts.image.team, parts.frames, parts.try_run
        self.facts = DeviceFacts(host_target().name, HOST, growable_buffers=HOST_BUFFERS)
        self._binder = Binder(parts.launcher.runs, parts.budget)
        self._stops, self.launcher = parts.stops, parts.launcher

    @property
    def workers(self) -> Pool | None:
        """The threads that runs have had so far; None if they had none."""
        return self.launcher.workers

    # -- running ------------------------------------------------------------------------------

    def run(self, feeds: Sequence[object], cancel: CancelFlag | None = None) -> list[Any]:
        """See `Executable.run`."""
        with self.frames.lease() as frame:
            kept = self._bind(frame, feeds)
            outputs: list[Any] = new_results(frame)
            self.launcher.execute(frame, outputs, cancel)
            del kept
            return self._stops.decoded(frame, outputs)

    def run_to(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> list[Any]:
        """See `Executable.run_to`."""
        results = self.run(feeds, cancel)
        rows = zip(self.plan.outputs, wanted.targets, results, strict=True)
        return [place(spec.name, target, result) for spec, target, result in rows]

    def run_into(
        self, feeds: Sequence[object], outputs: Sequence[Array], cancel: CancelFlag | None = None
    ) -> None:
        """See `Executable.run_into`."""
        with self.frames.lease() as frame:
            kept = self._bind(frame, feeds)
            given = list(outputs)
            check_outputs(self.plan, frame, given)
            self.launcher.execute(frame, given, cancel)
            del kept

    def start(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> AsyncRun:
        """See `Executable.start`: the run is over afterwards."""
        return AsyncRun(self.run_to(feeds, replace(wanted, waits=True), cancel))

    def _bind(self, frame: Frame, feeds: Sequence[object]) -> tuple[object, ...]:
        return self._binder.bind(frame, self._stops.encoded(frame, feeds))

    # -- what only devices have ---------------------------------------------------------------

    def callers_capture(
        self,
        wanted: OutputPlacement,  # noqa: ARG002 - of all providers
    ) -> AbstractContextManager[None] | None:
        """See `Executable.callers_capture`."""
        return None

    def settle(self) -> None:
        """See `Executable.settle`: all runs are waited for."""

    @property
    def is_settling(self) -> bool:
        """See `Executable.is_settling`."""
        return False

    def trim_staging(self) -> None:
        """See `Executable.trim_staging`: there are no copies."""

    def release_graphs(self, number: int) -> None:
        """See `Executable.release_graphs`: no run is captured."""

    # -- between runs -------------------------------------------------------------------------

    def trim(self) -> None:
        """See `Executable.trim`."""
        self.frames.trim()

    def report(self) -> ExecutableReport:
        """See `Executable.report`."""
        workers = self.launcher.workers
        return ExecutableReport(
            frames=[
                FrameReport(frame.capacity_bytes, frame.scratch.capacity_bytes)
                for frame in list(self.frames.held)
            ],
            worker_ids=[] if workers is None else [native for _, native in workers.identities],
            ends_on_host=self.parts.epilogue is not None,
        )

    def recorded(self, record: ModelRecord, sink: Sink) -> Executable:
        """See `Executable.recorded`."""
        from sardonyx.cpu.recording import recorded

        made = recorded(self.parts, record, sink)
        self.trim()
        for frame in list(self.frames.held):  # of runs that are under way
            frame.invalidate()
        return made

    def flush(self) -> None:
        """See `Executable.flush`."""


def executable_of(
    plan: Plan,
    code: PlanCode,
    constants: Sequence[Array] = (),
    *,
    threads: int | Team = 1,
    functions: Sequence[int] = (),
    budget: Budget | None = None,
) -> CpuExecutable:
    """What runs a plan on the processor.

    Args:
        plan: What to do.
        code: Has the address of every kernel of the plan; kept alive.
        constants: Contiguous arrays behind the plan's constants; kept alive.
        threads: How many threads a run may use, the caller included; or how they share it.
        functions: Addresses of shared functions, for the context's field of that name.
        budget: What its memory counts in; by default it may have what the machine has.

    Raises:
        EngineError: The parts do not fit each other.
        NotFound: The code lacks a kernel.
    """
    budget = budget or Budget()
    team = threads if isinstance(threads, Team) else Team(threads)
    image = PlanTables(plan, code, constants, team)
    words = np.array([*functions, 0], np.int64)
    host = HostPlan(plan) if plan.has_objects else None
    stops = HostStops(image, host, budget)
    runs = NativeRuns(image, stops, team.flushes_denormals)
    launcher = CpuLauncher(runs, team, budget)
    frames = FramePool(lambda: Frame(image, address_of(words), budget), image.tape.symbols)
    epilogue = HostEpilogue.of(host, image)
    try_run = fast_path(frames, launcher, epilogue)
    return CpuExecutable(CpuParts(image, budget, words, stops, frames, launcher, epilogue, try_run))
