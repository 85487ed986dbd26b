"""Work that is done once: kernels that pack and fold, in plans that need little memory each."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence

from sardonyx.base.records import dataclass
from sardonyx.codegen.invocation import Invocation
from sardonyx.plan.plan import Plan
from sardonyx.runtime.assembler import PlanWriter
from sardonyx.tensor.tensor import Buffer, Tensor

#: What one plan reads and writes, at most, unless it is a single kernel's.
_BATCH_BYTES = 8 * 2**20


@dataclass(eq=False, slots=True)
class Preparation:
    """Kernels that run once, and share nothing with those of other preparations.

    Attributes:
        plan: What they do.
        constants: Buffers behind the plan's constants, in order.
        outputs: Buffers of the plan's outputs, in order.
    """

    plan: Plan
    constants: list[Buffer]
    outputs: list[Buffer]


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


def size_bytes(buffer: Tensor) -> int:
    """Bytes of a buffer whose shape is known."""
    return math.prod(int(d) for d in buffer.shape) * buffer.dtype.stored.itemsize
