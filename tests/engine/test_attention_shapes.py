"""Attention of sizes that fill panels and tiles, that do not, and that only a run knows."""

import numpy as np
import pytest

from tests.support.session import check, model_of

_random = np.random.default_rng(3)
#: heads, queries, keys, depth, columns of values
SHAPES = [
    (2, 1, 1, 1, 1),
    (1, 5, 17, 40, 80),
    (3, 6, 64, 64, 64),
    (2, 7, 65, 5, 3),
    (2, 97, 197, 24, 130),
    (1, 13, 128, 16, 48),
]


def _model(sizes):
    heads, rows, keys, depth, columns = sizes
    return model_of(
        f"""g (float[b, {heads}, {rows}, {depth}] q, float[b, {keys}, {heads}, {depth}] k,
            float[b, {heads}, {keys}, {columns}] v, float[{rows}, {keys}] m)
            => (float[b, h, s, e] y) {{
        t = Transpose<perm = [0, 2, 3, 1]>(k) s = MatMul(q, t) n = Add(s, m)
        p = Softmax<axis = -1>(n) y = MatMul(p, v) }}"""
    )


def _feeds(heads, rows, keys, depth, columns):
    shapes = {
        "q": (2, heads, rows, depth),
        "k": (2, keys, heads, depth),
        "v": (2, heads, keys, columns),
        "m": (rows, keys),
    }
    return {n: _random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_known_sizes(shape):
    check(_model(shape), [_feeds(*shape)])


def test_sizes_of_a_run():
    check(_model("HSTDE"), [_feeds(*shape) for shape in SHAPES])
    check(_model([2, "S", "T", 24, 40]), [_feeds(2, s, t, 24, 40) for _, s, t, *_ in SHAPES])


def test_scores_that_are_another_attention() -> None:
    """Products and softmaxes in turn: a product ends one attention, or begins another."""
    weight = (np.random.default_rng(1).standard_normal((24, 24))).astype(np.float32)
    text = """g (float[N,24] x) => (float[N,24] y) {
        a = MatMul(x, w)  b = Softmax(a)  c = MatMul(b, w)  d = Softmax(c)
        e = MatMul(d, w)  f = Softmax(e)  y = MatMul(f, w)
    }"""
    feeds = [{"x": np.eye(n, 24, dtype=np.float32) * n} for n in (1, 5, 30)]
    check(model_of(text, {"w": weight}), feeds)
