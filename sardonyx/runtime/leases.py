"""Frames, each leased to one run at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from sardonyx.base.errors import SardonyxError
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.plan_tables import PlanTables


class Leases:
    """The part of `executable.Executable` that has the frames; see there.

    A handler of signals may raise anywhere in a run, between two steps that belong together. What
    the frame says of itself cannot be relied on then, so it is never used again.
    """

    _image: PlanTables
    _free: list[Frame]
    _frames: list[Frame]

    def _new_frame(self) -> Frame:
        raise NotImplementedError

    def _take(self) -> Frame:
        try:
            return self._free.pop()
        except IndexError:
            frame = self._new_frame()
            self._frames.append(frame)
            return frame

    def _let_go(self, frame: Frame, sound: bool) -> None:
        """End a lease; the frame is sound if the run came to its end, or to an error of ours."""
        if sound:
            self._free.append(frame)
            return
        with contextlib.suppress(ValueError):
            self._frames.remove(frame)

    @contextmanager
    def lease(self) -> Iterator[Frame]:
        """A frame that no other run has meanwhile."""
        frame, sound = self._take(), False
        try:
            yield frame
            sound = True
        except SardonyxError:
            sound = True
            raise
        finally:
            frame.host = None
            self._let_go(frame, sound)

    @property
    def arena_bytes(self) -> int:
        """Memory held for intermediate values, by all frames together."""
        return sum(frame.capacity_bytes for frame in self._frames)

    @property
    def frames(self) -> int:
        """How many runs there have been at once."""
        return len(self._frames)

    @property
    def sizes(self) -> dict[str, int]:
        """What symbols stood for in the last run; empty before the first."""
        for frame in self._free[-1:]:
            if frame.results:
                slots = frame.table("slots")
                return {name: int(slots[at]) for name, at in self._image.tape.symbols.items()}
        return {}

    def cancel(self) -> None:
        """Ask all runs that are in native code now to end: they raise Fail."""
        for frame in list(self._frames):
            frame.cancel()

    def trim(self) -> None:
        """Give back the memory of frames that no run has."""
        while True:
            try:
                self._frames.remove(self._free.pop())
            except IndexError:
                return
