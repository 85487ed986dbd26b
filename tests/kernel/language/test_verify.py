import pytest

from sardonyx.base.errors import EngineError
from sardonyx.kernel.language import matrix_registers
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import (
    Block,
    Effect,
    Literal,
    Parallel,
    Read,
    Return,
    SetVariable,
    Variable,
)
from sardonyx.kernel.language.text import to_text
from sardonyx.kernel.language.types import BF16, F32, F64, I1, I32, I64, PTR
from sardonyx.kernel.language.verify import verify


def scale():
    """y[i] = 2 x[i] where positive, in vectors of 8."""
    b = Builder("scale", [("x", PTR), ("y", PTR), ("n", I64)], kind="kernel")
    x, y, n = (b.parameter(p) for p in "xyn")
    with b.parallel() as block:
        total = b.variable(0.0, F32, "total")
        with b.for_(0, n, 8) as i:
            mask = b.tail_mask(n - i, 8)
            value = b.load(F32.with_lanes(8), x, i, mask=mask, align_bytes=4)
            b.store(value * 2.0, y, i, mask=mask, align_bytes=4)
        with b.if_(n > 4):
            total.set(1.0)
        with b.else_():
            b.fault(1, block)
        with b.while_(lambda: total.get() < 8.0):
            total.set(total.get() + 1.0)
    return b.program


TEXT = """\
kernel scale(x %1: ptr, y %2: ptr, n %3: i64):
    parallel %4:
        $total: f32 = 0.0:f32
        for %5 in range(0:i64, %3, 8:i64):
            %6: i64 = sub %3, %5
            %7: i1x8 = tail_mask %6
            %8: f32x8 = load %1, %5, %7 {align_bytes=4}
            %9: f32x8 = mul %8, 2.0:f32x8
            store %9: f32x8 to %2[%5], mask %7 {align_bytes=4}
        %10: i1 = gt %3, 4:i64
        if %10:
            $total: f32 = 1.0:f32
        else:
            fault %4, 0:i64, 0:i64 {code=1}
        while:
            %11: f32 = $total
            %12: i1 = lt %11, 8.0:f32
            leave unless %12
            %13: f32 = $total
            %14: f32 = add %13, 1.0:f32
            $total: f32 = %14
"""


def test_text():
    assert to_text(scale()) == TEXT


def test_good_program_passes():
    verify(scale())


def function(*parameters, result=None):
    return Builder("f", parameters, result=result)


def used_outside(b):
    with b.if_(b.parameter("c")):
        inside = b.unary("neg", b.parameter("x"))
    b.unary("abs", inside)


def read_unset(b):
    b.append(Read(b.fresh(F32), Variable(F32, "sum")))


def half_set(b):
    half = Variable(F32, "half")
    with b.if_(b.parameter("c")):
        b.append(SetVariable(half, Literal(F32, 1.0)))
    b.append(Read(b.fresh(F32), half))


def after_return(b):
    b.append(Return())
    b.unary("neg", b.parameter("x"))


FAULTS = {
    "outside": (used_outside, "outside its block"),
    "unset": (read_unset, r"\$sum is read where it may not be set"),
    "half set": (half_set, r"\$half is read where it may not be set"),
    "after": (after_return, "Nothing may follow a return"),
    "before": (lambda b: b.unary("neg", b.fresh(F32)), "before it is made"),
    "types": (lambda b: b.let(F32, "add", [b.parameter("x"), b.parameter("n")]), "add mixes f32"),
    "float shift": (lambda b: b.binary("shl", b.parameter("x"), 1), "shl does not take f32"),
    "bfloat": (lambda b: b.binary("add", b.parameter("h"), 1), "compute in f32"),
    "parallel": (lambda b: b.append(Parallel(b.fresh(I64), Block())), "top of a kernel"),
    "step": (lambda b: b.for_(0, 4, 0).__enter__(), "step of a loop must be positive"),
    "result": (lambda b: b.return_(b.parameter("x")), "Returns f32, not None"),
    "context": (lambda b: b.fault(1), "parameter called context"),
    "size": (lambda b: b.bitcast(b.parameter("x"), F64), "differ in size"),
    "lane": (lambda b: b.extract(b.parameter("v"), 4), "has no lane 4"),
    "mask": (
        lambda b: b.store(b.parameter("v"), b.parameter("p"), mask=b.parameter("c")),
        "The mask is i1, not i1x4",
    ),
    "fraction": (lambda b: b.binary("add", b.parameter("n"), 0.5), "is a fraction as i64"),
    "a matrix without its pitch": (
        lambda b: b.append(Effect("matrix_load", (b.parameter("p"),), (("register", 0),))),
        "matrix_load has 2 operands",
    ),
    "a matrix at a number": (
        lambda b: matrix_registers.load(b, 0, b.parameter("n"), b.parameter("n")),
        "An operand is i64, not ptr",
    ),
    "a ninth matrix": (lambda b: matrix_registers.zero(b, 8), "There are 8 registers"),
    "matrices of words": (
        lambda b: matrix_registers.add_products(b, "words", 0, 1, 2),
        "no products of words",
    ),
    "unknown": (lambda b: b.let(I32, "frobnicate", []), "Unknown operation 'frobnicate'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    write, expected = FAULTS[name]
    parameters = [("x", F32), ("n", I64), ("c", I1), ("h", BF16), ("p", PTR)]
    b = function(*parameters, ("v", F32.with_lanes(4)))
    write(b)
    with pytest.raises(EngineError, match=expected):
        verify(b.program)


def test_structure():
    with pytest.raises(EngineError, match="needs one top-level parallel, this has 0"):
        verify(Builder("k", kind="kernel").program)
    with pytest.raises(EngineError, match="on every path"):
        verify(function(result=F32).program)


def test_error_shows_the_neighbourhood():
    b = function(("x", F32))
    for _ in range(9):
        b.unary("neg", b.parameter("x"))
    b.unary("abs", b.fresh(F32))
    with pytest.raises(EngineError) as caught:
        verify(b.program)
    shown = str(caught.value).splitlines()
    assert shown[1].strip() == "function f(x %1: f32):"
    assert shown[-1].split() == [">", "%12:", "f32", "=", "abs", "%11"]
    assert len(shown) < 10
