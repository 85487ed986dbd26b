"""A model before it is run or cached: its plan and code are there, its constants are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from sardonyx.base.records import dataclass
from sardonyx.cpu.executable import CpuExecutable, executable_of
from sardonyx.cpu.threads import thread_count
from sardonyx.plan.plan import Plan
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.plan_tables import PlanCode
from sardonyx.runtime.provider import Generated
from sardonyx.runtime.storage import Array
from sardonyx.runtime.team import Team
from sardonyx.runtime.thread_setup import plain_setup
from sardonyx.store.constants import Constants, Prepare
from sardonyx.store.model_record import ModelRecord

if TYPE_CHECKING:
    from sardonyx.compiler.options import EngineOptions
    from sardonyx.kernel.language.compiled import Kernel
    from sardonyx.plugins.claims import Claims


@dataclass(slots=True)
class Built:
    """See the module's text.

    Attributes:
        record: What the session must know of the model.
        generated: Machine code.
        constants: What the plan reads, and how it is made.
        kernels: By what they were built for.
        facts: What else decides on how a structure is built; "" if no kernels are kept.
        claims: What providers outside the package compute; None if there are none.
        is_own: Whether there are operators of the program's own: another program's may differ.
        read: Numbers of the initializers whose contents the plan depends on; None if it depends on
            more than these and what the file says beside weights.
    """

    record: ModelRecord
    generated: Generated
    constants: Constants
    kernels: dict[object, Kernel] = field(default_factory=dict)
    facts: str = ""
    claims: Claims | None = None
    is_own: bool = False
    read: list[int] | None = None


def prepare_with(code: PlanCode, options: EngineOptions, budget: Budget) -> Prepare:
    """What makes constants: threads of any session, in the mode of this one's runs.

    Args:
        code: The kernels of the preparations.
        options: The session's.
        budget: What memory counts in.
    """
    setup = plain_setup(flushes_denormals=True) if options.flushes_denormals else None
    team = Team(thread_count(options.threads), setup=setup)
    return partial(_prepared, code, team, budget)


def _prepared(
    code: PlanCode, team: Team, budget: Budget, plan: Plan, constants: Sequence[Array]
) -> CpuExecutable:
    return executable_of(plan, code, constants, threads=team, budget=budget)
