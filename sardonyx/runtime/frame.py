"""The state of one run: dimensions, addresses, arguments, fault record, cancel flag, arena."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.arena import Memory, Words, address_of, aligned_words
from sardonyx.runtime.image import Image
from sardonyx.runtime.native_layout import FRAME, HOLE, JOB, WORD


class Frame:
    """Leased to one run at a time; what it learned about the feeds' shapes stays in it.

    Attributes:
        address: Where native code finds it.
        words: The record FRAME, and behind it its tables.
        arena: The plan's intermediate values.
        results: Shape and dtype of every output, as last resolved.
        threads: How many threads the last resolved shapes are worth.
        scratch_bytes: What each thread needs.
    """

    __slots__ = (
        "_image", "_places", "address", "arena", "results", "scratch", "scratch_bytes",
        "threads", "words",
    )  # fmt: skip

    def __init__(self, image: Image, functions: int = 0) -> None:
        self._image = image
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
            self.table("bases")[buffer] = address_of(image.constants[number])
        self.arena, self.scratch = Memory("arena"), Memory("scratch")
        self.results: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        self.threads = self.scratch_bytes = 0
        self._set("image", image.address)
        self._set("cancel", self.address + WORD * FRAME["cancel_word"])
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

    def invalidate(self) -> None:
        """Make the next run resolve again."""
        self._set("valid", 0)

    def watch(self, address: int | None) -> None:
        """Let another word be the cancel flag; None for the frame's own."""
        own = self.address + WORD * FRAME["cancel_word"]
        self._set("cancel", own if address is None else address)

    def cancel(self) -> None:
        """Ask the run that has the frame to end."""
        self._set("cancel_word", 1)

    def prepare(self) -> None:
        """After `resolve`: memory and output shapes.

        Raises:
            InvalidArgument: An output would have a negative dimension.
            OutOfMemory: The system refuses the memory.
        """
        slots = self.table("slots")
        self.results = []
        for spec, places in zip(self._image.plan.outputs, self._image.output_slots, strict=True):
            shape = tuple(slots[places].tolist())
            if any(size < 0 for size in shape):
                self.invalidate()
                what = f"Its shape would be {shape} for these feeds"
                raise InvalidArgument(message(f"output {spec.name}", what))
            self.results.append((shape, spec.dtype.numpy))
        self.threads, self.scratch_bytes = self.get("threads"), self.get("scratch_bytes")
        try:
            self.arena.grow(self.get("arena_bytes"))
            self.scratch.grow(self.scratch_bytes)
        except MemoryError:
            self.invalidate()
            raise
        self._set("arena", self.arena.address)
        self._set("context_scratch", self.scratch.address)
        self._set("context_scratch_bytes", self.scratch.capacity_bytes)
