"""Outputs that continue inputs are written behind them: no copies of a decoder's cache."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.inspection import inspect
from sardonyx.base import errors
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.libraries import cublaslt
from sardonyx.cuda.libraries.libraries import Libraries, LibrarySettings
from sardonyx.runtime.storage import OutputPlacement
from tests.support.fake_cublaslt import CublasLt
from tests.support.fake_driver import FakeDriver
from tests.support.fake_provider import FakeProvider
from tests.support.session import model_of
from tests.support.tolerances import assert_near

CUDA = "CUDAExecutionProvider"
_HEADS, _WIDTH = 2, 4
_TEXT = f"""g (float[B,S,8] x, float[B,{_HEADS},P,{_WIDTH}] past, float[B,{_HEADS},P,{_WIDTH}] old)
    => (float[B,{_HEADS},S,{_WIDTH}] y, float[B,{_HEADS},T,{_WIDTH}] present,
        float[B,{_HEADS},T,{_WIDTH}] longer)
    {{ a = Reshape(x, split) k = Transpose<perm=[0,2,1,3]>(a)
       present = Concat<axis=2>(past, k)
       t = Transpose<perm=[0,1,3,2]>(present) s = MatMul(k, t) p = Softmax<axis=-1>(s)
       v = Mul(k, half) longer = Concat<axis=-2>(old, v) y = MatMul(p, longer) }}"""
_WEIGHTS = {"split": np.array([0, 0, _HEADS, _WIDTH]), "half": np.float32(0.5)}
_random = np.random.default_rng(3)


def _session(text: str = _TEXT, weights: Any = None) -> ort.InferenceSession:
    model = model_of(text, _WEIGHTS if weights is None else weights).SerializeToString()
    return ort.InferenceSession(model, providers=[(CUDA, {"use_tf32": 0})])


def _draw(*shape: int) -> Any:
    return _random.standard_normal(shape).astype(np.float32)


def _value(array: Any) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0)


def _expected(x: Any, past: Any, old: Any) -> list[Any]:
    k = x.reshape(*x.shape[:2], _HEADS, _WIDTH).transpose(0, 2, 1, 3)
    present, longer = (np.concatenate(pair, 2) for pair in ((past, k), (old, k * 0.5)))
    scores = k @ present.transpose(0, 1, 3, 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return [weights / weights.sum(-1, keepdims=True) @ longer, present, longer]


def _step(session: Any, x: Any, *cache: ort.OrtValue) -> list[ort.OrtValue]:
    feeds = {"x": _value(x), "past": cache[0], "old": cache[1]}
    return session.run_with_ort_values(None, feeds)


def _check(found: Any, wanted: Any) -> None:
    for mine, right in zip(found, wanted, strict=True):
        assert_near(mine.numpy(), right, "float: products")


@pytest.mark.parametrize("batch", [1, 3])
def test_cache_grows_where_it_lies(gpu: FakeDriver | None, batch: int) -> None:
    """Prompt, then steps of one and of more rows, beyond the end of the first buffer."""
    session = _session()
    cache = [_draw(batch, _HEADS, 0, _WIDTH) for _ in range(2)]
    held = [_value(c) for c in cache]
    growable_buffers: dict[int, Any] = {}
    for rows in (5, *[1] * 8, 3, 40, *[1] * 12):
        x = _draw(batch, rows, 8)
        wanted = _expected(x, *cache)
        found = _step(session, x, *held)
        _check(found, wanted)
        cache, held = wanted[1:], found[1:]
        buffer = held[0]._array.buffer
        growable_buffers[id(buffer)] = buffer
    assert len(growable_buffers) == 3  # the prompt's own memory, 64 rows, 128 rows
    assert "outputs that continue inputs" in inspect(session).variants


def test_nothing_of_the_cache_is_copied(lazy: FakeDriver) -> None:
    session = _session()
    held = [_value(_draw(1, _HEADS, 1, _WIDTH)) for _ in range(2)]
    for _ in range(3):
        held = _step(session, _draw(1, 1, 8), *held)[1:]
    lazy.copied.clear()
    for _ in range(5):
        held = _step(session, _draw(1, 1, 8), *held)[1:]
    assert set(lazy.copied) == {"pinned, device"}  # tokens, and tables of arguments


def test_values_stay_what_they_are(gpu: FakeDriver | None) -> None:
    """Two continuations of one value; shorter values; what other libraries write."""
    session = _session()
    arrays = [_draw(1, _HEADS, 3, _WIDTH) for _ in range(2)]
    first = _step(session, x0 := _draw(1, 1, 8), *map(_value, arrays))
    want0 = _expected(x0, *arrays)
    left = _step(session, x1 := _draw(1, 1, 8), *first[1:])
    right = _step(session, x2 := _draw(1, 2, 8), *first[1:])
    more = _step(session, x3 := _draw(1, 1, 8), *left[1:])
    want1, want2 = _expected(x1, *want0[1:]), _expected(x2, *want0[1:])
    want3 = _expected(x3, *want1[1:])
    for found, wanted in ((more, want3), (left, want1), (first, want0), (right, want2)):
        _check(found, wanted)
    left[1].update_inplace(np.zeros(left[1].shape(), np.float32))
    _check(more, want3)
    assert more[1].data_ptr() != left[1].data_ptr()
    fork = _step(session, x4 := _draw(1, 1, 8), *right[1:])
    other = _step(session, x5 := _draw(1, 1, 8), *right[1:])
    _check(fork, _expected(x4, *want2[1:]))
    _check(other, _expected(x5, *want2[1:]))
    last = _step(session, x4 := _draw(1, 1, 8), *more[1:])
    _check(last, _expected(x4, *want3[1:]))


def test_runs_go_on_after_one_that_failed(gpu: FakeDriver | None) -> None:
    session = _session()
    held = _step(session, _draw(1, 1, 8), *(_value(_draw(1, _HEADS, 2, _WIDTH)) for _ in "ab"))
    held = _step(session, _draw(1, 1, 8), *held[1:])
    with pytest.raises(errors.InvalidArgument):
        _step(session, _draw(2, 1, 8), *held[1:])
    arrays = [h.numpy() for h in held[1:]]
    for _ in range(2):
        found = _step(session, x := _draw(1, 1, 8), *held[1:])
        wanted = _expected(x, *arrays)
        _check(found, wanted)
        held, arrays = found, wanted[1:]


def test_bound_value_grows(gpu: FakeDriver | None) -> None:
    """The same value is input and output; its growable buffer was asked for."""
    session = _session()
    shape = (1, _HEADS, 0, _WIDTH)
    held = [ort.OrtValue.ortvalue_with_room(shape, np.float32, 2, 100, "cuda") for _ in range(2)]
    cache = [np.zeros(shape, np.float32) for _ in range(2)]
    growable_buffers = [h._array.buffer for h in held]
    binding = session.io_binding()
    for name, value in zip(("past", "old", "present", "longer"), held * 2, strict=True):
        bind = binding.bind_ortvalue_input if name in ("past", "old") else None
        (bind or binding.bind_ortvalue_output)(name, value)
    binding.bind_output("y", "cuda")
    for rows in (7, 1, 1, 1):
        x = _draw(1, rows, 8)
        binding.bind_ortvalue_input("x", _value(x))
        session.run_with_iobinding(binding)
        wanted = _expected(x, *cache)
        cache = wanted[1:]
        _check(held, cache)
        outputs = dict(zip(("present", "longer", "y"), binding.get_outputs(), strict=True))
        _check([outputs["y"]], wanted[:1])
    assert [h._array.buffer for h in held] == growable_buffers
    assert held[0].shape() == [1, _HEADS, 10, _WIDTH]


def test_graphs_are_captured_for_few_sizes(lazy: FakeDriver) -> None:
    session = _session()
    held = [_value(_draw(1, _HEADS, 66, _WIDTH)) for _ in range(2)]
    for _ in range(8):
        held = _step(session, _draw(1, 1, 8), *held)[1:]
    captures = lazy.captures
    for _ in range(20):
        held = _step(session, _draw(1, 1, 8), *held)[1:]
    assert lazy.captures == captures and lazy.replays > 20


_OTHERS = {
    "columns": "g (float[4,P] x, float[4,P] z) => (float[4,Q] y) { y = Concat<axis=1>(x, z) }",
    "short rows": "g (float[P,3] x, float[N,3] z) => (float[Q,3] y) { y = Concat<axis=0>(x, z) }",
}


@pytest.mark.parametrize("why", _OTHERS)
def test_what_is_copied(gpu: FakeDriver | None, why: str) -> None:
    session = _session(_OTHERS[why], {})
    assert inspect(session).appended == ()


def _cublaslt_on(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """cuBLASLt of the tests, and its bindings."""
    package, bindings = types.ModuleType("nvmath.bindings"), CublasLt(driver)
    package.cublasLt = bindings  # type: ignore[attr-defined]  # it has what the package has
    monkeypatch.setitem(sys.modules, "nvmath", types.ModuleType("nvmath"))
    monkeypatch.setitem(sys.modules, "nvmath.bindings", package)
    return cublaslt.CublasLt(Device(0), LibrarySettings()), bindings


_PROJECTED = """g (float[B,S,8] x, float[B,P,8] past, float[B,P,8] old)
    => (float[B,S,8] y, float[B,T,8] present, float[B,T,8] longer)
    { h = Mul(x, half) c = MatMul(h, w) present = Concat<axis=1>(past, c)
      n = Mul(x, half) d0 = Neg(n) d = MatMul(d0, u) longer = Concat<axis=1>(old, d)
      t = Transpose<perm=[0,2,1]>(present)
      s = MatMul(h, t) p = Softmax<axis=-1>(s) y = MatMul(p, longer) }"""


def test_steps_with_a_library_are_few_graphs(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph has the addresses of a library's calls in it: none of them is where a row goes."""
    w, u = _draw(8, 8), _draw(8, 8)
    library, bindings = _cublaslt_on(lazy, monkeypatch)
    provider: Any = FakeProvider(lazy, libraries=Libraries({"matmul": library}))
    model = model_of(_PROJECTED, {"half": np.float32(0.5), "w": w, "u": u})
    options = EngineOptions(provider=provider, use_cache=False)
    engine = create_engine(model.SerializeToString(), options)
    memory = engine.executable.facts.memory_kind
    held: list[Any] = [memory.copy_of(_draw(1, 66, 8)) for _ in range(2)]
    for number in range(20):
        x, before = _draw(1, 1, 8), lazy.captures
        h = x * np.float32(0.5)
        keys, values = (
            np.concatenate((c.numpy(), h @ p), 1) for c, p in zip(held, (w, -u), strict=True)
        )
        scores = np.exp(h @ keys.transpose(0, 2, 1))
        found = engine.run_to([x, *held], OutputPlacement([memory] * 3))
        y = scores / scores.sum(-1, keepdims=True) @ values
        _check(found, [y, keys, values])
        held = found[1:]
        assert number < 6 or lazy.captures == before
    assert bindings.products and lazy.replays > 10
