"""Memory of a run: parts of an arena, of a device or of the host that the device reaches too."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base.errors import OutOfMemory
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.memory.arena import Arena, MemoryBlock
from sardonyx.runtime.arena import Memory
from sardonyx.runtime.budget import Budget

_HEADROOM = 1.125


class RunMemory(Memory):
    """As `Memory`, from an arena.

    Args:
        arena: Where from.
        purpose: What it is for, in words.
        budget: What it counts in.
        uses: For each stream the end of the last work in it that nobody waited for. Whoever has
            several memories for the same work notes it once for all of them.
    """

    __slots__ = ("_arena", "_block", "_uses")

    def __init__(
        self,
        arena: Arena,
        purpose: str,
        budget: Budget | None = None,
        uses: dict[Stream | None, Event] | None = None,
    ) -> None:
        super().__init__(purpose, budget)
        self._arena, self._uses = arena, uses
        self._block: MemoryBlock | None = None

    def grow(
        self, needed_bytes: int, keep_bytes: int = 0, largest: Callable[[], str] | None = None
    ) -> bool:
        """See `Memory.grow`."""
        if needed_bytes <= self.capacity_bytes:
            return False
        wanted = int(needed_bytes * _HEADROOM) if self.capacity_bytes else needed_bytes
        if keep_bytes:
            wanted = 2 * needed_bytes
        kept = self._drop() if keep_bytes else self._drop() and None
        if self._budget is not None and not self._budget.may_take(wanted):
            wanted = needed_bytes
        try:
            block = self._allocate_block(wanted, largest)
        except OutOfMemory:
            if wanted == needed_bytes:
                raise
            wanted = needed_bytes
            block = self._allocate_block(wanted, largest)
        if kept is not None:
            call("cuMemcpy", block.address, kept.address, keep_bytes)
        self._block, self.address, self.capacity_bytes = block, block.address, wanted
        return True

    def _allocate_block(self, size_bytes: int, largest: Callable[[], str] | None) -> MemoryBlock:
        if self._budget is not None:
            self._budget.take(size_bytes, self._purpose, largest)
        try:
            block = self._arena.allocate(size_bytes, self._purpose)
        except OutOfMemory as error:
            self._release(size_bytes)
            listed = f" {largest()}" if largest is not None else ""
            raise OutOfMemory(f"{error}{listed}") from None
        if self._uses is not None:
            block.uses = self._uses
        return block

    def _drop(self) -> MemoryBlock | None:
        """What it was; there is nothing from now on."""
        block, self._block = self._block, None
        if block is not None and self._uses is not None:
            block.uses = dict(self._uses)  # later work is not in it
        self._release(self.capacity_bytes)
        self.address = self.capacity_bytes = 0
        return block
