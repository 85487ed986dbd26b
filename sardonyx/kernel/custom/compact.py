"""Positions of the elements of a boolean tensor that are true.

Loop nest::

    for i in 0..n:
        where mask[i]: positions[count] = i; count += 1
"""

from __future__ import annotations

from sardonyx.kernel.custom.frame import KernelFrame, volume
from sardonyx.kernel.custom.task import CustomTask, special
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.types import I64


@special("compact")
def build_compact(task: CustomTask, symbol: str) -> Kernel:
    """mask (n) bool -> positions (m) int64, where m is how many are true; in one block."""
    frame = KernelFrame(task, symbol)
    b, (mask,) = frame.builder, task.operands
    result = task.outputs[0]
    assert result is not None  # noqa: S101 - a kernel without result is never planned
    with b.parallel() as _:
        count = b.variable(0, I64, name="count")
        capacity = frame.dim(result.shape[0])
        with b.long_for(0, frame.dim(mask.shape[0])) as i:
            chosen = b.ne(frame.load_raw(mask, [i]), 0)
            with b.if_(chosen & (count.get() < capacity)):
                frame.store_raw(result, [count.get()], i)
                count.set(count.get() + 1)
    return frame.kernel(1, volume(mask.shape) * 1)
