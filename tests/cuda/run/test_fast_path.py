"""Runs whose tensors lie elsewhere than in the last run, and are else the same."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import types
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base.errors import Fail, InvalidArgument, RuntimeException
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.libraries import cublaslt
from sardonyx.cuda.libraries.libraries import Libraries, LibrarySettings
from sardonyx.cuda.run.bound_runs import BoundRuns
from sardonyx.cuda.run.graphs import MOST_GRAPHS
from sardonyx.runtime.engine import Engine
from sardonyx.runtime.storage import OutputPlacement
from sardonyx.runtime.try_run import FETCH, LEAVE
from tests.support.fake_cublaslt import CublasLt
from tests.support.fake_driver import FakeDriver
from tests.support.fake_library import FakeLibrary
from tests.support.fake_provider import FakeProvider
from tests.support.inside import executable_of
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_TEXT = "g (float[N] x, float[1] w) => (float[N] y) { a = Mul(x, w) y = Add(a, x) }"
_PRODUCT = "g (float[N,6] x) => (float[N,3] y) { y = MatMul(x, w) }"
_random = np.random.default_rng(5)


def _session(text: str = _TEXT, weights: Any = None) -> ort.InferenceSession:
    model = model_of(text, weights).SerializeToString()
    return ort.InferenceSession(model, providers=["CUDAExecutionProvider"])


def _value(array: Any) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0)


def _draw(*shape: int) -> Any:
    return _random.standard_normal(shape).astype(np.float32)


def _run(session: ort.InferenceSession, x: Any, w: Any) -> None:
    (found,) = session.run_with_ort_values(None, {"x": _value(x), "w": _value(w)})
    np.testing.assert_array_equal(found.numpy(), x * w + x)


def test_each_run_reads_its_own_feeds(gpu: FakeDriver | None) -> None:
    session, kept = _session(), []
    for size in (*[9] * 6, 12, 12, 9, 12, 12, 9, 9):
        x, w = _draw(size), _draw(1)
        values = {"x": _value(x), "w": _value(w)}
        kept.append((values, session.run_with_ort_values(None, values)[0], x * w + x))
        (again,) = session.run_with_ort_values(None, values)
        np.testing.assert_array_equal(again.numpy(), kept[-1][2])
    for _, found, wanted in kept:
        np.testing.assert_array_equal(found.numpy(), wanted)


def test_nothing_is_bound_again(gpu: FakeDriver | None, monkeypatch: pytest.MonkeyPatch) -> None:
    session = _session()
    for _ in range(3):
        _run(session, _draw(9), _draw(1))
    monkeypatch.setattr(BoundRuns, "_run_bound", None)
    _run(session, _draw(9), _draw(1))
    assert session(_value(np.ones(9, np.float32)), _value(_draw(1))).shape() == [9]


def test_arguments_are_sent_where_something_lies_elsewhere(lazy: FakeDriver) -> None:
    session, sent = _session(), "pinned, device"
    values = [{"x": _value(_draw(9)), "w": _value(_draw(1))} for _ in range(2)]
    for _ in range(4):
        session.run_with_ort_values(None, values[0])
    before = lazy.copied[sent]
    session.run_with_ort_values(None, values[0])
    assert lazy.copied[sent] == before
    session.run_with_ort_values(None, values[1])
    assert lazy.copied[sent] > before
    before = lazy.copied[sent]
    session.run_with_ort_values(None, values[1])
    assert lazy.copied[sent] == before


@pytest.mark.parametrize(
    "name", ["cuCtxSetCurrent", "cuMemcpyAsync", "cuGraphLaunch", "cuStreamSynchronize"]
)
def test_what_the_driver_refuses_is_named(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    session = _session()
    x, w = np.ones(9, np.float32), np.ones(1, np.float32)
    values = [{"x": _value(x), "w": _value(w)} for _ in range(2)]
    for _ in range(3):
        session.run_with_ort_values(None, values[0])
    refused: list[int] = []

    def refuse(*_: Any) -> Any:
        refused.append(1)
        return 1 if name == "cuStreamSynchronize" else (1,)

    with monkeypatch.context() as patch:
        patch.setattr(lazy, "_run_stream" if name == "cuStreamSynchronize" else name, refuse)
        with pytest.raises(RuntimeException, match=f"{name} failed"):
            session.run_with_ort_values(None, values[1])
    assert refused
    (found,) = session.run_with_ort_values(None, values[1])
    assert found.numpy().tolist() == [2] * 9


def _left() -> ort.RunOptions:
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options


def test_short_ways_bind_nothing(gpu: FakeDriver | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are left, awaited, or give NumPy arrays; each on values of its own."""
    session, held = _session(), []
    for _ in range(3):
        _run(session, _draw(9), _draw(1))
    monkeypatch.setattr(BoundRuns, "_run_bound", None)
    for k in range(40):
        x, w = _draw(9), _draw(1)
        values = {"x": _value(x), "w": _value(w)}
        if k % 4 == 3:
            found: Any = session.run(None, values)[0]
        elif k % 13 == 12:
            found = asyncio.run(_awaited(session, values))
        else:
            found = session.run_with_ort_values(None, values, _left())[0]
        held.append((found, x * w + x))
    for found, wanted in held:
        array = found if isinstance(found, np.ndarray) else found.numpy()
        np.testing.assert_array_equal(array, wanted)


def test_a_binding_is_run_again_after_other_values(gpu: FakeDriver | None) -> None:
    session, x, w, out = _session(), _draw(9), _draw(1), _value(np.zeros(9, np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", _value(x))
    binding.bind_ortvalue_input("w", _value(w))
    binding.bind_ortvalue_output("y", out)
    for _ in range(3):
        for _ in range(3):
            session.run_with_iobinding(binding)
        _run(session, _draw(9), _draw(1))
        out.update_inplace(np.zeros(9, np.float32))
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(out.numpy(), x * w + x)


async def _awaited(session: ort.InferenceSession, values: Any) -> Any:
    return (await session.run_async(values))[0]


def test_runs_that_were_left_read_their_own_arguments(gpu: FakeDriver | None) -> None:
    """Results are dropped, so that runs get each other's memory while all are under way."""
    session = _session()
    for _ in range(3):
        _run(session, _draw(5000), _draw(1))
    many, held = [(_draw(5000), _draw(1)) for _ in range(6)], []
    values = [{"x": _value(x), "w": _value(w)} for x, w in many]
    for k in range(60):
        found = session.run_with_ort_values(None, values[k % 6], _left())[0]
        if k % 7 == 0:
            held.append((found, k % 6))
    for found, number in held:
        x, w = many[number]
        np.testing.assert_array_equal(found.numpy(), x * w + x)


def test_a_fault_of_a_run_that_was_left_is_heard_of(gpu: FakeDriver | None) -> None:
    session = _session("g (float[N] x, int64[M] i) => (float[M] y) { y = Gather(x, i) }")
    x, good, bad = _value(_draw(5)), _value(np.array([0, 4])), _value(np.array([0, 9]))
    for _ in range(4):
        session.run_with_ort_values(None, {"x": x, "i": good})
    for _ in range(2):  # the second time shows that the first was forgotten
        session.run_with_ort_values(None, {"x": x, "i": bad}, _left())
        with pytest.raises((InvalidArgument, RuntimeException), match="9"):
            session.run_with_ort_values(None, {"x": x, "i": good})
        (found,) = session.run_with_ort_values(None, {"x": x, "i": good})
        np.testing.assert_array_equal(found.numpy(), x.numpy()[[0, 4]])


def test_other_feeds_take_the_longer_way(gpu: FakeDriver | None) -> None:
    session = _session()
    for _ in range(3):
        _run(session, _draw(9), _draw(1))
    x, w = _draw(9), _draw(1)
    (found,) = session.run_with_ort_values(
        None, {"x": ort.OrtValue.ortvalue_from_numpy(x), "w": _value(w)}
    )
    np.testing.assert_array_equal(found.numpy(), x * w + x)
    with pytest.raises(InvalidArgument, match="type"):
        _run(session, _draw(9).astype(np.float64), w)
    with pytest.raises(InvalidArgument, match="rank"):
        _run(session, _draw(9, 1), w)
    session.release_captured_graph(0)
    for _ in range(3):
        _run(session, _draw(9), _draw(1))


def test_part_of_a_value_that_begins_anywhere(gpu: FakeDriver | None) -> None:
    session = _session()
    whole, w = _draw(16), _draw(1)
    held = _value(whole)
    for first in (0, 4, 1, 4, 3):
        part = ort.OrtValue(
            held._array.kind.at(held._array.address + 4 * first, (9,), np.dtype("f4"))
        )
        (found,) = session.run_with_ort_values(None, {"x": part, "w": _value(w)})
        x = whole[first : first + 9]
        np.testing.assert_array_equal(found.numpy(), x * w + x)


def test_faults_are_raised_and_the_next_run_works(gpu: FakeDriver | None) -> None:
    text = "g (float[N] x, int64[M] i) => (float[M] y) { y = Gather(x, i) }"
    session, x = _session(text), _draw(5)

    def run(*places: int) -> None:
        i = np.array(places)
        found = session.run_with_ort_values(None, {"x": _value(x), "i": _value(i)})
        np.testing.assert_array_equal(found[0].numpy(), x[i])

    for _ in range(3):
        run(0, 3)
        run(2, 1)
    for _ in range(2):
        with pytest.raises(RuntimeException, match="7"):
            run(1, 7)
        run(4, 0)
        run(1, 1)


# -- bindings that are run again ------------------------------------------------------------------

_GATHER = "g (float[N] x, int64[M] i) => (float[M] y) { y = Gather(x, i) }"


def _bound(session: ort.InferenceSession, out: ort.OrtValue, **feeds: ort.OrtValue) -> Any:
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, value)
    for info in session.get_outputs():
        binding.bind_ortvalue_output(info.name, out)
    return binding


def test_a_fault_of_a_bound_run_is_raised(gpu: FakeDriver | None) -> None:
    session, x, i = _session(_GATHER), _draw(5), np.array([3, 0])
    out, places = _value(np.zeros(2, np.float32)), _value(i)
    binding = _bound(session, out, x=_value(x), i=places)
    for _ in range(3):
        session.run_with_iobinding(binding)
    for _ in range(2):
        places.update_inplace(np.array([1, 7]))
        with pytest.raises(RuntimeException, match="7"):
            session.run_with_iobinding(binding)
        places.update_inplace(i)
        out.update_inplace(np.zeros(2, np.float32))
        for _ in range(3):
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(out.numpy(), x[i])


def test_a_bound_run_after_one_in_another_stream_is_in_its_own(lazy: FakeDriver) -> None:
    session, x, w = _session(), _draw(9), _draw(1)
    out = _value(np.zeros(9, np.float32))
    binding = _bound(session, out, x=_value(x), w=_value(w))
    (frame,) = _after(session, binding, 3).frames.held
    other = Device(0).new_stream().handle
    for _ in range(2):
        before = lazy.placed[other]["replay"]
        session.run_with_iobinding(binding, stream=other)
        assert frame.queue.handle == other and lazy.placed[other]["replay"] == before + 1
        session.run_with_iobinding(binding)
        assert lazy.placed[other]["replay"] == before + 1
        assert frame.queue is frame.own_queue
        np.testing.assert_array_equal(out.numpy(), x * w + x)


def test_bindings_in_turns_bind_nothing(
    gpu: FakeDriver | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other memory each time, bound before or anew; plain runs between; some nobody waits for."""
    session = _session()
    ready = []
    for _ in range(3):
        x, w, out = _draw(9), _draw(1), _value(np.zeros(9, np.float32))
        ready.append((_bound(session, out, x=_value(x), w=_value(w)), out, x * w + x))
    for binding, *_ in ready:
        _after(session, binding, 2)
    monkeypatch.setattr(BoundRuns, "_run_bound", None)
    anew = session.io_binding()
    for k in range(24):
        binding, out, wanted = ready[k % 3]
        options = None
        if k % 4 == 1:
            x, w, out = _draw(9), _draw(1), _value(np.zeros(9, np.float32))
            binding, wanted = anew, x * w + x
            for name, value in {"x": x, "w": w}.items():
                anew.bind_ortvalue_input(name, _value(value))
            anew.bind_ortvalue_output("y", out)
        elif k % 4 == 2:
            options = _left()
        elif k % 4 == 3:
            _run(session, _draw(9), _draw(1))
        out.update_inplace(np.zeros(9, np.float32))
        session.run_with_iobinding(binding, options)
        np.testing.assert_array_equal(out.numpy(), wanted)
        np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), wanted)


def test_results_by_device_of_a_binding_are_new_each_time(gpu: FakeDriver | None) -> None:
    session, binding = _session(), None
    binding = session.io_binding()
    binding.bind_output("y", "cuda", 0)
    kept = []
    for _ in range(6):
        x, w = _draw(9), _draw(1)
        binding.bind_ortvalue_input("x", _value(x))
        binding.bind_ortvalue_input("w", _value(w))
        session.run_with_iobinding(binding)
        kept.append((binding.get_outputs()[0], x * w + x))
    for found, wanted in kept:
        np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.parametrize(
    "change", ["the same", "type", "shape", "more rows", "read-only", "elsewhere", "any"]
)
def test_memory_bound_after_like_runs(gpu: FakeDriver | None, change: str) -> None:
    """What plain runs take is bound before; then something else is."""
    session, x, w = _session(), _draw(9), _draw(1)
    feeds = {"x": _value(x), "w": _value(w)}
    _after(session, _bound(session, _value(np.zeros(9, np.float32)), **feeds), 3)
    held = _value(np.zeros(40, np.float32))
    kind, start = held._array.kind, held._array.address
    shape: tuple[int, ...] = (9,)
    dtype, at = np.dtype("f4"), start
    if change == "type":
        dtype = np.dtype("i4")
    elif change == "shape":
        shape = (3, 3)
    elif change == "more rows":
        shape = (12,)
    elif change == "elsewhere":
        at += 4
    target = kind.at(at, shape, dtype)
    target.is_read_only = change == "read-only"
    binding = _bound(session, ort.OrtValue(target), **feeds)
    if change == "any":
        binding.bind_output("y")
    if change in ("type", "shape", "read-only"):
        with pytest.raises(InvalidArgument, match="bound memory does not fit"):
            session.run_with_iobinding(binding)
        assert not held.numpy().any()
    else:
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), x * w + x)
        rest = held.numpy()
        assert not rest[9 + (at - start) // 4 :].any() and (not rest[0] or at == start)


def test_a_bound_run_that_is_ended_before_it_begins(gpu: FakeDriver | None) -> None:
    session, out = _session(), _value(np.zeros(9, np.float32))
    binding = _bound(session, out, x=_value(_draw(9)), w=_value(_draw(1)))
    _after(session, binding, 3)
    out.update_inplace(np.zeros(9, np.float32))
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(Fail):
        session.run_with_iobinding(binding, options)
    assert not out.numpy().any()
    _after(session, binding, 1)
    assert out.numpy().any()


def test_a_bound_run_without_a_graph(lazy: FakeDriver) -> None:
    session, out = _session(), _value(np.zeros(9, np.float32))
    binding = _bound(session, out, x=_value(_draw(9)), w=_value(_draw(1)))
    _after(session, binding, 3)
    before, options = lazy.replays, ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "-1")
    session.run_with_iobinding(binding, options)
    assert lazy.replays == before
    _after(session, binding, 3)
    assert lazy.replays > before


@pytest.mark.parametrize("first", [-2, -1, 0, 1, 2, 6])
def test_bound_results_that_lie_over_feeds(gpu: FakeDriver | None, first: int) -> None:
    """After runs that are apart; `first` is where the result begins, in steps of 32 bytes."""
    text = "g (float[N] x) => (float[N] y) { r = Neg(x) i = Slice(x, a, b, c, s) y = Add(r, i) }"
    weights = {"a": [-1], "b": [-(1 << 40)], "c": [0], "s": [-1]}  # reads all of it, backwards
    session = _session(text, {k: np.array(v) for k, v in weights.items()})
    whole = _value(np.zeros(160, np.float32))
    kind, start = whole._array.kind, whole._array.address

    def part(at: int) -> ort.OrtValue:
        return ort.OrtValue(kind.at(start + 32 * at, (40,), np.dtype("f4")))

    for _ in range(3):
        _after(session, _bound(session, _value(np.zeros(40, np.float32)), x=part(4)), 1)
    content = _draw(160)
    whole.update_inplace(content)
    out = part(4 + first)
    session.run_with_iobinding(_bound(session, out, x=part(4)))
    x = content[32:72]
    np.testing.assert_array_equal(out.numpy(), x[::-1] - x)


def test_a_profile_has_bound_runs_too(gpu: FakeDriver | None) -> None:
    session, out = _session(), _value(np.zeros(9, np.float32))
    binding = _bound(session, out, x=_value(_draw(9)), w=_value(_draw(1)))
    _after(session, binding, 4)
    with session.profile() as profile:
        session.run_with_iobinding(binding)
    _after(session, binding, 2)
    assert len(profile.table().rows) == 1 and "1 run" in profile.table().summary


def test_a_bound_value_that_is_two_outputs(gpu: FakeDriver | None) -> None:
    session = _session("g (float[N] x) => (float[N] y, float[N] z) { y = Sin(x) z = Identity(y) }")
    x = _draw(9)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", _value(x))
    outs = [_value(np.zeros(9, np.float32)) for _ in "yz"]
    for name, out in zip("yz", outs, strict=True):
        binding.bind_ortvalue_output(name, out)
    for _ in range(4):
        for out in outs:
            out.update_inplace(np.zeros(9, np.float32))
        session.run_with_iobinding(binding)
        for out in (*outs, *binding.get_outputs()):
            assert_near(out.numpy(), np.sin(x), "float: functions near zero")


def _after(session: ort.InferenceSession, binding: Any, runs: int) -> Any:
    """What the session runs, after some runs."""
    for _ in range(runs):
        session.run_with_iobinding(binding)
    return executable_of(session)


# -- libraries ------------------------------------------------------------------------------------


@pytest.fixture
def products(lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, Any]:
    package, bindings = types.ModuleType("nvmath.bindings"), CublasLt(lazy)
    package.cublasLt = bindings  # type: ignore[attr-defined]  # it has what the package has
    monkeypatch.setitem(sys.modules, "nvmath", types.ModuleType("nvmath"))
    monkeypatch.setitem(sys.modules, "nvmath.bindings", package)
    libraries = Libraries({"matmul": cublaslt.CublasLt(Device(0), LibrarySettings())})
    provider: Any = FakeProvider(lazy, libraries=libraries)
    w = _draw(6, 3)
    model = model_of(_PRODUCT, {"w": w}).SerializeToString()
    return create_engine(model, EngineOptions(provider=provider, use_cache=False)), w


def test_addresses_that_change_need_no_end_of_graphs(
    products: tuple[Engine, Any], lazy: FakeDriver
) -> None:
    """A library's calls in a graph have addresses of their own: soon they get copies."""
    engine, w = products
    kept: list[Any] = []
    for number in range(4 * MOST_GRAPHS):
        x = _draw(4, 6)
        feed = _value(x)._array
        found = engine.try_run((feed,))
        if found is None:
            found = engine.run_to([feed], OutputPlacement([engine.executable.facts.memory_kind]))
        kept.append((feed, found[0], x @ w))
        if number == 3 * MOST_GRAPHS:
            captured = lazy.captures
    assert lazy.captures == captured
    for _, found, wanted in kept:
        assert_near(found.numpy(), wanted, "float: functions near zero")


def test_runs_of_libraries_in_any_order(products: tuple[Engine, Any]) -> None:
    """Waited for, left, started, fetched; with results kept and dropped, and sizes that change."""
    engine, w = products
    random, kept, started = np.random.default_rng(11), [], []
    own = engine.executable.facts.memory_kind
    inputs = [_draw(rows, 6) for rows in (4, 4, 4, 5, 4, 4)]
    values = [_value(x)._array for x in inputs]
    for _ in range(300):
        number = int(random.integers(len(values)))
        feeds, wanted = (values[number],), inputs[number] @ w
        way = int(random.integers(6))
        if way == 0:
            found: Any = engine.try_run(feeds)
        elif way == 1:
            found = engine.try_run(feeds, None, LEAVE)
        elif way == 2:
            found = engine.try_run(feeds, None, FETCH)
        elif way == 3:
            started.append((engine.start(list(feeds), OutputPlacement([own], waits=False)), wanted))
            while len(started) > 2:
                run, expected = started.pop(0)
                kept.append((run.finish()[0], expected))
            continue
        else:
            found = engine.run_to(list(feeds), OutputPlacement([own], waits=way == 4))
        if found is not None and random.integers(2):
            kept.append((found[0], wanted))
    kept += [(run.finish()[0], expected) for run, expected in started]
    for found, wanted in kept:
        array = found if isinstance(found, np.ndarray) else found.numpy()
        assert_near(array, wanted, "float: functions near zero")


def test_a_plan_that_is_ready_in_the_middle_of_a_run(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's graph has the plans before it: the next run is no repetition of that."""
    library = FakeLibrary(lazy)
    provider: Any = FakeProvider(lazy, libraries=Libraries({"matmul": library}))
    text = "g (float[N,6] x) => (float[3,N] y) { a = Sin(x) b = MatMul(a, w) y = Transpose(b) }"
    model = model_of(text, {"w": _draw(6, 3)}).SerializeToString()
    engine = create_engine(model, EngineOptions(provider=provider, use_cache=False))
    executable: Any = engine.executable
    kind = executable.facts.memory_kind
    feeds, targets = (kind.copy_of(_draw(5, 6)),), [kind.empty((3, 5), np.dtype(np.float32))]
    for _ in range(3):
        executable.run_to(feeds, OutputPlacement(targets))
    assert executable.try_run(feeds) is not None
    assert executable.try_run(feeds, targets) == targets
    walk = BoundRuns.walk

    def walked(*given: Any) -> None:
        walk(*given)
        library.version += 1

    monkeypatch.setattr(BoundRuns, "walk", walked)
    executable.run_to(feeds, OutputPlacement([kind.empty((3, 5), np.dtype(np.float32))]))
    executable.frames.held[0].last_run = None
    executable.run_to(feeds, OutputPlacement(targets))
    (frame,) = executable.frames.held
    assert frame.graph is not None and frame.last_run is not None
    assert executable.try_run(feeds) is None
    assert executable.try_run(feeds, targets) is None


def test_memory_that_was_taken_for_no_run(lazy: FakeDriver) -> None:
    """It was free in one stream alone, where a run before still writes to it."""
    library = FakeLibrary(lazy)
    provider: Any = FakeProvider(lazy, libraries=Libraries({"matmul": library}))
    model = model_of(_PRODUCT, {"w": _draw(6, 3)}).SerializeToString()
    engine = create_engine(model, EngineOptions(provider=provider, use_cache=False))
    executable: Any = engine.executable
    kind, size_bytes = executable.facts.memory_kind, 4 * 5 * 3
    feeds = [(kind.copy_of(_draw(5, 6)),) for _ in range(2)]
    for _ in range(3):
        executable.run_to(feeds[0], OutputPlacement([kind]))
    (made,) = executable.try_run(feeds[0], None, LEAVE)
    address = made.address
    del made
    # The library has no graph for such a feed.
    assert executable.try_run(feeds[1], None, LEAVE) is None
    other = executable.device.new_stream()
    executable.device.enter()
    block = kind.arena.allocate(size_bytes, "a test", other)
    call("cuMemsetD8Async", block.address, 7, size_bytes, other.handle)
    other.synchronize()
    executable.device.synchronize()
    assert ctypes.string_at(block.address, size_bytes) == bytes([7]) * size_bytes
    assert block.address != address
