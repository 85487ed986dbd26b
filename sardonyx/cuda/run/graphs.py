"""Runs as CUDA graphs: captured by themselves, one for each capacity, and replayed.

A run whose plan has one segment does the same launches every time. The first run of a capacity
launches them one by one; the second is captured; from then on one call of the driver does them all.
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from sardonyx.cuda.driver.driver import bindings, call, release

if TYPE_CHECKING:
    from sardonyx.cuda.driver.stream import Stream

#: Graphs that a frame keeps; the one that was not used for the longest time goes first.
MOST_GRAPHS = 8
#: So many captures in a row that no run used again, and the frame captures no more.
_MOST_WASTED = 32
#: So many runs without a graph that differ in addresses alone; libraries then work on copies.
_MOST_MISSED = 2 * MOST_GRAPHS
#: What the run's configuration says: -1 for no graph; others tell graphs apart.
GRAPH_ID: ContextVar[int] = ContextVar("gpu_graph_id", default=0)


@contextmanager
def numbered(number: int) -> Iterator[None]:
    """Runs in the `with` block become graphs of a number; -1 for none."""
    token = GRAPH_ID.set(number)
    try:
        yield
    finally:
        GRAPH_ID.reset(token)


#: A run that one graph serves: its number, what its launches and its calls of libraries were made
#: for, and what libraries could do then.
Key = tuple[int, bytes, bytes, int]


class RunGraph:
    """A captured run, ready to be replayed.

    Args:
        queue: The stream that is captured.
        record: Puts the run's work in it.

    Attributes:
        handle: As the driver has it.
    """

    __slots__ = ("_device", "_executable", "handle")

    def __init__(self, queue: Stream, record: Callable[[], None]) -> None:
        driver, stream, self._device = bindings(), queue.handle, queue.device
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        call("cuStreamBeginCapture", stream, mode)
        try:
            record()
        except BaseException:
            # The stream must leave the capture, whatever has become of it.
            _, graph = driver.cuStreamEndCapture(stream)
            if graph is not None and int(graph):
                driver.cuGraphDestroy(graph)
            raise
        graph = call("cuStreamEndCapture", stream)
        try:
            self._executable = call("cuGraphInstantiate", graph, 0)
            self.handle = int(self._executable)
        finally:
            call("cuGraphDestroy", graph)

    def launch(self, stream: Any) -> None:
        """Replay it."""
        call("cuGraphLaunch", self.handle, stream)

    def __del__(self) -> None:
        if hasattr(self, "_executable") and release is not None:
            release("cuGraphExecDestroy", self._executable, device=self._device)


class Graphs:
    """Those of one frame.

    Args:
        parts: How many graphs a run has, where it is cut into parts.

    Attributes:
        captures, replays: How many there were.
    """

    def __init__(self, parts: int = 1) -> None:
        self._parts = max(1, parts)
        self._held: OrderedDict[Key, RunGraph | None] = OrderedDict()
        self.captures = self.replays = 0
        self._wasted = 0
        #: How many runs had none, by what they have in common but what a library was given.
        self._missed: Counter[tuple[int, bytes, int]] = Counter()

    def __len__(self) -> int:
        return sum(graph is not None for graph in list(self._held.values()))

    def find(self, key: Key) -> RunGraph | None:
        """The graph for a run."""
        found = self._held.get(key)
        if found is not None:
            with contextlib.suppress(KeyError):  # another thread has released it
                self._held.move_to_end(key)
            self.count()
        return found

    def count(self) -> None:
        """A graph is used again."""
        self.replays += 1
        self._wasted = 0

    def wants(self, key: Key) -> bool:
        """Whether such a run is to be captured: it came before, and captures are of use here."""
        self._missed[key[0], key[1], key[3]] += 1
        if key in self._held:
            return self._wasted < _MOST_WASTED * self._parts
        self._keep(key, None)
        return False

    def add(self, key: Key, graph: RunGraph) -> None:
        """Keep a graph."""
        self.captures += 1
        self._wasted += 1
        self._keep(key, graph)

    def are_too_many(self, key: Key) -> bool:
        """Whether graphs are of little use, since a library is given something else each time."""
        return self._missed[key[0], key[1], key[3]] >= _MOST_MISSED

    def _keep(self, key: Key, graph: RunGraph | None) -> None:
        self._held.pop(key, None)
        self._held[key] = graph
        most = MOST_GRAPHS * self._parts
        while len(self) > most or len(self._held) > 2 * most:
            self._held.pop(self._oldest(len(self) > most), None)

    def _oldest(self, captured: bool) -> Key:
        entries = list(self._held.items())
        return next(k for k, graph in entries if not captured or graph is not None)

    def release(self, number: int | None = None) -> None:
        """Forget the graphs of a number; all of them without one. Any thread may ask for it."""
        for key in list(self._held):
            if number is None or key[0] == number:
                self._held.pop(key, None)
