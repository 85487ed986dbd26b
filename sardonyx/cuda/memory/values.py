"""Tensors in memory of a device."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, OutOfMemory, message
from sardonyx.cuda.driver.addresses import check_memory, check_pinned, check_pointer
from sardonyx.cuda.driver.device import Device, device, on_device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.interop import exchange
from sardonyx.cuda.memory import staging
from sardonyx.cuda.memory.arena import Arena, MemoryBlock
from sardonyx.cuda.memory.arenas import arena_of
from sardonyx.cuda.memory.order import Order
from sardonyx.cuda.memory.sources import DeviceSource
from sardonyx.runtime.storage import (
    Array,
    DeviceArray,
    MemoryKind,
    Tensor,
    array_at,
    refuse_strings,
    size_of,
    write,
)

_new = object.__new__


class CudaArray(DeviceArray):
    """A dense array in memory of a device.

    Attributes:
        device: Where.
        block: Its memory, if that is an arena's.
        owner: What keeps other memory alive; None if the caller does.
        producer: Another library's array on this memory: asked, before each use, to let its work
            come first.
        order: Of work on it; an arena's block is that itself. Arrays on the same memory have it in
            common.
    """

    __slots__ = ("block", "device", "order", "owner", "producer")

    def __init__(
        self,
        device: Device,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        address: int,
        *,
        block: MemoryBlock | None = None,
        owner: Any = None,
        producer: Any = None,
        is_read_only: bool = False,
        nbytes: int | None = None,
    ) -> None:
        super().__init__(shape, dtype, address, is_read_only, nbytes)
        self.device, self.block, self.owner, self.producer = device, block, owner, producer
        self.order = Order() if block is None else block

    @staticmethod
    def in_block(
        device: Device,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        block: MemoryBlock,
        nbytes: int,
    ) -> CudaArray:
        """A new array in memory of an arena, as runs make them: they count microseconds."""
        made = _new(CudaArray)
        made.device, made.shape, made.dtype, made.nbytes = device, shape, dtype, nbytes
        made.address, made.block, made.order = block.address, block, block
        made.owner = made.producer = None
        made.is_read_only = made.is_copy = False
        return made

    def __repr__(self) -> str:
        return f"<{self.dtype}{list(self.shape)} on {self.device.name}>"

    @property
    def kind(self) -> MemoryKind:
        """See `DeviceArray.kind`."""
        found: MemoryKind = cuda_memory(self.device.number)
        return found

    def ready_in(self, stream: Stream, waited: set[str] | None = None) -> None:
        """Let work that comes now in a stream begin after what writes to the memory.

        Args:
            stream: The stream.
            waited: Libraries for which it waits already, see `exchange.wait_for_producer`.

        Raises:
            InvalidArgument: There is no memory of this device any more.
        """
        if stream.device is not self.device:
            stream.wait_for(self._ready())
            return
        if self.producer is not None:
            exchange.wait_for_producer(self.producer, stream, waited)
        elif self.block is None and self.owner is None:
            check_pointer(self.address, self.device)
        order = self.order
        if order.written is not None and order.written[0] is not stream:
            written = order.unfinished()
            if written is not None:
                stream.wait_for(written[1])

    def _ready(self) -> Event:
        """The end of what writes to the memory, for streams of other devices."""
        own = self.device.copying
        with self.device.entered():
            self.ready_in(own)
            return own.record()

    def free_in(self, stream: Stream) -> None:
        """As `ready_in`, for work that writes: it begins after what reads the memory, too."""
        self.ready_in(stream)
        for other, event in list(self.order.uses.items()):
            if other is not stream and not event.is_done:
                stream.wait_for(event)

    def used_until(self, stream: Stream, event: Event, *, is_written: bool = False) -> None:
        """Note work with it that nobody waits for."""
        if is_written:
            self.order.written = (stream, event)
        self.order.uses[stream] = event

    @on_device
    def numpy(self) -> Array:
        """See `DeviceArray.numpy`."""
        stream = self.device.copying
        self.ready_in(stream)
        found = staging.fetched(self.address, self.shape, self.dtype, stream)
        stream.synchronize()
        self.order.unfinished()
        return found

    @on_device
    def write(self, source: Tensor, stream: Any = None) -> None:
        """See `DeviceArray.write`.

        Raises:
            InvalidArgument: It is read-only, or the sizes differ.
        """
        if self.is_read_only or source.nbytes != self.nbytes:
            what = "The memory is read-only" if self.is_read_only else "The sizes differ"
            raise InvalidArgument(
                message("copy", what, expected=f"{self.nbytes} bytes", got=str(source.nbytes))
            )
        waits = stream is None
        queue = self.device.copying if waits else self.device.callers_stream(stream)
        kept = self.copy_in(source, queue)
        if waits:
            queue.synchronize()
        else:
            event = queue.record()
            self.used_until(queue, event, is_written=True)
            if isinstance(source, CudaArray):
                source.used_until(queue, event)
            queue.keep(event, kept, self, source)

    @on_device
    def read_to(self, target: Array, stream: Any = None) -> None:
        """See `DeviceArray.read_to`."""
        queue = self.device.copying if stream is None else self.device.callers_stream(stream)
        self.ready_in(queue)
        staging.download(self.address, target, queue)
        if stream is None:
            queue.synchronize()
            self.order.unfinished()
        else:
            event = queue.record()
            self.used_until(queue, event)
            queue.keep(event, target, self)

    def copy_in(self, source: Tensor, stream: Stream) -> tuple[Any, ...]:
        """Copy a tensor of this size here, in a stream; gives what must live as long."""
        self.free_in(stream)
        if isinstance(source, CudaArray):
            source.ready_in(stream)
            if self.nbytes:
                call("cuMemcpyAsync", self.address, source.address, self.nbytes, stream.handle)
            return (source,)
        if isinstance(source, DeviceArray):
            source = source.numpy()
        plain = np.ascontiguousarray(source)
        return staging.upload(self.address, plain, stream), plain

    def as_shape(self, shape: tuple[int, ...], dtype: np.dtype[Any] | None = None) -> CudaArray:
        """See `DeviceArray.as_shape`.

        Raises:
            InvalidArgument: It would be larger.
        """
        dtype = self.dtype if dtype is None else dtype
        if size_of(shape, dtype) > self.nbytes:
            raise InvalidArgument(
                message(
                    "OrtValue", "The memory is too small",
                    expected=f"{dtype}{list(shape)}", got=f"{self.dtype}{list(self.shape)}",
                )
            )  # fmt: skip
        made = CudaArray(
            self.device, shape, dtype, self.address, block=self.block, owner=self.owner,
            producer=self.producer, is_read_only=self.is_read_only,
        )  # fmt: skip
        made.order = self.order
        return made

    def __dlpack__(self, **options: Any) -> Any:
        return exchange.to_capsule(self, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (exchange.CUDA, self.device.number)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return exchange.to_interface(self)


class CudaMemory:
    """Memory of a device as values without a session have it; see `MemoryKind`."""

    name, memory_name, is_host = "cuda", "Cuda", False

    def __init__(self, device: Device, arena: Arena | None = None) -> None:
        self.device, self.number = device, device.number
        self._arena = arena

    @property
    def arena(self) -> Arena:
        """Where new arrays come from."""
        return self._arena or arena_of(
            "Cuda", self.number, lambda: Arena(DeviceSource(self.device))
        )

    def empty(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        purpose: str = "a value",
        stream: Stream | None = None,
    ) -> CudaArray:
        """See `MemoryKind.empty`; work in `stream`, or any if that is None, may begin at once."""
        if dtype.kind == "O":
            refuse_strings(dtype)
        size_bytes = size_of(shape, dtype)
        if size_bytes >> 62:
            raise OutOfMemory(message("CUDA", f"{dtype}{list(shape)} is too large"))
        block = (self._arena or self.arena).allocate(size_bytes, purpose, stream)
        return CudaArray.in_block(self.device, shape, dtype, block, size_bytes)

    def growable(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], axis: int, capacity: int
    ) -> CudaArray:
        """A new array that may grow to a size along an axis where it lies."""
        from sardonyx.cuda.memory.growable_values import new_growable

        return new_growable(self, shape, dtype, axis, capacity)

    def copy_of(self, tensor: Tensor) -> CudaArray:
        """See `MemoryKind.copy_of`."""
        made = self.empty(tensor.shape, tensor.dtype)
        made.write(tensor)
        return made

    def at(
        self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any = None
    ) -> CudaArray:
        """See `MemoryKind.at`."""
        refuse_strings(dtype)
        check_memory(address, size_of(shape, dtype), self.device)
        return CudaArray(self.device, shape, dtype, address, owner=owner)

    def synchronize(self) -> None:
        """See `MemoryKind.synchronize`."""
        self.device.synchronize()


class PinnedMemory:
    """Memory of the host that devices reach; its arrays are NumPy's. See `MemoryKind`."""

    name, memory_name, is_host = "cpu", "CudaPinned", True

    def __init__(self, device: Device) -> None:
        self.device, self.number = device, device.number

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """See `MemoryKind.empty`."""
        refuse_strings(dtype)
        return staging.new_pinned(self.device, shape, dtype, "a pinned value", or_any=False)

    def copy_of(self, tensor: Tensor) -> Array:
        """See `MemoryKind.copy_of`."""
        made = self.empty(tensor.shape, tensor.dtype)
        write(made, tensor)
        return made

    def at(
        self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any = None
    ) -> Array:
        """See `MemoryKind.at`."""
        refuse_strings(dtype)
        check_pinned(address, size_of(shape, dtype), self.device)
        return array_at(address, shape, dtype, owner)

    def synchronize(self) -> None:
        """See `MemoryKind.synchronize`."""
        self.device.synchronize()


@cache
def cuda_memory(number: int = 0, *, pinned: bool = False) -> Any:
    """Memory of the device with a number, or pinned memory of the host."""
    return PinnedMemory(device(number)) if pinned else CudaMemory(device(number))
