"""What a session holds at one moment, for tests, tools and who looks for a fault.

`inspect(session)` gives a record, which says what `explain` and `memory` print and more. Nothing of
it changes a session, and a session does nothing for it before it is called. Other code looks into
no session: `tests/test_structure.py` says so of the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sardonyx.api.parts import engine_of
from sardonyx.api.session import InferenceSession
from sardonyx.plan.facts import PlanFacts
from sardonyx.plan.plan import Plan
from sardonyx.plugins.claims import Claims
from sardonyx.runtime.declared import ValueInfo
from sardonyx.runtime.device_control_flow import DeviceControlFlow
from sardonyx.runtime.engine import Engine
from sardonyx.runtime.executable import FrameReport, LibraryReport


@dataclass(frozen=True)
class SessionInspection:
    """One plan of a session, with what is held for its runs; `variants` are the other plans.

    Attributes:
        inputs, outputs: What a run is given, and gives.
        plan: What a run does: commands, buffers, conditions.
        facts: The nodes and tensors that commands stand for.
        runs_on: The machine that kernels run on, in words.
        threads: How many threads a run may use.
        share: A thread takes the `share`-th part of the blocks that are left; see `runtime.team`.
        worker_ids: The system's numbers of the threads beside the callers'.
        constant_bytes: Size of the constants: weights as kernels read them.
        appended: Names of the outputs that continue an input where it lies.
        sizes: What symbols stood for in the last run; empty before the first.
        frames: The frames that are held: as many as there were runs at once.
        arena_bytes: Memory of intermediate values in them.
        held_bytes: What all plans of the session hold of its budget.
        limit_bytes: What they may hold: what was asked for, else the machine's memory.
        timings: Seconds by phase of making the plan.
        ends_on_host: Whether the host epilogue is done apart from the plan before it.
        control_flow: How the device controls runs; None if it does not.
        libraries: What libraries of vendors do.
        claims: What other providers compute. This is the session's own: it changes in runs.
        regions: The parts that a device runs for a session on the processor.
        variants: Other plans that runs needed, by what they are for.
    """

    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    plan: Plan
    facts: PlanFacts
    runs_on: str
    threads: int
    share: int
    worker_ids: tuple[int, ...]
    constant_bytes: int
    appended: tuple[str, ...]
    sizes: Mapping[str, int]
    frames: tuple[FrameReport, ...]
    arena_bytes: int
    held_bytes: int
    limit_bytes: int
    timings: Mapping[str, float]
    ends_on_host: bool
    control_flow: DeviceControlFlow | None
    libraries: LibraryReport
    claims: Claims | None
    regions: tuple[SessionInspection, ...]
    variants: Mapping[str, SessionInspection]

    @property
    def kernels(self) -> list[str]:
        """The kernel, or function of the host, of each call, in the order of the plan."""
        return [call.kernel for call in self.plan.calls]


def inspect(session: InferenceSession) -> SessionInspection:
    """What a session holds now."""
    return inspect_engine(engine_of(session))


def inspect_engine(engine: Engine) -> SessionInspection:
    """The same of what is behind a session, where there is no session."""
    executable, record = engine.executable, engine.record
    report, budget = executable.report(), executable.budget
    return SessionInspection(
        inputs=engine.inputs,
        outputs=engine.outputs,
        plan=executable.plan,
        facts=PlanFacts.from_bytes(record.facts),
        runs_on=executable.facts.runs_on,
        threads=executable.team.threads,
        share=executable.team.share,
        worker_ids=tuple(report.worker_ids),
        constant_bytes=sum(size_bytes for *_, size_bytes in record.constants),
        appended=tuple(record.outputs[a.output].name for a in record.appended),
        sizes=executable.frames.sizes,
        frames=tuple(report.frames),
        arena_bytes=executable.frames.arena_bytes,
        held_bytes=budget.held_bytes,
        limit_bytes=budget.limit_bytes,
        timings=dict(engine.timings),
        ends_on_host=report.ends_on_host,
        control_flow=report.control_flow,
        libraries=report.libraries,
        claims=engine.claims,
        regions=tuple(map(inspect_engine, engine.regions)),
        variants={name: inspect_engine(each) for name, each in engine.variants.items()},
    )
