"""Runs plans on a device: native code of the host launches kernels, or a graph is replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.errors import (
    EngineError,
    Fail,
    InvalidArgument,
    RuntimeException,
    SardonyxError,
    message,
)
from sardonyx.base.log import get_logger
from sardonyx.cuda import staging
from sardonyx.cuda.again import Again, remember
from sardonyx.cuda.alike import RunsAlike
from sardonyx.cuda.arena import Arena
from sardonyx.cuda.binding import Result, give_feed, inputs_of_the_host, leave, spans_of
from sardonyx.cuda.device import Device
from sardonyx.cuda.driver import call, error_text
from sardonyx.cuda.frame import CudaFrame
from sardonyx.cuda.graphs import GRAPH_ID, Graph, Key
from sardonyx.cuda.growing import CudaRooms
from sardonyx.cuda.launching import PinnedWords
from sardonyx.cuda.libraries import Libraries, Place
from sardonyx.cuda.module import Module
from sardonyx.cuda.started import CudaStarted
from sardonyx.cuda.stream import Stream, handle_of
from sardonyx.cuda.timing import TIMES, Timeline, Times
from sardonyx.cuda.values import CudaArray
from sardonyx.plan.plan import Command, Plan
from sardonyx.runtime import refusals
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.frame import Result as ResultType
from sardonyx.runtime.rooms import Rooms
from sardonyx.runtime.started import Started
from sardonyx.runtime.storage import Array, Wanted, place

if TYPE_CHECKING:
    from sardonyx.runtime.executor import Executable
    from sardonyx.runtime.record import Record
    from sardonyx.runtime.recording import Sink

_logger = get_logger("cuda")
#: So many captures that fail in a row, and there are no more.
_MOST_FAILURES = 3


class CudaExecutable(RunsAlike):
    """As `Executable`, on a device.

    Sizes that only a run knows are read by the host: plans with such sizes keep their values in
    memory of the host that the device reaches, and the host waits for what it reads.

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
    ) -> None:
        super().__init__(plan, module, constants, device, budget, arena, libraries)
        self._default_queue = device.stream_of(stream) if stream else None
        #: Commands that no library did when they were last done.
        self._undone: set[int] = set()
        self._rooms = CudaRooms(self.device_memory)
        self._read_by_host = inputs_of_the_host(plan)
        self._types = [spec.dtype.stored for spec in plan.inputs]
        self._purposes = [f"output {spec.name}" for spec in plan.outputs]
        self.graph_mode, self._failures = graphs, 0
        self._no_graph = self._why_no_graph()
        if graphs == "wanted" and self._no_graph:
            _logger.warning("runs go without a CUDA graph: %s", self._no_graph)

    def _why_no_graph(self) -> str:
        """Why runs are not captured; "" if they are."""
        if self.graph_mode == "off":
            return "they are switched off"
        if self.mapped:
            return "the host reads sizes or conditions that the run computes"
        if self._host is not None:
            return "the host draws keys of random numbers in each run"
        return ""

    # -- running ------------------------------------------------------------------------------

    def run(self, feeds: Sequence[object], cancel: CancelFlag | None = None) -> list[Any]:
        """See `Executable.run`; NumPy arrays are copied to the device and back."""
        return self.run_to(feeds, Wanted([None] * len(self.plan.outputs)), cancel)

    def run_to(
        self, feeds: Sequence[Any], wanted: Wanted, cancel: CancelFlag | None = None
    ) -> list[Any]:
        """See `Executable.run_to`."""
        frame, queue = self._frame_for(wanted)
        sound = False
        try:
            results = self._run_in(frame, queue, feeds, wanted, cancel)
            sound = True
        except SardonyxError:
            sound = True
            raise
        finally:
            self._let_go(frame, sound)
        return results

    @property
    def is_asynchronous(self) -> bool:
        """See `Executable.is_asynchronous`: the host goes on unless it steers."""
        return not self.mapped

    @property
    def rooms(self) -> Rooms | None:
        """See `Executable.rooms`."""
        return None if self.mapped else self._rooms

    def start(self, feeds: Sequence[Any], wanted: Wanted) -> Started:
        """See `Executable.start`."""
        if self.mapped:
            return super().start(feeds, wanted)
        frame, queue = self._frame_for(wanted)
        try:
            results = self._run_in(frame, queue, feeds, replace(wanted, waits=False), None)
        except BaseException as error:
            self._let_go(frame, isinstance(error, SardonyxError))
            raise
        return CudaStarted(self, frame, results)

    def _frame_for(self, wanted: Wanted) -> tuple[CudaFrame, Stream | None]:
        """A frame, and the stream of its run; None for its own."""
        self.device.enter()
        queue = self._default_queue
        if wanted.stream is not None:
            queue = self.device.stream_of(handle_of(wanted.stream))
        return self._take_for(queue), queue

    def _run_in(
        self,
        frame: CudaFrame,
        queue: Stream | None,
        feeds: Sequence[Any],
        wanted: Wanted,
        cancel: CancelFlag | None,
    ) -> list[Any]:
        kept: list[Any] = []
        try:
            if frame.begin(queue):
                self.check_fault(frame, None)  # of a run for which nobody waited
            again = wanted.memory.get(frame.serial) if wanted.memory else None
            is_timed = TIMES.get() is not None
            if again is not None and not is_timed and again.is_current(self.libraries):
                return self._run_again(frame, again, wanted, cancel)
            frame.new_serial()
            frame.alike = None
            copies = frame.stands_in and not wanted.written
            frame.copied = frame.launches.moving if copies else frozenset()
            self._bind_to(frame, feeds, kept)
            return self._run_bound(frame, feeds, wanted, cancel, kept)
        except BaseException:
            self.give_up(frame)
            raise

    def _run_again(
        self, frame: CudaFrame, again: Again, wanted: Wanted, cancel: CancelFlag | None
    ) -> list[Any]:
        """The same graph, on the same memory, as in the frame's last run."""
        queue = frame.queue
        for feed in again.feeds:
            feed.ready_in(queue, frame.waited)
        for target in again.targets:
            target.free_in(queue)
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")
        again.graph.launch(queue.handle)
        if wanted.waits:
            self._finish(frame, cancel)
        else:
            leave(frame, again.feeds, [], again.targets)
        return again.targets

    def _bind_to(self, frame: CudaFrame, feeds: Sequence[Any], kept: list[Any]) -> None:
        """Give a frame the feeds."""
        if len(feeds) != self._input_count:
            what = "The number of feeds is wrong"
            raise InvalidArgument(
                message("run", what, expected=str(self._input_count), got=str(len(feeds)))
            )
        read = self._read_by_host
        for number, (feed, spec) in enumerate(zip(feeds, self.plan.inputs, strict=True)):
            kept += give_feed(frame, number, feed, spec, self._types[number], number in read)
        state = self._native_bind(frame.address, frame.feeds.address)
        if state < 0:
            raise EngineError(message("run", f"Feed {-1 - state} cannot be bound"))
        if state:
            self._resolve(frame)

    def _run_bound(
        self,
        frame: CudaFrame,
        feeds: Sequence[Any],
        wanted: Wanted,
        cancel: CancelFlag | None,
        kept: list[Any],
    ) -> list[Any]:
        if self.mapped:
            return self._run_mapped(frame, wanted, cancel)
        own, taken = self.device_memory, None
        results: list[Result | CudaArray] = []
        arrays: list[CudaArray] = []
        apart: dict[int, CudaArray] = {}
        for k, (found, purpose) in enumerate(zip(frame.results, self._purposes, strict=True)):
            assert found is not None  # noqa: S101 - with one segment all shapes are known
            target = wanted.targets[k]
            if target is own:
                made = own.empty(*found, purpose, frame.queue)
                results.append(made)
            else:
                taken = spans_of(feeds) if taken is None else taken
                result = Result(frame, self.plan.outputs[k].name, *found, target, taken)
                results.append(result)
                made = result.array
            if ("output", k) in frame.copied and type(made) is CudaArray:
                apart[k] = made
                frame.given.put(k, frame.stand_in("output", k, made.nbytes))
            else:
                frame.given.put(k, made.address)
            arrays.append(made)
        self._walk(frame, arrays, cancel)
        frame.copy_out(apart)
        given: list[Any] = [
            r if isinstance(r, CudaArray) else r.finish(frame, kept) for r in results
        ]
        if frame.graph is not None and not kept:
            if not frame.copied:
                remember(wanted, frame.serial, feeds, given, frame.graph, self.libraries)
            self.remember_shapes(frame, feeds)
        if wanted.waits:
            self._finish(frame, cancel)
        else:
            leave(frame, feeds, kept, [*given, *wanted.written])
        return given

    def _run_mapped(self, frame: CudaFrame, wanted: Wanted, cancel: CancelFlag | None) -> list[Any]:
        """The same where results lie in memory of the host; all has happened afterwards."""
        outputs: list[Any] = [r and self._new_result(frame, r) for r in frame.results]
        for number, k in enumerate(self._image.later[0]):
            frame.given.put(number, address_of(outputs[k]))
        self._walk(frame, outputs, cancel)
        self._finish(frame, cancel)
        rows = zip(self.plan.outputs, wanted.targets, outputs, strict=True)
        return [place(spec.name, target, found) for spec, target, found in rows]

    def _walk(self, frame: CudaFrame, outputs: list[Any], cancel: CancelFlag | None) -> None:
        """Launch everything, or replay a graph."""
        code = self._launch(frame, frame.given.address, outputs)
        if code:
            raise refusals.fault(code, frame, self.plan, cancel)
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")

    def _finish(self, frame: CudaFrame, cancel: CancelFlag | None) -> None:
        """Wait for a run; it may have taken longer than it may."""
        frame.queue.synchronize()
        self.check_fault(frame, cancel)
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")

    def _new_result(self, frame: Frame, result: ResultType) -> Any:
        """Memory for a result of a mapped plan: kernels and the host reach it."""
        return staging.new_pinned(self.device, *result, "a result", or_any=False)

    # -- launching ----------------------------------------------------------------------------

    def _launch(self, frame: CudaFrame, items: int, outputs: list[Any]) -> int:
        """Do a run: replay its graph, or launch one kernel after the other."""
        number, frame.graph = GRAPH_ID.get(), None
        times = TIMES.get()
        if times is not None:
            return self._launch_timed(frame, items, outputs, times)
        if self._no_graph or number < 0:
            return self._launch_each(frame, items, outputs)
        frame.skip()
        code = self._native_execute(frame.address, items, 0)  # writes the arguments
        if code:
            return code
        # Asked before the version: a plan that is ready in between makes another key.
        is_settled = not self.libraries.pending
        version = self.libraries.version
        key = (number, frame.launches.bucket, frame.launches.fixed, version)
        graph = frame.graphs.find(key)
        if graph is None and frame.graphs.wants(key) and is_settled:
            graph = self._capture(frame, items, outputs)
            if graph is not None:
                frame.graphs.add(key, graph)
        if graph is None:
            self._settle_addresses(frame, key)
            frame.go_on(0)
            return self._launch_each(frame, items, outputs)
        frame.launches.send()
        frame.graph = graph
        graph.launch(frame.queue.handle)
        return 0

    def _settle_addresses(self, frame: CudaFrame, key: Key) -> None:
        """From now on libraries get copies, if feeds and results lie elsewhere in each run."""
        if frame.launches.moving and not frame.stands_in and frame.graphs.are_too_many(key):
            _logger.info(
                "libraries get copies of %s, whose addresses change", frame.launches.moving
            )
            frame.stands_in = True
            frame.graphs.release(key[0])

    def _launch_timed(self, frame: CudaFrame, items: int, outputs: list[Any], times: Times) -> int:
        """Launch one kernel after the other from here, and measure them.

        All was launched once before that: what is loaded late would wait for the held stream.
        """
        if self.mapped:
            times.refused = "the host reads sizes or conditions that the run computes"
            return self._launch_each(frame, items, outputs)
        code = self._launch_each(frame, items, outputs)
        if code:
            return code
        frame.queue.synchronize()
        commands, hosted = self.plan.commands, self.image.hosted
        timeline = Timeline(frame.launches.queue, PinnedWords(self.device, 1))

        def work(number: int) -> None:
            if number in hosted:
                self._call_host(frame, number, timeline.let_go)
            else:
                frame.launches.launch(number, early=False)

        try:
            numbers = [k for k, c in enumerate(commands) if isinstance(c, Command)]
            timeline.do(numbers, work)
            timeline.take(times, commands, self._calls.keys() - self._undone)
        finally:
            timeline.close()
            frame.skip()
        return 0

    def _launch_each(self, frame: CudaFrame, items: int, outputs: list[Any]) -> int:
        return self._enter_until_done(frame, items, None, outputs)

    def _capture(self, frame: CudaFrame, items: int, outputs: list[Any]) -> Graph | None:
        """The graph of a run; None if it cannot be captured.

        Something else may have spoilt a capture, such as another library that waits for all of the
        device meanwhile. After some failures in a row there are no more.
        """

        def record() -> None:
            frame.go_on(0)
            code = self._enter_until_done(frame, items, None, outputs)
            if code:
                raise EngineError(message("CUDA graph", f"The walk ended with code {code}"))

        try:
            graph = frame.capture(record)
        except SardonyxError as error:
            self._failures += 1
            if self._failures >= _MOST_FAILURES:
                self._no_graph = f"the driver does not capture it: {error}"
                _logger.warning("runs go without a graph: %s", self._no_graph)
            return None
        self._failures = 0
        return graph

    def _call_host(
        self, frame: Frame, number: int, before_waiting: Callable[[], None] = lambda: None
    ) -> None:
        """Let a library do a command, or launch the kernel that does the same; or draw a key.

        `before_waiting` is called before anything may wait for the stream.
        """
        assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
        if number not in self._calls:
            before_waiting()
            self._draw(frame, number)
            return
        library_call, first, last = self._calls[number]
        start = self.image.argument_places[number]
        words = frame.table("arguments")[start + first : start + last].tolist()

        def work_in(size_bytes: int) -> int:
            if size_bytes > frame.workspace_bytes:
                before_waiting()
            return frame.work_in(size_bytes)

        place = Place(frame.launches.queue.handle, work_in)
        if self.libraries.run(library_call, words, place):
            self._undone.discard(number)
        else:
            self._undone.add(number)
            frame.launches.launch(number)
        frame.go_on(number + 1)

    def _draw(self, frame: CudaFrame, number: int) -> None:
        """Have numbers on the device that only the host gives, in the order of the run."""
        command = self.plan.commands[number]
        assert isinstance(command, Command)  # noqa: S101 - steps have no calls
        assert self._host is not None  # noqa: S101 - a plan with such commands has one
        assert command.host is not None  # noqa: S101 - the provider takes no other
        found = self._host.function(number, command.host)()
        start, queue = self.image.argument_places[number], frame.launches.queue
        words = frame.table("arguments")[start : start + len(command.arguments)].tolist()
        for result, value in zip(command.host.results, (found,), strict=True):
            if result is not None:
                array = np.ascontiguousarray(value, result.dtype.stored)
                block = staging.pinned_copy(self.device, array, "a key")
                address = words[0] + words[1] * array.itemsize
                call("cuMemcpyAsync", address, block.address, array.nbytes, queue.handle)
                block.uses[queue] = queue.record()
        frame.go_on(number + 1)

    def recorded(self, record: Record, sink: Sink) -> Executable:
        """See `Executable.recorded`."""
        from sardonyx.cuda.recording import RecordedCudaExecutable

        return RecordedCudaExecutable.of(self, record, sink)

    def release_graphs(self, number: int) -> None:
        """Forget the graphs that runs with this number captured."""
        for frame in list(self._frames):
            assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
            frame.graphs.release(number)
            frame.new_serial()
            frame.alike = None

    def remarks(self) -> list[str]:
        """See `Executable.remarks`."""
        others = self.libraries.remarks(len(self._calls), len(self._undone))
        if self._no_graph:
            return [f"CUDA graphs: none, {self._no_graph}", *others]
        graphs = [f.graphs for f in self._frames if isinstance(f, CudaFrame)]
        held, replays = sum(map(len, graphs)), sum(g.replays for g in graphs)
        text = f"CUDA graphs: {held}, replayed {replays} times; captured when a size comes again"
        return [text, *others]

    def _not_launched(self, frame: Frame, code: int) -> Exception:
        command = self.plan.commands[frame.get("command")]
        where = command.where if isinstance(command, Command) else "run"
        what = f"The device refuses a kernel: {error_text(code)}"
        return RuntimeException(message(where, what))

    def run_into(self, feeds: Any, outputs: Any, cancel: Any = None) -> None:
        """See `Executable.run_into`."""
        found = self.run_to(feeds, Wanted(list(outputs)), cancel)
        for target, result in zip(outputs, found, strict=True):
            if target.shape != result.shape:
                raise Fail(message("run", "An array to write to does not fit"))
