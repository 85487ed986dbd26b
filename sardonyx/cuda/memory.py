"""Memory of a device, and memory of the host that the device reaches too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sardonyx.base.errors import OutOfMemory, SardonyxError, message
from sardonyx.cuda.device import Device
from sardonyx.cuda.driver import bindings, call
from sardonyx.runtime.arena import Memory
from sardonyx.runtime.budget import Budget

_HEADROOM = 1.125


class DeviceMemory(Memory):
    """As `Memory`, on a device.

    Args:
        device: Where.
        purpose: What it is for, in words.
        budget: What it counts in.
        mapped: Take memory of the host that the device reaches at the same address.
    """

    __slots__ = ("_device", "_mapped")

    def __init__(
        self, device: Device, purpose: str, budget: Budget | None = None, mapped: bool = False
    ) -> None:
        super().__init__(purpose, budget)
        self._device, self._mapped = device, mapped

    def grow(
        self, needed_bytes: int, keep_bytes: int = 0, largest: Callable[[], str] | None = None
    ) -> bool:
        """See `Memory.grow`."""
        if needed_bytes <= self.capacity_bytes:
            return False
        self._device.enter()
        wanted = 2 * needed_bytes if keep_bytes else int(needed_bytes * _HEADROOM)
        if self._budget is not None:
            self._budget.take(wanted, self._purpose, largest)
        old, old_bytes = self.address, self.capacity_bytes
        try:
            address = self._take(wanted)
        except OutOfMemory as error:
            self._release(wanted)
            listed = f" {largest()}" if largest is not None else ""
            raise OutOfMemory(f"{error} {wanted} bytes for {self._purpose}.{listed}") from None
        if old:
            if keep_bytes:
                call("cuMemcpy", address, old, keep_bytes)
            self._give_back(old)
            self._release(old_bytes)
        self.address, self.capacity_bytes = address, wanted
        return True

    def _take(self, size_bytes: int) -> int:
        if not self._mapped:
            return int(call("cuMemAlloc", size_bytes))
        driver = bindings()
        flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
        return int(call("cuMemHostAlloc", size_bytes, flags))

    def _give_back(self, address: int) -> None:
        self._device.enter()
        call("cuMemFreeHost" if self._mapped else "cuMemFree", address)

    def __del__(self) -> None:
        if not getattr(self, "address", 0):
            return
        try:
            self._give_back(self.address)
        except (SardonyxError, ImportError, AttributeError, TypeError):
            return  # the driver, or the interpreter, is going away
        self._release(self.capacity_bytes)


class DeviceArray:
    """A dense array in memory of a device.

    Attributes:
        shape, dtype: As NumPy's.
        address: Of the first element.
        nbytes: How large it is.
    """

    __slots__ = ("_memory", "address", "dtype", "nbytes", "shape")

    def __init__(
        self, device: Device, shape: tuple[int, ...], dtype: Any, mapped: bool = False
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self.nbytes = dtype.itemsize
        for size in shape:
            self.nbytes *= size
        self._memory = DeviceMemory(device, f"an array of shape {shape}", mapped=mapped)
        try:
            self._memory.grow(max(1, self.nbytes))
        except OverflowError:
            raise OutOfMemory(message("CUDA", f"{shape} is too large")) from None
        self.address = self._memory.address

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False),
            "version": 3, "strides": None,
        }  # fmt: skip
