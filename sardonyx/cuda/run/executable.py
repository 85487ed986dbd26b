"""Runs plans on a device: native code of the host launches kernels, or a graph is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sardonyx.base import knobs
from sardonyx.base.errors import Fail, InvalidArgument, SardonyxError, message
from sardonyx.base.records import dataclass
from sardonyx.base.texts import bytes_text
from sardonyx.cuda.driver.device import on_device
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.interop.tensor_runs import TensorRuns, follows_tensors
from sardonyx.cuda.memory import staging
from sardonyx.cuda.memory.growable_values import CudaGrowableBuffers
from sardonyx.cuda.run.async_runs import CudaAsyncRun
from sardonyx.cuda.run.bound_runs import BoundRuns
from sardonyx.cuda.run.captured import CapturedRuns, sweep
from sardonyx.cuda.run.device_control_flow import LeftToHost
from sardonyx.cuda.run.device_state import DevicePlan, DeviceState, device_state
from sardonyx.cuda.run.fast_path import CudaFastPath
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.frame_pool import CudaFrames
from sardonyx.cuda.run.graph_cache import GraphCache
from sardonyx.cuda.run.graphs import GRAPH_ID
from sardonyx.cuda.run.host_twins import HostTwins
from sardonyx.cuda.run.last_run import Replays
from sardonyx.cuda.run.launcher import CudaLauncher
from sardonyx.cuda.run.library_calls import LibraryCalls
from sardonyx.cuda.run.marks import MARKS, find_nvtx
from sardonyx.cuda.run.recording import recorded
from sardonyx.cuda.run.timing import TIMES
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.executable import (
    DeviceFacts,
    Executable,
    ExecutableReport,
    FrameReport,
    LibraryReport,
)
from sardonyx.runtime.storage import Array, OutputPlacement
from sardonyx.runtime.try_run import TryRun

if TYPE_CHECKING:
    from sardonyx.runtime.recording import Sink
    from sardonyx.store.model_record import ModelRecord


@dataclass(frozen=True, slots=True, eq=False)
class CudaParts:
    """What an executable on a device is made of.

    Attributes:
        state: What the plan has on the device.
        libraries: What does commands that are no kernels.
        graphs: Which runs become graphs.
        launcher: Begins runs.
        fast_path: Runs whose shapes are those of the last one.
        bound_runs: All others.
        captured: Runs that become part of a graph of the caller's.
        twins: The same plan, controlled by the host.
    """

    state: DeviceState
    libraries: LibraryCalls
    graphs: GraphCache
    launcher: CudaLauncher
    fast_path: CudaFastPath
    bound_runs: BoundRuns
    captured: CapturedRuns
    twins: HostTwins[CudaExecutable]


class CudaExecutable:
    """See `runtime.executable.Executable`.

    Where branches, loops and sizes that only a run knows leave memory as it is, the device
    controls: they are part of the run's graph. For other plans the host controls: it fetches each
    value that decides, and waits for it.

    Args:
        parts: What it is made of; see `cuda_executable`.
        frames: The frames of its runs.
        stops: Whether the host stops at each command, to measure it.
    """

    def __init__(self, parts: CudaParts, frames: CudaFrames, stops: bool) -> None:
        state = parts.state
        self.parts, self.frames, self._stops = parts, frames, stops
        self.device = state.device
        self.plan, self.budget, self.team = state.plan, state.budget, state.image.team
        self.try_run: TryRun = parts.fast_path.try_run
        self.facts = DeviceFacts(
            runs_on=f"{state.device.name} ({state.device.architecture})",
            memory_kind=state.memory,
            is_asynchronous=not state.mapped,
            follows_tensors=follows_tensors(state),
            growable_buffers=None if state.mapped else CudaGrowableBuffers(state.memory),
        )
        state.memory.arena.reclaim_from(self)

    # -- running ------------------------------------------------------------------------------

    def run(self, feeds: Sequence[object], cancel: CancelFlag | None = None) -> list[Any]:
        """See `Executable.run`; NumPy arrays are copied to the device and back."""
        wanted = OutputPlacement([None] * len(self.plan.outputs))
        if self.callers_capture(wanted) is not None:
            wanted = replace(wanted, is_captured=True)
        return self.run_to(feeds, wanted, cancel)

    @on_device
    def run_to(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> list[Any]:
        """See `Executable.run_to`."""
        parts = self.parts
        if wanted.is_captured:
            return parts.captured.run(feeds, wanted, cancel)
        if self._is_for_host():
            return parts.twins.by_host.run_to(feeds, wanted, cancel)
        if parts.state.mapped and not self._stops and TIMES.get() is not None:
            return self._measuring(feeds).run_to(feeds, wanted, cancel)
        frame, queue = self._frame_for(wanted)
        sound, results = False, None
        try:
            results = parts.bound_runs.run(frame, queue, feeds, wanted, cancel)
            sound = True
        except LeftToHost:
            sound = True
        except SardonyxError:
            sound = True
            raise
        finally:
            self.frames.let_go(frame, sound)
        return parts.twins.by_host.run_to(feeds, wanted, cancel) if results is None else results

    def run_into(
        self, feeds: Sequence[object], outputs: Sequence[Array], cancel: CancelFlag | None = None
    ) -> None:
        """See `Executable.run_into`."""
        found = self.run_to(feeds, OutputPlacement(list(outputs)), cancel)
        for target, result in zip(outputs, found, strict=True):
            if target.shape != result.shape:
                raise Fail(message("run", "An array to write to does not fit"))

    @on_device
    def start(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> AsyncRun:
        """See `Executable.start`."""
        parts = self.parts
        if parts.state.mapped or self._is_for_host():
            return AsyncRun(self.run_to(feeds, replace(wanted, waits=True), cancel))
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")
        if self.callers_capture(wanted) is not None:
            what = "The stream is being captured by the caller: nobody can await such a run"
            raise InvalidArgument(message("run_async", what, do="Use run_with_ort_values"))
        own = parts.state.memory
        if wanted.stream is None and all(target is own for target in wanted.targets):
            is_complete = len(feeds) == len(self.plan.inputs)
            begun = parts.fast_path.start(tuple(feeds)) if is_complete else None
            if begun is not None:
                return CudaAsyncRun(self.frames, *begun, cancel)
        frame, queue = self._frame_for(wanted)
        try:
            left = replace(wanted, waits=False)
            results = parts.bound_runs.run(frame, queue, feeds, left, cancel)
        except BaseException as error:
            self.frames.let_go(frame, isinstance(error, SardonyxError))
            if isinstance(error, LeftToHost):
                return parts.twins.by_host.start(feeds, wanted, cancel)
            raise
        return CudaAsyncRun(self.frames, frame, results, cancel)

    def callers_capture(self, wanted: OutputPlacement) -> AbstractContextManager[None] | None:
        """See `Executable.callers_capture`."""
        if wanted.stream is None and self.parts.state.stream is None:
            return None
        return self.parts.captured.callers_capture(wanted)

    def _frame_for(self, wanted: OutputPlacement) -> tuple[CudaFrame, Stream | None]:
        """A frame, and the stream of its run; None for its own."""
        queue = self.parts.captured.chosen_queue(wanted)
        return self.frames.take_for(queue), queue

    def _is_for_host(self) -> bool:
        """Whether a run is to be no graph, which the device needs to control it."""
        if self.parts.state.control_flow is None:
            return False
        graphs = self.parts.graphs
        by_kernel = TIMES.get() is not None or (MARKS.get() or graphs.marks) is not None
        return by_kernel or bool(graphs.no_graph) or GRAPH_ID.get() < 0

    def _measuring(self, feeds: Sequence[Any]) -> CudaExecutable:
        """What runs are measured with that the host controls."""

        def run_once() -> None:
            token = TIMES.set(None)
            try:
                self.run_to(feeds, OutputPlacement([None] * len(self.plan.outputs)))
            finally:
                TIMES.reset(token)

        return self.parts.twins.by_command(run_once)

    # -- between runs -------------------------------------------------------------------------

    def settle(self) -> None:
        """See `Executable.settle`; of replays faults are told."""
        self.frames.settle()
        self.parts.captured.check_replays()
        self.parts.twins.settle()

    @property
    def is_settling(self) -> bool:
        """See `Executable.is_settling`."""
        return self.parts.state.is_settling

    def trim(self) -> None:
        """See `Executable.trim`; what graphs of callers need stays."""
        sweep()
        self.frames.trim()
        self.parts.twins.trim()

    def trim_staging(self) -> None:
        """See `Executable.trim_staging`; all sessions share that memory."""
        staging.pinned_arena(self.device).trim()

    def release_graphs(self, number: int) -> None:
        """See `Executable.release_graphs`."""
        self.frames.forget_runs(number)

    def report(self) -> ExecutableReport:
        """See `Executable.report`."""
        parts, state, held = self.parts, self.parts.state, list(self.frames.held)
        undone, libraries = frozenset(parts.libraries.undone), state.libraries
        remarks = parts.graphs.remarks(held)
        remarks += libraries.remarks(len(state.calls), len(undone))
        reserved_bytes = parts.captured.reserved_bytes
        if count := len(parts.captured.reservations):
            size = bytes_text(reserved_bytes)
            remarks.append(f"runs in graphs of callers: {count}, for which {size} are kept")
        devices = {
            f"cuda:{state.device.number}": state.memory.arena.statistics(),
            "pinned, of all sessions": staging.pinned_arena(state.device).statistics(),
        }
        return ExecutableReport(
            remarks, reserved_bytes, devices, list(map(_frame_report, held)),
            control_flow=state.control_flow,
            libraries=LibraryReport(
                undone, libraries.pending, libraries.searching, libraries.version
            ),
        )  # fmt: skip

    def recorded(self, record: ModelRecord, sink: Sink) -> Executable:
        """See `Executable.recorded`."""
        return recorded(self, record, sink)

    def flush(self) -> None:
        """See `Executable.flush`."""


def _frame_report(frame: CudaFrame) -> FrameReport:
    queue, scratch_bytes = frame.queue, frame.scratch.capacity_bytes
    return FrameReport(
        frame.capacity_bytes, scratch_bytes, int(queue.handle), queue is frame.own_queue,
        frame.graphs.replays,
    )  # fmt: skip


def cuda_executable(given: DevicePlan) -> CudaExecutable:
    """What runs a plan on a device."""
    state, settings = device_state(given), given.settings
    marks = find_nvtx() if knobs.get("SARDONYX_NVTX") else None
    libraries = LibraryCalls(state)
    graphs = GraphCache(state, libraries, settings.graphs, marks)
    launcher = CudaLauncher(state, libraries, graphs)
    frames = CudaFrames(state)
    replays = Replays(frames, launcher.runs)
    fast_path = CudaFastPath(frames, replays, TensorRuns(frames, replays))
    by_host = replace(settings, graphs="off", controls_flow=False, libraries=state.libraries)
    twin = replace(given, settings=by_host, weights=state.weights)
    parts = CudaParts(
        state=state, libraries=libraries, graphs=graphs, launcher=launcher, fast_path=fast_path,
        bound_runs=BoundRuns(frames, launcher, fast_path, marks),
        captured=CapturedRuns(frames, launcher, libraries),
        twins=HostTwins(partial(_twin, twin)),
    )  # fmt: skip
    return CudaExecutable(parts, frames, settings.by_command)


def _twin(given: DevicePlan, by_command: bool) -> CudaExecutable:
    """See `HostTwins`."""
    return cuda_executable(replace(given, settings=replace(given.settings, by_command=by_command)))
