"""Conversions between number types in whole numbers and fractions: what every cast is held to.

It shares nothing with the package but the records of the types: a number is a `Fraction`, or one of
the floats that none is (infinities, NaN, -0.0).
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType

Number = Fraction | float


class Layout(NamedTuple):
    """Bits of exponent and mantissa, bias, and which codes are special.

    `ieee`: the largest exponent. `fn`: all ones is NaN. `fnuz`: minus zero is NaN. `finite`: none.
    """

    exponent: int
    mantissa: int
    bias: int
    specials: str

    @property
    def largest(self) -> int:
        ones = (1 << (self.exponent + self.mantissa)) - 1
        return ones - {"ieee": 1 << self.mantissa, "fn": 1}.get(self.specials, 0)


LAYOUTS = {
    dtypes.DOUBLE: Layout(11, 52, 1023, "ieee"),
    dtypes.FLOAT: Layout(8, 23, 127, "ieee"),
    dtypes.FLOAT16: Layout(5, 10, 15, "ieee"),
    dtypes.BFLOAT16: Layout(8, 7, 127, "ieee"),
    dtypes.FLOAT8E4M3FN: Layout(4, 3, 7, "fn"),
    dtypes.FLOAT8E4M3FNUZ: Layout(4, 3, 8, "fnuz"),
    dtypes.FLOAT8E5M2: Layout(5, 2, 15, "ieee"),
    dtypes.FLOAT8E5M2FNUZ: Layout(5, 2, 16, "fnuz"),
    dtypes.FLOAT6E2M3: Layout(2, 3, 1, "finite"),
    dtypes.FLOAT6E3M2: Layout(3, 2, 3, "finite"),
    dtypes.FLOAT4E2M1: Layout(2, 1, 1, "finite"),
}


def decoded(layout: Layout, code: int) -> Fraction:
    """The number of a finite code without sign."""
    exponent, rest = code >> layout.mantissa, code & ((1 << layout.mantissa) - 1)
    whole = rest + ((1 << layout.mantissa) if exponent else 0)
    return whole * Fraction(2) ** (max(exponent, 1) - layout.bias - layout.mantissa)


def floor_log2(size: Fraction) -> int:
    """The exponent of the largest power of two that is not above a number."""
    power = size.numerator.bit_length() - size.denominator.bit_length()
    return power if Fraction(2) ** power <= size else power - 1


def nearest_code(layout: Layout, size: Fraction) -> int:
    """The code nearest to a number without sign, ties to even, as if there were no largest."""
    if not size:
        return 0
    exponent = max(floor_log2(size), 1 - layout.bias)
    whole = round(size / Fraction(2) ** (exponent - layout.mantissa))  # halves to even
    return whole + ((exponent + layout.bias - 1) << layout.mantissa)


def _is_nan(x: Number) -> bool:
    return isinstance(x, float) and math.isnan(x)


def _is_negative(x: Number) -> bool:
    return math.copysign(1.0, x) < 0 if isinstance(x, float) else x < 0


def as_float(x: Number, target: DType, saturate: bool = True) -> Number:
    """The number of a float type nearest to another, out of range what the type has for that.

    Only floats of 8 bits and fewer saturate. Types without NaN give 0.
    """
    layout = LAYOUTS[target]
    if _is_nan(x):
        return math.nan if layout.specials != "finite" else 0.0
    limit = decoded(layout, layout.largest)
    size: Number = abs(x)
    saturates = layout.specials == "finite" or (saturate and target.bits == 8)
    rounded: Number
    code = layout.largest + 1 if size == math.inf else nearest_code(layout, Fraction(size))
    if code <= layout.largest:
        rounded = decoded(layout, code)
    elif saturates:
        rounded = limit
    else:
        rounded = math.inf if layout.specials == "ieee" else math.nan
    if _is_negative(x):
        rounded = -rounded if rounded else -0.0
    return 0.0 if rounded == 0 and layout.specials == "fnuz" else rounded


def as_power(x: Number, saturate: bool, direction: str) -> Number:
    """The number of float8e8m0 for another (ONNX: the table of Cast-24)."""
    if _is_nan(x):
        return math.nan
    size: Number = abs(x)
    low, high = Fraction(2) ** -127, Fraction(2) ** 127
    if not saturate and not low <= size <= high:
        return math.nan
    if size == math.inf or size >= high:
        return high
    if size <= low:
        return low
    power = floor_log2(Fraction(size))
    share = size / Fraction(2) ** power
    power += (direction == "up" and share > 1) or (direction == "nearest" and share >= 1.5)
    return Fraction(2) ** min(power, 127)


def as_integer(x: Number, source: DType, target: DType) -> int:
    """Whole numbers wrap, floats are cut and kept between the ends; NaN is 0.

    Types of fewer than 8 bits keep the low bits of a 32-bit number.
    """
    if source.is_float:
        wide = target if target.bits >= 8 else dtypes.INT32
        low, high = ends(wide)
        if _is_nan(x):
            x = Fraction(0)
        whole = (high if x > 0 else low) if abs(x) == math.inf else math.trunc(x)
        x = Fraction(min(max(whole, low), high))
    kept = int(x) & ((1 << target.bits) - 1)
    is_low = target.kind == "i" and kept >> (target.bits - 1)
    return kept - (1 << target.bits) if is_low else kept


def ends(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
    return low, low + (1 << dtype.bits) - 1


def cast(
    x: Number, source: DType, target: DType, saturate: bool = True, direction: str = "up"
) -> Number | int | bool:
    """What Cast makes of a number."""
    if target is dtypes.BOOL:
        return _is_nan(x) or x != 0
    if target.is_integer:
        return as_integer(x, source, target)
    if target is dtypes.FLOAT8E8M0:
        return as_power(x, saturate, direction)
    return as_float(x, target, saturate)


def of_array(array: np.ndarray) -> list[Number]:
    """The numbers of an array."""
    if array.dtype.kind in "iub" or not np.can_cast(array.dtype, np.float64, "unsafe"):
        return [Fraction(int(v)) for v in array.tolist()]
    found: list[Number] = []
    for value in array.astype(np.float64).tolist():  # exact: no float is wider
        plain = math.isfinite(value) and not (value == 0 and _is_negative(value))
        found.append(Fraction(value) if plain else value)
    return found


def array_of(numbers: list[Number | int | bool], dtype: DType) -> np.ndarray:
    """Numbers that a type has, as an array of it."""
    if dtype is dtypes.BOOL or dtype.is_integer:
        return np.array([int(n) for n in numbers], object).astype(dtype.numpy)
    return np.array([float(n) for n in numbers], np.float64).astype(dtype.numpy)


def borders(target: DType) -> list[Fraction]:
    """Numbers without sign at which rounding to a type decides."""
    if target is dtypes.BOOL:
        return [Fraction(1), Fraction(1, 2**20)]
    if target.is_integer:
        low, high = ends(target)
        near = [low - 1, low, high, high + 1, high // 3]
        return [abs(Fraction(n) + Fraction(k, 2)) for n in near for k in (-1, 0, 1)]
    if target is dtypes.FLOAT8E8M0:
        powers = [Fraction(2) ** k for k in (-128, -127, -126, -1, 0, 1, 24, 30, 53, 62, 126, 127)]
        return [p * s for p in powers for s in (1, Fraction(3, 2))]
    layout = LAYOUTS[target]
    first = 1 << layout.mantissa
    one = layout.bias << layout.mantissa
    codes = [0, 1, 2, first - 1, first, one, one + 1, layout.largest - 1, layout.largest]
    for power in (23, 30, 61):  # where whole numbers decide
        code = one + (power << layout.mantissa)
        codes += [c for c in (code, code + 1) if c <= layout.largest]
    found = []
    for code in codes:
        here = decoded(layout, code)
        following = Layout(*layout[:3], "finite")
        found += [here, (here + decoded(following, code + 1)) / 2]
    return found


@functools.cache
def numbers(source: DType, target: DType) -> np.ndarray:
    """Numbers of one type about the borders of another: ties, and just beside them."""
    shares = [Fraction(0), *(Fraction(s, 2**k) for s in (-1, 1) for k in (12, 40))]
    wanted = [n * (1 + share) for n in borders(target) for share in shares]
    if source is dtypes.BOOL:
        return np.array([False, True])
    if source.is_integer:
        low, high = ends(source)
        whole = {round(n) + k for n in wanted for k in (-1, 0, 1)}
        signed = whole | {-n for n in whole} | {low, high}
        return array_of(sorted(n for n in signed if low <= n <= high), source)
    if source is dtypes.FLOAT8E8M0 or source.bits < 16:
        count = 1 << source.bits
        codes = {*range(0, count, 5), *(count // 2 + k for k in (-2, -1, 0, 1)), count - 1}
        return np.array(sorted(codes), np.uint8).view(source.numpy)
    made = {as_float(n, source) for n in wanted}
    positive = sorted(n for n in made if n and n != math.inf)
    specials: list[Number] = [0.0, -0.0, math.inf, -math.inf, math.nan]
    return array_of([*positive, *(-n for n in positive), *specials], source)
