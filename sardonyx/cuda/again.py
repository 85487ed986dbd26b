"""Runs that are a frame's last run again: the same memory, the same graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sardonyx.cuda.graphs import GRAPH_ID, Graph
from sardonyx.cuda.values import CudaArray
from sardonyx.runtime.storage import Wanted

#: Runs that whoever binds memory remembers, one for each frame; the oldest go first.
_MOST_REMEMBERED = 8


class Again(NamedTuple):
    """What a run used, all of it in memory of the device.

    Whoever binds memory once runs on it again and again: then nothing need be bound, resolved or
    sent. He remembers it, and so lets go of it when he lets go of his memory.

    Attributes:
        feeds: The feeds.
        targets: What the outputs were written to.
        graph: What did it.
        number: The graph's number.
        version: Of the libraries' plans before the run began.
    """

    feeds: list[CudaArray]
    targets: list[CudaArray]
    graph: Graph
    number: int
    version: int

    def is_current(self, version: int) -> bool:
        """Whether a run now, with this version of the libraries' plans, would do the same."""
        return version == self.version and GRAPH_ID.get() == self.number


def remember(
    wanted: Wanted,
    serial: int,
    feeds: Sequence[Any],
    results: list[Any],
    graph: Graph,
    version: int,
) -> None:
    """Note a run for whoever bound its memory, unless other memory took part.

    Args:
        wanted: What was wanted; its memory is where runs are remembered.
        serial: The run's number.
        feeds: What was fed.
        results: What came of it.
        graph: What did it.
        version: Of the libraries' plans before it began.
    """
    memory = wanted.memory
    if memory is None:
        return
    for tensor in (*wanted.targets, *feeds):
        if not isinstance(tensor, CudaArray):
            return
    while len(memory) >= _MOST_REMEMBERED:
        del memory[next(iter(memory))]
    memory[serial] = Again(list(feeds), results, graph, GRAPH_ID.get(), version)
