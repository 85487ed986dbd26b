"""Logarithms and what is made of them. Errors in units of the last place, as tests see them."""

from __future__ import annotations

import math

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import SsaValue
from sardonyx.kernel.language.types import F64
from sardonyx.llvm.math_exponential import exp2
from sardonyx.llvm.math_parts import (
    LN2,
    LN2_F32,
    LOG2E,
    Pair,
    bits_type,
    clamp_above,
    clamp_below,
    constant_pair,
    is_single,
    pair_product,
    pair_sum,
    polynomial,
    quick_two_sum,
    sign_restored,
    two_sum,
)
from sardonyx.llvm.math_tables import EXP2_F64, LOG_F32, LOG_F64, POW_F64

_INF, _NAN = math.inf, math.nan


def _split(b: Builder, x: SsaValue) -> tuple[SsaValue, SsaValue]:
    """Positive finite `x = 2^e (1 + f)`, `1 + f` between sqrt(1/2) and sqrt(2); e is a float."""
    single, word = is_single(x), bits_type(x)
    bits, bias = (23, 127) if single else (52, 1023)
    tiny = x < 2.0 ** (1 - bias)
    scaled = b.select(tiny, x * 2.0 ** (bits + 2), x)
    raw = b.bitcast(scaled, word)
    root = 0x3F3504F3 if single else 0x3FE6A09E667F3BCD
    # Subtracting the bits of sqrt(1/2) leaves the exponent, floored, in the upper bits.
    exponent = (raw - root) >> bits
    mantissa = b.bitcast(raw - (exponent << bits), x.type)
    e = _small_to_float(b, exponent, x)
    e = e - b.select(tiny, float(bits + 2), b.value(x.type, 0.0))
    return e, mantissa - 1.0


def _small_to_float(b: Builder, n: SsaValue, like: SsaValue) -> SsaValue:
    """Integers below 2^20 in size as floats, by bits: AVX2 cannot convert 64-bit integers."""
    if is_single(like):
        return b.convert(n, like.type)
    magic = 0x4338000000000000
    return b.bitcast(n + magic, like.type) - 1.5 * 2.0**52


def _specials(b: Builder, x: SsaValue, result: SsaValue) -> SsaValue:
    """log of 0, of inf, of negative numbers and of NaN."""
    result = b.select(x < _INF, result, x)
    result = b.select(x > 0.0, result, b.select(b.eq(x, 0.0), -_INF, b.value(x.type, _NAN)))
    return result


def _log_of(b: Builder, e: SsaValue, f: SsaValue, extra: SsaValue | None = None) -> SsaValue:
    """`e ln 2 + log(1 + f) + extra`, `extra` tiny."""
    square = f * f
    if is_single(f):
        high, low = LN2_F32
        tail = polynomial(b, f, LOG_F32) * f
        tail = b.fma(tail, square, e * low)
        if extra is not None:
            tail = tail + extra
        tail = b.fma(square, -0.5, tail)
        return b.fma(e, high, f + tail)
    high, low = _LN2_HIGH
    s = f / (f + 2.0)
    z = s * s
    rest = polynomial(b, z, LOG_F64) * z
    half = square * 0.5
    tail = b.fma(s, half + rest, e * low)
    if extra is not None:
        tail = tail + extra
    return b.fma(e, high, f - (half - tail))


#: ln 2 whose first part times an exponent is exact in float64.
_LN2_HIGH = (float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33"))


def log(b: Builder, x: SsaValue) -> SsaValue:
    """Natural logarithm: float32 1 ulp, float64 1 ulp; -inf at 0, NaN below."""
    e, f = _split(b, x)
    return _specials(b, x, _log_of(b, e, f))


def log2(b: Builder, x: SsaValue) -> SsaValue:
    """Logarithm to base 2: float32 1 ulp, float64 1 ulp; exact for powers of two."""
    e, f = _split(b, x)
    square = f * f
    if is_single(f):
        tail = polynomial(b, f, LOG_F32) * f * square
        constant = (1.44269502162933349609375, 1.92596299112661746887e-8)
    else:
        s = f / (f + 2.0)
        tail = (square * 0.5 + polynomial(b, s * s, LOG_F64) * (s * s)) * s
        constant = LOG2E
    # f - f^2/2 with its rounding error, then times log2(e) in two parts
    half = square * 0.5
    error = b.fma(f * 0.5, f, -half)
    high, low = quick_two_sum(b, f, -half)
    high, low = quick_two_sum(b, high, low + (tail - error))
    product = high * constant[0]
    rest = b.fma(high, constant[0], -product)
    rest = b.fma(low, constant[0], b.fma(high, constant[1], rest))
    total, error = two_sum(b, e, product)
    return _specials(b, x, total + (error + rest))


def log1p(b: Builder, x: SsaValue) -> SsaValue:
    """log(1 + x): float32 1 ulp, float64 1 ulp, also near 0."""
    u = x + 1.0
    e, f = _split(b, u)
    # What adding 1 has rounded away, relative to u.
    small = b.unary("abs", x) < 1.0
    lost = b.select(small, x - (u - 1.0), 1.0 - (u - x))
    result = _specials(b, u, _log_of(b, e, f, lost / u))
    return b.select(b.unary("abs", x) < 2.0 ** (-24 if is_single(x) else -53), x, result)


def asinh(b: Builder, x: SsaValue) -> SsaValue:
    """Inverse hyperbolic sine: float32 2 ulp, float64 2 ulp."""
    a = b.unary("abs", x)
    big = a > (2.0**14 if is_single(x) else 2.0**28)
    square = a * a
    small = a + square / (b.unary("sqrt", square + 1.0) + 1.0)
    result = log1p(b, b.select(big, a - 1.0, small))  # log(2a) = log1p(a - 1) + log 2
    result = result + b.select(big, LN2[0], b.value(x.type, 0.0))
    return sign_restored(b, x, result)


def acosh(b: Builder, x: SsaValue) -> SsaValue:
    """Inverse hyperbolic cosine: float32 2 ulp, float64 3 ulp; NaN below 1."""
    t = x - 1.0
    big = x > (2.0**14 if is_single(x) else 2.0**28)
    small = t + b.unary("sqrt", b.fma(t, t, t * 2.0))
    result = log1p(b, b.select(big, t, small))  # log(2x) = log1p(x - 1) + log 2
    result = result + b.select(big, LN2[0], b.value(x.type, 0.0))
    return b.select(x < 1.0, _NAN, result)


def atanh(b: Builder, x: SsaValue) -> SsaValue:
    """Inverse hyperbolic tangent: float32 2 ulp, float64 2 ulp; inf at 1, NaN above."""
    a = b.unary("abs", x)
    return sign_restored(b, x, log1p(b, a * 2.0 / (1.0 - a)) * 0.5)


def power(b: Builder, x: SsaValue, y: SsaValue) -> SsaValue:
    """x^y as C's pow defines it: float32 1 ulp (in float64 inside), float64 1.5 ulp."""
    a = b.unary("abs", x)
    if is_single(x):
        wide = (
            b.convert(a, F64.with_lanes(x.type.lanes)),
            b.convert(y, F64.with_lanes(x.type.lanes)),
        )
        e, f = _split(b, wide[0])
        s = f / (f + 2.0)
        logarithm = _log2_plain(b, e, f, s)
        product = logarithm * clamp_below(b, clamp_above(b, wide[1], 2.0**65), -(2.0**65))
        size: SsaValue = b.convert(exp2(b, product), x.type)
    else:
        size = _power_of_pair(b, _log2_pair(b, a), y)
    return _power_specials(b, x, y, a, size)


def _log2_plain(b: Builder, e: SsaValue, f: SsaValue, s: SsaValue) -> SsaValue:
    z = s * s
    tail = b.fma(s, b.fma(f * f, 0.5, polynomial(b, z, LOG_F64) * z), f * f * -0.5)
    return b.fma(f + tail, LOG2E[0], e)


def _log2_pair(b: Builder, a: SsaValue) -> Pair:
    """log2 of a positive number to about 2^-65."""
    e, f = _split(b, a)
    bottom, lost = two_sum(b, b.value(a.type, 2.0), f)
    high = f / bottom
    low = b.fma(-high, lost, b.fma(-high, bottom, f)) / bottom
    s = quick_two_sum(b, high, low)
    square = pair_product(b, s, s)
    rest = polynomial(b, square[0], POW_F64) * square[0]
    third = (float.fromhex("0x1.5555555555555p-1"), float.fromhex("0x1.5555555555555p-55"))
    series = pair_sum(b, constant_pair(b, a, third), (rest, b.value(a.type, 0.0)))
    series = pair_product(b, series, square)
    series = pair_sum(b, constant_pair(b, a, (2.0, 0.0)), series)
    natural = pair_product(b, s, series)
    product = pair_product(b, natural, constant_pair(b, a, LOG2E))
    return pair_sum(b, (e, b.value(a.type, 0.0)), product)


def _power_of_pair(b: Builder, logarithm: Pair, y: SsaValue) -> SsaValue:
    """2^(logarithm * y)."""
    y = clamp_below(b, clamp_above(b, y, 2.0**65), -(2.0**65))
    high = logarithm[0] * y
    low = b.fma(logarithm[1], y, b.fma(logarithm[0], y, -high))
    inside = b.unary("abs", high) < 1100.0
    low = b.select(inside, low, 0.0)
    high = clamp_below(b, clamp_above(b, high, 1100.0), -1100.0)
    n = b.unary("round", high)
    p = polynomial(b, (high - n) + low, (1.0, *EXP2_F64))
    return b.scale(p, n)


def _power_specials(b: Builder, x: SsaValue, y: SsaValue, a: SsaValue, size: SsaValue) -> SsaValue:
    zero, one = b.value(x.type, 0.0), b.value(x.type, 1.0)
    edge = b.eq(a, 0.0) | b.eq(a, _INF)
    grows = b.eq(a, _INF) ^ (y < 0.0)
    size = b.select(edge, b.select(grows, _INF, zero), size)
    whole = b.eq(b.unary("trunc", y), y)
    half = y * 0.5
    odd = whole & b.ne(b.unary("trunc", half), half)
    size = b.select(odd, b.binary("copysign", size, x), size)
    forbidden = (x < 0.0) & (a < _INF) & b.unary("not", whole)
    size = b.select(forbidden, _NAN, size)
    size = b.select(b.ne(x, x) | b.ne(y, y), _NAN, size)
    minus = b.eq(x, -1.0) & b.eq(b.unary("abs", y), _INF)
    return b.select(b.eq(x, 1.0) | b.eq(y, 0.0) | minus, one, size)
