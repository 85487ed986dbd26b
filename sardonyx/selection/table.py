"""Tables of candidates: what can compute a group, in the order in which it is preferred.

A table is a tuple of `Candidate`s. `choose` walks it: the first candidate without a reason against
it is built, and the last one takes whatever is left. A candidate that builds may walk a further
table. In a session nothing else happens; a `SelectionTrace` also takes note of each candidate,
with its reason and its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.reasons import PassOutcome, Reason

if TYPE_CHECKING:
    from sardonyx.plan.groups import Group

_Task = TypeVar("_Task")
_Made = TypeVar("_Made")


def unknown(task: Any) -> Dim | None:
    """The cost of what no model of costs tells: the order of the table decides."""
    return None


@dataclass(eq=False, frozen=True, slots=True)
class Candidate(Generic[_Task, _Made]):
    """One way to compute what a task is about.

    A task holds the group, where its buffers lie, and the selector that builds; it remembers what
    several of these functions need.

    Attributes:
        name: In texts for people.
        why_not: Why it cannot, or should not, be taken, with the numbers that decided; None if it
            can. It may be asked more than once, and changes nothing but the task.
        build: Builds it; `why_not` gave None.
        cost: Nanoseconds on one thread by the cost model, where that is known without building; of
            thread blocks cycles of the device.
        tries: Whether `why_not` builds to find out: it is not asked once another row is taken.
    """

    name: str
    why_not: Callable[[_Task], Reason | None]
    build: Callable[[_Task], _Made]
    cost: Callable[[_Task], Dim | None] = unknown
    tries: bool = False


Table = tuple[Candidate[_Task, _Made], ...]


def always(task: Any) -> Reason | None:
    """There is nothing against the last candidate of a table."""
    return None


def choose(table: Table[_Task, _Made], task: _Task, trace: SelectionTrace | None = None) -> _Made:
    """What the first candidate builds that there is no reason against."""
    if trace is not None:
        return trace.choose(table, task)
    for row in table:
        if row.why_not(task) is None:
            return row.build(task)
    raise AssertionError(f"no row of a table takes {task}")


@dataclass(frozen=True, slots=True)
class Considered:
    """A candidate that was looked at.

    Attributes:
        name: Its name.
        reason: Why it was not taken; None of the one that was.
        cost: See `Candidate`; None where no model tells.
        is_possible: Whether nothing but its place in the table was against it.
        is_own: Whether it is for the group itself, rather than for what is packed or copied for it.
        depth: How many tables lie around the one that it is in.
    """

    name: str
    reason: Reason | None
    cost: Dim | None
    is_possible: bool
    is_own: bool
    depth: int


@dataclass(eq=False, slots=True)
class _Notes:
    """What is known of one group: its candidates, and passes over its operands."""

    candidates: list[Considered] = field(default_factory=list)
    passes: list[PassOutcome] = field(default_factory=list)


class SelectionTrace:
    """Takes note of candidates, for people who ask."""

    def __init__(self) -> None:
        self._groups: dict[Group, _Notes] = {}
        self._structures: dict[object, _Notes] = {}
        self._kernels: dict[object, list[Considered]] = {}
        self._now = _Notes()
        self._owner: Group | None = None
        self._is_own, self._depth = True, 0

    def of(self, group: Group) -> list[Considered]:
        """The candidates of a group, each once, in the order in which they were looked at."""
        notes = self._groups.get(group, _Notes())
        return list({(c.name, c.is_own): c for c in reversed(notes.candidates)}.values())[::-1]

    def passes(self, group: Group) -> list[PassOutcome]:
        """What planning passes did to its operands."""
        return list(self._groups.get(group, _Notes()).passes)

    @contextmanager
    def group(self, group: Group, structure: object = None) -> Iterator[None]:
        """Inside, a group gets its kernels.

        Args:
            group: It.
            structure: Groups of one structure are built once; None where each is built.
        """
        known = None if structure is None else self._structures.get(structure)
        self._now, self._owner = _Notes(), group
        self._groups[group] = known or self._now
        if structure is not None:
            self._structures.setdefault(structure, self._now)
        try:
            yield
        finally:
            self._now, self._owner = _Notes(), None

    def choose(self, table: Table[_Task, _Made], task: _Task) -> _Made:
        """See `choose`; rows behind the one that is taken are looked at, too."""
        is_own = self._is_for_owner(task)
        taken: Candidate[_Task, _Made] | None = None
        for row in table:
            reason = row.why_not(task) if taken is None or not row.tries else None
            is_possible = reason is None
            cost = row.cost(task) if is_possible else None
            if reason is None and taken is not None:
                reason = Reason("{} comes first", taken.name)
            elif reason is None:
                taken = row
            self._now.candidates.append(
                Considered(row.name, reason, cost, is_possible, is_own, self._depth)
            )
        assert taken is not None, f"no row of a table takes {task}"  # noqa: S101 - see `choose`
        before, self._is_own = self._is_own, is_own
        self._depth += 1
        try:
            return taken.build(task)
        finally:
            self._is_own = before
            self._depth -= 1

    def _is_for_owner(self, task: object) -> bool:
        """Whether a task is about the group that gets its kernels; parts of a task are as it is."""
        group: Group | None = getattr(task, "group", None)
        if group is None or self._owner is None:
            return self._is_own
        return {r.buffer for r in group.roots} & {r.buffer for r in self._owner.roots} != set()

    @contextmanager
    def kernel(self, key: object) -> Iterator[None]:
        """Inside, the kernel of a structure is built."""
        begin, candidates = len(self._now.candidates), self._now.candidates
        yield
        self._kernels[key] = candidates[begin:]

    def again(self, key: object) -> None:
        """A kernel that was built before is taken."""
        self._now.candidates += [
            replace(c, is_own=self._is_own) for c in self._kernels.get(key, ())
        ]

    def passed(self, outcome: PassOutcome) -> None:
        """A planning pass looked at the operands of the group that gets its kernels."""
        if self._is_own:
            self._now.passes.append(outcome)
