"""What was noted of runs, and of the session that they belong to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from sardonyx.base import knobs
from sardonyx.base.log import get_logger
from sardonyx.base.records import dataclass
from sardonyx.plan.facts import PlanFacts
from sardonyx.profiling.calls import CommandCall, calls_of
from sardonyx.profiling.clock import Clock, origin
from sardonyx.profiling.commands import PlanInfo, describe
from sardonyx.runtime.recording import RunTrace

if TYPE_CHECKING:
    from sardonyx.profiling.table import Table

_logger = get_logger("profiling")
#: The knob that limits a profile.
LIMIT = "SARDONYX_PROFILE_EVENTS"


@dataclass(slots=True)
class SessionMoment:
    """Something about the session: its name in files, when it was, and more by name."""

    name: str
    started_ns: int
    duration_ns: int
    arguments: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Run:
    """A run with everything that was done in it.

    Attributes:
        trace: What was noted.
        info: About the plan's commands, at the sizes of this run.
        plan_number: Which of the profile's plans it was.
        is_first: Whether it is the first run of this plan at these sizes.
        calls: What was done, in order.
    """

    trace: RunTrace
    info: PlanInfo
    plan_number: int
    is_first: bool
    calls: list[CommandCall]


def nothing_waits() -> None:
    """What brings a profile up to date that gets no runs."""


class Profile:
    """Runs of a session, with the time that each kernel took.

    `with session.profile() as p:` records the runs that any thread makes inside. Then `p.table()`
    says where time went, and `p.save(path)` writes a file for Perfetto and onnxruntime's tools.

    Attributes:
        flush: Brings runs that are over, and wait to be taken.
    """

    def __init__(self) -> None:
        origin()
        self.started_ns, self.process = time.perf_counter_ns(), os.getpid()
        self.moments: list[SessionMoment] = []
        self.most_spans: int = knobs.get(LIMIT)
        self.flush: Callable[[], None] = nothing_waits
        self._traces: list[RunTrace] = []
        self._events = 0
        self._dropped_runs = self._dropped_spans = 0
        self._infos: dict[tuple[int, tuple[tuple[str, int], ...]], PlanInfo] = {}
        self._facts: dict[int, PlanFacts] = {}

    def take(self, trace: RunTrace) -> None:
        """A run is over; see `runtime.recording.Sink`."""
        is_warned = self._dropped_runs or self._dropped_spans
        if self._events >= self.most_spans:
            self._dropped_runs += 1
        else:
            self._traces.append(trace)
            self._events += trace.span_count + len(trace.device or ()) + len(trace.moments)
            self._dropped_spans += trace.dropped
        if not is_warned and (self._dropped_runs or self._dropped_spans):
            _logger.warning(
                "Maximum number of events reached, could not record profile event: there may be"
                " %d, see the knob %s",
                self.most_spans,
                LIMIT,
            )

    @property
    def dropped(self) -> str:
        """What there was no room for, in words; "" if nothing is missing."""
        self.flush()
        found = []
        if self._dropped_runs:
            found.append(f"{self._dropped_runs} runs")
        if self._dropped_spans:
            found.append(f"{self._dropped_spans} calls of kernels")
        return " and ".join(found)

    @property
    def traces(self) -> list[RunTrace]:
        """What was noted, run by run, in the order in which the runs ended."""
        self.flush()
        return sorted(self._traces, key=lambda trace: trace.ended_ns)

    def runs(self) -> Iterator[Run]:
        """All runs, in the order in which they ended."""
        clock = Clock()
        numbers: dict[int, int] = {}
        seen: set[tuple[int, tuple[tuple[str, int], ...]]] = set()
        for trace in self.traces:
            key = id(trace.plan), tuple(sorted(trace.sizes.items()))
            number = numbers.setdefault(id(trace.plan), len(numbers))
            info = self._info(trace, key)
            yield Run(trace, info, number, key not in seen, calls_of(trace, clock))
            seen.add(key)

    def _info(self, trace: RunTrace, key: tuple[int, tuple[tuple[str, int], ...]]) -> PlanInfo:
        found = self._infos.get(key)
        if found is None:
            facts = self._facts.get(key[0])
            if facts is None:
                facts = self._facts[key[0]] = PlanFacts.from_bytes(trace.record.facts)
            found = self._infos[key] = describe(trace.plan, facts, trace.sizes)
        return found

    def note(
        self, name: str, started_ns: int, duration_ns: int, arguments: Mapping[str, str]
    ) -> None:
        """Add something about the session."""
        self.moments.append(SessionMoment(name, started_ns, duration_ns, dict(arguments)))

    def forget(self) -> None:
        """Drop everything that was noted."""
        self.flush()
        self._traces.clear()
        self._infos.clear()
        self._facts.clear()

    # -- for people ---------------------------------------------------------------------------

    def table(self, by: str = "kernel") -> Table:
        """Where time went.

        Args:
            by: `kernel`: a row for each call in the plan; `operator`: for each operator; `node`:
                for each ONNX node that kernels are called after.

        Raises:
            InvalidArgument: Rows are none of these.
        """
        from sardonyx.profiling.table import table_of

        return table_of(self, by)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write a Chrome trace, as `SessionOptions.enable_profiling` does; gives the path.

        Raises:
            OSError: The file cannot be written; nothing is left of it.
        """
        from sardonyx.profiling.chrome import write

        return write(self, path)

    def __repr__(self) -> str:
        traces = self.traces
        total_ms = sum(t.ended_ns - t.started_ns for t in traces) / 1e6
        failed = sum(bool(t.error) for t in traces)
        text = f"Profile({len(traces)} runs, {total_ms:.3f} ms"
        text += f", {failed} failed" if failed else ""
        return text + (f", without {self.dropped})" if self.dropped else ")")

    def __str__(self) -> str:
        return f"{self!r}\n{self.table()}"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def phases_of(seconds: Mapping[str, float]) -> dict[str, str]:
    """Microseconds by phase of making a session, as text."""
    return {name: f"{s * 1e6:.0f}" for name, s in seconds.items() if name != "total"}
