"""Products of a sparse matrix, in compressed rows, and a dense one.

Loop nest::

    parallel block in 0..ceil(m / _ROWS) * ceil(w / _COLUMNS):
        for row in first..first + _ROWS:
            for column in low..high step _VECTORS * lanes:
                for e in outer[row]..outer[row + 1]:
                    sums += values[e] * dense[inner[e], column:]
                result[row, column:] = sums
"""

from __future__ import annotations

from sardonyx.base import integer
from sardonyx.kernel.custom.frame import KernelFrame, volume
from sardonyx.kernel.custom.task import CustomTask, special
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import memory_type

#: Rows of a block, and columns of one at most.
_ROWS, _COLUMNS = 8, 512
#: Vectors of sums that one walk along a row keeps in registers.
_VECTORS = 4


@special("sparse_rows")
def build_sparse_rows(task: CustomTask, symbol: str) -> Kernel:
    """outer (m + 1), inner (n), values (n), dense (k, w) -> sums (m, w).

    Row i sums `values[e] * dense[inner[e]]` for e from `outer[i]` to `outer[i + 1]`, in this order.
    Every walk along a row makes a few vectors of the result.
    """
    return _SparseRows(task, symbol).build()


class _SparseRows:
    def __init__(self, task: CustomTask, symbol: str) -> None:
        self.outer, self.inner, self.values, self.dense = task.operands
        result = task.outputs[0]
        assert result is not None  # noqa: S101 - a kernel without result is never planned
        self.result = result
        self.frame = KernelFrame(task, symbol)
        self.b = self.frame.builder
        together = self.dense.strides[-1] == self.result.strides[-1] == 1
        self.lanes = max(1, task.lanes * 4 // max(4, result.dtype.size_bytes)) if together else 1

    def build(self) -> Kernel:
        b, frame = self.b, self.frame
        rows, width = self.result.shape
        count = self.values.shape[0]
        shape = (integer.ceildiv(rows, _ROWS), integer.ceildiv(width, _COLUMNS))
        frame.dims((*shape, *self.dense.shape))
        every, columns, most = map(frame.dim, (rows, width, count))
        with b.parallel() as block:
            part, chunk = frame.coordinates(block, shape)
            first = part * _ROWS
            low = chunk * _COLUMNS
            high = b.min(low + _COLUMNS, columns)
            with b.for_(first, b.min(first + _ROWS, every)) as row:
                # Whatever lies in memory, no other value is read.
                start = b.max(frame.load(self.outer, [row]), 0)
                following = row + 1
                end = b.min(frame.load(self.outer, [following]), most)
                done: Operand = low
                for step in (self.lanes * _VECTORS, self.lanes, 1):
                    rest = (high - done) % step
                    whole = high - rest
                    with b.for_(done, whole, step) as column:
                        self._sum(row, column, start, end, step)
                    done = whole
        cost = volume(self.result.shape) + count * width
        return frame.kernel(volume(shape), integer.ceildiv(cost, 4))

    def _sum(self, row: Operand, column: Operand, start: Operand, end: Operand, step: int) -> None:
        """Elements of a row of the result, `step` of them from `column` on."""
        b, frame = self.b, self.frame
        lanes = min(step, self.lanes)
        at = [column + k for k in range(0, step, lanes)]
        depth = frame.dim(self.dense.shape[0])
        kind = memory_type(self.dense.dtype).with_lanes(lanes)
        sums = [b.variable(b.splat(b.value(kind.element, 0), lanes), kind) for _ in at]
        with b.for_(start, end) as e:
            line, valid = frame.checked(frame.load(self.inner, [e]), depth)
            with b.if_(valid):
                factor = b.splat(frame.load(self.values, [e]), lanes)
                for total, place in zip(sums, at, strict=True):
                    other = frame.load(self.dense, [line, place], lanes)
                    if kind.is_float:
                        total.set(b.fma(factor, other, total.get()))
                    else:
                        total.set(total.get() + factor * other)
        for total, place in zip(sums, at, strict=True):
            frame.store(self.result, [row, place], total.get())
