"""What runs a plan: the contract that the executable of each provider fulfils."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from sardonyx.base.records import dataclass
from sardonyx.plan.plan import Plan
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.growable_buffer import GrowableBuffers
from sardonyx.runtime.storage import Array, MemoryKind, OutputPlacement
from sardonyx.runtime.team import Team
from sardonyx.runtime.try_run import TryRun

if TYPE_CHECKING:
    from sardonyx.runtime.device_control_flow import DeviceControlFlow
    from sardonyx.runtime.frame_pool import FramePool
    from sardonyx.runtime.recording import Sink
    from sardonyx.store.model_record import ModelRecord


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What holds for all runs of an executable.

    Attributes:
        runs_on: The machine that kernels run on, in words.
        memory_kind: Where feeds are wanted, and results lie at first.
        is_asynchronous: Whether `start` comes back before the run has happened.
        follows_tensors: Whether calls with tensors of torch are best in torch's stream.
        growable_buffers: What has values that grow where they lie; None if results are always new
            memory.
    """

    runs_on: str
    memory_kind: MemoryKind
    is_asynchronous: bool = False
    follows_tensors: bool = False
    growable_buffers: GrowableBuffers | None = None


@dataclass(frozen=True, slots=True)
class FrameReport:
    """What a frame holds.

    Attributes:
        arena_bytes: Memory of intermediate values.
        scratch_bytes: Memory that kernels work in.
        stream: Handle of the stream of its last run; 0 on the processor.
        is_own_stream: Whether that is the frame's own.
        replays: How often runs of its were a graph that was replayed.
    """

    arena_bytes: int
    scratch_bytes: int
    stream: int = 0
    is_own_stream: bool = True
    replays: int = 0


@dataclass(frozen=True, slots=True)
class LibraryReport:
    """What libraries do of a plan.

    Attributes:
        undone: Commands that a library might do, and none did when they were last done.
        pending: How many plans of libraries are being made, which runs do without as yet.
        searching: How many that are in use may still be replaced by faster ones.
        version: Changes when calls are done otherwise than before.
    """

    undone: frozenset[int] = frozenset()
    pending: int = 0
    searching: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class ExecutableReport:
    """What is to be said of an executable at one moment.

    Attributes:
        remarks: About its runs, beside the plan, one line each.
        reserved_bytes: Memory that graphs of callers keep.
        devices: What arenas of devices hold, by their names; see `cuda.memory.arena.Arena`.
        frames: The frames that it holds.
        worker_ids: The system's numbers of the threads that runs have had beside their callers'.
        ends_on_host: Whether the host epilogue is done apart from the plan before it.
        control_flow: How the device controls runs; None if it does not.
        libraries: What libraries do.
    """

    remarks: list[str] = field(default_factory=list)
    reserved_bytes: int = 0
    devices: dict[str, dict[str, Any]] = field(default_factory=dict)
    frames: list[FrameReport] = field(default_factory=list)
    worker_ids: list[int] = field(default_factory=list)
    ends_on_host: bool = False
    control_flow: DeviceControlFlow | None = None
    libraries: LibraryReport = LibraryReport()


class Executable(Protocol):
    """A plan with code and constants; any number of threads may run it at once.

    Attributes:
        plan: What it does.
        budget: What its memory counts in.
        team: How threads share a run.
        facts: What holds for all its runs.
        frames: The frames of its runs.
        try_run: The fast path. It may be kept and called as long as the executable lives.
    """

    plan: Plan
    budget: Budget
    team: Team
    facts: DeviceFacts
    try_run: TryRun

    @property
    def frames(self) -> FramePool[Any]:
        """The frames of its runs."""

    def run(self, feeds: Sequence[object], cancel: CancelFlag | None = None) -> list[Any]:
        """Run once.

        Args:
            feeds: One array per input, in order; C-contiguous arrays are not copied. They must not
                be changed meanwhile.
            cancel: Ends the run when it is set.

        Returns:
            Arrays, one per output, in memory that nobody else has while they live.

        Raises:
            InvalidArgument: A feed does not fit.
            RuntimeException: A kernel met data that it cannot work on.
            Fail: The run was cancelled; TimedOut if its time is over.
            OutOfMemory: There is not enough memory.
        """

    def run_to(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> list[Any]:
        """Run once, with results where they are wanted; feeds may lie on devices.

        Raises as `run` does, and:
            InvalidArgument: A target does not fit.
        """

    def run_into(
        self, feeds: Sequence[object], outputs: Sequence[Array], cancel: CancelFlag | None = None
    ) -> None:
        """Run once, writing to arrays that exist: right shape and type, contiguous, writable.

        They must not overlap the feeds or each other. Raises as `run` does.
        """

    def start(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> AsyncRun:
        """Begin a run as `run_to` does, for somebody to finish."""

    def callers_capture(self, wanted: OutputPlacement) -> AbstractContextManager[None] | None:
        """What to run in if the run's stream is captured by the caller; None if it is not.

        The run then is one whose `OutputPlacement.is_captured` is set: its work becomes part of a
        graph.
        """

    def settle(self) -> None:
        """Wait for runs that were not waited for.

        Raises:
            RuntimeException: In one of them a kernel met data that it cannot work on.
        """

    @property
    def is_settling(self) -> bool:
        """Whether something is made in the background that later runs need, or are faster with."""

    def trim(self) -> None:
        """Give back the memory of frames that no run has."""

    def trim_staging(self) -> None:
        """Give back memory of the host through which copies to and from a device go."""

    def release_graphs(self, number: int) -> None:
        """Forget runs that were captured under a number, where runs are captured."""

    def report(self) -> ExecutableReport:
        """What is to be said of it now."""

    def recorded(self, record: ModelRecord, sink: Sink) -> Executable:
        """What runs the same plan, and gives `sink` a trace of each run.

        This one gives up its memory, and its fast path does no run until `run` is called again.
        """

    def flush(self) -> None:
        """Give the sink of recorded runs those that it does not have yet."""
