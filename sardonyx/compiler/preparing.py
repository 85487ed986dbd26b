"""Work that is done once: kernels that pack and fold, in plans that need little memory each."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from sardonyx.compiler.assembler import PlanWriter
from sardonyx.selection.invocation import Invocation
from sardonyx.store.preparation import Preparation, size_bytes
from sardonyx.tensor.tensor import Tensor

#: What one plan reads and writes, at most, unless it is a single kernel's.
_BATCH_BYTES = 8 * 2**20


def prepare(invocations: Sequence[Invocation], wanted: Container[Tensor]) -> list[Preparation]:
    """Plans for kernels that need no sizes or values of a run.

    A model's weights need not be in memory all at once: those that one plan reads can be dropped
    before the next one runs.

    Args:
        invocations: In an order that can run.
        wanted: Buffers that are read by others later.
    """
    found = []
    for batch in _batches(_connected(invocations)):
        outputs = [b for b in dict.fromkeys(w for i in batch for w in i.writes) if b in wanted]
        writer = PlanWriter([], [(f"constant{k}", b) for k, b in enumerate(outputs)])
        writer.write_all(batch)
        plan = writer.plan()
        found.append(Preparation(plan, writer.constants, outputs))
    return found


def _connected(invocations: Sequence[Invocation]) -> list[list[Invocation]]:
    """Lists of those that hand something to each other, each in the given order."""
    parents = list(range(len(invocations)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = number = parents[parents[number]]
        return number

    writers: dict[Tensor, int] = {}
    for number, invocation in enumerate(invocations):
        for buffer in (*invocation.reads, *invocation.writes):
            if buffer in writers:
                parents[root(writers[buffer])] = number
        writers.update(dict.fromkeys(invocation.writes, number))
    parts: dict[int, list[Invocation]] = {}
    for number, invocation in enumerate(invocations):
        parts.setdefault(root(number), []).append(invocation)
    return list(parts.values())


def _batches(parts: Sequence[list[Invocation]]) -> Iterator[list[Invocation]]:
    """Small parts together, as each plan costs something, too."""
    batch: list[Invocation] = []
    total = 0
    for part in parts:
        buffers = {b for i in part for b in (*i.reads, *i.writes)}
        needed = sum(map(size_bytes, buffers))
        if batch and total + needed > _BATCH_BYTES:
            yield batch
            batch, total = [], 0
        batch, total = batch + part, total + needed
    if batch:
        yield batch
