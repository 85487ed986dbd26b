"""Devices, their streams and their arenas, in onnxruntime's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sardonyx.api.cuda_options import CUDA
from sardonyx.api.enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtHardwareDeviceType,
    OrtMemType,
)
from sardonyx.api.memory import NVIDIA, OrtMemoryInfo, cpu_memory
from sardonyx.api.plugins import plugin_devices
from sardonyx.api.providers import CPU, check_options, cuda_is_missing
from sardonyx.api.version import __version__
from sardonyx.base import errors
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.notes import note

if TYPE_CHECKING:
    from sardonyx.plugins.provider import ProviderDevice


#: Settings of arenas without effect.
_UNUSED_SETTINGS = {
    "max_dead_bytes_per_chunk", "initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes",
}  # fmt: skip


class OrtArenaCfg:
    """How an arena of a device grows: four numbers, or a dict of them; -1 or 0 for the default.

    `max_mem` is in bytes; `arena_extend_strategy` is 0 for kNextPowerOfTwo, 1 for kSameAsRequested.
    """

    _FIELDS = (
        "max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk",
    )  # fmt: skip
    _MORE_FIELDS = ("initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes")
    max_mem: int
    arena_extend_strategy: int
    initial_chunk_size_bytes: int
    max_dead_bytes_per_chunk: int
    initial_growth_chunk_size_bytes: int
    max_power_of_two_extend_bytes: int

    @names_misfits
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
        for name, value in self.values.items():
            self._put(name, value)

    def __getattr__(self, name: str) -> int:
        if name not in self._FIELDS + self._MORE_FIELDS:
            raise AttributeError(f"OrtArenaCfg has no {name}")
        return int(self.values.get(name, 0 if name == "max_mem" else -1))

    @names_misfits
    def _put(self, name: str, value: Any) -> None:
        if int(value) < -1:
            expected = "-1 or 0 for the default, or more"
            raise InvalidArgument(
                message(f"OrtArenaCfg {name}", "No such value", expected=expected, got=str(value))
            )
        self.values[name] = int(value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._FIELDS + self._MORE_FIELDS:
            self._put(name, value)
        elif name == "values":
            object.__setattr__(self, name, value)
        else:
            raise AttributeError(f"OrtArenaCfg has no {name}")


class OrtHardwareDevice:
    """A device of this machine: the processor, a GPU, or one of another package's provider."""

    @names_misfits
    def __init__(self, number: int = -1, described: ProviderDevice | None = None) -> None:
        is_gpu = number >= 0
        self.type = OrtHardwareDeviceType.GPU if is_gpu else OrtHardwareDeviceType.CPU
        self.vendor = "NVIDIA" if is_gpu else ""
        self.vendor_id = NVIDIA if is_gpu else 0
        self.device_id = max(0, number)
        #: What else is known of it.
        self.metadata: dict[str, str] = {}
        if described is not None:
            self.type = OrtHardwareDeviceType[described.type]
            self.vendor, self.vendor_id = described.vendor, described.vendor_id
            self.device_id = described.device_id
            self.metadata = {str(k): str(v) for k, v in described.metadata.items()}


class OrtEpDevice:
    """A device of a provider: the processor, the GPU with a number, or one of another package."""

    @names_misfits
    def __init__(
        self, number: int = -1, plugin: tuple[str, str, ProviderDevice] | None = None
    ) -> None:
        self._number = number
        self._described = plugin[2] if plugin is not None else None
        self.ep_name = plugin[0] if plugin is not None else CUDA if number >= 0 else CPU
        self.ep_vendor = self._described.vendor if self._described is not None else "sardonyx"
        self._version = plugin[1] if plugin is not None else __version__

    @property
    def device(self) -> OrtHardwareDevice:
        """The device itself."""
        return OrtHardwareDevice(self._number, self._described)

    @property
    def ep_metadata(self) -> dict[str, str]:
        """The version of the package that brings the provider."""
        return {"version": self._version}

    @property
    def ep_options(self) -> dict[str, str]:
        """Options that the provider recommends: which device it is."""
        if self._described is not None:
            return {str(k): str(v) for k, v in self._described.options.items()}
        return {"device_id": str(self._number)} if self._number >= 0 else {}

    def __repr__(self) -> str:
        return f"OrtEpDevice({self.ep_name!r}, {self.device.type.name}, {self.ep_options})"

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo:
        """Its memory."""
        if self._number < 0:
            return cpu_memory()
        is_pinned = memory_type == OrtDeviceMemoryType.HOST_ACCESSIBLE
        kind = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
        name = "CudaPinned" if is_pinned else "Cuda"
        return OrtMemoryInfo(name, kind, self._number, OrtMemType.DEFAULT)

    def create_sync_stream(self) -> OrtSyncStream:
        """A stream of its own.

        Raises:
            NotImplemented: It is none of our GPUs.
        """
        if self._number < 0:
            what = f"The device of {self.ep_name} has no streams"
            raise errors.NotImplemented(message("OrtEpDevice", what))
        return OrtSyncStream(self._number)


class OrtSyncStream:
    """A stream of a GPU, for `copy_tensors` and runs; it is ours, and stays."""

    def __init__(self, number: int) -> None:
        from sardonyx.cuda.driver.device import device

        self._stream = device(number).new_stream()

    def get_handle(self) -> int:
        """As the driver has it."""
        return self._stream.handle

    def synchronize(self) -> None:
        """Wait for all work so far."""
        with self._stream.device.entered():
            self._stream.synchronize()


def get_ep_devices() -> list[OrtEpDevice]:
    """The devices that a session may be made for; those of other packages come last.

    Packages that bring providers are imported by this.
    """
    found = [OrtEpDevice()]
    if not cuda_is_missing():
        from sardonyx.cuda.driver.driver import call

        found += [OrtEpDevice(number) for number in range(call("cuDeviceGetCount"))]
    return found + [OrtEpDevice(plugin=row) for row in plugin_devices()]


@names_misfits
def create_and_register_allocator(memory_info: OrtMemoryInfo, arena: OrtArenaCfg | None) -> None:
    """Make an arena that sessions share which set `session.use_env_allocators`.

    One of the processor's memory has no effect, which is noted in the log.

    Raises:
        InvalidArgument: There is one for this memory already, or such settings are none.
        EPFail: There is no driver.
    """
    if memory_info.kind_name == "Cpu":
        note("create_and_register_allocator", "each session has its own memory of the processor")
        return
    from sardonyx.cuda.settings import register_arena

    given = arena.values if arena else {}
    for name in sorted(_UNUSED_SETTINGS):
        if given.get(name, 0) > 0:
            note(f"OrtArenaCfg {name}", "regions double up to 1 GiB, and go when memory lacks")
    register_arena(memory_info.kind_name, memory_info.device_id, given)


@names_misfits
def create_and_register_allocator_v2(
    provider_type: str,
    memory_info: OrtMemoryInfo,
    options: Mapping[str, Any],
    arena: OrtArenaCfg | None,
) -> None:
    """The same, for a provider; raises as `create_and_register_allocator` does.

    Options: `gpu_mem_limit` and `arena_extend_strategy`, over those of `arena`. Others have no
    effect, which is noted in the log.
    """
    if provider_type not in (CPU, CUDA):
        raise InvalidArgument(
            message(
                "create_and_register_allocator_v2", f"There is no provider {provider_type!r}",
                expected=f"{CPU} or {CUDA}",
            )
        )  # fmt: skip
    where = "create_and_register_allocator_v2"
    kinds = ("Cpu",) if provider_type == CPU else ("Cuda", "CudaPinned")
    if memory_info.kind_name not in kinds:
        raise InvalidArgument(
            message(
                where, f"{provider_type} has no such memory", expected=" or ".join(kinds),
                got=memory_info.kind_name,
            )
        )  # fmt: skip
    used = {"gpu_mem_limit", "arena_extend_strategy", "device_id"} if provider_type == CUDA else ()
    for name in options.keys() - used:
        note(f"{where} option {name}", "it is none of an allocator")
    if provider_type == CUDA:
        checked = check_options(CUDA, options)
        number = int(checked["device_id"]) if "device_id" in options else memory_info.device_id
        if number != memory_info.device_id:
            raise InvalidArgument(
                message(
                    f"{where} device_id", "The memory is another device's",
                    expected=str(memory_info.device_id), got=str(number),
                )
            )  # fmt: skip
        values = dict(arena.values) if arena else {}
        if "gpu_mem_limit" in options:
            values["max_mem"] = int(checked["gpu_mem_limit"])
        if "arena_extend_strategy" in options:
            is_exact = checked["arena_extend_strategy"] == "kSameAsRequested"
            values["arena_extend_strategy"] = int(is_exact)
        arena = OrtArenaCfg(values)
    create_and_register_allocator(memory_info, arena)
