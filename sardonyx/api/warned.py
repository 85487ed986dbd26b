"""Warnings that point at the line of the program that asked for something."""

from __future__ import annotations

import sys
import warnings

from sardonyx.base.printable import printable


def warn(text: str) -> None:
    """A UserWarning at the innermost call that is not the package's own."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(printable(text), UserWarning, stacklevel=level)
