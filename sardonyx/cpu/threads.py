"""How many threads a run on the CPU uses."""

from __future__ import annotations

import os
import re

from sardonyx.base import knobs
from sardonyx.base.log import get_logger
from sardonyx.base.processors import usable_processors
from sardonyx.runtime.pool import MOST_THREADS
from sardonyx.runtime.team import SHARE, Team
from sardonyx.runtime.thread_setup import ThreadSetup

_log = get_logger("pool")
_OPENMP = "OMP_NUM_THREADS"


def thread_count(requested: int = 0) -> int:
    """Threads of a session, the caller's included.

    Args:
        requested: What the session's options say; 0 leaves it to `SARDONYX_THREADS`, that being 0
            or unset to `OMP_NUM_THREADS`, and that being unset, too, to the processors that this
            process may use.
    """
    count = requested or knobs.get("SARDONYX_THREADS") or _openmp_count() or usable_processors()
    return max(1, min(count, MOST_THREADS))


def team_of(
    requested: int = 0,
    branches: int | None = None,
    share: int = 0,
    setup: ThreadSetup | None = None,
) -> Team:
    """How a session's threads share its runs.

    Args:
        requested: Threads of a kernel, see `thread_count`.
        branches: Independent branches at once; 0 or None for as many as there are threads.
        share: See `Team`; 0 for the default.
        setup: Where threads come from.
    """
    return Team(thread_count(requested), min(branches or 0, MOST_THREADS), share or SHARE, setup)


def _openmp_count() -> int:
    """What OpenMP's variable asks for; of a list, one number for each level, the outermost."""
    text = os.environ.get(_OPENMP, "").strip()
    found = re.fullmatch(r"(\d{1,9})(\s*,.*)?", text)
    if found is None and text:
        _log.warning("%s is no number of threads, and is ignored: %r", _OPENMP, text)
    return int(found[1]) if found else 0
