"""Running sums and products along one axis (ONNX operator spec: CumSum, CumProd).

Loop nest, where columns lie side by side::

    parallel block in 0..others * ceil(extent / width):   # width: _VECTORS vectors of columns
        total[width] = neutral
        for i in 0..length:                               # from the end where `reverse`
            total = op(total, x[i, columns])
            y[i, columns] = total                         # what it was where `exclusive`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sardonyx.base import integer
from sardonyx.base.sizes import Dim
from sardonyx.kernel.custom.frame import KernelFrame, volume, without
from sardonyx.kernel.custom.task import CustomTask, special
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import F64, I64

#: Blocks among which the rows are divided if only the run knows how many there are.
_PARTS = 64
#: Vectors of columns that go along an axis in step.
_VECTORS = 4


@special("scan")
def build_scan(task: CustomTask, symbol: str) -> Kernel:
    """x, perhaps an int64 axis of one element -> y like x; kind, exclusive, reverse, axis.

    Along the last axis, unless there is a second operand or an attribute, counted from the end. A
    block is one row, or a part of them, or a few vectors of columns. What floats run up to is held
    in float64, and rounded once for each result: errors do not grow along the axis.
    """
    return _Scan(task, symbol).build()


class _Scan:
    def __init__(self, task: CustomTask, symbol: str) -> None:
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
        along = task.attribute("axis", -1)
        rank = len(self.x.shape)
        self.along = rank + along if isinstance(along, int) else rank - 1
        self.lanes = task.lanes // 2 if self.x.dtype.bits >= 64 else task.lanes

    def build(self) -> Kernel:
        b, frame, x = self.b, self.frame, self.x
        cost = volume(x.shape) * 2
        if self.axis is not None:
            with b.parallel() as part:
                self._along_any(part)
            return frame.kernel(_PARTS, cost)
        along = self.along
        if along + 1 < len(x.shape) and x.strides[-1] == self.y.strides[-1] == 1:
            return self._by_columns(cost)
        others = without(x.shape, along)
        with b.parallel() as row:
            lead = frame.coordinates(row, others)
            self._rows(frame.dim(x.shape[along]), [lambda i: [*lead[:along], i, *lead[along:]]])
        return frame.kernel(volume(others), cost)

    def _by_columns(self, cost: Dim) -> Kernel:
        """Lanes lie along the last axis: each has a sum of its own."""
        b, frame, shape, lanes = self.b, self.frame, self.x.shape, self.lanes
        width = lanes * _VECTORS
        others, parts = without(shape[:-1], self.along), integer.ceildiv(shape[-1], width)
        length, extent = frame.dim(shape[self.along]), frame.dim(shape[-1])
        count = frame.dim(parts)
        with b.parallel() as block:
            lead = frame.coordinates(block // count, others)
            first = block % count * width
            before, after = lead[: self.along], lead[self.along :]

            def write(column: Operand, vectors: int, lanes: int) -> None:
                def place(i: Operand, k: int) -> list[Operand]:
                    return [*before, i, *after, column + k * lanes]

                self._rows(length, [partial(place, k=k) for k in range(vectors)], lanes)

            end = first + width
            with b.if_(end <= extent):
                write(first, _VECTORS, lanes)
            with b.else_():
                rest = (extent - first) & -lanes
                whole = first + rest
                with b.for_(first, whole, lanes) as column:
                    write(column, 1, lanes)
                with b.for_(whole, extent) as column:
                    write(column, 1, 1)
        return frame.kernel(volume(others) * parts, cost)

    def _rows(
        self,
        length: Operand,
        rows: Sequence[Callable[[Operand], Sequence[Operand]]],
        lanes: int = 1,
    ) -> None:
        """Rows in step: each says where its element of a number lies."""
        b, frame = self.b, self.frame
        kind = value_type(self.x.dtype)
        held = F64 if kind.is_float else kind
        start = b.constant(held.with_lanes(lanes), self.neutral)
        totals = [b.variable(start, name="total") for _ in rows]
        with b.long_for(0, length) as i:
            number = length - 1 - i if self.reverse else i
            for row, total in zip(rows, totals, strict=True):
                place, before = row(number), total.get()
                term = b.convert(frame.load(self.x, place, lanes), held)
                after = b.binary(self.op, before, term)
                total.set(after)
                result = before if self.exclusive else after
                frame.store(self.y, place, b.convert(result, kind))

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
            rows = rows * others[-1]
        low = rows * part // _PARTS
        high = rows * (part + 1) // _PARTS
        with b.if_(valid), b.for_(low, high) as row:
            lead: list[Operand] = []
            rest: Operand = row
            for extent in reversed(others):
                lead.insert(0, rest % extent)
                rest = rest // extent

            def at(i: Operand) -> list[Operand]:
                return [b.select(here, i, c) for here, c in zip(chosen, lead, strict=True)]

            self._rows(length, [at])
