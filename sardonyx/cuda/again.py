"""Runs that are the frame's last run again: the same memory, the same graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sardonyx.cuda.graphs import GRAPH_ID, Graph
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
        feeds: Sequence[Any], wanted: Wanted, results: list[Any], graph: Graph, version: int
    ) -> Again | None:
        """What may be repeated; None if new memory took part, or memory of the host."""
        if not all(isinstance(x, CudaArray) for x in (*wanted.targets, *feeds)):
            return None
        return Again(feeds, wanted.targets, list(feeds), results, graph, GRAPH_ID.get(), version)

    def is_for(self, feeds: Sequence[Any], wanted: Wanted, version: int) -> bool:
        """Whether a run is the same again."""
        same = feeds is self.given and wanted.targets is self.wanted
        return same and version == self.version and GRAPH_ID.get() == self.number
