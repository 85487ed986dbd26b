"""Determinants by elimination with partial pivoting (Golub and Van Loan, section 3.4).

Loop nest::

    parallel block in 0..batch:
        matrix[n, n] = x[block]
        for column in 0..n:
            exchange the row with the largest pivot
            product *= matrix[column, column]
            for i in column + 1..n:
                for j in column + 1..n step lanes:
                    matrix[i, j] -= factor[i] * matrix[column, j]
        result[block] = product
"""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.kernel.custom.frame import KernelFrame, volume
from sardonyx.kernel.custom.task import CustomTask, special
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.language.builder import Builder, Register
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import F64, I64


@special("determinant")
def build_determinant(task: CustomTask, symbol: str) -> Kernel:
    """x (..., n, n) float or double -> (...). A block is a matrix, computed in double."""
    return _Determinant(task, symbol).build()


class _Determinant:
    def __init__(self, task: CustomTask, symbol: str) -> None:
        self.frame = KernelFrame(task, symbol)
        self.b: Builder = self.frame.builder
        (self.x,) = task.operands
        result = task.outputs[0]
        assert result is not None  # noqa: S101 - a kernel without result is never planned
        self.result = result
        self.lanes = max(2, task.lanes // 2)

    def build(self) -> Kernel:
        b, frame = self.b, self.frame
        batch, size = self.x.shape[:-2], self.x.shape[-1]
        self.n = b.variable(frame.dim(size), I64).get()
        self.matrix = b.context("scratch")
        frame.dims(batch)
        with b.parallel() as block:
            lead = frame.coordinates(block, batch)
            with b.for_(0, self.n) as i, b.for_(0, self.n) as j:
                value = frame.load(self.x, [*lead, i, j])
                b.store(b.convert(value, F64), self.matrix, self._at(i, j))
            product = b.variable(b.value(F64, 1.0), name="product")
            column = b.variable(b.value(I64, 0), name="column")

            def going() -> Operand:
                return (column.get() < self.n) & b.may_go_on()

            with b.while_(going):
                self._eliminate(column.get(), product)
                column.set(column.get() + 1)
            frame.store(self.result, lead, b.convert(product.get(), value_type(self.result.dtype)))
        cube = sizes.product((size, size, size)) // 6
        cost = volume(batch) * (cube + 10)
        return frame.kernel(volume(batch), cost, sizes.product((size, size, 8)))

    def _at(self, row: Operand, column: Operand) -> Operand:
        return row * self.n + column

    def _element(self, row: Operand, column: Operand) -> Operand:
        return self.b.load(F64, self.matrix, self._at(row, column))

    def _eliminate(self, k: Operand, product: Register) -> None:
        """Make the column below the diagonal zero, and multiply by what is on it."""
        b = self.b
        largest = b.variable(b.unary("abs", self._element(k, k)), name="largest")
        pivot = b.variable(k, name="pivot")
        below = k + 1
        with b.for_(below, self.n) as i:
            size = b.unary("abs", self._element(i, k))
            with b.if_(size > largest.get()):
                largest.set(size)
                pivot.set(i)
        row = pivot.get()
        with b.if_(b.ne(row, k)):
            with b.for_(k, self.n) as j:
                upper, lower = self._element(k, j), self._element(row, j)
                b.store(lower, self.matrix, self._at(k, j))
                b.store(upper, self.matrix, self._at(row, j))
            product.set(-product.get())
        divisor = self._element(k, k)
        product.set(product.get() * divisor)
        # A column of zeros needs no elimination: the product is 0, or not a number.
        with b.if_(b.ne(divisor, 0.0)), b.for_(below, self.n) as i:
            factor = self._element(i, k) / divisor
            self._subtract(i, k, factor, below)

    def _subtract(self, row: Operand, pivot: Operand, factor: Operand, start: Operand) -> None:
        """Take `factor` times the pivot's row from another one, from column `start` on."""
        b, lanes = self.b, self.lanes
        wide = F64.with_lanes(lanes)
        count = self.n - start
        whole = start + (count & -lanes)
        for low, high, kind in ((start, whole, wide), (whole, self.n, F64)):
            with b.for_(low, high, kind.lanes) as j:
                to = self._at(row, j)
                own = b.load(kind, self.matrix, to)
                taken = b.load(kind, self.matrix, self._at(pivot, j)) * factor
                b.store(own - taken, self.matrix, to)
