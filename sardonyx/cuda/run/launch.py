"""How the work of a run on a device begins: a graph is replayed, or kernels go one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.errors import (
    EngineError,
    RuntimeException,
    SardonyxError,
    message,
)
from sardonyx.base.log import get_logger
from sardonyx.cuda.driver.driver import call, error_text
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.interop.tensor_runs import TensorRuns
from sardonyx.cuda.libraries.background import WALKS
from sardonyx.cuda.libraries.libraries import CallPlace
from sardonyx.cuda.libraries.rehearsal import Rehearsal
from sardonyx.cuda.memory import staging
from sardonyx.cuda.run.device_control_flow import LeftToHost, record, warm_up
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.graphs import GRAPH_ID, Key, RunGraph
from sardonyx.cuda.run.launching import PinnedWords
from sardonyx.cuda.run.marks import MARKS, Nvtx, name_of
from sardonyx.cuda.run.timing import TIMES, Timeline, Times
from sardonyx.plan.plan import Command
from sardonyx.runtime.frame import Frame

if TYPE_CHECKING:
    from sardonyx.runtime.device_control_flow import DeviceControlFlow

_logger = get_logger("cuda")
#: So many captures that fail in a row, and there are no more.
_MOST_FAILURES = 3


class CudaLaunch(TensorRuns):
    """The part of `executable.CudaExecutable` that launches.

    Attributes:
        graph_mode: Whether runs become graphs; see there.
    """

    graph_mode: str
    #: Why runs are no graphs, and why their parts are none; "" if they are.
    _no_graph: str
    _no_parts: str
    _failures: int
    #: Commands that no library did when they were last done.
    _undone: set[int]
    #: What marks all runs; None if nothing does.
    _marks: Nvtx | None

    def _launch(self, frame: CudaFrame, items: int, outputs: list[Any]) -> int:
        """Do a run: replay its graph, or launch one kernel after the other."""
        number, frame.graph = GRAPH_ID.get(), None
        times = TIMES.get()
        if self.control_flow is not None:
            return self._launch_control_flow(frame, items, self.control_flow)
        if times is not None:
            return self._launch_timed(frame, items, outputs, times)
        marks = MARKS.get() or self._marks
        if marks is not None:
            return self._launch_marked(frame, items, outputs, marks)
        if self._no_graph or number < 0:
            return self._launch_each(frame, items, outputs)
        frame.skip()
        code = self._native_execute(frame.address, items, 0)  # writes the arguments
        if code:
            return code
        # Asked before the version: a plan that is ready in between makes another key.
        is_settled = not self.libraries.pending
        version = self.plans_version
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

    def _launch_control_flow(
        self, frame: CudaFrame, items: int, control_flow: DeviceControlFlow
    ) -> int:
        """Do a run that the device controls: it is always a graph.

        Raises:
            LeftToHost: The driver does not capture it.
        """
        code = self._prepare_control_flow(frame, items)
        if code:
            return code
        key = (GRAPH_ID.get(), frame.launches.bucket, frame.launches.fixed, self.plans_version)
        graph = frame.graphs.find(key)
        if graph is None:
            graph = self._capture_control_flow(frame, control_flow)
            frame.graphs.add(key, graph)
        frame.launches.send()
        frame.graph = graph
        graph.launch(frame.queue.handle)
        return 0

    def _prepare_control_flow(self, frame: CudaFrame, items: int) -> int:
        """Write the addresses of feeds and results where the device's table is copied from."""
        frame.skip()
        return self._native_execute(frame.address, items, 0)

    def _capture_control_flow(self, frame: CudaFrame, control_flow: DeviceControlFlow) -> RunGraph:
        self.device.measurement_gate.wait()
        lent: list[Stream] = []
        try:
            warm_up(self, frame, control_flow)
            graph = frame.capture(lambda: record(self, frame, control_flow, lent))
        except SardonyxError as error:
            self._note_failure(error)
            raise LeftToHost(message("CUDA graph", f"It cannot be captured: {error}")) from None
        finally:
            for stream in lent:  # until now they were captured
                self.device.take_back(stream)
        self._failures = 0
        return graph

    def _note_failure(self, error: SardonyxError) -> None:
        """After some failures in a row there are no more captures."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            self._no_graph = self._no_parts = f"the driver does not capture it: {error}"
            _logger.warning("runs go without a graph: %s", self._no_graph)

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
        if not self.mapped:
            code = self._launch_each(frame, items, outputs)
            if code:
                return code
            frame.queue.synchronize()
        timeline = frame.timeline = Timeline(frame.launches.queue, PinnedWords(self.device, 2))
        try:
            # Background measurements would wait for the held stream, with the driver's locks.
            with self.device.measurement_gate.measurement(), self.device.capturing:
                if self.mapped:  # native code stops at each command
                    return self._enter_until_done(frame, items, None, outputs)
                commands = enumerate(self.plan.commands)
                self._measure(frame, [k for k, c in commands if isinstance(c, Command)], times)
                return 0
        finally:
            frame.timeline = None
            timeline.close()
            if not self.mapped:
                frame.skip()

    def _measure(self, frame: CudaFrame, numbers: list[int], times: Times) -> None:
        """Do commands, and note how long the device works on each."""
        timeline, commands = frame.timeline, self.plan.commands
        assert timeline is not None  # noqa: S101 - only runs that have one get here

        def work(number: int) -> None:
            command = commands[number]
            assert isinstance(command, Command)  # noqa: S101 - nothing else is done
            if number in self._calls or command.host is not None:
                self.call_host(frame, number, timeline.let_go)
            else:
                frame.launches.launch(number, early=False)

        timeline.do(numbers, work)
        timeline.take(times, commands, self._calls.keys() - self._undone)

    def _launch_marked(self, frame: CudaFrame, items: int, outputs: list[Any], marks: Nvtx) -> int:
        """Launch one kernel after the other from here, each in a range of its own."""
        if self.mapped:
            with marks.range("a run that the host controls"):
                return self._launch_each(frame, items, outputs)
        frame.skip()
        code = self._native_execute(frame.address, items, 0)  # writes the arguments
        if code:
            return code
        for number, command in enumerate(self.plan.commands):
            if isinstance(command, Command):
                with marks.range(name_of(command)):
                    if number in self.image.hosted:
                        self.call_host(frame, number)
                    else:
                        frame.launches.launch(number)
        frame.skip()
        return 0

    def _launch_each(self, frame: CudaFrame, items: int, outputs: list[Any]) -> int:
        self.device.measurement_gate.wait()
        with WALKS:
            return self._enter_until_done(frame, items, None, outputs)

    def _capture(self, frame: CudaFrame, items: int, outputs: list[Any]) -> RunGraph | None:
        """The graph of a run; None if it cannot be captured.

        Something else may have spoilt a capture, such as another library that waits for all of the
        device meanwhile. After some failures in a row there are no more.
        """

        def record() -> None:
            frame.go_on(0)
            code = self._enter_until_done(frame, items, None, outputs)
            if code:
                raise EngineError(message("CUDA graph", f"The walk ended with code {code}"))

        return self._captured(frame, record)

    def _captured(self, frame: CudaFrame, record: Callable[[], None]) -> RunGraph | None:
        self.device.measurement_gate.wait()
        try:
            with WALKS:
                graph = frame.capture(record)
        except SardonyxError as error:
            self._note_failure(error)
            return None
        self._failures = 0
        return graph

    def _call_host(self, frame: Frame, number: int) -> None:
        assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
        if frame.timeline is not None and (times := TIMES.get()) is not None:
            self._measure(frame, [number], times)
            frame.go_on(number + 1)
            return
        stretch = self.stretches.get(number)
        if stretch is None:
            self.call_host(frame, number)
            return
        graph = self._graph_of(frame, stretch)
        if graph is None:
            self._do_command(frame, number)  # native code does the others
            return
        if frame.launches.send():
            frame.launches.left(frame.queue.record())  # there may be another one in this run
        graph.launch(frame.queue.handle)
        frame.go_on(stretch.stop)

    # -- parts of runs that the host controls ---------------------------------------------------

    def _do_command(self, frame: CudaFrame, number: int) -> None:
        """Launch a kernel from here, or have a library do its work."""
        if number in self._calls:
            self.call_host(frame, number)
        else:
            frame.launches.launch(number)
            frame.go_on(number + 1)

    def _graph_of(self, frame: CudaFrame, stretch: range) -> RunGraph | None:
        """What does some commands in a row; None if they are not captured."""
        number = GRAPH_ID.get()
        if number < 0 or self._no_parts or (MARKS.get() or self._marks) is not None:
            return None
        key = (number, *frame.launches.part(stretch), self.plans_version)
        graph = frame.graphs.find(key)
        if graph is None and frame.graphs.wants(key) and not self.libraries.pending:

            def record() -> None:
                for command in stretch:
                    self._do_command(frame, command)

            graph = self._captured(frame, record)
            if graph is not None:
                frame.graphs.add(key, graph)
        return graph

    def call_host(
        self,
        frame: Frame,
        number: int,
        before_waiting: Callable[[], None] = lambda: None,
        *,
        early: bool = True,
    ) -> None:
        """Let a library do a command, or launch the kernel that does the same; or draw a key.

        Args:
            frame: The run's.
            number: The command's.
            before_waiting: Called before anything may wait for the stream.
            early: Whether a kernel may begin before the work in front of it has ended.
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

        def rehearse() -> Rehearsal | None:
            return Rehearsal.of(frame, self.image, number, self.module)

        launches = frame.launches
        is_ready = partial(launches.is_ready, number)
        place = CallPlace(launches.queue.handle, work_in, rehearse, is_ready)
        if self.libraries.run(library_call, words, place):
            self._undone.discard(number)
        else:
            self._undone.add(number)
            launches.launch(number, early=early)
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

    def _not_launched(self, frame: Frame, code: int) -> Exception:
        command = self.plan.commands[frame.get("command")]
        where = command.where if isinstance(command, Command) else "run"
        what = f"The device refuses a kernel: {error_text(code)}"
        return RuntimeException(message(where, what))
