"""Runs whose shapes are those of a frame's last run: other addresses, the same graph.

Nothing is bound or resolved then: of the arguments of kernels those change that are addresses of
feeds and results. They are written where native code would write them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from sardonyx.base.errors import SardonyxError
from sardonyx.cuda import staging
from sardonyx.cuda.addresses import named
from sardonyx.cuda.binding import KERNEL_ALIGNMENT
from sardonyx.cuda.capturing import is_captured
from sardonyx.cuda.device import on_device
from sardonyx.cuda.frame import CudaFrame
from sardonyx.cuda.graphs import GRAPH_ID, Graph
from sardonyx.cuda.resident import Resident
from sardonyx.cuda.stream import Stream
from sardonyx.cuda.values import CudaArray
from sardonyx.runtime.storage import size_of

#: Bits that the address of a feed must not have.
UNALIGNED = KERNEL_ALIGNMENT - 1


class Alike:
    """What the next run is compared with.

    Attributes:
        feeds: Shapes and types of the feeds.
        results: Shapes, types, sizes in bytes and purposes of the results.
        graph: What did it, and does it wherever feeds lie; None if that is to be looked up.
        number: The number of its graph.
        version: Of the libraries' plans.
        queue: The stream.
        addresses: Of feeds, then results, as kernels have them; 0 before it is known.
        places: For each of these the arguments that lie in it: their places, and the bytes from
            its start. None before that is asked for.
    """

    __slots__ = (
        "addresses", "feeds", "graph", "number", "places", "queue", "results", "version",
    )  # fmt: skip

    def __init__(
        self,
        feeds: Sequence[Any],
        results: Iterable[tuple[tuple[int, ...], Any, str]],
        graph: Graph | None,
        version: int,
        queue: Stream,
    ) -> None:
        self.feeds = [(f.shape, f.dtype) for f in feeds]
        self.results = [(shape, dtype, size_of(shape, dtype), p) for shape, dtype, p in results]
        self.graph, self.version, self.queue = graph, version, queue
        self.number = GRAPH_ID.get()
        self.addresses = [0] * (len(self.feeds) + len(self.results))
        self.places: list[list[tuple[int, int]]] | None = None

    def places_in(self, frame: CudaFrame) -> list[list[tuple[int, int]]]:
        """`places`, when the frame has the sizes of these runs."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.addresses]
        slots, image = frame.table("slots"), frame.image
        for place, number, slot in image.moving:
            buffer = image.plan.buffers[number]
            first = 0 if buffer.kind == "input" else len(self.feeds)
            found[first + buffer.number].append((place, int(slots[slot])))
        self.places = found
        return found


class RunsAlike(Resident):
    """The part of `executor.CudaExecutable` for such runs."""

    _default_queue: Stream | None
    _purposes: list[str]

    def remember_shapes(self, frame: CudaFrame, feeds: Sequence[Any], version: int) -> None:
        """After a run that was a graph: the next may be alike.

        `version` is that of the libraries' plans before the run began: others may be ready now.
        """
        frame.alike = None
        results = [(*r, p) for r, p in zip(frame.results, self._purposes, strict=True) if r]
        if all(type(f) is CudaArray for f in feeds) and len(results) == len(self._purposes):
            graph = None if frame.launches.moving else frame.graph
            frame.alike = Alike(feeds, results, graph, version, frame.queue)

    def run_alike(self, feeds: tuple[Any, ...]) -> list[Any] | None:
        """See `Executable.run_alike`."""
        found = self._replay_alike(feeds)
        return None if found is None else found[1]

    @on_device
    def fetch_alike(self, feeds: tuple[Any, ...]) -> list[Any] | None:
        """See `Executable.fetch_alike`."""
        found = self._replay_alike(feeds, fetches=True)
        return None if found is None else found[1]

    @on_device
    def leave_alike(self, feeds: tuple[Any, ...]) -> list[Any] | None:
        """See `Executable.leave_alike`."""
        found = self._replay_alike(feeds, waits=False)
        return None if found is None else found[1]

    def start_alike(self, feeds: tuple[Any, ...]) -> tuple[CudaFrame, list[Any]] | None:
        """`leave_alike`; gives the frame, too, which no other run gets before `give_back`."""
        return self._replay_alike(feeds, waits=False, keeps=True)

    def _replay_alike(
        self,
        feeds: tuple[Any, ...],
        *,
        waits: bool = True,
        fetches: bool = False,
        keeps: bool = False,
    ) -> tuple[CudaFrame, list[Any]] | None:
        try:
            frame = self._free.pop()
        except IndexError:
            return None
        assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
        alike, sound, results = frame.alike, True, None
        try:
            at = None if alike is None else self._addresses_if_alike(frame, alike, feeds)
            if alike is not None and at is not None:
                sound = False
                results = self._replay(frame, alike, feeds, at, waits and not fetches)
                if results is not None:
                    if fetches:
                        results = self._fetch(frame, results)
                    elif waits:
                        heard(self, frame)
                    else:
                        _leave(frame, alike.queue, feeds, results)
                sound = True
        except BaseException as error:
            sound = isinstance(error, SardonyxError)
            self.give_up(frame)
            raise named(error, self.plan, feeds)  # noqa: B904 - mostly it is the same
        finally:
            if results is None or not keeps:
                self._let_go(frame, sound)
        return None if results is None else (frame, results)

    @on_device
    def give_up(self, frame: CudaFrame) -> None:
        """After a run that failed: what it uses is let go of."""
        frame.new_serial()
        frame.alike = None
        frame.stop()
        with contextlib.suppress(SardonyxError):
            frame.queue.synchronize()
            frame.copies.give_up()
        frame.take_fault()

    def _addresses_if_alike(
        self, frame: CudaFrame, alike: Alike, feeds: tuple[Any, ...]
    ) -> list[int] | None:
        """Where the feeds are, if the graph of the last run would do; None if not."""
        queue, busy, own = alike.queue, frame.busy, self._default_queue
        if (
            queue is not (own or frame.own_queue)
            or queue is not frame.queue
            # A run that was left comes first, and somebody must hear of its faults.
            or (busy is not None and (busy[0] is not queue or frame.has_fault))
            or alike.number != GRAPH_ID.get()
            or (own is not None and is_captured(own))
            or alike.version != self.libraries.version
        ):
            return None
        device, found = self.device, []
        for feed, (shape, dtype) in zip(feeds, alike.feeds, strict=True):
            if (
                type(feed) is not CudaArray
                or feed.shape != shape
                or feed.dtype is not dtype
                or feed.device is not device
            ):
                return None
            address = feed.address
            if address & UNALIGNED:
                return None
            found.append(address)
        return found

    def _replay(
        self,
        frame: CudaFrame,
        alike: Alike,
        feeds: tuple[Any, ...],
        at: list[int],
        waits: bool,
    ) -> list[Any] | None:
        """Replay the graph with other addresses; None if there is none.

        Args:
            frame: The run's.
            alike: What the run is like.
            feeds: Its feeds.
            at: Their addresses; gets those of the results.
            waits: Whether to wait until the run is over.
        """
        device, queue = self.device, alike.queue
        awaited = [
            f
            for f in feeds
            if f.block is None or f.producer is not None or f.order.written is not None
        ]
        if awaited:
            frame.waited.clear()
            with device.entered():
                for feed in awaited:
                    feed.ready_in(queue, frame.waited)
        results: list[Any] = []
        allocate = self.device_memory.arena.allocate
        for shape, dtype, size_bytes, purpose in alike.results:
            block = allocate(size_bytes, purpose, queue)
            results.append(CudaArray.in_block(device, shape, dtype, block, size_bytes))
            at.append(block.address)
        apart = _set_apart(frame, feeds, results, at) if frame.copied else None
        changed = at != alike.addresses
        if changed and not self._rewrite(frame, alike, at):
            _let_go_of(frame, queue, feeds, results)
            return None
        launches, graph = frame.launches, alike.graph
        if graph is None:
            key = (alike.number, launches.bucket, launches.fixed, alike.version)
            graph = frame.graphs.find(key)
            if graph is None:
                _let_go_of(frame, queue, feeds, results)
                return None
        else:
            frame.graphs.count()
        frame.graph = graph
        is_plain = waits and frame.is_patient and not apart
        if changed:
            frame.new_serial()  # who remembers the run before would find its arguments no more
            frame.replays.go(graph.handle, queue.handle, is_plain, launches.staged())
        else:
            frame.replays.go(graph.handle, queue.handle, is_plain)
        if not is_plain and (apart or waits):
            with device.entered():
                frame.copy_out(apart or {})
                if waits:
                    frame.finish()
        return results

    def _rewrite(self, frame: CudaFrame, alike: Alike, at: list[int]) -> bool:
        """Write other addresses of feeds and results; False if it takes the long way."""
        words, known = frame.arguments, alike.addresses
        places = alike.places or alike.places_in(frame)
        for number, address in enumerate(at):
            if address != known[number]:
                for place, offset in places[number]:
                    words[place] = address + offset
        alike.addresses = at
        return self.steering is None or self._place_again(frame, alike)

    def _place_again(self, frame: CudaFrame, alike: Alike) -> bool:
        """Have native code write all addresses: turns of the device use more than arguments."""
        count = len(alike.feeds)
        for number, (shape, _) in enumerate(alike.feeds):
            frame.feeds.put(number, alike.addresses[number], shape)
        if self._native_bind(frame.address, frame.feeds.address):
            return False
        for number, address in enumerate(alike.addresses[count:]):
            frame.given.put(number, address)
        frame.skip()
        return not self._native_execute(frame.address, frame.given.address, 0)

    def _fetch(self, frame: CudaFrame, results: list[CudaArray]) -> list[Any]:
        queue = frame.copies.outgoing(frame.queue)
        found = [staging.fetched(r.address, r.shape, r.dtype, queue) for r in results]
        frame.finish()
        heard(self, frame)
        return found


def heard(owner: RunsAlike, frame: CudaFrame) -> None:
    """After a run for which somebody has waited."""
    frame.busy = None
    if frame.has_fault:
        owner.check_fault(frame, None)


def _set_apart(
    frame: CudaFrame, feeds: tuple[Any, ...], results: list[Any], at: list[int]
) -> dict[int, CudaArray]:
    """Give libraries copies of feeds, and memory in place of results; these by number.

    `at` gets the addresses that kernels are to have.
    """
    apart: dict[int, CudaArray] = {}
    with frame.memory.device.entered():
        for kind, number in frame.copied:
            if kind == "input":
                at[number] = frame.copy_in(number, feeds[number])
            else:
                apart[number] = made = results[number]
                at[len(feeds) + number] = frame.stand_in("output", number, made.nbytes)
    return apart


def _let_go_of(
    frame: CudaFrame, queue: Stream, feeds: tuple[CudaArray, ...], results: list[CudaArray]
) -> None:
    """A run that was prepared must go the long way.

    The new memory may be free in this stream alone, where a run before is under way, and copies of
    feeds may be, too: who gets that memory next must know.
    """
    frame.alike = None
    with frame.memory.device.entered():
        _leave(frame, queue, feeds, results)


def _leave(
    frame: CudaFrame, queue: Stream, feeds: tuple[CudaArray, ...], results: list[CudaArray]
) -> None:
    """Note what a run uses for which nobody waits."""
    event = queue.record()
    frame.left(event)
    for made in results:
        made.order.written = (queue, event)
        made.order.uses[queue] = event
    foreign = []
    for feed in feeds:
        feed.order.uses[queue] = event
        if feed.block is None:
            foreign.append(feed)
    if foreign:
        queue.keep(event, foreign)
