"""Hands the traces of a session's runs to everybody who wants them."""

from __future__ import annotations

from sardonyx.base.forks import RenewedLock
from sardonyx.profiling.profile import Profile, nothing_waits
from sardonyx.runtime.engine import Engine
from sardonyx.runtime.recording import RunTrace


class ProfileTap:
    """Profiles of one session. Runs are recorded while there is one.

    Attributes:
        most_spans: See `runtime.recording.Sink`.
    """

    def __init__(self) -> None:
        self.most_spans = 0
        self._profiles: tuple[Profile, ...] = ()
        self._engine: Engine | None = None
        self._lock = RenewedLock()

    def take(self, trace: RunTrace) -> None:
        """See `runtime.recording.Sink`."""
        for profile in self._profiles:
            profile.take(trace)

    def flush(self) -> None:
        """Give the profiles all runs that are over by now."""
        if self._profiles and self._engine is not None:
            self._engine.flush()

    def follow(self, engine: Engine) -> None:
        """Listen to this engine from now on, in place of another."""
        with self._lock:
            if self._profiles and self._engine is not None:
                self.flush()
                self._engine.record_runs(None)
            self._engine = engine
            if self._profiles:
                engine.record_runs(self)

    def add(self, profile: Profile) -> None:
        """Give a profile the runs that begin from now on."""
        with self._lock:
            self.flush()
            self.most_spans = max(self.most_spans, profile.most_spans)
            self._profiles += (profile,)
            profile.flush = self.flush
            if len(self._profiles) == 1 and self._engine is not None:
                self._engine.record_runs(self)

    def remove(self, profile: Profile) -> None:
        """Give a profile no more runs, not those either that are under way."""
        with self._lock:
            self.flush()
            profile.flush = nothing_waits
            self._profiles = tuple(p for p in self._profiles if p is not profile)
            if not self._profiles and self._engine is not None:
                self._engine.record_runs(None)
