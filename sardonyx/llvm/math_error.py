"""The error function, and remainders of floats."""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import SsaValue
from sardonyx.kernel.language.types import F32, F64, I64
from sardonyx.llvm import math_tables as tables
from sardonyx.llvm.math_exponential import exp
from sardonyx.llvm.math_parts import (
    bits_type,
    clamp_above,
    is_single,
    polynomial,
    sign_restored,
)


def erf(b: Builder, x: SsaValue, *, gpu: bool = False) -> SsaValue:
    """Error function: float32 1.5 ulp, float64 1.5 ulp; two polynomials and a select.

    `gpu`: powers of two in float32 are the hardware's. Their 2 ulp are of a number below 0.16 that
    is taken from 1.
    """
    a = b.unary("abs", x)
    square = x * x
    if is_single(x):
        near = b.fma(a, polynomial(b, square, tables.ERF_F32), a)
        exponent = polynomial(b, clamp_above(b, a, 4.0), tables.ERFC_F32)
        if gpu:
            far = 1.0 - b.let(x.type, "power_of_two", [exponent])
        else:
            n = b.unary("round", exponent)
            p = polynomial(b, exponent - n, (1.0, *tables.EXP2_F32))
            raw = b.bitcast(n + (1.5 * 2.0**23 + 127), bits_type(x)) << 23
            far = b.fma(-p, b.bitcast(raw, x.type), 1.0)
    else:
        near = b.fma(a, polynomial(b, square, tables.ERF_F64), a)
        bounded = clamp_above(b, a, 6.0)
        t = (bounded - 2.5) / (bounded + 2.5)
        far = b.fma(-polynomial(b, t, tables.ERFC_F64), exp(b, -(bounded * bounded)), 1.0)
    return sign_restored(b, x, b.select(a < 1.0, near, far))


def erfc(b: Builder, x: SsaValue, *, gpu: bool = False) -> SsaValue:
    """1 - erf(x): float32 within 7e-8, and within 4e-6 of itself up to 4; float64 within 3e-16.

    `gpu`: see `erf`; so is what it is taken from.
    """
    if gpu or not is_single(x):
        return 1.0 - erf(b, x, gpu=gpu)
    a = clamp_above(b, b.unary("abs", x), 16.0)
    # Even and odd powers apart, so that less waits for itself.
    square = a * a
    even = polynomial(b, square, tables.ERFC_FROM_0_F32[1::2]) * square
    odd = polynomial(b, square, tables.ERFC_FROM_0_F32[::2])
    exponent = b.fma(odd, a, even)
    vanishes = exponent < -152.0
    n = b.unary("round", exponent)
    power = b.scale(polynomial(b, exponent - n, (1.0, *tables.EXP2_F32)), n)
    upper = b.select(vanishes, 0.0, power)
    return b.select(x < 0.0, 2.0 - upper, upper)


def remainder(b: Builder, x: SsaValue, y: SsaValue) -> SsaValue:
    """C's fmod, exact: the sign of `x`; NaN for y = 0 or infinite x."""
    if is_single(x):
        wide = F64.with_lanes(x.type.lanes)
        result = remainder(b, b.convert(x, wide), b.convert(y, wide))
        return b.convert(result, F32)
    a, d = b.unary("abs", x), b.unary("abs", y)
    valid = (d > 0.0) & (a < float("inf"))
    left = b.variable(a)

    def unfinished() -> SsaValue:
        more = (left.get() >= d) & valid
        return b.reduce("reduce_or", more) if more.type.lanes > 1 else more

    with b.while_(unfinished):
        rest = left.get()
        active = (rest >= d) & valid
        # subtract q * d * 2^k, q below 2^51: exact, since no bit falls below those of d * 2^k
        gap = clamp_above(
            b, b.value(x.type, -50.0) + (_exponent(b, rest) - _exponent(b, d)), 2000.0
        )
        k = b.select(gap > 0.0, gap, 0.0)
        step = b.scale(d, k)
        taken = b.fma(-b.unary("trunc", rest / step), step, rest)
        taken = b.select(taken < 0.0, taken + step, taken)
        left.set(b.select(active, taken, rest))
    result = b.select(valid | b.ne(x, x), left.get(), float("nan"))
    result = b.select(b.ne(y, y), y, result)
    return sign_restored(b, x, result)


def _exponent(b: Builder, x: SsaValue) -> SsaValue:
    """The exponent of a positive float64, denormals included, as a float."""
    tiny = x < 2.0**-1022
    raw = b.bitcast(b.select(tiny, x * 2.0**54, x), I64.with_lanes(x.type.lanes))
    biased = b.bitcast(((raw >> 52) & 0x7FF) + 0x4338000000000000, x.type) - 1.5 * 2.0**52
    return biased - b.select(tiny, 54.0, b.value(x.type, 0.0))
