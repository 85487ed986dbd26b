"""Runs that are recorded: what is noted of them, who gets it, and what runs them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sardonyx.base.records import dataclass
from sardonyx.plan.plan import Plan
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.executable import Executable, ExecutableReport
from sardonyx.runtime.frame_pool import FramePool
from sardonyx.runtime.storage import Array, OutputPlacement
from sardonyx.runtime.try_run import TryRun

if TYPE_CHECKING:
    from sardonyx.store.model_record import ModelRecord

#: Rows of the words of a SPAN, with the number of the thread that noted them.
Spans = tuple[int, NDArray[np.int64]]


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


class RunRecorder(Protocol):
    """How runs of a provider are recorded.

    Attributes:
        try_run: The fast path of recorded runs.
    """

    try_run: TryRun

    def tracing(self) -> AbstractContextManager[object]:
        """What a run happens in."""

    def flush(self) -> None:
        """Give the sink the runs that it does not have yet; it has them all afterwards."""


class RecordedExecutable:
    """Runs as another executable does, and has each run recorded.

    Args:
        base: What runs.
        recorder: How it is recorded.
    """

    def __init__(self, base: Executable, recorder: RunRecorder) -> None:
        self._base, self._recorder = base, recorder
        self.plan, self.budget, self.team = base.plan, base.budget, base.team
        #: The host waits for what is measured.
        self.facts = replace(base.facts, is_asynchronous=False)
        self.try_run = recorder.try_run

    @property
    def frames(self) -> FramePool[Any]:
        """See `Executable.frames`."""
        return self._base.frames

    def run(self, feeds: Sequence[object], cancel: CancelFlag | None = None) -> list[Any]:
        """See `Executable.run`."""
        with self._recorder.tracing():
            return self._base.run(feeds, cancel)

    def run_to(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> list[Any]:
        """See `Executable.run_to`."""
        with self._recorder.tracing():
            return self._base.run_to(feeds, wanted, cancel)

    def run_into(
        self, feeds: Sequence[object], outputs: Sequence[Array], cancel: CancelFlag | None = None
    ) -> None:
        """See `Executable.run_into`."""
        with self._recorder.tracing():
            self._base.run_into(feeds, outputs, cancel)

    def start(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> AsyncRun:
        """See `Executable.start`; the run is over afterwards."""
        return AsyncRun(self.run_to(feeds, replace(wanted, waits=True), cancel))

    def callers_capture(self, wanted: OutputPlacement) -> AbstractContextManager[None] | None:
        """See `Executable.callers_capture`."""
        return self._base.callers_capture(wanted)

    def settle(self) -> None:
        """See `Executable.settle`."""
        self._base.settle()

    @property
    def is_settling(self) -> bool:
        """See `Executable.is_settling`."""
        return self._base.is_settling

    def trim(self) -> None:
        """See `Executable.trim`."""
        self._base.trim()

    def trim_staging(self) -> None:
        """See `Executable.trim_staging`."""
        self._base.trim_staging()

    def release_graphs(self, number: int) -> None:
        """See `Executable.release_graphs`."""
        self._base.release_graphs(number)

    def report(self) -> ExecutableReport:
        """See `Executable.report`."""
        return self._base.report()

    def recorded(self, record: ModelRecord, sink: Sink) -> Executable:
        """See `Executable.recorded`."""
        return self._base.recorded(record, sink)

    def flush(self) -> None:
        """See `Executable.flush`."""
        self._recorder.flush()
