"""The arguments of a frame's kernels as a table on the device, and copies to it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.memory.memory import RunMemory
from sardonyx.cuda.memory.staging import pinned_arena
from sardonyx.native.layout import STAGING, WORD
from sardonyx.runtime.arena import Words, address_of
from sardonyx.runtime.storage import array_at

if TYPE_CHECKING:
    from sardonyx.cuda.run.device_state import DeviceState

#: With so many tables of arguments or more, those are looked for that are free again.
_LEAST_TABLES = 8


class PinnedWords:
    """64-bit words in memory of the host that the device reaches at the same address.

    Attributes:
        words: They.
        view: The same, as bytes.
        address: Where they are.
    """

    def __init__(self, device: Device, count: int) -> None:
        block = pinned_arena(device).allocate(WORD * max(1, count), "tables of runs")
        self.address = block.address
        self.words: Words = array_at(block.address, (max(1, count),), np.dtype(np.int64), block)
        self.words[:] = 0
        self.view = self.words.data.cast("B")


class ArgumentTable:
    """See the module's text.

    Args:
        state: What the plan has on the device.
        world: What the table is a copy of, with the arguments in it.
        parts: The parts of it that control steps work on.
        uses: Of the frame's memory, see `RunMemory`.

    Attributes:
        staging: A record for native code: how it sends arguments.
    """

    def __init__(
        self,
        state: DeviceState,
        world: Words,
        parts: Sequence[Words],
        uses: dict[Stream | None, Event],
    ) -> None:
        self._device, self._world, self._parts = state.device, world, parts
        self._content = world.data.cast("B")
        self._memory = RunMemory(state.memory.arena, "arguments of kernels", uses=uses)
        # Behind it there is a word by which control steps tell each other that something is wrong.
        self._memory.grow(world.nbytes + WORD)
        self._staging = np.zeros(STAGING.words, np.int64)
        self.staging = address_of(self._staging)
        values = {
            "content": address_of(world), "target": self._memory.address, "bytes": world.nbytes,
            "move": int(ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0),
        }  # fmt: skip
        for name, value in values.items():
            self._staging[STAGING[name]] = value
        #: What the table has once all copies to it have happened.
        self._sent = b""
        #: Where copies to the table begin; each with the end of a run that may still read it.
        self._pinned: list[tuple[PinnedWords, Event | None]] = []
        self._spare: list[PinnedWords] = []

    def place_of(self, part: Words) -> int:
        """Where the device has a part of the table."""
        return self._memory.address + address_of(part) - address_of(self._world)

    @property
    def part_places(self) -> list[int]:
        """Where the device has the parts that control steps work on."""
        return [self.place_of(part) for part in self._parts]

    @property
    def halt(self) -> int:
        """Where control steps tell each other that something is wrong."""
        return self._memory.address + self._world.nbytes

    def clear_halt(self, queue: Stream) -> None:
        """Let control steps go on, whatever was wrong in a run before."""
        call("cuMemsetD8Async", self.halt, 0, WORD, queue.handle)

    def send(self, queue: Stream) -> bool:
        """Copy the arguments to the device, in the order of a stream, unless they are there.

        Gives whether they are copied.
        """
        content = self._content.tobytes()
        if content == self._sent:
            return False
        self.sent_others()
        pinned, size_bytes = self.find_source(), len(self._content)
        pinned.view[:size_bytes] = self._content
        call("cuMemcpyAsync", self._memory.address, pinned.address, size_bytes, queue.handle)
        self._sent = content
        return True

    def sent_others(self) -> None:
        """Other arguments were sent, or will be."""
        self._sent = b""

    def find_source(self) -> PinnedWords:
        """Have memory to send arguments from that no copy reads any more."""
        if not self._pinned or self._pinned[-1][1] is not None:
            self._pinned.append((self._unused(), None))
            self._staging[STAGING["source"]] = self._pinned[-1][0].address
        return self._pinned[-1][0]

    def _unused(self) -> PinnedWords:
        """A table that no copy reads any more."""
        if not self._spare and len(self._pinned) >= _LEAST_TABLES:
            # To ask takes longer than a copy: one is asked about, those before it were read before.
            middle = len(self._pinned) // 2
            end = self._pinned[middle][1]
            if end is None or end.is_done:
                self._spare = [pinned for pinned, _ in self._pinned[: middle + 1]]
                del self._pinned[: middle + 1]
        if not self._spare:
            return PinnedWords(self._device, len(self._world))
        return self._spare.pop()

    def left(self, event: Event) -> None:
        """A run ends with `event`, and nobody waits for it."""
        if self._pinned:
            self._pinned[-1] = (self._pinned[-1][0], event)
            self._staging[STAGING["source"]] = 0
