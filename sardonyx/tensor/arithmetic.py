"""The meaning of the scalar operations, in NumPy; what the evaluator and tests measure against."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.conversion import rounded, to_double
from sardonyx.base.dtypes import BOOL, DType
from sardonyx.base.errors import EngineError, message
from sardonyx.tensor.rounding import NEAREST, Rounding, round_power

Array = np.ndarray[Any, np.dtype[Any]]

_erf = np.frompyfunc(math.erf, 1, 1)


def _float_erf(x: Array) -> Array:
    return np.asarray(_erf(x.astype(np.float64)), dtype=np.float64).astype(x.dtype)


_FLOAT_UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "erf": _float_erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    **{
        name: getattr(np, name)
        for name in "exp exp2 expm1 log log2 log1p sin cos tan sinh cosh tanh".split()
    },
    **{f"a{name}": getattr(np, f"arc{name}") for name in "sin cos tan sinh cosh tanh".split()},
}
_INTEGER_UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "not": np.invert,
    "popcount": lambda x: np.bitwise_count(x).astype(x.dtype),
}
_FLOAT_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "pow": np.power,
    "atan2": np.arctan2,
    "copysign": np.copysign,
}


def _truncating_divide(a: Array, b: Array) -> Array:
    quotient = np.floor_divide(a, b)
    inexact = (np.fmod(a, b) != 0) & ((a < 0) != (b < 0))
    return np.asarray(quotient + inexact).astype(a.dtype)


def _shift(left: bool) -> Callable[[Array, Array], Array]:
    def function(a: Array, b: Array) -> Array:
        width = a.dtype.itemsize * 8
        kept = np.minimum(b.astype(np.uint64), np.uint64(width - 1)).astype(a.dtype)
        moved = np.left_shift(a, kept) if left else np.right_shift(a, kept)
        beyond = np.where(a < 0, -1, 0).astype(a.dtype) if not left else np.zeros_like(a)
        return np.where(b.astype(np.uint64) >= width, beyond, moved)

    return function


def _saturated(operation: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def function(a: Array, b: Array) -> Array:
        limits = np.iinfo(a.dtype)
        exact = operation(a.astype(object), b.astype(object))
        return np.asarray(np.clip(exact, limits.min, limits.max)).astype(a.dtype)

    return function


_INTEGER_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _truncating_divide,
    "rem": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _shift(True),
    "shr": _shift(False),
    "add_sat": _saturated(np.add),
    "sub_sat": _saturated(np.subtract),
}
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def working_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that one operation on `dtype` is computed in."""
    if dtype.is_float and dtype.bits < 32:
        return np.dtype(np.float32)
    return np.dtype(np.int8 if dtype.kind == "i" else np.uint8) if dtype.bits < 8 else dtype.numpy


def _lookup(table: dict[str, Any], op: str, dtype: DType) -> Any:
    if op not in table:
        raise EngineError(message("evaluate", f"{op} of {dtype} has no meaning"))
    return table[op]


def _computed(dtype: DType, function: Callable[..., Array], *operands: Array) -> Array:
    """Apply in the working type and round to the type of the operands."""
    wide = working_dtype(dtype)
    target = operands[0].dtype
    if target == np.float64 or target == wide:
        result = function(*operands)
    else:
        result = function(*(x.astype(wide) for x in operands))
    return np.asarray(result).astype(target)


def unary(op: str, x: Array, dtype: DType) -> Array:
    """One of `operations.UNARY`. Float arrays may be wider than `dtype`."""
    if dtype is BOOL:
        return np.logical_not(x) if op == "not" else np.asarray(_lookup({}, op, dtype))
    table = _FLOAT_UNARY if dtype.is_float else _INTEGER_UNARY
    return _computed(dtype, _lookup(table, op, dtype), x)


def binary(op: str, a: Array, b: Array, dtype: DType) -> Array:
    """One of `operations.BINARY`."""
    if dtype is BOOL:
        table = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
        table |= {"min": np.logical_and, "max": np.logical_or}
        return _lookup(table, op, dtype)(a, b)  # type: ignore[no-any-return]  # the table's functions are NumPy's
    chosen = _FLOAT_BINARY if dtype.is_float else _INTEGER_BINARY
    return _computed(dtype, _lookup(chosen, op, dtype), a, b)


def compare(op: str, a: Array, b: Array) -> Array:
    """One of `operations.COMPARE`."""
    return _COMPARE[op](a, b)


def constant(value: object, dtype: DType, into: np.dtype[Any]) -> Array:
    """A literal of type `dtype`, in the NumPy dtype `into`."""
    given = np.asarray(value)
    if dtype is not dtypes.FLOAT8E8M0 or into == np.float64:
        return rounded(given, into)
    return to_narrow(given.astype(np.float64), dtype)  # to which zero is no NaN


def cast(
    x: Array, source: DType, target: DType, into: np.dtype[Any], rounding: Rounding = NEAREST
) -> Array:
    """Convert as `scalar.cast` says; `into` is the NumPy dtype of the result."""
    if target is BOOL:
        plain = x.astype(np.float32) if source.is_narrow_float else x  # float8e8m0 has no zero
        truth: Array = np.not_equal(plain, np.zeros((), plain.dtype))
        return truth
    if source.is_float and target.is_integer:
        return _float_to_integer(x.astype(np.float64), target, into)
    if target.is_narrow_float and into != np.float64:
        return to_narrow(to_double(x), target, rounding)
    if target.bits < 8 and target.is_integer:
        low = x.astype(np.int64) & ((1 << target.bits) - 1)
        if target.kind == "i":
            low -= (low >> (target.bits - 1)) << target.bits
        return low.astype(into)
    return rounded(x, into)


def to_narrow(x: Array, target: DType, rounding: Rounding = NEAREST) -> Array:
    """Floats in double as floats of 8 bits or fewer."""
    if target is dtypes.FLOAT8E8M0:
        return round_power(x, rounding).view(target.numpy)
    if rounding.saturate:
        limit = float(ml_dtypes.finfo(target.numpy).max)  # type: ignore[no-untyped-call]  # ml_dtypes has no types
        x = np.clip(x, -limit, limit)
    return rounded(x, target.numpy)


def combine(re: Array, im: Array, into: np.dtype[Any]) -> Array:
    """Complex numbers of their parts."""
    result: Array = np.empty(np.broadcast_shapes(re.shape, im.shape), into)
    result.real, result.imag = re, im
    return result


def bitcast(x: Array, target: DType) -> Array:
    """The bits of `x` as elements of another type of the same size."""
    if target.bits >= 8:
        return x.view(target.numpy)
    codes = x.view(np.uint8) & ((1 << target.bits) - 1)
    if not target.is_integer:
        return codes.view(target.numpy)
    sign = (1 << (target.bits - 1)) if target.kind == "i" else 0
    return ((codes ^ sign).astype(np.int8) - sign).astype(target.numpy)


def _float_to_integer(x: Array, target: DType, into: np.dtype[Any]) -> Array:
    bits = target.bits - (target.kind == "i")
    low, high = (-(1 << bits) if target.kind == "i" else 0), (1 << bits) - 1
    whole = np.where(np.isnan(x), 0.0, np.trunc(x))
    inside = np.where((whole >= float(high)) | (whole <= float(low)), 0.0, whole)
    wide = np.uint64 if target is dtypes.UINT64 else np.int64
    result = inside.astype(wide)
    result = np.where(whole >= float(high), np.array(high, wide), result)
    result = np.where(whole <= float(low), np.array(low, wide), result)
    return result.astype(into)
