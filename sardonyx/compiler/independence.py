"""Loops of a block that need nothing of each other, brought side by side."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.blocks import RegionWork, Work, WorkBlock
from sardonyx.tensor.region import Repetition
from sardonyx.tensor.tensor import Buffer


def arranged(works: Sequence[Work], block: WorkBlock) -> list[list[Work]]:
    """The works in an order that can run, those in one list independent of each other.

    A list of several is one of loops: what comes between the first and the last of them is done
    before, or after if it needs one of them. Everything else is alone, and stays where it was.
    """
    if sum(map(_is_plain_loop, works)) < 2:
        return [[work] for work in works]
    found: list[list[Work]] = []
    left = list(works)
    while left:
        first = left.pop(0)
        if not _is_plain_loop(first):
            found.append([first])
            continue
        group, made = [first], set(first.writes)
        last = 0
        for position, work in enumerate(left):
            if block.levels.of(work) != block.levels.of(first):
                break
            if made.intersection(work.reads):
                made.update(work.writes)
            elif _is_plain_loop(work):
                group.append(work)
                made.update(work.writes)
                last = position + 1
        found += [[w] for w in _before(group, left[:last])]
        found.append(group)
        done = {id(w) for lists in found for w in lists}
        left = [w for w in left if id(w) not in done]
    return found


def _before(group: list[Work], between: Sequence[Work]) -> list[Work]:
    """What of the works between does not need one of the group."""
    made: set[Buffer] = {b for w in group for b in w.writes}
    listed = []
    for work in between:
        if made.intersection(work.reads):
            made.update(work.writes)
        elif work not in group:
            listed.append(work)
    return listed


def _is_plain_loop(work: Work) -> bool:
    """Whether a work is a loop that only calls kernels, and whose results do not grow."""
    if not isinstance(work, RegionWork) or not isinstance(work.region, Repetition):
        return False
    if any(work.region.finals) or any(c.sizes for c in work.region.carried):
        return False
    return all(i.kernel.host is None for b in work.blocks for i in b.invocations())
