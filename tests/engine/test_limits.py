"""Limits of memory and time: runs and loading end with a clear error, and the session goes on."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base.errors import (
    Fail,
    InvalidArgument,
    ModelLoadCanceled,
    OutOfMemory,
    TimedOut,
)
from sardonyx.runtime.budget import Budget, group_limits, machine_memory_bytes
from sardonyx.runtime.cancel import time_limit
from tests.support.session import model_of

#: About what no target changes.
pytestmark = pytest.mark.once

MIB = 1 << 20
TRUE = "on = Constant<value = bool {1}>()"
DOUBLING = f"""g (float[N] x, int64 k) => (float[A] y) {{ {TRUE}
    y = Loop(k, on, x) <body = b (int64 i, bool ci, float[P] h) => (bool co, float[Q] ho) {{
        co = Identity(ci) ho = Concat<axis=0>(h, h) }}> }}"""
STACKING = f"""g (float[N] x, int64 k) => (float[A,B] y) {{ {TRUE}
    y = Loop(k, on) <body = b (int64 i, bool ci) => (bool co, float[N] ho) {{
        co = Identity(ci) ho = Neg(x) }}> }}"""
LONG_LOOP = f"""g (float[N] x, int64 k) => (float[A] y) {{ {TRUE}
    y = Loop(k, on, x) <body = b (int64 i, bool ci, float[N] h) => (bool co, float[N] ho) {{
        co = Identity(ci) ho = Neg(h) }}> }}"""
IN_SEQUENCE = f"""g (float[N] x, int64 k) => (float[A] y) {{ {TRUE} s = SequenceEmpty()
    q = Loop(k, on, s) <body = b (int64 i, bool ci, seq(float[N]) h) =>
        (bool co, seq(float[N]) ho) {{
        co = Identity(ci) l = SequenceLength(h) f = Cast<to=1>(l) t = Add(x, f)
        ho = SequenceInsert(h, t) }}>
    y = ConcatFromSequence<axis=0>(q) }}"""
TEXTS = f"""g (string[N] x, int64 k) => (string[N] y) {{ {TRUE}
    y = Loop(k, on, x) <body = b (int64 i, bool ci, string[N] h) => (bool co, string[N] ho) {{
        co = Identity(ci) ho = StringConcat(h, h) }}> }}"""
TABLE = """g (float[N] x) => (float[N,N] y) { i = Constant<value_ints=[1]>() c = Unsqueeze(x, i)
    y = Sub(x, c) }"""
CHAIN = """g (float[N] x) => (float y) { i = Constant<value_ints=[1]>() c = Unsqueeze(x, i)
    m = Sub(x, c) s = CumSum(m, z) z = Constant<value_int=0>() y = ReduceMax<keepdims=0>(s) }"""
EXPANDED = "g (int64[1] n) => (float y) { z = ConstantOfShape(n) y = ReduceSum<keepdims=0>(z) }"
FOLDED = """g (float[N] x) => (float[K] y) { n = Constant<value_ints=[268435456]>()
    z = ConstantOfShape(n) i = Constant<value_int=0>() s = CumSum(z, i)
    j = Constant<value_ints=[5]>() y = Gather(s, j) }"""


def session_of(text: str, **entries: object) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", str(value))
    return sardonyx.InferenceSession(model_of(text, opset=20).SerializeToString(), options)


def floats(count: int) -> np.ndarray[Any, Any]:
    return np.arange(count, dtype=np.float32)


OVER_THE_LIMIT: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    ("a result", TABLE, {"x": floats(2000)}, {"x": floats(20)}, "output y"),
    ("an inner value", CHAIN, {"x": floats(2000)}, {"x": floats(20)}, "CumSum"),
    ("a value that doubles", DOUBLING, {"x": floats(3), "k": np.array(60)},
     {"x": floats(3), "k": np.array(5)}, "Concat"),
    ("results that pile up", STACKING, {"x": floats(3), "k": np.array(1 << 40)},
     {"x": floats(3), "k": np.array(5)}, "limit_bytes = 4194304"),
    ("tensors in a sequence", IN_SEQUENCE, {"x": floats(1000), "k": np.array(1 << 40)},
     {"x": floats(3), "k": np.array(5)}, "sequences"),
    ("text that doubles", TEXTS, {"x": np.array(["abc"], object), "k": np.array(60)},
     {"x": np.array(["abc"], object), "k": np.array(3)}, "strings"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "feeds", "good", "named"),
    [c[1:] for c in OVER_THE_LIMIT],
    ids=[c[0] for c in OVER_THE_LIMIT],
)
def test_runs_that_need_more_than_the_limit(
    text: str, feeds: dict[str, Any], good: dict[str, Any], named: str
) -> None:
    limited = session_of(text, memory_limit_bytes=4 * MIB)
    want = session_of(text).run(None, good)[0]
    for _ in range(2):
        with pytest.raises(OutOfMemory, match=f"(?s)limit_bytes = {4 * MIB}.*") as caught:
            limited.run(None, feeds, timeout=20)
        assert named in str(caught.value)
        assert np.array_equal(limited.run(None, good)[0], want)


def test_constants_over_the_limit_also_from_the_cache() -> None:
    needed = 4 << 28
    with pytest.raises(OutOfMemory, match=f"(?s){needed}.*constants.*limit_bytes = 1000000"):
        session_of(FOLDED, memory_limit_bytes=10**6)
    text = "g (float[N,1000] x) => (float[N,1000] y) { y = MatMul(x, w) }"
    model = model_of(text, {"w": np.ones((1000, 1000), np.float32)}).SerializeToString()
    sardonyx.InferenceSession(model)
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.memory_limit_bytes", str(MIB))
    with pytest.raises(OutOfMemory, match="constants"):
        sardonyx.InferenceSession(model, options)


def test_far_more_than_the_machine_has_is_not_asked_for() -> None:
    huge = 8 * machine_memory_bytes()
    text = f"""g (float[N] x) => (float[K] y) {{ n = Constant<value_ints=[{huge // 4}]>()
        z = ConstantOfShape(n) s = ReduceSum(x) y = Add(z, s) }}"""
    with pytest.raises(OutOfMemory, match="the machine has"):
        session_of(text).run(None, {"x": floats(2)})


def test_memory_is_counted_down_again() -> None:
    session = session_of(CHAIN, memory_limit_bytes=64 * MIB)
    for size in (100, 500, 20):
        session.run(None, {"x": floats(size)})
    assert 0 < session.memory()["held_bytes"] < 3 * MIB
    session.trim()
    assert session.memory()["held_bytes"] == 0


def test_threads_go_without_memory_of_their_own_rather_than_beyond_the_limit() -> None:
    text = "g (float[N,M] x) => (float[N,M] y) { e = Exp(x) s = Softmax(e) y = Softmax(s) }"
    x = {"x": np.random.default_rng(0).random((7, 1 << 17), np.float32)}
    free = session_of(text)
    want = free.run(None, x)[0]
    held = inspect(free)
    assert held.frames[0].scratch_bytes > 1000
    tight = session_of(text, memory_limit_bytes=held.held_bytes + 1000)
    assert np.array_equal(tight.run(None, x)[0], want)


ENDLESS: list[tuple[str, dict[str, Any]]] = [
    ("g (float[1,4,3] x) => (float[1,4,3] y) { y = LRN<size=1099511627775>(x) }",
     {"x": np.ones((1, 4, 3), np.float32)}),
    (LONG_LOOP, {"x": floats(3), "k": np.array(1 << 60)}),
    (EXPANDED, {"n": np.array([1 << 40])}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "feeds"), ENDLESS)
def test_runs_end_in_time(text: str, feeds: dict[str, Any]) -> None:
    session = session_of(text)
    start = time.monotonic()
    with pytest.raises(TimedOut, match=r"time limit of 0\.2 s"):
        session.run(None, feeds, timeout=0.2)
    options = sardonyx.RunOptions()
    options.add_run_config_entry("run.timeout_seconds", "0.2")
    with pytest.raises(TimeoutError):
        session.run(None, feeds, options)
    assert time.monotonic() - start < 10
    assert not options.terminate


def test_terminate_still_ends_a_run_with_a_limit_of_time() -> None:
    session, options = session_of(EXPANDED), sardonyx.RunOptions()
    timer = threading.Timer(0.1, lambda: setattr(options, "terminate", True))
    timer.start()
    with pytest.raises(Fail, match="cancelled"):
        session.run(None, {"n": np.array([1 << 45])}, options, timeout=60)
    options.terminate = False
    assert session.run(None, {"n": np.array([5])}, options, timeout=60)[0] == 0


def test_loading_ends_in_time() -> None:
    start = time.monotonic()
    with pytest.raises(ModelLoadCanceled, match=r"time limit of 0\.05 s"):
        session_of(FOLDED, load_timeout_seconds=0.05)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("value", ["0", "-3", "much", "1e9", "nan"])
def test_limits_of_memory_that_are_none(value: str) -> None:
    with pytest.raises(InvalidArgument, match="number of bytes"):
        sardonyx.SessionOptions().add_session_config_entry("session.memory_limit_bytes", value)


@pytest.mark.parametrize("value", ["0", "-3", "long", "nan"])
def test_limits_of_time_that_are_none(value: str) -> None:
    with pytest.raises(InvalidArgument, match="limit of time"):
        sardonyx.RunOptions().add_run_config_entry("run.timeout_seconds", value)


def test_limits_of_control_groups(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "memory.max").write_text("5000\n")
    (tmp_path / "a" / "b" / "memory.max").write_text("max\n")
    (tmp_path / "of").write_text("0::/a/b\n")
    assert group_limits(tmp_path, tmp_path / "of") == [5000]


def test_a_budget_is_exact() -> None:
    budget = Budget(100)
    budget.take(60, "this")
    with pytest.raises(OutOfMemory, match="41 bytes of memory are needed for that, beside 60"):
        budget.take(41, "that")
    budget.take(40, "that")
    budget.give(100)
    assert budget.held_bytes == 0


@pytest.mark.parametrize("seconds", [10**400, float("inf"), 1e308, "inf", True])
def test_a_limit_beyond_all_time_is_none(seconds: Any) -> None:
    with time_limit(seconds) as flag:
        assert not flag.is_set


@pytest.mark.parametrize("seconds", [-(10**400), -1, 0, float("nan"), "", "soon", [], b"1x"])
def test_a_limit_that_is_no_time_is_refused(seconds: Any) -> None:
    refused = pytest.raises(InvalidArgument, match=r"\[timeout\] This is no limit of time\.")
    with refused, time_limit(seconds):
        pass
