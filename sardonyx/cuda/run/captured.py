"""Runs in a stream that the caller captures: their work becomes part of his graph.

A graph is replayed as it was recorded, so whatever the run works in, and all that it reads and
writes, is kept for it until it is gone: a frame of its own, the weights, feeds and results.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.forks import lock_over_forks
from sardonyx.cuda.driver.capturing import CallersCapture, Lifetime, is_captured
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.memory import staging
from sardonyx.cuda.memory.values import CudaArray, CudaMemory
from sardonyx.cuda.run.binding import KERNEL_ALIGNMENT, check_feed, spans_of
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.frame_pool import CudaFrames
from sardonyx.cuda.run.launcher import CudaLauncher
from sardonyx.cuda.run.library_calls import LibraryCalls
from sardonyx.cuda.run.timing import TIMES
from sardonyx.runtime import refusals
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.storage import DeviceArray, OutputPlacement, fitted

#: So long a capture waits for libraries that still measure: they are better left alone.
_PATIENCE_SECONDS = 10.0


@dataclass(eq=False, slots=True)
class Reservation:
    """What the graph of a caller needs.

    Attributes:
        frames: Those of the executable whose run was recorded; they have the weights.
        frame: What the run works in; no other run gets it.
        lifetime: Of the graph.
        kept: Memory that the graph reads and writes.
    """

    frames: CudaFrames
    frame: CudaFrame
    lifetime: Lifetime
    kept: list[Any] = field(default_factory=list)


#: For all graphs that are there; a graph may outlive the session.
_reserved: list[Reservation] = []
_sweeping = lock_over_forks()


def sweep() -> None:
    """Let go of what is kept for graphs that are gone."""
    if not _reserved:
        return
    with _sweeping:
        over = [r for r in _reserved if r.lifetime.is_over]
        for reservation in over:
            _reserved.remove(reservation)
            reservation.frames.forget(reservation.frame)


class CapturedRuns:
    """Does such runs.

    Args:
        frames: Those of the executable.
        launcher: Begins runs of bound frames.
        libraries: What does commands that are no kernels.
    """

    def __init__(self, frames: CudaFrames, launcher: CudaLauncher, libraries: LibraryCalls) -> None:
        self._frames, self._state = frames, frames.state
        self._launcher, self._libraries = launcher, libraries

    def chosen_queue(self, wanted: OutputPlacement) -> Stream | None:
        """The stream that a run is given; None for one of our own."""
        if wanted.stream is not None:
            return self._state.device.callers_stream(wanted.stream)
        return self._state.stream

    def callers_capture(self, wanted: OutputPlacement) -> CallersCapture | None:
        """See `Executable.callers_capture`."""
        queue = self.chosen_queue(wanted)
        is_callers = queue is not None and is_captured(queue)
        return CallersCapture(self._state.device) if is_callers else None

    @property
    def reservations(self) -> list[Reservation]:
        """What is kept for graphs of callers."""
        sweep()
        return [r for r in _reserved if r.frames is self._frames]

    @property
    def reserved_bytes(self) -> int:
        """Memory that graphs of callers keep."""
        return sum(_size_of(r) for r in self.reservations)

    def check_replays(self) -> None:
        """After callers have waited for their graphs.

        Raises:
            RuntimeException: In a replay a kernel met data that it cannot work on.
        """
        for reservation in self.reservations:
            self._frames.check_fault(reservation.frame, None)

    # -- one run ------------------------------------------------------------------------------

    def run(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None
    ) -> list[Any]:
        """Record a run; the results have their contents when the graph is replayed.

        Raises:
            NotImplemented: The plan cannot be recorded.
            InvalidArgument: A feed or a target does not lie where a graph reaches it.
            ContradictingSizes: Another plan of the model is for such feeds.
        """
        queue = self.chosen_queue(wanted)
        assert queue is not None  # noqa: S101 - there is one that is captured
        self.check_replays()
        self._refuse(feeds, wanted)
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")
        _wait_for_others(feeds, wanted.targets)
        frame = self._frames.make()
        frame.copies.close()  # copies are part of the graph, in the stream that is captured
        self._rehearse(frame, feeds, cancel)
        # Recorded work is part of the graph, whatever comes of the rest.
        reservation = Reservation(self._frames, frame, Lifetime(queue))
        self._frames.held.append(frame)
        _reserved.append(reservation)
        with self._state.device.capturing:
            return self._put_in_graph(reservation, queue, feeds, wanted, cancel)

    def _refuse(self, feeds: Sequence[Any], wanted: OutputPlacement) -> None:
        reason = ""
        if self._state.mapped:
            reason = "the host reads sizes or conditions that the run computes"
        elif self._libraries.draws:
            reason = "the host draws keys of random numbers in each run"
        elif TIMES.get() is not None:
            reason = "kernels are measured, or profiled, one by one"
        if reason:
            raise errors.NotImplemented(
                message("run", f"{_CAPTURED}, and this run cannot be recorded: {reason}")
            )
        inputs = self._state.plan.inputs
        if len(feeds) != len(inputs):
            raise refusals.wrong_number_of_feeds(len(inputs), len(feeds))
        for feed, spec in zip(feeds, inputs, strict=True):
            if isinstance(feed, CudaArray):
                check_feed(feed, spec, self._state.memory)
            elif not _is_pinned(feed) or feed.dtype != spec.dtype.stored:
                _refuse_place(f"input {spec.name}", feed)
            elif feed.ndim != len(spec.dims):
                what, wants = "The feed has the wrong rank", f"{len(spec.dims)} axes"
                raise InvalidArgument(
                    message(f"input {spec.name}", what, expected=wants, got=str(feed.shape))
                )
            if isinstance(feed, DeviceArray) and feed.is_copy:
                what = f"{_CAPTURED}, and the feed is not contiguous: replays would read a copy"
                raise InvalidArgument(message(f"input {spec.name}", what))
        here = self._state.memory.number
        for output, target in zip(self._state.plan.outputs, wanted.targets, strict=True):
            known = isinstance(target, (CudaArray, CudaMemory)) or _is_pinned(target)
            number = target.device.number if isinstance(target, CudaArray | CudaMemory) else here
            if not known or number != here:
                _refuse_place(f"output {output.name}", target)

    def _rehearse(self, frame: CudaFrame, feeds: Sequence[Any], cancel: CancelFlag | None) -> None:
        """Run once on memory of its own: whatever is loaded, sized or chosen late is there then."""
        queue, own, state = frame.own_queue, self._state.memory, self._state
        control_flow = self._launcher.control_flow
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            blanks = [own.empty(f.shape, f.dtype, "a rehearsal", queue) for f in feeds]
            for number, blank in enumerate(blanks):
                if blank.nbytes:
                    call("cuMemsetD8Async", blank.address, 0, blank.nbytes, queue.handle)
                frame.feeds.put(number, blank.address, blank.shape)
            self._launcher.bind(frame)
            outputs = [own.empty(*found, "a rehearsal", queue) for found in frame.results if found]
            for number, made in enumerate(outputs):
                frame.given.put(number, made.address)
            if control_flow is None:
                self._do(frame, outputs, cancel)
            else:  # of zeros loops might have no end
                control_flow.prepare(frame, frame.given.address)
                control_flow.warm_up(frame)
            queue.synchronize()
            queue.forget()
            frame.contexts.take_fault()  # of zeros, which say nothing about the feeds
            is_busy = state.calls and state.is_settling
            if not is_busy or time.monotonic() > deadline:
                return
            while state.is_settling and time.monotonic() < deadline:
                time.sleep(0.005)

    def _do(self, frame: CudaFrame, outputs: list[Any], cancel: CancelFlag | None) -> None:
        code = self._launcher.launch_each(frame, frame.given.address, outputs)
        if code:
            raise refusals.fault(code, frame, self._state.plan, cancel)

    def _put_in_graph(
        self,
        reservation: Reservation,
        queue: Stream,
        feeds: Sequence[Any],
        wanted: OutputPlacement,
        cancel: CancelFlag | None,
    ) -> list[Any]:
        frame, kept = reservation.frame, reservation.kept
        state, control_flow = self._state, self._launcher.control_flow
        arena = state.memory.arena
        kept += feeds
        for number, (feed, spec) in enumerate(zip(feeds, state.plan.inputs, strict=True)):
            is_there = isinstance(feed, CudaArray) and feed.address % KERNEL_ALIGNMENT == 0
            address = feed.address if isinstance(feed, CudaArray) else address_of(feed)
            if not is_there and feed.nbytes:
                # Of no stream: what used the block before has happened when the host goes on.
                held = arena.allocate(feed.nbytes, f"input {spec.name}")
                kept.append(held)
                call("cuMemcpyAsync", held.address, address, feed.nbytes, queue.handle)
                address = held.address
            frame.feeds.put(number, address, feed.shape)
        self._launcher.bind(frame)
        taken, given, made = spans_of(feeds), [], []
        for k, (found, target) in enumerate(zip(frame.results, wanted.targets, strict=True)):
            assert found is not None  # noqa: S101 - with one segment all shapes are known
            result = self._target(k, found, target)
            span = (result.address, result.address + result.nbytes) if _is_ours(result) else (0, 0)
            is_apart = not any(a < span[1] and span[0] < b for a, b in taken)
            if _is_ours(result) and is_apart and span[0] % KERNEL_ALIGNMENT == 0:
                work = result
            else:
                work = state.memory.empty(*found, state.purposes[k])
            taken.append(span)
            given.append(result)
            made.append(work)
            frame.given.put(k, work.address)
        kept += [*given, *made]
        frame.launches.use_stream(queue)
        try:
            if control_flow is None:
                self._do(frame, made, cancel)
            else:
                control_flow.record(frame)
        finally:
            frame.launches.use_stream(frame.own_queue)
        for work, result in zip(made, given, strict=True):
            if work is not result and work.nbytes:
                to = result.address if isinstance(result, CudaArray) else address_of(result)
                call("cuMemcpyAsync", to, work.address, work.nbytes, queue.handle)
        return given

    def _target(self, number: int, found: tuple[Any, Any], target: Any) -> Any:
        """Where a result is wanted, as an array of its shape."""
        if isinstance(target, CudaMemory):
            return self._state.memory.empty(*found, self._state.purposes[number])
        return fitted(self._state.plan.outputs[number].name, target, *found)


_CAPTURED = "The stream is being captured by the caller"


def _refuse_place(where: str, got: Any) -> None:
    what = f"{_CAPTURED}, whose graph reaches arrays of the device and of pinned memory alone"
    do = "Feed and bind such arrays: run_with_ort_values, run_with_iobinding, or model(x)"
    name = "a NumPy array" if got is None or isinstance(got, np.ndarray) else type(got).__name__
    raise InvalidArgument(message(where, what, got=name, do=do))


def _is_pinned(array: Any) -> bool:
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
        return False
    return not array.nbytes or staging.is_pinned(address_of(array))


def _is_ours(array: Any) -> bool:
    return isinstance(array, CudaArray)


def _wait_for_others(feeds: Sequence[Any], targets: Sequence[Any]) -> None:
    """Let runs happen that nobody waited for: a graph cannot wait for what is not in it."""
    for array in (*feeds, *targets):
        if isinstance(array, CudaArray):
            written = array.order.unfinished()
            for event in (*([written[1]] if written else []), *array.order.uses.values()):
                if not event.is_done:
                    event.synchronize()


def _size_of(reservation: Reservation) -> int:
    """Bytes of what was made for a graph: arrays of callers are theirs."""
    blocks = [x for x in reservation.kept if isinstance(x, CudaArray) and x.block is not None]
    made = {id(x): x.nbytes for x in blocks}
    return reservation.frame.capacity_bytes + sum(made.values())
