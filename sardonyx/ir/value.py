"""Values: what flows between nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.base import dtypes

if TYPE_CHECKING:
    from sardonyx.base.dtypes import DType
    from sardonyx.base.sizes import Dim
    from sardonyx.ir.constant import Constant
    from sardonyx.ir.graph import Graph
    from sardonyx.ir.node import Node
    from sardonyx.ir.types import ValueType

#: Integer constants of up to so many elements show their contents in `Value.elements`.
ELEMENTS_LIMIT = 1024


class Value:
    """A tensor, sequence, optional or map of a graph.

    Attributes:
        name: Unique among all values of a graph and its subgraphs; "" only for an output that its
            node omits. Changed through `Graph.rename`.
        dtype: Element type of a tensor, once known.
        shape: Sizes of a tensor, once known; of graph inputs, the declared ones.
        kind: `tensor`, `sequence`, `optional`, `map`, `sparse` or `opaque`.
        declared: What the file says about the value: a hint, not a fact.
        type: The whole type where `kind` is not `tensor`, once known.
        constant: The elements, where they are known when the model is loaded.
        producer: The node that computes it, None for graph inputs and constants.
        producer_index: Which output of the producer it is.
        graph: The graph, or subgraph, that it is defined in, once it is.
        doc_string: What the file says in words about a graph input or output.
        equal_to: A value before it that inference has found to have the same contents always.
    """

    __slots__ = (
        "__weakref__",
        "_elements",
        "_output_of",
        "_uses",
        "constant",
        "declared",
        "doc_string",
        "dtype",
        "equal_to",
        "graph",
        "kind",
        "name",
        "producer",
        "producer_index",
        "shape",
        "type",
    )

    def __init__(
        self,
        name: str,
        dtype: DType | None = None,
        shape: tuple[Dim, ...] | None = None,
        *,
        constant: Constant | None = None,
        kind: str = "tensor",
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.kind = kind
        self.constant = constant
        self.declared: ValueType | None = None
        self.type: ValueType | None = None
        self.producer: Node | None = None
        self.producer_index = 0
        self.graph: Graph | None = None
        self.doc_string = ""
        self.equal_to: Value | None = None
        self._elements: tuple[Dim, ...] | None = None
        self._uses: dict[tuple[Node, int], None] = {}
        self._output_of: dict[Graph, int] = {}
        if constant is not None:
            self.dtype, self.shape = constant.dtype, constant.shape

    @property
    def uses(self) -> tuple[tuple[Node, int], ...]:
        """(node, input index) of every reader, in the order in which they began to read.

        Readers inside subgraphs are included; graph outputs are not.
        """
        return tuple(self._uses)

    @property
    def use_count(self) -> int:
        """Number of node inputs that read it."""
        return len(self._uses)

    @property
    def is_graph_output(self) -> bool:
        """Whether it is an output of its graph, or directly of a subgraph."""
        return bool(self._output_of)

    @property
    def is_used(self) -> bool:
        """Whether a node reads it or a graph gives it out."""
        return bool(self._uses or self._output_of)

    @property
    def is_fixed(self) -> bool:
        """Whether its contents are known when the model is loaded, and no caller gives others."""
        owner = self.graph
        return self.constant is not None and (owner is None or self not in owner.overridable)

    @property
    def is_omitted(self) -> bool:
        """Whether it stands for an output that its node does not give."""
        return not self.name

    @property
    def elements(self) -> tuple[Dim, ...] | None:
        """The contents of an integer tensor, row-major, where known at least as expressions."""
        if self._elements is None and self.constant is not None:
            constant = self.constant
            if (
                constant.dtype in (dtypes.INT64, dtypes.INT32)
                and len(constant.shape) <= 1
                and constant.element_count <= ELEMENTS_LIMIT
                and constant.has_data
            ):
                self._elements = tuple(constant.array().reshape(-1).tolist())
        return self._elements

    @elements.setter
    def elements(self, elements: tuple[Dim, ...] | None) -> None:
        self._elements = elements

    @property
    def declared_dtype(self) -> DType | None:
        """Element type that the file declares."""
        return self.declared.dtype if self.declared else None

    @property
    def declared_shape(self) -> tuple[Dim, ...] | None:
        """Shape that the file declares; may be wrong."""
        return self.declared.shape if self.declared else None

    def __repr__(self) -> str:
        from sardonyx.ir.text import value_text

        return value_text(self)
