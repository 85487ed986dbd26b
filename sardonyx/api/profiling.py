"""The part of `InferenceSession` that says how long runs take, kernel by kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sardonyx.api.options import SessionOptions
from sardonyx.base.forks import RenewedLock, compiling

if TYPE_CHECKING:
    from sardonyx.profiling.profile import Profile
    from sardonyx.profiling.session_profile import SessionProfile
    from sardonyx.profiling.tap import ProfileTap
    from sardonyx.runtime.engine import Engine

_lock = RenewedLock()


class Profiling:
    """Runs are recorded while a profile is open; otherwise they know nothing of it."""

    _source: Any
    _engine: Engine
    _options: SessionOptions
    _tap: ProfileTap | None = None
    _profile: SessionProfile | None = None

    def _choose_run(self) -> None:
        """Take the quick ways of the engine, or none while runs are recorded."""
        raise NotImplementedError  # `InferenceSession` does it

    def _start_profile(self) -> None:
        """Begin the session's own profile, if options ask for it; the engine comes later."""
        if self._options.enable_profiling:
            with compiling:
                from sardonyx.profiling.session_profile import SessionProfile

            self._profile = SessionProfile(self._options.profile_file_prefix)

    def _follow_engine(self) -> None:
        """Record the runs of the engine that was made just now, where a profile is open."""
        own = self._profile
        if own is not None and self._tap is None:
            is_file = isinstance(self._source, (str, os.PathLike))
            own.note_making(is_file, self._engine.timings, time.perf_counter_ns())
            own.finish_with(self)
            self._listen(own.profile)
        elif self._tap is not None:
            self._tap.follow(self._engine)

    def _listen(self, profile: Profile) -> None:
        with compiling:
            from sardonyx.profiling.tap import ProfileTap
        with _lock:
            if self._tap is None:
                self._tap = ProfileTap()
                self._tap.follow(self._engine)
        self._tap.add(profile)
        self._choose_run()

    def _leave(self, profile: Profile) -> None:
        if self._tap is not None:
            self._tap.remove(profile)
        self._choose_run()

    @contextmanager
    def profile(self) -> Iterator[Profile]:
        """Record the runs that any thread makes in a `with` block.

        `with session.profile() as p: session.run(...)`, then `p.table()` or `p.save(path)`. Runs
        are a few per cent slower meanwhile, and as fast as ever afterwards.
        """
        with compiling:
            from sardonyx.profiling.profile import Profile, phases_of

        found = Profile()
        timings = self._engine.timings
        found.note("session_initialization", found.started_ns, 0, phases_of(timings))
        self._listen(found)
        try:
            yield found
        finally:
            self._leave(found)

    def end_profiling(self) -> str:
        """Write the profile that `SessionOptions.enable_profiling` asked for.

        Returns:
            The file's path; "" if there is no profile, or it was written before.

        Raises:
            OSError: The file cannot be written.
        """
        own = self._profile
        if own is None:
            return ""
        self._leave(own.profile)
        return own.finish()

    def get_profiling_start_time_ns(self) -> int:
        """When the session's profile began, in nanoseconds since 1970; 0 if there is none."""
        return 0 if self._profile is None else self._profile.start_ns
