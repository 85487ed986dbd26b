"""Running sums and products along one axis (ONNX operator spec: CumSum, CumProd)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import sizes
from sardonyx.kernel.compiled import Kernel
from sardonyx.kernel.program import Constant, Operand
from sardonyx.kernel.representation import value_type
from sardonyx.kernel.special.frame import KernelFrame, volume
from sardonyx.kernel.special.task import SpecialTask, special
from sardonyx.kernel.types import I64

#: Blocks among which the rows are divided if only the run knows how many there are.
_PARTS = 64


@special("scan")
def build_scan(task: SpecialTask, symbol: str) -> Kernel:
    """x (..., n), perhaps an int64 axis of one element -> y like x; kind, exclusive, reverse.

    Along the last axis, unless there is a second operand. A block is one row, or a part of them.
    """
    return _Scan(task, symbol).build()


class _Scan:
    def __init__(self, task: SpecialTask, symbol: str) -> None:
        result = task.outputs[0]
        assert result is not None  # noqa: S101 - a kernel without result is never planned
        self.x, self.y = task.operands[0], result
        self.axis = task.operands[1] if len(task.operands) > 1 else None
        self.frame = KernelFrame(task, symbol)
        self.b = self.frame.builder
        is_sum = task.attribute("kind") == "sum"
        self.op, self.neutral = ("add", 0) if is_sum else ("mul", 1)
        self.exclusive = bool(task.attribute("exclusive"))
        self.reverse = bool(task.attribute("reverse"))

    def build(self) -> Kernel:
        b, frame, x = self.b, self.frame, self.x
        cost = sizes.multiply(volume(x.shape), 2)
        if self.axis is not None:
            with b.parallel() as part:
                self._along_any(part)
            return frame.kernel(_PARTS, cost)
        with b.parallel() as row:
            lead = frame.coordinates(row, x.shape[:-1])
            self._row(frame.dim(x.shape[-1]), lambda i: [*lead, i])
        return frame.kernel(volume(x.shape[:-1]), cost)

    def _row(self, length: Operand, at: Callable[[Operand], Sequence[Operand]]) -> None:
        b, frame = self.b, self.frame
        total = b.variable(Constant(value_type(self.x.dtype), self.neutral), name="total")
        with b.for_(0, length) as i:
            place = at(b.binary("sub", b.binary("sub", length, 1), i) if self.reverse else i)
            before = total.get()
            after = b.binary(self.op, before, frame.load(self.x, place))
            total.set(after)
            frame.store(self.y, place, before if self.exclusive else after)

    def _along_any(self, part: Operand) -> None:
        """This part of the rows along the axis that the second operand names."""
        b, frame, shape = self.b, self.frame, self.x.shape
        assert self.axis is not None  # noqa: S101 - narrows the type for the checker
        zero = b.value(I64, 0)
        given = frame.load(self.axis, [zero] * len(self.axis.shape))
        axis, valid = frame.checked(given, b.value(I64, len(shape)))
        chosen = [b.eq(axis, k) for k in range(len(shape))]
        extents = [b.lift(frame.dim(extent), I64) for extent in shape]
        length: Operand = zero
        rows: Operand = b.value(I64, 1)
        others: list[Operand] = []
        for here, extent in zip(chosen, extents, strict=True):
            length = b.select(here, extent, length)
            others.append(b.select(here, 1, extent))
            rows = b.binary("mul", rows, others[-1])
        low = b.binary("div", b.binary("mul", rows, part), _PARTS)
        high = b.binary("div", b.binary("mul", rows, b.binary("add", part, 1)), _PARTS)
        with b.if_(valid), b.for_(low, high) as row:
            lead: list[Operand] = []
            rest: Operand = row
            for extent in reversed(others):
                lead.insert(0, b.binary("rem", rest, extent))
                rest = b.binary("div", rest, extent)

            def at(i: Operand) -> list[Operand]:
                return [b.select(here, i, c) for here, c in zip(chosen, lead, strict=True)]

            self._row(length, at)
