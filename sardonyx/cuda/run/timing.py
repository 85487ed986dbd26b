"""How long each kernel of a run takes on the device.

    with kernel_times() as times:
        session.run(None, feeds)
    for kernel in times.kernels: ...

Such runs are no graphs: an event goes into the stream between any two commands. The stream is held
until the next commands and events are all there, so the time between two events is the device's,
not the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING

from sardonyx.base.notes import note
from sardonyx.base.records import dataclass
from sardonyx.cuda.driver import pausing
from sardonyx.cuda.driver.driver import call, release
from sardonyx.cuda.run.graphs import numbered
from sardonyx.plan.plan import Command

if TYPE_CHECKING:
    from sardonyx.cuda.driver.stream import Stream
    from sardonyx.cuda.run.argument_table import PinnedWords

#: Commands that are queued while a stream is held: the driver's own queue has room for about 1,000.
_HELD = 200
#: A stream is held no longer: the host needs 1 to 3 ms for that many commands.
_LONGEST_HOLD_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One command of a run.

    Attributes:
        kernel: The kernel's name; that of a library's function if a library did it.
        nodes: Names of the model's nodes behind it.
        command: Its number in the plan.
        start_ns: When it began, after the run's first command did.
        duration_ns: How long the device worked on it.
    """

    kernel: str
    nodes: tuple[str, ...]
    command: int
    start_ns: int
    duration_ns: int


@dataclass(slots=True)
class Times:
    """What runs took.

    Attributes:
        kernels: Commands, in the order in which they were done.
        late: How many times the device went on before the host had sent what it was held for: of
            such commands, times are how long the host needed. Another thread had the driver.
    """

    kernels: list[KernelTime] = field(default_factory=list)
    late: int = 0


#: Where runs of this thread, or of this task, note what their kernels took.
TIMES: ContextVar[Times | None] = ContextVar("kernel_times", default=None)


@contextmanager
def kernel_times() -> Iterator[Times]:
    """Measure the kernels of all runs on a GPU that this thread makes inside.

    Runs of the processor are not measured: `InferenceSession.profile` does that. Where nothing was
    measured, the log says so, once.
    """
    with measured() as found:
        yield found
    if not found.kernels:
        reason = "no kernel ran on a GPU inside; InferenceSession.profile measures the processor's"
        note("kernel_times()", reason)


@contextmanager
def measured() -> Iterator[Times]:
    """`kernel_times`, whether there is anything to measure or not."""
    found = Times()
    token = TIMES.set(found)
    try:
        with numbered(-1):
            yield found
    finally:
        TIMES.reset(token)


class Timeline:
    """Measures the commands of one run.

    Args:
        queue: The run's stream.
        gate: Two words for `pausing.gate`.
    """

    def __init__(self, queue: Stream, gate: PinnedWords) -> None:
        self._queue, self._gate = queue, gate
        self._events: list[int] = []
        self._marks: list[tuple[int, int, int]] = []
        self._origin = 0
        self._is_held = False
        self.late = 0

    def do(self, numbers: Sequence[int], work: Callable[[int], None]) -> None:
        """Do commands, each by `work`, and measure them."""
        try:
            for first in range(0, len(numbers), _HELD):
                self._hold()
                event = self._mark()
                for number in numbers[first : first + _HELD]:
                    work(number)
                    following = self._mark()
                    self._marks.append((number, event, following))
                    event = following
                self.let_go()
                self._queue.synchronize()
                self.late += int(self._gate.words[1])
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Let the stream do what it has: somebody is going to wait for it."""
        if self._is_held:
            self._gate.words[0] = 1
            self._is_held = False

    def take(self, times: Times, commands: Sequence[object], by_library: set[int]) -> None:
        """Note what was measured since this was last called, once all has happened."""
        times.late += self.late
        self.late = 0
        for number, event, following in self._marks:
            command = commands[number]
            assert isinstance(command, Command)  # noqa: S101 - nothing else is done
            library = command.library if number in by_library else None
            name = command.kernel if library is None else library.function
            begin, took = _elapsed_ns(self._origin, event), _elapsed_ns(event, following)
            times.kernels.append(KernelTime(name, command.origin, number, begin, took))
        self._marks.clear()
        self._destroy(self._events[1:])
        del self._events[1:]

    def close(self) -> None:
        """Give events back to the driver."""
        self._destroy(self._events)
        self._events.clear()

    def _destroy(self, events: Sequence[int]) -> None:
        for event in events:
            release("cuEventDestroy", event, device=self._queue.device)

    def _hold(self) -> None:
        self._gate.words[:] = 0
        self._is_held = True
        pausing.gate(
            self._queue.device, self._gate.address, _LONGEST_HOLD_NS, self._queue.handle
        )  # fmt: skip

    def _mark(self) -> int:
        event = int(call("cuEventCreate", 0))
        self._events.append(event)
        self._origin = self._origin or event
        call("cuEventRecord", event, self._queue.handle)
        return event


def _elapsed_ns(first: int, last: int) -> int:
    return round(float(call("cuEventElapsedTime", first, last)) * 1e6)
