"""Values that inference has found to be always equal become one.

a = Exp(x); b = Exp(x); c = Cast(x: float, to=float); y = Add(b, c)  ->  y = Add(a, x)

This one pass is common subexpression elimination and the removal of nodes that change nothing:
inference compares what the lowerings give, so there is no list of rules here.
"""

from __future__ import annotations

from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value


def merge_equal(graph: Graph) -> int:
    """Let readers of a value read the first one that is equal to it.

    Outputs of the graph keep the nodes that compute them: their names belong to the caller.

    Returns:
        The number of values that are not read any more.
    """
    count = 0
    for node in graph.nodes:
        for value in node.outputs:
            first = value.equal_to
            if first is None or not value.use_count:
                continue
            value.equal_to = None
            if value.is_graph_output:
                for reader in dict.fromkeys(reader for reader, _ in value.uses):
                    _read_instead(reader, value, first)
            else:
                graph.replace_uses(value, first)
            count += 1
    return count


def _read_instead(reader: Node, old: Value, new: Value) -> None:
    if reader.graph is not None:
        reader.graph.set_inputs(reader, tuple(new if v is old else v for v in reader.inputs))
