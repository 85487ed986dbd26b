"""Runs whose kernels are timed: the same plan with frames of its own, each with room for notes.

Kernels are timed by native code (native_record.py), calls of the host and runs as a whole here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from threading import get_ident, get_native_id
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy import empty
from numpy.typing import NDArray

from sardonyx.base.errors import ContradictingSizes, SardonyxError
from sardonyx.base.forks import RenewedLock
from sardonyx.base.records import dataclass
from sardonyx.native.functions import recording
from sardonyx.native.layout import RECORDER, SPAN, TRACK
from sardonyx.plan.plan import Plan
from sardonyx.plan.steps import JumpIfLess
from sardonyx.runtime import refusals
from sardonyx.runtime.arena import Words, address_of, aligned_words
from sardonyx.runtime.arrays import ITEMS_OFFSET
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.storage import Array

if TYPE_CHECKING:
    from sardonyx.runtime.plan_tables import PlanTables
    from sardonyx.store.model_record import ModelRecord

#: Rows of the words of a SPAN, with the number of the thread that noted them.
Spans = tuple[int, NDArray[np.int64]]
#: Rows that a thread has room for, at least and beyond what the commands are expected to need.
_LEAST_ROWS = 1 << 10
_LEAST_OF_MANY = 1 << 16
#: Rows that are allocated at once, at least.
_LEAST_OF_BLOCKS = 1 << 14
#: Runs that may wait until the sink gets them.
_MOST_WAITING = 32


@dataclass(slots=True)
class Moment:
    """Something that Python timed, in nanoseconds of `time.perf_counter_ns`.

    Attributes:
        command: The number of a call of the host; -1 if it is none.
        name: What it is otherwise: `execute`, or `resolve`.
    """

    command: int
    name: str
    started_ns: int
    ended_ns: int


@dataclass(slots=True)
class DeviceSpan:
    """A command on a device, timed by the device.

    Attributes:
        kernel: Its name, or that of a library's function.
        start_ns: After the first command of the run began.
    """

    command: int
    kernel: str
    start_ns: int
    duration_ns: int


@dataclass(slots=True)
class RunTrace:
    """What was noted of one run.

    Attributes:
        plan: What was done.
        record: What else is known of the model.
        started_ns, ended_ns: By `time.perf_counter_ns`.
        thread: Identity of the calling thread, and the system's number of it.
        workers: The same of the session's other threads, the first one's first.
        spans: What threads did, in the clock of `native.functions.Recording`. Threads that did
            nothing are left out.
        moments: What Python timed.
        sizes: What symbols stood for at the end.
        arena_bytes: Memory that was held for intermediate values.
        dropped: Spans for which there was no room.
        error: What the run failed with; "" if it did not.
        remark: What else is to be said of it.
        threads: How many it might use.
        branches: Whether parts of the graph may have been walked at once.
        device: What a device did; None for runs on the processor.
    """

    plan: Plan
    record: ModelRecord
    started_ns: int
    ended_ns: int = 0
    thread: tuple[int, int] = (0, 0)
    workers: list[tuple[int, int]] = field(default_factory=list)
    spans: list[Spans] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    arena_bytes: int = 0
    dropped: int = 0
    error: str = ""
    remark: str = ""
    threads: int = 1
    branches: bool = False
    device: list[DeviceSpan] | None = None

    @property
    def span_count(self) -> int:
        """How many spans there are."""
        return sum(len(rows) for _, rows in self.spans)


class Sink(Protocol):
    """Who gets traces of runs.

    Attributes:
        most_spans: How many spans a run may have.
    """

    most_spans: int

    def take(self, trace: RunTrace) -> None:
        """A run is over, since when others may have ended, too. Called by any thread."""


#: A run of `RecordedExecutable.run_again`: its frame, when it began, when its kernels began, when
#: they ended, identity of its thread and the system's number of it, rows of each track by then.
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


class RecordedExecutable(Executable):
    """As `Executable`; `sink` gets a trace of each run.

    Args:
        base: What runs the plan otherwise. It stays as it is.
        record: What else is known of the model.
        sink: Gets the traces.
    """

    def __init__(self, base: Executable, record: ModelRecord, sink: Sink) -> None:
        image, self._kernels = base._image.through(recording().record)
        super().__init__(
            base.plan, image.code, image.constants, threads=base.team,
            functions=base._functions[:-1].tolist(), budget=base.budget, image=image,
        )  # fmt: skip
        self._record, self._sink = record, sink
        self._capacity = self._expected_rows()
        # Appended to and emptied from its ends alone, so any threads may.
        self._waiting: deque[_Waiting] = deque()
        self._flushing = RenewedLock()

    def _expected_rows(self) -> int:
        """Rows that a thread is given room for.

        Each claim takes a part of the blocks that are left, so their number grows with the
        logarithm of that of blocks. How often a loop goes round nobody knows.
        """
        threads, most = self.team.size, self._sink.most_spans
        limit = max(_LEAST_ROWS, min(most, max(_LEAST_OF_MANY, 2 * most // threads)))
        if any(isinstance(c, JumpIfLess) for c in self.plan.commands):
            return limit
        each = 16 * (threads * self.team.share + 1)
        return min(limit, _LEAST_ROWS + each * len(self.plan.commands))

    def _new_frame(self) -> RecordedFrame:
        tracks = Tracks(self._kernels, self.team.size, self._capacity)
        return RecordedFrame(self._image, address_of(self._functions), self.budget, tracks)

    @contextmanager
    def lease(self) -> Iterator[Frame]:
        """See `Leases.lease`; what was noted meanwhile goes to the sink."""
        trace = RunTrace(self.plan, self._record, time.perf_counter_ns())
        held: list[RecordedFrame] = []
        try:
            with super().lease() as frame:
                assert isinstance(frame, RecordedFrame)  # noqa: S101 - there are no others
                held.append(frame)
                self.flush(frame)  # what waits relies on the frame's sizes and memory
                yield frame
        except BaseException as error:
            trace.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            if held and any(m.name == "execute" for m in held[0].moments):
                self._finish(trace, held[0])
            elif held:
                held[0].drop_notes()

    def _finish(self, trace: RunTrace, frame: RecordedFrame) -> None:
        self.flush()  # earlier runs come first
        slots = frame.table("slots")
        frame.sizes = {name: int(slots[at]) for name, at in self._image.tape.symbols.items()}
        trace.ended_ns = time.perf_counter_ns()
        trace.thread = get_ident(), get_native_id()
        trace.moments, frame.moments = frame.moments, []
        self._hand_over(trace, frame, frame.tracks.counts())

    def _hand_over(self, trace: RunTrace, frame: RecordedFrame, counts: list[int]) -> None:
        """Give the sink a trace that lacks what the frame knows."""
        trace.spans, trace.dropped = frame.tracks.take(counts)
        trace.sizes = frame.sizes
        trace.arena_bytes = frame.capacity_bytes
        trace.threads = self.team.size
        trace.branches = self._image.part_count > 0
        if self._pool is not None and frame.threads > 1:
            trace.workers = self._pool.identities
        self._sink.take(trace)

    def flush(self, held: Frame | None = None) -> None:
        """See `Executable.flush`. It ends when all have theirs that other threads took from here.

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
                trace = RunTrace(self.plan, self._record, started_ns, ended_ns, (thread, number))
                trace.moments.append(Moment(-1, "execute", begun_ns, ended_ns))
                self._hand_over(trace, frame, counts)
        if isinstance(held, RecordedFrame) and held.tracks.is_full(held.tracks.counts()):
            held.tracks.renew()

    def _note(self, frame: Frame, name: str, started_ns: int, command: int = -1) -> None:
        """Note that something was done from then until now."""
        assert isinstance(frame, RecordedFrame)  # noqa: S101 - there are no others
        frame.moments.append(Moment(command, name, started_ns, time.perf_counter_ns()))

    def _do_commands(self, frame: Frame, items: int, outputs: list[Any]) -> int:
        started_ns = time.perf_counter_ns()
        try:
            return super()._do_commands(frame, items, outputs)
        finally:
            self._note(frame, "execute", started_ns)

    def _resolve(self, frame: Frame) -> None:
        started_ns = time.perf_counter_ns()
        try:
            super()._resolve(frame)
        finally:
            self._note(frame, "resolve", started_ns)

    def _call_host(self, frame: Frame, number: int) -> None:
        started_ns = time.perf_counter_ns()
        try:
            super()._call_host(frame, number)
        finally:
            self._note(frame, "host", started_ns, number)

    def run_again(self, feeds: tuple[object, ...]) -> list[Array] | None:
        """See `FastPath.run_again`: a run that costs little more than one without notes.

        After a large model nothing of Python is left in caches, so steps count. That is why the
        sink gets these runs later, many at once.
        """
        started_ns = time.perf_counter_ns()
        try:
            frame = self._free.pop()
        except IndexError:
            return None
        assert isinstance(frame, RecordedFrame)  # noqa: S101 - there are no others
        sound = False
        try:
            outputs = self._repeat(frame, feeds, started_ns) if frame.is_known else None
            sound = True
            return outputs
        except MemoryError:
            return None
        except ContradictingSizes:
            sound = True
            self.flush()
            frame.drop_notes()
            return None
        except BaseException as error:
            sound = isinstance(error, SardonyxError)
            trace = RunTrace(self.plan, self._record, started_ns)
            trace.error = f"{type(error).__name__}: {error}"
            self._finish(trace, frame)
            raise
        finally:
            self._let_go(frame, sound)

    def _repeat(
        self, frame: RecordedFrame, feeds: tuple[object, ...], started_ns: int
    ) -> list[Array] | None:
        outputs = [empty(*r) for r in frame.results]  # type: ignore[misc]  # none is None then
        items = tuple(outputs)
        made = id(items) + ITEMS_OFFSET
        if self._native_fits(frame.address, id(feeds) + ITEMS_OFFSET, made):
            return None
        begun_ns = time.perf_counter_ns()
        try:
            code = super()._do_commands(frame, made, outputs)
            if code:
                raise refusals.fault(code, frame, self.plan, None)
        except BaseException:
            self._note(frame, "execute", begun_ns)
            raise
        ended_ns = time.perf_counter_ns()
        if self._segmented or frame.moments:
            # Sizes that data decide may differ from run to run.
            self._note(frame, "execute", begun_ns)
            self._finish(RunTrace(self.plan, self._record, started_ns), frame)
            return outputs
        counts = frame.tracks.counts()
        self._waiting.append(
            (frame, started_ns, begun_ns, ended_ns, get_ident(), get_native_id(), counts)
        )
        if len(self._waiting) >= _MOST_WAITING or frame.tracks.is_full(counts):
            self.flush(frame)
        return outputs

    def prepared(self, feeds: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], bool]:
        """A function that leaves it to `run_into`."""
        return lambda: False
