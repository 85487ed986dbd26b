"""Branches and loops that are written out in the graph around them, once a run has decided.

y = If(c) {then, else}    ->  the nodes of the branch that is taken
y = Loop(n, c, x) {body}  ->  the nodes of the body once for each iteration; so for Scan

Inside a body every tensor has one number of axes. Where data decides it, in a branch, or anew in
each iteration, the body has no plan. What has one is the graph for one decision. A decision is the
length of a list, as it is where a list is the shape of a Reshape: 1 for the first branch and 0 for
the second, or the number of iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sardonyx.base import decisions, errors
from sardonyx.base.decisions import MOST_ITERATIONS
from sardonyx.base.dtypes import BOOL, FLOAT, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.clone import clone, copy_attribute
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import remove_dead
from sardonyx.ir.value import Value
from sardonyx.ops.core.registry import where

#: Nodes of the bodies of one loop, all iterations together.
_MOST_NODES = 8192
#: Operators whose results differ from one time to the next.
_DRAWS = frozenset(
    ("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform")
    + ("RandomUniformLike",)
)
#: Version of Scan without batches.
_SCAN = 9


def decision_around(graph: Graph, name: str) -> str | None:
    """The decision about the branch or loop of the outermost graph that a node is in, or is.

    None if the node is in no branch or loop that can be written out.
    """
    for node in graph.nodes:
        inside = (inner for body in node.subgraphs() for inner in body.walk())
        if node.name == name or any(inner.name == name for inner in inside):
            decision = _decision_of(node)
            return decision if decision is None or graph.value(decision) is None else None
    return None


def _decision_of(node: Node) -> str | None:
    if node.domain != "":
        return None
    if node.op_type == "If":
        return decisions.of_branch(node.name)
    if node.op_type == "Loop" or (node.op_type == "Scan" and node.version >= _SCAN):
        return decisions.of_iterations(node.name)
    return None


def _decided(graph: Graph, decision: str) -> Node:
    """The node that a decision is about.

    Raises:
        InvalidGraph: The graph has none.
    """
    for node in graph.nodes:
        if _decision_of(node) == decision:
            return node
    raise InvalidGraph(message("run", f"The model has no node for {decision!r}"))


# -- the list that decides ---------------------------------------------------------------------


def add_decision(graph: Graph, decision: str) -> None:
    """Let a graph compute a decision: a list of that name, whose length it is."""
    node = _decided(graph, decision)
    if node.op_type == "If":
        _add_branch(graph, node, decision)
    elif node.op_type == "Loop":
        _add_iterations(graph, node, decision)
    else:
        _add_slices(graph, node, decision)


def _add_branch(graph: Graph, node: Node, decision: str) -> None:
    one, all_ = _ints(graph, [1]), _ints(graph, [-1])
    flag, places = graph.new_value("flag"), graph.new_value("places")
    _add(graph, node, "Reshape", 13, (node.inputs[0], one), flag)
    _add(graph, node, "NonZero", 13, (flag,), places)
    _add(graph, node, "Reshape", 13, (places, all_), Value(decision))


def _add_iterations(graph: Graph, node: Node, decision: str) -> None:
    """A loop that only says how often the other one goes round: the condition, and what it needs.

    It ends one iteration after the most that there may be.
    """
    most = _number(graph, MOST_ITERATIONS + 1)
    trips = node.input(0)
    if trips is not None:
        given, most = most, graph.new_value("most")
        _add(graph, node, "Min", 13, (trips, given), most)
    values: dict[Value, Value] = {}
    body = clone(_body(node), values, graph)
    _check_body(node, body)
    count = len(node.inputs[2:])
    kept = [k for k in range(count) if k in _needed_by_condition(body, count)]
    results = [body.outputs[0], *(body.outputs[1 + k] for k in kept)]
    body.outputs.clear()
    number = body.new_value("number")
    body.add_node(Node("Identity", "", (body.inputs[0],), (number,), version=13))
    body.outputs.extend((*results, number))
    remove_dead(body)
    body.inputs[:] = [*body.inputs[:2], *(body.inputs[2 + k] for k in kept)]
    carried = [node.inputs[2 + k] for k in kept]
    ends = [graph.new_value("unread") for _ in kept]
    loop = Node(
        "Loop", "", (most, node.input(1), *carried), (*ends, Value(decision)), {"body": body},
        version=node.version, origin=node.origin,
    )  # fmt: skip
    graph.add_node(loop, before=node)


def _needed_by_condition(body: Graph, count: int) -> set[int]:
    """Which carried values whether to go on depends on, in any iteration."""
    places = {body.inputs[2 + k]: k for k in range(count)}
    found: set[int] = set()
    seen: set[Value] = set()
    stack = [body.outputs[0]]
    while stack:
        value = stack.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in places:
            found.add(places[value])
            stack.append(body.outputs[1 + places[value]])
        if value.producer is not None and value.graph is body:
            read = (*value.producer.inputs, *value.producer.captures())
            stack.extend(v for v in read if v is not None)
    return found


def _add_slices(graph: Graph, node: Node, decision: str) -> None:
    states, axes, _ = _slices_of(node)
    shape, length = graph.new_value("shape"), graph.new_value("length")
    zero, one, axis = (_number(graph, k) for k in (0, 1, axes[0]))
    _add(graph, node, "Shape", 13, (node.inputs[states],), shape)
    _add(graph, node, "Gather", 13, (shape, axis), length)
    _add(graph, node, "Range", 11, (zero, length, one), Value(decision))


# -- the nodes in the place of a branch or loop ------------------------------------------------


def write_out(graph: Graph, decision: str, length: int) -> None:
    """Write a branch or loop out as it was decided.

    Raises:
        NotImplemented: It goes round too often.
        InvalidGraph: The graph has no such node, or its body does not fit.
    """
    node = _decided(graph, decision)
    if node.op_type == "If":
        name = "then_branch" if length else "else_branch"
        branch = node.attributes.get(name)
        if not isinstance(branch, Graph):
            raise InvalidGraph(message(where(node), f"It has no graph {name}"))
        results = list(_Writer(graph, node, branch).write({}))
    else:
        body = _body(node)
        _check_length(node, body, length)
        make = _loop if node.op_type == "Loop" else _scan
        results = make(_Writer(graph, node, body), length)
    if len(results) < len(node.outputs):
        raise InvalidGraph(message(where(node), "It has more outputs than its graph"))
    _hand_over(graph, node, results)


def _check_length(node: Node, body: Graph, length: int) -> None:
    size = sum(1 for _ in body.walk())
    most = min(MOST_ITERATIONS, _MOST_NODES // max(size, 1))
    if length <= most:
        return
    what = (
        "Data decides how many axes tensors in its body have, so each of its iterations gets "
        f"nodes of its own, {size} each, and there are too many of them"
    )
    got = str(length) if length <= MOST_ITERATIONS else f"over {MOST_ITERATIONS}"
    do = "Make shapes in the body from lists of a fixed number of elements, or iterate less often"
    raise errors.NotImplemented(
        message(where(node), what, expected=f"at most {most} iterations", got=got, do=do)
    )


class _Writer:
    """Writes the nodes of a body into the graph around it, before the node that has it.

    Args:
        graph: The graph around.
        node: The node.
        body: One of its graphs.
    """

    def __init__(self, graph: Graph, node: Node, body: Graph) -> None:
        self.graph, self.node, self.body = graph, node, body
        self._constants: dict[Value, Value] = {}
        #: Outputs of nodes that were written, by the node and what it reads there.
        self._written: dict[tuple[Node, tuple[Value | None, ...]], tuple[Value, ...]] = {}

    def write(self, given: Mapping[Value, Value]) -> Iterator[Value]:
        """The outputs of the body, once more, for these values of its inputs.

        Nodes that read what they read in an iteration before are not written again: so a list that
        never changes is one list, and plans wait for one length.
        """
        graph = self.graph
        values = dict(given)
        for value in self.body.initializers.values():
            if value not in self._constants and value.constant is not None:
                self._constants[value] = graph.add_constant(value.name, value.constant)
        values.update(self._constants)
        for node in self.body.nodes:
            key = (node, tuple(None if v is None else values.get(v, v) for v in node.inputs))
            made = self._written.get(key)
            if made is None:
                made = tuple(map(self._copied, node.outputs))
                values.update(zip(node.outputs, made, strict=True))
                self._add(node, key[1], made, values)
                if _is_the_same_again(node):
                    self._written[key] = made
            values.update(zip(node.outputs, made, strict=True))
        return (values.get(value, value) for value in self.body.outputs)

    def _copied(self, value: Value) -> Value:
        copy = Value("" if value.is_omitted else self.graph.fresh_name(value.name))
        copy.kind, copy.type = value.kind, value.type
        return copy

    def _add(
        self,
        node: Node,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        values: dict[Value, Value],
    ) -> None:
        attributes = {
            name: copy_attribute(a, lambda g: clone(g, values, self.graph))
            for name, a in node.attributes.items()
        }
        origin = node.origin or (node.name,)
        copy = Node(
            node.op_type, node.domain, inputs, outputs, attributes, node.name, node.version, origin
        )
        self.graph.add_node(copy, before=self.node)

    def stacked(self, rows: Sequence[Value], axis: int, body_output: Value) -> Value:
        """What iterations give, along a new axis."""
        graph, node = self.graph, self.node
        if not rows:
            return self._none_of(axis, body_output)
        parts = []
        for row in rows:
            parts.append(graph.new_value("row"))
            _add(graph, node, "Unsqueeze", 11, (row,), parts[-1], axes=[axis])
        stacked = graph.new_value("stacked")
        _add(graph, node, "Concat", 13, parts, stacked, axis=axis)
        return stacked

    def _none_of(self, axis: int, value: Value) -> Value:
        """What no iterations give: sizes that nobody declares are 0, as in onnxruntime."""
        shape = value.declared_shape
        if shape is None:
            what = f"It goes round 0 times, and {value.name!r} has no declared number of axes"
            raise errors.NotImplemented(
                message(where(self.node), what, do=f"Declare the shape of {value.name!r}")
            )
        dims = [d if isinstance(d, int) else 0 for d in shape]
        dims.insert(axis if axis >= 0 else axis + len(dims) + 1, 0)
        dtype = value.declared_dtype or FLOAT
        return self.graph.add_constant(
            "none", Constant.from_array(np.zeros(dims, dtype.numpy), dtype)
        )


def _is_the_same_again(node: Node) -> bool:
    """Whether a node gives the same for the same inputs. What its graphs read is not looked at."""
    is_plain = node.domain == "" and not any(True for _ in node.subgraphs())
    return is_plain and node.op_type not in _DRAWS


def _loop(writer: _Writer, length: int) -> list[Value]:
    graph, node, body = writer.graph, writer.node, writer.body
    _check_body(node, body)
    carried = [v for v in node.inputs[2:] if v is not None]
    count = len(carried)
    rows: list[list[Value]] = [[] for _ in body.outputs[1 + count :]]
    going = graph.add_constant("going", Constant.from_array(np.array(True), BOOL))
    for number in range(length):
        given = (_number(graph, number), going, *carried)
        results = list(writer.write(dict(zip(body.inputs, given, strict=True))))
        carried = results[1 : 1 + count]
        for row, result in zip(rows, results[1 + count :], strict=True):
            row.append(result)
    stacked = zip(rows, body.outputs[1 + count :], strict=True)
    return [*carried, *(writer.stacked(row, 0, value) for row, value in stacked)]


def _scan(writer: _Writer, length: int) -> list[Value]:
    graph, node, body = writer.graph, writer.node, writer.body
    states, axes, backwards = _slices_of(node)
    if len(body.inputs) != len(node.inputs) or len(body.outputs) < states:
        raise InvalidGraph(message(where(node), f"The graph {body.name} does not fit"))
    carried = [v for v in node.inputs[:states] if v is not None]
    rows: list[list[Value]] = [[] for _ in body.outputs[states:]]
    for number in range(length):
        slices = []
        for whole, axis, is_backwards in zip(node.inputs[states:], axes, backwards, strict=True):
            place = _number(graph, length - 1 - number if is_backwards else number)
            slices.append(graph.new_value("slice"))
            _add(graph, node, "Gather", 13, (whole, place), slices[-1], axis=axis)
        given = dict(zip(body.inputs, (*carried, *slices), strict=True))
        results = list(writer.write(given))
        carried = results[:states]
        for row, result in zip(rows, results[states:], strict=True):
            row.append(result)
    axes = _numbers(node, "scan_output_axes", len(rows))
    flags = _numbers(node, "scan_output_directions", len(rows))
    results = list(carried)
    for row, axis, flag, value in zip(rows, axes, flags, body.outputs[states:], strict=True):
        results.append(writer.stacked(row[::-1] if flag else row, axis, value))
    return results


def _slices_of(node: Node) -> tuple[int, list[int], list[int]]:
    """How many states a Scan has; the axes that it slices, and which of them backwards."""
    count = node.attributes.get("num_scan_inputs")
    if not isinstance(count, int) or not 0 < count <= len(node.inputs):
        raise InvalidGraph(message(where(node), "Its number of sliced inputs does not fit"))
    axes = _numbers(node, "scan_input_axes", count)
    return len(node.inputs) - count, axes, _numbers(node, "scan_input_directions", count)


def _numbers(node: Node, name: str, count: int) -> list[int]:
    given = node.attributes.get(name)
    found = [k for k in given if isinstance(k, int)] if isinstance(given, Sequence) else []
    if found and len(found) != count:
        what = f"Its {name} do not fit"
        raise InvalidGraph(message(where(node), what, expected=str(count), got=str(len(found))))
    return found or [0] * count


def _body(node: Node) -> Graph:
    body = node.attributes.get("body")
    if not isinstance(body, Graph):
        raise InvalidGraph(message(where(node), "It has no graph body"))
    return body


def _check_body(node: Node, body: Graph) -> None:
    count = len(node.inputs[2:])
    if len(body.inputs) != 2 + count or len(body.outputs) < 1 + count:
        raise InvalidGraph(message(where(node), f"The graph {body.name} does not fit"))


def _hand_over(graph: Graph, node: Node, results: Sequence[Value]) -> None:
    """Remove a node. Its outputs' names are those of what is in their place."""
    made: list[tuple[Value, str]] = []
    for old, result in zip(node.outputs, results, strict=False):
        if old.is_omitted:
            continue
        name, new = old.name, graph.new_value(old.name)
        _add(graph, node, "Identity", 16, (result,), new)
        graph.replace_uses(old, new)
        made.append((new, name))
    graph.remove_node(node)
    for new, name in made:
        if new.name != name:
            graph.rename(new, name)


def _add(
    graph: Graph,
    before: Node,
    op_type: str,
    version: int,
    inputs: Sequence[Value | None],
    output: Value,
    **attributes: Attribute,
) -> None:
    """Add a node of ONNX's own before another one."""
    node = Node(op_type, "", inputs, (output,), attributes, version=version, origin=before.origin)
    graph.add_node(node, before=before)


def _ints(graph: Graph, numbers: Sequence[int]) -> Value:
    return graph.add_constant("numbers", Constant.from_array(np.array(numbers, np.int64), INT64))


def _number(graph: Graph, number: int) -> Value:
    return graph.add_constant("number", Constant.from_array(np.array(number, np.int64), INT64))
