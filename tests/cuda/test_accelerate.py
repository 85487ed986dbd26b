"""What is offered to libraries, and that plans with their calls give what plans without give."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.api.providers import cuda_is_missing
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.cuda.libraries.libraries import Libraries
from sardonyx.plan import serial
from sardonyx.runtime.engine import Engine
from sardonyx.runtime.explain import explain
from tests.support.fake_driver import FakeDriver
from tests.support.fake_library import FakeLibrary
from tests.support.fake_provider import FakeProvider, installed
from tests.support.session import model_of
from tests.support.tolerances import TABLE, assert_near

_random = np.random.default_rng(11)


def _normal(*shape: int, dtype: Any = np.float32) -> Any:
    return (_random.standard_normal(shape) * 0.5).astype(dtype)


W, WB, F3, F1 = _normal(12, 8), _normal(8), _normal(6, 4, 3, 3), _normal(6, 4, 1, 1)
LINE, CUBE, UP = _normal(5, 4, 3), _normal(5, 4, 2, 2, 2), _normal(4, 3, 2, 2)

#: Graph, weights, shapes of feeds, and the calls that libraries make of it.
CASES: dict[str, tuple[str, dict[str, Any], list[tuple[int, ...]], list[str]]] = {
    "product": (
        "g (float[N,M] x, float[M,K] w) => (float[N,K] y) { y = MatMul(x, w) }", {},
        [(5, 7), (7, 9)], ["matmul"],
    ),
    "bias and relu": (
        "g (float[N,S,12] x) => (float[N,S,8] y) { a = MatMul(x, w) b = Add(a, c) y = Relu(b) }",
        {"w": W, "c": WB}, [(2, 3, 12)], ["matmul"],
    ),
    "bias and residual": (
        "g (float[N,12] x, float[N,8] r) => (float[N,8] y)"
        " { a = MatMul(x, w) b = Add(a, c) y = Add(r, b) }",
        {"w": W, "c": WB}, [(5, 12), (5, 8)], ["matmul"],
    ),
    "a residual with a bias of its own": (
        "g (float[N,12] x, float[N,8] r) => (float[N,8] y)"
        " { a = MatMul(x, w) b = Add(a, c) s = Add(r, c) d = Add(b, s) y = Relu(d) }",
        {"w": W, "c": WB}, [(5, 12), (5, 8)], ["matmul"],
    ),
    "an epilogue that no library has": (
        "g (float[N,12] x) => (float[N,8] y) { a = MatMul(x, w) y = Tanh(a) }",
        {"w": W}, [(5, 12)], ["matmul"],
    ),
    "a Gelu of half floats": (
        "g (float16[N,12] x, float16[N,8] r) => (float16[N,8] y) { a = MatMul(x, w) b = Add(a, c)"
        " u = Add(b, r) v = Mul(u, u) k = Mul(v, u) l = Mul(k, k1) m = Add(u, l) n = Mul(m, k2)"
        " o = Tanh(n) p = Add(o, one) q = Mul(u, half) y = Mul(q, p) }",
        {
            "w": W.astype(np.float16), "c": WB.astype(np.float16), "k1": np.float16(0.044715),
            "k2": np.float16(0.79788456), "one": np.float16(1), "half": np.float16(0.5),
        },
        [(5, 12), (5, 8)], ["matmul"],
    ),
    "an epilogue of constants": (
        "g (float[N,12] x) => (float[N,8] y) { a = MatMul(x, w) b = Mul(a, c) y = Exp(b) }",
        {"w": W, "c": WB}, [(5, 12)], ["matmul"],
    ),
    "transposed factors": (
        "g (float[M,N] x, float[K,M] w) => (float[N,K] y)"
        " { a = Transpose<perm=[1,0]>(x) b = Transpose<perm=[1,0]>(w) y = MatMul(a, b) }", {},
        [(5, 7), (9, 5)], ["matmul"],
    ),
    "many products": (
        "g (float[B,H,N,M] x, float[B,H,M,K] w) => (float[B,H,N,K] y) { y = MatMul(x, w) }", {},
        [(2, 3, 4, 5), (2, 3, 5, 6)], ["matmul"],
    ),
    "heads of one matrix": (
        "g (float[B,S,24] x, float[B,S,24] z) => (float[B,4,S,S] y)"
        " { d = Constant<value_ints=[0,0,4,6]>() a = Reshape(x, d) e = Reshape(z, d)"
        " p = Transpose<perm=[0,2,1,3]>(a) q = Transpose<perm=[0,2,3,1]>(e) y = MatMul(p, q) }", {},
        [(2, 5, 24), (2, 5, 24)], ["matmul"],
    ),
    "windows with a border": (
        "g (float[N,4,H,L] x) => (float[N,6,P,Q] y)"
        " { a = Conv<pads=[1,1,1,1]>(x, f, b) y = Relu(a) }",
        {"f": F3, "b": _normal(6)}, [(2, 4, 7, 5)], ["convolution"],
    ),
    "windows of one image": (
        "g (float[1,4,H,L] x) => (float[1,6,P,Q] y) { y = Conv<pads=[1,1,1,1]>(x, f) }",
        {"f": F3}, [(1, 4, 7, 5)], ["convolution"],
    ),
    "windows of one row": (
        "g (float[1,4,1,L] x) => (float[1,6,1,Q] y) { y = Conv<pads=[1,1,1,1]>(x, f) }",
        {"f": F3}, [(1, 4, 1, 5)], ["convolution"],
    ),
    "windows side by side": (
        "g (float[N,4,9,6] x) => (float[N,6,3,3] y) { y = Conv<strides=[3,2]>(x, f, b) }",
        {"f": _normal(6, 4, 3, 2), "b": _normal(6)}, [(2, 4, 9, 6)], ["matmul"],
    ),
    "windows apart": (
        "g (float[N,4,9,8] x) => (float[N,6,P,Q] y)"
        " { y = Conv<pads=[2,1,0,1], strides=[2,3], dilations=[2,1]>(x, f) }",
        {"f": F3}, [(1, 4, 9, 8)], ["convolution"],
    ),
    "windows with taps that meet nothing": (
        "g (float[N,4,4,9] x) => (float[N,6,4,9] y)"
        " { y = Conv<pads=[5,2,5,2], dilations=[5,2]>(x, f, b) }",
        {"f": F3, "b": _normal(6)}, [(2, 4, 4, 9)], ["convolution"],
    ),
    "windows that begin behind the border": (
        "g (float[N,4,8,8] x) => (float[N,6,1,P] y)"
        " { y = Conv<pads=[3,1,0,1], dilations=[5,1], strides=[4,1]>(x, f) }",
        {"f": F3}, [(2, 4, 8, 8)], ["convolution"],
    ),
    "an image of one point": (
        "g (float[1,4,3,3] x) => (float[1,6,1,1] y) { y = Conv(x, f) }",
        {"f": F3}, [(1, 4, 3, 3)], ["matmul"],
    ),
    "two convolutions with a shortcut": (
        "g (float[N,4,6,6] x) => (float[N,6,6,6] y) { a = Conv<pads=[1,1,1,1]>(x, f, b)"
        " s = Conv(x, e) c = Add(a, s) d = Relu(c) h = Conv<pads=[1,1,1,1]>(d, k) y = Add(h, d) }",
        {"f": F3, "b": _normal(6), "e": F1, "k": _normal(6, 6, 3, 3)}, [(2, 4, 6, 6)],
        ["convolution", "convolution", "convolution"],
    ),
    "a line": (
        "g (float[N,4,L] x) => (float[N,5,Q] y) { y = Conv<pads=[1,1], strides=[2]>(x, f) }",
        {"f": LINE}, [(2, 4, 9)], ["convolution"],
    ),
    "a cube": (
        "g (float[N,4,3,4,5] x) => (float[N,5,P,Q,R] y) { y = Conv(x, f) }",
        {"f": CUBE}, [(2, 4, 3, 4, 5)], ["convolution"],
    ),
    "an image made larger": (
        "g (float[N,4,3,5] x) => (float[N,3,6,10] y)"
        " { a = ConvTranspose<strides=[2,2]>(x, f) y = Relu(a) }",
        {"f": UP}, [(2, 4, 3, 5)], ["matmul"],
    ),
    "half floats to floats": (
        "g (float16[N,12] x) => (float[N,8] y) { a = MatMul(x, w) y = Cast<to=1>(a) }",
        {"w": W.astype(np.float16)}, [(5, 12)], ["matmul"],
    ),
    "a convolution of half floats": (
        "g (float16[N,4,H,L] x) => (float16[N,6,P,Q] y)"
        " { a = Conv<pads=[1,1,1,1]>(x, f, b) c = Relu(a) d = Conv(c, e, b) y = Add(d, c) }",
        {
            "f": F3.astype(np.float16), "b": _normal(6, dtype=np.float16),
            "e": _normal(6, 6, 1, 1, dtype=np.float16),
        },
        [(2, 4, 7, 5)], ["convolution", "matmul"],
    ),
    "a sum of half floats that stays a float": (
        "g (float16[N,4,H,L] x) => (float16[N,6,1,1] y)"
        " { a = Conv<pads=[1,1,1,1]>(x, f, b) y = GlobalMaxPool(a) }",
        {"f": F3.astype(np.float16), "b": _normal(6, dtype=np.float16)}, [(2, 4, 7, 5)],
        ["convolution"],
    ),
    "weights in eight bits": (
        "g (float[N,12] x) => (float[N,8] y)"
        " { f = DequantizeLinear(w, s) y = MatMul(x, f) }",
        {"w": _random.integers(-9, 9, (12, 8)).astype(np.int8), "s": np.float32(0.25)},
        [(5, 12)], ["matmul"],
    ),
    "filters that are all the same": (
        "g (float[N,4,5,5] x) => (float[N,6,P,Q] y)"
        " { s = Constant<value_ints=[6,4,3,3]>() f = ConstantOfShape<value=float[1]{0.5}>(s)"
        " a = Conv(x, f, b) y = Relu(a) }",
        {"b": _normal(6)}, [(2, 4, 5, 5)], ["convolution"],
    ),
    "groups": (
        "g (float[N,4,5,5] x) => (float[N,6,P,Q] y) { y = Conv<group=2>(x, f) }",
        {"f": _normal(6, 2, 3, 3)}, [(2, 4, 5, 5)], ["convolution"],
    ),
    "groups with a shortcut": (
        "g (float[N,8,H,L] x) => (float[N,8,P,Q] y)"
        " { a = Conv<group=4, pads=[1,1,1,1]>(x, f, b) c = Add(a, x) y = Relu(c) }",
        {"f": _normal(8, 2, 3, 3), "b": _normal(8)}, [(2, 8, 5, 6)], ["convolution"],
    ),
    "groups in a line of half floats": (
        "g (float16[N,6,L] x) => (float16[N,9,Q] y)"
        " { a = Conv<group=3, strides=[2]>(x, f, b) y = Relu(a) }",
        {"f": _normal(9, 2, 3, dtype=np.float16), "b": _normal(9, dtype=np.float16)},
        [(2, 6, 11)], ["convolution"],
    ),
    "groups of one channel": (
        "g (float[N,4,5,5] x) => (float[N,8,P,Q] y) { y = Conv<group=4>(x, f) }",
        {"f": _normal(8, 1, 3, 3)}, [(2, 4, 5, 5)], [],
    ),
    "integers": (
        "g (int32[N,M] x, int32[M,K] w) => (int32[N,K] y) { y = MatMul(x, w) }", {},
        [(5, 7), (7, 9)], [],
    ),
}  # fmt: skip


_MISSING = cuda_is_missing()
on_a_device = pytest.mark.skipif(bool(_MISSING), reason=f"no GPU here: {_MISSING}")


@pytest.fixture
def fake() -> Iterator[FakeDriver]:
    with installed() as driver:
        yield driver


def _engines(
    fake: FakeDriver, library: FakeLibrary, text: str, weights: Any, opset: int = 17
) -> tuple[Engine, Engine]:
    functions = ("matmul", "convolution", "attention")
    provider: Any = FakeProvider(fake, libraries=Libraries(dict.fromkeys(functions, library)))
    model = model_of(text, weights, opset=opset).SerializeToString()
    return (
        create_engine(model, EngineOptions(provider=provider, use_cache=False)),
        # Many tests compare with the same one: it is compiled once.
        create_engine(model, EngineOptions()),
    )


def _feeds(text: str, shapes: list[tuple[int, ...]]) -> list[Any]:
    if "int32" in text:
        return [_random.integers(-9, 9, s).astype(np.int32) for s in shapes]
    dtype = np.float16 if "float16" in text else np.float32
    return [_normal(*s, dtype=dtype) for s in shapes]


#: Calls of each kind, which kernels do where the library refuses them in a run.
_REFUSED_IN_RUNS = [
    "product", "a residual with a bias of its own", "a Gelu of half floats", "many products",
    "windows with a border", "windows side by side", "two convolutions with a shortcut", "a cube",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "unable"),
    [*((name, False) for name in CASES), *((name, True) for name in _REFUSED_IN_RUNS)],
)
def test_equals_what_kernels_compute(fake: FakeDriver, name: str, unable: bool) -> None:
    text, weights, shapes, calls = CASES[name]
    library = FakeLibrary(fake, unable=unable)
    there, here = _engines(fake, library, text, weights)
    for _ in range(3):
        feeds = _feeds(text, shapes)
        found, expected = there.run(feeds)[0], here.run(feeds)[0]
        like = "half: two roundings" if "half" in name else "float: sums"
        assert_near(found, expected, like)
    planned = [c.library.function for c in there.executable.plan.calls if c.library is not None]
    assert sorted(planned) == calls
    assert sorted(library.done) == ([] if unable else sorted(calls * 3))


_U = "a = MatMul(x, w) u = Add(a, c)"
_TANH = f"{_U} k = Pow(u, three) l = Mul(k, k1) m = Add(u, l) n = Mul(m, k2) o = Tanh(n)"
_TANH += " p = Add(o, one) q = Mul(u, p) y = Mul(q, half)"
_ERF = f"{_U} m = Div(u, root) n = Erf(m) o = Add(n, one) q = Mul(u, o) y = Mul(q, half)"
_FEW = {"three": 3, "k1": 0.044715, "k2": 0.7978845608, "one": 1, "half": 0.5, "root": 1.41421356}


#: Forms, and whether a product has them; how they are found does not depend on the type.
_GELUS = [
    (_TANH, 17, "gelu"),
    (f'{_U} y = Gelu<approximate="tanh">(u)', 20, "gelu"),
    (f"{_U} y = Gelu(u)", 20, ""),
    (_ERF, 17, ""),
    (_TANH.replace("k2)", "one)"), 17, ""),
]


@pytest.mark.parametrize(
    ("body", "opset", "activation", "kind"),
    [
        *((*form, np.float16) for form in _GELUS),
        *((*form, kind) for form in _GELUS[:2] for kind in (ml_dtypes.bfloat16, np.float32)),
    ],
)
def test_gelu_by_tanh_is_part_of_a_product(
    fake: FakeDriver, body: str, opset: int, activation: str, kind: Any
) -> None:
    name = {"float16": "float16", "bfloat16": "bfloat16", "float32": "float"}[np.dtype(kind).name]
    text = f"g ({name}[N,12] x) => ({name}[N,8] y) {{ {body} }}"
    weights = {k: np.array(v, kind) for k, v in _FEW.items() if f"{k})" in body}
    library = FakeLibrary(fake)
    weights |= {"w": W.astype(kind), "c": WB.astype(kind)}
    there, here = _engines(fake, library, text, weights, opset)
    x = _normal(5, 12, dtype=kind)
    found, expected = (np.asarray(e.run([x])[0]).astype(np.float64) for e in (there, here))
    like = {
        "float16": "half: three roundings",
        "bfloat16": "bfloat16: products",
        "float": "float: sums",
    }[name]
    assert_near(found, expected, like)
    (call,) = [c.library for c in there.executable.plan.calls if c.library is not None]
    assert call["activation"] == activation


def test_plans_with_calls_are_written_and_read(fake: FakeDriver) -> None:
    text, weights, _, _ = CASES["windows with a border"]
    there, _ = _engines(fake, FakeLibrary(fake), text, weights)
    plan = there.executable.plan
    assert serial.from_bytes(serial.to_bytes(plan)) == plan


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_types(fake: FakeDriver, dtype: Any) -> None:
    kind = {"float16": "float16", "bfloat16": "bfloat16", "float64": "double"}[np.dtype(dtype).name]
    text = f"g ({kind}[N,12] x) => ({kind}[N,8] y) {{ a = MatMul(x, w) y = Add(a, c) }}"
    weights = {"w": W.astype(dtype), "c": WB.astype(dtype)}
    library = FakeLibrary(fake)
    there, here = _engines(fake, library, text, weights)
    x = _normal(5, 12, dtype=dtype)
    found, expected = there.run([x])[0], here.run([x])[0]
    like = {
        "float16": "half: one rounding",
        "bfloat16": "bfloat16: one rounding",
        "float64": "double: sums",
    }[np.dtype(dtype).name]
    assert_near(found.astype(np.float64), expected.astype(np.float64), like)
    assert library.done == ["matmul"]


def test_a_provider_without_the_library_says_so(fake: FakeDriver) -> None:
    text, weights, shapes, _ = CASES["bias and relu"]
    libraries = Libraries({"matmul": "nvmath-python is not usable: it is missing"})
    provider: Any = FakeProvider(fake, libraries=libraries)
    model = model_of(text, weights).SerializeToString()
    engine = create_engine(model, EngineOptions(provider=provider, use_cache=False))
    engine.run(_feeds(text, shapes))
    assert "nvmath-python is not usable" in explain(engine)


def test_explain_lists_calls_and_refusals(fake: FakeDriver) -> None:
    text, weights, _, _ = CASES["bias and relu"]
    there, _ = _engines(fake, FakeLibrary(fake), text, weights)
    assert "library: matmul" in explain(there)
    there, _ = _engines(fake, FakeLibrary(fake, refuses="not today"), text, weights)
    assert "not today" in explain(there, verbose=True)
    text, weights, _, _ = CASES["groups of one channel"]
    there, _ = _engines(fake, FakeLibrary(fake), text, weights)
    assert "its groups have one channel each" in explain(there, verbose=True)


def test_a_plan_that_gets_ready_later_is_captured_then(fake: FakeDriver) -> None:
    text, weights, shapes, _ = CASES["windows with a border"]
    library = FakeLibrary(fake, unable=True, pending=1)
    there, here = _engines(fake, library, text, weights)

    def check() -> None:
        feeds = _feeds(text, shapes)
        assert_near(there.run(feeds)[0], here.run(feeds)[0], "float: sums")

    for _ in range(3):
        check()
    assert not fake.captures
    library.unable, library.pending, library.version = False, 0, 1
    for _ in range(4):
        check()
    assert library.done == ["convolution"] * 4
    assert fake.captures == 1


@on_a_device
@pytest.mark.parametrize("options", [{"use_tf32": "0"}, {}], ids=["float", "tf32"])
@pytest.mark.parametrize("name", CASES)
def test_libraries_of_the_device(name: str, options: dict[str, str]) -> None:
    text, weights, shapes, calls = CASES[name]
    model = model_of(text, weights, opset=17).SerializeToString()
    here = sardonyx.InferenceSession(model)
    session = sardonyx.InferenceSession(model, providers=[("CUDAExecutionProvider", options)])
    names = [x.name for x in here.get_inputs()]
    half = "half" in name
    for _ in range(4):
        feeds = dict(zip(names, _feeds(text, shapes), strict=True))
        found, expected = session.run(None, feeds)[0], here.run(None, feeds)[0]
        row = TABLE["half: two roundings" if options == {} or half else "float: sums"]
        # What is rounded are factors, to 11 bits: errors follow the terms, as large as large sums.
        scale = max(2.0, float(np.abs(expected).max()) / 2)
        np.testing.assert_allclose(found, expected, rtol=row.rtol, atol=scale * row.atol())
        deadline = time.monotonic() + 60
        while inspect(session).libraries.pending and time.monotonic() < deadline:
            time.sleep(0.01)
    planned = [c.library.function for c in inspect(session).plan.calls if c.library is not None]
    assert sorted(planned) == calls
    # Without tensor cores cuDNN has few convolutions; of groups the faster of two does the work.
    if not options and "groups" not in name:
        assert not inspect(session).libraries.undone, session.explain()
