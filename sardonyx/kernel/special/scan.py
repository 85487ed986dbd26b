"""Running sums and products along the last axis (ONNX operator spec: CumSum, CumProd)."""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.kernel.compiled import Kernel
from sardonyx.kernel.expression import value_type
from sardonyx.kernel.program import Constant
from sardonyx.kernel.special.frame import KernelFrame, volume
from sardonyx.kernel.special.task import SpecialTask, special


@special("scan")
def build_scan(task: SpecialTask, symbol: str) -> Kernel:
    """x (..., n) -> (..., n); kind sum or prod, exclusive, reverse. A block is one row."""
    x, y = task.operands[0], task.outputs[0]
    assert y is not None  # noqa: S101 - a kernel without result is never planned
    frame = KernelFrame(task, symbol)
    b = frame.builder
    op, neutral = ("add", 0) if task.attribute("kind") == "sum" else ("mul", 1)
    exclusive, reverse = bool(task.attribute("exclusive")), bool(task.attribute("reverse"))
    length = frame.dim(x.shape[-1])
    with b.parallel() as row:
        lead = frame.coordinates(row, x.shape[:-1])
        total = b.variable(Constant(value_type(x.dtype), neutral), name="total")
        with b.for_(0, length) as i:
            at = b.binary("sub", b.binary("sub", length, 1), i) if reverse else i
            before = total.get()
            after = b.binary(op, before, frame.load(x, [*lead, at]))
            total.set(after)
            frame.store(y, [*lead, at], before if exclusive else after)
    return frame.kernel(volume(x.shape[:-1]), sizes.multiply(volume(x.shape), 2))
