"""What a session asks of a device: memory and streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from sardonyx.base.records import dataclass
from sardonyx.cuda.driver.device import Device, device
from sardonyx.cuda.memory.arena import STRATEGIES, Arena, ArenaSettings
from sardonyx.cuda.memory.arenas import register, registered
from sardonyx.cuda.memory.sources import DeviceSource, ExternalSource, PinnedSource


@dataclass(frozen=True, slots=True)
class CudaSettings:
    """Options of a session.

    Attributes:
        arena: How its arena grows.
        shares_arena: Whether it takes the one that was registered for all sessions, if there is.
        external: Addresses of the caller's functions that allocate and free, and of the one that
            lets go of what they keep; zeros for none.
        stream: Handle of the stream of runs that name none; 0 for our own.
        tf32: Whether factors of products of float32 may be rounded to 10 bits of mantissa.
        graphs: Whether runs become graphs: `automatic`, `off`, or `wanted`, which warns if not.
        convolution_search: How cuDNN's plans are chosen: `EXHAUSTIVE`, `HEURISTIC` or `DEFAULT`.
        any_workspace: Whether convolutions may use as much memory as they like.
        attention: What does attentions: `cudnn` wherever it can, `kernel` always, or "": the
            faster one.
        copies_apart: Whether feeds and results of the host are copied in streams of their own.
    """

    arena: ArenaSettings = field(default_factory=ArenaSettings)
    shares_arena: bool = False
    external: tuple[int, int, int] = (0, 0, 0)
    stream: int = 0
    tf32: bool = True
    graphs: str = "automatic"
    convolution_search: str = "EXHAUSTIVE"
    any_workspace: bool = True
    attention: str = ""
    copies_apart: bool = False

    def arena_for(self, device: Device) -> Arena:
        """The arena of a session with these settings."""
        found = registered("Cuda", device.number) if self.shares_arena else None
        if found is not None:
            return found
        if self.external[0]:
            return Arena(ExternalSource(device, *self.external), self.arena)
        return Arena(DeviceSource(device), self.arena)


def register_arena(kind: str, number: int, values: Mapping[str, int]) -> None:
    """Make the arena that sessions and values share, for `Cuda` or `CudaPinned`.

    Args:
        kind: Of the memory.
        number: Of the device.
        values: Settings under onnxruntime's names; 0 or -1 for a default.

    Raises:
        InvalidArgument: There is one already, or a setting is none.
    """
    default = ArenaSettings()
    strategy = values.get("arena_extend_strategy", -1)
    named = STRATEGIES[strategy] if strategy in (0, 1) else str(strategy)
    chosen = ArenaSettings(
        _given(values, "max_mem") or default.limit_bytes,
        default.strategy if strategy == -1 else named,
        _given(values, "initial_chunk_size_bytes") or default.first_bytes,
        "max_mem",
    )
    source = PinnedSource if kind == "CudaPinned" else DeviceSource
    register(kind, number, Arena(source(device(number)), chosen))


def _given(values: Mapping[str, int], name: str) -> int:
    return max(0, values.get(name, 0))
