"""Frames, each leased to one run at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

from sardonyx.base.errors import SardonyxError
from sardonyx.runtime.frame import Frame

FrameT = TypeVar("FrameT", bound=Frame)


class FramePool(Generic[FrameT]):
    """The frames of an executable.

    A handler of signals may raise anywhere in a run, between two steps that belong together. What
    the frame says of itself cannot be relied on then, so it is never used again.

    Args:
        make: Makes one.
        symbols: Where in its table of slots each symbol of the plan stands.

    Attributes:
        free: Those that no run has; the last one is taken first.
        held: All of them.
    """

    def __init__(self, make: Callable[[], FrameT], symbols: Mapping[str, int]) -> None:
        self.free: list[FrameT] = []
        self.held: list[FrameT] = []
        self.make, self._symbols = make, symbols

    def take(self) -> FrameT:
        """A frame that no other run gets before `let_go`."""
        try:
            return self.free.pop()
        except IndexError:
            frame = self.make()
            self.held.append(frame)
            return frame

    def let_go(self, frame: FrameT, sound: bool) -> None:
        """End a lease; the frame is sound if the run came to its end, or to an error of ours."""
        if sound:
            self.free.append(frame)
        else:
            self.forget(frame)

    def forget(self, frame: FrameT) -> None:
        """Drop a frame that a run has."""
        with contextlib.suppress(ValueError):
            self.held.remove(frame)

    @contextmanager
    def lease(self) -> Iterator[FrameT]:
        """A frame that no other run has meanwhile."""
        frame, sound = self.take(), False
        try:
            yield frame
            sound = True
        except SardonyxError:
            sound = True
            raise
        finally:
            frame.host = None
            self.let_go(frame, sound)

    @property
    def arena_bytes(self) -> int:
        """Memory held for intermediate values, by all frames together."""
        return sum(frame.capacity_bytes for frame in self.held)

    def __len__(self) -> int:
        """How many runs there have been at once."""
        return len(self.held)

    @property
    def sizes(self) -> dict[str, int]:
        """What symbols stood for in the last run; empty before the first."""
        for frame in self.free[-1:]:
            if frame.results:
                return self.sizes_in(frame)
        return {}

    def sizes_in(self, frame: FrameT) -> dict[str, int]:
        """What symbols stood for in the last run of a frame."""
        slots = frame.table("slots")
        return {name: int(slots[at]) for name, at in self._symbols.items()}

    def cancel(self) -> None:
        """Ask all runs that are in native code now to end: they raise Fail."""
        for frame in list(self.held):
            frame.cancel()

    def trim(self) -> None:
        """Give back the memory of frames that no run has."""
        while True:
            try:
                self.held.remove(self.free.pop())
            except IndexError:
                return
