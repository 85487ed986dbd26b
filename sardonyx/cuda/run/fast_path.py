"""Runs whose shapes are those of a frame's last run: other addresses, the same graph.

Nothing is bound or resolved then: of the arguments of kernels those change that are addresses of
feeds and results. Such a run counts microseconds: what Python does for it is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.base.errors import SardonyxError
from sardonyx.cuda.driver.addresses import named
from sardonyx.cuda.driver.capturing import is_captured
from sardonyx.cuda.driver.stream import Event
from sardonyx.cuda.interop.tensor_runs import TensorRuns
from sardonyx.cuda.memory import staging
from sardonyx.cuda.memory.values import CudaArray, CudaMemory
from sardonyx.cuda.run.binding import meet
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.frame_pool import CudaFrames
from sardonyx.cuda.run.graphs import RunGraph
from sardonyx.cuda.run.last_run import UNALIGNED, LastRun, Replays
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.storage import OutputPlacement
from sardonyx.runtime.try_run import FETCH, LEAVE, TENSORS, WAIT, Completion


class CudaFastPath:
    """See `runtime.try_run.TryRun`.

    Args:
        frames: Those of the executable.
        replays: Replays graphs of last runs.
        tensors: Runs with tensors of torch.

    Attributes:
        give_up: Lets go of what a run that failed uses.
    """

    __slots__ = (
        "_arena", "_default_queue", "_device", "_frames", "_free", "_is_current", "_replays",
        "_state", "_tensors", "give_up",
    )  # fmt: skip

    def __init__(self, frames: CudaFrames, replays: Replays, tensors: TensorRuns) -> None:
        state = frames.state
        self._state, self._device, self._arena = state, state.device, state.memory.arena
        self._frames, self._free, self._default_queue = frames, frames.free, state.stream
        self._replays, self._tensors = replays, tensors
        self._is_current, self.give_up = replays.is_current, replays.give_up

    def remember(
        self, frame: CudaFrame, graph: RunGraph, feeds: Sequence[Any], version: int
    ) -> None:
        """After a run that was a graph: the next may have its shapes.

        `version` is that of the libraries' plans before the run began: others may be ready now.
        """
        frame.last_run = None
        state = self._state
        results = [(*r, p) for r, p in zip(frame.results, state.purposes, strict=True) if r]
        if all(type(f) is CudaArray for f in feeds) and len(results) == len(state.purposes):
            is_fixed = state.control_flow is None and not frame.launches.moving
            frame.last_run = LastRun(feeds, results, graph, is_fixed, version, frame.queue)

    def try_run(
        self,
        feeds: tuple[Any, ...],
        outputs: tuple[Any, ...] | None = None,
        completion: Completion = WAIT,
        /,
        kept: list[CudaFrame] | None = None,
    ) -> Any:
        """See `TryRun`. With `kept`, that gets the frame, which is the caller's to let go of."""
        if outputs is not None and completion in (FETCH, TENSORS):
            return None
        if completion is TENSORS:
            return self._tensors.try_run(feeds)
        try:
            frame = self._free.pop()
        except IndexError:
            return None
        sound, results = False, None
        try:
            last = frame.last_run
            if (
                last is not None
                and self._may_come_next(frame, last)
                and self._takes(frame, last, feeds, outputs)
            ):
                results = self._replay(frame, last, feeds, outputs, completion)
                if results is not None and completion is FETCH:
                    results = self._fetch(frame, results)
            sound = True
        except BaseException as error:
            sound = isinstance(error, SardonyxError)
            self.give_up(frame)
            raise named(error, self._state.plan, feeds, outputs or ())  # noqa: B904 - mostly it is the same
        finally:
            if kept is None or results is None:
                self._frames.let_go(frame, sound)
            else:
                kept.append(frame)
        return results

    def start(self, feeds: tuple[Any, ...]) -> tuple[CudaFrame, list[Any]] | None:
        """A run that is left; gives the frame, too, which is the caller's to let go of."""
        kept: list[CudaFrame] = []
        results = self.try_run(feeds, None, LEAVE, kept=kept)
        return None if results is None else (kept[0], results)

    def follow(
        self,
        frame: CudaFrame,
        feeds: Sequence[Any],
        wanted: OutputPlacement,
        cancel: CancelFlag | None,
    ) -> list[Any] | None:
        """A run that has begun in any stream, if it is like the frame's last; else None."""
        last = frame.last_run
        if (
            last is None
            or len(feeds) != len(last.feeds)
            or not self._is_current(last)
            or not self._takes(frame, last, feeds, wanted.targets)
        ):
            return None
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")
        last.move_to(frame.queue)
        completion = WAIT if wanted.waits else LEAVE
        return self._replay(frame, last, feeds, wanted.targets, completion, cancel)

    def _may_come_next(self, frame: CudaFrame, last: LastRun) -> bool:
        """Whether a run in the stream of plain runs can be the graph of the frame's last run."""
        queue, busy, own = frame.queue, frame.busy, self._default_queue
        return (
            queue is (own or frame.own_queue)
            and queue is last.queue
            # A run that was left comes first, and somebody must hear of its faults.
            and (busy is None or (busy[0] is queue and not frame.contexts.needs_look))
            and self._is_current(last)
            and not (own is not None and is_captured(own))
        )

    def _takes(
        self, frame: CudaFrame, last: LastRun, feeds: Sequence[Any], targets: Sequence[Any] | None
    ) -> bool:
        """Whether a run has the shapes of the last, on memory of the device; it waits for that."""
        device, given = self._device, (last.replay or last.replay_in(frame)).given
        queue = frame.queue
        awaited: list[CudaArray] | None = None
        for number, shape, dtype in last.feeds:
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
        bound = () if targets is None else self._bound(last, feeds, targets)
        if bound is None:
            return False
        if awaited or bound:
            _wait_for(frame, awaited or (), bound)
        return True

    def _bound(
        self, last: LastRun, feeds: Sequence[Any], targets: Sequence[Any]
    ) -> list[CudaArray] | None:
        """Memory that results are to be written to; None if it is no plain memory of the device."""
        found, number = list[CudaArray](), self._state.memory.number
        for target, (shape, dtype, *_) in zip(targets, last.results, strict=True):
            if type(target) is CudaArray:
                if (
                    target.shape != shape
                    or target.dtype is not dtype
                    or target.device is not self._device
                    or target.address & UNALIGNED
                    or target.is_read_only
                ):
                    return None
                found.append(target)
            elif type(target) is not CudaMemory or target.number != number:
                return None
        return None if found and meet(found, feeds) else found

    def _replay(
        self,
        frame: CudaFrame,
        last: LastRun,
        feeds: Sequence[Any],
        targets: Sequence[Any] | None,
        completion: Completion,
        cancel: CancelFlag | None = None,
    ) -> list[Any] | None:
        """Replay the graph; None if there is none.

        Args:
            frame: The run's.
            last: The run before.
            feeds: Its feeds.
            targets: Where results are wanted; None: in new memory.
            completion: What comes after the replay.
            cancel: Ends it early where it has loops of the device, and makes it an error.
        """
        device, queue, number = self._device, last.queue, len(feeds)
        arena, replay = self._arena, last.replay
        assert replay is not None  # noqa: S101 - see `_takes`
        given = replay.given
        results: list[Any] = []
        for place, (shape, dtype, size_bytes, purpose, size_class) in enumerate(
            last.results, number
        ):
            if targets is not None and type(targets[place - number]) is CudaArray:
                made = targets[place - number]
            else:
                block = arena.last_freed(size_class, purpose, queue)
                if block is None:
                    block = arena.allocate(size_bytes, purpose, queue)
                made = CudaArray.in_block(device, shape, dtype, block, size_bytes)
            results.append(made)
            given[place] = made.address
        apart = _set_apart(frame, feeds, results, given) if frame.libraries.copied else None
        if last.is_fixed:
            frame.graphs.count()
        elif not self._replays.prepare(frame, last, replay):
            _let_go_of(frame, feeds, results)
            return None
        waits = completion is WAIT
        frame.graph, is_plain = last.graph, waits and not apart and frame.is_patient
        if is_plain is not last.waits:
            last.aim(last.graph, is_plain)
        event = Event(device) if completion is LEAVE else None
        is_faulty = replay.go(0 if event is None else event.handle)
        if apart or (waits and not is_plain):
            with device.entered():
                frame.libraries.copy_out(apart or {}, queue)
                if event is not None:
                    event = queue.record()
                elif waits:
                    frame.finish(cancel)
        if event is not None:
            _leave(frame, event, feeds, results)
        elif waits:
            needs_look = is_faulty if is_plain else frame.contexts.needs_look
            self._replays.heard(frame, needs_look, cancel)
            if cancel is not None and cancel.is_set:
                raise cancel.error("run")
        return results

    def _fetch(self, frame: CudaFrame, results: list[CudaArray]) -> list[Any]:
        with self._device.entered():
            queue = frame.copies.outgoing(frame.queue)
            found = [staging.fetched(r.address, r.shape, r.dtype, queue) for r in results]
            frame.finish()
        self._replays.heard(frame, frame.contexts.needs_look)
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


def _set_apart(
    frame: CudaFrame, feeds: Sequence[Any], results: list[Any], given: Any
) -> dict[int, CudaArray]:
    """Give libraries copies of feeds, and memory in place of results; these by number.

    `given` gets the addresses that kernels are to have.
    """
    apart: dict[int, CudaArray] = {}
    libraries, queue = frame.libraries, frame.queue
    with frame.memory.device.entered():
        for kind, number in libraries.copied:
            if kind == "input":
                given[number] = libraries.copy_in(number, feeds[number], queue)
            else:
                apart[number] = made = results[number]
                given[len(feeds) + number] = libraries.stand_in(
                    "output", number, made.nbytes, queue
                )
    return apart


def _let_go_of(frame: CudaFrame, feeds: Sequence[CudaArray], results: Sequence[CudaArray]) -> None:
    """A run that was prepared must go the long way.

    The new memory may be free in this stream alone, where a run before is under way, and copies of
    feeds may be, too: who gets that memory next must know.
    """
    frame.last_run = None
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
