"""Denormal numbers: kept, or zeros where a session asks for that; threads keep their own mode."""

from __future__ import annotations

import logging
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api import thread_pool
from sardonyx.base import errors
from tests.support.session import model_of

KEY = "session.set_denormal_as_zero"
#: Products of numbers that are not denormal, of one that is, and of none.
MODEL = model_of("agraph (float[n] x, float[n] y) => (float[n] z) { z = Mul(x, y) }")
X = np.array([1e-20, 1e-40, 2.0, -1e-20, -1e-40, 0.0], np.float32)
Y = np.array([1e-20, 1e10, 3.0, 1e-20, 1e10, 1.0], np.float32)
KEPT = X * Y
FLUSHED = np.array([0, 0, 6, 0, 0, 0], np.float32)


def session(model: Any = MODEL, on: bool = True, **given: Any) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    for name, value in given.items():
        setattr(options, name, value)
    options.add_session_config_entry(KEY, "1" if on else "0")
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def own_mode_is_back() -> bool:
    """Whether this thread still makes and reads denormal numbers."""
    made = np.float32(1e-20) * np.array([1e-20], np.float32)
    return bool(made[0] > 0 and made[0] * np.float32(1e10) > 0)


def test_numbers_on_both_sides() -> None:
    assert np.count_nonzero(KEPT) == 5  # what NumPy says, in this thread
    on, off = session(), session(on=False)
    for _ in range(3):  # a first run, then short ones
        np.testing.assert_array_equal(off.run(None, {"x": X, "y": Y})[0], KEPT)
        np.testing.assert_array_equal(on.run(None, {"x": X, "y": Y})[0], FLUSHED)
        assert own_mode_is_back()
    smallest = np.array([np.finfo(np.float32).tiny], np.float32)
    one, less = np.ones(1, np.float32), np.array([0.75], np.float32)
    assert on.run(None, {"x": smallest, "y": one})[0] == smallest
    assert on.run(None, {"x": smallest, "y": less})[0] == 0
    assert off.run(None, {"x": smallest, "y": less})[0] == smallest * less


def test_bound_memory() -> None:
    made = session()
    binding = made.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("y", Y)
    out = np.full(6, 9, np.float32)
    binding.bind_ortvalue_output("z", sardonyx.OrtValue.ortvalue_from_numpy(out))
    for _ in range(3):
        out[:] = 9
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(out, FLUSHED)
        assert own_mode_is_back()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_thread_of_a_run(threads: int) -> None:
    model = model_of(
        "agraph (float[n] x, float[n] y) => (float[n] z) { a = Mul(x, y) b = Exp(a) c = Sub(b, b)"
        " z = Add(a, c) }"
    )
    count = 1 << 20
    x, y = np.full(count, 1e-20, np.float32), np.full(count, 1e-20, np.float32)
    on = session(model, intra_op_num_threads=threads)
    off = session(model, on=False, intra_op_num_threads=threads)
    for _ in range(10):
        assert not on.run(None, {"x": x, "y": y})[0].any()
        assert (off.run(None, {"x": x, "y": y})[0] > 0).all()
    assert own_mode_is_back()


def test_sessions_of_both_kinds_in_many_threads() -> None:
    on, off = session(intra_op_num_threads=2), session(on=False, intra_op_num_threads=2)
    x, y = np.tile(X, 1 << 14), np.tile(Y, 1 << 14)
    flushed, kept = np.tile(FLUSHED, 1 << 14), np.tile(KEPT, 1 << 14)
    wrong: list[str] = []

    def work(number: int) -> None:
        for k in range(60):
            which, want = (on, flushed) if (k + number) % 2 else (off, kept)
            if not np.array_equal(which.run(None, {"x": x, "y": y})[0], want):
                wrong.append(f"run {k} of thread {number}")
            if not own_mode_is_back():
                wrong.append(f"mode after run {k} of thread {number}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_fault_leaves_the_mode_as_it_was() -> None:
    model = model_of("agraph (float[4] x, int64[n] i) => (float[n] y) { y = Gather(x, i) }")
    made = session(model)
    for _ in range(2):
        with pytest.raises(errors.RuntimeException, match="(?i)index|range|axis"):
            made.run(None, {"x": np.ones(4, np.float32), "i": np.array([9])})
        assert own_mode_is_back()


def test_what_is_computed_once_has_the_mode_of_runs() -> None:
    model = model_of(
        "agraph (float[n] x) => (float[n] y) { a = Mul(w, s) y = Add(x, a) }",
        {"w": np.array([1e-40, 1], np.float32), "s": np.array([1e30, 2], np.float32)},
    )
    x = np.zeros(2, np.float32)
    for _ in range(2):  # compiled, then from the cache
        assert session(model).run(None, {"x": x})[0].tolist() == [0, 2]
        kept = session(model, on=False).run(None, {"x": x})[0]
        weights = np.array([1e-40, 1], np.float32)
        np.testing.assert_array_equal(kept, weights * np.array([1e30, 2], np.float32))
    assert own_mode_is_back()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("agraph (double[n] x) => (double[n] y) { y = Add(x, x) }", [0.0, 2.0]),
        ("agraph (double[n] x) => (double[n] y) { y = Log(x) }", [-np.inf, 0.0]),
        ("agraph (double[n] x) => (double[n] y) { y = Sqrt(x) }", [0.0, 1.0]),
        ("agraph (double[n] x) => (double[1] y) { y = ReduceSum <keepdims: int = 1> (x) }", [1.0]),
    ],
)
def test_operators(text: str, want: list[float]) -> None:
    x = np.array([5e-310, 1.0])
    assert session(model_of(text, opset=17)).run(None, {"x": x})[0].tolist() == want
    assert own_mode_is_back()


def test_products_of_matrices() -> None:
    model = model_of("agraph (float[n, k] x, float[k, m] y) => (float[n, m] z) {z = MatMul(x, y)}")
    x, y = np.full((64, 64), 1e-20, np.float32), np.full((64, 64), 1e-20, np.float32)
    assert not session(model).run(None, {"x": x, "y": y})[0].any()
    assert session(model, on=False).run(None, {"x": x, "y": y})[0].all()


def test_branches_and_loops() -> None:
    model = model_of(
        """agraph (float[n] x, int64 trips) => (float[n] y, float[n] z) {
            yes = Constant <value: tensor = bool {1}> ()
            y = Loop (trips, yes, x) <body = b (int64 i, bool c, float[n] v) => (bool d, float[n] w)
                { d = Identity(c) h = Constant <value: tensor = float {0.5}> () w = Mul(v, h) }>
            s = Constant <value: tensor = float {1e-30}> ()
            z = Mul(x, s)
        }"""
    )
    x, trips = np.full(1 << 14, 2e-38, np.float32), np.array(3)
    parallel = {"execution_mode": sardonyx.ExecutionMode.ORT_PARALLEL, "intra_op_num_threads": 2}
    for given in ({}, parallel):
        y, z = session(model, **given).run(None, {"x": x, "trips": trips})
        assert not y.any()
        assert not z.any()
        y, z = session(model, on=False, **given).run(None, {"x": x, "trips": trips})
        np.testing.assert_array_equal(y, x / 8)
        assert not z.any()


def test_threads_of_a_user_and_of_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[threading.Thread] = []

    def create(_: Any, work: Any) -> threading.Thread:
        thread = threading.Thread(target=work)
        thread.start()
        made.append(thread)
        return thread

    x, y = np.tile(X, 1 << 15), np.tile(Y, 1 << 15)
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 2
    options.set_custom_create_thread_fn(create)
    options.set_custom_join_thread_fn(lambda thread: thread.join(10))
    options.add_session_config_entry(KEY, "1")
    own = sardonyx.InferenceSession(MODEL.SerializeToString(), options)
    monkeypatch.setattr(thread_pool, "_shared_sizes", None)
    sardonyx.set_global_thread_pool_sizes()
    shared = session(use_per_session_threads=False)
    for which in (own, shared):
        np.testing.assert_array_equal(
            which.run(None, {"x": x, "y": y})[0], np.tile(FLUSHED, 1 << 15)
        )
    assert len(made) == 1


def test_copies_and_bundles(tmp_path: Path) -> None:
    copied = pickle.loads(pickle.dumps(session()))
    np.testing.assert_array_equal(copied.run(None, {"x": X, "y": Y})[0], FLUSHED)
    options = sardonyx.SessionOptions()
    options.add_session_config_entry(KEY, "1")
    for has, wants, result in ((options, options, FLUSHED), (options, None, KEPT)):
        path = str(tmp_path / "m.sardonyx")
        sardonyx.ModelCompiler(has, MODEL.SerializeToString()).compile_to_file(path)
        bundled = sardonyx.InferenceSession(path, wants)
        np.testing.assert_array_equal(bundled.run(None, {"x": X, "y": Y})[0], result)
    sardonyx.ModelCompiler(sardonyx.SessionOptions(), MODEL.SerializeToString()).compile_to_file(
        path
    )
    with pytest.raises(errors.InvalidArgument, match="denormal"):
        sardonyx.InferenceSession(path, options)


@pytest.mark.parametrize("value", ["true", "2", " 1"])
def test_values_that_are_none(value: str) -> None:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry(KEY, value)
    with pytest.raises(errors.InvalidArgument, match="set_denormal_as_zero"):
        sardonyx.InferenceSession(MODEL.SerializeToString(), options)


def test_nothing_is_said_about_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        session()
    assert not caplog.records
