"""Attention of sizes that fill panels and tiles, that do not, and that only a run knows."""

import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from tests.support.session import check, model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(3)
#: heads, queries, keys, depth, columns of values
SHAPES = [
    (2, 1, 1, 1, 1),
    (1, 5, 17, 40, 80),
    (3, 6, 64, 64, 64),
    (2, 7, 65, 5, 3),
    (2, 97, 197, 24, 130),
    (1, 13, 128, 16, 48),
    (3, 1, 70, 40, 24),
    (2, 1, 130, 16, 65),
    (2, 4, 33, 5, 17),
    (1, 1, 3, 64, 64),
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


@pytest.mark.parametrize("sizes", [(2, 3, 0, 5, 7), (1, 1, 0, 64, 64), (2, 9, 0, 24, 40)], ids=str)
def test_no_keys_at_all(sizes) -> None:
    """A product over no keys is 0, as it is where no attention is recognised."""
    for model in (_model(sizes), _model("HSTDE")):
        session = sardonyx.InferenceSession(model.SerializeToString())
        heads, rows, _, _, columns = sizes
        want = np.zeros((2, heads, rows, columns), np.float32)
        np.testing.assert_array_equal(session.run(None, _feeds(*sizes))[0], want)


_CHOSEN = {
    "a choice by a mask": (
        "float[b,h,s,d] q, float[b,h,t,d] k, float[b,h,t,e] v, bool[s,t] m",
        "u = Transpose<perm = [0, 1, 3, 2]>(k) r = MatMul(q, u) n = Where(m, r, low)"
        " p = Softmax<axis = -1>(n) y = MatMul(p, v)",
    ),
    "two choices, in another order of axes": (
        "float[b,s,h,d] q, float[b,h,t,d] k, float[b,h,t,e] v, bool[s,t] m",
        "w = Transpose<perm = [0, 2, 1, 3]>(q) u = Transpose<perm = [0, 1, 3, 2]>(k)"
        " r = MatMul(w, u) f = Trilu<upper = 0>(m) n = Where(m, r, low) o = Where(f, n, low)"
        " p = Softmax<axis = -1>(o) y = MatMul(p, v)",
    ),
    "heads that share all keys": (
        "float[b,h,s,d] q, float[b,1,t,d] k, float[b,1,t,e] v",
        "u = Transpose<perm = [0, 1, 3, 2]>(k) r = MatMul(q, u)"
        " p = Softmax<axis = -1>(r) y = MatMul(p, v)",
    ),
}


@pytest.mark.parametrize("name", _CHOSEN)
def test_scores_that_are_hidden_or_shared(name) -> None:
    inputs, body = _CHOSEN[name]
    text = f"g ({inputs}) => (float[b,h,s,e] y) {{ {body} }}"
    model = model_of(text, {"low": np.float32(-1e4)} if "low" in body else {})
    feeds = []
    for sizes in ((2, 3, 5, 9, 8, 16), (1, 2, 70, 70, 16, 8), (2, 4, 1, 33, 8, 8)):
        by_name = dict(zip("bhstde", sizes, strict=True))
        feed = {}
        for value in model.graph.input:
            dims = [by_name.get(d.dim_param, d.dim_value) for d in value.type.tensor_type.shape.dim]
            kind = bool if value.name == "m" else np.float32
            feed[value.name] = (_random.standard_normal(dims) > 0).astype(kind)
            if kind is np.float32:
                feed[value.name] = _random.standard_normal(dims).astype(kind)
        feeds.append(feed)
    session = check(model, feeds)
    kernels = inspect(session).kernels
    assert len(kernels) <= 2
    assert kernels[-1].startswith("attention")


def test_scores_that_are_another_attention() -> None:
    """Products and softmaxes in turn: a product ends one attention, or begins another."""
    weight = (np.random.default_rng(1).standard_normal((24, 24))).astype(np.float32)
    text = """g (float[N,24] x) => (float[N,24] y) {
        a = MatMul(x, w)  b = Softmax(a)  c = MatMul(b, w)  d = Softmax(c)
        e = MatMul(d, w)  f = Softmax(e)  y = MatMul(f, w)
    }"""
    feeds = [{"x": np.eye(n, 24, dtype=np.float32) * n} for n in (1, 5, 30)]
    session = check(model_of(text, {"w": weight}), feeds)
    # Weights are packed once for products, but would be in every run for an attention.
    kernels = inspect(session).kernels
    assert not any(k.startswith("attention") for k in kernels)


@pytest.mark.parametrize("keeps", [0, 1])
def test_a_logarithm_of_sums_before_a_product(keeps: int) -> None:
    """Stages of a softmax's kinds, but the last gives one number a row."""
    body = f"a = ReduceLogSumExp<axes = [0], keepdims = {keeps}>(x) b = {{}}(a) y = MatMul(a, b)"
    turned = body.format("Transpose" if keeps else "Identity")
    given = model_of(f"g (float[n, m] x) => (float y) {{ {turned} }}")
    check(given, [{"x": _random.standard_normal(s).astype(np.float32)} for s in ((5, 40), (1, 3))])


def test_weighted_sums_that_are_scores_again() -> None:
    text = """g (float[N,S,24] x, float[N,24,9] z) => (float[N,S,9] y) {
        t = Transpose<perm = [0, 2, 1]>(x)  a = MatMul(x, t)  b = Softmax(a)  c = MatMul(b, x)
        d = Softmax(c)  y = MatMul(d, z)
    }"""
    z = _random.standard_normal((2, 24, 9)).astype(np.float32)
    feeds = [
        {"x": _random.standard_normal((2, n, 24)).astype(np.float32), "z": z} for n in (1, 7, 40)
    ]
    check(model_of(text), feeds, tolerance="float: sums that cancel")


@pytest.mark.parametrize("size", ["4, 6", "H, W", "1, 6", "9, 1"])
def test_tokens_that_become_an_image(size):
    """A residual sum in the shape of the image splits the axis of queries in two."""
    text = f"""g (float[N,36,{size}] x) => (float[N,12,{size}] y) {{
        n = Shape<end = 1>(x)  whole = Constant<value_ints = [-1]>()
        heads = Constant<value_ints = [3, 12]>()  s = Concat<axis = 0>(n, heads, whole)
        u = Reshape(x, s)  t = Transpose<perm = [0, 1, 3, 2]>(u)
        q, k, v = Split<axis = 3, num_outputs = 3>(t)
        kt = Transpose<perm = [0, 1, 3, 2]>(k)  a = MatMul(q, kt)  p = Softmax(a)
        m = MatMul(p, v)  mt = Transpose<perm = [0, 1, 3, 2]>(m)
        z = Constant<value_ints = [12]>()  hw = Shape<start = 2>(x)
        o = Concat<axis = 0>(n, z, hw)  i = Reshape(mt, o)
        b = Constant<value_ints = [0]>()  e = Constant<value_ints = [12]>()
        c = Constant<value_ints = [1]>()  f = Slice(x, b, e, c)  y = Add(i, f)
    }}"""
    height, width = (int(d) if d.isdigit() else 5 + k for k, d in enumerate(size.split(", ")))
    shapes = [(n, 36, height, width) for n in (1, 3)]
    feeds = [{"x": _random.standard_normal(s).astype(np.float32)} for s in shapes]
    session = check(model_of(text, opset=18), feeds)
    kernels = inspect(session).kernels
    assert sum(k.startswith("attention") for k in kernels) == 1, kernels


@pytest.mark.parametrize("shape", [s for s in SHAPES if s[1] < 6], ids=str)
def test_few_queries_and_transposed_keys(shape):
    heads, rows, keys, depth, columns = shape

    def model(heads, rows, keys, depth, columns):
        return model_of(
            f"""g (float[2, {heads}, {rows}, {depth}] q, float[2, {heads}, {depth}, {keys}] k,
                float[2, {heads}, {keys}, {columns}] v) => (float[b, h, s, e] y) {{
            s = MatMul(q, k) p = Softmax<axis = -1>(s) y = MatMul(p, v) }}"""
        )

    feeds = _feeds(*shape)
    feeds["k"] = np.ascontiguousarray(feeds["k"].transpose(0, 2, 3, 1))
    del feeds["m"]
    check(model(*shape), [feeds])
    check(model("H", "S", "T", "D", "E"), [feeds])
    check(model(heads, rows, "T", depth, columns), [feeds])


def test_keys_in_two_parts():
    text = """g (float[1, 2, 1, 24] q, float[1, 2, P, 24] past, float[1, 2, 1, 24] new,
               float[1, 2, T, 40] v) => (float[b, h, s, e] y) {
        k = Concat<axis = 2>(past, new) t = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, t)
        p = Softmax<axis = -1>(s) y = MatMul(p, v) }"""
    shapes = [(1, 2, 1, 24), (1, 2, 37, 24), (1, 2, 1, 24), (1, 2, 38, 40)]
    draw = _random.standard_normal
    names = ("q", "past", "new", "v")
    check(
        model_of(text),
        [{n: draw(s).astype(np.float32) for n, s in zip(names, shapes, strict=True)}],
    )


def _scaled(factor, masked):
    scores = "Add(r, m)" if masked else "Identity(r)"
    return model_of(
        f"""g (float[h,s,d] q, float[h,t,d] k, float[h,t,e] v, float[s,t] m) => (float[h,s,e] y) {{
        u = Transpose<perm = [0, 2, 1]>(k) w = MatMul(q, u) r = Mul(w, c) n = {scores}
        p = Softmax<axis = -1>(n) y = MatMul(p, v) }}""",
        {"c": np.float32(factor)},
    )


_LEAST = np.finfo(np.float32).min
#: What is no common number: (input, where, value), and whether a mask is added to scores.
_UNCOMMON = {
    "nothing": ((), False),
    "NaN in a key": ((("k", (1, 20, 0), np.nan),), False),
    "infinite queries": ((("q", (2, 5), np.inf),), False),
    "the least float, in some columns and one row": (
        (("m", (slice(None), slice(None, None, 2)), _LEAST), ("m", (3,), _LEAST)), True,
    ),
    "minus infinity, in some columns and one row": (
        (("m", (slice(None), slice(1, None, 2)), -np.inf), ("m", (3,), -np.inf)), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("factor", [0.125, -0.3, 0.0, 3.0, 1e38])
@pytest.mark.parametrize("name", _UNCOMMON)
def test_scores_times_a_number(name, factor):
    """Scores stay unscaled up to the power where the number is positive."""
    changes, masked = _UNCOMMON[name]
    feeds = {
        n: _random.standard_normal(s).astype(np.float32)
        for n, s in {"q": (3, 9, 16), "k": (3, 41, 16), "v": (3, 41, 24), "m": (9, 41)}.items()
    }
    if factor > 1e3:
        feeds["q"] *= np.float32(1e-38)
    for tensor, place, value in changes:
        feeds[tensor][place] = value
    session = sardonyx.InferenceSession(_scaled(factor, masked).SerializeToString())
    assert inspect(session).kernels == ["attention_0"]
    with np.errstate(all="ignore"):
        q, k, v, m = (feeds[n].astype(np.float64) for n in "qkvm")
        scores = np.float64(np.float32(factor)) * (q @ k.swapaxes(1, 2)) + masked * m
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        want = powers / powers.sum(-1, keepdims=True) @ v
    assert_near(session.run(None, feeds)[0], want, "float: attention")
