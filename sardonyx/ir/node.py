"""Nodes: applications of an operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from sardonyx.ir.constant import Constant
from sardonyx.ir.long_list import LongList
from sardonyx.ir.types import ValueType

if TYPE_CHECKING:
    from sardonyx.base.sizes import Dim
    from sardonyx.ir.graph import Graph
    from sardonyx.ir.value import Value

#: One item of an attribute: numbers and text are plain Python, tensors are constants. The items of
#: a list are all of one kind.
Item: TypeAlias = Union[int, float, str, bytes, Constant, "Graph", ValueType]
Attribute: TypeAlias = Item | list[Item] | LongList[Any]


class EmptyList(list[Item]):
    """An empty attribute list that remembers what it is a list of, for the writer.

    Attributes:
        kind: ONNX's name of the list's type, such as `FLOATS`.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind


class Node:
    """One application of an operator. Belongs to at most one graph, which keeps the uses.

    Attributes:
        op_type: The operator's name.
        domain: The operator's domain; "" is ONNX's own.
        inputs: Values read, None for omitted ones. Changed through `Graph.set_inputs`.
        outputs: Values computed. An omitted output is a value with an empty name.
        attributes: By name; may be changed in place as long as no subgraph comes or goes.
        name: Unique in the graph and its subgraphs.
        version: Version of the domain's operator set in force; 0 if the file imports none.
        origin: Names of the nodes of the file that it came from.
        graph: The graph that it is in, or None.
        measured: Sizes that only a run knows: symbols for elements of its inputs, by input and
            position, and of tensors that its lowering made, by -1 - their number and position.
        kept: What its lowering has made out of large attributes, for when it is lowered again.
    """

    __slots__ = (
        "__weakref__",
        "_next",
        "_position",
        "_previous",
        "attributes",
        "domain",
        "graph",
        "inputs",
        "kept",
        "measured",
        "name",
        "op_type",
        "origin",
        "outputs",
        "version",
    )

    def __init__(
        self,
        op_type: str,
        domain: str = "",
        inputs: Iterable[Value | None] = (),
        outputs: Iterable[Value] = (),
        attributes: Mapping[str, Attribute] | None = None,
        name: str = "",
        version: int = 0,
        origin: tuple[str, ...] = (),
    ) -> None:
        self.op_type = op_type
        self.domain = domain
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.attributes: dict[str, Attribute] = dict(attributes) if attributes else {}
        self.name = name
        self.version = version
        self.origin = origin
        self.graph: Graph | None = None
        self.measured: dict[tuple[int, int], Dim] = {}
        self.kept: dict[object, object] = {}
        self._previous: Node | None = None
        self._position = 0
        self._next: Node | None = None

    @property
    def written(self) -> tuple[str, ...]:
        """Names of nodes of the file: its own, or those that it came from if a pass made it."""
        is_own = not self.origin or self.name in self.origin
        # Nodes of functions have the name of the call before their own.
        is_own = is_own or self.name.startswith(f"{self.origin[0]}/")
        return (self.name,) if is_own else self.origin

    @property
    def where(self) -> str:
        """How errors name it."""
        return f"node {', '.join(self.written)} ({self.op_type})"

    def subgraphs(self) -> Iterator[Graph]:
        """The graphs among the attributes, in their order."""
        if not self.attributes:  # most nodes have none, and are asked often
            return
        from sardonyx.ir.graph import Graph

        for value in self.attributes.values():
            if isinstance(value, Graph):
                yield value
            elif isinstance(value, list) and value and isinstance(value[0], Graph):
                yield from (item for item in value if isinstance(item, Graph))

    def constants(self) -> Iterator[Constant]:
        """The tensors among the attributes."""
        for value in self.attributes.values():
            if isinstance(value, Constant):
                yield value
            elif isinstance(value, list) and value and isinstance(value[0], Constant):
                yield from (item for item in value if isinstance(item, Constant))

    def input(self, index: int) -> Value | None:
        """The input at `index`, None when it is omitted or there are fewer."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    @property
    def next(self) -> Node | None:
        """The node after it in its graph."""
        return self._next

    @property
    def previous(self) -> Node | None:
        """The node before it in its graph."""
        return self._previous

    def is_before(self, other: Node) -> bool:
        """Whether it stands before another node of the same graph."""
        return self._position < other._position

    def captures(self) -> dict[Value, None]:
        """Values of outer graphs that its subgraphs read, in order of first reading."""
        from sardonyx.ir.graph import captured_values

        found: dict[Value, None] = {}
        for subgraph in self.subgraphs():
            found.update(captured_values(subgraph))
        return found

    def __repr__(self) -> str:
        from sardonyx.ir.text import node_line

        return node_line(self)
