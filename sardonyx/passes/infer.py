"""Shape inference: runs the lowerings on buffers and reads off types, shapes and contents.

Contents of small tensors are kept as symbolic integers in `Value.elements`, so that the shape
arithmetic that exporters write is known before planning. What the file declares about values
between inputs and outputs is not looked at: it may be wrong.

Tensors of one meaning are one object, so inference also sees which values are always equal: two
nodes that compute the same, and nodes that give their input back (a cast to the type it has, a
multiplication by one, a transposition of a transposition). Exporters write the same arithmetic on
sizes once for each layer: what it gives for the same numbers is looked up (`_known_by`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from sardonyx.base import errors, integer, sizes
from sardonyx.base.errors import InvalidGraph, message, too_deep
from sardonyx.base.interrupt import checkpoint
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.ops.core.contents import DataDependent, depends_on_data
from sardonyx.ops.core.lower import with_short_sizes
from sardonyx.ops.core.object_values import object_buffer
from sardonyx.ops.core.regions import stand_in
from sardonyx.ops.core.registry import apply, record_of, where
from sardonyx.ops.generation.generate import constant_tensor
from sardonyx.passes.expand import expansion_of
from sardonyx.tensor.assumptions import collect
from sardonyx.tensor.checked import is_checked
from sardonyx.tensor.composition import compose, is_index_map
from sardonyx.tensor.host import is_object
from sardonyx.tensor.measuring import Asked, measuring
from sardonyx.tensor.noted_checks import noting_checks
from sardonyx.tensor.region import Body
from sardonyx.tensor.symbolic import (
    ELEMENTS_LIMIT,
    Partial,
    elements_of,
    forgetting,
    partial_elements_of,
    remember,
)
from sardonyx.tensor.tensor import Buffer, Map, Tensor, buffer, complete

#: Written out, no size has more atoms: work on sizes may take as long as it takes to write them.
_MOST_ATOMS = 2000
#: Float tensors of more elements are no sizes or scales.
_FLOATS_LIMIT = 8


def infer(graph: Graph) -> dict[Node, str]:
    """Set dtype, shape and known elements of every value of a graph.

    Returns:
        The nodes whose outputs have no shape before a run, and those after them, with the reason.

    Raises:
        InvalidGraph: An operator is used in a way that it does not allow.
        NotImplemented: An operator is not supported.
    """
    with forgetting(), noting_checks() as noted:
        inference = _Inference(graph, noted)
        inference.run(graph)
    return inference.unknown


class _Inference:
    def __init__(
        self,
        graph: Graph,
        noted: list[str],
        parent: _Inference | None = None,
        outside: dict[Tensor, Buffer] | None = None,
    ) -> None:
        self.unknown: dict[Node, str] = {}
        self.causes: dict[Node, DataDependent] = {}
        #: For each node whose outputs have no shape, the first one that has none.
        self._sources: dict[Node, Node] = {}
        self.symbols: set[Dim] = set()
        self._graph, self._noted, self._parent = graph, noted, parent
        self._outside = {} if outside is None else outside
        self._overridable = set(graph.overridable)
        self._tensors: dict[Value, Tensor] = {}
        self._first: dict[object, Value] = {}
        self._measured: dict[tuple[Tensor, int], Dim] = {}
        self._index_maps: dict[Tensor, Map] = {}
        self._numbers: dict[object, Buffer] = {}
        self._computed: dict[object, list[Value]] = {}

    def run(self, graph: Graph) -> None:
        for node in list(graph.nodes):
            checkpoint()
            try:
                self.visit(node)
            except RecursionError:
                raise too_deep(where(node)) from None

    def inline(self, graph: Graph, inputs: Sequence[Tensor] = ()) -> list[Tensor]:
        """The outputs of a graph whose nodes belong to this one."""
        self._give(graph, inputs, self)
        self._overridable.update(graph.overridable)
        self.run(graph)
        return [self._tensor(value) for value in graph.outputs]

    def body(self, graph: Graph, inputs: Sequence[Tensor], outside: dict[Tensor, Buffer]) -> Body:
        """A graph of its own inside this one; `outside` gets what it reads beside its inputs."""
        inner = _Inference(graph, self._noted, self, outside)
        self._give(graph, inputs, inner)
        with forgetting():
            inner.run(graph)
        for node, cause in inner.causes.items():
            raise depends_on_data(node, cause) from cause
        return Body([inner._tensor(value) for value in graph.outputs], symbols=inner.symbols)

    @staticmethod
    def _give(graph: Graph, inputs: Sequence[Tensor], inference: _Inference) -> None:
        """Let an inference know the inputs of a graph inside a node."""
        if len(inputs) != len(graph.inputs):
            what = f"The graph {graph.name} has the wrong number of inputs"
            raise InvalidGraph(
                message("infer", what, expected=str(len(inputs)), got=str(len(graph.inputs)))
            )
        for value, tensor in zip(graph.inputs, inputs, strict=True):
            value.dtype, value.shape = tensor.dtype, tensor.shape
            value.elements = elements_of(tensor)
            inference._tensors[value] = tensor

    def visit(self, node: Node) -> None:
        inputs: list[Tensor | None] = []
        for value in node.inputs:
            if value is not None and value.producer in self.unknown:
                self._sources[node] = self._sources[value.producer]
                self._give_up(node, f"the shape of {value.name} is known only in a run")
                return
            inputs.append(None if value is None else self._tensor(value))
        key = _known_by(node, inputs)
        computed = None if key is None else self._computed.get(key)
        if computed is not None:
            self._take(node, computed)
            return
        expand = expansion_of(node)
        if expand is not None:
            for made in expand(node, inputs):
                self.visit(made)
            return
        node.measured.clear()
        try:
            noted = len(self._noted)
            with collect() as assumed, measuring(partial(self._measure, node, Asked(inputs))):
                outputs = with_short_sizes(apply(node, inputs, _Scope(self, node)))
        except DataDependent as reason:
            reason.asked_by(node, inputs)
            self.causes[node], self._sources[node] = reason, node
            self._give_up(node, str(reason))
            return
        checks = len(self._noted) > noted or any(x is not None and is_checked(x) for x in inputs)
        for value, tensor in zip(node.outputs, outputs, strict=False):
            if not value.is_omitted:
                self._note(node, inputs, value, tensor, bool(assumed), checks)
        if key is not None and not (assumed or node.measured) and all(map(_is_known, node.outputs)):
            self._computed[key] = list(node.outputs)

    def _take(self, node: Node, computed: list[Value]) -> None:
        """Set what is known of a node's outputs: what is known of those of another one."""
        node.measured.clear()
        for value, first in zip(node.outputs, computed, strict=True):
            value.dtype, value.shape, value.elements = first.dtype, first.shape, first.elements
            value.equal_to = first if _is_visible(first, node.graph) else None
            self._tensors[value] = self._tensors[first]

    def _measure(
        self, node: Node, asked: Asked, x: Tensor, positions: tuple[int, ...], low: Dim, high: Dim
    ) -> tuple[Dim, ...]:
        """New symbols for elements of a tensor, unless it was measured before."""
        symbols = tuple(self._symbol(node, x, k, low, high) for k in positions)
        number = asked.number(x)
        for k, symbol in zip(positions, symbols, strict=True):
            node.measured[number, k] = symbol
        count = sizes.product(x.shape)
        if isinstance(count, int):
            known = list(partial_elements_of(x) or (None,) * count)
            for k, symbol in zip(positions, symbols, strict=True):
                known[k] = symbol
            remember(x, tuple(known))
        return symbols

    def _symbol(self, node: Node, x: Tensor, position: int, low: Dim, high: Dim) -> Dim:
        found = self._measured.get((x, position))
        if found is None:
            name = x.label if isinstance(x, Buffer) else node.output.name
            number = len(self._measured)
            found = sizes.measured(f"{node.name}:{name}.{number}", low, high)
            self._measured[x, position] = found
            self.symbols.add(found)
        return found

    def _give_up(self, node: Node, reason: str) -> None:
        self.unknown[node] = reason
        for value in node.outputs:
            value.dtype = value.shape = value.elements = value.equal_to = None

    def _tensor(self, value: Value) -> Tensor:
        found = self._tensors.get(value)
        if found is None:
            if self._parent is not None and self._is_outside(value):
                found = self._parent._tensor(value)
                stand_in(found, self._outside)
                return found
            found = self._tensors[value] = self._make(value)
            self._first.setdefault(found, value)
        return found

    def _is_outside(self, value: Value) -> bool:
        return value.graph is not self._graph

    def _make(self, value: Value) -> Tensor:
        if value.constant is not None and value not in self._overridable:
            made = constant_tensor(value.constant, value.name)
            if not _is_number(made):
                return made
            return self._numbers.setdefault((made.dtype, made.shape, made.known), made)
        if value.kind != "tensor":
            return object_buffer(value, value.name)
        if value.producer in self._sources:
            source = self._sources[value.producer]
            raise depends_on_data(source, self.causes[source]) from self.causes[source]
        if value.dtype is None or value.shape is None:
            raise errors.NotImplemented(
                message(f"value {value.name}", "Its type or number of axes is not declared")
            )
        return buffer(value.name, value.shape, value.dtype)

    def _note(
        self,
        node: Node,
        inputs: list[Tensor | None],
        value: Value,
        tensor: Tensor | None,
        assumes: bool,
        checks: bool,
    ) -> None:
        """Set what is known of an output.

        Args:
            node: The node.
            inputs: Its inputs.
            value: Its output.
            tensor: What the lowering gives for it.
            assumes: Whether that holds only for some sizes: then the node has to stay, so that a
                run checks them.
            checks: Whether the node, or one before it, may check what it is given.
        """
        if tensor is None:
            raise errors.NotImplemented(
                message(where(node), f"Its output {value.name!r} is not supported")
            )
        if tensor.rank > sizes.MOST_AXES:
            what, got = "No array has so many axes as its output", str(tensor.rank)
            expected = f"at most {sizes.MOST_AXES}"
            raise InvalidGraph(message(where(node), what, expected=expected, got=got))
        if any(isinstance(d, int) and d < 0 for d in tensor.shape):
            raise InvalidGraph(
                message(where(node), f"Its output has the shape {list(tensor.shape)}")
            )
        if any(integer.weight(d) > _MOST_ATOMS for d in tensor.shape):
            what = "Its shape is too complicated an expression of the inputs' shapes"
            raise errors.NotImplemented(message(where(node), what))
        value.dtype, value.shape = tensor.dtype, tensor.shape
        if is_object(tensor):
            # What it was made of stays in sight: lowerings look for items that are known.
            first = self._first.setdefault(tensor, value)
            if first is not value:
                value.equal_to = first if _is_visible(first, node.graph) else None
            self._tensors[value] = tensor
            return
        known = _elements(tensor)
        value.elements = complete(known)
        whole = compose(tensor, self._index_maps)
        first = self._first.setdefault(_meaning(node, inputs, whole), value)
        if first is not value and (not assumes or _does_the_same(node, first.producer)):
            value.equal_to = first if _is_visible(first, node.graph) else None
            self._tensors[value] = self._tensors[first]
            return
        if isinstance(whole, Buffer) and known is whole.known and not assumes:
            self._tensors[value] = whole
            return
        if known is None and _is_one_number(whole) and not assumes:
            # Lengths of parts, however many there are: what reads them looks for the number.
            self._tensors[value] = whole
            self._first[whole] = value
            return
        only = known[0] if known is not None and len(known) == 1 else None
        number = only if isinstance(only, (int, float)) else None
        self._tensors[value] = given = buffer(
            value.name, tensor.shape, tensor.dtype, value=number, known=known,
            is_checked=checks and value.elements is None,
        )  # fmt: skip
        self._first[given] = value  # what gives this value back is equal to it
        if isinstance(whole, Map) and is_index_map(whole) and not assumes:
            self._index_maps[given] = whole


class _Scope:
    """What infers the graphs among a node's attributes."""

    by_shapes = True

    def __init__(self, inference: _Inference, node: Node) -> None:
        self._inference = inference
        self.name = node.name

    def inline(self, graph: Graph, inputs: Sequence[Tensor] = ()) -> list[Tensor]:
        return self._inference.inline(graph, inputs)

    def body(self, graph: Graph, inputs: Sequence[Tensor], outside: dict[Tensor, Buffer]) -> Body:
        return self._inference.body(graph, inputs, outside)

    def own(self, symbols: Iterable[Dim], call: Tensor) -> None:
        self._inference.symbols.update(symbols)


def _is_one_number(x: Tensor) -> bool:
    """Whether all elements are one whole number, and only how many there are is left open."""
    return isinstance(x, Map) and x.dtype.is_integer and x.body.op == "constant"


def _known_by(node: Node, inputs: list[Tensor | None]) -> object:
    """What decides on the outputs of arithmetic on known whole numbers; None for other nodes."""
    if not all(map(_is_number, inputs)):
        return None
    facts: list[object] = [node.op_type, node.domain, node.version, *inputs]
    facts.append(tuple([value.is_omitted for value in node.outputs]))
    for name, given in node.attributes.items():
        if isinstance(given, (int, str, bytes)):
            facts += name, given
        elif isinstance(given, list) and all(isinstance(x, int) for x in given):
            facts += name, tuple(given)
        elif isinstance(given, Constant) and given.element_count <= _FLOATS_LIMIT:
            facts += name, given.dtype, given.shape, given.array().tobytes()
        else:
            return None
    return tuple(facts)


def _is_number(x: Tensor | None) -> bool:
    """Whether all elements are known and whole. (Floats may be equal and differ: 0 and -0.)"""
    if x is None:
        return True
    if not isinstance(x, Buffer) or x.dtype.kind not in "iub":
        return False
    return x.known is not None and None not in x.known


def _is_known(value: Value) -> bool:
    """Whether an output is omitted, or has elements that are known and whole."""
    is_whole = value.dtype is not None and value.dtype.kind in "iub"
    return value.is_omitted or (is_whole and bool(value.elements))


def _is_visible(value: Value, graph: Graph | None) -> bool:
    """Whether a graph can read a value: its own, or one of a graph around it."""
    while graph is not None and value.graph is not graph:
        graph = graph.parent
    return graph is not None


def _does_the_same(node: Node, other: Node | None) -> bool:
    """Whether another node takes for granted what a node does."""
    return other is not None and (node.op_type, node.domain, node.inputs) == (
        other.op_type,
        other.domain,
        other.inputs,
    )


def _meaning(node: Node, inputs: list[Tensor | None], output: Tensor) -> object:
    """What is the same for equal outputs: the tensor, or which two operands in whatever order."""
    if not isinstance(output, Map) or len(inputs) != 2 or is_index_map(output):
        return output
    record = record_of(node)
    return (record, frozenset(inputs)) if "commutative" in record.flags else output


def _elements(tensor: Tensor) -> Partial | None:
    count: sizes.Dim = 1
    for d in tensor.shape:
        if not isinstance(d, int):
            return None
        count *= d
    if not isinstance(count, int):
        return None
    limit = _FLOATS_LIMIT if tensor.dtype.is_float else ELEMENTS_LIMIT
    found = partial_elements_of(tensor) if count <= limit else None
    if found is None or not any(isinstance(e, sizes.Size) for e in found):
        return found
    short = tuple(integer.summarised(e) if isinstance(e, sizes.Size) else e for e in found)
    return found if short == found else short
