"""Powers that are 0: masked elements are as fast as others.

Processors take long for results that are too small for a normal number; what is masked has an
exponent far below them. Between the two kinds of feeds lay factors of 6 to 15.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

import sardonyx
from tests.support.session import model_of

_random = np.random.default_rng(5)
_SHAPE = (64, 512)
_PLAIN = _random.standard_normal(_SHAPE).astype(np.float32)
_HIDDEN = _random.random(_SHAPE) < 0.5

#: Operator, opset, what stands at masked places, and what comes of it.
CASES = {
    "exp": ("Exp(x)", 17, -np.inf, 0.0),
    "exp of a number": ("Exp(x)", 17, -1e9, 0.0),
    "sigmoid": ("Sigmoid(x)", 17, -1e4, 0.0),
    "gelu": ("Gelu(x)", 20, -40.0, 0.0),
    "softmax": ("Softmax(x)", 17, -np.inf, 0.0),
    "softmax of the lowest number": ("Softmax(x)", 17, np.finfo(np.float32).min, 0.0),
    "logarithm of a softmax": ("LogSoftmax(x)", 17, -np.inf, -np.inf),
}


def _session(text: str, opset: int = 17) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 1
    return sardonyx.InferenceSession(model_of(text, opset=opset).SerializeToString(), options)


def _seconds(session, *feeds):
    """The least time of a run with each of the feeds, in turns."""
    least = [float("inf")] * len(feeds)
    for _ in range(30):
        for k, feed in enumerate(feeds):
            start = time.perf_counter()
            session.run(None, feed)
            least[k] = min(least[k], time.perf_counter() - start)
    return least


@pytest.mark.parametrize("name", CASES)
def test_masked_elements_cost_no_more(name):
    operator, opset, mask, wanted = CASES[name]
    session = _session(f"g (float[n, m] x) => (float[n, m] y) {{ y = {operator} }}", opset)
    masked = np.where(_HIDDEN, np.float32(mask), _PLAIN)
    (got,) = session.run(None, {"x": masked})
    assert (got[_HIDDEN] == wanted).all()
    assert np.isfinite(got[~_HIDDEN]).all()
    plain_s, masked_s = _seconds(session, {"x": _PLAIN}, {"x": masked})
    assert masked_s < 4 * plain_s


_ATTENTION = """g (float[b, q, d] q, float[b, d, t] k, float[b, t, d] v) => (float[b, q, d] y) {
    s = MatMul(q, k) p = Softmax(s) y = MatMul(p, v) }"""


def test_few_keys_cost_no_more_than_many():
    """Panels of keys are filled up with scores of minus infinity."""

    def feed(keys: int) -> dict[str, np.ndarray]:
        shapes = {"q": (4, 320, 8), "k": (4, 8, keys), "v": (4, keys, 8)}
        return {n: _random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}

    few_s, many_s = _seconds(_session(_ATTENTION), feed(11), feed(320))
    assert few_s < many_s
