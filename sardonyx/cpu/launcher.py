"""Does the commands of bound frames: on the caller's thread, or with the session's others."""

from __future__ import annotations

from typing import Any

from sardonyx.runtime import arrays, pool, refusals
from sardonyx.runtime.arrays import ITEMS_OFFSET, Mirror
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.native_runs import NativeRuns
from sardonyx.runtime.team import Team


class CpuLauncher:
    """Runs frames of a plan.

    Args:
        runs: The native functions for the plan.
        team: How many threads a run may use.
        budget: What memory for each thread to work in counts in.
    """

    def __init__(self, runs: NativeRuns, team: Team, budget: Budget) -> None:
        self.runs, self._team, self._budget = runs, team, budget
        self._pool: pool.Pool | None = None
        self._generation = -1
        image = runs.image
        #: The outputs whose shapes are known from the start, if there are others.
        self._first = image.later[0] if len(image.plan.segments) > 1 else None

    def execute(self, frame: Frame, outputs: list[Any], cancel: CancelFlag | None) -> None:
        """Run a bound frame; outputs that are None are made when their shapes are known.

        Raises:
            RuntimeException: A kernel met data that it cannot work on.
            Fail: The run was cancelled; TimedOut if its time is over.
        """
        first = self._first
        items = tuple(outputs if first is None else [outputs[k] for k in first])
        mirror = None if arrays.NATIVE else Mirror(items)
        address = id(items) + ITEMS_OFFSET if mirror is None else mirror.address
        if cancel is not None:
            frame.watch(cancel.address)
        try:
            code = self.do_commands(frame, address, outputs)
        finally:
            if cancel is not None:
                frame.watch(None)
        if code:
            raise refusals.fault(code, frame, self.runs.image.plan, cancel)

    def do_commands(self, frame: Frame, items: int, outputs: list[Any]) -> int:
        """Do the commands, with the session's threads if no other run has them.

        Arguments and result are those of `NativeRuns.walk`.
        """
        workers = self._current_pool() if frame.threads > 1 else None
        # A pool that another run has does not make this one wait.
        if workers is not None and workers.lock.acquire(blocking=False):
            try:
                crew = None if workers.closed else PoolCrew(workers, self._budget)
                if crew is not None and not crew.may_work_in(frame):
                    crew = None
                return self.runs.walk(frame, items, outputs, crew)
            finally:
                workers.lock.release()
        return self.runs.walk(frame, items, outputs)

    @property
    def workers(self) -> pool.Pool | None:
        """The threads that runs have had so far; None if they had none."""
        return self._pool

    def _current_pool(self) -> pool.Pool | None:
        if self._generation != pool.generation:
            self._pool = pool.shared_pool(self._team.size, self._team.setup)
            self._generation = pool.generation
        return self._pool


class PoolCrew:
    """See `runtime.native_runs.Crew`: threads of a pool, which one run has.

    Args:
        workers: The pool.
        budget: What memory for each to work in counts in.
    """

    __slots__ = ("_budget", "_workers", "address")

    def __init__(self, workers: pool.Pool, budget: Budget) -> None:
        self._workers, self._budget = workers, budget
        self.address = workers.address

    def may_work_in(self, frame: Frame) -> bool:
        """See `Crew.may_work_in`."""
        size_bytes = frame.scratch.capacity_bytes
        lacking = self._workers.lacking_bytes(size_bytes)
        if lacking and not self._budget.may_take(lacking):
            return False
        self._workers.reserve(size_bytes)
        return True
