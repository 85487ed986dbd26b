"""Shape inference: runs the lowerings on buffers and reads off types, shapes and contents.

Contents of small tensors are kept as symbolic integers in `Value.elements`, so that the shape
arithmetic that exporters write is known before planning. What the file declares about values
between inputs and outputs is not looked at: it may be wrong.

Tensors of one meaning are one object, so inference also sees which values are always equal: two
nodes that compute the same, and nodes that give their input back (a cast to the type it has, a
multiplication by one, a transposition of a transposition).
"""

from __future__ import annotations

from sardonyx.base import errors, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.ops.generate import constant_tensor
from sardonyx.ops.registry import DataDependent, apply, record_of, where
from sardonyx.tensor.composition import compose, is_index_map
from sardonyx.tensor.symbolic import ELEMENTS_LIMIT, elements_of
from sardonyx.tensor.tensor import Buffer, Map, Tensor, buffer

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
    inference = _Inference(graph)
    for node in graph.nodes:
        inference.visit(node)
    return inference.unknown


class _Inference:
    def __init__(self, graph: Graph) -> None:
        self.unknown: dict[Node, str] = {}
        self._overridable = set(graph.overridable)
        self._tensors: dict[Value, Tensor] = {}
        self._first: dict[object, Value] = {}
        self._index_maps: dict[Tensor, Map] = {}

    def visit(self, node: Node) -> None:
        inputs: list[Tensor | None] = []
        for value in node.inputs:
            if value is not None and value.producer in self.unknown:
                self._give_up(node, f"the shape of {value.name} is known only in a run")
                return
            inputs.append(None if value is None else self._tensor(value))
        try:
            outputs = apply(node, inputs)
        except DataDependent as reason:
            self._give_up(node, str(reason))
            return
        for value, tensor in zip(node.outputs, outputs, strict=False):
            if not value.is_omitted:
                self._note(node, inputs, value, tensor)

    def _give_up(self, node: Node, reason: str) -> None:
        self.unknown[node] = reason
        for value in node.outputs:
            value.dtype = value.shape = value.elements = value.equal_to = None

    def _tensor(self, value: Value) -> Tensor:
        found = self._tensors.get(value)
        if found is None:
            found = self._tensors[value] = self._make(value)
            self._first.setdefault(found, value)
        return found

    def _make(self, value: Value) -> Tensor:
        if value.constant is not None and value not in self._overridable:
            return constant_tensor(value.constant, value.name)
        if value.kind != "tensor":
            raise errors.NotImplemented(
                message(f"value {value.name}", f"Values of kind {value.kind} are not supported")
            )
        if value.dtype is None or value.shape is None:
            raise errors.NotImplemented(
                message(f"value {value.name}", "Its type or number of axes is not declared")
            )
        return buffer(value.name, value.shape, value.dtype)

    def _note(
        self, node: Node, inputs: list[Tensor | None], value: Value, tensor: Tensor | None
    ) -> None:
        if tensor is None:
            raise errors.NotImplemented(
                message(where(node), f"Its output {value.name!r} is not supported")
            )
        if any(isinstance(d, int) and d < 0 for d in tensor.shape):
            raise InvalidGraph(
                message(where(node), f"Its output has the shape {list(tensor.shape)}")
            )
        value.dtype, value.shape = tensor.dtype, tensor.shape
        value.elements = known = _elements(tensor)
        whole = compose(tensor, self._index_maps)
        first = self._first.setdefault(_meaning(node, inputs, whole), value)
        if first is not value:
            value.equal_to = first
            self._tensors[value] = self._tensors[first]
            return
        if isinstance(whole, Buffer) and known is whole.elements:
            self._tensors[value] = whole
            return
        only = known[0] if known is not None and len(known) == 1 else None
        number = only if isinstance(only, (int, float)) else None
        self._tensors[value] = given = buffer(
            value.name, tensor.shape, tensor.dtype, value=number, known=known
        )
        self._first[given] = value  # what gives this value back is equal to it
        if isinstance(whole, Map) and is_index_map(whole):
            self._index_maps[given] = whole


def _meaning(node: Node, inputs: list[Tensor | None], output: Tensor) -> object:
    """What is the same for equal outputs: the tensor, or which two operands in whatever order."""
    if not isinstance(output, Map) or len(inputs) != 2 or is_index_map(output):
        return output
    record = record_of(node)
    return (record, frozenset(inputs)) if "commutative" in record.flags else output


def _elements(tensor: Tensor) -> tuple[sizes.Dim, ...] | None:
    count: sizes.Dim = 1
    for d in tensor.shape:
        if not isinstance(d, int):
            return None
        count *= d
    if not isinstance(count, int):
        return None
    limit = _FLOATS_LIMIT if tensor.dtype.is_float else ELEMENTS_LIMIT
    return elements_of(tensor) if count <= limit else None
