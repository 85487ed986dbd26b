"""The graph: mutable, with tracked uses and a deterministic order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from typing import TYPE_CHECKING

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.log import remark
from sardonyx.ir.lists import Names, Nodes, Outputs
from sardonyx.ir.model_header import ModelHeader
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value

if TYPE_CHECKING:
    from sardonyx.base.dtypes import DType
    from sardonyx.base.files import Identity
    from sardonyx.base.sizes import Dim
    from sardonyx.ir.constant import Constant


class Graph:
    """A graph, or a subgraph that an attribute holds and that may read values of outer graphs.

    Attributes:
        name: The graph's name.
        inputs: Values that the caller gives.
        outputs: Values that the caller gets; behaves as a list.
        initializers: Values with constants that no node computes, by name.
        overridable: Initializers that a caller may give another content for.
        nodes: The nodes, in an order in which they can be computed after loading.
        opset: Version of each imported operator set, by domain; "" is ONNX's own.
        metadata: The file's own keys and texts.
        files: Files other than the model's own that constants come from, and their states.
        remarks: What users are warned of in the file, each time that a session is made of it.
        has_hidden_data: Whether such files have more than initializers of the outermost graph.
        parent: The graph around a subgraph.
        names: Names in use, shared with the subgraphs.
        doc_string: What the file says of the graph in words.
        header: What the file says of the model, if this is the outermost graph.
    """

    def __init__(
        self, name: str = "", *, opset: dict[str, int] | None = None, parent: Graph | None = None
    ) -> None:
        self.name = name
        self.parent = parent
        self.names: Names = parent.names if parent else Names()
        self.inputs: list[Value] = []
        self.outputs: MutableSequence[Value] = Outputs(self)
        self.initializers: dict[str, Value] = {}
        self.overridable: list[Value] = []
        self.nodes = Nodes(self)
        self.opset: dict[str, int] = parent.opset if parent else dict(opset or {})
        self.metadata: dict[str, str] = {}
        self.files: list[tuple[str, Identity]] = []
        self.remarks: list[str] = []
        self.has_hidden_data = False
        self.doc_string = ""
        self.header = ModelHeader()

    def remark(self, text: str) -> None:
        """Warn of something in the file, now and in each session made without reading it."""
        self.remarks.append(text)
        remark(text)

    # Values

    def fresh_name(self, hint: str) -> str:
        """A name, like `hint`, that no value in this graph, around it or inside it has."""
        return self.names.fresh_value(hint)

    def fresh_node_name(self, hint: str) -> str:
        """A name, like `hint`, that no node in this graph, around it or inside it has."""
        return self.names.fresh_node(hint)

    def new_value(
        self, hint: str, dtype: DType | None = None, shape: tuple[Dim, ...] | None = None
    ) -> Value:
        """A value with a fresh name, for an output of a node that is yet to be added."""
        return Value(self.fresh_name(hint), dtype, shape)

    def value(self, name: str) -> Value | None:
        """The value with that name here, in a subgraph or in an outer graph."""
        return self.names.values.get(name)

    def register(self, value: Value) -> None:
        """Note the name of a value that becomes part of the graph.

        Raises:
            InvalidGraph: Another value has the name.
        """
        self._take_name(value)
        value.graph = self

    def _take_name(self, value: Value) -> None:
        if value.name and self.names.values.setdefault(value.name, value) is not value:
            raise InvalidGraph(
                message(f"graph {self.name}", f"There are two values named {value.name!r}")
            )

    def add_input(self, value: Value) -> Value:
        """Add a graph input."""
        self.register(value)
        self.inputs.append(value)
        return value

    def add_initializer(self, value: Value) -> Value:
        """Add a value that has a constant."""
        self.register(value)
        self.initializers[value.name] = value
        return value

    def add_constant(self, hint: str, constant: Constant) -> Value:
        """Add a constant under a fresh name."""
        return self.add_initializer(Value(self.fresh_name(hint), constant=constant))

    def remove_initializer(self, value: Value) -> None:
        """Remove a constant that nothing uses."""
        if value.is_used:
            raise InvalidGraph(message(value.name, "The initializer is in use, so it stays"))
        del self.initializers[value.name]
        self.names.values.pop(value.name, None)
        value.graph = None
        if value in self.overridable:
            self.overridable.remove(value)

    def rename(self, value: Value, name: str) -> None:
        """Give a value another name."""
        old = value.name
        value.name = name
        try:
            self._take_name(value)
        except InvalidGraph:
            value.name = old
            raise
        if self.names.values.get(old) is value and old != name:
            del self.names.values[old]
        home = value.graph
        if home is not None and home.initializers.get(old) is value:
            home.initializers = {v.name: v for v in home.initializers.values()}

    # Nodes

    def add_node(self, node: Node, *, before: Node | None = None) -> Node:
        """Add a node that is in no graph, before another one or at the end.

        A node without a name gets one; without a version, that of the operator set in force.

        Raises:
            InvalidGraph: The node is in a graph, or a name of its outputs is taken.
        """
        if node.graph is not None:
            raise InvalidGraph(message(f"node {node.name}", "The node is in a graph already"))
        if before is not None and before.graph is not self:
            raise InvalidGraph(message(f"node {before.name}", "The node is not in this graph"))
        for index, value in enumerate(node.outputs):
            if value.producer is not None:
                raise InvalidGraph(
                    message(
                        f"node {node.name} ({node.op_type})",
                        f"Its output {value.name!r} is computed by node {value.producer.name}",
                    )
                )
            self.register(value)
            value.producer, value.producer_index = node, index
        for index, read in enumerate(node.inputs):
            if read is not None:
                read._uses[node, index] = None
        if not node.name or node.name in self.names.nodes:
            node.name = self.fresh_node_name(node.name or node.op_type)
        self.names.nodes.add(node.name)
        node.version = node.version or self.opset.get(node.domain, 0)
        node.graph = self
        self.nodes._link(node, before)
        return node

    def insert_after(self, anchor: Node, node: Node) -> Node:
        """Add a node just after `anchor`."""
        if anchor.graph is not self:
            raise InvalidGraph(message(f"node {anchor.name}", "The node is not in this graph"))
        return self.add_node(node, before=anchor._next)

    def remove_node(self, node: Node) -> None:
        """Remove a node, and its subgraphs with it.

        Raises:
            InvalidGraph: The node is not here, or one of its outputs is used.
        """
        if node.graph is not self:
            raise InvalidGraph(message(f"node {node.name}", "The node is not in this graph"))
        for value in node.outputs:
            if value.is_used:
                reader = next((n.name for n, _ in value.uses), "the outputs of the graph")
                raise InvalidGraph(
                    message(
                        f"node {node.name} ({node.op_type})",
                        f"It cannot be removed: {value.name!r} is used by {reader}",
                    )
                )
        self._detach_node(node)
        self.nodes._unlink(node)

    def _detach_node(self, node: Node) -> None:
        for index, read in enumerate(node.inputs):
            if read is not None:
                read._uses.pop((node, index), None)
        for value in node.outputs:
            value.producer = value.graph = None
            if self.names.values.get(value.name) is value:
                del self.names.values[value.name]
        self.names.nodes.discard(node.name)
        node.graph = None
        for subgraph in node.subgraphs():
            subgraph.dispose()

    def dispose(self) -> None:
        """Forget a subgraph that is no longer used: what it reads and its names are let go."""
        self.outputs.clear()
        for node in self.nodes:
            self._detach_node(node)
        for value in (*self.inputs, *self.initializers.values()):
            if self.names.values.get(value.name) is value:
                del self.names.values[value.name]

    def set_inputs(self, node: Node, inputs: Iterable[Value | None]) -> None:
        """Replace all inputs of a node, which is in this graph or in a subgraph."""
        for index, read in enumerate(node.inputs):
            if read is not None:
                read._uses.pop((node, index), None)
        node.inputs = tuple(inputs)
        for index, read in enumerate(node.inputs):
            if read is not None:
                read._uses[node, index] = None

    def replace_uses(self, old: Value, new: Value) -> None:
        """Let everything that reads `old` read `new`, in subgraphs and in graph outputs too.

        The names of the outputs of the outermost graph stay: `new` takes the name of `old`, or a
        node `Identity` gives the name where `new` must keep its own.
        """
        if old is new:
            return
        for node, index in old.uses:
            inputs = list(node.inputs)
            inputs[index] = new
            del old._uses[node, index]
            new._uses[node, index] = None
            node.inputs = tuple(inputs)
        for graph in list(old._output_of):
            replacement = new
            if graph.parent is None:
                replacement = graph._with_name_of_output(old, new)
            for index, value in enumerate(graph.outputs):
                if value is old:
                    graph.outputs[index] = replacement

    def _with_name_of_output(self, old: Value, new: Value) -> Value:
        name, doc_string, declared = old.name, old.doc_string, old.declared
        self.rename(old, self.fresh_name(f"{name}_replaced"))
        keeps_name = (
            new.is_graph_output
            or new in self.inputs
            or new in self.overridable
            or new.graph is not self
        )
        if keeps_name:
            copy = Value(name, new.dtype, new.shape, kind=new.kind)
            copy.type = new.type
            origin = new.producer.origin if new.producer else ()
            self.add_node(
                Node("Identity", "", (new,), (copy,), name=f"{name}_identity", origin=origin)
            )
            new = copy
        else:
            self.rename(new, name)
        new.doc_string, new.declared = doc_string, declared or new.declared
        return new

    def walk(self) -> Iterator[Node]:
        """All nodes, those of subgraphs before the node that holds them."""
        for node in self.nodes:
            for subgraph in node.subgraphs():
                yield from subgraph.walk()
            yield node

    def graphs(self) -> Iterator[Graph]:
        """This graph and all subgraphs."""
        yield self
        for node in self.nodes:
            for subgraph in node.subgraphs():
                yield from subgraph.graphs()

    def topological_sort(self) -> None:
        """Bring the nodes, those of subgraphs too, into an order in which they can be computed.

        Nodes move only as far as they must.

        Raises:
            InvalidGraph: Nodes wait for each other; the text names them.
        """
        from sardonyx.ir.order import sort

        sort(self)

    def clone(self, values: dict[Value, Value] | None = None) -> Graph:
        """A copy that shares only constants.

        Args:
            values: Filled with the copy of each value. What a subgraph reads from outside is
                replaced where this has an entry for it, and else stays.
        """
        from sardonyx.ir.clone import clone

        return clone(self, {} if values is None else values)

    def detach(self) -> None:
        """Copy all constants out of their files, so that the files may change or go.

        Raises:
            Fail: A file was changed since it was opened.
        """
        for graph in self.graphs():
            for value in graph.initializers.values():
                if value.constant is not None:
                    value.constant.detach()
            for node in graph.nodes:
                for constant in node.constants():
                    constant.detach()

    def __repr__(self) -> str:
        inputs = ", ".join(map(repr, self.inputs))
        outputs = ", ".join(map(repr, self.outputs))
        return f"graph {self.name}({inputs}) -> ({outputs}): {len(self.nodes)} nodes"


def captured_values(graph: Graph) -> dict[Value, None]:
    """Values that a graph and its subgraphs read from outside, in order of first reading."""
    inside: set[Value] = set()
    read: dict[Value, None] = {}
    for inner in graph.graphs():
        inside.update(inner.inputs, inner.initializers.values())
        for node in inner.nodes:
            inside.update(node.outputs)
            read.update((value, None) for value in node.inputs if value is not None)
        read.update((value, None) for value in inner.outputs)
    return {value: None for value in read if value not in inside}
