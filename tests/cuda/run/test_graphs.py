"""Captured runs, with a driver whose device is the processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sardonyx.base.errors import RuntimeException
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.cuda.run.graphs import GRAPH_ID, MOST_GRAPHS
from sardonyx.runtime.engine import Engine
from tests.support.fake_driver import FakeDriver
from tests.support.fake_provider import FakeProvider, installed
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_TEXT = """g (float[N,M] x, float[M,8] w) => (float[N,8] y)
    { a = MatMul(x, w) b = Softmax<axis=-1>(a) y = Add(b, a) }"""
_LOOP = """g (float[N] x, int64 n) => (float[M] y) { y = Loop(n, , x) <body = b
    (int64 i, bool c, float[P] s) => (bool d, float[Q] t)
        { d = Identity(c) t = Concat<axis=0>(s, x) }> }"""
_random = np.random.default_rng(3)


@pytest.fixture
def fake() -> Iterator[FakeDriver]:
    with installed() as driver:
        yield driver


def _engine(fake: FakeDriver, text: str = _TEXT, **options: Any) -> Engine:
    provider: Any = FakeProvider(fake, **options)
    model = model_of(text).SerializeToString()
    return create_engine(model, EngineOptions(provider=provider, use_cache=False))


def _check(engine: Engine, rows: int, inner: int = 5) -> None:
    x = _random.standard_normal((rows, inner)).astype(np.float32)
    w = _random.standard_normal((inner, 8)).astype(np.float32)
    product = x.astype(np.float64) @ w
    weights = np.exp(product - product.max(-1, keepdims=True, initial=-np.inf))
    expected = weights / weights.sum(-1, keepdims=True) + product
    assert_near(engine.run([x, w])[0], expected, "float: sums")


def test_the_second_run_of_a_size_is_captured(fake: FakeDriver) -> None:
    engine = _engine(fake)
    for _ in range(5):
        _check(engine, 6)
    assert fake.replays == 4
    assert fake.launches == len(engine.executable.plan.calls)
    assert "CUDA graphs: 1, replayed 3 times" in "\n".join(engine.executable.report().remarks)


def test_one_graph_serves_sizes_of_one_capacity(fake: FakeDriver) -> None:
    engine = _engine(fake)
    for rows in (3, 4, 3, 4, 0, 4, 1):
        _check(engine, rows)
    assert fake.replays >= 3


def test_growing_sizes_need_few_graphs(fake: FakeDriver) -> None:
    engine = _engine(fake)
    for rows in range(1, 400, 3):
        _check(engine, rows)
    assert fake.replays > 100
    assert fake.captures < 12


def test_graphs_are_bounded(fake: FakeDriver) -> None:
    engine = _engine(fake)
    for power in range(12):
        for _ in range(2):
            _check(engine, 7 * 2**power)
    (frame,) = engine.executable.frames.held
    assert len(frame.graphs) == MOST_GRAPHS  # type: ignore[attr-defined]  # a frame of the provider


def test_runs_without_a_graph(fake: FakeDriver) -> None:
    engine = _engine(fake, graphs="off")
    for _ in range(3):
        _check(engine, 6)
    assert not fake.replays
    assert "switched off" in engine.executable.report().remarks[0]
    automatic = _engine(fake)
    token = GRAPH_ID.set(-1)
    for _ in range(3):
        _check(automatic, 6)
    GRAPH_ID.reset(token)
    assert not fake.replays


def test_released_graphs_are_captured_again(fake: FakeDriver) -> None:
    engine = _engine(fake)
    token = GRAPH_ID.set(5)
    for _ in range(3):
        _check(engine, 6)
    engine.executable.release_graphs(4)
    _check(engine, 6)
    assert fake.replays == 3
    engine.executable.release_graphs(5)
    _check(engine, 6)
    assert fake.replays == 3
    GRAPH_ID.reset(token)


def test_what_cannot_be_captured_runs_all_the_same(fake: FakeDriver) -> None:
    fake.uncapturable.add("launch")
    engine = _engine(fake)
    for _ in range(4):
        _check(engine, 6)
    assert not fake.replays
    assert "does not capture" in engine.executable.report().remarks[0]


def test_loops_whose_values_grow_are_launched_one_by_one(fake: FakeDriver) -> None:
    engine = _engine(fake, _LOOP)
    x = _random.standard_normal(9).astype(np.float32)
    for count in (4, 0, 7, 7):
        found = engine.run([x, np.int64(count)])[0]
        np.testing.assert_array_equal(found, np.tile(x, count + 1))
    assert not fake.replays
    assert "the host reads" in engine.executable.report().remarks[0]


def test_a_refused_kernel_is_an_error_and_the_next_run_works(fake: FakeDriver) -> None:
    engine = _engine(fake)
    fake.fail_launch = 1
    with pytest.raises(RuntimeException, match=r"MatMul.*INVALID_VALUE"):
        _check(engine, 6)
    fake.fail_launch = 0
    _check(engine, 6)


def test_faults_of_replayed_runs_are_found(fake: FakeDriver) -> None:
    engine = _engine(fake, "g (float[N] x, int64[M] i) => (float[M] y) { y = Gather(x, i) }")
    x = np.arange(5, dtype=np.float32)
    for _ in range(3):
        assert engine.run([x, np.array([1, 4])])[0].tolist() == [1, 4]
    with pytest.raises(RuntimeException, match="index 9 is out of range"):
        engine.run([x, np.array([1, 9])])
    assert engine.run([x, np.array([1, 4])])[0].tolist() == [1, 4]
    assert fake.replays == 4
