"""Arrays that end, or begin, where memory ends: who reads or writes beyond them crashes."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE
_NOTHING = 0  # PROT_NONE


class Guarded:
    """Memory between two pages that nobody may touch.

    Args:
        size_bytes: How much.
        at_end: Whether it ends where the page behind it begins; else it begins where the page
            before it ends.
    """

    def __init__(self, size_bytes: int, *, at_end: bool) -> None:
        inside = max(1, -(-size_bytes // _PAGE)) * _PAGE
        self._map = mmap.mmap(-1, inside + 2 * _PAGE)
        self._whole = np.frombuffer(self._map, np.uint8)
        begin = int(self._whole.ctypes.data)
        for page in (begin, begin + _PAGE + inside):
            _protect(page)
        first = _PAGE + (inside - size_bytes if at_end else 0)
        self.bytes = self._whole[first : first + size_bytes]

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """The memory as an array of its size."""
        return self.bytes.view(dtype).reshape(shape)


def _protect(page: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE), _NOTHING):
        raise OSError(ctypes.get_errno(), "mprotect")


def guarded(x: Any, *, at_end: bool) -> Any:
    """A copy of an array in such memory; what is no array of numbers stays as it is."""
    if not isinstance(x, np.ndarray) or x.dtype.kind in "OSUM" or not x.size:
        return x
    found = Guarded(x.nbytes, at_end=at_end).array(x.shape, x.dtype)
    found[...] = x
    return found


def room(shape: tuple[int, ...], dtype: np.dtype[Any], *, at_end: bool) -> Any:
    """Such memory for a result."""
    return Guarded(math.prod(shape) * dtype.itemsize, at_end=at_end).array(shape, dtype)


def is_here() -> bool:
    """Whether the system has what this needs."""
    return sys.platform != "win32"
