"""The processor's counter, that native code notes, in nanoseconds of `time.perf_counter_ns`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sardonyx.base.forks import loading_library
from sardonyx.native.functions import recording

#: Between the two readings that say how fast the counter is: each is right within about 0.1 us.
_LEAST_NS = 5_000_000
_TRIES = 8


def _reading() -> tuple[int, int]:
    """(counter, nanoseconds) of one moment."""
    clock, now = recording().clock, time.perf_counter_ns
    best = (1 << 62, 0, 0)
    for _ in range(_TRIES):
        before = now()
        ticks = clock()
        after = now()
        best = min(best, (after - before, ticks, (before + after) // 2))
    return best[1], best[2]


_origin: tuple[int, int] | None = None


def origin() -> tuple[int, int]:
    """The first reading of this process."""
    global _origin
    if _origin is None:
        with loading_library:
            _origin = _origin or _reading()
    return _origin


class Clock:
    """Takes the counter to nanoseconds, given that it has run evenly since `origin`."""

    def __init__(self) -> None:
        self._ticks, self._start_ns = origin()
        missing_ns = _LEAST_NS - (time.perf_counter_ns() - self._start_ns)
        if missing_ns > 0:
            time.sleep(missing_ns / 1e9)
        ticks, end_ns = _reading()
        self._ns_per_tick = (end_ns - self._start_ns) / max(1, ticks - self._ticks)

    def ns(self, ticks: NDArray[np.int64]) -> NDArray[Any]:
        """Nanoseconds of `time.perf_counter_ns`."""
        # As floats only once they are small: counters of long uptimes have more digits.
        passed = (ticks - self._ticks).astype(np.float64) * self._ns_per_tick
        return passed + self._start_ns
