"""Values that the body of a loop hands on unchanged, as its graph tells.

A value that goes through Identity alone, or through branches and loops that hand it on in turn, is
what it was before the loop. Lowering sees more (`Repeated.settle`), but only after a first attempt
in which nothing is known of the value: weights are no constants there, and each loop around one
doubles the attempts.
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
    return frozenset(k for k, (before, after) in enumerate(pairs) if _origin(after, body) is before)


def _origin(value: Value, graph: Graph) -> Value:
    """The value that another one is, whatever is fed, as far back as a graph goes.

    What a graph around it makes of the value is for that one to tell: so no value is looked at
    twice, however many branches lead to it.
    """
    while value.graph is graph and (node := value.producer) is not None:
        before = _before(node, value.producer_index)
        if before is None:
            break
        value = before
    return value


def _before(node: Node, output: int) -> Value | None:
    """What a node hands on as one of its outputs; None if it does not."""
    if node.domain != "":
        return None
    if node.op_type == "Identity":
        return node.input(0)
    if node.op_type == "If":
        return _either_way(node, output)
    body = node.attributes.get("body")
    if not isinstance(body, Graph):
        return None
    if node.op_type == "Loop":
        read, made, end = output + 2, output + 1, len(node.inputs)
    elif node.op_type == "Scan" and node.version > _BATCHED:
        sliced = node.attributes.get("num_scan_inputs")
        read, made = output, output
        end = len(node.inputs) - sliced if isinstance(sliced, int) else 0
    else:
        return None
    if read >= min(end, len(body.inputs)) or made >= len(body.outputs):
        return None
    return node.input(read) if _origin(body.outputs[made], body) is body.inputs[read] else None


def _either_way(node: Node, output: int) -> Value | None:
    """What both branches of an If give, if that is a value from outside them."""
    found = []
    for name in ("then_branch", "else_branch"):
        branch = node.attributes.get(name)
        if not isinstance(branch, Graph) or output >= len(branch.outputs):
            return None
        value = _origin(branch.outputs[output], branch)
        if value.graph is branch:
            return None
        found.append(value)
    return found[0] if found[0] is found[1] else None
