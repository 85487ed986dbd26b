"""The state of one run on a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.memory import staging
from sardonyx.cuda.memory.copies import Copies
from sardonyx.cuda.memory.memory import RunMemory
from sardonyx.cuda.run.graphs import Graphs, RunGraph
from sardonyx.cuda.run.launching import PER_PROCESSOR, Launches, PinnedWords
from sardonyx.cuda.run.replaying import Replay
from sardonyx.kernel.language.context import FAULT_LOCK, FIELDS, SIZE_BYTES
from sardonyx.llvm.ptx import THREADS
from sardonyx.native.layout import JOB, WORD
from sardonyx.plan.control_flow import TABLES
from sardonyx.plan.plan import Command
from sardonyx.runtime.array_records import ArrayRecords
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.frame import Frame, Result

if TYPE_CHECKING:
    from sardonyx.cuda.memory.values import CudaArray
    from sardonyx.cuda.run.device_state import DeviceState
    from sardonyx.cuda.run.fast_path import LikeRun
    from sardonyx.cuda.run.timing import Timeline
    from sardonyx.runtime.plan_tables import PlanTables

#: All warps of a run together work in at most so much.
_MOST_SCRATCH = 1 << 30
_FAULT_WORDS = 5
#: Behind a fault there is a word by which the host ends loops of the device.
_STOP = _FAULT_WORDS
#: Loops need graphs for different numbers of trips: so many times as many.
_GRAPHS_OF_LOOPS = 8
#: Whether a run with loops is over the host asks all the time; after so long, now and then. Once in
#: so many times it looks for other reasons to end it.
_PATIENCE_SECONDS, _PAUSE_SECONDS, _LOOKS = 1e-3, 5e-5, 16


class CudaFrame(Frame):
    """A frame with a stream, the contexts of its kernels, and a record of their faults.

    Attributes:
        queue: The stream of its run.
        own_queue: Its own stream, for runs that name none.
        copies: How feeds and results of its runs come from the host, and go there.
        memory: Where its results come from.
        is_mapped: Whether the host controls its runs.
        is_patient: Whether the host need do nothing but wait for its runs.
        lane: Of those that kernels run in side by side, that of the next call of a library.
        passes: How many trips a pass of a loop of the device has, by the loop's last control step.
        make: Makes memory for a result of a run that the host controls, by number.
        feeds, given: Its inputs, and outputs of known shapes, as native code sees them.
        launches: How its kernels reach the device.
        graphs: Its captured runs.
        graph: What its last run was, if that was one.
        alike: What a run is like that can do with less; None if there is no such run.
        stands_in: Whether libraries work on copies of feeds and results, which stay in place.
        copied: The inputs and outputs of this run for which that is so: kind and number of each.
        waited: Libraries whose work it waits for already.
        busy: The stream and the end of a run that nobody waited for.
    """

    __slots__ = (
        "_contexts", "_device", "_fault", "_found", "_lanes", "_stand_ins", "_control_flow",
        "_unscheduled", "_uses", "_workspaces", "alike", "busy", "copied", "copies",
        "feeds", "given", "graph", "graphs", "is_mapped", "is_patient", "lane", "launches", "make",
        "memory", "own_queue", "passes", "queue", "stands_in", "timeline",
        "waited",
    )  # fmt: skip

    def __init__(self, owner: DeviceState) -> None:
        self._device, self.memory, self.is_mapped = owner.device, owner.device_memory, owner.mapped
        self._uses: dict[Stream | None, Event] = {}
        uses = self._uses
        super().__init__(owner.image, 0, owner.budget, lambda p, b: owner.memory(p, b, uses))
        self.timeline: Timeline | None = None
        self.make: Callable[[int, Result], CudaArray] | None = None
        self.queue = self.own_queue = owner.device.lend_stream()
        self.copies = Copies(owner.device if owner.copies_apart else None)
        self.busy: tuple[Stream, Event] | None = None
        self.graph: RunGraph | None = None
        self.alike: LikeRun | None = None
        self.copied: frozenset[tuple[str, int]] = frozenset()
        self._stand_ins: dict[tuple[str, int], RunMemory] = {}
        self.waited: set[str] = set()
        plan, control_flow = owner.plan, owner.control_flow
        self.feeds = ArrayRecords((i.dtype.stored, len(i.dims)) for i in plan.inputs)
        # Native code asks for the outputs whose shapes are known from the start, and no others.
        known = [plan.outputs[k] for k in owner.image.later[0]] if owner.mapped else plan.outputs
        self.given = ArrayRecords((o.dtype.stored, len(o.dims)) for o in known)
        # Kernels write to it when something is wrong; the host finds it there without a copy.
        self._found = PinnedWords(owner.device, _FAULT_WORDS + 1)
        self._fault = self._found.view.cast("q")
        # Behind the contexts there are zeros: nothing cancels a kernel, no thread block has drawn
        # a ticket, and no thread has found a fault.
        arena = owner.device_memory.arena
        self._contexts = RunMemory(arena, "contexts of kernels", uses=uses)
        self._lanes = control_flow.lanes if control_flow is not None else {}
        self._contexts.grow(self._lane_place(self._lane_count))
        tables = [self.table("arguments")]
        world = tables[0]
        self._control_flow = control_flow
        self.is_patient = control_flow is None or not control_flow.has_loops
        self.passes: dict[int, int] = {}
        self._unscheduled = control_flow.unscheduled if control_flow is not None else ()
        if control_flow is not None:
            tables = [self.table(name) for name in TABLES[:-1]]
            first, last = (self._places[TABLES[k]] for k in (0, -2))
            world = self.words[first.start : last.stop]
        self.launches = Launches(
            arena, owner.module, owner.image, self.table("jobs"), self.table("arguments"),
            (world, tables), self._contexts.address, self.queue, owner.mapped, uses,
        )  # fmt: skip
        # Libraries get copies from the start: there are no runs without a graph meanwhile.
        self.stands_in = control_flow is not None and bool(self.launches.moving)
        self._set("launches", self.launches.address)
        self._set("launcher", self.launches.launcher)
        several = control_flow is not None and bool(control_flow.counted)
        self.graphs = Graphs(_GRAPHS_OF_LOOPS if several else len(owner.stretches))
        self.lane = 0
        self._workspaces = [
            RunMemory(arena, "what libraries work in", uses=uses) for _ in range(self._lane_count)
        ]

    def __del__(self) -> None:
        super().__del__()
        if hasattr(self, "own_queue"):
            self._device.take_back(self.own_queue)
        if hasattr(self, "copies"):
            self.copies.close()

    def supply(self, segment: int) -> None:
        """See `Frame.supply`; kernels learn where they may work, too."""
        if self.is_mapped:  # kernels may be under way in what is too small
            self.queue.synchronize()
        super().supply(segment)
        each = -(-max(self.get("scratch_bytes"), self._schedule_rest()) // 64) * 64
        warps = self._device.processors * PER_PROCESSOR * THREADS[1]
        if each:
            warps = max(THREADS[1], min(warps, _MOST_SCRATCH // each))
            self.scratch.grow(each * warps)
        self.launches.limit(warps)
        if self._control_flow is not None:
            self.passes = self._control_flow.passes(self.table("slots"))
            self.launches.bucket += bytes(self.passes.values())
        self._place_contexts(self.scratch.address, each)

    def grow(self) -> None:
        """See `Frame.grow`."""
        self.queue.synchronize()
        super().grow()

    def _schedule_rest(self) -> int:
        """Schedule what native code leaves to the device; gives the most that it works in."""
        slots, most = self.table("slots"), 0
        jobs = self.table("jobs").reshape(-1, JOB.words)
        for number in self._unscheduled:
            blocks, scratch = self._image.slots_of(number)
            is_known = not self._image.tape.segment_of[blocks]
            # Else a control step says how many there are: a kernel does them with what it was
            # given.
            some = THREADS[1] * self._device.processors
            jobs[number, JOB["blocks"]] = slots[blocks] if is_known else some
            most = max(most, int(slots[scratch]))
        return most

    @property
    def _lane_count(self) -> int:
        """How many kernels may run side by side, at most."""
        return 1 + max(self._lanes.values(), default=0)

    def _lane_place(self, lane: int) -> int:
        """Where, behind the contexts, the tickets of a lane are, and the lock of its faults."""
        return (len(self._image.plan.commands) + 1) * SIZE_BYTES + lane * (FAULT_LOCK + SIZE_BYTES)

    def _place_contexts(self, scratch: int, each_bytes: int) -> None:
        """Tell kernels where they may work, and where faults go."""
        count = len(self._image.plan.commands)
        whole = np.zeros(self._lane_place(self._lane_count) // WORD, np.int64)
        table = whole[: count * SIZE_BYTES // WORD].reshape(count, -1)
        address = self._contexts.address
        table[:, FIELDS["fault"] // WORD] = self._found.address
        table[:, FIELDS["scratch"] // WORD] = scratch
        table[:, FIELDS["scratch_bytes"] // WORD] = each_bytes
        table[:, FIELDS["command"] // WORD] = np.arange(count)
        table[:, FIELDS["cancel"] // WORD] = address + count * SIZE_BYTES
        commands = self._image.plan.commands
        turns = [k for k, step in enumerate(commands) if not isinstance(step, Command)]
        table[turns, FIELDS["cancel"] // WORD] = self._found.address + WORD * _STOP
        table[:, FIELDS["tickets"] // WORD] = address + self._lane_place(0)
        for number, lane in self._lanes.items():
            table[number, FIELDS["tickets"] // WORD] = address + self._lane_place(lane)
        kept = staging.upload(address, whole, self.queue)
        self.queue.keep(self.queue.record(), kept)

    def new_replay(self, count: int, writes: Sequence[tuple[int, int, int]]) -> Replay:
        """How a graph is replayed; for the arguments see `Replay`."""
        return Replay(self._device, self.launches, self._found.address, count, writes)

    @property
    def image(self) -> PlanTables:
        """The plan."""
        return self._image

    def skip(self) -> None:
        """Let native code do what comes before the commands, but no command."""
        self.go_on(len(self._image.plan.commands))

    def capture(self, walk: Callable[[], None]) -> RunGraph:
        """A graph of what `walk` launches, whose kernels look their arguments up in the table.

        Raises:
            SardonyxError: The driver captures it not.
        """
        # A caller's stream may be one that cannot be captured; a graph runs in any.
        self.launches.use_stream(self.own_queue)
        self.launches.use_table()
        try:
            with self._device.capturing:
                return RunGraph(self.own_queue, walk)
        finally:
            self.launches.use_arguments()
            self.launches.use_stream(self.queue)

    @property
    def workspace_bytes(self) -> int:
        """How much memory there is for calls of libraries."""
        return self._workspaces[self.lane].capacity_bytes

    def work_in(self, size_bytes: int) -> int:
        """The address of so much memory for calls of libraries."""
        if size_bytes > self._workspaces[self.lane].capacity_bytes:
            self.queue.synchronize()
            self.graphs.release()  # they know where it was
            self._workspaces[self.lane].grow(size_bytes)
        return self._workspaces[self.lane].address

    def stand_in(self, kind: str, number: int, size_bytes: int) -> int:
        """The address of memory in place of an input or an output, the same in all runs."""
        memory = self._stand_ins.get((kind, number))
        if memory is None:
            purpose = f"a copy of {kind} {number} for libraries"
            memory = RunMemory(self.memory.arena, purpose, uses=self._uses)
            self._stand_ins[kind, number] = memory
        if size_bytes > memory.capacity_bytes:
            self.queue.synchronize()
            memory.grow(size_bytes)
        return memory.address

    def copy_in(self, number: int, feed: CudaArray) -> int:
        """The address of a copy of a feed, in the order of the run."""
        address = self.stand_in("input", number, feed.nbytes)
        if feed.nbytes:
            call("cuMemcpyAsync", address, feed.address, feed.nbytes, self.queue.handle)
        return address

    def copy_out(self, made: Mapping[int, CudaArray]) -> None:
        """Bring results from where libraries wrote them; by number of the output."""
        for number, array in made.items():
            source = self._stand_ins["output", number].address
            if array.nbytes:
                call("cuMemcpyAsync", array.address, source, array.nbytes, self.queue.handle)

    # -- runs that nobody waits for -----------------------------------------------------------

    def may_run_in(self, queue: Stream | None) -> bool:
        """Whether a run in a stream (None: its own) need not wait for the one before."""
        busy = self.busy
        return busy is None or busy[0] is (queue or self.own_queue) or busy[1].is_done

    def begin(self, queue: Stream | None) -> bool:
        """Before a run in a stream; gives whether one has happened for which nobody waited."""
        chosen = queue or self.own_queue
        self.waited.clear()
        if chosen is not self.queue:
            self.queue = chosen
            self.launches.use_stream(chosen)
        busy = self.busy
        if busy is not None and self._fault[_STOP]:  # else loops of the next run would end, too
            busy[1].synchronize()
        if busy is None or not busy[1].is_done:
            return False
        self.busy = None
        return True

    def left(self, event: Event) -> None:
        """Its run is under way, and nobody waits for it."""
        self.busy = (self.queue, event)
        self._uses[self.queue] = event
        self.launches.left(event)

    def wait(self) -> None:
        """Wait for a run for which nobody waited."""
        busy = self.busy
        if busy is not None:
            busy[1].synchronize()
            busy[0].forget()

    def stop(self) -> None:
        """Let loops of the device end soon."""
        self._found.words[_STOP] = 1

    def finish(self, cancel: CancelFlag | None = None) -> None:
        """Wait for a run on the host; with loops of the device it ends early if `cancel` is set."""
        if self.is_patient:
            self.queue.synchronize()
            self.copies.finish()
            return
        end, start, looks = self.queue.record(), time.monotonic(), 0
        while not end.is_done:
            looks += 1
            if looks % _LOOKS:
                continue
            if cancel is not None and cancel.is_set:
                self.stop()
            if end.is_over:
                break
            if time.monotonic() - start > _PATIENCE_SECONDS:
                time.sleep(_PAUSE_SECONDS)
        self.queue.synchronize()
        self.copies.finish()

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
        with self._device.entered():
            for lane in range(self._lane_count):
                lock = self._contexts.address + self._lane_place(lane) + FAULT_LOCK
                call("cuMemsetD8Async", lock, 0, WORD, self.own_queue.handle)
            self.own_queue.synchronize()  # the next run may be in another stream
        return found
