"""A device that is no maker's runs models: shared layers know nothing of one maker's devices.

It has subgroups of 16 threads (or 8), addresses of 32 bits, memory of its own, no units for
matrices and no copies beside other work; see `tests.support.second_device`.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from sardonyx.base import errors
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.cuda.interfaces import CUDA_INTERFACES
from sardonyx.runtime import device
from sardonyx.runtime.device import DeviceInterfaces
from sardonyx.runtime.engine import Engine
from sardonyx.runtime.storage import OutputPlacement
from tests.support.oracle import Oracle
from tests.support.second_device import second_target
from tests.support.second_provider import (
    SECOND_INTERFACES,
    NoLibraries,
    SecondExecutable,
    SecondProvider,
)
from tests.support.session import model_of
from tests.support.tolerances import assert_near

pytestmark = pytest.mark.once

_RNG = np.random.default_rng(33)


def _floats(*shape: int) -> np.ndarray[Any, Any]:
    return _RNG.normal(size=shape).astype(np.float32)


_MLP = """mlp (float[N,12] x) => (float[N,5] y) {
  h = Gemm(x, w, b)  a = Relu(h)  z = MatMul(a, v)  y = Sigmoid(z) }"""
_CONVOLUTIONS = """convolutions (float[N,3,9,8] x) => (float[N,4] y) {
  a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w, b)  r = Relu(a)
  p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
  d = Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=6>(p, g)
  s = Add(d, p)  m = GlobalAveragePool(s)  f = Flatten(m)  y = MatMul(f, v) }"""
_ATTENTION = """attention (float[B,S,24] x) => (float[B,S,24] y) {
  q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)
  heads = Constant<value_ints=[0,0,3,8]>()  whole = Constant<value_ints=[0,0,24]>()
  q4 = Reshape(q, heads)  k4 = Reshape(k, heads)  v4 = Reshape(v, heads)
  qt = Transpose<perm=[0,2,1,3]>(q4)  kt = Transpose<perm=[0,2,3,1]>(k4)
  vt = Transpose<perm=[0,2,1,3]>(v4)
  s = MatMul(qt, kt)  c = Constant<value_float=0.35355339>()  z = Mul(s, c)
  p = Softmax<axis=-1>(z)  o = MatMul(p, vt)  ot = Transpose<perm=[0,2,1,3]>(o)
  y = Reshape(ot, whole) }"""
_NORMS = """norms (float[N,40] x, float[M,700] z) => (float[N,40] y, float[M,700] u, float[N] t) {
  n = LayerNormalization<axis=-1>(x, s, b)  y = Softmax<axis=-1>(n)
  l = LogSoftmax<axis=-1>(z)  e = Exp(l)  u = Mul(e, z)
  k = Constant<value_ints=[1]>()  t = ReduceMax<keepdims=0, axes=[1]>(x) }"""
_BRANCHES = """branches (float[N,6] x, bool c) => (float[N,6] y) {
  y = If(c) <then_branch = t () => (float[N,6] p) { m = MatMul(x, w)  p = Tanh(m) },
             else_branch = f () => (float[N,6] q) { n = Neg(x)  q = Add(n, b) }> }"""
_FOUND = """found (float[N] x) => (float[K] y, int64 n) {
  zero = Constant<value_float=0.0>()  m = Greater(x, zero)  p = Compress<axis=0>(x, m)
  y = Sqrt(p)  s = Shape(y)  i = Constant<value_int=0>()  n = Gather(s, i) }"""
_LOOP = """loop (float[N,4] x, int64 count) => (float[N,4] y) {
  on = Constant<value = bool {1}>()
  y = Loop(count, on, x) <body = trip (int64 i, bool c, float[N,4] h) => (bool o, float[N,4] g) {
    o = Identity(c)  m = MatMul(h, w)  g = Add(m, h) }> }"""

#: Name -> text, weights, feeds of several runs.
_MODELS: dict[str, tuple[str, Mapping[str, Any], list[dict[str, Any]]]] = {
    "mlp": (
        _MLP,
        {"w": _floats(12, 20), "b": _floats(20), "v": _floats(20, 5)},
        [{"x": _floats(n, 12)} for n in (3, 70)],
    ),
    "convolutions": (
        _CONVOLUTIONS,
        {"w": _floats(6, 3, 3, 3), "b": _floats(6), "g": _floats(6, 1, 3, 3), "v": _floats(6, 4)},
        [{"x": _floats(n, 3, 9, 8)} for n in (2,)],
    ),
    "attention": (
        _ATTENTION,
        {"wq": _floats(24, 24) / 5, "wk": _floats(24, 24) / 5, "wv": _floats(24, 24) / 5},
        [{"x": _floats(1, 7, 24)}, {"x": _floats(2, 3, 24)}],
    ),
    "norms": (
        _NORMS,
        {"s": _floats(40), "b": _floats(40)},
        [{"x": _floats(n, 40), "z": _floats(m, 700)} for n, m in ((1, 2), (9, 1))],
    ),
    "branches": (
        _BRANCHES,
        {"w": _floats(6, 6), "b": _floats(6)},
        [{"x": _floats(n, 6), "c": np.array(n == 2)} for n in (2, 3)],
    ),
    "sizes of the data": (_FOUND, {}, [{"x": _floats(n)} for n in (5, 90)]),
    "a loop": (
        _LOOP,
        {"w": _floats(4, 4) / 3},
        [{"x": _floats(3, 4), "count": np.array(k)} for k in (2, 0, 3)],
    ),
}


def _engine(name: str, provider: SecondProvider) -> tuple[Engine, Any]:
    text, weights, _ = _MODELS[name]
    model = model_of(text, weights)
    data = model.SerializeToString()
    return create_engine(data, EngineOptions(provider=provider, use_cache=False)), model


def _given(model: Any, feeds: Mapping[str, Any]) -> list[Any]:
    return [feeds[value.name] for value in model.graph.input]


@pytest.mark.parametrize(
    ("name", "subgroup_size"),
    [*((name, 16) for name in _MODELS), ("attention", 8), ("norms", 64), ("a loop", 32)],
)
def test_a_model_has_right_values(name: str, subgroup_size: int) -> None:
    provider = SecondProvider(subgroup_size=subgroup_size)
    engine, model = _engine(name, provider)
    reference, exact = ReferenceEvaluator(model), Oracle(model)
    for feeds in _MODELS[name][2]:
        results = engine.run(_given(model, feeds))
        wanted = reference.run(None, dict(feeds))
        doubles = exact.run(feeds, double=True)
        assert len(results) == len(wanted) == len(doubles)
        for mine, theirs, double in zip(results, wanted, doubles, strict=True):
            assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
            assert_near(mine, theirs, "float: products")
            assert_near(mine, double, "float: short sums")


def test_kernels_are_of_this_device() -> None:
    provider = SecondProvider()
    _engine("attention", provider)
    (module,) = provider.modules
    kinds = {
        type(s).__name__ + getattr(s, "op", "") for p in module.programs.values() for s in p.body
    }
    assert module.programs
    assert not kinds & {"Effectcopy_async", "Letload_matrix", "Letmultiply_matrices"}


def test_capabilities_are_in_the_key() -> None:
    keys = {second_target(size, shared).key for size in (8, 16) for shared in (1 << 14, 1 << 15)}
    assert len(keys) == 4


def test_little_shared_memory_has_smaller_tiles() -> None:
    engine, model = _engine("mlp", SecondProvider(shared_bytes=20 * 2**10))
    feeds = _MODELS["mlp"][2][1]
    (mine,) = engine.run(_given(model, feeds))
    (double,) = Oracle(model).run(feeds, double=True)
    assert_near(mine, double, "float: short sums")


def test_runs_of_equal_sizes_are_recorded_once() -> None:
    engine, model = _engine("mlp", SecondProvider())
    executable = engine.executable
    assert isinstance(executable, SecondExecutable)
    for _ in range(3):
        feeds = {"x": _floats(3, 12)}
        (mine,) = engine.run(_given(model, feeds))
        (double,) = Oracle(model).run(feeds, double=True)
        assert_near(mine, double, "float: short sums")
    assert executable.replays == 2


def test_values_stay_on_the_device() -> None:
    engine, model = _engine("mlp", SecondProvider())
    executable = engine.executable
    assert isinstance(executable, SecondExecutable)
    feeds = _MODELS["mlp"][2][0]
    held = executable.memory.copy_of(feeds["x"])
    (found,) = executable.run_to([held], OutputPlacement([executable.memory]))
    assert found.kind is executable.memory and found.address < 1 << 32
    (double,) = Oracle(model).run(feeds, double=True)
    assert_near(found.numpy(), double, "float: short sums")


def test_memory_is_given_back() -> None:
    provider = SecondProvider()
    engine, model = _engine("norms", provider)
    engine.run(_given(model, _MODELS["norms"][2][0]))
    assert provider.device.heap.used_bytes > 0
    del engine
    gc.collect()
    assert provider.device.heap.used_bytes == 0


def test_kernels_are_timed_by_command() -> None:
    engine, _ = _engine("mlp", SecondProvider())
    executable = engine.executable
    assert isinstance(executable, SecondExecutable)
    times = executable.measure([_floats(3, 12)])
    assert {name for name, _ in times} <= {c.kernel for c in executable.plan.calls}
    assert times and all(took > 0 for _, took in times)


def test_libraries_are_asked_and_may_refuse() -> None:
    libraries = NoLibraries()
    engine, model = _engine("mlp", SecondProvider(accelerator=libraries))
    assert set(libraries.asked) == {"matmul"}
    feeds = _MODELS["mlp"][2][0]
    (mine,) = engine.run(_given(model, feeds))
    (double,) = Oracle(model).run(feeds, double=True)
    assert_near(mine, double, "float: short sums")


def test_a_fault_names_its_node() -> None:
    model = model_of("""gather (float[N,3] x, int64[K] i) => (float[K,3] y) {
      y = Gather<axis=0>(x, i) }""")
    model.graph.node[0].name = "picks"
    options = EngineOptions(provider=SecondProvider(), use_cache=False)
    engine = create_engine(model.SerializeToString(), options)
    with pytest.raises(errors.InvalidArgument, match="picks"):
        engine.run([_floats(4, 3), np.array([0, 9])])
    (mine,) = engine.run([np.eye(4, 3, dtype=np.float32), np.array([1, -1])])
    np.testing.assert_array_equal(mine, np.eye(4, 3, dtype=np.float32)[[1, 3]])


@pytest.mark.parametrize("found", [CUDA_INTERFACES, SECOND_INTERFACES], ids=["cuda", "second"])
def test_the_page_names_every_implementation(found: DeviceInterfaces) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "providers.md").read_text()
    for interface, kind in zip(DeviceInterfaces._fields, found, strict=True):
        module = str(getattr(kind, "__module__", "")).removeprefix("sardonyx.")
        *folders, name = module.split(".")
        place = "/".join([*folders[1:], f"{name}.py"]) if folders[0] == "cuda" else kind.__name__
        assert f"`{place}`" in page or f"`{'/'.join(folders)}/{name}.py`" in page, interface


def test_the_page_names_every_protocol() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "providers.md").read_text()
    protocols = {n for n, x in vars(device).items() if getattr(x, "_is_protocol", False)}
    missing = {n for n in protocols - {"Protocol", "PlanCode"} if f"`{n}`" not in page}
    assert not missing
