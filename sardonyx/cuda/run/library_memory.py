"""Memory of a frame for calls of libraries: what they work in, and copies that stay in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.memory.arena import Arena
from sardonyx.cuda.memory.memory import RunMemory
from sardonyx.cuda.run.graphs import Graphs

if TYPE_CHECKING:
    from sardonyx.cuda.memory.values import CudaArray


class LibraryMemory:
    """See the module's text.

    Args:
        arena: Where memory of the device comes from.
        graphs: The frame's, which know where libraries work.
        lane_count: How many calls may be done side by side.
        uses: Of the frame's memory, see `RunMemory`.

    Attributes:
        lane: Of those that kernels run in side by side, that of the next call.
        stands_in: Whether libraries work on copies of feeds and results, which stay in place.
        copied: The inputs and outputs of this run for which that is so: kind and number of each.
    """

    __slots__ = (
        "_arena", "_graphs", "_stand_ins", "_uses", "_workspaces", "copied", "lane", "stands_in",
    )  # fmt: skip

    def __init__(
        self, arena: Arena, graphs: Graphs, lane_count: int, uses: dict[Stream | None, Event]
    ) -> None:
        self._arena, self._graphs, self._uses = arena, graphs, uses
        self._workspaces = [
            RunMemory(arena, "what libraries work in", uses=uses) for _ in range(lane_count)
        ]
        self._stand_ins: dict[tuple[str, int], RunMemory] = {}
        self.lane, self.stands_in = 0, False
        self.copied: frozenset[tuple[str, int]] = frozenset()

    @property
    def workspace_bytes(self) -> int:
        """How much memory there is for calls."""
        return self._workspaces[self.lane].capacity_bytes

    def work_in(self, size_bytes: int, queue: Stream) -> int:
        """The address of so much memory for calls in a stream."""
        memory = self._workspaces[self.lane]
        if size_bytes > memory.capacity_bytes:
            queue.synchronize()
            self._graphs.release()  # they know where it was
            memory.grow(size_bytes)
        return memory.address

    def stand_in(self, kind: str, number: int, size_bytes: int, queue: Stream) -> int:
        """The address of memory in place of an input or an output, the same in all runs."""
        memory = self._stand_ins.get((kind, number))
        if memory is None:
            purpose = f"a copy of {kind} {number} for libraries"
            memory = RunMemory(self._arena, purpose, uses=self._uses)
            self._stand_ins[kind, number] = memory
        if size_bytes > memory.capacity_bytes:
            queue.synchronize()
            memory.grow(size_bytes)
        return memory.address

    def copy_in(self, number: int, feed: CudaArray, queue: Stream) -> int:
        """The address of a copy of a feed, in the order of the run."""
        address = self.stand_in("input", number, feed.nbytes, queue)
        if feed.nbytes:
            call("cuMemcpyAsync", address, feed.address, feed.nbytes, queue.handle)
        return address

    def copy_out(self, made: Mapping[int, CudaArray], queue: Stream) -> None:
        """Bring results from where libraries wrote them; by number of the output."""
        for number, array in made.items():
            source = self._stand_ins["output", number].address
            if array.nbytes:
                call("cuMemcpyAsync", array.address, source, array.nbytes, queue.handle)
