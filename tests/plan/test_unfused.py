"""A plan that fuses nothing: every node has kernels and memory of its own."""

import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from tests.support.session import check, model_of
from tests.support.tolerances import assert_near

# The last product has the weights of the softmax on both sides.
_TEXT = """g (float[N,4] x) => (float[N,M] y) {
    a = MatMul(x, w) b = Add(a, x) c = Softmax(b) d = Transpose(c) e = MatMul(c, d)
    f = Slice(e, zero, one, zero) y = Mul(f, e)
}"""
_WEIGHTS = {
    "w": np.eye(4, dtype=np.float32) * 0.5,
    "zero": np.array([0]),
    "one": np.array([1]),
}


def test_every_node_writes_memory_of_its_own():
    model = model_of(_TEXT, _WEIGHTS)
    x = {"x": np.arange(12, dtype=np.float32).reshape(3, 4) / 12}
    fused = check(model, [x])
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    unfused = sardonyx.InferenceSession(model.SerializeToString(), options)
    assert_near(unfused.run(None, x)[0], fused.run(None, x)[0], "float: one operation")
    calls = inspect(unfused).plan.calls
    # A softmax is four kernels: maximum, powers, sum, quotients.
    assert len(calls) == 6 + 4
    assert len(inspect(fused).plan.calls) < 6
    assert [len(call.origin) for call in calls] == [1] * 10


def test_weights_that_are_weighted_by_themselves_are_no_attention():
    text = """g (float[N,4] x) => (float[N,N] y) {
        t = Transpose(x) a = MatMul(x, t) b = Softmax(a) c = Transpose(b) y = MatMul(b, c)
    }"""
    x = np.arange(12, dtype=np.float32).reshape(3, 4) / 12
    check(model_of(text), [{"x": x}, {"x": x[:1]}])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_softmax_over_other_axes_is_no_attention(axis):
    text = f"""g (float[B,N,4] x) => (float[B,N,4] y) {{
        t = Transpose<perm = [0, 2, 1]>(x) a = MatMul(x, t) b = Softmax<axis = {axis}>(a)
        y = MatMul(b, x)
    }}"""
    x = np.linspace(-1, 1, 2 * 3 * 4).astype(np.float32).reshape(2, 3, 4)
    session = check(model_of(text), [{"x": x}, {"x": x[:1]}, {"x": x[:, :1]}])
    kernels = inspect(session).kernels
    assert any(k.startswith("attention") for k in kernels) == (axis == 2)
