"""The order of work on memory of a device."""

from __future__ import annotations

from sardonyx.cuda.driver.stream import Event, Stream


class Order:
    """What comes before work on some memory.

    Attributes:
        written: The stream and the end of the last work that writes to it, if nobody waited.
        uses: For each stream the end of the last work with it that nobody waited for.
    """

    __slots__ = ("uses", "written")

    def __init__(self) -> None:
        self.written: tuple[Stream, Event] | None = None
        self.uses: dict[Stream | None, Event] = {}

    def unfinished(self) -> tuple[Stream, Event] | None:
        """What writes to it now; what that used is let go of if it has happened."""
        written = self.written
        if written is not None and written[1].is_done:
            self.written = None
            written[0].forget()
            return None
        return written
