"""Runs on the processor whose kernels are timed: the plan with frames that have room for notes.

Kernels are timed by native code (native/kernel_times.py), calls of the host and runs as a whole
here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from threading import get_ident, get_native_id
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import empty

from sardonyx.base.errors import ContradictingSizes, SardonyxError
from sardonyx.base.forks import RenewedLock
from sardonyx.cpu.executable import CpuExecutable, CpuParts
from sardonyx.cpu.launcher import CpuLauncher
from sardonyx.native.functions import recording
from sardonyx.native.layout import RECORDER, SPAN, TRACK
from sardonyx.plan.steps import JumpIfLess
from sardonyx.runtime import refusals
from sardonyx.runtime.arena import Words, address_of, aligned_words
from sardonyx.runtime.arrays import ITEMS_OFFSET
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.frame_pool import FramePool
from sardonyx.runtime.native_runs import NativeRuns, Stops
from sardonyx.runtime.recording import Moment, RecordedExecutable, RunTrace, Sink, Spans
from sardonyx.runtime.storage import Array
from sardonyx.runtime.try_run import WAIT, Completion, TryRun

if TYPE_CHECKING:
    from sardonyx.runtime.plan_tables import PlanTables
    from sardonyx.store.model_record import ModelRecord

#: Rows that a thread has room for, at least and beyond what the commands are expected to need.
_LEAST_ROWS = 1 << 10
_LEAST_OF_MANY = 1 << 16
#: Rows that are allocated at once, at least.
_LEAST_OF_BLOCKS = 1 << 14
#: Runs that may wait until the sink gets them.
_MOST_WAITING = 32

#: A run of the fast path: its frame, when it began, when its kernels began, when they ended,
#: identity of its thread and the system's number of it, rows of each track by then.
_Waiting = tuple["RecordedFrame", int, int, int, int, int, list[int]]


class Tracks:
    """Room for what the threads of a frame note.

    What is taken stays where it was noted: pages are touched once, by the thread that notes. Where
    the next run might not find room, there is new memory for it.

    Args:
        kernels: Addresses of the plan's kernels.
        threads: How many tracks there are.
        capacity: Rows that each run finds room for.
    """

    def __init__(self, kernels: Words, threads: int, capacity: int) -> None:
        self._threads, self._capacity = threads, max(2 * capacity, _LEAST_OF_BLOCKS)
        self._most = self._capacity - capacity
        self._words = aligned_words(RECORDER.words + threads * TRACK.words)
        self._words[RECORDER["kernels"]] = address_of(kernels)
        self._words[RECORDER["capacity"]] = self._capacity
        tracks = self._words[RECORDER.words :].reshape(threads, TRACK.words)
        self._counts, self._addresses = tracks[:, TRACK["count"]], tracks[:, TRACK["rows"]]
        self.address = address_of(self._words)
        # Read after each run, when nothing of NumPy is left in caches.
        self._view = self._words.data
        first = RECORDER.words + TRACK["count"]
        self._places = range(first, first + threads * TRACK.words, TRACK.words)
        self.renew()

    def renew(self) -> None:
        """Have new memory, with nothing in it."""
        # Pages that nothing is written to take no memory.
        self._rows = np.empty((self._threads, self._capacity, SPAN.words), np.int64)
        self._addresses[:] = [address_of(rows) for rows in self._rows]
        self._counts[:] = 0
        self._starts = [0] * self._threads

    def counts(self) -> list[int]:
        """How many rows were noted so far, by thread."""
        view = self._view
        return [view[place] for place in self._places]

    def is_full(self, counts: list[int]) -> bool:
        """Whether the next run might find no room, given what `counts` said."""
        return max(counts) > self._most

    def take(self, counts: list[int]) -> tuple[list[Spans], int]:
        """What was noted since the last call and until `counts`, and what there was no room for."""
        found: list[Spans] = []
        dropped = 0
        for number, (start, count) in enumerate(zip(self._starts, counts, strict=True)):
            end = min(count, self._capacity)
            dropped += count - max(start, end)
            if end > start:
                found.append((number, self._rows[number, start:end]))
        self._starts = counts
        return found, dropped


class RecordedFrame(Frame):
    """A frame with room for notes.

    Attributes:
        tracks: Of the threads.
        moments: Of Python.
        sizes: What symbols stood for in the last run.
    """

    __slots__ = ("moments", "sizes", "tracks")

    def __init__(self, image: PlanTables, functions: int, budget: Any, tracks: Tracks) -> None:
        super().__init__(image, functions, budget)
        self.moments: list[Moment] = []
        self.sizes: dict[str, int] = {}
        self.tracks = tracks
        self._set("recorder", tracks.address)

    def drop_notes(self) -> None:
        """Forget what was noted of a run that is no run."""
        self.moments.clear()
        self.tracks.take(self.tracks.counts())


def _note(frame: RecordedFrame, name: str, started_ns: int, command: int = -1) -> None:
    """Note that something was done from then until now."""
    frame.moments.append(Moment(command, name, started_ns, time.perf_counter_ns()))


class NotedStops:
    """See `runtime.native_runs.Stops`; calls of the host are noted.

    Args:
        stops: What does the work.
    """

    def __init__(self, stops: Stops) -> None:
        self.give_results, self.not_launched = stops.give_results, stops.not_launched
        self._call_host = stops.call_host

    def call_host(self, frame: RecordedFrame, number: int) -> None:
        """See `Stops.call_host`."""
        started_ns = time.perf_counter_ns()
        try:
            self._call_host(frame, number)
        finally:
            _note(frame, "host", started_ns, number)


class NotedRuns(NativeRuns):
    """The native functions; it is noted how long sizes take."""

    def resolve(self, frame: Frame) -> None:
        """See `NativeRuns.resolve`."""
        assert isinstance(frame, RecordedFrame)  # noqa: S101 - there are no others
        started_ns = time.perf_counter_ns()
        try:
            super().resolve(frame)
        finally:
            _note(frame, "resolve", started_ns)


class NotedLauncher(CpuLauncher):
    """Does commands, and notes how long all of them take."""

    def do_commands(self, frame: Frame, items: int, outputs: list[Any]) -> int:
        """See `CpuLauncher.do_commands`."""
        assert isinstance(frame, RecordedFrame)  # noqa: S101 - there are no others
        started_ns = time.perf_counter_ns()
        try:
            return self.do_unnoted(frame, items, outputs)
        finally:
            _note(frame, "execute", started_ns)

    def do_unnoted(self, frame: Frame, items: int, outputs: list[Any]) -> int:
        """The same, for somebody who notes it."""
        return super().do_commands(frame, items, outputs)


class Traces:
    """Makes traces of what frames have noted, and gives them to a sink.

    Args:
        launcher: What does the commands.
        record: What else is known of the model.
        sink: Gets the traces.
    """

    def __init__(self, launcher: CpuLauncher, record: ModelRecord, sink: Sink) -> None:
        self._launcher, self._record, self._sink = launcher, record, sink
        self._image = launcher.runs.image
        # Appended to and emptied from its ends alone, so any threads may.
        self._waiting: deque[_Waiting] = deque()
        self._flushing = RenewedLock()

    def begun(self) -> RunTrace:
        """The trace of a run that begins now."""
        return self._begun_at(time.perf_counter_ns())

    def _begun_at(self, started_ns: int) -> RunTrace:
        return RunTrace(self._image.plan, self._record, started_ns)

    def failed(self, frame: RecordedFrame, started_ns: int, error: BaseException) -> None:
        """A run that began then has failed."""
        trace = self._begun_at(started_ns)
        trace.error = f"{type(error).__name__}: {error}"
        self.finish(trace, frame)

    def finish(self, trace: RunTrace, frame: RecordedFrame) -> None:
        """A run is over."""
        self.flush()  # earlier runs come first
        slots = frame.table("slots")
        symbols = self._image.tape.symbols
        frame.sizes = {name: int(slots[at]) for name, at in symbols.items()}
        trace.ended_ns = time.perf_counter_ns()
        trace.thread = get_ident(), get_native_id()
        trace.moments, frame.moments = frame.moments, []
        self._hand_over(trace, frame, frame.tracks.counts())

    def _hand_over(self, trace: RunTrace, frame: RecordedFrame, counts: list[int]) -> None:
        """Give the sink a trace that lacks what the frame knows."""
        team, workers = self._image.team, self._launcher.workers
        trace.spans, trace.dropped = frame.tracks.take(counts)
        trace.sizes = frame.sizes
        trace.arena_bytes = frame.capacity_bytes
        trace.threads = team.size
        trace.branches = self._image.part_count > 0
        if workers is not None and frame.threads > 1:
            trace.workers = workers.identities
        self._sink.take(trace)

    def repeated(self, frame: RecordedFrame, started_ns: int, begun_ns: int, ended_ns: int) -> None:
        """A run of the fast path is over: the sink gets it later, many at once."""
        if len(self._image.plan.segments) > 1 or frame.moments:
            # Sizes that data decides may differ from run to run.
            _note(frame, "execute", begun_ns)
            self.finish(self._begun_at(started_ns), frame)
            return
        counts = frame.tracks.counts()
        self._waiting.append(
            (frame, started_ns, begun_ns, ended_ns, get_ident(), get_native_id(), counts)
        )
        if len(self._waiting) >= _MOST_WAITING or frame.tracks.is_full(counts):
            self.flush(frame)

    def flush(self, held: RecordedFrame | None = None) -> None:
        """See `RunRecorder.flush`.

        Args:
            held: A frame that the caller has, and no run yet: it gets room for one.
        """
        with self._flushing:
            while True:
                try:
                    run = self._waiting.popleft()
                except IndexError:
                    break
                frame, started_ns, begun_ns, ended_ns, thread, number, counts = run
                trace = self._begun_at(started_ns)
                trace.ended_ns, trace.thread = ended_ns, (thread, number)
                trace.moments.append(Moment(-1, "execute", begun_ns, ended_ns))
                self._hand_over(trace, frame, counts)
        if held is not None and held.tracks.is_full(held.tracks.counts()):
            held.tracks.renew()


class RecordedFrames(FramePool[RecordedFrame]):
    """Frames whose leases are runs that the sink gets.

    Args:
        image: The plan.
        make: Makes a frame.
        traces: Makes traces of runs.
    """

    def __init__(
        self, image: PlanTables, make: Callable[[], RecordedFrame], traces: Traces
    ) -> None:
        super().__init__(make, image.tape.symbols)
        self._traces = traces

    @contextmanager
    def lease(self) -> Iterator[RecordedFrame]:
        """See `FramePool.lease`; what was noted meanwhile goes to the sink."""
        traces = self._traces
        trace = traces.begun()
        held: list[RecordedFrame] = []
        try:
            with super().lease() as frame:
                held.append(frame)
                traces.flush(frame)  # what waits relies on the frame's sizes and memory
                yield frame
        except BaseException as error:
            trace.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            if held and any(m.name == "execute" for m in held[0].moments):
                traces.finish(trace, held[0])
            elif held:
                held[0].drop_notes()


class RecordedFastPath:
    """See `runtime.try_run.TryRun`: runs that cost little more than those without notes.

    After a large model nothing of Python is left in caches, so steps count. That is why the sink
    gets these runs later, many at once.

    Args:
        frames: Those of the executable.
        launcher: Does the commands.
        traces: Makes traces of runs.
    """

    def __init__(self, frames: RecordedFrames, launcher: NotedLauncher, traces: Traces) -> None:
        self._frames, self._launcher, self._traces = frames, launcher, traces
        self._fits = launcher.runs.fits

    def try_run(
        self,
        feeds: tuple[object, ...],
        outputs: tuple[Any, ...] | None = None,
        _completion: Completion = WAIT,
        /,
    ) -> Any:
        """See `TryRun`; runs into memory of the caller are left to `run_into`."""
        started_ns = time.perf_counter_ns()
        if outputs is not None:
            return None
        try:
            frame = self._frames.free.pop()
        except IndexError:
            return None
        sound = False
        try:
            results = self._repeat(frame, feeds, started_ns) if frame.is_known else None
            sound = True
            return results
        except MemoryError:
            return None
        except ContradictingSizes:
            sound = True
            self._traces.flush()
            frame.drop_notes()
            return None
        except BaseException as error:
            sound = isinstance(error, SardonyxError)
            self._traces.failed(frame, started_ns, error)
            raise
        finally:
            self._frames.let_go(frame, sound)

    def _repeat(
        self, frame: RecordedFrame, feeds: tuple[object, ...], started_ns: int
    ) -> list[Array] | None:
        outputs = [empty(*r) for r in frame.results]  # type: ignore[misc]  # none is None then
        items = tuple(outputs)
        made = id(items) + ITEMS_OFFSET
        if self._fits(frame.address, id(feeds) + ITEMS_OFFSET, made):
            return None
        begun_ns = time.perf_counter_ns()
        try:
            code = self._launcher.do_unnoted(frame, made, outputs)
            if code:
                raise refusals.fault(code, frame, self._launcher.runs.image.plan, None)
        except BaseException:
            _note(frame, "execute", begun_ns)
            raise
        self._traces.repeated(frame, started_ns, begun_ns, time.perf_counter_ns())
        return outputs


class CpuRecorder:
    """See `runtime.recording.RunRecorder`.

    Args:
        fast_path: That of recorded runs.
        traces: Makes traces of runs, each of which is a lease of a frame.
    """

    def __init__(self, fast_path: RecordedFastPath, traces: Traces) -> None:
        self.try_run: TryRun = fast_path.try_run
        self.flush = traces.flush

    def tracing(self) -> AbstractContextManager[None]:
        """Nothing: frames are leased."""
        return nullcontext()


def recorded(base: CpuParts, record: ModelRecord, sink: Sink) -> RecordedExecutable:
    """What runs the plan of an executable, and gives `sink` a trace of each run."""
    image, kernels = base.image.through(recording().record)
    team, budget, functions = image.team, base.budget, base.functions
    capacity = _expected_rows(image, sink)

    def make() -> RecordedFrame:
        tracks = Tracks(kernels, team.size, capacity)
        return RecordedFrame(image, address_of(functions), budget, tracks)

    runs = NotedRuns(image, NotedStops(base.stops), team.flushes_denormals)
    launcher = NotedLauncher(runs, team, budget)
    traces = Traces(launcher, record, sink)
    frames = RecordedFrames(image, make, traces)
    fast_path = RecordedFastPath(frames, launcher, traces)
    parts = replace(base, image=image, frames=frames, launcher=launcher, try_run=fast_path.try_run)
    return RecordedExecutable(CpuExecutable(parts), CpuRecorder(fast_path, traces))


def _expected_rows(image: PlanTables, sink: Sink) -> int:
    """Rows that a thread is given room for.

    Each claim takes a part of the blocks that are left, so their number grows with the logarithm of
    that of blocks. How often a loop goes round nobody knows.
    """
    threads, most, commands = image.team.size, sink.most_spans, image.plan.commands
    limit = max(_LEAST_ROWS, min(most, max(_LEAST_OF_MANY, 2 * most // threads)))
    if any(isinstance(c, JumpIfLess) for c in commands):
        return limit
    each = 16 * (threads * image.team.share + 1)
    return min(limit, _LEAST_ROWS + each * len(commands))
