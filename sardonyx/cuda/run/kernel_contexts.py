"""The contexts of a frame's kernels on the device, and the record in which they note faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.memory import staging
from sardonyx.cuda.memory.memory import RunMemory
from sardonyx.cuda.run.argument_table import PinnedWords
from sardonyx.kernel.language.context import FAULT_LOCK, FIELDS, SIZE_BYTES
from sardonyx.native.layout import WORD
from sardonyx.plan.plan import Command

if TYPE_CHECKING:
    from sardonyx.cuda.run.device_state import DeviceState

_FAULT_WORDS = 5
#: Behind a fault there is a word by which the host ends loops of the device.
_STOP = _FAULT_WORDS


class KernelContexts:
    """See the module's text.

    Behind the contexts there are zeros: nothing cancels a kernel, no thread block has drawn a
    ticket, and no thread has found a fault.

    Args:
        state: What the plan has on the device.
        queue: The frame's own stream.
        uses: Of the frame's memory, see `RunMemory`.

    Attributes:
        address: Where the contexts are, in the order of the commands.
        faults: Where kernels note what is wrong; the host finds it there without a copy.
        lane_count: How many kernels may run side by side, at most.
    """

    __slots__ = (
        "_fault", "_found", "_lanes", "_memory", "_plan", "_queue", "address", "faults",
        "lane_count",
    )  # fmt: skip

    def __init__(self, state: DeviceState, queue: Stream, uses: dict[Stream | None, Event]) -> None:
        control_flow = state.control_flow
        self._plan, self._queue = state.image.plan, queue
        self._found = PinnedWords(state.device, _FAULT_WORDS + 1)
        self._fault, self.faults = self._found.view.cast("q"), self._found.address
        self._lanes = control_flow.lanes if control_flow is not None else {}
        self.lane_count = 1 + max(self._lanes.values(), default=0)
        self._memory = RunMemory(state.memory.arena, "contexts of kernels", uses=uses)
        self._memory.grow(self._lane_place(self.lane_count))
        self.address = self._memory.address

    def _lane_place(self, lane: int) -> int:
        """Where, behind the contexts, the tickets of a lane are, and the lock of its faults."""
        return (len(self._plan.commands) + 1) * SIZE_BYTES + lane * (FAULT_LOCK + SIZE_BYTES)

    def fill(self, scratch: int, each_bytes: int, queue: Stream) -> None:
        """Tell kernels where they may work, and where faults go.

        Args:
            scratch: Where they may work.
            each_bytes: How much of it each warp has.
            queue: The stream in which this happens.
        """
        commands = self._plan.commands
        count, address = len(commands), self.address
        whole = np.zeros(self._lane_place(self.lane_count) // WORD, np.int64)
        table = whole[: count * SIZE_BYTES // WORD].reshape(count, -1)
        table[:, FIELDS["fault"] // WORD] = self.faults
        table[:, FIELDS["scratch"] // WORD] = scratch
        table[:, FIELDS["scratch_bytes"] // WORD] = each_bytes
        table[:, FIELDS["command"] // WORD] = np.arange(count)
        table[:, FIELDS["cancel"] // WORD] = address + count * SIZE_BYTES
        steps = [k for k, step in enumerate(commands) if not isinstance(step, Command)]
        table[steps, FIELDS["cancel"] // WORD] = self.faults + WORD * _STOP
        table[:, FIELDS["tickets"] // WORD] = address + self._lane_place(0)
        for number, lane in self._lanes.items():
            table[number, FIELDS["tickets"] // WORD] = address + self._lane_place(lane)
        kept = staging.upload(address, whole, queue)
        queue.keep(queue.record(), kept)

    def stop(self) -> None:
        """Let loops of the device end soon."""
        self._found.words[_STOP] = 1

    @property
    def is_stopping(self) -> bool:
        """Whether loops of the device were told to end."""
        return bool(self._fault[_STOP])

    @property
    def has_fault(self) -> bool:
        """Whether something went wrong in a run that has happened."""
        return bool(self._fault[0])

    @property
    def needs_look(self) -> bool:
        """Whether something went wrong in a run that has happened, or its loops were to end."""
        return bool(self._fault[0] or self._fault[_STOP])

    def take_fault(self) -> list[int] | None:
        """What went wrong, if anything: code, command, and three numbers. It is forgotten."""
        words = self._found.words
        if not words[0]:
            words[_STOP] = 0
            return None
        found: list[int] = words[:_FAULT_WORDS].tolist()
        words[:] = 0
        with self._queue.device.entered():
            for lane in range(self.lane_count):
                lock = self.address + self._lane_place(lane) + FAULT_LOCK
                call("cuMemsetD8Async", lock, 0, WORD, self._queue.handle)
            self._queue.synchronize()  # the next run may be in another stream
        return found
