"""How the work of a run on a device begins: a graph is replayed, or kernels go one by one."""

from __future__ import annotations

from functools import partial
from typing import Any

from sardonyx.base.errors import EngineError, RuntimeException, SardonyxError, message
from sardonyx.cuda.driver.driver import error_text
from sardonyx.cuda.libraries.background import WALKS
from sardonyx.cuda.run.argument_table import PinnedWords
from sardonyx.cuda.run.control_flow_runs import ControlFlowRuns
from sardonyx.cuda.run.device_control_flow import LeftToHost
from sardonyx.cuda.run.device_state import DeviceState
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.graph_cache import GraphCache
from sardonyx.cuda.run.graphs import GRAPH_ID
from sardonyx.cuda.run.library_calls import LibraryCalls
from sardonyx.cuda.run.marks import MARKS, Nvtx, name_of
from sardonyx.cuda.run.timing import TIMES, Timeline, Times
from sardonyx.plan.plan import Command
from sardonyx.runtime.native_runs import NativeRuns


def measure(
    frame: CudaFrame,
    numbers: list[int],
    state: DeviceState,
    libraries: LibraryCalls,
    times: Times,
) -> None:
    """Do commands, and note how long the device works on each.

    Args:
        frame: The run's; it has a timeline.
        numbers: Of the commands.
        state: What the plan has on the device.
        libraries: What does commands that are no kernels.
        times: Gets what was measured.
    """
    timeline, commands = frame.timeline, state.plan.commands
    assert timeline is not None  # noqa: S101 - only runs that have one get here

    def work(number: int) -> None:
        command = commands[number]
        assert isinstance(command, Command)  # noqa: S101 - nothing else is done
        if number in state.calls or command.host is not None:
            libraries.do(frame, number, timeline.let_go)
        else:
            frame.launches.launch(number, early=False)

    timeline.do(numbers, work)
    timeline.take(times, commands, libraries.done)


class CudaStops:
    """See `runtime.native_runs.Stops`.

    Args:
        state: What the plan has on the device.
        libraries: What does commands that are no kernels.
        graphs: Has graphs of commands between steps of the host.
    """

    def __init__(self, state: DeviceState, libraries: LibraryCalls, graphs: GraphCache) -> None:
        self._state, self._libraries, self._graphs = state, libraries, graphs

    def give_results(self, frame: CudaFrame, segment: int, outputs: list[Any]) -> None:
        """See `Stops.give_results`."""
        assert frame.make is not None  # noqa: S101 - in a run
        later = self._state.image.later[segment]
        frame.reserve_results(segment)
        for number in later:
            outputs[number] = frame.make(number, frame.result(number))
        frame.give(segment, {k: outputs[k] for k in later})

    def call_host(self, frame: CudaFrame, number: int) -> None:
        """See `Stops.call_host`."""
        if frame.timeline is not None and (times := TIMES.get()) is not None:
            measure(frame, [number], self._state, self._libraries, times)
            frame.go_on(number + 1)
            return
        stretch = self._state.stretches.get(number)
        if stretch is None:
            self._libraries.do(frame, number)
            return
        graph = self._graphs.of_stretch(frame, stretch)
        if graph is None:
            self._libraries.do_or_launch(frame, number)  # native code does the others
            return
        launches = frame.launches
        if launches.table.send(launches.queue):
            launches.table.left(frame.queue.record())  # there may be another one in this run
        graph.launch(frame.queue.handle)
        frame.go_on(stretch.stop)

    def not_launched(self, frame: CudaFrame, code: int) -> Exception:
        """See `Stops.not_launched`."""
        command = self._state.plan.commands[frame.get("command")]
        where = command.where if isinstance(command, Command) else "run"
        what = f"The device refuses a kernel: {error_text(code)}"
        return RuntimeException(message(where, what))


class CudaLauncher:
    """Begins runs of bound frames.

    Args:
        state: What the plan has on the device.
        libraries: What does commands that are no kernels.
        graphs: The graphs of runs.

    Attributes:
        runs: The native functions for the plan.
        control_flow: Runs that the device controls; None if it controls none.
    """

    def __init__(self, state: DeviceState, libraries: LibraryCalls, graphs: GraphCache) -> None:
        self._state, self._libraries, self._graphs = state, libraries, graphs
        self.runs = NativeRuns(state.image, CudaStops(state, libraries, graphs))
        self.control_flow: ControlFlowRuns | None = None
        if state.control_flow is not None:
            self.control_flow = ControlFlowRuns(
                state, state.control_flow, libraries, graphs, self.runs.execute
            )
        self._may_be_refused = any(s.conditional for s in state.plan.segments)

    def bind(self, frame: CudaFrame) -> None:
        """Give a frame the feeds that its records name.

        Sizes of branches are worked out before it is known which one is taken. If they cannot be,
        the host's run says whether those of the one that is are wrong.

        Raises:
            LeftToHost: The host finds out what is wrong with the sizes.
            InvalidArgument: The plan does not take such feeds.
        """
        state = self.runs.bind(frame.address, frame.feeds.address)
        if state < 0:
            raise EngineError(message("run", f"Feed {-1 - state} cannot be bound"))
        if not state:
            return
        try:
            self.runs.resolve(frame)
        except SardonyxError as error:
            if self.control_flow is not None and self._may_be_refused:
                raise LeftToHost(str(error)) from error
            raise

    def launch(self, frame: CudaFrame, items: int, outputs: list[Any]) -> int:
        """Do a run: replay its graph, or launch one kernel after the other.

        Arguments and result are those of `NativeRuns.walk`.
        """
        number, frame.graph = GRAPH_ID.get(), None
        times = TIMES.get()
        if self.control_flow is not None:
            return self.control_flow.launch(frame, items)
        if times is not None:
            return self._launch_timed(frame, items, outputs, times)
        marks = MARKS.get() or self._graphs.marks
        if marks is not None:
            return self._launch_marked(frame, items, outputs, marks)
        if self._graphs.no_graph or number < 0:
            return self.launch_each(frame, items, outputs)
        code = self._write_arguments(frame, items)
        if code:
            return code
        is_settled = not self._state.libraries.pending
        key = self._graphs.key_of(frame)
        record = partial(self._record, frame, items, outputs)
        graph = self._graphs.of_run(frame, key, record, is_settled)
        if graph is None:
            self._graphs.settle_addresses(frame, key)
            frame.go_on(0)
            return self.launch_each(frame, items, outputs)
        frame.launches.table.send(frame.launches.queue)
        frame.graph = graph
        graph.launch(frame.queue.handle)
        return 0

    def launch_each(self, frame: CudaFrame, items: int, outputs: list[Any]) -> int:
        """Launch one kernel after the other, from native code."""
        self._state.device.measurement_gate.wait()
        with WALKS:
            return self.runs.walk(frame, items, outputs)

    def _write_arguments(self, frame: CudaFrame, items: int) -> int:
        frame.skip()
        return self.runs.execute(frame.address, items, 0)

    def _record(self, frame: CudaFrame, items: int, outputs: list[Any]) -> None:
        frame.go_on(0)
        code = self.runs.walk(frame, items, outputs)
        if code:
            raise EngineError(message("CUDA graph", f"The walk ended with code {code}"))

    def _launch_timed(self, frame: CudaFrame, items: int, outputs: list[Any], times: Times) -> int:
        """Launch one kernel after the other from here, and measure them.

        All was launched once before that: what is loaded late would wait for the held stream.
        """
        state = self._state
        if not state.mapped:
            code = self.launch_each(frame, items, outputs)
            if code:
                return code
            frame.queue.synchronize()
        timeline = frame.timeline = Timeline(frame.launches.queue, PinnedWords(state.device, 2))
        try:
            # Background measurements would wait for the held stream, with the driver's locks.
            with state.device.measurement_gate.measurement(), state.device.capturing:
                if state.mapped:  # native code stops at each command
                    return self.runs.walk(frame, items, outputs)
                commands = enumerate(state.plan.commands)
                numbers = [k for k, c in commands if isinstance(c, Command)]
                measure(frame, numbers, state, self._libraries, times)
                return 0
        finally:
            frame.timeline = None
            timeline.close()
            if not state.mapped:
                frame.skip()

    def _launch_marked(self, frame: CudaFrame, items: int, outputs: list[Any], marks: Nvtx) -> int:
        """Launch one kernel after the other from here, each in a range of its own."""
        if self._state.mapped:
            with marks.range("a run that the host controls"):
                return self.launch_each(frame, items, outputs)
        code = self._write_arguments(frame, items)
        if code:
            return code
        for number, command in enumerate(self._state.plan.commands):
            if isinstance(command, Command):
                with marks.range(name_of(command)):
                    if number in self._state.image.hosted:
                        self._libraries.do(frame, number)
                    else:
                        frame.launches.launch(number)
        frame.skip()
        return 0
