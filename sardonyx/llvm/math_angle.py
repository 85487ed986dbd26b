"""Reducing an angle to a quadrant and a rest: Cody and Waite's way, Payne and Hanek's beyond 2^28.

An angle is float64 here. Up to 2^28 the multiple of pi/2 is subtracted in three parts with fma,
which leaves less than 1 ulp of the rest. Lanes above that, and they are rare, go one by one through
a function that multiplies by 192 of the bits of 2/pi in integers: right for every float64.
"""

from __future__ import annotations

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Program, SsaValue
from sardonyx.kernel.language.types import F64, I64, PTR, U32, U64
from sardonyx.llvm.math_parts import rounded_bits

#: Name of the function for large angles; a module that needs it contains it.
REDUCE = "sardonyx.reduce_angle"
_LIMIT = 2.0**28
_QUARTER = tuple(
    float.fromhex(part)
    for part in ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54", "-0x1.f1976b7ed8fbcp-110")
)
# 2/pi in words of 32 bits, behind one word of zeros.
_TWO_OVER_PI = (
    0x00000000, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
    0xDEBBC561, 0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E, 0xE88235F5,
    0x2EBB4484, 0xE99C7026, 0xB45F7E41, 0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B, 0x1FF897FF,
    0xDE05980F, 0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF, 0x27CB09B7, 0x4F463F66, 0x9E5FEA2D, 0x7527BAC7,
    0xEBE5F17B, 0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1, 0x1F8D5D08, 0x56033046, 0xFC7B6BAB, 0xF0CFBC20,
)  # fmt: skip


def reduce_angle(b: Builder, x: SsaValue) -> tuple[SsaValue, SsaValue]:
    """Quadrant (i64, its low two bits count) and rest, |rest| <= pi/4, of a float64 angle."""
    n = b.unary("round", x * (1.0 / _QUARTER[0]))
    rest = x
    for part in _QUARTER:
        rest = b.fma(n, -part, rest)
    far = b.unary("abs", x) > _LIMIT
    far = far & (b.unary("abs", x) < float("inf"))
    quadrant, angle = b.variable(rounded_bits(b, n)), b.variable(rest)
    lanes = x.type.lanes
    with b.if_(far if lanes == 1 else b.reduce("reduce_or", far)):
        angles, rests = b.local(F64, lanes), b.local(F64, lanes)
        quadrants = b.local(I64, lanes)
        b.store(x, angles)
        b.store(angle.get(), rests)
        b.store(quadrant.get(), quadrants)
        with b.for_(0, lanes) as lane:
            one = b.load(F64, angles, lane)
            size = b.unary("abs", one)
            with b.if_((size > _LIMIT) & (size < float("inf"))):
                found = b.call(REDUCE, [one, b.offset(rests, lane, F64)], I64)
                b.store(found, quadrants, lane)
        angle.set(b.load(x.type, rests))
        quadrant.set(b.load(I64.with_lanes(lanes), quadrants))
    return quadrant.get(), angle.get()


def reduction_program() -> Program:
    """`i64 reduce(f64 angle, ptr rest)`: the quadrant of a finite angle above 1."""
    b = Builder(REDUCE, [("angle", F64), ("rest", PTR)], result=I64, cold=True)
    angle, rest = b.parameter("angle"), b.parameter("rest")
    raw = b.bitcast(b.unary("abs", angle), U64)
    mantissa = (raw & (2**52 - 1)) | 2**52
    # |angle| = mantissa * 2^exponent; bits of 2/pi that give multiples of 4 are left out
    exponent = b.bitcast(raw >> 52, I64) - 1075
    first = exponent + 30
    word, shift = first >> 5, b.bitcast(first & 31, U64)
    table = b.table(U32, _TWO_OVER_PI)
    raw_words = [_wide(b, b.load(U32, table, word + i)) for i in range(7)]
    window = [
        ((((high << 32) | low) << shift) >> 32) & 0xFFFFFFFF
        for high, low in zip(raw_words, raw_words[1:], strict=False)
    ]
    product = _multiply(b, mantissa, window[::-1])
    high, middle, low = ((product[i + 1] << 32) | product[i] for i in (4, 2, 0))
    quadrant = b.bitcast(high >> 62, I64)
    fraction = [(high << 2) | (middle >> 62), (middle << 2) | (low >> 62)]
    upper = fraction[0] >= 1 << 63
    fraction = [b.select(upper, b.unary("not", part), part) for part in fraction]
    quadrant = quadrant + b.select(upper, 1, b.value(I64, 0))
    top, bottom = (b.convert(part, F64) for part in fraction)
    size = b.fma(bottom, 2.0**-128, top * 2.0**-64) * _QUARTER[0]
    size = b.select(upper, -size, size)
    minus = angle < 0.0
    b.store(b.select(minus, -size, size), rest)
    b.return_(b.select(minus, -quadrant, quadrant))
    return b.program


def _wide(b: Builder, x: SsaValue) -> SsaValue:
    return b.convert(x, U64)


def _multiply(b: Builder, mantissa: SsaValue, words: list[SsaValue]) -> list[SsaValue]:
    """The low 192 bits of the product, in words of 32 bits, lowest first."""
    total: list[SsaValue] = []
    carry: SsaValue | int = 0
    for word in words:
        step = word * (mantissa & 0xFFFFFFFF) + carry
        total.append(step & 0xFFFFFFFF)
        carry = step >> 32
    carry = 0
    for i, word in enumerate(words[:-1]):
        step = word * (mantissa >> 32) + total[i + 1] + carry
        total[i + 1] = step & 0xFFFFFFFF
        carry = step >> 32
    return total
