"""Patterns: little graphs with wildcards, as text, matched against what computes a value.

    Product(x, Sum(Erf(Product(x, 0.70710678)), 1), 0.5)

* `x`: any value; the same name stands for the same value. `_` stands for anything.
* `x!`: a value that never changes. `0.5`: a tensor of that one number.
* `#s`: a tensor of one number that never changes, whatever it is.
* `Erf(x)`: a node of that operator, of com.microsoft where it begins with `ms.`; `Erf(x, ...)` may
  have more inputs. Inputs of Add, Mul and their like match in either order.
* `Transpose{perm=0 2 1 3}(x)`: with that attribute; an axis may be counted from the end.
* `Softmax:softmax(x)`: the node is found under this name.
* `q=MatMul(x, w)`: what is matched has a name, too.
* `Product(...)`, `Sum(...)`: products and sums of these in whatever order and nesting; subtraction
  and division by numbers count. All numbers together are one number, 1 or 0 if there are none.
* `a | b`: one of them. `$name`: another pattern of the table that is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from itertools import permutations
from typing import TypeAlias

from sardonyx.base.errors import InvalidArgument, SardonyxError, message
from sardonyx.ir.graph import Graph
from sardonyx.ir.long_list import LongList
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.ops.core.registry import record_of

_DOMAINS = {"ms": "com.microsoft"}
_COMMUTATIVE = frozenset(("Add", "Mul", "Max", "Min", "Sum", "And", "Or", "Equal"))
#: Pseudo operator -> (operator, its inverse, the number that changes nothing).
_CHAINS = {"Product": ("Mul", "Div", 1.0), "Sum": ("Add", "Sub", 0.0)}
#: A number in a model may be rounded to half precision.
_RELATIVE = 1e-3
_TOKEN = re.compile(r"\s*([A-Za-z_][\w.]*|-?\d+\.?\d*(?:e-?\d+)?|\.\.\.|\{[^}]*\}|[()|,$#!:=])")


@dataclass(frozen=True)
class Any:
    """A value, under a name; see the module's text."""

    name: str
    fixed: bool = False


@dataclass(frozen=True)
class Number:
    """One number: this one, or any that is then found under a name."""

    value: float | None
    name: str = ""


@dataclass(frozen=True)
class Apply:
    """A node, or a chain of sums or products."""

    op_type: str
    inputs: tuple[Pattern, ...]
    attributes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    name: str = ""
    domain: str = ""
    more: bool = False


@dataclass(frozen=True)
class Named:
    """A pattern whose value has a name."""

    name: str
    inner: Pattern


@dataclass(frozen=True)
class OneOf:
    """Alternatives, tried in order."""

    choices: tuple[Pattern, ...]


Pattern: TypeAlias = Any | Number | Apply | Named | OneOf


@dataclass(frozen=True)
class PatternMatch:
    """What a pattern matched.

    Attributes:
        values: By name.
        numbers: By name.
        named: Nodes by name.
        inner: All nodes that the pattern covers.
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, Node] = field(default_factory=dict)
    inner: tuple[Node, ...] = ()

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def get(self, name: str) -> Value | None:
        """The value of that name, if the alternative that matched has one."""
        return self.values.get(name)

    def is_closed(self, *exposed: Value) -> bool:
        """Whether nothing outside reads what the covered nodes compute, except these values."""
        covered = set(self.inner)
        return all(
            value in exposed
            or not value.is_graph_output
            and all(reader in covered for reader, _ in value.uses)
            for node in self.inner
            for value in node.outputs
        )


def roots(pattern: Pattern) -> frozenset[str]:
    """Operators that the outermost node can be of; empty if it can be any."""
    if isinstance(pattern, Named):
        return roots(pattern.inner)
    if isinstance(pattern, OneOf):
        found = [roots(choice) for choice in pattern.choices]
        return frozenset().union(*found) if all(found) else frozenset()
    if isinstance(pattern, Apply):
        return frozenset(_CHAINS.get(pattern.op_type, (pattern.op_type,))[:2]) - {""}
    return frozenset()


def match(
    pattern: Pattern, value: Value, found: PatternMatch | None = None
) -> Iterator[PatternMatch]:
    """Every way in which a pattern matches what computes a value."""
    found = found or PatternMatch()
    if isinstance(pattern, OneOf):
        for choice in pattern.choices:
            yield from match(choice, value, found)
    elif isinstance(pattern, Named):
        named = _named(found, pattern.name, value)
        if named is not None:
            yield from match(pattern.inner, value, named)
    elif isinstance(pattern, Any):
        if not pattern.fixed or is_fixed(value):
            named = found if pattern.name == "_" else _named(found, pattern.name, value)
            if named is not None:
                yield named
    elif isinstance(pattern, Number):
        number = number_of(value)
        if number is not None:
            yield from _number(pattern, number, found)
    elif pattern.op_type in _CHAINS:
        yield from _match_chain(pattern, value, found)
    else:
        yield from _match_node(pattern, value, found)


def is_fixed(value: Value | None) -> bool:
    """Whether a value is a constant that no caller can replace."""
    return (
        value is not None
        and value.constant is not None
        and value.constant.has_data
        and value.is_fixed
    )


def number_of(value: Value | None) -> float | None:
    """The number that a tensor with one element always holds."""
    if value is None or not is_fixed(value) or value.constant is None:
        return None
    constant = value.constant
    if constant.element_count != 1 or constant.dtype.kind not in "fiub":
        return None
    return float(constant.array().reshape(-1)[0])


def attribute_of(node: Node, name: str) -> object:
    """An attribute, or its default."""
    if name in node.attributes:
        return node.attributes[name]
    try:
        parameter = signature(record_of(node).lowering).parameters.get(name)
    except SardonyxError:
        return None
    return None if parameter is None or parameter.default is parameter.empty else parameter.default


def _named(found: PatternMatch, name: str, value: Value) -> PatternMatch | None:
    known = found.values.get(name)
    if known is not None:
        return found if known is value else None
    return PatternMatch({**found.values, name: value}, found.numbers, found.named, found.inner)


def _number(pattern: Number, number: float, found: PatternMatch) -> Iterator[PatternMatch]:
    if pattern.value is not None:
        if abs(number - pattern.value) <= _RELATIVE * abs(pattern.value):
            yield found
        return
    numbers = {**found.numbers, pattern.name: number}
    yield PatternMatch(found.values, numbers, found.named, found.inner)


def _match_node(pattern: Apply, value: Value, found: PatternMatch) -> Iterator[PatternMatch]:
    node = value.producer
    if node is None or node.op_type != pattern.op_type or node.domain != pattern.domain:
        return
    inputs = [v for v in node.inputs]
    while inputs and inputs[-1] is None:
        inputs.pop()
    if len(inputs) != len(pattern.inputs) and not (
        pattern.more and len(inputs) > len(pattern.inputs)
    ):
        return
    if not all(_has_attribute(node, name, wanted) for name, wanted in pattern.attributes):
        return
    named = {**found.named, pattern.name: node} if pattern.name else found.named
    inner = found.inner if node in found.inner else (*found.inner, node)
    start = PatternMatch(found.values, found.numbers, named, inner)
    yield from _match_inputs(pattern.inputs, inputs, start)
    if pattern.op_type in _COMMUTATIVE and len(inputs) == 2 and inputs[0] is not inputs[1]:
        yield from _match_inputs(pattern.inputs, inputs[::-1], start)


def _match_inputs(
    patterns: tuple[Pattern, ...], inputs: list[Value | None], found: PatternMatch
) -> Iterator[PatternMatch]:
    if not patterns:
        yield found
        return
    first = inputs[0]
    if first is None:
        return
    for matched in match(patterns[0], first, found):
        yield from _match_inputs(patterns[1:], inputs[1:], matched)


def _has_attribute(node: Node, name: str, wanted: tuple[str, ...]) -> bool:
    held = attribute_of(node, name)
    if held is None:
        return False
    items = list(held) if isinstance(held, list | LongList) else [held]
    if [str(item) for item in items] == list(wanted):
        return True
    if name not in ("axis", "axes") or len(items) != len(wanted):
        return False
    first = node.input(0)
    rank = len(first.shape) if first is not None and first.shape is not None else None
    if rank is None:
        return False
    return [int(str(i)) % rank for i in items] == [int(w) % rank for w in wanted]


def _match_chain(pattern: Apply, value: Value, found: PatternMatch) -> Iterator[PatternMatch]:
    forward, inverse, neutral = _CHAINS[pattern.op_type]
    parts = [p for p in pattern.inputs if not isinstance(p, Number)]
    wanted = next((p for p in pattern.inputs if isinstance(p, Number)), Number(neutral))
    for members, number, nodes in _flat(value, (forward, inverse, neutral), len(parts)):
        if len(members) != len(parts) or not nodes:
            continue
        inner = (*found.inner, *(n for n in nodes if n not in found.inner))
        start = PatternMatch(found.values, found.numbers, found.named, inner)
        for counted in _number(wanted, number, start):
            for order in dict.fromkeys(permutations(members)):
                yield from _match_inputs(tuple(parts), list(order), counted)


_Flat: TypeAlias = tuple[tuple[Value, ...], float, tuple[Node, ...]]


def _flat(value: Value, chain: tuple[str, str, float], most: int) -> Iterator[_Flat]:
    """Every way to see a value as a chain of at most so many members and a number."""
    forward, inverse, neutral = chain
    number = number_of(value)
    if number is not None:
        yield (), number, ()
        return
    node = value.producer
    if node is not None and not node.domain and len(node.inputs) == 2:
        a, b = node.inputs
        if a is not None and b is not None and node.op_type == forward:
            for one, x, above in _flat(a, chain, most):
                for two, y, below in _flat(b, chain, most - len(one)):
                    if len(one) + len(two) <= most:
                        whole = x * y if forward == "Mul" else x + y
                        yield (*one, *two), whole, (node, *above, *below)
        divisor = number_of(b) if node.op_type == inverse else None
        if a is not None and divisor is not None and (divisor or forward == "Add"):
            for one, x, above in _flat(a, chain, most):
                yield one, x / divisor if forward == "Mul" else x - divisor, (node, *above)
    if most > 0:
        yield (value,), neutral, ()


@cache
def parse(text: str, table: tuple[tuple[str, str], ...] = ()) -> Pattern:
    """A pattern of its text.

    Args:
        text: See the module's text.
        table: Patterns that it refers to, by name.

    Raises:
        InvalidArgument: The text is none.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens).replace(" ", "") != re.sub(r"\s", "", text):
        raise InvalidArgument(message("pattern", f"It cannot be read: {text}"))
    parser = _Parser(tokens, dict(table), table)
    pattern = parser.choice()
    if parser.tokens:
        raise InvalidArgument(message("pattern", f"There is more behind it: {parser.tokens}"))
    return pattern


class _Parser:
    def __init__(
        self, tokens: list[str], table: dict[str, str], key: tuple[tuple[str, str], ...]
    ) -> None:
        self.tokens, self._table, self._key = tokens, table, key

    def _take(self, *expected: str) -> bool:
        if self.tokens and self.tokens[0] in expected:
            self.tokens.pop(0)
            return True
        return False

    def choice(self) -> Pattern:
        choices = [self._one()]
        while self._take("|"):
            choices.append(self._one())
        return choices[0] if len(choices) == 1 else OneOf(tuple(choices))

    def _one(self) -> Pattern:
        token = self.tokens.pop(0)
        if token == "$":
            return parse(self._table[self.tokens.pop(0)], self._key)
        if token == "#":
            return Number(None, self.tokens.pop(0))
        if token == "(":
            inside = self.choice()
            self.tokens.pop(0)
            return inside
        if token[0].isdigit() or token[0] == "-":
            return Number(float(token))
        if self._take("="):
            return Named(token, self._one())
        if token[0].isupper() or "." in token:
            return self._node(token)
        return Any(token, self._take("!"))

    def _node(self, token: str) -> Pattern:
        prefix, _, op_type = token.rpartition(".")
        attributes: list[tuple[str, tuple[str, ...]]] = []
        if self.tokens and self.tokens[0].startswith("{"):
            for item in self.tokens.pop(0)[1:-1].split(","):
                name, _, wanted = item.partition("=")
                attributes.append((name.strip(), tuple(wanted.split())))
        name = self.tokens.pop(0) if self._take(":") else ""
        inputs: list[Pattern] = []
        more = False
        self.tokens.pop(0)
        while not self._take(")"):
            if self._take("..."):
                more = True
            else:
                inputs.append(self.choice())
            self._take(",")
        return Apply(
            op_type, tuple(inputs), tuple(attributes), name, _DOMAINS.get(prefix, ""), more
        )


def find(graph: Graph, pattern: Pattern) -> Iterator[tuple[Node, PatternMatch]]:
    """Every node of a graph, last first, whose first output the pattern matches, and how."""
    wanted = roots(pattern)
    for node in list(reversed(graph.nodes)):
        if node.graph is graph and (not wanted or node.op_type in wanted):
            for found in match(pattern, node.output):
                yield node, found
                if node.graph is not graph:
                    break
