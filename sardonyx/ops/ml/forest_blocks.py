"""Walks over millions of nodes, in blocks: what is worked out of a block stays in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sardonyx.ir.constant import Array

#: Nodes of a block.
_BLOCK = 1 << 15


def blocks(count: int) -> Iterator[slice]:
    """Ranges that cover so many nodes."""
    return (slice(k, min(k + _BLOCK, count)) for k in range(0, count, _BLOCK))


def first_of(count: int, fault: Callable[[slice], Array]) -> int:
    """The first place among so many where something is true; -1 if there is none.

    Args:
        count: How many places there are.
        fault: Says for each place of a range whether it is.
    """
    for block in blocks(count):
        found = fault(block)
        if found.any():
            return int(block.start + found.argmax())
    return -1
