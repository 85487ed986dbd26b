"""exp and its relatives. Errors are the largest seen in tests, in units of the last place.

A power that is 0 is chosen, not computed: where a vector has a result that is too small for a
normal number, processors take a hundred times as long for it, and masked elements are far below.
"""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import SsaValue
from sardonyx.llvm.math_parts import (
    LN2,
    LN2_F32,
    LOG2E,
    clamp_above,
    clamp_below,
    is_single,
    polynomial,
    power_of_two,
    sign_restored,
    two_sum,
)
from sardonyx.llvm.math_tables import EXP2_F32, EXP2_F64, EXP_F32, EXP_F64


def _reduced(b: Builder, x: SsaValue) -> tuple[SsaValue, SsaValue]:
    """`x = n ln 2 + r`, |r| <= ln 2 / 2."""
    high, low = LN2_F32 if is_single(x) else LN2
    n = b.unary("round", x * LOG2E[0])
    r = b.fma(n, -low, b.fma(n, -high, x))
    return n, r


def _power(b: Builder, r: SsaValue) -> SsaValue:
    """`e^r - 1` of a reduced argument."""
    p = polynomial(b, r, EXP_F32 if is_single(r) else EXP_F64)
    return b.fma(p, r * r, r)


def exp(b: Builder, x: SsaValue) -> SsaValue:
    """e^x: float32 1 ulp, float64 1 ulp; 0 and inf where it under- and overflows."""
    return exp_halved(b, x, 0.0)


def exp_halved(b: Builder, x: SsaValue, shift: float) -> SsaValue:
    """`e^x * 2^shift`, without overflow before the result overflows."""
    return _exp_below(b, x, 92.0 if is_single(x) else 712.0, shift)


def _exp_below(b: Builder, x: SsaValue, high: float, shift: float = 0.0) -> SsaValue:
    """`e^x * 2^shift`; of x above `high`, that of `high`."""
    vanishes = x < (-106.0 if is_single(x) else -748.0)
    x = clamp_above(b, x, high)
    n, r = _reduced(b, x)
    p = polynomial(b, r, (1.0, 1.0, *(EXP_F32 if is_single(r) else EXP_F64)))
    return b.select(vanishes, 0.0, b.scale(p, n + shift if shift else n))


def exp2(b: Builder, x: SsaValue) -> SsaValue:
    """2^x: float32 1 ulp, float64 1 ulp."""
    low, high = (-152.0, 130.0) if is_single(x) else (-1077.0, 1026.0)
    vanishes = x < low
    x = clamp_above(b, x, high)
    n = b.unary("round", x)
    p = polynomial(b, x - n, (1.0, *(EXP2_F32 if is_single(x) else EXP2_F64)))
    return b.select(vanishes, 0.0, b.scale(p, n))


def quarter_expm1(b: Builder, x: SsaValue) -> SsaValue:
    """`(e^x - 1) / 4`, without overflow before half the result overflows; x = -0 gives 0."""
    low, high = (-20.0, 89.7) if is_single(x) else (-45.0, 710.7)
    x = clamp_below(b, clamp_above(b, x, high), low)
    n, r = _reduced(b, x)
    quarter = power_of_two(b, n - 2.0)
    return b.fma(quarter, _power(b, r), quarter - 0.25)


def expm1(b: Builder, x: SsaValue) -> SsaValue:
    """e^x - 1: float32 2 ulp, float64 2 ulp, also near 0."""
    tiny = b.unary("abs", x) < 2.0 ** (-26 if is_single(x) else -55)
    return b.select(tiny, x, quarter_expm1(b, x) * 4.0)


def sigmoid(b: Builder, x: SsaValue) -> SsaValue:
    """e^x / (1 + e^x): float32 2 ulp, float64 2 ulp, denormal results included."""
    e = _exp_below(b, x, 30.0 if is_single(x) else 60.0)  # the result is 1 long before
    return e / (e + 1.0)


def tanh(b: Builder, x: SsaValue) -> SsaValue:
    """Hyperbolic tangent: float32 2 ulp, float64 2.5 ulp."""
    # tanh(t) = (e^2t - 1) / (e^2t + 1), and 1 from the limit on
    limit = 10.0 if is_single(x) else 20.0
    twice = clamp_above(b, b.unary("abs", x), limit) * 2.0
    n, r = _reduced(b, twice)
    half = power_of_two(b, n - 1.0)
    h = b.fma(half, _power(b, r), half - 0.5)
    bottom, lost = two_sum(b, h, b.value(x.type, 1.0))
    y = h / bottom
    # take out the rounding of the sum, whose reciprocal is 1 - y
    return sign_restored(b, x, b.fma(-(y * lost), 1.0 - y, y))


def sinh(b: Builder, x: SsaValue) -> SsaValue:
    """Hyperbolic sine: float32 2.5 ulp, float64 3 ulp."""
    h = quarter_expm1(b, b.unary("abs", x)) * 2.0
    # h + h / (2h + 1), where the second term is 1/2 long before 2h overflows
    small = clamp_above(b, h, 2.0**60)
    size = h + small / b.fma(small, 2.0, 1.0)
    return sign_restored(b, x, size)


def cosh(b: Builder, x: SsaValue) -> SsaValue:
    """Hyperbolic cosine: float32 1.5 ulp, float64 1.5 ulp."""
    h = exp_halved(b, b.unary("abs", x), -1.0)
    return h + 0.25 / h
