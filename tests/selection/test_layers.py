"""Layers of one structure are built once, and compute with weights of their own."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.plan.groups import Contraction, LoopNest
from sardonyx.selection.selector import KernelSelector
from tests.support.session import model_of
from tests.support.tolerances import assert_near

#: Name -> text of a graph, shapes of its weights, of the feed; how many products, and how many
#: other groups are built.
MODELS = {
    "products": (
        """g (float[N, 24] x) => (float[N, 24] y) {
          a = Gemm (x, w1, b1) c = Tanh (a)
          d = Gemm (c, w2, b2) e = Tanh (d)
          f = Gemm (e, w3, b3) y = Tanh (f)
        }""",
        {"w1": (24, 24), "b1": (24,), "w2": (24, 24), "b2": (24,), "w3": (24, 24), "b3": (24,)},
        (5, 24),
        (1, 0),
    ),
    "weights that layers share": (
        """g (float[N, 24] x) => (float[N, 24] y) {
          a = MatMul (x, w1) c = Tanh (a)
          d = MatMul (c, w2) e = Tanh (d)
          f = MatMul (e, w1) y = Tanh (f)
        }""",
        {"w1": (24, 24), "w2": (24, 24)},
        (5, 24),
        (1, 0),
    ),
    "images of few channels": (
        """g (float[1, 3, 20, 20] x) => (float[1, 3, 20, 20] y) {
          a = Conv <pads=[2,2,2,2]> (x, w1, b1) c = Relu (a)
          d = Conv <pads=[2,2,2,2]> (c, w2, b2) e = Relu (d)
          f = Conv <pads=[2,2,2,2]> (e, w3, b3) h = Relu (f)
          i = Conv <pads=[2,2,2,2]> (h, w4, b4) y = Sigmoid (i)
        }""",
        {f"{n}{k}": s for k in (1, 2, 3, 4) for n, s in (("w", (3, 3, 5, 5)), ("b", (3,)))},
        (1, 3, 20, 20),
        (3, 0),  # the first image lies otherwise than those between, the last one ends otherwise
    ),
    "rows": (
        """g (float[N, 24] x) => (float[N, 24] y) {
          a = LayerNormalization (x, w1, b1)
          c = LayerNormalization (a, w2, b2)
          y = LayerNormalization (c, w3, b3)
        }""",
        {f"{n}{k}": (24,) for k in (1, 2, 3) for n in "wb"},
        (5, 24),
        (0, 1),
    ),
    "constants apart from what varies": (
        """g (float[24, 24] x, float[24, 24] v) => (float[24, 24] y) {
          a = MatMul (x, w1) c = Tanh (a)
          d = MatMul (c, v) e = Tanh (d)
          f = MatMul (e, w2) y = Tanh (f)
        }""",
        {"w1": (24, 24), "w2": (24, 24)},
        (24, 24),
        (2, 0),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_layers_of_one_structure_are_formed_once(name, monkeypatch):
    text, weights, shape, (products, others) = MODELS[name]
    rng = np.random.default_rng(0)
    made = {n: rng.standard_normal(s).astype(np.float32) / 4 for n, s in weights.items()}
    model = model_of(text, made, 18)
    feeds = [rng.standard_normal(shape).astype(np.float32) for _ in model.graph.input[:2]]
    feeds = feeds[: sum(i.name not in made for i in model.graph.input)]
    selected = []
    alone = KernelSelector.form
    monkeypatch.setattr(
        KernelSelector,
        "form",
        lambda self, group, *a: selected.append(type(group)) or alone(self, group, *a),
    )
    (got,) = create_engine(model.SerializeToString(), EngineOptions(use_cache=False)).run(feeds)
    names = [i.name for i in model.graph.input if i.name not in made]
    (want,) = ReferenceEvaluator(model).run(None, dict(zip(names, feeds, strict=True)))
    assert_near(got, want, "float: layers near zero")
    assert (selected.count(Contraction), selected.count(LoopNest)) == (products, others)
