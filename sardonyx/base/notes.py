"""Notes in the log on what is accepted and has no effect."""

from __future__ import annotations

import logging

from sardonyx.base.log import get_logger, is_dropped

_logger = get_logger("options")
_noted: set[str] = set()


def note(what: str, reason: str) -> None:
    """Log that something has no effect; once for each `what`."""
    if what not in _noted and not is_dropped(logging.WARNING):
        _noted.add(what)
        _logger.warning("%s has no effect: %s", what, reason)
