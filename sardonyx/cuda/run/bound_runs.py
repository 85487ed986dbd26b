"""Runs on a device the long way: feeds are bound, results placed, and the work begun anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.cuda.driver.addresses import named
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.libraries.background import WALKS
from sardonyx.cuda.memory.values import CudaArray
from sardonyx.cuda.run.binding import DeviceResult, give_feed, leave, spans_of
from sardonyx.cuda.run.fast_path import CudaFastPath
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.frame_pool import CudaFrames
from sardonyx.cuda.run.launcher import CudaLauncher
from sardonyx.cuda.run.marks import MARKS, Nvtx
from sardonyx.cuda.run.timing import TIMES
from sardonyx.runtime import refusals
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.frame import Result
from sardonyx.runtime.storage import OutputPlacement


class BoundRuns:
    """Does such runs, in frames that the caller has.

    Args:
        frames: Those of the executable.
        launcher: Begins runs of bound frames.
        fast_path: Takes runs that turn out to be like the last one, and hears of the others.
        marks: What marks all runs; None if nothing does.
    """

    def __init__(
        self,
        frames: CudaFrames,
        launcher: CudaLauncher,
        fast_path: CudaFastPath,
        marks: Nvtx | None,
    ) -> None:
        self._state, self._check_fault = frames.state, frames.check_fault
        self._launcher, self._fast_path, self._marks = launcher, fast_path, marks
        self._types = [spec.dtype.stored for spec in frames.state.plan.inputs]

    def run(
        self,
        frame: CudaFrame,
        queue: Stream | None,
        feeds: Sequence[Any],
        wanted: OutputPlacement,
        cancel: CancelFlag | None,
    ) -> list[Any]:
        """Run once.

        Args:
            frame: What the run works in.
            queue: Its stream; None for the frame's own.
            feeds: Its feeds.
            wanted: Where results are wanted.
            cancel: Ends it early where it has loops of the device, and makes it an error.

        Raises:
            LeftToHost: The device cannot control the run; the host can.
        """
        kept: list[Any] = []
        try:
            if frame.begin(queue):
                self._check_fault(frame, None)  # of a run for which nobody waited
            is_plain = TIMES.get() is None and (MARKS.get() or self._marks) is None
            if is_plain and not wanted.written:
                results = self._fast_path.follow(frame, feeds, wanted, cancel)
                if results is not None:
                    return results
            frame.last_run = None
            copies = frame.libraries.stands_in and not wanted.written
            frame.libraries.copied = frame.launches.moving if copies else frozenset()
            self._bind(frame, feeds, kept)
            return self._run_bound(frame, feeds, wanted, cancel, kept)
        except BaseException as error:
            self._fast_path.give_up(frame)
            raise named(error, self._state.plan, feeds, wanted.targets)  # noqa: B904 - mostly it is the same

    def _bind(self, frame: CudaFrame, feeds: Sequence[Any], kept: list[Any]) -> None:
        """Give a frame the feeds."""
        inputs = self._state.plan.inputs
        if len(feeds) != len(inputs):
            raise refusals.wrong_number_of_feeds(len(inputs), len(feeds))
        for number, (feed, spec) in enumerate(zip(feeds, inputs, strict=True)):
            kept += give_feed(frame, number, feed, spec, self._types[number])
        self._launcher.bind(frame)

    def _run_bound(
        self,
        frame: CudaFrame,
        feeds: Sequence[Any],
        wanted: OutputPlacement,
        cancel: CancelFlag | None,
        kept: list[Any],
    ) -> list[Any]:
        state = self._state
        own, outputs, taken = state.memory, state.plan.outputs, None
        results: list[DeviceResult | CudaArray | None] = [None] * len(outputs)
        apart: dict[int, CudaArray] = {}

        def make(k: int, found: Result) -> CudaArray:
            nonlocal taken
            target = wanted.targets[k]
            if target is own:
                made = results[k] = own.empty(*found, state.purposes[k], frame.queue)
                return made
            taken = spans_of(feeds) if taken is None else taken
            result = DeviceResult(frame, outputs[k].name, found, target, taken)
            results[k] = result
            return result.array

        arrays: list[Any] = [None] * len(results)
        for number, k in enumerate(state.image.later[0]):
            found = frame.results[k]
            assert found is not None  # noqa: S101 - they are known from the start
            made = arrays[k] = make(k, found)
            address = made.address
            if ("output", k) in frame.libraries.copied and type(made) is CudaArray:
                apart[k] = made
                address = frame.libraries.stand_in("output", k, made.nbytes, frame.queue)
            frame.given.put(number, address)
        frame.make, version = make, state.plans_version
        try:
            self.walk(frame, arrays, cancel)
        finally:
            frame.make = None
        frame.libraries.copy_out(apart, frame.queue)
        given: list[Any] = [
            r.finish(frame, kept) if isinstance(r, DeviceResult) else r for r in results
        ]
        if frame.graph is not None and not kept:
            self._fast_path.remember(frame, frame.graph, feeds, version)
        if not wanted.waits:
            frame.copies.join(frame.queue)
            leave(frame, feeds, kept, [*given, *wanted.written])
        elif frame.graph is None:
            with WALKS:
                self.finish(frame, cancel)
        else:
            self.finish(frame, cancel)
        return given

    def walk(self, frame: CudaFrame, outputs: list[Any], cancel: CancelFlag | None) -> None:
        """Launch everything, or replay a graph."""
        code = self._launcher.launch(frame, frame.given.address, outputs)
        if code:
            raise refusals.fault(code, frame, self._state.plan, cancel)
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")

    def finish(self, frame: CudaFrame, cancel: CancelFlag | None) -> None:
        """Wait for a run; it may have taken longer than it may."""
        frame.finish(cancel)
        self._check_fault(frame, cancel)
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")
