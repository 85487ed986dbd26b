"""Values of the processor that grow where they lie: see `runtime.growable_buffer`."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.runtime.growable_buffer import GrowableBuffer
from sardonyx.runtime.storage import HOST, Array, Tensor, size_of, to_host


class GrownView(np.ndarray[Any, np.dtype[Any]]):
    """The first part of a growable buffer along an axis, read-only: others may share it.

    Attributes:
        buffer: Where it lies; None for what is made of such a view.
    """

    buffer: GrowableBuffer | None

    def __array_finalize__(self, made_of: Any) -> None:
        self.buffer = None


class HostGrowableBuffers:
    """See `GrowableBuffers`."""

    def is_own(self, target: object) -> bool:
        """See `GrowableBuffers.is_own`; an array of NumPy keeps its size, so none grows itself."""
        return target is HOST

    def found(self, value: object) -> GrowableBuffer | None:
        """See `GrowableBuffers.found`."""
        return value.buffer if isinstance(value, GrownView) else None

    def made(self, value: Tensor, axis: int, capacity: int) -> GrowableBuffer:
        """See `GrowableBuffers.made`."""
        held: Array = to_host(value)
        whole = _empty(value.shape, value.dtype, axis, capacity)
        length = value.shape[axis]
        whole[(slice(None),) * axis + (slice(length),)] = held
        return GrowableBuffer(whole, axis, length)

    def value(self, buffer: GrowableBuffer, length: int) -> GrownView:
        """See `GrowableBuffers.value`."""
        memory: Any = buffer.memory
        part: GrownView = memory[(slice(None),) * buffer.axis + (slice(length),)].view(GrownView)
        part.buffer = buffer
        part.flags.writeable = False
        return part

    def wrapped(self, value: Tensor, axis: int) -> Tensor:
        """See `GrowableBuffers.wrapped`: what is not in a growable buffer stays a plain array."""
        return value

    def extend(self, value: Tensor, buffer: GrowableBuffer, length: int) -> None:
        """See `GrowableBuffers.extend`; no target is asked for that, see `is_own`."""


def new_growable(
    shape: tuple[int, ...], dtype: np.dtype[Any], axis: int, capacity: int
) -> GrownView:
    """A new value of zeros in a growable buffer of some size."""
    whole = _empty(shape, dtype, axis, capacity)
    whole[(slice(None),) * axis + (slice(shape[axis]),)] = 0
    return HOST_BUFFERS.value(GrowableBuffer(whole, axis, shape[axis]), shape[axis])


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], axis: int, capacity: int) -> Array:
    sizes = (*shape[:axis], capacity, *shape[axis + 1 :])
    size_of(sizes, dtype)
    return np.empty(sizes, dtype)


HOST_BUFFERS = HostGrowableBuffers()
