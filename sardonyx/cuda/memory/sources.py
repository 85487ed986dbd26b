"""Where arenas get their memory: from the driver, or from functions of the caller."""

from __future__ import annotations

import ctypes
from typing import Protocol

from sardonyx.base.errors import OutOfMemory, message
from sardonyx.cuda.driver.device import Device, on_device
from sardonyx.cuda.driver.driver import bindings, call


class MemorySource(Protocol):
    """Gives and takes large pieces of memory.

    Attributes:
        device: What reaches the memory.
        is_host: Whether the processor works in it, too: then it is used again only after what the
            device does with it has happened.
        is_direct: Whether somebody else keeps pieces for further use.
    """

    device: Device
    is_host: bool
    is_direct: bool

    def take(self, size_bytes: int) -> int:
        """New memory; `OutOfMemory` if there is none."""

    def give_back(self, address: int) -> None:
        """Give memory back."""

    def empty(self) -> None:
        """Ask whoever keeps pieces to let them go."""


class DeviceSource:
    """Memory of a device."""

    is_host = False
    is_direct = False

    def __init__(self, device: Device) -> None:
        self.device = device

    @on_device
    def take(self, size_bytes: int) -> int:
        """See `MemorySource.take`."""
        return int(call("cuMemAlloc", size_bytes))

    @on_device
    def give_back(self, address: int) -> None:
        """See `MemorySource.give_back`."""
        call("cuMemFree", address)

    def empty(self) -> None:
        """Nobody keeps any."""


class PinnedSource(DeviceSource):
    """Memory of the host that stays where it is, and that devices reach at the same address."""

    is_host = True

    @on_device
    def take(self, size_bytes: int) -> int:
        """See `MemorySource.take`."""
        driver = bindings()
        flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
        return int(call("cuMemHostAlloc", size_bytes, flags))

    @on_device
    def give_back(self, address: int) -> None:
        """See `MemorySource.give_back`."""
        call("cuMemFreeHost", address)


class ExternalSource(DeviceSource):
    """Memory of a device from functions of the caller, such as those of torch's allocator.

    Args:
        device: Where.
        allocate: Address of `void* f(size_t)`.
        free: Address of `void f(void*)`.
        empty: Address of `void f()`; 0 for none.
    """

    is_direct = True

    def __init__(self, device: Device, allocate: int, free: int, empty: int = 0) -> None:
        super().__init__(device)
        self._allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(allocate)
        self._free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free)
        self._empty = ctypes.CFUNCTYPE(None)(empty) if empty else None

    @on_device
    def take(self, size_bytes: int) -> int:
        """See `MemorySource.take`."""
        address = self._allocate(size_bytes)
        if not address:
            what = f"gpu_external_alloc gives no {size_bytes} bytes"
            raise OutOfMemory(message("CUDA", what))
        return int(address)

    @on_device
    def give_back(self, address: int) -> None:
        """See `MemorySource.give_back`."""
        self._free(address)

    def empty(self) -> None:
        """See `MemorySource.empty`."""
        if self._empty is not None:
            with self.device.entered():
                self._empty()
