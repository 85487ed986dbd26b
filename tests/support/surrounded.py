"""Arrays with other numbers right before and behind them: who reads or writes those is seen.

Feeds lie between NaNs, numbers that are no index of anything, and bools that are true. Results lie
between bytes that a run must leave as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Bytes on each side; a multiple of what vectors are aligned to.
_MARGIN_BYTES = 1024
_MARK = 0xA5
_FAR = 10**6


def surrounded(x: Any) -> Any:
    """A copy of an array between other numbers; what is no array of numbers stays as it is."""
    if not isinstance(x, np.ndarray) or x.dtype.kind in "OSU":
        return x
    margin = _MARGIN_BYTES // x.dtype.itemsize
    whole = np.empty(x.size + 2 * margin, x.dtype)
    whole[:] = _other(x.dtype)
    found: np.ndarray = whole[margin : margin + x.size].reshape(x.shape)
    found[...] = x
    return found


def _other(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        return min(_FAR, np.iinfo(dtype).max)
    return np.nan


class Target:
    """Memory for a result, between marks.

    Args:
        shape: Of the result.
        dtype: Of the result; numbers or bools.

    Attributes:
        array: The memory.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._whole = np.full(size + 2 * _MARGIN_BYTES, _MARK, np.uint8)
        self._inside = slice(_MARGIN_BYTES, _MARGIN_BYTES + size)
        self.array = self._whole[self._inside].view(dtype).reshape(shape)

    def changed_marks(self) -> int:
        """How many bytes beside the result were written."""
        beside = np.delete(self._whole, self._inside)
        return int(np.count_nonzero(beside != _MARK))
