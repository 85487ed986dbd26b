"""Devices and their memory: the processor and its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sardonyx.api.config_keys import note
from sardonyx.api.enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)
from sardonyx.api.providers import CPU
from sardonyx.api.version import __version__
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message


def need_cpu(device: str, device_id: int = 0) -> None:
    """Refuse memory that is not the processor's.

    Raises:
        NotImplemented: It is another device's.
    """
    if not isinstance(device, str) or device.lower() != "cpu" or device_id != 0:
        raise errors.NotImplemented(
            message(
                "device", "There is no memory of this device", expected="'cpu', 0",
                got=f"{device!r}, {device_id}",
            )
        )  # fmt: skip


class OrtDevice:
    """A device: this build has the processor alone."""

    def __init__(self, name: str = "cpu", device_id: int = 0) -> None:
        need_cpu(name, device_id)

    @staticmethod
    def make(name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device `name`.

        Raises:
            NotImplemented: It is not the processor.
        """
        return OrtDevice(name, device_id)

    def device_id(self) -> int:
        """Its number among devices of its type."""
        return 0

    def device_type(self) -> int:
        """0, the processor."""
        return 0

    def device_vendor_id(self) -> int:
        """0: memory of the processor is no maker's own."""
        return 0

    def device_mem_type(self) -> int:
        """0, ordinary memory."""
        return 0


class OrtMemoryInfo:
    """What kind of memory something lies in.

    Raises:
        NotImplemented: It is not the processor's.
    """

    def __init__(
        self, name: str, allocator_type: OrtAllocatorType, id: int, mem_type: OrtMemType
    ) -> None:
        need_cpu(name, id)
        self.name = name
        self.allocator_type = OrtAllocatorType(allocator_type)
        self.device_id = id
        self.mem_type = OrtMemType(mem_type)
        self.device_mem_type = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = 0

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        memory_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """The same, with the kind of device as a number and a name of any kind."""
        need_cpu(OrtMemoryInfoDeviceType(device_type).name, device_id)
        made = OrtMemoryInfo("Cpu", allocator_type, device_id, OrtMemType.DEFAULT)
        made.name, made.device_vendor_id = name, vendor_id
        made.device_mem_type = OrtDeviceMemoryType(memory_type)
        return made


class OrtArenaCfg:
    """How an arena grows: four numbers, or a dict of them. Nothing here has such an arena."""

    _FIELDS = (
        "max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk",
    )  # fmt: skip
    _MORE_FIELDS = ("initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes")

    def __init__(self, *given: Any) -> None:
        if len(given) == 1 and isinstance(given[0], Mapping):
            self.values = {str(k): int(v) for k, v in given[0].items()}
        else:
            self.values = dict(zip(self._FIELDS, map(int, given), strict=False))
        known = self._FIELDS + self._MORE_FIELDS
        if len(given) not in (1, 4) or not set(self.values) <= set(known):
            raise InvalidArgument(
                message("OrtArenaCfg", "These are no settings", expected=str(known), got=str(given))
            )


class OrtHardwareDevice:
    """A device of this machine: the processor."""

    type = OrtHardwareDeviceType.CPU
    vendor = ""
    vendor_id = 0
    device_id = 0

    @property
    def metadata(self) -> dict[str, str]:
        """Nothing is known of it."""
        return {}


class OrtEpDevice:
    """The processor, as the device of its execution provider."""

    ep_name = CPU
    ep_vendor = "sardonyx"

    @property
    def device(self) -> OrtHardwareDevice:
        """The device itself."""
        return OrtHardwareDevice()

    @property
    def ep_metadata(self) -> dict[str, str]:
        """The version."""
        return {"version": __version__}

    @property
    def ep_options(self) -> dict[str, str]:
        """Options that the provider recommends: none."""
        return {}

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo:
        """Its memory."""
        return cpu_memory()


def cpu_memory() -> OrtMemoryInfo:
    """Memory of the processor."""
    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)


def get_ep_devices() -> list[OrtEpDevice]:
    """The devices that a session may be made for."""
    return [OrtEpDevice()]


def create_and_register_allocator(memory_info: OrtMemoryInfo, arena: OrtArenaCfg | None) -> None:
    """Sessions do not share arenas: noted in the log, without effect."""
    note("create_and_register_allocator", "each session has its own memory")


def create_and_register_allocator_v2(
    provider_type: str,
    memory_info: OrtMemoryInfo,
    options: Mapping[str, Any],
    arena: OrtArenaCfg | None,
) -> None:
    """Sessions do not share arenas: noted in the log, without effect."""
    note("create_and_register_allocator_v2", "each session has its own memory")
