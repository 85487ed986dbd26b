"""The profile of a session from its making on: `SessionOptions.enable_profiling`."""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections.abc import Mapping
from pathlib import Path

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.forks import RenewedLock
from sardonyx.base.log import get_logger
from sardonyx.profiling.profile import Profile, phases_of

_logger = get_logger("profiling")


class SessionProfile:
    """Collects a profile, and writes it once.

    Args:
        prefix: How the file's name begins; the time and `.json` follow.

    Attributes:
        start_ns: When it began, in nanoseconds since 1970.
        path: The file.

    Raises:
        InvalidArgument: There is no folder that such a file could lie in.
    """

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.time_ns()
        self.profile = Profile()
        self.path = _path(prefix, self.start_ns)
        # The program may go elsewhere meanwhile.
        self._target = os.path.abspath(self.path)
        if not os.path.isdir(os.path.dirname(self._target)):
            raise InvalidArgument(
                message(
                    "SessionOptions.profile_file_prefix", "The profile's folder does not exist",
                    got=self.path, do="Make the folder",
                )
            )  # fmt: skip
        self._is_written = False

    def note_making(self, is_file: bool, seconds: Mapping[str, float], ended_ns: int) -> None:
        """Note how long it took to make the session, by phase."""
        whole_ns = ended_ns - self.profile.started_ns
        reading = sum(seconds.get(name, 0.0) for name in ("identify", "load"))
        reading_ns = min(whole_ns, round(reading * 1e9))
        start_ns = self.profile.started_ns
        kind = "uri" if is_file else "array"
        self.profile.note(f"model_loading_{kind}", start_ns, reading_ns, {})
        self.profile.note(
            "session_initialization",
            start_ns + reading_ns,
            whole_ns - reading_ns,
            phases_of(seconds),
        )

    def finish(self) -> str:
        """Write the file; gives its path, and "" from the second time on.

        Raises:
            OSError: It cannot be written.
        """
        if self._is_written:
            return ""
        self._is_written = True
        self.profile.save(self._target)
        self.profile.forget()
        return self.path

    def finish_with(self, session: object) -> None:
        """Write the file at the latest when the session goes, or the program ends."""
        weakref.finalize(session, _finish_at_last, self)


def _finish_at_last(profile: SessionProfile) -> None:
    # A forked process has the runs of its parent, too.
    if profile.profile.process != os.getpid():
        return
    try:
        profile.finish()
    except OSError as error:
        _logger.error("the profile %s cannot be written: %s", profile.path, error)
    except KeyboardInterrupt:
        # The program ends already: nobody is there to catch it, and a trace would say nothing.
        _logger.error("the profile %s was left out: interrupted", profile.path)


def _path(prefix: str, start_ns: int) -> str:
    """A name that no file has yet: sessions may begin in one millisecond."""
    for later in itertools.count():
        whole, part = divmod(start_ns // 1_000_000 + later, 1000)
        text = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(whole))
        path = f"{prefix}_{text}_{part:03d}.json"
        with _lock:
            if path not in _taken and not Path(path).exists():
                _taken.add(path)
                return path
    raise AssertionError  # the count has no end


#: Names that sessions of this process have, whose files are not there yet.
_taken: set[str] = set()
_lock = RenewedLock()
