"""The fast path of every executable, and what comes after such a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Protocol, overload


class Completion(Enum):
    """What comes after the work of a repeated run.

    Attributes:
        WAIT: The caller waits; results are where outputs name memory, or in memory of the device.
        FETCH: The caller waits; results are arrays of NumPy.
        LEAVE: Nobody waits: the run may be under way when the call returns.
        TENSORS: As WAIT, in torch's current stream; feeds and results are tensors of torch. Only
            executables whose facts say `follows_tensors` are asked for it.
    """

    WAIT = 0
    FETCH = 1
    LEAVE = 2
    TENSORS = 3


#: Looked up in each run, so they are names of the module.
WAIT, FETCH = Completion.WAIT, Completion.FETCH
LEAVE, TENSORS = Completion.LEAVE, Completion.TENSORS


class KeptItems(tuple[Any, ...]):
    """Feeds, or outputs, of many runs.

    Attributes:
        address: Where native code finds the addresses of the arrays; see `arrays.ITEMS_OFFSET`.
    """

    address: int

    def __new__(cls, items: Iterable[Any]) -> KeptItems:
        """Keep the items in a tuple."""
        made = super().__new__(cls, items)
        made.address = id(made) + tuple.__basicsize__
        return made


class TryRun(Protocol):
    """The fast path: a run whose shapes are those of the last one."""

    @overload
    def __call__(
        self,
        feeds: tuple[Any, ...],
        outputs: None = None,
        completion: Completion = WAIT,
        /,
    ) -> list[Any] | None:
        """Run, if all is as in the last run but addresses and contents; else do nothing.

        Args:
            feeds: As many as there are inputs.
            outputs: For each output memory of its shape and type, or a kind of memory; None for
                new memory. WAIT and LEAVE take it.
            completion: What comes after the work.

        Returns:
            The results, in order; None for another run: `run` or `run_to` knows what to do.

        Raises:
            RuntimeException: A kernel met data that it cannot work on.
        """

    @overload
    def __call__(
        self, feeds: KeptItems, outputs: KeptItems, completion: Completion = WAIT, /
    ) -> Sequence[Any] | None:
        """The same, in memory of the caller."""


def never(
    _feeds: tuple[Any, ...],
    _outputs: tuple[Any, ...] | None = None,
    _completion: Completion = WAIT,
    /,
) -> Any:
    """The `TryRun` that does no run."""
    return None
