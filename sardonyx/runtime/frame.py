"""The state of one run: dimensions, addresses, arguments, fault record, cancel flag, arena."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sardonyx.base.errors import message
from sardonyx.base.interrupt import Interrupted
from sardonyx.native.layout import FRAME, HOLE, JOB, LARGEST_BYTES, STATE, WORD
from sardonyx.runtime.arena import Memory, Words, address_of, aligned_words
from sardonyx.runtime.arrays import NATIVE
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.host_calls import HostTable
from sardonyx.runtime.largest import largest_values, writer_of
from sardonyx.runtime.plan_tables import PlanTables
from sardonyx.runtime.recycled import Recycled
from sardonyx.runtime.size_sources import find_maker

#: A run that is estimated to take no longer is not worth to let go of Python's lock, or a thread.
SHORT_NS = 20_000

#: Shape and element type of an output.
Result = tuple[tuple[int, ...], np.dtype[Any]]


class Frame:
    """Leased to one run at a time; what it learned about the feeds' shapes stays in it.

    Attributes:
        address: Where native code finds it.
        words: The record FRAME, and behind it its tables.
        arenas: The plan's intermediate values, by segment.
        results: Shape and dtype of every output as last resolved; None if not yet known.
        recycled: Memory for them.
        threads: How many threads the last resolved shapes are worth.
        is_known: Whether `results` are those of all runs with such shapes, and no host takes part.
        is_short: Whether such runs are over sooner than Python's lock is handed on.
        scratch: Memory of the calling thread.
        host: The objects of the run that has the frame, where the plan has any.
        late: What `HostEpilogue` knows of values' places; None after these have changed.
    """

    __slots__ = (
        "_budget", "_grown", "_image", "_places", "_reserved_bytes", "address", "arenas", "host",
        "is_known", "is_short", "epilogue", "recycled", "results", "scratch", "threads", "words",
    )  # fmt: skip

    def __init__(
        self,
        image: PlanTables,
        functions: int = 0,
        budget: Budget | None = None,
        memory: Callable[[str, Budget | None], Memory] = Memory,
    ) -> None:
        self._image = image
        self._budget = budget or Budget()
        self._reserved_bytes = [0] * len(image.plan.segments)
        plan, tape = image.plan, image.tape
        holes = sum(b.kind == "arena" for b in plan.buffers) + 2
        counts = {
            "slots": len(tape.slots),
            "dims": len(image.axes),
            "bases": len(plan.buffers) + 1,
            "offsets": len(plan.buffers),
            "arguments": len(image.arguments),
            "jobs": JOB.words * len(plan.commands),
            "free": HOLE.words * holes,
            "states": STATE.words * len(plan.segments),
            "capacities": plan.grown_count,
            "positions": image.part_count,
        }
        # Each table starts on a cache line.
        rounded = {name: -(-max(1, count) // 8) * 8 for name, count in counts.items()}
        self.words: Words = aligned_words(FRAME.words + sum(rounded.values()))
        self.address = address_of(self.words)
        self._places: dict[str, slice] = {}
        start = FRAME.words
        for name, count in counts.items():
            self._places[name] = slice(start, start + count)
            self._set(name, self.address + WORD * start)
            start += rounded[name]
        self.table("slots")[:] = tape.slots
        self.table("arguments")[:] = image.arguments
        for buffer, number in image.buffers_of("constant"):
            self.table("bases")[buffer] = image.addresses[number]
        values = "intermediate values"
        self.arenas = [memory(values, self._budget) for _ in plan.segments]
        grown = [memory("a value that grows", self._budget) for _ in range(plan.grown_count)]
        self._grown = grown
        self.scratch = memory("what kernels work in", self._budget)
        self.results: list[Result | None] = []
        self.recycled = Recycled()
        self.threads = 0
        self.is_known = self.is_short = False
        self.host: HostTable | None = None
        self.epilogue: Any = None
        self._set("image", image.address)
        self.watch(None)
        self._set("context_fault", self.address + WORD * FRAME["fault"])
        self._set("context_functions", functions)

    def _set(self, name: str, value: int) -> None:
        self.words[FRAME[name]] = value

    def get(self, name: str) -> int:
        """A word of the record."""
        return int(self.words[FRAME[name]])

    def table(self, name: str) -> Words:
        """One of the tables behind the record."""
        return self.words[self._places[name]]

    def state(self, segment: int, name: str) -> int:
        """A word of what the frame knows of a segment."""
        return int(self.table("states")[segment * STATE.words + STATE[name]])

    def _set_state(self, segment: int, name: str, value: int) -> None:
        self.table("states")[segment * STATE.words + STATE[name]] = value

    @property
    def capacity_bytes(self) -> int:
        """All memory for intermediate values."""
        return sum(memory.capacity_bytes for memory in (*self.arenas, *self._grown))

    def invalidate(self) -> None:
        """Make the next run resolve again."""
        self._set("valid", 0)
        self.is_known = self.is_short = False

    def watch(self, address: int | None) -> None:
        """Let another word be the cancel flag; None for the frame's own."""
        own = self.address + WORD * FRAME["cancel_word"]
        for name in ("cancel", "context_cancel"):
            self._set(name, own if address is None else address)

    def cancel(self) -> None:
        """Ask the run that has the frame to end."""
        self._set("cancel_word", 1)

    def checkpoint(self) -> None:
        """Raise `Interrupted` if the run that has the frame shall end."""
        if ctypes.c_int64.from_address(self.get("cancel")).value:
            raise Interrupted

    def prepare(self) -> None:
        """After `resolve` of the first segment: memory and output shapes.

        Raises:
            InvalidArgument: An output would have a negative dimension.
            OutOfMemory: The system refuses the memory, or the session may not have it.
        """
        try:
            known = set(self._image.later[0])
            count = len(self._image.plan.outputs)
            self.results = [self.result(k) if k in known else None for k in range(count)]
            self.recycled.expect(self.results)
            self.reserve_results(0)
            self.supply(0)
        except BaseException:
            self.invalidate()
            raise
        # What a later segment is worth is known too late, and what parts are when they begin.
        several, team = len(self.arenas) > 1, self._image.team
        self.threads = team.size if several or self._image.part_count else self.get("threads")
        self.is_known = NATIVE and self._image.is_known
        may_be_short = NATIVE and (self._image.is_known or self._image.ends_on_host)
        self.is_short = may_be_short and not several and self._is_short()

    def _is_short(self) -> bool:
        """Whether a run is estimated to be short on one thread, the only segment being resolved."""
        jobs = self.table("jobs").reshape(-1, JOB.words)
        threads = np.maximum(jobs[:, JOB["threads"]], 1)
        return int((jobs[:, JOB["cost"]] * threads).sum()) <= SHORT_NS

    def result(self, number: int) -> Result:
        """Shape and dtype of an output, once its segment is resolved.

        Raises:
            InvalidArgument: A dimension is negative; see `PlanTables.misfit`.
        """
        spec = self._image.plan.outputs[number]
        shape = tuple(self.table("slots")[self._image.output_slots[number]].tolist())
        if any(size < 0 for size in shape):
            slots = self.table("slots")
            blamed = find_maker(self._image, slots, spec.segment, LARGEST_BYTES)
            what = f"The shape of the output {spec.name} would be {shape} for these feeds"
            where = f"output {spec.name}" if blamed is None else blamed.where
            raise self._image.misfit(slots, spec.segment)(message(where, what))
        return shape, spec.dtype.stored

    def reserve_results(self, segment: int) -> None:
        """Count the results whose sizes a segment has brought as held, until the next such run.

        Raises:
            OutOfMemory: The session may not have so much.
        """
        size_bytes = sum(_bytes_of(self.result(k)) for k in self._image.later[segment])
        self._budget.give(self._reserved_bytes[segment])
        self._reserved_bytes[segment] = 0
        self._budget.take(size_bytes, "results", self._largest)
        self._reserved_bytes[segment] = size_bytes

    def __del__(self) -> None:
        self._budget.give(sum(self._reserved_bytes))

    def _largest(self) -> str:
        stamps = range(1, len(self.arenas))
        resolved = frozenset([0, *(k for k in stamps if self.state(k, "stamp"))])
        return largest_values(self._image, self.table("slots"), resolved)

    def supply(self, segment: int) -> None:
        """Give a resolved segment the memory that it needs.

        Raises:
            OutOfMemory: The system refuses, or the session may not have so much.
        """
        arena = self.arenas[segment]
        self.epilogue = None
        try:
            arena.grow(self.state(segment, "arena_bytes"), largest=self._largest)
        finally:
            self._set_state(segment, "arena", arena.address)
            self._set_state(segment, "capacity", arena.capacity_bytes)
            self._set_state(segment, "dirty", 1)
        try:
            self.scratch.grow(self.get("scratch_bytes"), largest=self._largest)
        finally:
            self._set("context_scratch", self.scratch.address)
            self._set("context_scratch_bytes", self.scratch.capacity_bytes)

    def give(self, segment: int, arrays: Mapping[int, Any]) -> None:
        """Give the outputs of a segment, by number, the memory of arrays."""
        for number, array in arrays.items():
            plain = isinstance(array, np.ndarray)
            address = address_of(array) if plain else array.address
            self.table("bases")[self._image.output_buffers[number]] = address
        self._set_state(segment, "given", 1)

    def note_fault(self, name: str, value: int) -> None:
        """Note the command, or one of the three numbers, of a fault that was found elsewhere."""
        self._set(f"fault_{name}", value)

    def go_on(self, command: int) -> None:
        """Let native code go on at a command."""
        self._set("command", command)

    def grow(self) -> None:
        """Give the growing buffer that the native code names what it asks for.

        Raises:
            OutOfMemory: The system refuses, or the session may not have so much.
        """
        number = self.get("detail_a")
        memory = self._grown[number]
        kept_bytes = min(self.get("detail_c"), memory.capacity_bytes)
        try:
            memory.grow(self.get("detail_b"), kept_bytes, lambda: self._grower(number))
        finally:
            self.table("capacities")[number] = memory.capacity_bytes
            for buffer, which in self._image.buffers_of("grown"):
                if which == number:
                    self.table("bases")[buffer] = memory.address

    def _grower(self, number: int) -> str:
        """The nodes that write a growing buffer, in words."""
        buffers = [b for b, which in self._image.buffers_of("grown") if which == number]
        named = dict.fromkeys(writer_of(self._image.plan, b) for b in buffers)
        return "It is written by " + ", ".join(filter(None, named)) if any(named) else ""


def _bytes_of(result: Result) -> int:
    shape, dtype = result
    return math.prod(shape) * dtype.itemsize
