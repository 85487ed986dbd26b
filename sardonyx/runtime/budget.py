"""How much memory a session may hold: constants, arenas, growing buffers, scratch, results."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache

from sardonyx.base.errors import InvalidArgument, OutOfMemory, message
from sardonyx.base.files import text_of
from sardonyx.base.forks import RenewedLock

#: The session-config key that sets the limit.
LIMIT_KEY = "session.memory_limit_bytes"
_CGROUPS, _MEMBERSHIP = "/sys/fs/cgroup", "/proc/self/cgroup"


class Budget:
    """Counts what a session holds; shared by its plans, their frames, and all threads.

    Without a limit of its own a session may have as much as the machine (or the control group that
    the process is in) has memory: an allocation beyond that is granted by many systems all the
    same, and ends the process when it is written to.

    Args:
        limit_bytes: The most that may be held; None for the machine's memory.

    Attributes:
        held_bytes: What is held now.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = machine_memory_bytes() if limit_bytes is None else limit_bytes
        self._is_own = limit_bytes is not None
        self.held_bytes = 0
        # A finalizer, which any allocation can start, takes it while its thread has it already.
        self._lock = RenewedLock()

    def take(self, size_bytes: int, purpose: str, largest: Callable[[], str] | None = None) -> None:
        """Count memory before it is allocated.

        Args:
            size_bytes: How much.
            purpose: What for, in words.
            largest: Says, for the error, what is large in it.

        Raises:
            OutOfMemory: There would be more than the limit; nothing is counted then.
        """
        with self._lock:
            if self.held_bytes + size_bytes <= self.limit_bytes:
                self.held_bytes += size_bytes
                return
            held = self.held_bytes
        raise OutOfMemory(self.refusal(size_bytes, held, purpose, largest))

    def may_take(self, size_bytes: int) -> bool:
        """Whether `take` would succeed now."""
        return self.held_bytes + size_bytes <= self.limit_bytes

    def give(self, size_bytes: int) -> None:
        """Count memory that was given back."""
        with self._lock:
            self.held_bytes -= size_bytes

    def refusal(
        self, size_bytes: int, held_bytes: int, purpose: str, largest: Callable[[], str] | None
    ) -> str:
        """The text of the error: how much for what, beside what, under which limit."""
        what = f"{size_bytes} bytes of memory are needed for {purpose}"
        if held_bytes:
            what += f", beside {held_bytes} that are held"
        if self._is_own:
            limit = f"the limit is {LIMIT_KEY} = {self.limit_bytes}"
        else:
            limit = f"the machine has {self.limit_bytes}"
        listed = largest() if largest is not None else ""
        return message("memory", f"{what}; {limit}{listed and '. ' + listed}")


def byte_count(text: str) -> int:
    """A number of bytes that was given as text.

    Raises:
        InvalidArgument: It is none, or zero.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 18 or not int(text):
        what = "This is no number of bytes"
        raise InvalidArgument(message(LIMIT_KEY, what, expected="such as '1000000000'", got=text))
    return int(text)


@lru_cache(maxsize=1)
def machine_memory_bytes() -> int:
    """Memory that this process can have: the machine's, cut by the limits of control groups."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        physical = 1 << 62
    return min([physical, *group_limits()])


def group_limits(
    root: str | os.PathLike[str] = _CGROUPS, membership: str | os.PathLike[str] = _MEMBERSHIP
) -> list[int]:
    """Memory limits, in bytes, of this process's control groups, in either version's files.

    Args:
        root: Where control groups are mounted.
        membership: The kernel's list of the process's groups, lines `number:controllers:path`.
    """
    own = os.path.join(root, "memory")
    folders = [os.fspath(root), own]
    for line in text_of(membership).splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        base = own if controllers else root
        parts = [x for x in path.split("/") if x not in ("", "..")]
        folders += [os.path.join(base, *parts[:depth]) for depth in range(1, len(parts) + 1)]
    found = [
        text_of(os.path.join(f, name)).strip()
        for f in folders
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return [int(text) for text in found if text.isdigit()]
