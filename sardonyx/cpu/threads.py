"""How many threads a run on the CPU uses."""

from __future__ import annotations

from sardonyx.base import knobs
from sardonyx.runtime.pool import MOST_THREADS
from sardonyx.runtime.processors import usable_processors


def thread_count(requested: int = 0) -> int:
    """Threads of a session, the caller's included.

    Args:
        requested: What the session's options say; 0 leaves it to `SARDONYX_THREADS`, and that being
            0 or unset, to the processors that this process may use.
    """
    count = requested or knobs.get("SARDONYX_THREADS") or usable_processors()
    return max(1, min(count, MOST_THREADS))
