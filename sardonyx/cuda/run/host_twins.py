"""The same plan controlled by the host, for runs that the device cannot control or measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Twin(Protocol):
    """What twins are told between runs."""

    def settle(self) -> None:
        """See `Executable.settle`."""

    def trim(self) -> None:
        """See `Executable.trim`."""


TwinT = TypeVar("TwinT", bound=Twin)


class HostTwins(Generic[TwinT]):
    """Executables of the same plan on the same weights, made when a run first needs them.

    Args:
        make: Makes one; the argument says whether it stops at each command, to measure it.
    """

    def __init__(self, make: Callable[[bool], TwinT]) -> None:
        self._make = make
        self._by_host: TwinT | None = None
        self._by_command: TwinT | None = None

    @property
    def by_host(self) -> TwinT:
        """What does runs that the device cannot control."""
        if self._by_host is None:
            self._by_host = self._make(False)
        return self._by_host

    def by_command(self, before: Callable[[], object]) -> TwinT:
        """What runs are measured with that the host controls.

        Args:
            before: Runs once without being measured, if there is no such twin yet: kernels that
                are loaded late would wait for the held stream.
        """
        if self._by_command is None:
            self._by_command = self._make(True)
            before()
        return self._by_command

    def settle(self) -> None:
        """See `Executable.settle`."""
        for twin in self._made():
            twin.settle()

    def trim(self) -> None:
        """See `Executable.trim`."""
        for twin in self._made():
            twin.trim()

    def _made(self) -> list[TwinT]:
        return [twin for twin in (self._by_host, self._by_command) if twin is not None]
