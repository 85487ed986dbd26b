"""The part of `InferenceSession` that says how long runs take, kernel by kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sardonyx.api.array_runs import ArrayRuns
from sardonyx.api.options import SessionOptions
from sardonyx.api.session_model import SessionModel
from sardonyx.base.forks import RenewedLock, compiling

if TYPE_CHECKING:
    from sardonyx.profiling.profile import Profile
    from sardonyx.profiling.session_profile import SessionProfile
    from sardonyx.profiling.tap import ProfileTap

_lock = RenewedLock()


def own_profile(options: SessionOptions) -> SessionProfile | None:
    """Begin a session's own profile, if options ask for it; the session comes later."""
    if not options.enable_profiling:
        return None
    with compiling:
        from sardonyx.profiling.session_profile import SessionProfile

    return SessionProfile(options.profile_file_prefix)


class Profiling:
    """Runs are recorded while a profile is open; otherwise they know nothing of it.

    Args:
        model: The session's.
        runs: Of that model. They are told whether they are recorded.
        own: The session's own profile.
    """

    def __init__(self, model: SessionModel, runs: ArrayRuns, own: SessionProfile | None) -> None:
        self._model, self._runs, self._own = model, runs, own
        self._tap: ProfileTap | None = None
        if own is not None:
            own.note_making(model.is_file, model.engine.timings, time.perf_counter_ns())
            own.finish_with(model)
            self._listen(own.profile)

    def follow_engine(self) -> None:
        """Have what was compiled just now run, and record its runs where a profile is open."""
        if self._tap is not None:
            self._tap.follow(self._model.engine)
        self._runs.choose_run()

    def _listen(self, profile: Profile) -> None:
        with compiling:
            from sardonyx.profiling.tap import ProfileTap
        with _lock:
            if self._tap is None:
                self._tap = ProfileTap()
                self._tap.follow(self._model.engine)
        self._tap.add(profile)
        self._runs.choose_run()

    def _leave(self, profile: Profile) -> None:
        if self._tap is not None:
            self._tap.remove(profile)
        self._runs.choose_run()

    @contextmanager
    def profile(self) -> Iterator[Profile]:
        """See `InferenceSession.profile`."""
        with compiling:
            from sardonyx.profiling.profile import Profile, phases_of

        found = Profile()
        timings = self._model.engine.timings
        found.note("session_initialization", found.started_ns, 0, phases_of(timings))
        self._listen(found)
        try:
            yield found
        finally:
            self._leave(found)

    def end(self) -> str:
        """See `InferenceSession.end_profiling`.

        Raises:
            OSError: The file cannot be written.
        """
        own = self._own
        if own is None:
            return ""
        self._leave(own.profile)
        return own.finish()

    @property
    def start_ns(self) -> int:
        """When the session's profile began, in nanoseconds since 1970; 0 if there is none."""
        return 0 if self._own is None else self._own.start_ns
