"""Sine, cosine, tangent and their inverses. Errors in units of the last place, as tests see them.

float32 goes through float64 inside, with shorter polynomials: large angles are reduced rightly, and
results are within 1 ulp.
"""

from __future__ import annotations

import math

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import SsaValue
from sardonyx.kernel.language.types import F32, F64
from sardonyx.llvm import math_tables as tables
from sardonyx.llvm.math_angle import reduce_angle
from sardonyx.llvm.math_parts import is_single, polynomial, sign_restored

_HALF_PI = (math.pi / 2, float.fromhex("0x1.1a62633145c07p-54"))


def _wide(b: Builder, x: SsaValue) -> SsaValue:
    return b.convert(x, F64)


def _narrow(b: Builder, x: SsaValue) -> SsaValue:
    return b.convert(x, F32)


def _sine_and_cosine(b: Builder, r: SsaValue, single: bool) -> tuple[SsaValue, SsaValue]:
    """Of a rest, |r| <= pi/4."""
    z = r * r
    sine = polynomial(b, z, tables.SIN_F32 if single else tables.SIN_F64)
    cosine = polynomial(b, z, tables.COS_F32 if single else tables.COS_F64)
    half = b.fma(z, -0.5, 1.0)
    # 1 - z/2 rounds; what it lost goes in with the small terms
    lost = b.fma(z, -0.5, 1.0 - half)
    return b.fma(sine, r * z, r), half + b.fma(cosine, z * z, lost)


def _circular(b: Builder, x: SsaValue, quarters: int) -> SsaValue:
    """sin(x + quarters * pi/2)."""
    single = is_single(x)
    angle = _wide(b, x) if single else x
    quadrant, rest = reduce_angle(b, angle)
    sine, cosine = _sine_and_cosine(b, rest, single)
    if quarters:
        quadrant = quadrant + quarters
    result = b.select(b.ne(quadrant & 1, 0), cosine, sine)
    result = b.select(b.ne(quadrant & 2, 0), -result, result)
    if not quarters:
        result = b.select(b.eq(angle, 0.0), angle, result)
    return _narrow(b, result) if single else result


def sin(b: Builder, x: SsaValue) -> SsaValue:
    """Sine: float32 1 ulp, float64 3 ulp, for all angles; NaN at infinity."""
    return _circular(b, x, 0)


def cos(b: Builder, x: SsaValue) -> SsaValue:
    """Cosine: float32 1 ulp, float64 3 ulp, for all angles; NaN at infinity."""
    return _circular(b, x, 1)


def tan(b: Builder, x: SsaValue) -> SsaValue:
    """Tangent: float32 1 ulp, float64 4 ulp, for all angles; NaN at infinity."""
    single = is_single(x)
    angle = _wide(b, x) if single else x
    quadrant, rest = reduce_angle(b, angle)
    sine, cosine = _sine_and_cosine(b, rest, single)
    odd = b.ne(quadrant & 1, 0)
    result = b.select(odd, -cosine, sine) / b.select(odd, sine, cosine)
    result = b.select(b.eq(angle, 0.0), angle, result)
    return _narrow(b, result) if single else result


def _arc(b: Builder, x: SsaValue, single: bool) -> tuple[SsaValue, SsaValue, SsaValue, SsaValue]:
    """Parts of asin and acos: |x| > 1/2, s, its correction, and `asin(s) - s`."""
    a = b.unary("abs", x)
    big = a > 0.5
    folded = b.fma(a, -0.5, 0.5)
    z = b.select(big, folded, a * a)
    s = b.select(big, b.unary("sqrt", folded), a)
    rest = polynomial(b, z, tables.ASIN_F32 if single else tables.ASIN_F64) * z * s
    # the root's rounding error, over 2 s
    lost = b.fma(-s, s, folded) / (s + s)
    lost = b.select(big & (s > 0.0), lost, b.value(x.type, 0.0))
    return big, s, lost, rest


def asin(b: Builder, x: SsaValue) -> SsaValue:
    """Inverse sine: float32 1 ulp, float64 1.5 ulp; NaN outside [-1, 1]."""
    single = is_single(x)
    if single:
        return _narrow(b, _asin(b, _wide(b, x), True))
    return _asin(b, x, False)


def _asin(b: Builder, x: SsaValue, single: bool) -> SsaValue:
    big, s, lost, rest = _arc(b, x, single)
    far = _HALF_PI[0] - (s * 2.0 - (_HALF_PI[1] - (rest + lost) * 2.0))
    return sign_restored(b, x, b.select(big, far, s + rest))


def acos(b: Builder, x: SsaValue) -> SsaValue:
    """Inverse cosine: float32 1 ulp, float64 1 ulp; NaN outside [-1, 1]."""
    single = is_single(x)
    if single:
        return _narrow(b, _acos(b, _wide(b, x), True))
    return _acos(b, x, False)


def _acos(b: Builder, x: SsaValue, single: bool) -> SsaValue:
    big, s, lost, rest = _arc(b, x, single)
    minus = x < 0.0
    near = _HALF_PI[0] - (sign_restored(b, x, s) - (_HALF_PI[1] - sign_restored(b, x, rest)))
    right = (s + (rest + lost)) * 2.0
    left = 2 * _HALF_PI[0] - (s * 2.0 - (2 * _HALF_PI[1] - (rest + lost) * 2.0))
    return b.select(big, b.select(minus, left, right), near)


def _octants(b: Builder, top: SsaValue, bottom: SsaValue, single: bool) -> SsaValue:
    """atan(top / bottom) of numbers that are not negative."""
    zero = b.value(top.type, 0.0)
    steep = top > bottom * 2.414213562373095
    middle = top > bottom * 0.4142135623730951
    numerator = b.select(steep, -bottom, b.select(middle, top - bottom, top))
    denominator = b.select(steep, top, b.select(middle, top + bottom, bottom))
    t = numerator / denominator
    z = t * t
    rest = polynomial(b, z, tables.ATAN_F32 if single else tables.ATAN_F64) * z * t
    high = b.select(steep, _HALF_PI[0], b.select(middle, _HALF_PI[0] / 2, zero))
    low = b.select(steep, _HALF_PI[1], b.select(middle, _HALF_PI[1] / 2, zero))
    return high + (t + (rest + low))


def atan(b: Builder, x: SsaValue) -> SsaValue:
    """Inverse tangent: float32 1 ulp, float64 1 ulp."""
    single = is_single(x)
    wide = _wide(b, x) if single else x
    size = _octants(b, b.unary("abs", wide), b.value(wide.type, 1.0), single)
    result = sign_restored(b, wide, size)
    return _narrow(b, result) if single else result


def atan2(b: Builder, y: SsaValue, x: SsaValue) -> SsaValue:
    """The angle of (x, y): float32 1 ulp, float64 2 ulp; zeros and infinities as in C."""
    single = is_single(x)
    if single:
        y, x = _wide(b, y), _wide(b, x)
    top, bottom = b.unary("abs", y), b.unary("abs", x)
    one, infinity = b.value(x.type, 1.0), math.inf
    both = b.eq(top, infinity) & b.eq(bottom, infinity)
    top, bottom = b.select(both, one, top), b.select(both, one, bottom)
    # the sum of the two must not overflow
    large = b.max(top, bottom) > 2.0**1000
    shrink = b.select(large, 2.0**-100, one)
    top, bottom = top * shrink, bottom * shrink
    bottom = b.select(b.eq(top, 0.0) & b.eq(bottom, 0.0), one, bottom)
    size = _octants(b, top, bottom, single)
    mirrored = 2 * _HALF_PI[0] - (size - 2 * _HALF_PI[1])
    left = b.binary("copysign", one, x) < 0.0
    result = sign_restored(b, y, b.select(left, mirrored, size))
    result = b.select(b.ne(x, x) | b.ne(y, y), math.nan, result)
    return _narrow(b, result) if single else result
