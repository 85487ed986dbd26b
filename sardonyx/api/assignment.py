"""Which nodes of a file each provider has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sardonyx.api.providers import CPU
from sardonyx.base import errors
from sardonyx.base.errors import message

if TYPE_CHECKING:
    from sardonyx.plugins.claims import Claims


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


def assigned(source: Any, claims: Claims | None = None) -> list[OrtEpAssignedSubgraph]:
    """All nodes of a model: those that providers outside the package claimed, then each other.

    Raises:
        NotImplemented: It is a bundle, which has the nodes' names in its kernels alone.
    """
    from sardonyx.loader.load import load
    from sardonyx.store.bundle import is_bundle

    if is_bundle(source):
        what = "A bundle has no graph"
        raise errors.NotImplemented(message("session", what, do="See InferenceSession.explain"))
    nodes = load(source, allow_missing_data=True).nodes
    shown = {n.name: OrtEpAssignedNode(n.name, n.op_type, n.domain) for n in nodes}
    found = []
    for claim in claims.made if claims is not None else ():
        taken = [shown.pop(name) for name in claim.nodes if name in shown]
        found.append(OrtEpAssignedSubgraph(claim.provider, tuple(taken)))
    # As onnxruntime has it: each node that the processor has is alone.
    found += [OrtEpAssignedSubgraph(CPU, (node,)) for node in shown.values()]
    return found
