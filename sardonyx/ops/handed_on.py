"""Values that the body of a loop hands on unchanged, as its graph tells.

A value that goes through Identity alone, or through branches and loops that hand it on in turn, is
what it was before the loop. Lowering sees more (`Repeated.settle`), but only after a first attempt
in which nothing is known of the value.
"""

from __future__ import annotations

from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value

#: Version of Scan whose states are not the node's first inputs.
_BATCHED = 8


def handed_on(body: Graph, states: range, skipped: int) -> frozenset[int]:
    """Which carried values a body only hands on, counted from the first one.

    Args:
        body: What is repeated.
        states: Which inputs of it are carried.
        skipped: How many outputs come before the carried ones.
    """
    pairs = zip(body.inputs[states.start : states.stop], body.outputs[skipped:], strict=False)
    return frozenset(k for k, (before, after) in enumerate(pairs) if _origin(after) is before)


def _origin(value: Value) -> Value:
    """The value that another one is, whatever is fed."""
    while (node := value.producer) is not None and node.domain == "":
        before = _before(node, value.producer_index)
        if before is None:
            break
        value = before
    return value


def _before(node: Node, output: int) -> Value | None:
    """What a node hands on as one of its outputs; None if it does not."""
    if node.op_type == "Identity":
        return node.input(0)
    if node.op_type == "If":
        branches = (node.attributes["then_branch"], node.attributes["else_branch"])
        given = {_origin(b.outputs[output]) for b in branches if isinstance(b, Graph)}
        value = given.pop()
        is_outside = not given and all(value.graph is not b for b in branches)
        return value if is_outside else None
    body = node.attributes.get("body")
    if not isinstance(body, Graph) or output >= _states(node).stop - _states(node).start:
        return None
    if node.op_type == "Loop":
        return node.input(output + 2) if output in handed_on(body, _states(node), 1) else None
    if node.op_type == "Scan" and node.version > _BATCHED:
        return node.input(output) if output in handed_on(body, _states(node), 0) else None
    return None


def _states(node: Node) -> range:
    """Which inputs of a loop, and of its body, are carried."""
    if node.op_type == "Loop":
        return range(2, len(node.inputs))
    sliced = node.attributes.get("num_scan_inputs")
    return range(max(len(node.inputs) - sliced, 0) if isinstance(sliced, int) else 0)
