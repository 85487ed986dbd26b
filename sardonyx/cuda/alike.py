"""Runs whose shapes are those of a frame's last run: other addresses, the same graph."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from sardonyx.base.errors import SardonyxError
from sardonyx.cuda.binding import KERNEL_ALIGNMENT
from sardonyx.cuda.capturing import is_captured
from sardonyx.cuda.frame import CudaFrame
from sardonyx.cuda.graphs import GRAPH_ID, Graph
from sardonyx.cuda.resident import Resident
from sardonyx.cuda.stream import Stream
from sardonyx.cuda.values import CudaArray

_UNALIGNED = KERNEL_ALIGNMENT - 1


class Alike(NamedTuple):
    """What the next run is compared with.

    Attributes:
        feeds: Shapes and types of the feeds.
        results: Shapes and types of the results.
        graph: What did it, and does it wherever feeds lie; None if that is to be looked up.
        number: The number of its graph.
        version: Of the libraries' plans.
        queue: The stream.
    """

    feeds: list[tuple[tuple[int, ...], Any]]
    results: list[tuple[tuple[int, ...], Any]]
    graph: Graph | None
    number: int
    version: int
    queue: Stream


class RunsAlike(Resident):
    """The part of `executor.CudaExecutable` for such runs."""

    _default_queue: Stream | None
    _purposes: list[str]

    def remember_shapes(self, frame: CudaFrame, feeds: Sequence[Any]) -> None:
        """After a run that was a graph: the next may be alike."""
        frame.alike = None
        results = [r for r in frame.results if r is not None]
        if all(type(f) is CudaArray for f in feeds) and len(results) == len(self._purposes):
            shapes = [(f.shape, f.dtype) for f in feeds]
            number, version = GRAPH_ID.get(), self.libraries.version
            graph = None if frame.launches.moving else frame.graph
            frame.alike = Alike(shapes, results, graph, number, version, frame.queue)

    def run_alike(self, feeds: tuple[Any, ...]) -> list[Any] | None:
        """See `Executable.run_alike`."""
        try:
            frame = self._free.pop()
        except IndexError:
            return None
        assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
        alike, sound = frame.alike, True
        try:
            if alike is None or not self._is_alike(frame, alike, feeds):
                return None
            sound = False
            results = self._replay(frame, alike, feeds)
            sound = True
            return results
        except BaseException as error:
            sound = isinstance(error, SardonyxError)
            self.give_up(frame)
            raise
        finally:
            self._let_go(frame, sound)

    def give_up(self, frame: CudaFrame) -> None:
        """After a run that failed: what it uses is let go of."""
        frame.new_serial()
        frame.alike = None
        frame.stop()
        with contextlib.suppress(SardonyxError):
            frame.queue.synchronize()
        frame.take_fault()

    def _is_alike(self, frame: CudaFrame, alike: Alike, feeds: tuple[Any, ...]) -> bool:
        if (
            frame.busy is not None
            or alike.queue is not (self._default_queue or frame.own_queue)
            or alike.queue is not frame.queue
            or alike.number != GRAPH_ID.get()
            or (self._default_queue is not None and is_captured(self._default_queue))
            or alike.version != self.libraries.version
        ):
            return False
        device = self.device
        for feed, (shape, dtype) in zip(feeds, alike.feeds, strict=True):
            if (
                type(feed) is not CudaArray
                or feed.shape != shape
                or feed.dtype is not dtype
                or feed.device is not device
                or feed.address & _UNALIGNED
            ):
                return False
        return True

    def _replay(self, frame: CudaFrame, alike: Alike, feeds: tuple[Any, ...]) -> list[Any] | None:
        self.device.enter()
        queue, waited = alike.queue, frame.waited
        waited.clear()
        put = frame.feeds.put
        for number, feed in enumerate(feeds):
            if feed.block is None or feed.producer is not None or feed.order.written is not None:
                feed.ready_in(queue, waited)
            is_copied = ("input", number) in frame.copied
            put(number, frame.copy_in(number, feed) if is_copied else feed.address)
        if self._native_bind(frame.address, frame.feeds.address):
            return None
        results, new, apart = [], self.device_memory.empty, {}
        for number, (result, purpose) in enumerate(zip(alike.results, self._purposes, strict=True)):
            made = new(*result, purpose, queue)
            results.append(made)
            address = made.address
            if ("output", number) in frame.copied:
                apart[number] = made
                address = frame.stand_in("output", number, made.nbytes)
            frame.given.put(number, address)
        frame.skip()
        if self._native_execute(frame.address, frame.given.address, 0):
            return None
        launches, graph = frame.launches, alike.graph
        if graph is None:
            key = (alike.number, launches.bucket, launches.fixed, alike.version)
            graph = frame.graphs.find(key)
            if graph is None:
                return None
        else:
            frame.graphs.count()
        launches.send()
        frame.graph = graph
        graph.launch(queue.handle)
        frame.copy_out(apart)
        frame.finish()
        if frame.has_fault:
            self.check_fault(frame, None)
        return results
