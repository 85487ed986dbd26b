"""Plain memory at 64-byte boundaries, owned by NumPy arrays."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sardonyx.base.errors import OutOfMemory, message
from sardonyx.base.handlers import pass_on
from sardonyx.native.layout import ALIGNMENT, WORD
from sardonyx.runtime.budget import Budget

Words = NDArray[np.int64]
# A dimension that grows by one with every run must not mean new memory with every run.
_HEADROOM = 1.125


def address_of(array: NDArray[np.generic]) -> int:
    """The address of an array's first element."""
    return int(array.__array_interface__["data"][0])


def aligned_words(count: int) -> Words:
    """That many zeros, starting at a 64-byte boundary."""
    spare = ALIGNMENT // WORD
    raw = np.zeros(count + spare, np.int64)
    skip = -address_of(raw) % ALIGNMENT // WORD
    return raw[skip : skip + count]


class Memory:
    """Memory that grows; its content does not matter, unless growing is told to keep some.

    Args:
        purpose: What it is for, in words.
        budget: What it counts in.

    Attributes:
        capacity_bytes: How much there is.
        address: Where it begins, a multiple of 64.
    """

    __slots__ = ("_array", "_budget", "_purpose", "address", "capacity_bytes")

    def __init__(self, purpose: str, budget: Budget | None = None) -> None:
        self._purpose, self._budget = purpose, budget
        self._array: NDArray[np.uint8] | None = None
        self.capacity_bytes = 0
        self.address = 0

    def grow(
        self, needed_bytes: int, keep_bytes: int = 0, largest: Callable[[], str] | None = None
    ) -> bool:
        """Make sure that there is so much; gives whether the address changed.

        The first `keep_bytes` are kept; there is twice as much afterwards then, so that growing
        little by little copies little.

        Raises:
            OutOfMemory: The system or the budget refuses; `largest` has words about it. There is
                none at all then.
        """
        if needed_bytes <= self.capacity_bytes:
            return False
        again = self.capacity_bytes > 0
        old, old_bytes, old_address = self._array, self.capacity_bytes, self.address
        self._array, self.capacity_bytes, self.address = None, 0, 0
        if not keep_bytes:
            old = None
            self._release(old_bytes)
        wanted = int(needed_bytes * _HEADROOM) if again else needed_bytes
        if keep_bytes:
            wanted = 2 * needed_bytes
        if self._budget is not None and not self._budget.may_take(wanted):
            wanted = needed_bytes
        try:
            array = self._allocate(wanted, largest)
            self.address = -(-address_of(array) // ALIGNMENT) * ALIGNMENT
            self._array = array
            self.capacity_bytes = wanted  # at last: a handler of signals may raise before
            if old is not None:
                ctypes.memmove(self.address, old_address, keep_bytes)
        finally:
            if old is not None:
                self._release(old_bytes)
        return True

    def _allocate(self, size_bytes: int, largest: Callable[[], str] | None) -> NDArray[np.uint8]:
        purpose = self._purpose
        if self._budget is not None:
            self._budget.take(size_bytes, purpose, largest)
        try:
            return np.empty(size_bytes + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError) as error:
            pass_on(error)
            self._release(size_bytes)
            what = f"The system refuses {size_bytes} bytes of memory for {purpose}"
            listed = largest() if largest is not None else ""
            raise OutOfMemory(message("memory", f"{what}{listed and '. ' + listed}")) from None

    def _release(self, size_bytes: int) -> None:
        if self._budget is not None:
            self._budget.give(size_bytes)

    def __del__(self) -> None:
        self._release(self.capacity_bytes)


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialised array of its own that starts at a 64-byte boundary.

    Raises:
        OutOfMemory: The system refuses.
    """
    size_bytes = math.prod(shape) * dtype.itemsize
    try:
        raw = np.empty(size_bytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        pass_on(error)
        what = f"The system refuses {size_bytes} bytes of memory for constants"
        raise OutOfMemory(message("session", what)) from None
    skip = -address_of(raw) % ALIGNMENT
    return raw[skip : skip + size_bytes].view(dtype).reshape(shape)
