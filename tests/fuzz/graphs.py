"""Random graphs with feeds at several shapes, one for each seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import helper

from tests.fuzz import control, elementwise, further, layout, products, selecting
from tests.fuzz.builder import Builder, Declined
from tests.fuzz.values import RUNS, Extent, Value, fixed, numpy_dtype

Rule = Callable[[Builder], Value]

_RULES: list[tuple[Rule, int]] = [
    *elementwise.RULES, *products.RULES, *layout.RULES, *selecting.RULES, *control.RULES,
    *further.RULES,
]  # fmt: skip
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 20, 24, 33, 40, 65, 100)
_OPSET = 26
#: Attempts in a row that find nothing before a graph is left as it is.
_PATIENCE = 60


@dataclass
class Case:
    """A graph, and the feeds of each run."""

    seed: int
    model: onnx.ModelProto
    feeds: list[dict[str, Any]]


def make(seed: int) -> Case:
    """The graph of a seed."""
    g = Builder(random.Random(seed))
    while not g.made:
        g = Builder(random.Random(g.random.getrandbits(64)))
        _declare(g)
        g.root.most = g.number(5, 30)
        fill(g, g.root.most)
    return Case(seed, _model(g), g.feeds)


def fill(g: Builder, count: int) -> None:
    """Add about so many nodes."""
    limit, failed = min(g.root.most, g.root.count + count), 0
    rules, weights = zip(*_RULES, strict=True)
    while g.root.count < limit and failed < _PATIENCE:
        (rule,) = g.random.choices(rules, weights)
        kept = (len(g.nodes), len(g.values), len(g.made), g.root.count)
        fed = len(g.root.inputs)
        try:
            rule(g)
            failed = 0
        except Declined:
            failed += 1
            if len(g.root.inputs) == fed:  # what a rule began with goes again
                del g.nodes[kept[0] :], g.values[kept[1] :], g.made[kept[2] :]
                g.root.count = kept[3]


def _declare(g: Builder) -> None:
    """Inputs that share dimensions, some of extent 1, now and then without elements."""
    whole = g.random.choice([0.0, 0.5, 1.0])
    g.wrong_names = g.chance(0.05)
    pool = [_symbol(g) for _ in range(g.number(1, 3))]
    main = g.random.choice(["f4", "f4", "f4", "f4", "f8", "f2"])
    for number in range(g.number(1, 4)):
        dtype = main if number == 0 or g.chance(0.6) else g.random.choice(["i8", "i4", "u1", "b1"])
        rank = g.random.choice([0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5])
        shape = tuple(
            g.random.choice(pool) if g.chance(0.6) else fixed(g.random.choice((1, *_SIZES[:9])))
            for _ in range(rank)
        )
        try:
            g.check(shape)
        except Declined:
            continue
        g.feed(shape, dtype, g.chance(whole))
    if not g.inputs:
        g.feed((pool[0],), main, g.chance(whole))


def _symbol(g: Builder) -> Extent:
    at = [g.random.choice(_SIZES) for _ in range(RUNS)]
    if g.chance(0.12):
        at[g.number(0, RUNS - 1)] = 0
    return Extent(tuple(at))


def _model(g: Builder) -> onnx.ModelProto:
    read = {name for node in g.nodes for name in _reads(node)}
    leaves = [v for v in g.made if v.name not in read]
    others = [v for v in g.made if v.name in read]
    extra = g.random.sample(others, min(len(others), g.number(0, 2)))
    outputs = [
        helper.make_tensor_value_info(
            v.name, helper.np_dtype_to_tensor_dtype(numpy_dtype(v.dtype)), [None] * v.rank
        )
        for v in [*leaves, *extra]
    ]
    graph = helper.make_graph(g.nodes, "fuzz", g.inputs, outputs, g.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=13)


def _reads(node: onnx.NodeProto) -> set[str]:
    found = set(node.input)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                found |= _reads(inner)
    return found
