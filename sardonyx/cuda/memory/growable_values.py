"""Values on a device that grow where they lie: see `runtime.growable_buffer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.forks import lock_over_forks
from sardonyx.cuda.memory.rectangles import copy_rectangles
from sardonyx.cuda.memory.values import CudaArray, CudaMemory
from sardonyx.runtime.growable_buffer import GrowableBuffer
from sardonyx.runtime.storage import Array, Tensor, size_of

if TYPE_CHECKING:
    from sardonyx.cuda.memory.arena import MemoryBlock
    from sardonyx.cuda.memory.order import Order

#: Values leave their growable buffers one by one.
_LEAVING = lock_over_forks()


class GrownArray(CudaArray):
    """The first part of a growable buffer along an axis.

    Whoever asks for its address gets dense memory that is the value's own: the growable buffer
    itself if the value is alone in it, else a copy. From then on the value lies there, and nowhere
    else.

    Args:
        buffer: Where it lies.
        length: How much of it it is.
        memory: Where memory comes from.
    """

    __slots__ = ("_held", "_memory", "_buffer")

    def __init__(self, buffer: GrowableBuffer, length: int, memory: CudaMemory) -> None:
        self.device, self.owner, self.producer = memory.device, None, None
        self.dtype, self.is_read_only, self.is_copy = buffer.memory.dtype, False, False
        self._memory = memory
        self._buffer: GrowableBuffer | None = None
        self.lie_in(buffer, length)

    def lie_in(self, buffer: GrowableBuffer, length: int) -> None:
        """Be the first part of a growable buffer."""
        buffer.count(1)
        if self._buffer is not None:
            self._buffer.count(-1)
        self._held: CudaArray | None = None
        self._buffer = buffer
        self.shape = buffer.shape(length)
        self.nbytes = size_of(self.shape, self.dtype)

    def __del__(self) -> None:
        buffer: GrowableBuffer | None = getattr(self, "_buffer", None)
        if buffer is not None:
            buffer.count(-1)

    @property
    def buffer(self) -> GrowableBuffer | None:
        """Where it lies; None if it has memory of its own."""
        return self._buffer

    @property
    def address(self) -> int:  # type: ignore[override]  # found when it is asked for
        """Of its own memory."""
        return self._own().address

    @property
    def extent(self) -> tuple[int, int]:
        """See `DeviceArray`: of the whole buffer while it lies in one."""
        buffer = self._buffer
        whole = self._own() if buffer is None else buffer.memory
        assert isinstance(whole, CudaArray)  # noqa: S101 - growable buffers of a device have no others
        return whole.extent

    @property
    def block(self) -> MemoryBlock | None:  # type: ignore[override]  # found when it is asked for
        """See `CudaArray`."""
        return self._own().block

    @property
    def order(self) -> Order:  # type: ignore[override]  # found when it is asked for
        """See `CudaArray`."""
        return self._own().order

    def numpy(self) -> Array:
        """See `DeviceArray.numpy`."""
        return self._dense().numpy()

    def read_to(self, target: Array, stream: Any = None) -> None:
        """See `DeviceArray.read_to`."""
        self._dense().read_to(target, stream)

    def _dense(self) -> CudaArray:
        """Dense memory with the same contents: its own, the growable buffer's, or a copy."""
        buffer = self._buffer
        if buffer is None:
            return self._own()
        whole = buffer.memory
        assert isinstance(whole, CudaArray)  # noqa: S101 - growable buffers of a device have no others
        is_dense = buffer.is_dense(self.shape[buffer.axis])
        return whole.as_shape(self.shape) if is_dense else self._copied(buffer)

    def _own(self) -> CudaArray:
        if self._buffer is not None:
            with _LEAVING:
                self._leave()
        assert self._held is not None  # noqa: S101 - it lies somewhere
        return self._held

    def _leave(self) -> None:
        buffer = self._buffer
        if buffer is not None:
            whole, length = buffer.memory, self.shape[buffer.axis]
            assert isinstance(whole, CudaArray)  # noqa: S101 - growable buffers of a device have no others
            alone = buffer.is_dense(length) and buffer.close(length)
            self._held = whole.as_shape(self.shape) if alone else self._copied(buffer)
            self._buffer = None
            buffer.count(-1)

    def _copied(self, buffer: GrowableBuffer) -> CudaArray:
        """A dense copy."""
        made = self._memory.empty(self.shape, self.dtype)
        copy_part(made, buffer.memory, self.shape)
        return made


class CudaGrowableBuffers:
    """See `GrowableBuffers`.

    Args:
        memory: Where growable buffers are made.
    """

    def __init__(self, memory: CudaMemory) -> None:
        self._memory = memory

    def is_own(self, target: object) -> bool:
        """See `GrowableBuffers.is_own`."""
        return isinstance(target, CudaMemory) and target.number == self._memory.number

    def found(self, value: object) -> GrowableBuffer | None:
        """See `GrowableBuffers.found`."""
        if isinstance(value, GrownArray) and value.device is self._memory.device:
            return value.buffer
        return None

    def made(self, value: Tensor, axis: int, capacity: int) -> GrowableBuffer:
        """See `GrowableBuffers.made`; the copy is under way."""
        whole = _empty(self._memory, value.shape, value.dtype, axis, capacity)
        length, buffer = value.shape[axis], self.found(value)
        if length:
            source = value if buffer is None else buffer.memory
            if not isinstance(source, CudaArray) or source.device is not whole.device:
                source = self._memory.copy_of(source)
            copy_part(whole, source, value.shape)
        return GrowableBuffer(whole, axis, length)

    def value(self, buffer: GrowableBuffer, length: int) -> GrownArray:
        """See `GrowableBuffers.value`."""
        return GrownArray(buffer, length, self._memory)

    def wrapped(self, value: Tensor, axis: int) -> GrownArray:
        """See `GrowableBuffers.wrapped`."""
        length = value.shape[axis]
        return GrownArray(GrowableBuffer(value, axis, length), length, self._memory)

    def extend(self, value: Tensor, buffer: GrowableBuffer, length: int) -> None:
        """See `GrowableBuffers.extend`."""
        assert isinstance(value, GrownArray)  # noqa: S101 - no other feed is a target, too
        value.lie_in(buffer, length)


def new_growable(
    memory: CudaMemory, shape: tuple[int, ...], dtype: np.dtype[Any], axis: int, capacity: int
) -> GrownArray:
    """A new array in a growable buffer of some size."""
    whole = _empty(memory, shape, dtype, axis, capacity)
    return GrownArray(GrowableBuffer(whole, axis, shape[axis]), shape[axis], memory)


def _empty(
    memory: CudaMemory, shape: tuple[int, ...], dtype: np.dtype[Any], axis: int, capacity: int
) -> CudaArray:
    whole = (*shape[:axis], capacity, *shape[axis + 1 :])
    return memory.empty(whole, dtype, "room for a value that grows")


def copy_part(target: Any, source: Any, shape: Sequence[int]) -> None:
    """Copy the elements of a shape between two arrays of which they are the first part.

    Work that comes later waits for the copy, on the device.
    """
    queue = target.device.copying
    with target.device.entered():
        target.free_in(queue)
        source.ready_in(queue)
        copy_rectangles(
            target.address, _steps(target), source.address, _steps(source), shape,
            target.dtype.itemsize, queue.handle,
        )  # fmt: skip
        event = queue.record()
    target.used_until(queue, event, is_written=True)
    source.used_until(queue, event)
    queue.keep(event, target, source)


def _steps(array: Any) -> list[int]:
    """Bytes from element to element along each axis."""
    found, step = [0] * len(array.shape), int(np.dtype(array.dtype).itemsize)
    for axis in reversed(range(len(array.shape))):
        found[axis] = step
        step *= array.shape[axis]
    return found
