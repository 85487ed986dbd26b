"""Complex numbers in kernels: one word of 64 or 128 bits, the real part in its lower half."""

from __future__ import annotations

import numpy as np

from sardonyx.base import dtypes, errors
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import message
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.types import F32, F64, U32, U64, U128, Type


def constant_word(b: Builder, value: complex, dtype: DType) -> Literal:
    """A number as a word."""
    data = np.array(value, dtype.numpy).tobytes()
    return b.constant(_word(dtype), int.from_bytes(data, "little"))


def part(b: Builder, word: Operand, dtype: DType, op: str) -> Operand:
    """The `real` or the `imag` part of a word."""
    if isinstance(word, Literal):
        word = b.variable(word).get()
    if op == "imag":
        word = word >> (dtype.bits // 2)
    half, number = _halves(dtype)
    return b.bitcast(b.convert(word, half), number.with_lanes(word.type.lanes))


def combine(b: Builder, re: Operand, im: Operand, dtype: DType) -> Operand:
    """The word of two parts."""
    lanes = max(re.type.lanes, im.type.lanes)
    half, number = _halves(dtype)
    parts = [b.lift(_in_lanes(b, x, lanes), number.with_lanes(lanes)) for x in (re, im)]
    low, high = (b.convert(b.bitcast(x, half.with_lanes(lanes)), _word(dtype)) for x in parts)
    return low | (high << (dtype.bits // 2))


def binary(b: Builder, op: str, x: Operand, y: Operand, dtype: DType) -> Operand:
    """`add` or `mul` of two words.

    Raises:
        NotImplemented: Another operation: complex numbers have no order.
    """
    if op not in ("add", "mul"):
        raise errors.NotImplemented(message("kernel", f"There is no {op} of {dtype}"))
    a, c = (part(b, w, dtype, "real") for w in (x, y))
    d, e = (part(b, w, dtype, "imag") for w in (x, y))
    if op == "add":
        return combine(b, a + c, d + e, dtype)
    re = a * c - d * e
    im = a * e + d * c
    return combine(b, re, im, dtype)


def _in_lanes(b: Builder, x: Operand, lanes: int) -> Operand:
    return b.splat(x, lanes) if isinstance(x, Literal) else x


def _word(dtype: DType) -> Type:
    return U64 if dtype is dtypes.COMPLEX64 else U128


def _halves(dtype: DType) -> tuple[Type, Type]:
    return (U32, F32) if dtype is dtypes.COMPLEX64 else (U64, F64)
