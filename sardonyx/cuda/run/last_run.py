"""A frame's last run, and how it is done again: its graph is replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sardonyx.base.errors import SardonyxError
from sardonyx.cuda.driver.device import on_device
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.memory.arena import block_bytes
from sardonyx.cuda.run.binding import KERNEL_ALIGNMENT
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.frame_pool import CudaFrames
from sardonyx.cuda.run.graphs import GRAPH_ID, RunGraph
from sardonyx.cuda.run.replaying import Replay
from sardonyx.native.layout import WORD
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.native_runs import NativeRuns
from sardonyx.runtime.storage import size_of

#: Bits that the address of a feed must not have.
UNALIGNED = KERNEL_ALIGNMENT - 1


class LastRun:
    """What the next run is compared with.

    Attributes:
        feeds: Numbers, shapes and types of the feeds.
        results: Shapes, types, sizes in bytes and purposes of the results, and the memory each
            takes of an arena.
        graph: What did it.
        is_fixed: Whether that does it wherever feeds lie, and nothing else is to be written.
        number: The number of its graph.
        version: Of the libraries' plans.
        queue: The stream.
        waits: Whether native code waits for its end.
        replay: How it is done again. None before that is asked for.
        makers: Of tensors of torch for the results; None before that is asked for.
    """

    __slots__ = (
        "feeds", "graph", "is_fixed", "makers", "number", "queue", "replay", "results", "version",
        "waits",
    )  # fmt: skip

    def __init__(
        self,
        feeds: Sequence[Any],
        results: Iterable[tuple[tuple[int, ...], Any, str]],
        graph: RunGraph,
        is_fixed: bool,
        version: int,
        queue: Stream,
    ) -> None:
        self.feeds = [(k, f.shape, f.dtype) for k, f in enumerate(feeds)]
        sized = [(shape, dtype, size_of(shape, dtype), p) for shape, dtype, p in results]
        self.results = [(*row, block_bytes(row[2])) for row in sized]
        self.graph, self.is_fixed, self.version, self.queue = graph, is_fixed, version, queue
        self.number, self.waits = GRAPH_ID.get(), False
        self.replay: Replay | None = None
        self.makers: list[Callable[[], Any]] | None = None

    def replay_in(self, frame: CudaFrame) -> Replay:
        """`replay`, when the frame has the sizes of these runs."""
        slots, image = frame.table("slots"), frame.image
        arguments, writes = address_of(frame.table("arguments")), []
        for place, number, slot in image.moving:
            buffer = image.plan.buffers[number]
            first = 0 if buffer.kind == "input" else len(self.feeds)
            writes.append((arguments + WORD * place, first + buffer.number, int(slots[slot])))
        count = len(self.feeds) + len(self.results)
        self.replay = frame.new_replay(count, writes)
        self.aim(self.graph, self.waits)
        return self.replay

    def move_to(self, queue: Stream) -> None:
        """Have the next run be in a stream."""
        if queue is not self.queue:
            self.queue = queue
            self.aim(self.graph, self.waits)

    def aim(self, graph: RunGraph, waits: bool) -> None:
        """Have the next run replay a graph, and native code wait for it, or not."""
        assert self.replay is not None  # noqa: S101 - runs make it before
        self.graph, self.waits = graph, waits
        self.replay.aim(graph.handle, self.queue.handle, waits)


class Replays:
    """What replays of last runs need, wherever results are wanted.

    Args:
        frames: Those of the executable.
        runs: The native functions for the plan.
    """

    __slots__ = (
        "_bind", "_calls", "_check_fault", "_execute", "_is_by_device", "_libraries", "device",
    )  # fmt: skip

    def __init__(self, frames: CudaFrames, runs: NativeRuns) -> None:
        state = frames.state
        self.device, self._check_fault = state.device, frames.check_fault
        self._calls, self._libraries = state.calls, state.libraries
        self._is_by_device = state.control_flow is not None
        self._bind, self._execute = runs.bind, runs.execute

    def is_current(self, last: LastRun) -> bool:
        """Whether such a run now would do the same."""
        return last.number == GRAPH_ID.get() and (
            not self._calls or last.version == self._libraries.version
        )

    def prepare(self, frame: CudaFrame, last: LastRun, replay: Replay) -> bool:
        """Find the graph of a run, and write what its control steps need; False: the long way."""
        if replay.rewrite() and self._is_by_device and not self._place_again(frame, last, replay):
            return False
        launches = frame.launches
        if not launches.moving:
            frame.graphs.count()
            return True
        key = (last.number, launches.bucket, launches.fixed, last.version)
        graph = frame.graphs.find(key)
        if graph is not None and graph is not last.graph:
            last.aim(graph, last.waits)
        return graph is not None

    def _place_again(self, frame: CudaFrame, last: LastRun, replay: Replay) -> bool:
        """Have native code write all addresses: control steps use more than arguments."""
        given = replay.given
        for number, shape, _ in last.feeds:
            frame.feeds.put(number, given[number], shape)
        if self._bind(frame.address, frame.feeds.address):
            return False
        for number, address in enumerate(given[len(last.feeds) :]):
            frame.given.put(number, address)
        frame.skip()
        return not self._execute(frame.address, frame.given.address, 0)

    def heard(self, frame: CudaFrame, needs_look: bool, cancel: CancelFlag | None = None) -> None:
        """After a run for which somebody has waited; `needs_look` is as of the frame."""
        if frame.busy is not None:
            frame.busy = None
            frame.queue.forget()  # what runs kept that nobody waited for
        if needs_look:
            self._check_fault(frame, cancel)

    @on_device
    def give_up(self, frame: CudaFrame) -> None:
        """After a run that failed: what it uses is let go of."""
        frame.last_run = None
        frame.contexts.stop()
        with contextlib.suppress(SardonyxError):
            frame.queue.synchronize()
            frame.copies.give_up()
        frame.contexts.take_fault()
