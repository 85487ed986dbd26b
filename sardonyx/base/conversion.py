"""Conversions of NumPy arrays between number types that round once.

`ndarray.astype` is not enough. To the floats of ml_dtypes it goes through float32 and rounds a
double, or an integer of 32 bits or more, twice: 1 + 2**-8 + 2**-40 becomes 1.0 in bfloat16, and is
1.0078125. From a list of integers to float32 NumPy goes through float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base import dtypes

Array = np.ndarray[Any, np.dtype[Any]]

#: Floats that ml_dtypes adds, of 16 bits or fewer.
_ADDED = frozenset(
    d.numpy for d in dtypes.ALL if d.is_float and d.bits < 32 and d is not dtypes.FLOAT16
)
_FLOATS = frozenset(d.numpy for d in dtypes.ALL if d.is_float)
#: Bits that a 64-bit integer has beyond the significand of a double.
_SPARE = 64 - 53


def rounded(x: Array, into: np.dtype[Any]) -> Array:
    """`x` as elements of type `into`: to floats with one rounding, to nearest, ties to even.

    To anything but floats it is `astype`. What is out of range becomes infinity, or what ml_dtypes
    makes of an infinity.
    """
    if into in _ADDED and _has_more_bits(x.dtype):
        x = to_odd_single(x)
    return x.astype(into)


def as_rounded(value: object, into: np.dtype[Any]) -> Array:
    """Numbers in lists as an array of type `into`, where `np.asarray(value, into)` rounds twice.

    Raises:
        ValueError, TypeError, OverflowError: As `np.asarray` does.
    """
    if into in _FLOATS:
        given = np.asarray(value)
        if given.dtype.kind in "biuf":
            return rounded(given, into)
    return np.asarray(value, into)


def to_double(x: Array) -> Array:
    """Numbers in double such that rounding once more, to 24 bits or fewer, gives the nearest.

    A whole number that a double does not hold becomes one of the two next to it whose last bit
    is 1.
    """
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        one = x.dtype.type(1)
        low = x.dtype.type((1 << _SPARE) - 1)
        sticky = ((x & low) != 0).astype(x.dtype) << x.dtype.type(_SPARE)
        limit = one << x.dtype.type(53)
        fits = x <= limit
        if x.dtype.kind == "i":
            fits &= x >= -limit
        x = np.where(fits, x, (x & ~low) | sticky)
    return x.astype(np.float64)


def to_odd_single(x: Array) -> Array:
    """Numbers in float32 such that rounding once more, to 22 bits or fewer, gives the nearest.

    What float32 does not hold becomes one of its two neighbours there, the one whose last bit is 1.
    """
    wide = to_double(x)
    with np.errstate(all="ignore"):
        near = wide.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.int32)
    moves = (back != wide) & (wide == wide) & (bits & 1 == 0)
    step = np.where(np.abs(back) > np.abs(wide), -1, 1)
    return np.where(moves, bits + step, bits).astype(np.int32).view(np.float32)


def _has_more_bits(dtype: np.dtype[Any]) -> bool:
    """Whether float32 does not hold all numbers of a type."""
    return dtype.kind in "iuf" and dtype.itemsize >= 4 and dtype != np.float32
