"""A bar that fills while something is done; only a terminal sees it."""

from __future__ import annotations

import sys
from types import TracebackType

from sardonyx.base.printable import printable
from sardonyx.cli.output import draw

_WIDTH = 30


class Bar:
    """A line on stderr, written over until the `with` block ends, then wiped out."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_shown = sys.stderr.isatty()
        self._last = ""

    def __enter__(self) -> Bar:
        return self

    def show(self, part: float, text: str = "") -> None:
        """Show that so much of the whole (0 to 1) is done."""
        filled = int(_WIDTH * min(1.0, max(0.0, part)))
        line = f"{self._what} [{'#' * filled}{'.' * (_WIDTH - filled)}] {100 * part:3.0f} % {text}"
        if self._is_shown and line != self._last:
            self._last = line
            draw(f"\r{printable(line)}\x1b[K")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._last:
            draw("\r\x1b[K")
