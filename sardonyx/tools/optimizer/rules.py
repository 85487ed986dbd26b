"""Rules: what a pattern becomes, or the reason why not here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sardonyx.base.log import get_logger
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Array, Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.long_list import LongList
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import Patch, apply
from sardonyx.ir.value import Value
from sardonyx.tools.optimizer.pattern import Pattern, PatternMatch, find, parse

#: The domain of onnxruntime's own operators.
MICROSOFT = "com.microsoft"
_logger = get_logger("optimize")

Build = Callable[[Graph, Node, PatternMatch], Patch | str]


@dataclass(frozen=True)
class Rule:
    """One rewriting.

    Attributes:
        name: The operator that it makes.
        pattern: What it is made of.
        build: Makes the patch of the graph, the outermost node and what was found, or says why not.
    """

    name: str
    pattern: Pattern
    build: Build


def table(
    rows: Iterable[tuple[str, str, Build]], named: Mapping[str, str] | None = None
) -> list[Rule]:
    """Rules of rows (name, pattern, build); patterns may refer to `named` ones."""
    key = tuple((named or {}).items())
    return [Rule(name, parse(text, key), build) for name, text, build in rows]


@dataclass
class RuleReport:
    """What was done to a graph.

    Attributes:
        made: How often each operator was made.
        refused: How often a rule's pattern was there and not taken, by its name and the reason.
    """

    made: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)


def run(graph: Graph, rules: Iterable[Rule], report: RuleReport | None = None) -> int:
    """Apply rules to a graph and its subgraphs, one rule after the other.

    Returns:
        How many patches were applied.
    """
    kept = report if report is not None else RuleReport()
    count = 0
    for inner in list(graph.graphs()):
        for rule in rules:
            count += _run_rule(inner, rule, kept)
    return count


def _run_rule(graph: Graph, rule: Rule, report: RuleReport) -> int:
    count = 0
    reasons: dict[Node, str] = {}
    for node, found in find(graph, rule.pattern):
        result = rule.build(graph, node, found)
        if isinstance(result, str):
            if result:
                reasons[node] = result
            continue
        for made in result.nodes:
            graph.opset.setdefault(made.domain, 1)
        apply(graph, result)
        reasons.pop(node, None)
        report.made[rule.name] += 1
        count += 1
    for node, reason in reasons.items():
        report.refused[rule.name, reason] += 1
        _logger.debug("%s is no %s: %s", node.name, rule.name, reason)
    return count


def node_of(
    op_type: str,
    inputs: Iterable[Value | None],
    outputs: Iterable[Value],
    attributes: Mapping[str, Attribute] | None = None,
    *,
    domain: str = "",
    found: PatternMatch | None = None,
) -> Node:
    """A node for a patch; omitted inputs at its end are left out.

    Args:
        op_type: The operator.
        inputs: What it reads.
        outputs: What it computes.
        attributes: By name.
        domain: The operator's domain.
        found: The nodes whose place it takes.
    """
    read = list(inputs)
    while read and read[-1] is None:
        read.pop()
    origin = tuple(name for node in (found.inner if found else ()) for name in node.origin)
    made = list(outputs)
    name = f"{made[0].name}/{op_type}"
    kept = tuple(dict.fromkeys(origin))
    return Node(op_type, domain, read, made, attributes, name, origin=kept)


def like(graph: Graph, value: Value, shape: tuple[Dim, ...] | None = None) -> Value:
    """A new value of the type of another."""
    return graph.new_value(value.name, value.dtype, value.shape if shape is None else shape)


def replace(
    root: Node,
    op_type: str,
    inputs: Iterable[Value | None],
    attributes: Mapping[str, Attribute] | None = None,
    *,
    domain: str = MICROSOFT,
    found: PatternMatch | None = None,
) -> Patch:
    """One node in the place of the first output of another."""
    graph = root.graph
    assert graph is not None  # noqa: S101 - narrows the type: it was found in one
    made = like(graph, root.output)
    node = node_of(op_type, inputs, [made], attributes, domain=domain, found=found)
    return Patch({root.output: made}, [node], op_type)


def constant(graph: Graph, hint: str, array: Array) -> Value:
    """A constant of an array."""
    return graph.add_constant(hint, Constant.from_array(np.ascontiguousarray(array)))


def array_of(value: Value) -> Array:
    """The elements of a constant.

    Raises:
        TypeError: It is none.
    """
    if value.constant is None:
        raise TypeError(f"{value.name} is no constant")
    return value.constant.array()


def is_vector(value: Value | None, size: Dim | None = None) -> bool:
    """Whether a value has one axis, of that size if it is given."""
    return (
        value is not None
        and value.shape is not None
        and len(value.shape) == 1
        and (size is None or value.shape[0] == size)
    )


def same_shape(a: Value | None, b: Value | None) -> bool:
    """Whether two values surely have the same shape."""
    return a is not None and b is not None and a.shape is not None and a.shape == b.shape


def axes_of(node: Node) -> list[int] | None:
    """The axes of a reduction, of its attribute or its second input; None if they are not known."""
    given = node.attributes.get("axes")
    if isinstance(given, list | LongList):
        return [int(str(axis)) for axis in given]
    second = node.input(1)
    if second is None or second.elements is None:
        return None
    return [int(str(axis)) for axis in second.elements]
