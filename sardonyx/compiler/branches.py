"""Branches: kernels in a row that fall into chains which need nothing of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sardonyx.compiler.blocks import Work, WorkBlock
from sardonyx.native.layout import NS_PER_JOIN
from sardonyx.selection.invocation import Invocation

#: Works that do not depend on each other are looked for this far apart.
_FARTHEST = 512
#: Branches whose work is known, and all but the longest of which take less, are left in their row.
_LEAST_NS = 2 * NS_PER_JOIN

#: Works done one after the other; those of two chains in any order.
Chain = list[Work]


def with_branches(groups: Sequence[Sequence[Work]], block: WorkBlock) -> Iterator[list[Chain]]:
    """Groups of works in an order that can run, kernels put into chains where there are several.

    Args:
        groups: Works in an order that can run, those in one group independent of each other.
        block: What the works are of.

    Yields:
        Chains that are independent of each other. What they hold stood in a row before.
    """
    row: list[Invocation] = []
    for group in groups:
        single = group[0] if len(group) == 1 else None
        if isinstance(single, Invocation) and single.kernel.host is None:
            if row and block.levels.of(row[0]) != block.levels.of(single):
                yield from _of_row(row)
                row = []
            row.append(single)
            continue
        yield from _of_row(row)
        row = []
        yield [[work] for work in group]
    yield from _of_row(row)


def _of_row(row: list[Invocation]) -> Iterator[list[Chain]]:
    """The stages of kernels in a row: chains where it forks until it joins, else one by one."""
    needs = _needs(row)
    joins_all = _joining(needs)
    start = 0
    while start < len(row):
        chains = _forked(needs, joins_all, start)
        found = [[row[k] for k in chain] for chain in chains]
        if len(found) > 1 and _is_enough(found):
            yield [[*chain] for chain in found]
            start += sum(map(len, chains))
        else:
            yield [[row[start]]]
            start += 1


def _needs(row: list[Invocation]) -> list[set[int]]:
    """Which earlier ones each must follow: they write what it reads or writes, or read that."""
    writers: dict[object, int] = {}
    readers: dict[object, list[int]] = {}
    found = []
    for k, work in enumerate(row):
        needed = {writers[b] for b in (*work.reads, *work.writes) if b in writers}
        for buffer in work.writes:
            needed.update(readers.pop(buffer, ()))
            writers[buffer] = k
        for read in work.reads:
            readers.setdefault(read, []).append(k)
        needed.discard(k)
        found.append(needed)
    return found


def _joining(needs: list[set[int]]) -> list[bool]:
    """Of each, whether everything that follows needs it, or one that does."""
    found, oldest = [], len(needs)
    for k in range(len(needs) - 1, -1, -1):
        found.append(oldest >= k)
        oldest = min(oldest, max(needs[k], default=-1))
    return found[::-1]


def _forked(needs: list[set[int]], joins_all: list[bool], start: int) -> list[list[int]]:
    """The chains from `start` up to where two of them are needed at once; [] if there is one."""
    chains: list[list[int]] = []
    owner: dict[int, list[int]] = {}
    for k in range(start, min(len(needs), start + _FARTHEST)):
        own: list[list[int]] = []
        for earlier in needs[k]:
            if earlier >= start and owner[earlier] not in own:
                own.append(owner[earlier])
        if len(own) > 1:
            break
        if not own:
            own.append([])
            chains.append(own[0])
        own[0].append(k)
        owner[k] = own[0]
        if len(chains) == 1 and joins_all[k]:
            return []
    return chains if len(chains) > 1 else []


def _is_enough(chains: list[list[Invocation]]) -> bool:
    """Whether what can be done beside the longest chain may be worth a thread."""
    costs = []
    for chain in chains:
        each = [work.kernel.cost_ns for work in chain]
        known = [int(cost) for cost in each if type(cost) is int]
        if len(known) < len(each):
            return True  # only a run knows
        costs.append(sum(known))
    return sum(costs) - max(costs) >= _LEAST_NS
