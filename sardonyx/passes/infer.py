"""Shape inference: runs the lowerings on buffers and reads off types, shapes and contents.

Contents of small tensors are kept as symbolic integers in `Value.elements`, so that the shape
arithmetic that exporters write is known before planning. What the file declares about values
between inputs and outputs is not looked at: it may be wrong.
"""

from __future__ import annotations

from sardonyx.base import errors, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.ops.generate import constant_tensor
from sardonyx.ops.registry import DataDependent, apply, where
from sardonyx.tensor.symbolic import ELEMENTS_LIMIT, elements_of
from sardonyx.tensor.tensor import Buffer, Tensor, buffer

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
                self._note(node, value, tensor)

    def _give_up(self, node: Node, reason: str) -> None:
        self.unknown[node] = reason
        for value in node.outputs:
            value.dtype = value.shape = value.elements = None

    def _tensor(self, value: Value) -> Tensor:
        found = self._tensors.get(value)
        if found is None:
            found = self._tensors[value] = self._make(value)
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

    def _note(self, node: Node, value: Value, tensor: Tensor | None) -> None:
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
        if isinstance(tensor, Buffer) and known is tensor.elements:
            self._tensors[value] = tensor
            return
        only = known[0] if known is not None and len(known) == 1 else None
        number = only if isinstance(only, (int, float)) else None
        self._tensors[value] = buffer(
            value.name, tensor.shape, tensor.dtype, value=number, known=known
        )


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
