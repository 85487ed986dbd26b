"""Which attentions are offered to libraries, and that they give what kernels give."""

from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.runtime.explain import explain
from tests.cuda.test_accelerate import _engines, fake, on_a_device
from tests.support.fake_driver import FakeDriver
from tests.support.fake_library import FakeLibrary
from tests.support.session import model_of
from tests.support.tolerances import assert_near

__all__ = ["fake"]  # a fixture

_random = np.random.default_rng(5)

_HEADS = (
    " d = Constant<value_ints=[0,0,3,8]>() e = Constant<value_ints=[0,0,24]>()"
    " qs = Reshape(q, d) ks = Reshape(k, d) vs = Reshape(v, d) qt = Transpose<perm=[0,2,1,3]>(qs)"
    " kt = Transpose<perm=[0,2,3,1]>(ks) vt = Transpose<perm=[0,2,1,3]>(vs)"
)
_BACK = " p = Softmax<axis=-1>(t) o = MatMul(p, vt) z = Transpose<perm=[0,2,1,3]>(o)"
_BACK += " y = Reshape(z, e) }"
_FACTORS = "float16[N,S,24] q, float16[N,T,24] k, float16[N,T,24] v"
_SELF = "float16[N,S,24] q, float16[N,S,24] k, float16[N,S,24] v"
_SCALE = np.float16(0.25)


def _text(feeds: str, scores: str) -> str:
    return f"g ({feeds}) => (float16[N,S,24] y) {{{_HEADS}{scores}{_BACK}"


_SHAPE = [(2, 5, 24)] * 3
_LOWER = np.tril(np.ones((1, 1, 5, 5), bool))
#: As exporters fold them where sizes are known.
_POSITIONS = {
    "rows": np.arange(70).reshape(1, 1, 70, 1), "nought": np.array(0),
    "square": np.array([1, 1, 70, 70]), "zero": np.float16(0), "low": np.float16(-65504),
    "s": _SCALE,
}  # fmt: skip
#: Graph, weights, shapes of feeds, what the call says of scale and mask.
CASES: dict[str, tuple[str, dict[str, Any], list[tuple[int, ...]], dict[str, object]]] = {
    "heads of one matrix": (
        _text(_SELF, " r = MatMul(qt, kt) t = Mul(r, s)"), {"s": _SCALE}, _SHAPE,
        {"scale": 0.25, "bias": False, "causal": ""},
    ),
    "a mask of the batch": (
        _text(
            f"{_SELF}, int64[N,S] m",
            " c = Cast<to=10>(m) a = Sub(one, c) b = Mul(a, low)"
            " i = Constant<value_ints=[1,2]>() w = Unsqueeze(b, i)"
            " r = MatMul(qt, kt) x = Mul(r, s) t = Add(x, w)",
        ),
        {"s": _SCALE, "one": np.float16(1), "low": np.float16(-1000)}, [*_SHAPE, (2, 5)],
        {"scale": 0.25, "bias": True, "bias_type": "float16"},
    ),
    "a mask of queries and keys": (
        _text(f"{_SELF}, float16[N,1,S,S] m", " r = MatMul(qt, kt) x = Div(r, s) t = Add(x, m)"),
        {"s": np.float16(4)}, [*_SHAPE, (2, 1, 5, 5)], {"scale": 0.25, "bias": True},
    ),
    "a mask that never changes": (
        _text(
            _SELF.replace("S", "5"),
            " r = MatMul(qt, kt) x = Mul(r, s) a = Sub(m, one) b = Mul(a, high) t = Add(x, b)",
        ).replace("S,", "5,"),
        {
            "s": _SCALE, "m": _LOWER.astype(np.float16), "one": np.float16(1),
            "high": np.float16(1000),
        },
        _SHAPE, {"scale": 0.25, "bias": True},
    ),
    "a mask that hides nothing": (
        _text(
            _SELF.replace("S", "5"), " r = MatMul(qt, kt) x = Mul(r, s) t = Add(x, m)"
        ).replace("S,", "5,"),
        {"s": _SCALE, "m": np.zeros((1, 1, 5, 5), np.float16)},
        _SHAPE, {"scale": 0.25, "bias": False},
    ),
    "positions of which all count": (
        _text(
            _SELF.replace("S", "70"),
            " b = GreaterOrEqual(rows, nought) c = Expand(b, square) m = Where(c, zero, low)"
            " r = MatMul(qt, kt) x = Mul(r, s) t = Add(x, m)",
        ).replace("S,", "70,"),
        _POSITIONS, [(2, 70, 24)] * 3, {"scale": 0.25, "bias": False, "causal": ""},
    ),
    "two masks": (
        _text(
            f"{_SELF}, float16[N,1,1,S] m, float16[3,S,S] n",
            " r = MatMul(qt, kt) x = Add(r, n) t = Add(x, m)",
        ),
        {}, [*_SHAPE, (2, 1, 1, 5), (3, 5, 5)], {"scale": 1.0, "bias": True},
    ),
    "causal": (
        f"g ({_SELF}) => (float16[N,S,24] y)"
        " { y = Attention<is_causal=1, q_num_heads=3, kv_num_heads=3>(q, k, v) }",
        {}, _SHAPE, {"scale": 1 / 8**0.5, "bias": False, "causal": "first"},
    ),
    "heads that share keys": (
        "g (float16[N,S,48] q, float16[N,S,16] k, float16[N,S,16] v) => (float16[N,S,48] y)"
        " { y = Attention<is_causal=1, q_num_heads=6, kv_num_heads=2>(q, k, v) }",
        {}, [(2, 5, 48), (2, 5, 16), (2, 5, 16)], {"causal": "first"},
    ),
    "heads that share all keys": (
        "g (float16[N,S,48] q, float16[N,S,8] k, float16[N,S,8] v) => (float16[N,S,48] y)"
        " { y = Attention<q_num_heads=6, kv_num_heads=1>(q, k, v) }",
        {}, [(2, 5, 48), (2, 5, 8), (2, 5, 8)], {"causal": ""},
    ),
    "queries that see no key": (
        f"g ({_SELF}, bool[S,S] m) => (float16[N,S,24] y)"
        " { y = Attention<q_num_heads=3, kv_num_heads=3>(q, k, v, m) }",
        {}, [*_SHAPE, (5, 5)], {"bias": True, "bias_type": "float16", "causal": ""},
    ),
    "a mask and no key behind the query": (
        f"g ({_SELF}, float16[N,1,1,S] m) => (float16[N,S,24] y)"
        " { y = Attention<is_causal=1, q_num_heads=3, kv_num_heads=3>(q, k, v, m) }",
        {}, [*_SHAPE, (2, 1, 1, 5)], {"bias": True, "causal": "first"},
    ),
    "one query": (
        "g (float16[N,3,1,8] q, float16[N,3,9,8] k, float16[N,3,9,16] v) => (float16[N,3,1,16] y)"
        " { y = Attention(q, k, v) }",
        {}, [(2, 3, 1, 8), (2, 3, 9, 8), (2, 3, 9, 16)], {"causal": ""},
    ),
    "keys counted from the last": (
        "g (float16[N,3,3,8] q, float16[N,3,3,8] k, float16[N,3,3,8] v, float16[N,3,6,8] pk,"
        " float16[N,3,6,8] pv) => (float16[N,3,3,8] y)"
        " { y = Attention<is_causal=1>(q, k, v, , pk, pv) }",
        {}, [*[(2, 3, 3, 8)] * 3, *[(2, 3, 6, 8)] * 2], {"causal": "last"},
    ),
}  # fmt: skip

#: Graphs that no library gets, with a part of the reason.
REFUSED = {
    "choices without a guard": (
        _text(f"{_SELF}, bool[S,S] m", " r = MatMul(qt, kt) t = Where(m, r, s)"),
        "keys are hidden by minus infinity",
    ),
    "floats": (
        "g (float[N,3,S,8] q, float[N,3,S,8] k, float[N,3,S,8] v) => (float[N,3,S,8] y)"
        " { y = Attention(q, k, v) }",
        "attention of float",
    ),
    "keys of a cache": (
        "g (float16[N,3,1,8] q, float16[N,3,T,8] k, float16[N,3,T,8] v)"
        " => (float16[N,3,1,8] y) { y = Attention(q, k, v) }",
        "keys may get more",
    ),
    "scores that are bent": (
        "g (float16[N,3,S,8] q, float16[N,3,S,8] k, float16[N,3,S,8] v)"
        " => (float16[N,3,S,8] y) { y = Attention<softcap=2.0>(q, k, v) }",
        "more than a factor and a sum",
    ),
    "a result that is changed": (
        "g (float16[N,3,S,8] q, float16[N,3,S,8] k, float16[N,3,S,8] v)"
        " => (float16[N,3,S,8] y) { a = Attention(q, k, v) y = Exp(a) }",
        "its result is changed",
    ),
}


def _feeds(text: str, shapes: list[tuple[int, ...]]) -> list[Any]:
    found = [(_random.standard_normal(s)).astype(np.float16) for s in shapes]
    if "int64" in text:
        found[-1] = (_random.random(shapes[-1]) < 0.7).astype(np.int64)
        found[-1][:, 0] = 1
    if "bool" in text:
        found[-1] = _random.random(shapes[-1]) < 0.7
        found[-1][1] = False
    return found


#: With masks and without, which kernels do where the library refuses them in a run.
_REFUSED_IN_RUNS = ["heads of one matrix", "a mask of the batch", "causal", "heads that share keys"]


@pytest.mark.parametrize(
    ("name", "unable"),
    [*((name, False) for name in CASES), *((name, True) for name in _REFUSED_IN_RUNS)],
)
def test_equals_what_kernels_compute(fake: FakeDriver, name: str, unable: bool) -> None:
    text, weights, shapes, facts = CASES[name]
    library = FakeLibrary(fake, unable=unable)
    there, here = _engines(fake, library, text, weights, 23)
    for _ in range(3):
        feeds = _feeds(text, shapes)
        found, expected = there.run(feeds)[0], here.run(feeds)[0]
        assert_near(found, expected, "half: some roundings")
    (call,) = [c.library for c in there.executable.plan.calls if c.library is not None]
    assert call.function == "attention"
    assert {k: v for k, v in call.facts if k in facts} == facts
    assert library.done == ([] if unable else ["attention"] * 3)


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_library_gets(fake: FakeDriver, name: str) -> None:
    text, reason = REFUSED[name]
    weights = {"s": np.float16(-np.inf)} if "s)" in text else {}
    there, _ = _engines(fake, FakeLibrary(fake), text, weights, 23)
    functions = [c.library.function for c in there.executable.plan.calls if c.library is not None]
    assert "attention" not in functions
    assert reason in explain(there, verbose=True)


def test_one_array_for_a_mask_of_several_layers(fake: FakeDriver) -> None:
    layer = (
        " a{n} = Attention<q_num_heads=3, kv_num_heads=3>(x{n}, x{n}, x{n}) r{n} = Add(a{n}, x{n})"
    )
    scores = CASES["a mask of the batch"][0].split("{", 1)[1]
    assert layer  # the same scores twice, on what the first attention gave
    first, _, _ = scores.partition(" y = ")
    second = first.replace("qs = Reshape(q,", "qs = Reshape(y0,")
    names = ("d e qs ks vs qt kt vt c a b i w r x t p o z").split()
    for n in names:
        second = _renamed(second, n)
    text = (
        f"g ({_SELF}, int64[N,S] m) => (float16[N,S,24] y)"
        f" {{{first} y0 = Reshape(z, e){second} y = Reshape(z_, e_) }}"
    )
    weights = CASES["a mask of the batch"][1]
    library = FakeLibrary(fake)
    there, here = _engines(fake, library, text, weights, 23)
    feeds = _feeds(text, [*_SHAPE, (2, 5)])
    assert_near(there.run(feeds)[0], here.run(feeds)[0], "half: some roundings")
    assert library.done == ["attention"] * 2
    masks = {c.kernel for c in there.executable.plan.calls if c.library is None}
    writers = [c for c in there.executable.plan.calls if c.library is None]
    assert len(writers) == len(masks) == 1


def _renamed(text: str, name: str) -> str:
    out = text.replace(f" {name} = ", f" {name}_ = ")
    for before in ("(", ", "):
        for after in (")", ","):
            out = out.replace(f"{before}{name}{after}", f"{before}{name}_{after}")
    return out


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@on_a_device
@pytest.mark.parametrize("name", CASES)
def test_libraries_of_the_device(name: str, dtype: str) -> None:
    text, weights, shapes, _ = CASES[name]
    kind = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}[dtype]
    if dtype == "bfloat16":
        text = text.replace("float16[", "bfloat16[").replace("to=10", "to=16")
    held = {
        n: w if np.asarray(w).dtype == np.int64 else np.asarray(w).astype(kind)
        for n, w in weights.items()
    }
    model = model_of(text, held, opset=23).SerializeToString()
    here = sardonyx.InferenceSession(model)
    session = sardonyx.InferenceSession(model, providers=["CUDAExecutionProvider"])
    names = [x.name for x in here.get_inputs()]
    like = "half: some roundings" if dtype == "float16" else "bfloat16: attention"
    for _ in range(4):
        feeds = [f if f.dtype in (np.int64, bool) else f.astype(kind) for f in _feeds(text, shapes)]
        given = dict(zip(names, feeds, strict=True))
        found, expected = session.run(None, given)[0], here.run(None, given)[0]
        assert_near(found.astype(np.float32), expected.astype(np.float32), like)
        deadline = time.monotonic() + 60
        while inspect(session).libraries.pending and time.monotonic() < deadline:
            time.sleep(0.01)
    planned = [c.library.function for c in inspect(session).plan.calls if c.library is not None]
    assert planned == ["attention"]
