"""Runs plans on a device: native code of the host launches kernels, or a graph is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sardonyx.base import knobs
from sardonyx.base.errors import (
    EngineError,
    Fail,
    InvalidArgument,
    SardonyxError,
    message,
)
from sardonyx.base.log import get_logger
from sardonyx.base.texts import bytes_text
from sardonyx.cuda.driver.addresses import named
from sardonyx.cuda.driver.device import Device, on_device
from sardonyx.cuda.driver.module import Module
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.libraries.background import WALKS
from sardonyx.cuda.libraries.libraries import Libraries
from sardonyx.cuda.memory.arena import Arena
from sardonyx.cuda.memory.growable_values import CudaGrowableBuffers
from sardonyx.cuda.memory.values import CudaArray
from sardonyx.cuda.run.async_runs import CudaAsyncRun
from sardonyx.cuda.run.binding import DeviceResult, give_feed, leave, spans_of
from sardonyx.cuda.run.captured import RunsCaptured
from sardonyx.cuda.run.device_control_flow import LeftToHost
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.graphs import GRAPH_ID
from sardonyx.cuda.run.marks import MARKS, find_nvtx
from sardonyx.cuda.run.timing import TIMES
from sardonyx.plan.plan import Plan
from sardonyx.runtime import refusals
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.frame import Result as ResultType
from sardonyx.runtime.growable_buffer import GrowableBuffers
from sardonyx.runtime.storage import Array, OutputPlacement

if TYPE_CHECKING:
    from sardonyx.runtime.executable import Executable
    from sardonyx.runtime.recording import Sink
    from sardonyx.store.model_record import ModelRecord

_logger = get_logger("cuda")
#: So many captures that fail in a row, and there are no more.
_MOST_FAILURES = 3


class CudaExecutable(RunsCaptured):
    """As `Executable`, on a device.

    Where branches, loops and sizes that only a run knows leave memory as it is, the device
    controls: they are part of the run's graph. For other plans the host controls: it fetches each
    value that decides, and waits for it.

    Args:
        plan: What to do.
        module: Its kernels.
        constants: Arrays behind the plan's constants; they are copied.
        device: Where.
        budget: What its memory counts in.
        arena: Where memory of the device comes from; by default that of all values.
        stream: Handle of the stream of runs that name none; 0 for our own.
        graphs: Whether runs become graphs: `automatic`, `off`, or `wanted`: then a warning says
            why if they do not.
        libraries: What does some of the commands.
        controls_flow: Whether the device may control runs itself; by default it does where it can.
        shares: What has the constants on the device already.
        copies_apart: Whether feeds and results of the host are copied in streams of their own.
    """

    def __init__(
        self,
        plan: Plan,
        module: Module,
        constants: Sequence[Array],
        device: Device,
        budget: Budget | None = None,
        arena: Arena | None = None,
        stream: int = 0,
        graphs: str = "automatic",
        libraries: Libraries | None = None,
        controls_flow: bool = True,
        shares: CudaExecutable | None = None,
        copies_apart: bool = False,
        by_command: bool = False,
    ) -> None:
        controls_flow = controls_flow and graphs != "off"
        super().__init__(
            plan, module, constants, device, budget, arena, libraries, controls_flow, shares,
            copies_apart, by_command,
        )  # fmt: skip
        self._parts = plan, module, constants, device, budget, arena, stream, "off", self.libraries
        #: The same, controlled by the host: for runs that the device cannot control.
        self._by_host: CudaExecutable | None = None
        #: The same, which stops at each command: for runs that the host controls, to measure them.
        self._by_command: CudaExecutable | None = None
        self._stops = by_command
        self._may_be_refused = any(s.conditional for s in plan.segments)
        plan = self.plan
        self._default_queue = device.callers_stream(stream) if stream else None
        #: Commands that no library did when they were last done.
        self._undone: set[int] = set()
        self._growable_buffers = CudaGrowableBuffers(self.device_memory)
        self._types = [spec.dtype.stored for spec in plan.inputs]
        self._purposes = [f"output {spec.name}" for spec in plan.outputs]
        self.graph_mode, self._failures = graphs, 0
        self._marks = find_nvtx() if knobs.get("SARDONYX_NVTX") else None
        self._no_graph, self._no_parts = self._why_no_graph(), ""
        if graphs == "wanted" and self._no_graph:
            _logger.warning("runs go without a CUDA graph: %s", self._no_graph)

    def _why_no_graph(self) -> str:
        """Why runs are not captured; "" if they are."""
        if self.graph_mode == "off":
            return "they are switched off"
        if self._marks is not None:
            return "each node is marked for NVTX (SARDONYX_NVTX)"
        if self.mapped:
            return f"the host reads sizes or conditions that the run computes: {self.not_on_device}"
        if self._host is not None:
            return "the host draws keys of random numbers in each run"
        return ""

    # -- running ------------------------------------------------------------------------------

    def run(self, feeds: Sequence[object], cancel: CancelFlag | None = None) -> list[Any]:
        """See `Executable.run`; NumPy arrays are copied to the device and back."""
        wanted = OutputPlacement([None] * len(self.plan.outputs))
        if self._default_queue is not None and self.callers_capture(wanted) is not None:
            wanted = replace(wanted, is_captured=True)
        return self.run_to(feeds, wanted, cancel)

    @on_device
    def run_to(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> list[Any]:
        """See `Executable.run_to`."""
        if wanted.is_captured:
            return self.run_captured(feeds, wanted, cancel)
        if self._is_for_host():
            return self.by_host.run_to(feeds, wanted, cancel)
        if self.mapped and not self._stops and TIMES.get() is not None:
            return self._stopping(feeds).run_to(feeds, wanted, cancel)
        frame, queue = self._frame_for(wanted)
        sound, results = False, None
        try:
            results = self._run_in(frame, queue, feeds, wanted, cancel)
            sound = True
        except LeftToHost:
            sound = True
        except SardonyxError:
            sound = True
            raise
        finally:
            self._let_go(frame, sound)
        return results if results is not None else self.by_host.run_to(feeds, wanted, cancel)

    # -- runs that the device would control -----------------------------------------------------

    @property
    def by_host(self) -> CudaExecutable:
        """What does runs that the device cannot control."""
        if self._by_host is None:
            self._by_host = CudaExecutable(
                *self._parts, controls_flow=False, shares=self, copies_apart=self.copies_apart
            )
        return self._by_host

    def _stopping(self, feeds: Sequence[Any]) -> CudaExecutable:
        """What runs are measured with that the host controls.

        One run is made before: kernels that are loaded late would wait for the held stream.
        """
        if self._by_command is None:
            self._by_command = CudaExecutable(
                *self._parts, controls_flow=False, shares=self, copies_apart=self.copies_apart,
                by_command=True,
            )  # fmt: skip
            token = TIMES.set(None)
            try:
                CudaExecutable.run_to(self, feeds, OutputPlacement([None] * len(self.plan.outputs)))
            finally:
                TIMES.reset(token)
        return self._by_command

    def _others(self) -> list[CudaExecutable]:
        return [x for x in (self._by_host, self._by_command) if x is not None]

    def settle(self) -> None:
        """See `Executable.settle`."""
        super().settle()
        for other in self._others():
            other.settle()

    def trim(self) -> None:
        """See `Executable.trim`."""
        super().trim()
        for other in self._others():
            other.trim()

    def _is_for_host(self) -> bool:
        """Whether a run is to be no graph, which the device needs to control it."""
        if self.control_flow is None:
            return False
        by_kernel = TIMES.get() is not None or (MARKS.get() or self._marks) is not None
        return by_kernel or bool(self._no_graph) or GRAPH_ID.get() < 0

    def _resolve(self, frame: Frame) -> None:
        """See `Executable._resolve`.

        Sizes of branches are worked out before it is known which one is taken. If they cannot be,
        the host's run says whether those of the one that is are wrong.
        """
        try:
            super()._resolve(frame)
        except SardonyxError as error:
            if self.control_flow is not None and self._may_be_refused:
                raise LeftToHost(str(error)) from error
            raise

    @property
    def is_asynchronous(self) -> bool:
        """See `Executable.is_asynchronous`: the host goes on unless it controls."""
        return not self.mapped

    @property
    def growable_buffers(self) -> GrowableBuffers | None:
        """See `Executable.growable_buffers`."""
        return None if self.mapped else self._growable_buffers

    @on_device
    def start(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> AsyncRun:
        """See `Executable.start`."""
        if self.mapped or self._is_for_host():
            return super().start(feeds, wanted, cancel)
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")
        if self.callers_capture(wanted) is not None:
            what = "The stream is being captured by the caller: nobody can await such a run"
            raise InvalidArgument(message("run_async", what, do="Use run_with_ort_values"))
        own = self.device_memory
        if wanted.stream is None and all(target is own for target in wanted.targets):
            begun = self.start_alike(tuple(feeds)) if len(feeds) == self._input_count else None
            if begun is not None:
                return CudaAsyncRun(self, *begun, cancel)
        frame, queue = self._frame_for(wanted)
        try:
            results = self._run_in(frame, queue, feeds, replace(wanted, waits=False), cancel)
        except BaseException as error:
            self._let_go(frame, isinstance(error, SardonyxError))
            if isinstance(error, LeftToHost):
                return self.by_host.start(feeds, wanted, cancel)
            raise
        return CudaAsyncRun(self, frame, results, cancel)

    def _frame_for(self, wanted: OutputPlacement) -> tuple[CudaFrame, Stream | None]:
        """A frame, and the stream of its run; None for its own."""
        queue = self._chosen_queue(wanted)
        return self._take_for(queue), queue

    def _run_in(
        self,
        frame: CudaFrame,
        queue: Stream | None,
        feeds: Sequence[Any],
        wanted: OutputPlacement,
        cancel: CancelFlag | None,
    ) -> list[Any]:
        kept: list[Any] = []
        try:
            if frame.begin(queue):
                self.check_fault(frame, None)  # of a run for which nobody waited
            is_plain = TIMES.get() is None and (MARKS.get() or self._marks) is None
            if is_plain and not wanted.written:
                results = self.follow(frame, feeds, wanted, cancel)
                if results is not None:
                    return results
            frame.alike = None
            copies = frame.stands_in and not wanted.written
            frame.copied = frame.launches.moving if copies else frozenset()
            self._bind_to(frame, feeds, kept)
            return self._run_bound(frame, feeds, wanted, cancel, kept)
        except BaseException as error:
            self.give_up(frame)
            raise named(error, self.plan, feeds, wanted.targets)  # noqa: B904 - mostly it is the same

    def _bind_to(self, frame: CudaFrame, feeds: Sequence[Any], kept: list[Any]) -> None:
        """Give a frame the feeds."""
        if len(feeds) != self._input_count:
            what = "The number of feeds is wrong"
            raise InvalidArgument(
                message("run", what, expected=str(self._input_count), got=str(len(feeds)))
            )
        for number, (feed, spec) in enumerate(zip(feeds, self.plan.inputs, strict=True)):
            kept += give_feed(frame, number, feed, spec, self._types[number])
        state = self._native_bind(frame.address, frame.feeds.address)
        if state < 0:
            raise EngineError(message("run", f"Feed {-1 - state} cannot be bound"))
        if state:
            self._resolve(frame)

    def _run_bound(
        self,
        frame: CudaFrame,
        feeds: Sequence[Any],
        wanted: OutputPlacement,
        cancel: CancelFlag | None,
        kept: list[Any],
    ) -> list[Any]:
        own, taken = self.device_memory, None
        results: list[DeviceResult | CudaArray | None] = [None] * len(self.plan.outputs)
        apart: dict[int, CudaArray] = {}

        def make(k: int, found: ResultType) -> CudaArray:
            nonlocal taken
            target = wanted.targets[k]
            if target is own:
                made = results[k] = own.empty(*found, self._purposes[k], frame.queue)
                return made
            taken = spans_of(feeds) if taken is None else taken
            result = DeviceResult(frame, self.plan.outputs[k].name, *found, target, taken)
            results[k] = result
            return result.array

        arrays: list[Any] = [None] * len(results)
        for number, k in enumerate(self._image.later[0]):
            found = frame.results[k]
            assert found is not None  # noqa: S101 - they are known from the start
            made = arrays[k] = make(k, found)
            address = made.address
            if ("output", k) in frame.copied and type(made) is CudaArray:
                apart[k] = made
                address = frame.stand_in("output", k, made.nbytes)
            frame.given.put(number, address)
        frame.make, version = make, self.plans_version
        try:
            self._walk(frame, arrays, cancel)
        finally:
            frame.make = None
        frame.copy_out(apart)
        given: list[Any] = [
            r.finish(frame, kept) if isinstance(r, DeviceResult) else r for r in results
        ]
        if frame.graph is not None and not kept:
            self.remember_shapes(frame, frame.graph, feeds, version)
        if not wanted.waits:
            frame.copies.join(frame.queue)
            leave(frame, feeds, kept, [*given, *wanted.written])
        elif frame.graph is None:
            with WALKS:
                self._finish(frame, cancel)
        else:
            self._finish(frame, cancel)
        return given

    def _walk(self, frame: CudaFrame, outputs: list[Any], cancel: CancelFlag | None) -> None:
        """Launch everything, or replay a graph."""
        code = self._launch(frame, frame.given.address, outputs)
        if code:
            raise refusals.fault(code, frame, self.plan, cancel)
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")

    def _finish(self, frame: CudaFrame, cancel: CancelFlag | None) -> None:
        """Wait for a run; it may have taken longer than it may."""
        frame.finish(cancel)
        self._finished(frame, cancel)

    def _finished(self, frame: CudaFrame, cancel: CancelFlag | None) -> None:
        """After a run was waited for."""
        self.check_fault(frame, cancel)
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")

    def _give_results(self, frame: Frame, segment: int, outputs: list[Any]) -> None:
        """See `Executable._give_results`."""
        assert isinstance(frame, CudaFrame) and frame.make is not None  # noqa: S101 - in a run
        frame.reserve_results(segment)
        for number in self._image.later[segment]:
            outputs[number] = frame.make(number, frame.result(number))
        frame.give(segment, {k: outputs[k] for k in self._image.later[segment]})

    def recorded(self, record: ModelRecord, sink: Sink) -> Executable:
        """See `Executable.recorded`."""
        from sardonyx.cuda.run.recording import RecordedCudaExecutable

        return RecordedCudaExecutable.of(self, record, sink)

    def release_graphs(self, number: int) -> None:
        """Forget the graphs that runs with this number captured."""
        for frame in list(self._frames):
            assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
            frame.graphs.release(number)
            frame.alike = None

    def remarks(self) -> list[str]:
        """See `Executable.remarks`."""
        others = self.libraries.remarks(len(self._calls), len(self._undone))
        if reserved := self.reservations:
            size = bytes_text(self.reserved_bytes)
            others.append(f"runs in graphs of callers: {len(reserved)}, for which {size} are kept")
        if self._no_graph and (self._no_parts or not self.stretches):
            return [f"CUDA graphs: none, {self._no_graph}", *others]
        graphs = [f.graphs for f in self._frames if isinstance(f, CudaFrame)]
        held, replays = sum(map(len, graphs)), sum(g.replays for g in graphs)
        text = f"CUDA graphs: {held}, replayed {replays} times; captured when a size comes again"
        if self.stretches:
            text += f"; {len(self.stretches)} parts of a run, since {self._no_graph}"
        if self.control_flow is not None:
            count = len(self.control_flow.controls)
            text += f"; {count} control steps in each decide on branches, loops and sizes"
        return [text, *others]

    def run_into(self, feeds: Any, outputs: Any, cancel: Any = None) -> None:
        """See `Executable.run_into`."""
        found = self.run_to(feeds, OutputPlacement(list(outputs)), cancel)
        for target, result in zip(outputs, found, strict=True):
            if target.shape != result.shape:
                raise Fail(message("run", "An array to write to does not fit"))
