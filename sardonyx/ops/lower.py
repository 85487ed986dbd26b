"""A graph as tensors of the tensor language."""

from __future__ import annotations

from dataclasses import dataclass, field

from sardonyx.base import errors
from sardonyx.base.errors import message
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.ops.generate import constant_tensor
from sardonyx.ops.registry import DataDependent, apply, where
from sardonyx.tensor import assumptions
from sardonyx.tensor.assumptions import Assumption
from sardonyx.tensor.elementwise import known_tensor
from sardonyx.tensor.symbolic import ELEMENTS_LIMIT
from sardonyx.tensor.tensor import Buffer, Tensor, buffer
from sardonyx.tensor.traverse import topological


@dataclass(slots=True)
class LoweredGraph:
    """What a graph computes.

    Attributes:
        outputs: The tensor of each output value, in the order of the graph.
        inputs: The buffer of each graph input, and of each initializer that a caller may override.
        constants: The buffer of each constant that is read.
        values: The tensor of every value.
        origins: Names of the nodes of the model that each tensor came from.
        assumptions: Pairs of sizes that are taken as equal; a plan must check them.
    """

    outputs: dict[Value, Tensor] = field(default_factory=dict)
    inputs: dict[Value, Buffer] = field(default_factory=dict)
    constants: dict[Value, Buffer] = field(default_factory=dict)
    values: dict[Value, Tensor] = field(default_factory=dict)
    origins: dict[Tensor, tuple[str, ...]] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()


def lower(graph: Graph) -> LoweredGraph:
    """Lower a graph whose shapes have been inferred.

    Raises:
        NotImplemented: An operator is not supported, or a shape is known only in a run.
        InvalidGraph: An operator is used in a way that it does not allow.
    """
    lowered = LoweredGraph()
    for value in (*graph.inputs, *graph.overridable):
        lowered.values[value] = lowered.inputs[value] = _input(value)
    with assumptions.collect() as found:
        for node in graph.nodes:
            _lower_node(node, lowered)
        for value in graph.outputs:
            lowered.outputs[value] = _tensor(value, lowered)
    lowered.assumptions = tuple(found)
    return lowered


def _input(value: Value) -> Buffer:
    if value.kind != "tensor" or value.dtype is None or value.shape is None:
        raise errors.NotImplemented(
            message(f"value {value.name}", "Only tensors of known type and rank are supported")
        )
    return buffer(value, value.shape, value.dtype)


def _tensor(value: Value, lowered: LoweredGraph) -> Tensor:
    found = lowered.values.get(value)
    if found is None:
        if value.constant is None:
            raise errors.NotImplemented(
                message(f"value {value.name}", "A value of an outer graph cannot be read here")
            )
        lowered.constants[value] = constant_tensor(value.constant, value)
        found = lowered.values[value] = lowered.constants[value]
    return found


def _is_known(value: Value) -> bool:
    return value.is_omitted or (
        value.elements is not None
        and len(value.elements) <= ELEMENTS_LIMIT
        and value.dtype is not None
        and value.shape is not None
    )


def _lower_node(node: Node, lowered: LoweredGraph) -> None:
    if all(map(_is_known, node.outputs)):
        outputs: tuple[Tensor | None, ...] = tuple(map(_known, node.outputs))
    else:
        inputs = [None if v is None else _tensor(v, lowered) for v in node.inputs]
        try:
            outputs = apply(node, inputs)
        except DataDependent as reason:
            raise errors.NotImplemented(
                message(where(node), f"A shape depends on data: {reason}")
            ) from reason
    for value, tensor in zip(node.outputs, outputs, strict=False):
        if tensor is None or value.is_omitted:
            continue
        lowered.values[value] = tensor
        for made in topological([tensor], lowered.origins):
            if not isinstance(made, Buffer):
                lowered.origins[made] = node.origin or (node.name,)


def _known(value: Value) -> Tensor | None:
    if value.is_omitted:
        return None
    return known_tensor(value.elements or (), value.shape or (), value.dtype)  # type: ignore[arg-type]
