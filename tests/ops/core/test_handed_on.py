"""Which carried values a body only hands on, as its graph tells."""

from __future__ import annotations

import time

import pytest

from sardonyx.ir.graph import Graph
from sardonyx.loader.load import load
from sardonyx.ops.core.handed_on import handed_on
from tests.support.session import model_of

_OUTER = "co = Identity(ci)"
_IF = (
    "{out} = If(ci) <then_branch = t{n} () => (float[2] a{n}) {{ a{n} = {first} }},"
    " else_branch = e{n} () => (float[2] b{n}) {{ b{n} = {second} }}>"
)
_LOOP = (
    "p, q = Loop(i, ci, u, v) <body = d (int64 j, bool cj, float[2] g, float[2] h) =>"
    " (bool cjo, float[2] go, float[2] ho) {{ cjo = Identity(cj) go = {0} ho = {1} }}> {2}"
)
_SCAN = (
    "p, q = Scan<num_scan_inputs = 1, body = d (float[2] g, float[2] h, float e) =>"
    " (float[2] go, float[2] ho) {{ go = {0} ho = {1} }}>(u, v, u) {2}"
)

#: Nodes that compute `y` and `z` of the carried `u` and `v`; which of these are handed on.
CASES = {
    "both": ("y = Identity(u) z = Identity(v)", {0, 1}),
    "one": ("y = Identity(u) z = Neg(v)", {0}),
    "in several steps": ("s = Identity(u) y = Identity(s) t = Neg(v) z = Identity(t)", {0}),
    "places changed": ("y = Identity(v) z = Identity(u)", set[int]()),
    "both branches": (
        _IF.format(out="y", n=1, first="Identity(u)", second="Identity(u)") + " z = Neg(v)", {0},
    ),
    "branches of different values": (
        _IF.format(out="y", n=1, first="Identity(u)", second="Identity(v)") + " z = Neg(v)",
        set[int](),
    ),
    "a branch that computes": (
        _IF.format(out="y", n=1, first="Identity(u)", second="Abs(u)") + " z = Identity(v)", {1},
    ),
    "branches of a value of their own": (
        _IF.format(out="y", n=1, first="Neg(u)", second="Neg(u)") + " z = Identity(v)", {1},
    ),
    "a loop": (
        _LOOP.format("Identity(g)", "Neg(h)", "y = Identity(p) z = Identity(q)"), {0},
    ),
    "a loop of the other's first value": (
        _LOOP.format("Identity(g)", "Neg(h)", "y = Identity(q) z = Identity(p)"), set[int](),
    ),
    "a loop of what is outside": (
        _LOOP.format("Identity(u)", "Identity(h)", "y = Identity(p) z = Identity(q)"), {1},
    ),
    "a scan": (
        _SCAN.format("Neg(g)", "Identity(h)", "y = Identity(p) z = Identity(q)"), {1},
    ),
}  # fmt: skip


def _body(nodes: str) -> Graph:
    text = (
        "g (float[2] x, float[2] w, int64 k, bool c) => (float[2] l, float[2] r)"
        " { l, r = Loop(k, c, x, w) <body = b (int64 i, bool ci, float[2] u, float[2] v)"
        f" => (bool co, float[2] y, float[2] z) {{ {_OUTER} {nodes} }}> }}"
    )
    (node,) = load(model_of(text).SerializeToString()).nodes
    body = node.attributes["body"]
    assert isinstance(body, Graph)
    return body


@pytest.mark.parametrize("nodes, wanted", CASES.values(), ids=CASES)
def test_which_values_are_handed_on(nodes: str, wanted: set[int]) -> None:
    assert handed_on(_body(nodes), range(2, 4), 1) == wanted


def test_branches_behind_branches_are_looked_at_once() -> None:
    """Both of each lead to the one before it: 2^200 ways, one of which is gone."""
    names = ["u", *(f"s{n}" for n in range(199)), "y"]
    nodes = [
        _IF.format(out=after, n=n, first=f"Identity({before})", second=f"Identity({before})")
        for n, (before, after) in enumerate(zip(names, names[1:], strict=False))
    ]
    body = _body(" ".join(nodes) + " z = Neg(v)")
    begin = time.process_time()
    assert handed_on(body, range(2, 4), 1) == {0}
    assert time.process_time() - begin < 1
