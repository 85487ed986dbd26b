"""Reductions of one tensor over one domain are computed together, also if nobody reads both."""

import numpy as np
import pytest

from tests.support.session import check, model_of

RNG = np.random.default_rng(3)
HEAD = "g (float[M, N] x) => (float[P, Q] y, float[R, S] z)"


def kernels(session):
    return [line for line in session.explain().splitlines() if line[:4].strip().isdigit()]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("a = Constant<value_ints = [1]>() y = ReduceMin(x, a) z = ReduceMax(x, a)", 1),
        ("a = Constant<value_ints = [1]>() t = Tanh(x) y = ReduceMin(t, a) z = ReduceMax(t, a)", 1),
        # of other lines, and of what the first one gives
        ("a = Constant<value_ints = [1]>() b = Constant<value_ints = [0]>()"
         " y = ReduceMin(x, a) z = ReduceMax(x, b)", 2),
        ("a = Constant<value_ints = [1]>() b = Constant<value_ints = [0]>() y = ReduceMin(x, a)"
         " d = ReduceMin(y, b) e = Sub(x, d) z = ReduceMax(e, a)", 3),
    ],
)  # fmt: skip
def test_kernels(body, count):
    model = model_of(f"{HEAD} {{ {body} }}", opset=18)
    feeds = [{"x": RNG.standard_normal(s).astype(np.float32)} for s in ((5, 40), (3, 7), (1, 1))]
    assert len(kernels(check(model, feeds))) == count
