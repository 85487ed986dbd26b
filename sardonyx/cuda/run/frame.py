"""The state of one run on a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.memory.copies import Copies
from sardonyx.cuda.run.argument_table import ArgumentTable
from sardonyx.cuda.run.graphs import Graphs, RunGraph
from sardonyx.cuda.run.kernel_contexts import KernelContexts
from sardonyx.cuda.run.launching import PER_PROCESSOR, Launches
from sardonyx.cuda.run.library_memory import LibraryMemory
from sardonyx.cuda.run.replaying import Replay
from sardonyx.llvm.ptx import THREADS
from sardonyx.native.layout import JOB
from sardonyx.plan.control_flow import TABLES
from sardonyx.runtime.array_records import ArrayRecords
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.frame import Frame, Result

if TYPE_CHECKING:
    from sardonyx.cuda.memory.values import CudaArray
    from sardonyx.cuda.run.device_state import DeviceState
    from sardonyx.cuda.run.last_run import LastRun
    from sardonyx.cuda.run.timing import Timeline
    from sardonyx.runtime.plan_tables import PlanTables

#: All warps of a run together work in at most so much.
_MOST_SCRATCH = 1 << 30
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
        contexts: Those of its kernels, with the record of their faults.
        libraries: Memory for their calls.
        is_mapped: Whether the host controls its runs.
        is_patient: Whether the host need do nothing but wait for its runs.
        make: Makes memory for a result of a run that the host controls, by number.
        feeds, given: Its inputs, and outputs of known shapes, as native code sees them.
        launches: How its kernels reach the device.
        graphs: Its captured runs.
        graph: What its last run was, if that was one.
        last_run: What the next run is compared with; None if that must go the long way.
        trips_by_round: How many trips a round of a loop of the device has, by the loop's last
            control step.
        waited: Libraries whose work it waits for already.
        busy: The stream and the end of a run that nobody waited for.
    """

    __slots__ = (
        "_control_flow", "_device", "_unscheduled", "_uses", "busy", "contexts", "copies", "feeds",
        "given", "graph", "graphs", "is_mapped", "is_patient", "last_run", "launches",
        "libraries", "make", "memory", "own_queue", "queue", "timeline", "trips_by_round", "waited",
    )  # fmt: skip

    def __init__(self, owner: DeviceState) -> None:
        self._device, self.memory, self.is_mapped = owner.device, owner.memory, owner.mapped
        self._uses: dict[Stream | None, Event] = {}
        uses = self._uses
        super().__init__(owner.image, 0, owner.budget, lambda p, b: owner.new_memory(p, b, uses))
        self.timeline: Timeline | None = None
        self.make: Callable[[int, Result], CudaArray] | None = None
        self.queue = self.own_queue = owner.device.lend_stream()
        self.copies = Copies(owner.device if owner.copies_apart else None)
        self.busy: tuple[Stream, Event] | None = None
        self.graph: RunGraph | None = None
        self.last_run: LastRun | None = None
        self.waited: set[str] = set()
        plan, control_flow = owner.plan, owner.control_flow
        self.feeds = ArrayRecords((i.dtype.stored, len(i.dims)) for i in plan.inputs)
        # Native code asks for the outputs whose shapes are known from the start, and no others.
        known = [plan.outputs[k] for k in owner.image.later[0]] if owner.mapped else plan.outputs
        self.given = ArrayRecords((o.dtype.stored, len(o.dims)) for o in known)
        self.contexts = KernelContexts(owner, self.own_queue, uses)
        tables = [self.table("arguments")]
        world = tables[0]
        self._control_flow = control_flow
        self.is_patient = control_flow is None or not control_flow.has_loops
        self.trips_by_round: dict[int, int] = {}
        self._unscheduled = control_flow.unscheduled if control_flow is not None else ()
        if control_flow is not None:
            tables = [self.table(name) for name in TABLES[:-1]]
            first, last = (self._places[TABLES[k]] for k in (0, -2))
            world = self.words[first.start : last.stop]
        self.launches = Launches(
            owner, self.table("jobs"), self.table("arguments"),
            ArgumentTable(owner, world, tables, uses), self.contexts.address, self.queue,
        )  # fmt: skip
        self._set("launches", self.launches.address)
        self._set("launcher", self.launches.launcher)
        several = control_flow is not None and bool(control_flow.counted)
        self.graphs = Graphs(_GRAPHS_OF_LOOPS if several else len(owner.stretches))
        self.libraries = LibraryMemory(
            owner.memory.arena, self.graphs, self.contexts.lane_count, uses
        )
        # Libraries get copies from the start: there are no runs without a graph meanwhile.
        self.libraries.stands_in = control_flow is not None and bool(self.launches.moving)

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
            self.trips_by_round = self._control_flow.trips_by_round(self.table("slots"))
            self.launches.bucket += bytes(self.trips_by_round.values())
        self.contexts.fill(self.scratch.address, each, self.queue)

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

    def new_replay(self, count: int, writes: Sequence[tuple[int, int, int]]) -> Replay:
        """How a graph is replayed; for the arguments see `Replay`."""
        return Replay(self._device, self.launches.table, self.contexts.faults, count, writes)

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
        if (
            busy is not None and self.contexts.is_stopping
        ):  # else loops of the next run would end, too
            busy[1].synchronize()
        if busy is None or not busy[1].is_done:
            return False
        self.busy = None
        return True

    def left(self, event: Event) -> None:
        """Its run is under way, and nobody waits for it."""
        self.busy = (self.queue, event)
        self._uses[self.queue] = event
        self.launches.table.left(event)

    def wait(self) -> None:
        """Wait for a run for which nobody waited."""
        busy = self.busy
        if busy is not None:
            busy[1].synchronize()
            busy[0].forget()

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
                self.contexts.stop()
            if end.is_over:
                break
            if time.monotonic() - start > _PATIENCE_SECONDS:
                time.sleep(_PAUSE_SECONDS)
        self.queue.synchronize()
        self.copies.finish()
