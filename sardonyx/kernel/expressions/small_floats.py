"""Floats of 8 bits and fewer: codes in memory and in registers, f32 while computing.

Whole-number operations on lanes, no tables: exponent and mantissa of a code are moved into place,
and what is subnormal goes through a conversion or an addition that rounds at the right bit.
"""

from __future__ import annotations

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.records import dataclass
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.types import F32, F64, I32, U8, U32, Type
from sardonyx.tensor.arithmetic import to_narrow
from sardonyx.tensor.rounding import NEAREST, UNSATURATED, Rounding

_INFINITE = 0x7F800000
_QUIET = 0x7FC00000


@dataclass(frozen=True, slots=True)
class Format:
    """How a signed float of few bits is laid out.

    Attributes:
        exponent: Bits of the exponent.
        mantissa: Bits of the mantissa.
        bias: What is added to the exponent.
        specials: `ieee`: infinities and NaN have the largest exponent. `fn`: all ones is NaN, there
            is no infinity. `fnuz`: so is minus zero, alone. `finite`: neither exists.
    """

    exponent: int
    mantissa: int
    bias: int
    specials: str

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def infinity(self) -> int:
        """The code of the largest exponent with an empty mantissa."""
        return self.sign - (1 << self.mantissa)

    @property
    def largest(self) -> int:
        """The code of the largest finite number."""
        if self.specials == "ieee":
            return self.infinity - 1
        return self.sign - 2 if self.specials == "fn" else self.sign - 1

    @property
    def nan(self) -> int:
        """What NaN becomes; of a `finite` format, as in ml_dtypes, a zero of the other sign."""
        if self.specials == "ieee":
            return self.infinity | (1 << (self.mantissa - 1))
        return self.sign - 1 if self.specials == "fn" else self.sign

    def beyond(self, saturate: bool) -> int:
        """What a number too large becomes."""
        if saturate or self.specials == "finite":
            return self.largest
        return self.infinity if self.specials == "ieee" else self.nan


FORMATS = {
    dtypes.FLOAT8E4M3FN: Format(4, 3, 7, "fn"),
    dtypes.FLOAT8E4M3FNUZ: Format(4, 3, 8, "fnuz"),
    dtypes.FLOAT8E5M2: Format(5, 2, 15, "ieee"),
    dtypes.FLOAT8E5M2FNUZ: Format(5, 2, 16, "fnuz"),
    dtypes.FLOAT6E2M3: Format(2, 3, 1, "finite"),
    dtypes.FLOAT6E3M2: Format(3, 2, 3, "finite"),
    dtypes.FLOAT4E2M1: Format(2, 1, 1, "finite"),
}


def constant_code(b: Builder, value: float, dtype: DType) -> Literal:
    """The code of a number."""
    code = to_narrow(np.array([value]), dtype, UNSATURATED if np.isinf(value) else NEAREST)
    return b.constant(U8, int(code.view(np.uint8)[0]))


def decode(b: Builder, code: Operand, dtype: DType) -> Operand:
    """The f32 that a code stands for; exact."""
    if isinstance(code, Literal):
        number = np.array(code.value, np.uint8).view(dtype.numpy)
        return b.constant(F32.with_lanes(code.type.lanes), float(number))
    word = b.convert(code, U32)
    if dtype is dtypes.FLOAT8E8M0:
        return _decode_power(b, word)
    form = FORMATS[dtype]
    size = word & (form.sign - 1)
    normal = size << (23 - form.mantissa)
    normal = normal + ((127 - form.bias) << 23)
    small = b.convert(b.convert(size, I32), F32)
    small = small * 2.0 ** (1 - form.bias - form.mantissa)
    is_small = size < 1 << form.mantissa
    bits = b.select(is_small, _bits(b, small), normal)
    if form.specials == "ieee":
        special = b.select(size > form.infinity, _QUIET, _same(b, size, _INFINITE))
        bits = b.select(size >= form.infinity, special, bits)
    elif form.specials == "fn":
        bits = b.select(b.eq(size, form.nan), _QUIET, bits)
    elif form.specials == "fnuz":
        bits = b.select(b.eq(word, form.nan), _QUIET, bits)
    sign = word & form.sign
    shift = 31 - form.exponent - form.mantissa
    return _float(b, bits | (sign << shift))


def _decode_power(b: Builder, word: Operand) -> Operand:
    bits = b.select(b.eq(word, 0), 1 << 22, word << 23)
    return _float(b, b.select(b.eq(word, 255), _QUIET, bits))


def encode(b: Builder, value: Operand, dtype: DType, rounding: Rounding = NEAREST) -> Operand:
    """The code nearest to a number, ties to even: the tables of ONNX's Cast.

    Args:
        b: Where statements go.
        value: Numbers of any type.
        dtype: Of the code.
        rounding: What becomes of numbers out of range; how float8e8m0 rounds.
    """
    if isinstance(value, Literal):
        value = b.variable(value).get()
    if value.type.is_integer and value.type.bits >= 32:
        value = _to_double(b, value)
    if value.type.scalar == "f64":
        value = _round_to_odd(b, value)
    bits = _bits(b, b.convert(value, F32))
    size = bits & 0x7FFFFFFF
    if dtype is dtypes.FLOAT8E8M0:
        return b.convert(_encode_power(b, size, rounding), U8)
    form = FORMATS[dtype]
    code = _nearest(b, size, form)
    beyond = form.beyond(rounding.saturate)
    code = b.select(code > form.largest, beyond, code)
    code = b.select(size > _INFINITE, form.nan, code)
    sign = (bits ^ size) >> (31 - form.exponent - form.mantissa)
    signed = b.binary("xor" if form.specials == "finite" else "or", code, sign)
    if form.specials == "fnuz":
        signed = b.select(b.eq(code, 0), code, signed)
    return b.convert(signed, U8)


def _nearest(b: Builder, size: Operand, form: Format) -> Operand:
    """The code of a number without sign, as if there were no largest."""
    shift = 23 - form.mantissa
    odd = (size >> shift) & 1
    offset = (1 << (shift - 1)) - 1 - ((127 - form.bias) << 23)
    normal = size + odd + offset % (1 << 32)
    normal = normal >> shift
    # The sum's last bit is worth the smallest code, so the addition rounds where it should.
    magic = 2.0 ** (24 - form.bias - form.mantissa)
    total = _float(b, size) + magic
    small = _bits(b, total) - int(np.float32(magic).view(np.uint32))
    return b.select(size < (128 - form.bias) << 23, small, normal)


def _encode_power(b: Builder, size: Operand, rounding: Rounding) -> Operand:
    """The code of a power of two: 0 is 2**-127, which f32 has as a subnormal, 254 is 2**127."""
    exponent, rest = size >> 23, size & 0x7FFFFF
    is_small = b.eq(exponent, 0)
    # Seen from a subnormal, the next code begins twice as far up: its unit is 1 << 22, not 1 << 23.
    if rounding.direction == "up":
        above = rest > b.select(is_small, 1 << 22, _same(b, rest, 0))
    elif rounding.direction == "nearest":
        above = rest >= b.select(is_small, 3 << 21, _same(b, rest, 1 << 22))
    else:
        above = None
    code = exponent if above is None else exponent + b.convert(above, U32)
    if rounding.saturate:
        code = b.min(code, 254)
    else:
        outside = (size < 1 << 22) | (size > 254 << 23)
        code = b.select(outside, 255, code)
    return b.select(size > _INFINITE, 255, code)


def _to_double(b: Builder, x: Operand) -> Operand:
    """A whole number as an f64 such that rounding once more, to fewer bits, gives the nearest."""
    if x.type.bits == 64:
        # What f64 does not hold becomes one of its two neighbours there, the odd one.
        spare = 64 - 53
        low = x & ((1 << spare) - 1)
        odd = (x ^ low) | (1 << spare)
        beyond = x > 1 << 53
        if not x.type.is_unsigned:
            beyond = beyond | (x < -(1 << 53))
        inexact = b.ne(low, 0)
        x = b.select(beyond & inexact, odd, x)
    return b.convert(x, F64)


def _round_to_odd(b: Builder, x: Operand) -> Operand:
    """An f64 as an f32 such that rounding it once more, to fewer bits, gives the nearest."""
    near = b.convert(x, F32)
    back, bits = b.convert(near, F64), b.bitcast(near, I32.with_lanes(x.type.lanes))
    inexact = b.ne(back, x) & b.eq(x, x)
    even = b.eq(bits & 1, 0)
    over = b.unary("abs", back) > b.unary("abs", x)
    moved = bits + b.select(over, -1, _same(b, bits, 1))
    chosen = b.select(inexact & even, moved, bits)
    return b.bitcast(chosen, F32.with_lanes(x.type.lanes))


def _same(b: Builder, like: Operand, value: int) -> Literal:
    return b.constant(like.type, value)


def _bits(b: Builder, x: Operand) -> Operand:
    return b.bitcast(x, _lanes_of(U32, x))


def _float(b: Builder, x: Operand) -> Operand:
    return b.bitcast(x, _lanes_of(F32, x))


def _lanes_of(type: Type, x: Operand) -> Type:
    return type.with_lanes(x.type.lanes)
