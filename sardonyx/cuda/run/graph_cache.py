"""Which runs become graphs: they are captured when they come again, and kept by their frame."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base.errors import SardonyxError
from sardonyx.base.log import get_logger
from sardonyx.cuda.libraries.background import WALKS
from sardonyx.cuda.run.device_state import DeviceState
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.graphs import GRAPH_ID, Key, RunGraph
from sardonyx.cuda.run.library_calls import LibraryCalls
from sardonyx.cuda.run.marks import MARKS, Nvtx

_logger = get_logger("cuda")
#: So many captures that fail in a row, and there are no more.
_MOST_FAILURES = 3


class GraphCache:
    """The graphs of an executable.

    Args:
        state: What the plan has on the device.
        libraries: What does commands that are no kernels.
        mode: Whether runs become graphs; see `CudaRunSettings.graphs`.
        marks: What marks all runs; None if nothing does.

    Attributes:
        marks: The same.
        no_graph: Why runs are no graphs; "" if they are.
        no_parts: Why their parts are none.
    """

    def __init__(
        self, state: DeviceState, libraries: LibraryCalls, mode: str, marks: Nvtx | None
    ) -> None:
        self._state, self._libraries, self.marks = state, libraries, marks
        self._failures = 0
        self.no_graph, self.no_parts = self._why_none(mode), ""
        if mode == "wanted" and self.no_graph:
            _logger.warning("runs go without a CUDA graph: %s", self.no_graph)

    def _why_none(self, mode: str) -> str:
        """Why runs are not captured; "" if they are."""
        state = self._state
        if mode == "off":
            return "they are switched off"
        if self.marks is not None:
            return "each node is marked for NVTX (SARDONYX_NVTX)"
        if state.mapped:
            why = state.not_on_device
            return f"the host reads sizes or conditions that the run computes: {why}"
        if self._libraries.draws:
            return "the host draws keys of random numbers in each run"
        return ""

    def key_of(self, frame: CudaFrame) -> Key:
        """What the graph of a run is found by, once its arguments are written."""
        launches = frame.launches
        return GRAPH_ID.get(), launches.bucket, launches.fixed, self._state.plans_version

    def of_run(
        self, frame: CudaFrame, key: Key, record: Callable[[], None], is_settled: bool
    ) -> RunGraph | None:
        """The graph of a run, captured if such a run came before.

        Args:
            frame: The run's.
            key: What it is found by.
            record: Does the work that is captured.
            is_settled: Whether libraries had no plan under way before the key was made: one that
                is ready in between makes another key.
        """
        graph = frame.graphs.find(key)
        if graph is None and frame.graphs.wants(key) and is_settled:
            graph = self._captured(frame, record)
            if graph is not None:
                frame.graphs.add(key, graph)
        return graph

    def of_stretch(self, frame: CudaFrame, stretch: range) -> RunGraph | None:
        """What does some commands in a row; None if they are not captured."""
        number = GRAPH_ID.get()
        if number < 0 or self.no_parts or (MARKS.get() or self.marks) is not None:
            return None
        is_settled = not self._state.libraries.pending
        key = (number, *frame.launches.part(stretch), self._state.plans_version)

        def record() -> None:
            for command in stretch:
                self._libraries.do_or_launch(frame, command)

        return self.of_run(frame, key, record, is_settled)

    def _captured(self, frame: CudaFrame, record: Callable[[], None]) -> RunGraph | None:
        """What `record` does as a graph; None if it cannot be captured.

        Something else may have spoilt a capture, such as another library that waits for all of the
        device meanwhile. After some failures in a row there are no more.
        """
        self._state.device.measurement_gate.wait()
        try:
            with WALKS:
                graph = frame.capture(record)
        except SardonyxError as error:
            self.note_failure(error)
            return None
        self.note_success()
        return graph

    def note_success(self) -> None:
        """A capture succeeded."""
        self._failures = 0

    def note_failure(self, error: SardonyxError) -> None:
        """A capture failed: after some in a row there are no more."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            self.no_graph = self.no_parts = f"the driver does not capture it: {error}"
            _logger.warning("runs go without a graph: %s", self.no_graph)

    def settle_addresses(self, frame: CudaFrame, key: Key) -> None:
        """From now on libraries get copies, if feeds and results lie elsewhere in each run."""
        moving = frame.launches.moving
        if moving and not frame.libraries.stands_in and frame.graphs.are_too_many(key):
            _logger.info("libraries get copies of %s, whose addresses change", moving)
            frame.libraries.stands_in = True
            frame.graphs.release(key[0])

    def remarks(self, frames: list[CudaFrame]) -> list[str]:
        """What is to be said of the graphs of runs."""
        state = self._state
        if self.no_graph and (self.no_parts or not state.stretches):
            return [f"CUDA graphs: none, {self.no_graph}"]
        held = sum(len(frame.graphs) for frame in frames)
        replays = sum(frame.graphs.replays for frame in frames)
        text = f"CUDA graphs: {held}, replayed {replays} times; captured when a size comes again"
        if state.stretches:
            text += f"; {len(state.stretches)} parts of a run, since {self.no_graph}"
        if state.control_flow is not None:
            count = len(state.control_flow.controls)
            text += f"; {count} control steps in each decide on branches, loops and sizes"
        return [text]
