"""What a lowering with graphs among its attributes is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from sardonyx.base.sizes import Dim

if TYPE_CHECKING:
    from sardonyx.ir.graph import Graph
    from sardonyx.tensor.region import Body
    from sardonyx.tensor.tensor import Buffer, Tensor


class Scope(Protocol):
    """What surrounds a node with graphs among its attributes."""

    @property
    def name(self) -> str:
        """The node's name, which no other node has."""

    @property
    def by_shapes(self) -> bool:
        """Whether only types and shapes are asked for: inputs do not show what they are made of."""

    def inline(self, graph: Graph, inputs: Sequence[Tensor] = ()) -> list[Tensor]:
        """The outputs of a graph given its inputs, as if its nodes stood beside the node."""

    def body(self, graph: Graph, inputs: Sequence[Tensor], outside: dict[Tensor, Buffer]) -> Body:
        """A graph as the body of a region.

        Args:
            graph: The graph.
            inputs: Its inputs.
            outside: Gets a buffer for each tensor from outside that is computed in a run.
        """

    def own(self, symbols: Iterable[Dim], call: Tensor) -> None:
        """Note that the node brings these symbols, with the end of a region."""
