"""Two branches of codes that meet: one is finished in the other, what lies in memory is codes."""

import pytest

from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.plan.grouping import make_groups
from sardonyx.plan.groups import Contraction
from sardonyx.plan.inline import find_roots
from tests.support.session import model_of

CONSTANTS = f"""<float s = {{0.1}}, uint8 z = {{3}}, float t = {{0.01}}, int8 o = {{0}},
    int8[16, 16, 1, 1] w = {{{", ".join("1" * 256)}}}>"""


def convolved(name: str, source: str) -> str:
    """A convolution of codes, its results rounded to codes and taken for numbers again."""
    return f"""{name}a = DequantizeLinear (x, s, z) {name}w = DequantizeLinear (w, t, o)
        {name}c = Conv ({name}a, {name}w) {name}q = QuantizeLinear ({name}c, s, z)
        {name} = DequantizeLinear ({name}q, s, z)""".replace("(x,", f"({source},")


#: What follows two branches `a` and `b`; types that contractions write, and other kernels.
CASES = {
    "a sum": ("d = Add (a, b) y = QuantizeLinear (d, s, z)", ["uint8", "uint8"], 0),
    "a sum of a longer branch": (
        "h = HardSwish (a) d = Add (h, b) y = QuantizeLinear (d, s, z)", ["uint8", "uint8"], 0,
    ),
    "two sums": (
        f"d = Add (a, b) u = QuantizeLinear (d, s, z) {convolved('f', 'u')}"
        " v = DequantizeLinear (u, s, z) h = Add (v, f) y = QuantizeLinear (h, s, z)",
        ["uint8", "uint8", "uint8"], 0,
    ),
    "one branch alone": ("d = Relu (a) y = QuantizeLinear (d, s, z)", ["uint8"], 0),
    "floats after the sum": ("d = Add (a, b) e = Relu (d) y = Neg (e)", ["uint8", "float"], 0),
    "a reduction alone": ("m = GlobalAveragePool (a) y = Add (m, b)", ["float", "uint8"], 1),
    # The maximum of each channel is no epilogue of a convolution.
    "a sum of a pooled branch": (
        "m = GlobalMaxPool (b) d = Add (a, m) y = QuantizeLinear (d, s, z)",
        ["uint8", "uint8"], 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("nodes, written, others", CASES.values(), ids=CASES)
def test_codes_lie_in_memory(nodes, written, others):
    kind = "float" if "y = Quant" not in nodes else "uint8"
    model = model_of(
        f"g (uint8[1, 16, 8, 8] x, uint8[1, 16, 8, 8] r) => ({kind}[1, 16, 8, 8] y) {CONSTANTS}"
        f"{{ {convolved('a', 'x')} {convolved('b', 'r')} {nodes} }}",
        opset=19,
    )
    graph = load(model.SerializeToString())
    optimise(graph)
    roots = find_roots(list(lower(graph).outputs.values()), integers=True)
    groups = make_groups(roots)
    products = [g for g in groups if isinstance(g, Contraction)]
    assert len(groups) - len(products) == others
    assert sorted(g.root.buffer.dtype.name for g in products) == sorted(written)
