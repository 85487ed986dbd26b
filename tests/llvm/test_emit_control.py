import numpy as np
import pytest

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.types import F32, I1, I64, PTR
from tests.support.kernels import Kernels, targets

#: Goes through the targets by itself.
pytestmark = pytest.mark.once


def total(name="total"):
    """y[block] = sum of row `block` of x, in vectors with a masked tail."""
    b = Builder(name, [("x", PTR), ("y", PTR), ("n", I64)], kind="kernel")
    x, y, n = (b.parameter(p) for p in ("x", "y", "n"))
    with b.parallel() as block:
        row = b.offset(x, block * n, F32)
        sums = b.variable(0.0, F32.with_lanes(8))
        with b.for_(0, n, 8) as i:
            mask = b.tail_mask(n - i, 8)
            sums.set(sums.get() + b.load(F32.with_lanes(8), row, i, mask=mask, align_bytes=4))
        b.store(b.reduce("reduce_add", sums.get()), y, block)
    return b.program


def collatz():
    """y[i] = steps of x[i] until 1, -1 above a limit: while, nested if, variables."""
    b = Builder("collatz", [("x", PTR), ("y", PTR)], kind="kernel")
    x, y = b.parameter("x"), b.parameter("y")
    with b.parallel() as block:
        value = b.variable(b.load(I64, x, block))
        steps = b.variable(0, I64)
        with b.while_(lambda: b.ne(value.get(), 1)):
            with b.if_(b.eq(value.get() & 1, 1)):
                with b.if_(value.get() > 10**6):
                    value.set(1)
                    steps.set(-2)
                with b.else_():
                    value.set(value.get() * 3 + 1)
            with b.else_():
                value.set(value.get() >> 1)
            steps.set(steps.get() + 1)
        b.store(steps.get(), y, block)
    return b.program


def early():
    """Returns from inside loops, and inlined with them."""
    b = Builder("find", [("x", PTR), ("n", I64), ("key", I64)], result=I64, always_inline=True)
    x, n, key = (b.parameter(p) for p in ("x", "n", "key"))
    with b.for_(0, n) as i, b.if_(b.eq(b.load(I64, x, i), key)):
        b.return_(i)
    b.return_(b.constant(I64, -1))
    k = Builder("early", [("x", PTR), ("n", I64), ("y", PTR)], kind="kernel")
    with k.parallel() as block:
        found = k.call("find", [k.parameter("x"), k.parameter("n"), block], I64)
        k.store(found, k.parameter("y"), block)
    return [b.program, k.program]


def faulty():
    b = Builder("faulty", [("flag", I1), ("n", I64)], kind="kernel")
    with b.parallel() as block, b.if_(b.parameter("flag")):
        b.fault(1, block, b.parameter("n"), 9)
    return b.program


PROGRAMS = [total(), collatz(), *early(), faulty()]


@pytest.fixture(scope="module", params=targets(), ids=lambda t: t.isa)
def kernels(request):
    return Kernels(PROGRAMS, request.param)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 16, 31])
def test_total(kernels, n):
    x = np.arange(4 * n, dtype=np.float32).reshape(4, n)
    y = np.full(4, 99, np.float32)
    kernels.run("total", x, y, n, begin=1, end=4)
    assert y.tolist() == [99, *x.sum(1)[1:].tolist()]


def test_collatz(kernels):
    x = np.array([1, 2, 3, 6, 7, 27, 113383], np.int64)
    y = np.zeros_like(x)
    kernels.run("collatz", x, y, end=x.size)
    assert y.tolist()[:6] == [0, 1, 7, 8, 16, 111]
    assert y[6] == -1


def test_early_return(kernels):
    x = np.array([5, 3, 0, 1, 1], np.int64)
    y = np.zeros(7, np.int64)
    kernels.run("early", x, 5, y, end=7)
    assert y.tolist() == [2, 3, -1, 1, -1, 0, -1]


def test_first_fault_stays(kernels):
    kernels.fault[:] = 0
    kernels.run("faulty", 0, 5, end=4)
    assert kernels.fault.tolist() == [0, 0, 0, 0, 0]
    kernels.run("faulty", 1, 5, begin=2, end=4)
    assert kernels.fault.tolist() == [1, 7, 2, 5, 9]
