"""Memory that is taken from the driver in large regions and used again and again.

A block is free as soon as nothing refers to it, although a stream may still work in it: who gets it
next waits, on the device, for the events that were recorded meanwhile. Neighbouring free blocks
become one only when no free block is large enough.
"""

from __future__ import annotations

import bisect
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from sardonyx.base.errors import InvalidArgument, OutOfMemory, SardonyxError, message
from sardonyx.base.forks import RenewedLock
from sardonyx.cuda.sources import Source
from sardonyx.cuda.stream import Event, Stream

_ALIGNMENT = 256
#: The first region under kNextPowerOfTwo, and the largest step by which regions grow.
_FIRST_REGION = 1 << 20
_LARGEST_STEP = 1 << 30
#: A remainder of at least so much is a block of its own.
_SMALLEST_REMAINDER = 4096
#: Handles of the default stream, which no library can end.
_LASTING = frozenset((0, 1))
STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")


class ArenaSettings(NamedTuple):
    """How an arena grows.

    Attributes:
        limit_bytes: The most that its regions may have together.
        strategy: One of `STRATEGIES`.
        first_bytes: Size of the first region, with kNextPowerOfTwo.
        limit_name: What the limit is called in errors.
    """

    limit_bytes: int = (1 << 64) - 1
    strategy: str = STRATEGIES[0]
    first_bytes: int = _FIRST_REGION
    limit_name: str = "gpu_mem_limit"

    def checked(self) -> ArenaSettings:
        """These settings.

        Raises:
            InvalidArgument: There is no such strategy.
        """
        if self.strategy not in STRATEGIES:
            raise InvalidArgument(
                message(
                    "arena_extend_strategy", "There is no such strategy",
                    expected=f"one of {STRATEGIES}", got=self.strategy,
                )
            )  # fmt: skip
        return self


_Use: TypeAlias = "tuple[Stream | None, Event]"


class _Span:
    """A part of a region: used by one block, or free."""

    __slots__ = ("address", "after", "before", "events", "is_free", "purpose", "region", "size")

    def __init__(self, address: int, size: int, region: int) -> None:
        self.address, self.size, self.region = address, size, region
        self.before: _Span | None = None
        self.after: _Span | None = None
        self.is_free = True
        self.purpose = ""
        #: What must have happened before it is used again, each with its stream.
        self.events: list[_Use] = []


class Block:
    """Memory of an arena, until nothing refers to it.

    Attributes:
        address, size_bytes: Where it is; at least what was asked for.
        uses: For each stream the end of the last work in it that nobody waited for.
        lent: Handles of the streams in which other libraries had it; -1 for any.
    """

    __slots__ = ("_arena", "_span", "address", "lent", "size_bytes", "uses")

    def __init__(self, arena: Arena, span: _Span) -> None:
        self._arena, self._span = arena, span
        self.address, self.size_bytes = span.address, span.size
        self.uses: dict[Stream | None, Event] = {}
        self.lent: frozenset[int] = frozenset()

    def __del__(self) -> None:
        # Finalizers run anywhere, also inside the arena: it looks here when it is asked next.
        arena = self._arena
        if self.lent:
            arena._returned.append((self._span, self.uses, self.lent))
        else:
            arena._freed.append((self._span, self.uses))


class Arena:
    """Blocks of memory for any number of threads.

    Args:
        source: Where regions come from.
        settings: How it grows.
    """

    def __init__(self, source: Source, settings: ArenaSettings | None = None) -> None:
        self._source, self.settings = source, (settings or ArenaSettings()).checked()
        self._freed: deque[tuple[_Span, dict[Stream | None, Event]]] = deque()
        self._returned: deque[tuple[_Span, dict[Stream | None, Event], frozenset[int]]] = deque()
        self._bins: dict[int, list[_Span]] = {}
        self._sizes: list[int] = []
        self._regions: dict[int, tuple[_Span, int]] = {}
        self._used: dict[int, _Span] = {}
        self._next_bytes = self.settings.first_bytes
        self._lock = RenewedLock()
        self._is_searching = False
        self._owners: weakref.WeakSet[Any] = weakref.WeakSet()
        self.held_bytes = self.used_bytes = self.peak_bytes = 0

    def reclaim_from(self, owner: Any) -> None:
        """Call `owner.trim()` before the arena says that there is no memory."""
        self._owners.add(owner)

    # -- taking -------------------------------------------------------------------------------

    def allocate(
        self, size_bytes: int, purpose: str, stream: Stream | None = None, *, exact: bool = False
    ) -> Block:
        """A block that work in `stream` may use from now on, whatever used it before.

        Args:
            size_bytes: At least so much.
            purpose: What for, in words.
            stream: Where it is used first; None: anywhere, and by the host, so the host waits.
            exact: Whether a new region, if there must be one, is no larger than that.

        Raises:
            OutOfMemory: The device, or the limit, has no room. The arena is as it was.
        """
        wanted = -(-size_bytes // _ALIGNMENT) * _ALIGNMENT or _ALIGNMENT
        if self._returned:
            self._take_back()
        with self._lock:
            if self._freed:
                self._drain()
            span = self._from_bin(wanted, stream) or self._find(wanted, stream, purpose, exact)
            span.is_free, span.purpose = False, purpose
            self._used[span.address] = span
            self.used_bytes += span.size
            if self.used_bytes > self.peak_bytes:
                self.peak_bytes = self.used_bytes
            block = Block(self, span)
        if span.events:
            self._wait(span, stream)
        return block

    def _wait(self, span: _Span, stream: Stream | None) -> None:
        events, span.events = span.events, []
        self._source.device.enter()
        for home, event in events:
            if event.is_done:
                continue
            if stream is None or self._source.is_host:
                event.synchronize()
            elif home is not stream:
                stream.wait_for(event)

    def _from_bin(self, wanted: int, stream: Stream | None) -> _Span | None:
        """A free block of that very size for which nobody must wait."""
        spans = self._bins.get(wanted)
        if not spans:
            return None
        if not spans[-1].events:
            return spans.pop()
        return self._ready(spans, stream)

    def _ready(self, spans: list[_Span], stream: Stream | None) -> _Span | None:
        """Of free blocks one that `stream` may use now; memory of the host if nothing works in it.

        A block that another stream still works in would make one stream wait for the other, where
        both could work at once.
        """
        any_stream = None if self._source.is_host else stream
        for place in range(len(spans) - 1, -1, -1):
            span = spans[place]
            if all((x and x is any_stream) or e.is_done for x, e in span.events):
                return spans.pop(place)
        return None

    def _find(self, wanted: int, stream: Stream | None, purpose: str, exact: bool) -> _Span:
        found = self._best(wanted, stream)
        if found is None and not self._source.is_direct:
            self._merge()
            found = self._best(wanted, stream)
        found = found or self._extend(wanted, exact) or self._best(wanted, stream, waits=True)
        if found is None:
            self._is_searching = True
            try:
                for owner in list(self._owners):
                    owner.trim()
                self.trim()
            finally:
                self._is_searching = False
            found = self._best(wanted, stream, waits=True) or self._extend(wanted, True)
        if found is None:
            raise OutOfMemory(self._refusal(wanted, purpose))
        return self._cut(found, wanted)

    def _best(self, wanted: int, stream: Stream | None, *, waits: bool = False) -> _Span | None:
        """The smallest free block that is large enough; with `waits` also one in use elsewhere."""
        for k in range(bisect.bisect_left(self._sizes, wanted), len(self._sizes)):
            spans = self._bins[self._sizes[k]]
            found = spans.pop() if waits and spans else self._ready(spans, stream)
            if found is not None:
                return found
        return None

    def _cut(self, span: _Span, wanted: int) -> _Span:
        rest = span.size - wanted
        if rest < _SMALLEST_REMAINDER or self._source.is_direct:
            return span
        other = _Span(span.address + wanted, rest, span.region)
        other.before, other.after, other.events = span, span.after, list(span.events)
        if span.after is not None:
            span.after.before = other
        span.after, span.size = other, wanted
        self._put(other)
        return span

    def _put(self, span: _Span) -> None:
        spans = self._bins.get(span.size)
        if spans is None:
            spans = self._bins[span.size] = []
            bisect.insort(self._sizes, span.size)
        spans.append(span)

    # -- giving back --------------------------------------------------------------------------

    def _drain(self) -> None:
        """Blocks to which nothing refers any more become free."""
        while self._freed:
            span, uses = self._freed.popleft()
            self._used.pop(span.address, None)
            self.used_bytes -= span.size
            span.is_free, span.purpose = True, ""
            if uses:
                span.events.extend(uses.items())
            if self._source.is_direct:
                self._release(span)
            else:
                self._put(span)

    def _take_back(self) -> None:
        """Blocks that other libraries let go of are free after all that is under way now.

        The arena is not locked: the device may be, by a thread that waits for the arena.
        """
        if not self._returned:
            return
        where = self._source.device
        where.enter()
        while self._returned:
            try:
                span, uses, handles = self._returned.popleft()
            except IndexError:  # another thread had it
                return
            if handles <= _LASTING:
                stream: Stream | None = where.stream_of(1)
                event = where.stream_of(1).record()
            else:  # other streams may have ended, or others yet may work in it
                stream, event = None, where.record()
            self._freed.append((span, {**uses, stream: event}))

    def _merge(self) -> None:
        """Free neighbours become one."""
        self._bins.clear()
        self._sizes.clear()
        for first, _ in self._regions.values():
            span: _Span | None = first
            while span is not None:
                follower = span.after
                if span.is_free and follower is not None and follower.is_free:
                    span.size += follower.size
                    span.events = [u for u in span.events + follower.events if not u[1].is_done]
                    span.after = follower.after
                    if follower.after is not None:
                        follower.after.before = span
                    continue
                if span.is_free:
                    self._put(span)
                span = follower

    def trim(self) -> None:
        """Give regions back that nobody uses a part of; waits for work in them."""
        if not self._is_searching:  # else the arena is locked
            self._take_back()
        with self._lock:
            self._drain()
            self._merge()
            for first, _ in list(self._regions.values()):
                if first.is_free and first.after is None:
                    self._bins[first.size].remove(first)
                    self._release(first)
            self._sizes = sorted(size for size, spans in self._bins.items() if spans)
            self._bins = {size: self._bins[size] for size in self._sizes}
            self._next_bytes = self.settings.first_bytes
        self._source.empty()

    def _release(self, span: _Span) -> None:
        if span.events:
            self._source.device.enter()
        for _, event in span.events:
            event.synchronize()
        _, size = self._regions.pop(span.region)
        self.held_bytes -= size
        self._source.give_back(span.region)

    def __del__(self) -> None:
        try:
            self._take_back()
            self._drain()
            for region in list(self._regions):
                self._source.give_back(region)
        except (SardonyxError, ImportError, AttributeError, TypeError):
            return  # the driver, or the interpreter, is going away

    # -- growing ------------------------------------------------------------------------------

    def _extend(self, wanted: int, exact: bool) -> _Span | None:
        """A new region; None if the limit, or the device, has no room."""
        for size in self._attempts(wanted, exact):
            try:
                address = self._source.take(size)
            except OutOfMemory:
                continue
            self.held_bytes += size
            span = _Span(address, size, address)
            self._regions[address] = (span, size)
            return span
        return None

    def _attempts(self, wanted: int, exact: bool) -> Iterator[int]:
        """Sizes of a new region to try, as far as the limit allows."""
        grows = self.settings.strategy == STRATEGIES[0] and not exact and not self._source.is_direct
        if grows:
            while self._next_bytes < wanted:
                self._next_bytes *= 2
            if self._allows(self._next_bytes):
                size, step = self._next_bytes, min(self._next_bytes, _LARGEST_STEP)
                self._next_bytes += step
                yield size
        if self._allows(wanted):
            yield wanted

    def _allows(self, size_bytes: int) -> bool:
        return self.held_bytes + size_bytes <= self.settings.limit_bytes

    def _refusal(self, wanted: int, purpose: str) -> str:
        what = f"{wanted} bytes are needed for {purpose}, beside {self.used_bytes} that are used"
        if not self._allows(wanted):
            what += f"; {self.settings.limit_name} is {self.settings.limit_bytes}"
        else:
            what += "; there is no more memory"
        listed = ", ".join(f"{size} bytes ({text})" for size, text in self.largest()[:4])
        return message("CUDA arena", what, do=f"The largest holders: {listed}" if listed else "")

    # -- what there is ------------------------------------------------------------------------

    def largest(self) -> list[tuple[int, str]]:
        """Bytes by purpose, the most first."""
        counted: Counter[str] = Counter()
        for span in list(self._used.values()):
            counted[span.purpose] += span.size
        return [(size, text) for text, size in counted.most_common()]

    def statistics(self) -> dict[str, Any]:
        """What it holds, and for what."""
        self._take_back()
        with self._lock:
            self._drain()
            return {
                "held_bytes": self.held_bytes, "used_bytes": self.used_bytes,
                "peak_bytes": self.peak_bytes, "limit_bytes": self.settings.limit_bytes,
                "largest": self.largest(),
            }  # fmt: skip


_registered: dict[tuple[str, int], Arena] = {}
_making = RenewedLock()
_default: dict[tuple[str, int], Arena] = {}


def arena_of(kind: str, number: int, make: Callable[[], Arena]) -> Arena:
    """The arena that values without a session share: a registered one, or the default."""
    with _making:
        found = _registered.get((kind, number)) or _default.get((kind, number))
        if found is None:
            found = _default[kind, number] = make()
        return found


def register(kind: str, number: int, arena: Arena) -> None:
    """Let sessions that ask for shared arenas use this one.

    Raises:
        InvalidArgument: There is one already.
    """
    with _making:
        if (kind, number) in _registered:
            what = f"There is an allocator for {kind} {number} already"
            raise InvalidArgument(message("create_and_register_allocator", what))
        _registered[kind, number] = arena


def registered(kind: str, number: int) -> Arena | None:
    """The arena that was registered, if any."""
    return _registered.get((kind, number))
