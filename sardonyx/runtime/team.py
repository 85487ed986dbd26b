"""How the threads of a session share a run."""

from __future__ import annotations

from sardonyx.base.records import dataclass
from sardonyx.runtime.thread_setup import ThreadSetup

#: A thread takes half of what is left of its portion of the blocks, so the last ones are single.
SHARE = 2


@dataclass(frozen=True, slots=True)
class Team:
    """Threads, and what each does at once.

    Attributes:
        threads: How many work on one kernel, the caller included.
        branches: How many parts that need nothing of each other are walked at once; 0 for as many
            as there are threads.
        share: A thread that wants work takes the `share`-th part of what is left of its portion of
            the blocks, or of another's: more is finer, and costs more claims.
        setup: Where its threads come from; None for those that sessions share.
    """

    threads: int = 1
    branches: int = 0
    share: int = SHARE
    setup: ThreadSetup | None = None

    def __post_init__(self) -> None:
        if not self.branches:
            object.__setattr__(self, "branches", self.threads)

    @property
    def size(self) -> int:
        """Threads of the pool, the caller included."""
        return max(self.threads, self.branches)

    @property
    def flushes_denormals(self) -> bool:
        """Whether kernels read and write zeros in place of denormal numbers."""
        return self.setup is not None and self.setup.flushes_denormals
