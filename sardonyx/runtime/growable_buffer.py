"""Memory in which values grow along an axis, each behind the end of the one before.

A value is the first part of its growable buffer along the axis. What is there never changes:
whoever continues the longest value writes behind it, so that shorter ones stay what they are. A
value that is not the longest any more is continued in a growable buffer of its own.
"""

from __future__ import annotations

import math
from typing import Protocol

from sardonyx.base.forks import RenewedLock
from sardonyx.runtime.storage import Tensor

#: The least capacity of one.
_LEAST = 64


class GrowableBuffer:
    """Memory for values that grow.

    Args:
        memory: An array of which values are the first part along `axis`.
        axis: The axis that grows.
        filled: How much of it is taken.

    Attributes:
        values: How many values there are that lie here alone.
    """

    __slots__ = ("_lock", "axis", "filled", "memory", "values")

    def __init__(self, memory: Tensor, axis: int, filled: int) -> None:
        self.memory, self.axis, self.filled = memory, axis, filled
        self.values = 0
        self._lock = RenewedLock()

    @property
    def capacity(self) -> int:
        """The most that a value may have along the axis."""
        return self.memory.shape[self.axis]

    def shape(self, length: int) -> tuple[int, ...]:
        """The shape of a value."""
        whole = self.memory.shape
        return (*whole[: self.axis], length, *whole[self.axis + 1 :])

    def is_dense(self, length: int) -> bool:
        """Whether the elements of a value of some length lie side by side."""
        return length == self.capacity or math.prod(self.memory.shape[: self.axis]) == 1

    def claim(self, length: int, count: int) -> bool:
        """Take what is behind a value; False if another has it, or there is not so much."""
        with self._lock:
            if self.filled != length or length + count > self.capacity:
                return False
            self.filled = length + count
            return True

    def release(self, length: int, count: int) -> None:
        """Give back what was claimed, after a run that failed."""
        with self._lock:
            if self.filled == length + count:
                self.filled = length

    def close(self, length: int) -> bool:
        """Leave the memory to the only value in it: nothing is appended any more.

        False if there are others.
        """
        with self._lock:
            if self.values > 1 or self.filled != length:
                return False
            self.filled = self.capacity + 1
            return True

    def count(self, change: int) -> None:
        """Note that there is a value more, or less."""
        with self._lock:
            self.values += change


class GrowableBuffers(Protocol):
    """What a provider knows of values in growable buffers."""

    def is_own(self, target: object) -> bool:
        """Whether a target of a run is new memory of this kind."""

    def found(self, value: object) -> GrowableBuffer | None:
        """The buffer in which a value lies; None if it lies in memory of its own."""

    def made(self, value: Tensor, axis: int, capacity: int) -> GrowableBuffer:
        """A new growable buffer that begins with the contents of a value."""

    def value(self, buffer: GrowableBuffer, length: int) -> Tensor:
        """The first part of a growable buffer."""

    def wrapped(self, value: Tensor, axis: int) -> Tensor:
        """A value that was just made, as one that fills a growable buffer."""

    def extend(self, value: Tensor, buffer: GrowableBuffer, length: int) -> None:
        """Make a value the first part of a growable buffer from now on."""


def capacity_for(length: int) -> int:
    """How large a growable buffer is made for a value of some length: few sizes, few copies."""
    return max(_LEAST, 1 << max(0, length - 1).bit_length())
