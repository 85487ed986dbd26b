"""How a process ended, in words."""

from __future__ import annotations

import signal


def how_ended(code: int | None) -> str:
    """Of what `Popen.poll` gives: by which signal, or with which status."""
    if code is None:
        return "and still runs"
    if code >= 0:
        return f"with status {code}"
    try:
        return f"by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"by signal {-code}"
