"""Memory that is taken from the driver in large regions and used again and again.

A block is free as soon as nothing refers to it, although a stream may still work in it: who gets it
next waits, on the device, for the events that were recorded meanwhile. Neighbouring free blocks
become one only when no free block is large enough.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from sardonyx.base.errors import InvalidArgument, OutOfMemory, SardonyxError, message
from sardonyx.base.forks import RenewedLock, lock_over_forks
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.memory.free_spans import FreeSpan, FreeSpans
from sardonyx.cuda.memory.order import Order
from sardonyx.cuda.memory.sources import MemorySource

if TYPE_CHECKING:
    from sardonyx.cuda.driver.device import Device

_ALIGNMENT = 256
_NOBODY: frozenset[int] = frozenset()
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


class MemoryBlock(Order):
    """Memory of an arena, until nothing refers to it; it has the order of work on it.

    Attributes:
        address, size_bytes: Where it is; at least what was asked for.
        lent: Handles of the streams in which other libraries had it; -1 for any.
    """

    __slots__ = ("_arena", "_span", "address", "lent", "size_bytes")

    def __init__(self, arena: Arena, span: FreeSpan) -> None:
        self.uses, self.written = {}, None
        self._arena, self._span = arena, span
        self.address, self.size_bytes = span.address, span.size
        self.lent = _NOBODY

    def __del__(self) -> None:
        # Finalizers run anywhere, also inside the arena: it looks here when it is asked next.
        arena = self._arena
        if self.lent:
            arena._returned.append((self._span, self.uses, self.lent))
        else:
            arena._freed.append((self._span, self.uses))


def block_bytes(size_bytes: int) -> int:
    """What a block of so many bytes takes."""
    return -(-size_bytes // _ALIGNMENT) * _ALIGNMENT or _ALIGNMENT


_arenas: weakref.WeakSet[Arena] = weakref.WeakSet()
_listing = lock_over_forks()


def arenas_on(device: Device) -> list[Arena]:
    """All arenas there are of a device, those of memory of the host that it reaches among them."""
    with _listing:
        return [arena for arena in _arenas if arena._source.device is device]


class Arena:
    """Blocks of memory for any number of threads.

    Args:
        source: Where regions come from.
        settings: How it grows.
    """

    def __init__(self, source: MemorySource, settings: ArenaSettings | None = None) -> None:
        self._source, self.settings = source, (settings or ArenaSettings()).checked()
        self._is_host, self._is_direct = source.is_host, source.is_direct
        self._freed: deque[tuple[FreeSpan, dict[Stream | None, Event]]] = deque()
        self._returned: deque[tuple[FreeSpan, dict[Stream | None, Event], frozenset[int]]] = deque()
        self._free = FreeSpans(source.is_host)
        self._regions: dict[int, tuple[FreeSpan, int]] = {}
        self._used: dict[int, FreeSpan] = {}
        self._next_bytes = self.settings.first_bytes
        self._lock = RenewedLock()
        self._is_searching = False
        self._owners: weakref.WeakSet[Any] = weakref.WeakSet()
        self.held_bytes = self.used_bytes = self.peak_bytes = 0
        with _listing:
            _arenas.add(self)

    def reclaim_from(self, owner: Any) -> None:
        """Call `owner.trim()` before the arena says that there is no memory."""
        self._owners.add(owner)

    # -- taking -------------------------------------------------------------------------------

    def allocate(
        self, size_bytes: int, purpose: str, stream: Stream | None = None, *, exact: bool = False
    ) -> MemoryBlock:
        """A block that work in `stream` may use from now on, whatever used it before.

        Args:
            size_bytes: At least so much.
            purpose: What for, in words.
            stream: Where it is used first; None: anywhere, and by the host, so the host waits.
            exact: Whether a new region, if there must be one, is no larger than that.

        Raises:
            OutOfMemory: The device, or the limit, has no room. The arena is as it was.
        """
        wanted = block_bytes(size_bytes)
        block = self.last_freed(wanted, purpose, stream)
        if block is not None:
            return block
        with self._lock:
            if self._freed:
                self._drain()
            span = self._free.of_size(wanted, stream) or self._find(wanted, stream, purpose, exact)
            span.is_free, span.purpose = False, purpose
            self._used[span.address] = span
            self.used_bytes += span.size
            if self.used_bytes > self.peak_bytes:
                self.peak_bytes = self.used_bytes
            block = MemoryBlock(self, span)
        if span.events:
            self._wait(span, stream)
        return block

    def last_freed(self, wanted: int, purpose: str, stream: Stream | None) -> MemoryBlock | None:
        """What was let go of last, if it fits: runs like the one before have no more to do.

        The arena goes on to count it as used. For the arguments see `allocate`; `wanted` is what
        `block_bytes` gives.
        """
        if self._returned:
            self._take_back()
        try:
            entry = self._freed.pop()
        except IndexError:
            return None
        span, uses = entry
        # Work in this stream comes later by itself.
        if (
            0 <= span.size - wanted < _SMALLEST_REMAINDER  # as it would be cut
            and not self._is_direct
            and (not uses or (stream is not None and not self._is_host and uses.keys() == {stream}))
        ):
            span.purpose = purpose
            return MemoryBlock(self, span)
        self._freed.append(entry)
        return None

    def _wait(self, span: FreeSpan, stream: Stream | None) -> None:
        events, span.events = span.events, []
        if stream is None or self._source.is_host:
            for _, event in events:
                event.synchronize()
            return
        others = [event for home, event in events if home is not stream]
        if others:
            with self._source.device.entered():
                for event in others:
                    if not event.is_done:
                        stream.wait_for(event)

    def _find(self, wanted: int, stream: Stream | None, purpose: str, exact: bool) -> FreeSpan:
        found = self._free.best(wanted, stream)
        if found is None and not self._is_direct:
            self._merge()
            found = self._free.best(wanted, stream)
        found = found or self._extend(wanted, exact) or self._free.best(wanted, stream, waits=True)
        if found is None:
            self._is_searching = True
            try:
                for owner in list(self._owners):
                    owner.trim()
                self.trim()
            finally:
                self._is_searching = False
            found = self._free.best(wanted, stream, waits=True) or self._extend(wanted, True)
        if found is None:
            raise OutOfMemory(self._refusal(wanted, purpose))
        return self._cut(found, wanted)

    def _cut(self, span: FreeSpan, wanted: int) -> FreeSpan:
        rest = span.size - wanted
        if rest < _SMALLEST_REMAINDER or self._is_direct:
            return span
        other = FreeSpan(span.address + wanted, rest, span.region)
        other.before, other.after, other.events = span, span.after, list(span.events)
        if span.after is not None:
            span.after.before = other
        span.after, span.size = other, wanted
        self._free.put(other)
        return span

    def end_of_block(self, address: int) -> int | None:
        """Where the block that has an address ends: there, if nobody has it any more.

        None if the memory is not the arena's.
        """
        with self._lock:
            self._drain()
            if not any(a <= address < a + size for a, (_, size) in self._regions.items()):
                return None
            span = self._used.get(address)
            ends = [span] if span is not None else self._used.values()
            found = (s.address + s.size for s in ends if s.address <= address < s.address + s.size)
            return next(found, address)

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
            if self._is_direct:
                self._release(span)
            else:
                self._free.put(span)

    def _take_back(self) -> None:
        """Blocks that other libraries let go of are free after all that is under way now.

        The arena is not locked: the device may be, by a thread that waits for the arena.
        """
        where = self._source.device
        if not self._returned or where.callers_captures:  # the driver looks at no stream then
            return
        while self._returned:
            try:
                span, uses, handles = self._returned.popleft()
            except IndexError:  # another thread had it
                return
            if handles <= _LASTING:
                stream: Stream | None = where.stream_of(1)
                with where.entered():
                    event = where.stream_of(1).record()
            else:  # other streams may have ended, or others yet may work in it
                stream, event = None, where.record()
            self._freed.append((span, {**uses, stream: event}))

    def _merge(self) -> None:
        """Free neighbours become one."""
        self._free.clear()
        for first, _ in self._regions.values():
            span: FreeSpan | None = first
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
                    self._free.put(span)
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
                    self._free.remove(first)
                    self._release(first)
            self._free.tidy()
            self._next_bytes = self.settings.first_bytes
        self._source.empty()

    def _release(self, span: FreeSpan) -> None:
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

    def _extend(self, wanted: int, exact: bool) -> FreeSpan | None:
        """A new region; None if the limit, or the device, has no room."""
        for size in self._attempts(wanted, exact):
            try:
                address = self._source.take(size)
            except OutOfMemory:
                continue
            self.held_bytes += size
            span = FreeSpan(address, size, address)
            self._regions[address] = (span, size)
            return span
        return None

    def _attempts(self, wanted: int, exact: bool) -> Iterator[int]:
        """Sizes of a new region to try, as far as the limit allows."""
        grows = self.settings.strategy == STRATEGIES[0] and not exact and not self._is_direct
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
