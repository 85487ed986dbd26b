"""How values of a tensor's type are held: one way in memory, perhaps another while computing."""

from __future__ import annotations

from sardonyx.base import dtypes, errors
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import EngineError, message
from sardonyx.kernel.expressions import complex_numbers, small_floats
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.types import F32, I1, Type, memory_type
from sardonyx.tensor.rounding import NEAREST, Rounding

#: Floats that are computed with in f32.
HALVES = (dtypes.FLOAT16, dtypes.BFLOAT16)


def value_type(dtype: DType) -> Type:
    """The type in which values of `dtype` are held in registers.

    Half floats in f32, truth in i1, floats of fewer bits and complex numbers as their bits.
    """
    if dtype is dtypes.BOOL:
        return I1
    if dtype in HALVES:
        return F32
    return memory_type(dtype)


def require_numbers(dtype: DType) -> None:
    """Refuse types whose values are held as bits, where a kernel would compute with them.

    Raises:
        NotImplemented: `dtype` is complex, or a float of 8 bits or fewer.
    """
    if dtype.is_complex or dtype.is_narrow_float:
        raise errors.NotImplemented(
            message("kernel", f"This operator does not compute with {dtype}", do="Cast it before")
        )


def constant(b: Builder, value: complex, dtype: DType) -> Literal:
    """A number as `value_type(dtype)` holds it."""
    if dtype.is_complex:
        return complex_numbers.constant_word(b, value, dtype)
    if isinstance(value, complex):
        raise EngineError(message("kernel", f"{value} is no value of the type {dtype}"))
    if dtype.is_narrow_float:
        return small_floats.constant_code(b, value, dtype)
    return b.constant(value_type(dtype), value)


def cast(
    b: Builder, value: Operand, source: DType, target: DType, rounding: Rounding = NEAREST
) -> Operand:
    """`value` of type `source` as `target`, rounded where that is due."""
    if source.is_narrow_float:
        value, source = small_floats.decode(b, value, source), dtypes.FLOAT
    if target.is_narrow_float:
        return small_floats.encode(b, value, target, rounding)
    if target is dtypes.BOOL:
        return b.ne(value, 0) if source is not dtypes.BOOL else value
    if target in HALVES:
        if isinstance(value, Literal):
            value = b.variable(value).get()
        return b.convert(b.convert(value, memory_type(target)), F32)
    if target.bits >= 8:
        return b.convert(value, value_type(target))
    if source.is_float:
        value = _within(b, value, target)
    return _low_bits(b, b.convert(value, value_type(target)), target)


def _within(b: Builder, value: Operand, dtype: DType) -> Operand:
    """A float kept between the ends of a small integer type; NaN stays."""
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
    high = low + (1 << dtype.bits) - 1
    return b.max(b.min(value, float(high)), float(low))


def _low_bits(b: Builder, value: Operand, dtype: DType) -> Operand:
    """What is left of a byte whose lowest bits hold an integer."""
    if dtype.bits >= 8:
        return value
    unused = 8 - dtype.bits
    return (value << unused) >> unused


def from_memory(b: Builder, value: Operand, dtype: DType) -> Operand:
    """A stored element as the value that expressions compute with."""
    if dtype is dtypes.BOOL:
        return b.ne(value, 0)
    return b.convert(_low_bits(b, value, dtype), value_type(dtype))


def to_memory(b: Builder, value: Operand, dtype: DType) -> Operand:
    """The reverse of `from_memory`."""
    stored = memory_type(dtype).with_lanes(value.type.lanes)
    short = dtype.bits < 8 and dtype.kind == "i"  # ml_dtypes keeps the rest of the byte empty
    mask = (1 << dtype.bits) - 1
    if isinstance(value, Literal):
        whole = short or dtype is dtypes.BOOL
        return b.constant(stored, int(value.value) & mask if whole else value.value)
    return value & mask if short else b.convert(value, stored)
