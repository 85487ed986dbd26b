"""Rounding errors made at random: how far apart two correct results of one computation may be.

What is evaluated in double with such errors, a few times, spreads as results of arithmetic in the
tensors' own types do (Monte Carlo arithmetic: D. S. Parker, 1997). Results that the type represents
exactly are left alone, so that whole numbers stay whole and what is compared with them decides as
it would without noise.
"""

from __future__ import annotations

import numpy as np

from sardonyx.base.dtypes import DType
from sardonyx.tensor.arithmetic import Array


class Noise:
    """A source of rounding errors.

    Args:
        seed: Two of the same seed make the same errors.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def rounded(self, exact: Array, dtype: DType, magnitude: Array | float) -> Array:
        """Doubles with errors up to the rounding error of `dtype` at `magnitude`.

        Args:
            exact: What the computation gives.
            dtype: The type that it is in.
            magnitude: The size of the numbers that were rounded, such as the sum of what was added.
        """
        # Doubles cannot be told from what they round: whole numbers are left, and short fractions.
        shorter = np.dtype(np.float32) if dtype.bits == 64 else dtype.numpy
        size = np.asarray(magnitude, np.float64)
        with np.errstate(all="ignore"):
            inexact = exact != exact.astype(shorter).astype(exact.dtype)
            # What is left when large terms cancel may be short although no partial sum is.
            inexact |= size != size.astype(shorter).astype(np.float64)
        if not np.any(inexact):
            return exact
        errors = self._random.uniform(-1.0, 1.0, exact.shape) * np.abs(size)
        return np.where(inexact, exact + errors * epsilon_of(dtype), exact)


def epsilon_of(dtype: DType) -> float:
    """The largest relative error of rounding to nearest in a type."""
    if dtype.bits == 64:
        return 2.0**-53
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype.numpy).eps) / 2  # type: ignore[no-untyped-call]  # ml_dtypes has no types
