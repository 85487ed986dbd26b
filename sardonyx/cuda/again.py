"""Runs that are the frame's last run again: the same memory, the same graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sardonyx.cuda.graphs import GRAPH_ID, Graph
from sardonyx.cuda.libraries import Libraries
from sardonyx.cuda.values import CudaArray
from sardonyx.runtime.storage import Wanted


class Again(NamedTuple):
    """What a run used, all of it in memory of the device.

    Whoever binds memory once feeds the same lists again and again: then nothing need be bound,
    resolved or sent.

    Attributes:
        given: The list of feeds, as it was given.
        wanted: The list of targets, as it was given.
        feeds: The feeds.
        targets: What the outputs were written to.
        graph: What did it.
        number: The graph's number.
        version: Of the libraries' plans when it was made.
    """

    given: Sequence[Any]
    wanted: Sequence[Any]
    feeds: list[CudaArray]
    targets: list[CudaArray]
    graph: Graph
    number: int
    version: int

    @staticmethod
    def of(
        feeds: Sequence[Any], wanted: Wanted, results: list[Any], graph: Graph, libraries: Libraries
    ) -> Again | None:
        """What may be repeated; None if new memory took part, or memory of the host."""
        for tensor in (*wanted.targets, *feeds):
            if not isinstance(tensor, CudaArray):
                return None
        version = libraries.version
        return Again(feeds, wanted.targets, list(feeds), results, graph, GRAPH_ID.get(), version)

    def is_for(self, feeds: Sequence[Any], wanted: Wanted, libraries: Libraries) -> bool:
        """Whether a run is the same again."""
        if feeds is not self.given or wanted.targets is not self.wanted:
            return False
        return libraries.version == self.version and GRAPH_ID.get() == self.number
