"""Probabilities of classes out of those of pairs of classes.

T.-F. Wu, C.-J. Lin, R. C. Weng, Probability Estimates for Multi-class Classification by Pairwise
Coupling (2004), algorithm 2, as libsvm uses it: p minimises the sum of (r_ji p_i - r_ij p_j)^2.

Loop nest::

    parallel block in 0..ceil(n / _ROWS):
        for row in low..high:
            for i in 0..k, j in i + 1..k: Q[i, j], Q[j, i], Q[i, i], Q[j, j] of pairwise[row]
            while left > 0 and worst >= 0.005 / k:
                for i in 0..k: qp[i] = sum over j of Q[i, j] * p[j]
                for i in 0..k: improve p[i]; for j in 0..k: scale p[j], qp[j]
            shares[row] = p
"""

from __future__ import annotations

from sardonyx.base import integer
from sardonyx.kernel.custom.frame import KernelFrame
from sardonyx.kernel.custom.task import CustomTask, special
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.language.builder import Register
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import F64, I64

#: Rows of a block.
_ROWS = 16


@special("couple")
def build_couple(task: CustomTask, symbol: str) -> Kernel:
    """pairwise (n, k (k - 1) / 2) -> shares (n, k); entry (i, j), i < j, is for i. In double."""
    return _Couple(task, symbol).build()


class _Couple:
    def __init__(self, task: CustomTask, symbol: str) -> None:
        self.frame = KernelFrame(task, symbol)
        self.b = self.frame.builder
        (self.pairwise,) = task.operands
        shares = task.outputs[0]
        assert shares is not None  # noqa: S101 - a kernel without result is never planned
        self.shares = shares
        self.classes = int(shares.shape[1])

    def build(self) -> Kernel:
        b, frame, k = self.b, self.frame, self.classes
        rows = self.pairwise.shape[0]
        scratch = b.context("scratch")
        # Q is symmetric, k x k; then come p and Q p.
        self.q = scratch
        self.p = b.offset(scratch, k * k, F64)
        self.qp = b.offset(scratch, k * k + k, F64)
        with b.parallel() as block:
            low = block * _ROWS
            high = b.min(low + _ROWS, frame.dim(rows))
            with b.for_(low, high) as row:
                self._fill(row)
                self._iterate()
                with b.for_(0, k) as i:
                    value = b.load(F64, self.p, i)
                    frame.store(
                        self.shares, [row, i], b.convert(value, value_type(self.shares.dtype))
                    )
        cost = rows * (40 * k * k + 40)
        return frame.kernel(integer.ceildiv(rows, _ROWS), cost, 8 * (k * k + 2 * k))

    def _at(self, i: Operand, j: Operand) -> Operand:
        return i * self.classes + j

    def _fill(self, row: Operand) -> None:
        """Q_ii = sum of r_ji^2, Q_ij = -r_ji r_ij; p starts equal for all."""
        b, k = self.b, self.classes
        one = b.value(F64, 1.0)
        with b.for_(0, k) as i:
            b.store(b.value(F64, 1.0 / k), self.p, i)
            b.store(b.value(F64, 0.0), self.q, self._at(i, i))
        number = b.variable(0, I64, name="number")

        def grow(i: Operand, square: Operand) -> None:
            at = self._at(i, i)
            b.store(b.fma(square, square, b.load(F64, self.q, at)), self.q, at)

        with b.for_(0, k) as i, b.for_(i + 1, k) as j:
            given = self.frame.load(self.pairwise, [row, number.get()])
            first = b.convert(given, F64)
            second = one - first
            grow(i, second)
            grow(j, first)
            cross = -(first * second)
            b.store(cross, self.q, self._at(i, j))
            b.store(cross, self.q, self._at(j, i))
            number.set(number.get() + 1)

    def _iterate(self) -> None:
        """Until no Q p_i differs by more than 0.005 / k from their mean p Q p."""
        b, k = self.b, self.classes
        left = b.variable(max(100, k), I64, name="left")
        with b.while_(lambda: left.get() > 0):
            left.set(left.get() - 1)
            mean = b.variable(0.0, F64, name="mean")
            with b.for_(0, k) as i:
                total = b.variable(0.0, F64, name="total")
                with b.for_(0, k) as j:
                    q = b.load(F64, self.q, self._at(i, j))
                    total.set(b.fma(q, b.load(F64, self.p, j), total.get()))
                b.store(total.get(), self.qp, i)
                mean.set(b.fma(b.load(F64, self.p, i), total.get(), mean.get()))
            worst = b.variable(0.0, F64, name="worst")
            with b.for_(0, k) as i:
                off = b.load(F64, self.qp, i) - mean.get()
                worst.set(b.max(worst.get(), b.unary("abs", off)))
            with b.if_(worst.get() < 0.005 / k):
                left.set(0)
            with b.else_(), b.for_(0, k) as i:
                self._improve(i, mean)

    def _improve(self, i: Operand, mean: Register) -> None:
        b, k = self.b, self.classes
        diagonal = b.load(F64, self.q, self._at(i, i))
        here = b.load(F64, self.qp, i)
        step = (mean.get() - here) / diagonal
        scale = step + 1.0
        b.store(b.load(F64, self.p, i) + step, self.p, i)
        grown = b.fma(step, b.fma(step, diagonal, here * 2.0), mean.get())
        mean.set(grown / (scale * scale))
        with b.for_(0, k) as j:
            q = b.load(F64, self.q, self._at(i, j))
            moved = b.fma(step, q, b.load(F64, self.qp, j))
            b.store(moved / scale, self.qp, j)
            b.store(b.load(F64, self.p, j) / scale, self.p, j)
