"""Which nodes a provider has: all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sardonyx.api.providers import CPU


@dataclass(frozen=True, slots=True)
class OrtEpAssignedNode:
    """A node of the file."""

    name: str
    op_type: str
    domain: str


@dataclass(frozen=True, slots=True)
class OrtEpAssignedSubgraph:
    """Nodes that one provider has."""

    ep_name: str
    nodes: tuple[OrtEpAssignedNode, ...]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes."""
        return list(self.nodes)


def assigned(source: Any) -> OrtEpAssignedSubgraph:
    """All nodes of a model."""
    from sardonyx.loader.load import load

    nodes = load(source, allow_missing_data=True).nodes
    return OrtEpAssignedSubgraph(
        CPU, tuple(OrtEpAssignedNode(n.name, n.op_type, n.domain) for n in nodes)
    )
