"""Free blocks of an arena, by size."""

from __future__ import annotations

import bisect
import contextlib
from typing import TypeAlias

from sardonyx.cuda.driver.stream import Event, Stream

Use: TypeAlias = "tuple[Stream | None, Event]"


class FreeSpan:
    """A part of a region: used by one block, or free."""

    __slots__ = ("address", "after", "before", "events", "is_free", "purpose", "region", "size")

    def __init__(self, address: int, size: int, region: int) -> None:
        self.address, self.size, self.region = address, size, region
        self.before: FreeSpan | None = None
        self.after: FreeSpan | None = None
        self.is_free = True
        self.purpose = ""
        #: What must have happened before it is used again, each with its stream.
        self.events: list[Use] = []


class FreeSpans:
    """Which are there; for one thread at a time.

    Args:
        is_host: Whether the processor works in them, too: then one is free only when nothing that
            the device does with it is under way.
    """

    def __init__(self, is_host: bool) -> None:
        self._is_host = is_host
        self._bins: dict[int, list[FreeSpan]] = {}
        self._sizes: list[int] = []

    def put(self, span: FreeSpan) -> None:
        """A block has become free."""
        spans = self._bins.get(span.size)
        if spans is None:
            spans = self._bins[span.size] = []
            bisect.insort(self._sizes, span.size)
        spans.append(span)

    def remove(self, span: FreeSpan) -> None:
        """A block is none any more."""
        self._bins[span.size].remove(span)

    def clear(self) -> None:
        """Forget all."""
        self._bins.clear()
        self._sizes.clear()

    def tidy(self) -> None:
        """Forget sizes of which there is none."""
        self._sizes = sorted(size for size, spans in self._bins.items() if spans)
        self._bins = {size: self._bins[size] for size in self._sizes}

    def of_size(self, wanted: int, stream: Stream | None) -> FreeSpan | None:
        """A free block of that very size for which nobody must wait."""
        spans = self._bins.get(wanted)
        if not spans:
            return None
        if not spans[-1].events:
            return spans.pop()
        return self._ready(spans, stream)

    def _ready(self, spans: list[FreeSpan], stream: Stream | None) -> FreeSpan | None:
        """Of free blocks one that `stream` may use now; memory of the host if nothing works in it.

        A block that another stream still works in would make one stream wait for the other, where
        both could work at once.
        """
        any_stream = None if self._is_host else stream
        for span in spans[::-1]:
            if all((x and x is any_stream) or e.is_done for x, e in span.events):
                # While the driver was asked, the collector may have given blocks back, and so
                # joined this one to its neighbours.
                with contextlib.suppress(ValueError):
                    spans.remove(span)
                    return span
        return None

    def best(self, wanted: int, stream: Stream | None, *, waits: bool = False) -> FreeSpan | None:
        """The smallest free block that is large enough; with `waits` also one in use elsewhere."""
        for size in self._sizes[bisect.bisect_left(self._sizes, wanted) :]:
            spans = self._bins.get(size, [])
            found = spans.pop() if waits and spans else self._ready(spans, stream)
            if found is not None:
                return found
        return None
