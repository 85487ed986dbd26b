"""GPUs: their context, what they are, how many there are."""

from __future__ import annotations

from functools import cache
from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.cuda.driver import bindings, call


class Device:
    """One GPU, with the context that all libraries of the process share.

    Attributes:
        number: As the driver counts.
        name: As the maker calls it.
        architecture: Such as `sm_90`.
        processors: Number of its multiprocessors.
    """

    def __init__(self, number: int) -> None:
        count = call("cuDeviceGetCount")
        if not 0 <= number < count:
            expected = f"0 to {count - 1}" if count else "a machine with a GPU"
            what = f"There is no device {number}"
            raise InvalidArgument(message("CUDA device_id", what, expected=expected))
        self.number = number
        self._device = call("cuDeviceGet", number)
        self._context = call("cuDevicePrimaryCtxRetain", self._device)
        self.name = call("cuDeviceGetName", 128, self._device).split(b"\0")[0].decode()
        major, minor, self.processors = (
            self._attribute(f"CU_DEVICE_ATTRIBUTE_{name}")
            for name in (
                "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT",
            )
        )  # fmt: skip
        self.architecture = f"sm_{major}{minor}"

    def _attribute(self, name: str) -> int:
        which = getattr(bindings().CUdevice_attribute, name)
        return int(call("cuDeviceGetAttribute", which, self._device))

    def enter(self) -> None:
        """Let this thread's calls mean this device."""
        call("cuCtxSetCurrent", self._context)

    def memory_info(self) -> tuple[int, int]:
        """Free bytes and all bytes."""
        self.enter()
        free, total = call("cuMemGetInfo")
        return int(free), int(total)

    def stream(self) -> Any:
        """A new queue of work that waits for no other."""
        self.enter()
        return call("cuStreamCreate", bindings().CUstream_flags.CU_STREAM_NON_BLOCKING.value)


@cache
def device(number: int) -> Device:
    """The device with a number; always the same object.

    Raises:
        EPFail: There is no driver.
        InvalidArgument: There is no such device.
    """
    return Device(number)
