"""Runs that are under way while their caller does something else."""

from __future__ import annotations

from typing import Any


class AsyncRun:
    """A run that somebody waits for later. This one has happened already; devices derive.

    Args:
        results: What the run gives, complete once it has happened.
    """

    def __init__(self, results: list[Any]) -> None:
        self.results = results

    @property
    def is_over(self) -> bool:
        """Whether `finish` would not wait."""
        return True

    @property
    def needs_looks(self) -> bool:
        """Whether the run ends early only while somebody asks whether it `is_over`."""
        return False

    def close_when_over(self, descriptor: int) -> bool:
        """Have a file's descriptor closed when the run is over; False if it is already.

        Nothing of Python takes part: no thread is held, and none is woken.
        """
        return False

    def finish(self) -> list[Any]:
        """The results, when the run has happened.

        Raises:
            RuntimeException: It met data that it cannot work on.
        """
        return self.results
