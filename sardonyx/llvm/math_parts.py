"""Pieces that the vector math is made of: polynomials, powers of two, pairs of numbers."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, SsaValue
from sardonyx.kernel.language.types import I32, I64, Type

#: A number as an unevaluated sum of two, the second below the rounding of the first.
Pair = tuple[SsaValue, SsaValue]

LN2 = (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56"))
#: The first part has 15 trailing zeros in float32, so that its product with an exponent is exact.
LN2_F32 = (0.693145751953125, 1.42860682030941723212e-6)
LOG2E = (float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56"))


def is_single(x: Operand) -> bool:
    """Whether `x` is float32 (else float64)."""
    return x.type.scalar == "f32"


def bits_type(x: Operand) -> Type:
    """Signed integers of the width and number of lanes of `x`."""
    return (I32 if is_single(x) else I64).with_lanes(x.type.lanes)


def polynomial(b: Builder, x: SsaValue, coefficients: Sequence[float]) -> SsaValue:
    """Horner's scheme, lowest power first."""
    total: Operand = b.constant(x.type, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = b.fma(total, x, coefficient)
    return total  # type: ignore[return-value]  # there is a term


def clamp_above(b: Builder, x: SsaValue, limit: float) -> SsaValue:
    """The smaller of the two; NaN stays."""
    return b.select(x > limit, limit, x)


def clamp_below(b: Builder, x: SsaValue, limit: float) -> SsaValue:
    """The larger of the two; NaN stays."""
    return b.select(x < limit, limit, x)


def rounded_bits(b: Builder, n: SsaValue) -> SsaValue:
    """The low bits of an integral float, |n| < 2^22 (float32) or 2^51, as an integer."""
    shift = 1.5 * 2.0 ** (23 if is_single(n) else 52)
    return b.bitcast(n + shift, bits_type(n))


def power_of_two(b: Builder, n: SsaValue) -> SsaValue:
    """`2^n` of integral n in [-126, 127], or [-1022, 1023]."""
    bits, bias = (23, 127) if is_single(n) else (52, 1023)
    raw = b.bitcast(n + (1.5 * 2.0**bits + bias), bits_type(n))
    return b.bitcast(raw << bits, n.type)


def two_sum(b: Builder, x: SsaValue, y: SsaValue) -> Pair:
    """`x + y` and its rounding error, exactly."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def quick_two_sum(b: Builder, x: SsaValue, y: SsaValue) -> Pair:
    """`two_sum` where |x| >= |y|."""
    total = x + y
    return total, y - (total - x)


def two_product(b: Builder, x: SsaValue, y: SsaValue) -> Pair:
    """`x * y` and its rounding error, exactly."""
    product = x * y
    return product, b.fma(x, y, -product)


def pair_product(b: Builder, x: Pair, y: Pair) -> Pair:
    """The product of two pairs."""
    high, low = two_product(b, x[0], y[0])
    low = b.fma(x[0], y[1], b.fma(x[1], y[0], low))
    return quick_two_sum(b, high, low)


def pair_sum(b: Builder, x: Pair, y: Pair) -> Pair:
    """The sum of two pairs, accurate unless they nearly cancel."""
    high, low = two_sum(b, x[0], y[0])
    return quick_two_sum(b, high, low + (x[1] + y[1]))


def constant_pair(b: Builder, like: SsaValue, pair: tuple[float, float]) -> Pair:
    """A pair of literals, as values that operators accept."""
    return b.value(like.type, pair[0]), b.value(like.type, pair[1])


def sign_restored(b: Builder, x: SsaValue, size: SsaValue) -> SsaValue:
    """`size` with the sign of `x`."""
    return b.binary("copysign", size, x)
