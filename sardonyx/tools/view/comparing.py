"""Two profiles of one model, side by side."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from sardonyx.tools.view.trace import NODE, Trace

#: What onnxruntime's optimisers append to a node's name, or to its result's, for nodes they make.
_MADE_BY_OPTIMISERS = re.compile(r"(_nchwc|_output_\d+|_token_\d+|_fused|/\w+Fusion/?)$")


@dataclass(slots=True)
class ComparedPart:
    """Nodes that some kernel of either profile computes together.

    Attributes:
        name: The node that took longest, or that kernels are called after.
        operators: What they compute.
        nodes: How many nodes there are.
        ns: Time in a run, of each profile.
        calls: Calls of kernels in a run, of each profile.
    """

    name: str
    operators: str
    nodes: int
    ns: list[float] = field(default_factory=lambda: [0.0, 0.0])
    calls: list[float] = field(default_factory=lambda: [0.0, 0.0])


def compare(first: Trace, second: Trace) -> list[ComparedPart]:
    """Time of a run by part, the largest differences first.

    Profiles fuse differently. So nodes that one kernel of either side computes are one part, and a
    part has all kernels of both sides for its nodes. The first run of several is left out: it is
    slower everywhere.
    """
    sets = _Sets()
    nodes = [_nodes(trace) for trace in (first, second)]
    for trace, others in zip((first, second), reversed(nodes), strict=True):
        texts = trace.texts.all
        for command in trace.commands:
            if command.owner < 0:
                names = [texts[n] for n in (command.name, *command.nodes)]
                sets.join([*names, *(_known_as(name, others) for name in names)])
    parts: dict[str, ComparedPart] = {}
    best: dict[str, float] = {}
    operators: dict[str, dict[str, None]] = {}
    for side, trace in enumerate((first, second)):
        texts = trace.texts.all
        for number, (ns, calls) in _per_run(trace).items():
            command = trace.commands[number]
            name = texts[command.name]
            key = sets.find(name)
            part = parts.setdefault(key, ComparedPart(name, "", sets.size(key)))
            part.ns[side] += ns
            part.calls[side] += calls
            if ns > best.get(key, -1.0):
                best[key], part.name = ns, name
            operators.setdefault(key, {})[texts[command.operator]] = None
    for key, part in parts.items():
        part.operators = " ".join(operators[key])
    return sorted(parts.values(), key=lambda p: -abs(p.ns[1] - p.ns[0]))


def to_json(parts: list[ComparedPart]) -> dict[str, Any]:
    """Columns."""
    return {
        "name": [p.name for p in parts],
        "operators": [p.operators for p in parts],
        "nodes": [p.nodes for p in parts],
        "first": [round(p.ns[0]) for p in parts],
        "second": [round(p.ns[1]) for p in parts],
        "first_calls": [round(p.calls[0], 3) for p in parts],
        "second_calls": [round(p.calls[1], 3) for p in parts],
    }


def _nodes(trace: Trace) -> Set[str]:
    texts = trace.texts.all
    return {texts[n] for c in trace.commands if c.owner < 0 for n in (c.name, *c.nodes)}


def _known_as(name: str, others: Set[str]) -> str:
    """The node of the other profile that a node was made from; itself if none is found."""
    shorter = name
    while shorter not in others:
        cut = _MADE_BY_OPTIMISERS.sub("", shorter)
        if cut == shorter or not cut:
            return name
        shorter = cut
    return shorter


def _per_run(trace: Trace) -> dict[int, tuple[float, float]]:
    """Nanoseconds and calls in a run, by command; of nested nodes without what is in them."""
    later = trace.runs[1:] or trace.runs
    begin = later[0][0] if later else 0
    count = max(1, len(later))
    found: dict[int, list[int]] = {}
    for kind, start, took, what, _, _, inner, _ in trace.rows:
        if kind == NODE and start >= begin:
            held = found.setdefault(what, [0, 0])
            held[0] += max(0, took - inner)
            held[1] += 1
    return {number: (ns / count, calls / count) for number, (ns, calls) in found.items()}


class _Sets:
    """Names that belong together."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    def find(self, name: str) -> str:
        path = []
        while (parent := self._parents.setdefault(name, name)) != name:
            path.append(name)
            name = parent
        for passed in path:
            self._parents[passed] = name
        return name

    def size(self, name: str) -> int:
        return self._sizes.get(self.find(name), 1)

    def join(self, names: list[str]) -> None:
        first = self.find(names[0])
        for name in names[1:]:
            other = self.find(name)
            if other != first:
                self._sizes[first] = self.size(first) + self.size(other)
                self._parents[other] = first
