"""Runs that a device controls by itself: each is a graph, captured when it first comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sardonyx.base.errors import SardonyxError, message
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.run.device_control_flow import LeftToHost, Recorder
from sardonyx.cuda.run.device_state import DeviceState
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.graph_cache import GraphCache
from sardonyx.cuda.run.graphs import RunGraph
from sardonyx.cuda.run.library_calls import LibraryCalls

if TYPE_CHECKING:
    from sardonyx.runtime.device_control_flow import DeviceControlFlow


class ControlFlowRuns:
    """Begins such runs.

    Args:
        state: What the plan has on the device.
        control_flow: How the device controls it.
        libraries: What does commands that are no kernels.
        graphs: The graphs of runs.
        execute: The native function of that name.
    """

    def __init__(
        self,
        state: DeviceState,
        control_flow: DeviceControlFlow,
        libraries: LibraryCalls,
        graphs: GraphCache,
        execute: Callable[[int, int, int], int],
    ) -> None:
        self._state, self._control_flow, self._libraries = state, control_flow, libraries
        self._graphs, self._execute = graphs, execute

    def launch(self, frame: CudaFrame, items: int) -> int:
        """Do a run: it is always a graph. Gives the fault's code, or 0.

        Raises:
            LeftToHost: The driver does not capture it.
        """
        code = self.prepare(frame, items)
        if code:
            return code
        key = self._graphs.key_of(frame)
        graph = frame.graphs.find(key)
        if graph is None:
            graph = self._captured(frame)
            frame.graphs.add(key, graph)
        frame.launches.table.send(frame.launches.queue)
        frame.graph = graph
        graph.launch(frame.queue.handle)
        return 0

    def prepare(self, frame: CudaFrame, items: int) -> int:
        """Write the addresses of feeds and results where the device's table is copied from."""
        frame.skip()
        return self._execute(frame.address, items, 0)

    def warm_up(self, frame: CudaFrame) -> None:
        """Let libraries do their calls once: what they load or allocate late is there then."""
        hosted = self._state.image.hosted
        if not hosted:
            return
        for number in sorted(hosted):
            frame.libraries.lane = self._control_flow.lanes[number]
            self._libraries.do(frame, number)
        frame.libraries.lane = 0
        frame.queue.synchronize()
        frame.skip()
        frame.contexts.take_fault()  # of memory that nothing was written to

    def record(self, frame: CudaFrame) -> None:
        """Put a run in a graph of the caller's; each replay begins with the table as it is now."""
        self.prepare(frame, frame.given.address)
        frame.launches.table.send(frame.launches.queue)
        frame.launches.use_table()
        try:
            self._record(frame, None)
        finally:
            frame.launches.use_arguments()

    def _record(self, frame: CudaFrame, lent: list[Stream] | None) -> None:
        """Capture the plan to the graph that the frame's stream is captured to."""
        device, control_flow = self._state.device, self._control_flow
        Recorder(device, self._libraries, frame, control_flow, lent).record()

    def _captured(self, frame: CudaFrame) -> RunGraph:
        device = self._state.device
        device.measurement_gate.wait()
        lent: list[Stream] = []
        try:
            self.warm_up(frame)
            graph = frame.capture(lambda: self._record(frame, lent))
        except SardonyxError as error:
            self._graphs.note_failure(error)
            raise LeftToHost(message("CUDA graph", f"It cannot be captured: {error}")) from None
        finally:
            for stream in lent:  # until now they were captured
                device.take_back(stream)
        self._graphs.note_success()
        return graph
