"""Values that one kernel alone reads, if in several expressions, are computed in it."""

import pytest

from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.plan.inline import find_roots
from tests.support.session import model_of

#: nodes over `x`, and how many tensors get memory
CASES = {
    "a gate": ("b = Add(x, v) s = Sigmoid(b) y = Mul(b, s)", 1),
    "a longer gate": (
        "b = Add(x, v) d = Mul(b, v) e = Erf(d) f = Add(e, v) g = Mul(b, f) y = Mul(g, v)", 1
    ),
    "a chain of gates": (
        "b = Add(x, v) s = Sigmoid(b) c = Mul(b, s) t = Tanh(c) u = Add(t, c) y = Neg(u)", 1
    ),
    "read from two places": ("b = Sigmoid(x) s = Transpose(b) y = Mul(b, s)", 2),
    "read by two": ("b = Tanh(x) y = Sigmoid(b) z = ReduceSum(b)", 3),
    "read several times over": ("b = Sigmoid(x) c = Mul(b, b) y = Tile(c, twice)", 2),
}  # fmt: skip


@pytest.mark.parametrize("nodes, count", CASES.values(), ids=CASES)
def test_what_gets_memory(nodes, count):
    outputs = "float[a, b] y, float[1, 1] z" if "z =" in nodes else "float[a, b] y"
    text = f"g (float[8, 8] x) => ({outputs}) <float[1] v = {{3}}, int64[2] twice = {{2, 2}}>"
    model = model_of(f"{text} {{ {nodes} }}")
    graph = load(model.SerializeToString())
    optimise(graph)
    roots = find_roots(list(lower(graph).outputs.values()))
    assert len([r for r in roots if not r.never_changes]) == count
