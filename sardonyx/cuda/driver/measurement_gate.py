"""Measurements and runs whose kernels the host launches one by one take turns on a device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sardonyx.base.forks import RenewedLock

#: No run waits longer for a measurement.
_PATIENCE_SECONDS = 0.2


class MeasurementGate:
    """Both need the host, and would take it from each other.

    A measurement, of milliseconds, lets those runs end that have begun: it is repeated until the
    host was fast enough.
    """

    def __init__(self) -> None:
        self._quiet = threading.Event()
        self._quiet.set()
        self._lock = RenewedLock()

    def wait(self) -> None:
        """Let a measurement end that is under way."""
        if not self._quiet.is_set():
            self._quiet.wait(_PATIENCE_SECONDS)

    @contextmanager
    def measurement(self) -> Iterator[None]:
        """Something is measured in the `with` block, in one thread at a time."""
        with self._lock:
            self._quiet.clear()
            try:
                yield
            finally:
                self._quiet.set()
