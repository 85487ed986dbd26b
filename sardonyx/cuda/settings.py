"""What a session asks of a device: memory and streams."""

from __future__ import annotations

from dataclasses import dataclass, field

from sardonyx.cuda.arena import Arena, ArenaSettings, registered
from sardonyx.cuda.device import Device
from sardonyx.cuda.sources import DeviceSource, ExternalSource


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
    """

    arena: ArenaSettings = field(default_factory=ArenaSettings)
    shares_arena: bool = False
    external: tuple[int, int, int] = (0, 0, 0)
    stream: int = 0
    tf32: bool = True

    def arena_for(self, device: Device) -> Arena:
        """The arena of a session with these settings."""
        found = registered("Cuda", device.number) if self.shares_arena else None
        if found is not None:
            return found
        if self.external[0]:
            return Arena(ExternalSource(device, *self.external), self.arena)
        return Arena(DeviceSource(device), self.arena)
