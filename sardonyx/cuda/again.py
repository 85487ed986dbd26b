"""Runs that are a frame's last run again: the same memory, the same graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sardonyx.base.errors import SardonyxError
from sardonyx.cuda.addresses import named
from sardonyx.cuda.alike import RunsAlike
from sardonyx.cuda.frame import CudaFrame
from sardonyx.cuda.graphs import GRAPH_ID, Graph
from sardonyx.cuda.stream import Stream
from sardonyx.cuda.values import CudaArray
from sardonyx.runtime.native_layout import FAULTY
from sardonyx.runtime.storage import Wanted

#: Runs that whoever binds memory remembers, one for each frame; the oldest go first.
_MOST_REMEMBERED = 8


class Again(NamedTuple):
    """What a run used, all of it in memory of the device.

    Whoever binds memory once runs on it again and again: then nothing need be bound, resolved or
    sent. He remembers it, and so lets go of it when he lets go of his memory.

    Attributes:
        feeds: The feeds.
        targets: What the outputs were written to.
        graph: What did it.
        number: The graph's number.
        version: Of the libraries' plans before the run began.
    """

    feeds: list[CudaArray]
    targets: list[CudaArray]
    graph: Graph
    number: int
    version: int

    def come_after(self, queue: Stream, waited: set[str]) -> None:
        """Let work that comes now in a stream begin after what else works on the memory."""
        for feed in self.feeds:
            feed.ready_in(queue, waited)
        for target in self.targets:
            target.free_in(queue)

    def is_current(self, version: int) -> bool:
        """Whether a run now, with this version of the libraries' plans, would do the same."""
        return version == self.version and GRAPH_ID.get() == self.number


class RunsRemembered(RunsAlike):
    """The part of `executor.CudaExecutable` for such runs that are waited for."""

    def run_remembered(self, memory: dict[int, Any]) -> list[Any] | None:
        """See `Executable.run_remembered`."""
        try:
            frame: CudaFrame = self._free.pop()  # type: ignore[assignment]  # it makes no others
        except IndexError:
            return None
        again: Again | None = memory.get(frame.serial)
        sound, results = False, None
        try:
            if again is not None and self._may_repeat(frame, again.number, again.version):
                results = self._repeat(frame, again)
            sound = True
        except BaseException as error:
            sound = isinstance(error, SardonyxError)
            self.give_up(frame)
            assert again is not None  # noqa: S101 - nothing else can fail
            raise named(error, self.plan, again.feeds, again.targets)  # noqa: B904 - mostly it is the same
        finally:
            self._let_go(frame, sound)
        return results

    def _repeat(self, frame: CudaFrame, again: Again) -> list[CudaArray] | None:
        if not frame.is_patient:
            return None
        queue = frame.queue
        if any(_is_awaited(x, queue) for x in (*again.feeds, *again.targets)):
            frame.waited.clear()
            with self.device.entered():
                again.come_after(queue, frame.waited)
        frame.graph = again.graph
        frame.graphs.count()
        frame.replay.aim(again.graph.handle, queue.handle, True)
        state = frame.replay.go()
        frame.busy = None
        if state & FAULTY:
            self.check_fault(frame, None)
        return again.targets


def _is_awaited(array: CudaArray, queue: Stream) -> bool:
    """Whether a run in a stream must ask what else works on the memory."""
    written = array.order.written
    return (
        array.block is None
        or array.producer is not None
        or (written is not None and written[0] is not queue)
        or any(other is not queue for other in array.order.uses)
    )


def remember(
    wanted: Wanted,
    serial: int,
    feeds: Sequence[Any],
    results: list[Any],
    graph: Graph,
    version: int,
) -> None:
    """Note a run for whoever bound its memory, unless other memory took part.

    Args:
        wanted: What was wanted; its memory is where runs are remembered.
        serial: The run's number.
        feeds: What was fed.
        results: What came of it.
        graph: What did it.
        version: Of the libraries' plans before it began.
    """
    memory = wanted.memory
    if memory is None:
        return
    for tensor in (*wanted.targets, *feeds):
        if not isinstance(tensor, CudaArray):
            return
    while len(memory) >= _MOST_REMEMBERED:
        del memory[next(iter(memory))]
    memory[serial] = Again(list(feeds), results, graph, GRAPH_ID.get(), version)
