"""Runs whose shapes are those of a frame's last run: other addresses, the same graph.

Nothing is bound or resolved then: of the arguments of kernels those change that are addresses of
feeds and results. Such a run counts microseconds: what Python does for it is measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sardonyx.base.errors import SardonyxError
from sardonyx.cuda.driver.addresses import named
from sardonyx.cuda.driver.capturing import is_captured
from sardonyx.cuda.driver.device import on_device
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.memory import staging
from sardonyx.cuda.memory.arena import room_for
from sardonyx.cuda.memory.values import CudaArray, CudaMemory
from sardonyx.cuda.run.binding import KERNEL_ALIGNMENT, meet
from sardonyx.cuda.run.device_state import DeviceState
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.graphs import GRAPH_ID, RunGraph
from sardonyx.cuda.run.replaying import Replay
from sardonyx.native.layout import WORD
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.storage import OutputPlacement, size_of

#: Bits that the address of a feed must not have.
UNALIGNED = KERNEL_ALIGNMENT - 1


#: What comes after the replay of a run: waiting; waiting for copies of the results; nothing.
_WAIT, _FETCH, _LEAVE = range(3)


class LikeRun:
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
        self.results = [(*row, room_for(row[2])) for row in sized]
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

    def turn_to(self, queue: Stream) -> None:
        """Have the next run be in a stream."""
        if queue is not self.queue:
            self.queue = queue
            self.aim(self.graph, self.waits)

    def aim(self, graph: RunGraph, waits: bool) -> None:
        """Have the next run replay a graph, and native code wait for it, or not."""
        assert self.replay is not None  # noqa: S101 - runs make it before
        self.graph, self.waits = graph, waits
        self.replay.aim(graph.handle, self.queue.handle, waits)


class CudaFastPath(DeviceState):
    """The part of `executable.CudaExecutable` for such runs."""

    _default_queue: Stream | None
    _purposes: list[str]

    def remember_shapes(
        self, frame: CudaFrame, graph: RunGraph, feeds: Sequence[Any], version: int
    ) -> None:
        """After a run that was a graph: the next may be alike.

        `version` is that of the libraries' plans before the run began: others may be ready now.
        """
        frame.alike = None
        results = [(*r, p) for r, p in zip(frame.results, self._purposes, strict=True) if r]
        if all(type(f) is CudaArray for f in feeds) and len(results) == len(self._purposes):
            is_fixed = self.control_flow is None and not frame.launches.moving
            frame.alike = LikeRun(feeds, results, graph, is_fixed, version, frame.queue)

    def run_alike(
        self,
        feeds: Sequence[Any],
        targets: Sequence[Any] | None = None,
        end: int = _WAIT,
        kept: list[CudaFrame] | None = None,
    ) -> list[Any] | None:
        """See `Executable.run_alike`.

        Args:
            feeds: What is fed.
            targets: Where results are wanted; None: in new memory.
            end: What comes after the replay.
            kept: Gets the frame, which no other run then gets before `give_back`.
        """
        try:
            frame: CudaFrame = self._free.pop()  # type: ignore[assignment]  # it makes no others
        except IndexError:
            return None
        sound, results = False, None
        try:
            alike = frame.alike
            if (
                alike is not None
                and self._may_come_next(frame, alike)
                and self._takes(frame, alike, feeds, targets)
            ):
                results = self._replay(frame, alike, feeds, targets, end)
                if results is not None and end == _FETCH:
                    results = self._fetch(frame, results)
            sound = True
        except BaseException as error:
            sound = isinstance(error, SardonyxError)
            self.give_up(frame)
            raise named(error, self.plan, feeds, targets or ())  # noqa: B904 - mostly it is the same
        finally:
            if kept is None or results is None:
                self._let_go(frame, sound)
            else:
                kept.append(frame)
        return results

    @on_device
    def fetch_alike(self, feeds: tuple[Any, ...]) -> list[Any] | None:
        """See `Executable.fetch_alike`."""
        return self.run_alike(feeds, None, _FETCH)

    def leave_alike(self, feeds: tuple[Any, ...]) -> list[Any] | None:
        """See `Executable.leave_alike`."""
        return self.run_alike(feeds, None, _LEAVE)

    def start_alike(self, feeds: tuple[Any, ...]) -> tuple[CudaFrame, list[Any]] | None:
        """`leave_alike`; gives the frame, too, which no other run gets before `give_back`."""
        kept: list[CudaFrame] = []
        results = self.run_alike(feeds, None, _LEAVE, kept)
        return None if results is None else (kept[0], results)

    @on_device
    def give_up(self, frame: CudaFrame) -> None:
        """After a run that failed: what it uses is let go of."""
        frame.alike = None
        frame.stop()
        with contextlib.suppress(SardonyxError):
            frame.queue.synchronize()
            frame.copies.give_up()
        frame.take_fault()

    def follow(
        self,
        frame: CudaFrame,
        feeds: Sequence[Any],
        wanted: OutputPlacement,
        cancel: CancelFlag | None,
    ) -> list[Any] | None:
        """A run that has begun in any stream, if it is like the frame's last; else None."""
        alike = frame.alike
        if (
            alike is None
            or len(feeds) != self._input_count
            or not self._is_current(alike)
            or not self._takes(frame, alike, feeds, wanted.targets)
        ):
            return None
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")
        alike.turn_to(frame.queue)
        end = _WAIT if wanted.waits else _LEAVE
        return self._replay(frame, alike, feeds, wanted.targets, end, cancel)

    def _may_come_next(self, frame: CudaFrame, alike: LikeRun) -> bool:
        """Whether a run in the stream of plain runs can be the graph of the frame's last run."""
        queue, busy, own = frame.queue, frame.busy, self._default_queue
        return (
            queue is (own or frame.own_queue)
            and queue is alike.queue
            # A run that was left comes first, and somebody must hear of its faults.
            and (busy is None or (busy[0] is queue and not frame.needs_look))
            and self._is_current(alike)
            and not (own is not None and is_captured(own))
        )

    def _is_current(self, alike: LikeRun) -> bool:
        """Whether such a run now would do the same."""
        return alike.number == GRAPH_ID.get() and (
            not self._calls or alike.version == self.libraries.version
        )

    def _takes(
        self, frame: CudaFrame, alike: LikeRun, feeds: Sequence[Any], targets: Sequence[Any] | None
    ) -> bool:
        """Whether a run has the shapes of the last, on memory of the device; it waits for that."""
        device, given = self.device, (alike.replay or alike.replay_in(frame)).given
        queue = frame.queue
        awaited: list[CudaArray] | None = None
        for number, shape, dtype in alike.feeds:
            feed = feeds[number]
            if (
                type(feed) is not CudaArray
                or feed.shape != shape
                or feed.dtype is not dtype
                or feed.device is not device
            ):
                return False
            given[number] = address = feed.address
            if address & UNALIGNED:
                return False
            written = feed.order.written
            if (
                feed.block is None
                or feed.producer is not None
                or (written is not None and written[0] is not queue)
            ):
                awaited = [feed] if awaited is None else [*awaited, feed]
        bound = () if targets is None else self._bound(alike, feeds, targets)
        if bound is None:
            return False
        if awaited or bound:
            _wait_for(frame, awaited or (), bound)
        return True

    def _bound(
        self, alike: LikeRun, feeds: Sequence[Any], targets: Sequence[Any]
    ) -> list[CudaArray] | None:
        """Memory that results are to be written to; None if it is no plain memory of the device."""
        found, own = list[CudaArray](), self.device_memory
        for target, (shape, dtype, *_) in zip(targets, alike.results, strict=True):
            if type(target) is CudaArray:
                if (
                    target.shape != shape
                    or target.dtype is not dtype
                    or target.device is not self.device
                    or target.address & UNALIGNED
                    or target.is_read_only
                ):
                    return None
                found.append(target)
            elif type(target) is not CudaMemory or target.number != own.number:
                return None
        return None if found and meet(found, feeds) else found

    def _replay(
        self,
        frame: CudaFrame,
        alike: LikeRun,
        feeds: Sequence[Any],
        targets: Sequence[Any] | None,
        end: int,
        cancel: CancelFlag | None = None,
    ) -> list[Any] | None:
        """Replay the graph; None if there is none.

        Args:
            frame: The run's.
            alike: What the run is like.
            feeds: Its feeds.
            targets: Where results are wanted; None: in new memory.
            end: What comes after the replay.
            cancel: Ends it early where it has loops of the device, and makes it an error.
        """
        device, queue, number = self.device, alike.queue, len(feeds)
        arena, replay = self.device_memory.arena, alike.replay
        assert replay is not None  # noqa: S101 - see `_takes`
        given = replay.given
        results: list[Any] = []
        for place, (shape, dtype, size_bytes, purpose, room) in enumerate(alike.results, number):
            if targets is not None and type(targets[place - number]) is CudaArray:
                made = targets[place - number]
            else:
                block = arena.last_freed(room, purpose, queue)
                if block is None:
                    block = arena.allocate(size_bytes, purpose, queue)
                made = CudaArray.in_block(device, shape, dtype, block, size_bytes)
            results.append(made)
            given[place] = made.address
        apart = _set_apart(frame, feeds, results, given) if frame.copied else None
        if alike.is_fixed:
            frame.graphs.count()
        elif not self._prepare(frame, alike, replay):
            _let_go_of(frame, feeds, results)
            return None
        waits = end == _WAIT
        frame.graph, is_plain = alike.graph, waits and not apart and frame.is_patient
        if is_plain is not alike.waits:
            alike.aim(alike.graph, is_plain)
        event = Event(device) if end == _LEAVE else None
        is_faulty = replay.go(0 if event is None else event.handle)
        if apart or (waits and not is_plain):
            with device.entered():
                frame.copy_out(apart or {})
                if event is not None:
                    event = queue.record()
                elif waits:
                    frame.finish(cancel)
        if event is not None:
            _leave(frame, event, feeds, results)
        elif waits:
            heard(self, frame, is_faulty if is_plain else frame.needs_look, cancel)
            if cancel is not None and cancel.is_set:
                raise cancel.error("run")
        return results

    def _prepare(self, frame: CudaFrame, alike: LikeRun, replay: Replay) -> bool:
        """Find the graph of a run, and write what its control steps need; False: the long way."""
        if (
            replay.rewrite()
            and self.control_flow is not None
            and not self._place_again(frame, alike, replay)
        ):
            return False
        launches = frame.launches
        if not launches.moving:
            frame.graphs.count()
            return True
        key = (alike.number, launches.bucket, launches.fixed, alike.version)
        graph = frame.graphs.find(key)
        if graph is not None and graph is not alike.graph:
            alike.aim(graph, alike.waits)
        return graph is not None

    def _place_again(self, frame: CudaFrame, alike: LikeRun, replay: Replay) -> bool:
        """Have native code write all addresses: control steps use more than arguments."""
        given = replay.given
        for number, shape, _ in alike.feeds:
            frame.feeds.put(number, given[number], shape)
        if self._native_bind(frame.address, frame.feeds.address):
            return False
        for number, address in enumerate(given[len(alike.feeds) :]):
            frame.given.put(number, address)
        frame.skip()
        return not self._native_execute(frame.address, frame.given.address, 0)

    def _fetch(self, frame: CudaFrame, results: list[CudaArray]) -> list[Any]:
        queue = frame.copies.outgoing(frame.queue)
        found = [staging.fetched(r.address, r.shape, r.dtype, queue) for r in results]
        frame.finish()
        heard(self, frame, frame.needs_look)
        return found


def _wait_for(frame: CudaFrame, feeds: Sequence[CudaArray], targets: Sequence[CudaArray]) -> None:
    """Let a run begin after what else works on its memory."""
    queue = frame.queue
    awaited = [
        target
        for target in targets
        if target.block is None
        or target.producer is not None
        or (target.order.uses and set(target.order.uses) != {queue})
    ]
    if feeds or awaited:
        frame.waited.clear()
        with frame.memory.device.entered():
            for feed in feeds:
                feed.ready_in(queue, frame.waited)
            for target in awaited:
                target.free_in(queue)


def heard(
    owner: CudaFastPath, frame: CudaFrame, needs_look: bool, cancel: CancelFlag | None = None
) -> None:
    """After a run for which somebody has waited; `needs_look` is as of the frame."""
    if frame.busy is not None:
        frame.busy = None
        frame.queue.forget()  # what runs kept that nobody waited for
    if needs_look:
        owner.check_fault(frame, cancel)


def _set_apart(
    frame: CudaFrame, feeds: Sequence[Any], results: list[Any], given: Any
) -> dict[int, CudaArray]:
    """Give libraries copies of feeds, and memory in place of results; these by number.

    `given` gets the addresses that kernels are to have.
    """
    apart: dict[int, CudaArray] = {}
    with frame.memory.device.entered():
        for kind, number in frame.copied:
            if kind == "input":
                given[number] = frame.copy_in(number, feeds[number])
            else:
                apart[number] = made = results[number]
                given[len(feeds) + number] = frame.stand_in("output", number, made.nbytes)
    return apart


def _let_go_of(frame: CudaFrame, feeds: Sequence[CudaArray], results: Sequence[CudaArray]) -> None:
    """A run that was prepared must go the long way.

    The new memory may be free in this stream alone, where a run before is under way, and copies of
    feeds may be, too: who gets that memory next must know.
    """
    frame.alike = None
    with frame.memory.device.entered():
        event = frame.queue.record()
    _leave(frame, event, feeds, results)


def _leave(
    frame: CudaFrame, event: Event, feeds: Sequence[CudaArray], results: Sequence[CudaArray]
) -> None:
    """Note what a run uses for which nobody waits; it ends with `event`."""
    queue = frame.queue
    frame.left(event)
    for made in results:
        made.order.written = (queue, event)
    foreign = []
    for used in (*feeds, *results):
        used.order.uses[queue] = event
        if used.block is None:
            foreign.append(used)
    if foreign:
        queue.keep(event, foreign)
