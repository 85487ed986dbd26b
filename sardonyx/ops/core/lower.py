"""A graph as tensors of the tensor language."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from sardonyx.base import errors, sizes
from sardonyx.base.dtypes import INT64
from sardonyx.base.errors import InvalidGraph, message, too_deep
from sardonyx.base.interrupt import checkpoint
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.ops.core.contents import DataDependent, depends_on_data
from sardonyx.ops.core.object_values import object_buffer
from sardonyx.ops.core.regions import seen_inside
from sardonyx.ops.core.registry import apply, where
from sardonyx.ops.generation.generate import constant_tensor
from sardonyx.ops.onnx.sparse_values import as_declared
from sardonyx.tensor import assumptions
from sardonyx.tensor.assumptions import Assumption
from sardonyx.tensor.elementwise import cast, known_tensor
from sardonyx.tensor.host import is_object
from sardonyx.tensor.inside import assume_inside
from sardonyx.tensor.measuring import LARGEST, Asked, Measured, measuring
from sardonyx.tensor.region import Body
from sardonyx.tensor.symbolic import ELEMENTS_LIMIT, forgetting, partial_elements_of, remember
from sardonyx.tensor.tensor import Buffer, Contract, Reduce, Tensor, buffer
from sardonyx.tensor.traverse import topological
from sardonyx.tensor.views import summarised


def with_short_sizes(outputs: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """What a node gives, with symbols in place of long sizes: readers then do not copy them."""
    return tuple(x if x is None or is_object(x) else summarised(x) for x in outputs)


@dataclass(slots=True)
class LoweredGraph:
    """What a graph computes.

    Attributes:
        outputs: The tensor of each output value, in the order of the graph.
        inputs: The buffer of each graph input, and of each initializer that a caller may override.
        constants: The buffer of each constant that is read.
        values: The tensor of every value.
        origins: Names of the nodes of the model that each tensor came from.
        measured: Where the symbols come from that a run measures, by the symbol.
        ends: The region whose end brings a symbol.
        assumptions: Pairs of sizes that are taken as equal, and why; a plan must check them.
        results: What nodes give, in this graph and in those inside it.
        makers: The first node, as errors name it, that makes a shape of elements of so many bytes,
            in this graph and in those inside it: of sizes that a run decides, or very large.
    """

    outputs: dict[Value, Tensor] = field(default_factory=dict)
    inputs: dict[Value, Buffer] = field(default_factory=dict)
    constants: dict[Value, Buffer] = field(default_factory=dict)
    values: dict[Value, Tensor] = field(default_factory=dict)
    origins: dict[Tensor, tuple[str, ...]] = field(default_factory=dict)
    measured: dict[Dim, Measured] = field(default_factory=dict)
    ends: dict[Dim, Tensor] = field(default_factory=dict)
    assumptions: dict[Assumption, str] = field(default_factory=dict)
    results: set[Tensor] = field(default_factory=set)
    makers: dict[tuple[tuple[Dim, ...], int], str] = field(default_factory=dict)


#: Lowers a node: given its inputs, and what gives the outputs of a graph given its inputs.
Inline = Callable[[Graph, Sequence[Tensor]], list[Tensor]]
NodeLowering = Callable[[Sequence[Tensor], Inline], tuple[Tensor, ...]]


def lower(graph: Graph, special: Mapping[Node, NodeLowering] | None = None) -> LoweredGraph:
    """Lower a graph whose shapes have been inferred.

    Args:
        graph: The graph.
        special: What lowers nodes of it that no operator's record is for.

    Raises:
        NotImplemented: An operator is not supported, or a shape is known only in a run.
        InvalidGraph: An operator is used in a way that it does not allow.
    """
    lowering = _Lowering(graph)
    lowering.special.update(special or {})
    lowered = lowering.lowered
    for value in graph.inputs:
        lowered.values[value] = lowered.inputs[value] = _input(value)
    with assumptions.collect() as found, forgetting():
        lowering.run(graph)
        for value in graph.outputs:
            lowered.outputs[value] = as_declared(value, lowering.tensor(value))
    lowered.assumptions = found
    return lowered


def _input(value: Value) -> Buffer:
    if value.kind != "tensor":
        return object_buffer(value, value)
    if value.dtype is None or value.shape is None:
        raise errors.NotImplemented(
            message(f"value {value.name}", "Only tensors of known type and rank are supported")
        )
    return buffer(value, value.shape, value.dtype)


def _constant(value: Value, constant: Constant) -> Buffer:
    """A constant; its contents are not looked at if it is to be taken as something that varies."""
    if value.graph is not None and value in value.graph.overridable:
        return buffer(value, constant.shape, constant.dtype, constant=constant)
    return constant_tensor(constant, value)


class _Lowering:
    """One graph, perhaps inside another.

    Args:
        graph: The graph.
        parent: What lowers the graph around it.
        outside: Gets a buffer for each tensor from outside that a run computes.
    """

    def __init__(
        self,
        graph: Graph,
        parent: _Lowering | None = None,
        outside: dict[Tensor, Buffer] | None = None,
    ) -> None:
        self._graphs, self._parent = {graph}, parent
        self._outside = {} if outside is None else outside
        self.lowered = LoweredGraph()
        if parent is not None:
            self.lowered.results = parent.lowered.results
            self.lowered.makers = parent.lowered.makers
        self.symbols: set[Dim] = set()
        self.special: dict[Node, NodeLowering] = {} if parent is None else parent.special

    def run(self, graph: Graph) -> None:
        """Lower the nodes of a graph."""
        for node in graph.nodes:
            checkpoint()
            try:
                self._node(node)
            except RecursionError:
                raise too_deep(where(node)) from None

    def inline(self, graph: Graph, inputs: Sequence[Tensor] = ()) -> list[Tensor]:
        """The outputs of a graph whose nodes belong to this one."""
        self._graphs.add(graph)
        self.lowered.values.update(zip(graph.inputs, inputs, strict=True))
        self.run(graph)
        return [self.tensor(value) for value in graph.outputs]

    def body(
        self, graph: Graph, inputs: Sequence[Tensor], outside: dict[Tensor, Buffer], around: Node
    ) -> Body:
        """A graph of its own inside this one, of the node `around`, which made the inputs."""
        inner = _Lowering(graph, self, outside)
        inner.lowered.values.update(zip(graph.inputs, inputs, strict=True))
        with assumptions.collect() as found, forgetting():
            inner.note_made(inputs, around)
            inner.run(graph)
            outputs = [inner.tensor(value) for value in graph.outputs]
        lowered = inner.lowered
        return Body(outputs, lowered.measured, found, lowered.origins, inner.symbols, lowered.ends)

    def own(self, symbols: Iterable[Dim], call: Tensor | None = None) -> None:
        """Note symbols that a node of this graph brings, perhaps with the end of a region."""
        found = set(symbols)
        self.symbols |= found
        if call is not None:
            self.lowered.ends.update(dict.fromkeys(found, call))

    def tensor(self, value: Value) -> Tensor:
        """The tensor of a value, of this graph or one around it."""
        lowered = self.lowered
        found = lowered.values.get(value)
        if found is None:
            if value.constant is not None and value.graph in self._graphs:
                found = lowered.constants[value] = _constant(value, value.constant)
            elif self._parent is not None and value.graph not in self._graphs:
                found = seen_inside(self._parent.tensor(value), self._outside)
            else:
                raise errors.NotImplemented(
                    message(f"value {value.name}", "It is used before it is computed")
                )
            lowered.values[value] = found
        return found

    def _node(self, node: Node) -> None:
        # What is known of a branch was assumed when it was chosen, which is for the node to say.
        has_graphs = any(True for _ in node.subgraphs())
        if not has_graphs and all(map(_is_known, node.outputs)):
            outputs: tuple[Tensor | None, ...] = tuple(map(_known, node.outputs))
        elif node in self.special:
            read = [self.tensor(v) for v in node.inputs if v is not None]
            outputs = self.special[node](read, self.inline)
        else:
            inputs = [None if v is None else self.tensor(v) for v in node.inputs]
            try:
                with measuring(_Measuring(node, inputs, self)), assumptions.asked_by(where(node)):
                    outputs = with_short_sizes(apply(node, inputs, _Scope(self, node)))
            except DataDependent as reason:
                reason.asked_by(node, inputs)
                raise depends_on_data(node, reason) from reason
        self._keep(node, outputs)

    def _keep(self, node: Node, outputs: Sequence[Tensor | None]) -> None:
        lowered = self.lowered
        for value, tensor in zip(node.outputs, outputs, strict=False):
            if tensor is None or value.is_omitted:
                continue
            lowered.values[value] = tensor
            lowered.results.add(tensor)
            self.note_made([tensor], node)

    def note_made(self, tensors: Sequence[Tensor], node: Node) -> None:
        """Note, and check, what a node makes: all that nobody made before it."""
        origins = self.lowered.origins
        for made in topological(tensors, origins):
            if not isinstance(made, Buffer):
                origins[made] = self._origin_outside(made) or node.origin or (node.name,)
                _check_steps(made, node)
                self._note_maker(made, node)
                assume_inside(made, where(node))

    def _origin_outside(self, tensor: Tensor) -> tuple[str, ...] | None:
        """The nodes around this graph that make a tensor: constants are the same inside."""
        lowering = self._parent
        while lowering is not None:
            if tensor in lowering.lowered.origins:
                return lowering.lowered.origins[tensor]
            lowering = lowering._parent
        return None

    def _note_maker(self, made: Tensor, node: Node) -> None:
        count = sizes.product(made.shape)
        if not isinstance(count, int) or count > _VERY_LARGE:
            key = (made.shape, made.dtype.size_bytes)
            self.lowered.makers.setdefault(key, where(node))


#: A value of more elements is likely to be refused, even if no feed decides its size.
_VERY_LARGE = 1 << 32


def _check_steps(tensor: Tensor, node: Node) -> None:
    """Refuse what takes more steps than can be counted; of sizes of a run plans check that.

    Raises:
        InvalidGraph: It does.
    """
    extents = tensor.extents if isinstance(tensor, (Reduce, Contract)) else ()
    lengths = [d for d in (*tensor.shape, *extents) if isinstance(d, int)]
    if 0 not in lengths and math.prod(lengths) > LARGEST:
        what = f"It computes {list(tensor.shape)} elements"
        what += f", each from {list(extents)}" if extents else ""
        raise InvalidGraph(message(where(node), what, expected=f"at most {LARGEST}"))


class _Scope:
    """What lowers the graphs among a node's attributes."""

    by_shapes = False

    def __init__(self, lowering: _Lowering, node: Node) -> None:
        self.name, self._node, self._lowering = node.name, node, lowering
        self.own = lowering.own

    def inline(self, graph: Graph, inputs: Sequence[Tensor] = ()) -> list[Tensor]:
        self._lowering.note_made(inputs, self._node)
        return self._lowering.inline(graph, inputs)

    def body(self, graph: Graph, inputs: Sequence[Tensor], outside: dict[Tensor, Buffer]) -> Body:
        return self._lowering.body(graph, inputs, outside, self._node)


def _is_known(value: Value) -> bool:
    return value.is_omitted or (
        # The node of a tensor without elements may check the sizes that make it so.
        value.elements is not None
        and 0 < len(value.elements) <= ELEMENTS_LIMIT
        and value.dtype is not None
        and value.shape is not None
    )


class _Measuring:
    """Gives a node the symbols that inference gave it, and notes what they are measured in."""

    def __init__(self, node: Node, inputs: Sequence[Tensor | None], lowering: _Lowering) -> None:
        self._node, self._lowering = node, lowering
        self._asked = Asked(inputs)

    def __call__(
        self, x: Tensor, positions: tuple[int, ...], low: Dim, high: Dim
    ) -> tuple[Dim, ...]:
        number = self._asked.number(x)
        origin = self._node.origin or (self._node.name,)
        source = cast(x, INT64)
        origins = self._lowering.lowered.origins
        for made in topological([source], origins):
            if not isinstance(made, Buffer):
                origins[made] = origin
        symbols = []
        for position in positions:
            symbol = self._node.measured.get((number, position))
            if symbol is None:
                # Inference knew it from the graph around this one, where the same was measured.
                name = f"{self._node.name}:again{number}.{position}"
                symbol = self._node.measured[number, position] = sizes.measured(name, low, high)
            found = Measured(source, position, low, high, origin)
            self._lowering.lowered.measured.setdefault(symbol, found)
            symbols.append(symbol)
        self._lowering.own(symbols)
        count = sizes.product(x.shape)
        if isinstance(count, int):
            known = list(partial_elements_of(x) or (None,) * count)
            for position, symbol in zip(positions, symbols, strict=True):
                known[position] = symbol
            remember(x, tuple(known))
        return tuple(symbols)


def _known(value: Value) -> Tensor | None:
    if value.is_omitted:
        return None
    return known_tensor(value.elements or (), value.shape or (), value.dtype)  # type: ignore[arg-type]  # `_is_known` saw to it
