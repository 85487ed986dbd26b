"""Nodes that become other nodes once the types of their inputs are known.

SequenceMap is defined by other operators, and types decide by which:

y = SequenceMap(s, x) {body}  ->  n = SequenceLength(s)
                                  y = Loop(n, , SequenceEmpty()) {item = SequenceAt(s, k); body;
                                                                  SequenceInsert(carried, out)}

A node that generates text (`ops/generation/generation.py`) runs its decoder once for the prompt,
then in a loop. What is inferred for one use is not true of the other, so the first gets a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sardonyx.base.dtypes import BOOL, FLOAT, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.forks import compiling
from sardonyx.base.object_types import ObjectType
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.ops.core.registry import where
from sardonyx.tensor.tensor import Tensor

Expansion = Callable[[Node, Sequence[Tensor | None]], list[Node]]


def expansion_of(node: Node) -> Expansion | None:
    """What puts other nodes in the place of this one, given its inputs as tensors."""
    if node.op_type in _GENERATORS and node.domain == "com.microsoft":
        _give_first_decoder(node)
    return _EXPANSIONS.get((node.domain, node.op_type))


#: Operators with the graph of a decoder.
_GENERATORS = frozenset(("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"))


def _give_first_decoder(node: Node) -> None:
    """Give a node a copy of its decoder for the prompt if it has none and runs it there."""
    decoder, encoder = (node.attributes.get(name) for name in ("decoder", "encoder"))
    if "init_decoder" in node.attributes or not isinstance(decoder, Graph):
        return
    with compiling:
        from sardonyx.ir.clone import clone
        from sardonyx.ops.generation.decoders import needs_first_decoder

    if needs_first_decoder(decoder, encoder if isinstance(encoder, Graph) else None):
        node.attributes["init_decoder"] = clone(decoder, {}, node.graph)


def _sequence_map(node: Node, inputs: Sequence[Tensor | None]) -> list[Node]:
    """See the module's text."""
    graph, body = node.graph, node.attributes.get("body")
    if graph is None or not isinstance(body, Graph) or len(body.inputs) != len(node.inputs):
        what = "It needs a graph with as many inputs as it has itself"
        raise InvalidGraph(message(where(node), what))
    if not _is_sequence(inputs[0]):
        raise InvalidGraph(message(where(node), "Its first input is no sequence"))
    number, going = body.new_value("number", INT64, ()), body.new_value("going", BOOL, ())
    first = next(iter(body.nodes), None)
    for old, given, tensor in zip(list(body.inputs), node.inputs, inputs, strict=True):
        if given is None:
            raise InvalidGraph(message(where(node), "An input is missing"))
        read = given
        if _is_sequence(tensor):
            read = body.new_value(old.name)
            at = Node("SequenceAt", "", (given, number), (read,), origin=node.origin)
            body.add_node(at, before=first)
        body.replace_uses(old, read)
    if len(node.outputs) > len(body.outputs):
        what, expected = "It has more outputs than its graph", str(len(body.outputs))
        got = str(len(node.outputs))
        raise InvalidGraph(message(where(node), what, expected=expected, got=got))
    body.inputs.clear()
    body.add_input(number)
    body.add_input(going)
    results = list(body.outputs)
    body.outputs.clear()
    body.outputs.append(_true(body))
    for result in results:
        carried = body.add_input(body.new_value("carried"))
        grown = body.new_value("grown")
        inserted = Node("SequenceInsert", "", (carried, result), (grown,), origin=node.origin)
        body.add_node(inserted)
        body.outputs.append(grown)
    length = graph.new_value("length")
    starts = [graph.new_value("empty") for _ in results]
    made = [Node("SequenceLength", "", (node.inputs[0],), (length,), origin=node.origin)]
    for result, start in zip(results, starts, strict=True):
        dtype = result.dtype or result.declared_dtype or FLOAT
        facts = {"dtype": dtype.onnx_id}
        made.append(Node("SequenceEmpty", "", (), (start,), facts, origin=node.origin))
    ends = [graph.new_value(value.name or "result") for value in node.outputs]
    ends += [graph.new_value("unread") for _ in results[len(ends) :]]
    del node.attributes["body"]  # the loop has it now
    loop = Node("Loop", "", (length, None, *starts), ends, {"body": body}, origin=node.origin)
    made.append(loop)
    for one in made:
        graph.add_node(one, before=node)
    for old, new in zip(node.outputs, ends, strict=False):
        if not old.is_omitted:
            graph.replace_uses(old, new)
    graph.remove_node(node)
    return made


def _is_sequence(x: Tensor | None) -> bool:
    return x is not None and isinstance(x.dtype, ObjectType) and x.dtype.form == "sequence"


def _true(graph: Graph) -> Value:
    return graph.add_constant("always", Constant.from_array(np.array(True), BOOL))


_EXPANSIONS: dict[tuple[str, str], Expansion] = {("", "SequenceMap"): _sequence_map}
