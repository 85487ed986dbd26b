"""Nodes of CUDA graphs that have graphs of their own: done if a value is not 0, or while it is.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/#conditional-graph-nodes
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sardonyx.cuda.driver.driver import bindings, call, failure
from sardonyx.cuda.driver.stream import Stream

#: The first driver with such nodes (CUDA 12.4), and the first whose branches have two sides.
KNOWS_CONDITIONS, KNOWS_OTHERWISE = 12040, 12080
#: CU_GRAPH_COND_TYPE_IF, CU_GRAPH_COND_TYPE_WHILE
IF, WHILE = 0, 1


def _capture(stream: Stream) -> tuple[Any, list[Any], int]:
    """The graph that a stream is captured to; what its next node waits for, and how much that is.

    What is waited for comes as the driver has it: nodes, and since CUDA 12.3 how they are.
    """
    # Through the package: `call` has a way of its own to this function, without lists.
    code, _, _, graph, *before, count = bindings().cuStreamGetCaptureInfo(stream.handle)
    if code != 0:
        raise failure("cuStreamGetCaptureInfo", int(code))
    return graph, [x if x is None else x[:count] for x in before], count


def new_condition(stream: Stream, context: int) -> int:
    """What kernels call a value that a node of the captured graph is to ask for."""
    graph, _, _ = _capture(stream)
    return int(call("cuGraphConditionalHandleCreate", graph, context, 0, 0))


def add_node(stream: Stream, context: int, condition: int, kind: int, sides: int = 1) -> list[Any]:
    """Add a node behind what was captured; gives its empty graphs.

    Args:
        stream: A stream that is captured.
        context: Where the work of the graphs happens.
        condition: From `new_condition`.
        kind: `IF` or `WHILE`.
        sides: 2 if there is a graph for the value 0, too.
    """
    driver = bindings()
    graph, before, count = _capture(stream)
    wanted = driver.CUDA_CONDITIONAL_NODE_PARAMS()
    kinds = driver.CUgraphConditionalNodeType
    wanted.handle, wanted.ctx, wanted.size = condition, context, sides
    wanted.type = kinds.CU_GRAPH_COND_TYPE_WHILE if kind == WHILE else kinds.CU_GRAPH_COND_TYPE_IF
    given = driver.CUgraphNodeParams()
    given.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
    given.conditional = wanted
    node = call("cuGraphAddNode", graph, *before, count, given)
    instead = driver.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
    others = [None] * (len(before) - 1)
    call("cuStreamUpdateCaptureDependencies", stream.handle, [node], *others, 1, instead)
    return [given.conditional.phGraph_out[k] for k in range(sides)]


@contextmanager
def captured_into(stream: Stream, graph: Any) -> Iterator[None]:
    """What the block does in a stream becomes part of a node's graph."""
    driver = bindings()
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    call("cuStreamBeginCaptureToGraph", stream.handle, graph, None, None, 0, mode)
    try:
        yield
    except BaseException:
        # The stream must leave the capture, whatever has become of it.
        driver.cuStreamEndCapture(stream.handle)
        raise
    call("cuStreamEndCapture", stream.handle)
