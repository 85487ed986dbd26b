"""What runs short runs that are like the last one: see `Executable.run_again` and `run_alike`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

#: Takes as many feeds as there are inputs. Gives None for other runs.
QuickRun = Callable[[tuple[Any, ...]], list[Any] | None]


class RepeatedRun(Protocol):
    """The same, which may be told where results are wanted."""

    def __call__(
        self, feeds: Sequence[Any], targets: Sequence[Any] | None = None
    ) -> list[Any] | None:
        """See `Executable.run_alike`."""


def not_again(feeds: Sequence[Any], targets: Sequence[Any] | None = None) -> list[Any] | None:
    """The `QuickRun` that does none."""
    return None
