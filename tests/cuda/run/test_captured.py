"""Runs in a stream that the caller captures, as torch.cuda.graph and cuda-python do it."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base import errors
from sardonyx.cuda.driver.device import Device, device
from sardonyx.cuda.driver.driver import bindings, call
from tests.support.driver_types import GLOBAL
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of
from tests.support.tolerances import assert_near

CUDA = "CUDAExecutionProvider"
_TEXT = """g (float[N,M] x, float[M,8] w) => (float[N,8] y, float[N,8] z)
    { a = MatMul(x, w) y = Softmax<axis=-1>(a) z = Add(y, a) }"""
_ADD = "g (float[N] x, float[N] w) => (float[N] y) { y = Add(x, w) }"
_TAKE = "g (float[N] x, int64[M] i) => (float[M] y) { y = Gather(x, i) }"
_NONZERO = "g (float[N,M] x) => (int64[A,B] y) { y = NonZero(x) }"
_RANDOM = "g (float[N] x) => (float[N] y) { y = RandomUniformLike(x) }"
_GROWS = "g (float[N,8] past, float[M,8] x) => (float[L,8] y) { y = Concat<axis=0>(past, x) }"


def _session(text: str = _TEXT, **provider: Any) -> ort.InferenceSession:
    model = model_of(text).SerializeToString()
    return ort.InferenceSession(model, providers=[(CUDA, provider)])


def _value(array: Any) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(np.asarray(array), "cuda", 0)


def _floats(*shape: int, seed: int = 1) -> Any:
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 4).astype(np.float32)


class _Graph:
    """A graph of the caller's, made by the driver's own functions."""

    def __init__(self, where: Device, stream: Any, record: Callable[[], Any]) -> None:
        self.stream = stream
        where.enter()
        modes = bindings().CUstreamCaptureMode
        is_fake = isinstance(bindings(), FakeDriver)
        mode = GLOBAL if is_fake else modes.CU_STREAM_CAPTURE_MODE_GLOBAL
        call("cuStreamBeginCapture", stream.handle, mode)
        try:
            self.given = record()
        except BaseException:
            bindings().cuStreamEndCapture(stream.handle)
            raise
        graph = call("cuStreamEndCapture", stream.handle)
        self._made = call("cuGraphInstantiate", graph, 0)
        call("cuGraphDestroy", graph)

    def replay(self) -> None:
        call("cuGraphLaunch", int(self._made), self.stream.handle)
        self.stream.synchronize()

    def end(self) -> None:
        self.stream.synchronize()
        call("cuGraphExecDestroy", self._made)


@contextmanager
def _captured(record: Callable[[Any], Any]) -> Iterator[_Graph]:
    where = device(0)
    stream = where.new_stream()
    made = _Graph(where, stream, lambda: record(stream))
    try:
        yield made
    finally:
        made.end()


def _wait_until_free(session: ort.InferenceSession) -> None:
    """The driver lets go of a graph some time after it was told to."""
    deadline = time.monotonic() + 10
    while session.memory()["reserved_for_callers_graphs_bytes"]:
        assert time.monotonic() < deadline, "memory is still kept for graphs"
        time.sleep(0.01)


def _expected(x: Any, w: Any) -> list[Any]:
    product = x.astype(np.float64) @ w
    weights = np.exp(product - product.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return [weights, weights + product]


@pytest.mark.parametrize("is_warm", [True, False])
def test_replays_read_what_the_inputs_hold_then(gpu: FakeDriver | None, is_warm: bool) -> None:
    session = _session()
    x, w = _value(_floats(4, 5)), _value(_floats(5, 8))
    if is_warm:
        session.run_with_ort_values(None, {"x": x, "w": w})
    with _captured(
        lambda s: session.run_with_ort_values(None, {"x": x, "w": w}, stream=s.handle)
    ) as graph:
        for seed in (2, 3, 4):
            fed = _floats(4, 5, seed=seed)
            x.update_inplace(fed)
            graph.replay()
            for mine, wanted in zip(graph.given, _expected(fed, w.numpy()), strict=True):
                assert_near(mine.numpy(), wanted, "float: products")
            # Runs of other sizes meanwhile, and new arrays, have memory of their own.
            other = _floats(30, 5, seed=seed)
            found = session.run(None, {"x": other, "w": w})
            assert_near(
                found[1], _expected(other, w.numpy())[1], "float: sums without cancellation"
            )


def test_bound_memory_and_pinned_arrays(gpu: FakeDriver | None) -> None:
    session = _session(_ADD)
    n = 1000
    pinned = [
        ort.OrtValue.ortvalue_from_shape_and_type(
            [n], np.float32, memory_info=ort.OrtMemoryInfo(
                "CudaPinned", ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0,
                ort.OrtMemType.DEFAULT,
            ),
        )
        for _ in range(2)
    ]  # fmt: skip
    fed, result = (v.numpy() for v in pinned)
    w = _value(_floats(n))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", pinned[0])
    binding.bind_ortvalue_input("w", w)
    binding.bind_ortvalue_output("y", pinned[1])
    with _captured(lambda s: binding.run(stream=s.handle)) as graph:
        for seed in (5, 6):
            fed[...] = _floats(n, seed=seed)
            graph.replay()
            np.testing.assert_array_equal(result, fed + w.numpy())


def test_a_run_that_writes_to_its_own_feed(gpu: FakeDriver | None) -> None:
    session = _session(_ADD)
    x, w = _value(np.zeros(300, np.float32)), _value(np.ones(300, np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_input("w", w)
    binding.bind_ortvalue_output("y", x)
    with _captured(lambda s: binding.run(stream=s.handle)) as graph:
        for count in (1, 2, 3):
            graph.replay()
            assert (x.numpy() == count).all()


def test_two_runs_of_one_graph_and_two_graphs(gpu: FakeDriver | None) -> None:
    session = _session(_ADD)
    x, w = _value(np.zeros(300, np.float32)), _value(np.ones(300, np.float32))

    def record(stream: Any) -> ort.OrtValue:
        (once,) = session.run_with_ort_values(None, {"x": x, "w": w}, stream=stream.handle)
        return session.run_with_ort_values(None, {"x": once, "w": w}, stream=stream.handle)[0]

    with _captured(record) as first, _captured(record) as second:
        x.update_inplace(np.full(300, 5, np.float32))
        second.replay()
        assert (second.given.numpy() == 7).all()
        x.update_inplace(np.full(300, 1, np.float32))
        first.replay()
        assert (first.given.numpy() == 3).all()
        assert (second.given.numpy() == 7).all()
        assert "runs in graphs of callers: 4" in session.explain()


def test_the_stream_of_the_options(gpu: FakeDriver | None) -> None:
    stream = device(0).new_stream()
    session = _session(_ADD, user_compute_stream=str(stream.handle))
    x, w = _value(np.zeros(300, np.float32)), _value(np.ones(300, np.float32))
    for _ in range(3):  # from then on there is a short way
        session.run_with_ort_values(None, {"x": x, "w": w})
    graph = _Graph(device(0), stream, lambda: session.run_with_ort_values(None, {"x": x, "w": w}))
    x.update_inplace(np.full(300, 4, np.float32))
    graph.replay()
    assert (graph.given[0].numpy() == 5).all()
    graph.end()


def test_memory_is_kept_as_long_as_the_graph(gpu: FakeDriver | None) -> None:
    session = _session()
    w = _value(_floats(5, 8))
    before, fed = session.memory()["frames"], [_value(_floats(4, 5))]
    with _captured(
        lambda s: session.run_with_ort_values(None, {"x": fed.pop(), "w": w}, stream=s.handle)
    ) as graph:
        held = session.memory()
        assert held["reserved_for_callers_graphs_bytes"] > 0
        assert held["frames"] == before + 1
        session.trim()
        assert session.memory()["frames"] == 1
        z = graph.given.pop()
        graph.given.clear()  # nobody else has the other result, nor the feed
        gc.collect()
        assert "output y" in {text for _, text in session.memory()["devices"]["cuda:0"]["largest"]}
        others = [_value(_floats(4, 5, seed=k)) for k in range(2, 20)]
        results = [session.run_with_ort_values(None, {"x": x, "w": w}) for x in others]
        graph.replay()
        assert_near(
            z.numpy(), _expected(_floats(4, 5), w.numpy())[1], "float: sums without cancellation"
        )
        for x, found in zip(others, results, strict=True):
            for mine, wanted in zip(found, _expected(x.numpy(), w.numpy()), strict=True):
                assert_near(mine.numpy(), wanted, "float: products")
    _wait_until_free(session)
    session.trim()
    assert session.memory()["frames"] == 0


def test_a_graph_outlives_its_session(gpu: FakeDriver | None) -> None:
    text = "g (float[N] x) => (float[N] y) <float[1] w = {3}> { y = Mul(x, w) }"
    sessions, x = [_session(text)], _value(np.zeros(500, np.float32))
    with _captured(
        lambda s: sessions.pop().run_with_ort_values(None, {"x": x}, stream=s.handle)
    ) as graph:
        gc.collect()
        x.update_inplace(np.full(500, 2, np.float32))
        graph.replay()
        assert (graph.given[0].numpy() == 6).all()


def test_a_value_that_grows_is_a_new_one_in_a_graph(gpu: FakeDriver | None) -> None:
    session = _session(_GROWS)
    past, step = _value(_floats(3, 8)), _value(_floats(1, 8, seed=2))
    for _ in range(3):
        (past,) = session.run_with_ort_values(None, {"past": past, "x": step})
    wanted = np.concatenate([past.numpy(), step.numpy()])
    with _captured(
        lambda s: session.run_with_ort_values(None, {"past": past, "x": step}, stream=s.handle)
    ) as graph:
        graph.replay()
        np.testing.assert_array_equal(graph.given[0].numpy(), wanted)


def test_faults_of_replays_are_told_to_who_waits(gpu: FakeDriver | None) -> None:
    session = _session(_TAKE)
    x, i = _value(np.arange(5, dtype=np.float32)), _value(np.array([1, 4]))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_input("i", i)
    binding.bind_output("y", "cuda")
    with _captured(lambda s: binding.run(stream=s.handle)) as graph:
        graph.replay()
        binding.synchronize_outputs()
        i.update_inplace(np.array([1, 9]))
        graph.replay()
        with pytest.raises(errors.RuntimeException, match="index 9 is out of range"):
            session.io_binding().synchronize_outputs()
        i.update_inplace(np.array([1, 2]))
        graph.replay()
        session.io_binding().synchronize_outputs()


@pytest.mark.parametrize(
    ("text", "feeds", "kind", "expected"),
    [
        (_NONZERO, {"x": np.ones((2, 3), np.float32)}, errors.NotImplemented, "host reads sizes"),
        (_RANDOM, {"x": np.ones(3, np.float32)}, errors.NotImplemented, "keys of random numbers"),
    ],
)
def test_models_that_cannot_be_recorded(
    gpu: FakeDriver | None, text: str, feeds: Any, kind: Any, expected: str
) -> None:
    session, add = _session(text), _session(_ADD)
    values = {name: _value(a) for name, a in feeds.items()}
    x = _value(np.ones(3, np.float32))

    def record(stream: Any) -> Any:
        with pytest.raises(kind, match=expected):
            session.run_with_ort_values(None, values, stream=stream.handle)
        # The capture is as it was.
        return add.run_with_ort_values(None, {"x": x, "w": x}, stream=stream.handle)

    with _captured(record) as graph:
        graph.replay()
        assert (graph.given[0].numpy() == 2).all()
    session.run_with_ort_values(None, values)


def test_feeds_and_results_that_a_graph_does_not_reach(gpu: FakeDriver | None) -> None:
    session = _session(_ADD)
    x, plain = _value(np.ones(3, np.float32)), np.ones(3, np.float32)
    column = _value(np.ones((3, 1), np.float32))

    def record(stream: Any) -> Any:
        for run, where in (
            (lambda: session.run(None, {"x": x, "w": plain}, stream=stream.handle), "input w"),
            (lambda: session.run(None, {"x": x, "w": x}, stream=stream.handle), "output y"),
        ):
            with pytest.raises(errors.InvalidArgument, match=rf"{where}.*captured.*NumPy"):
                run()
        with pytest.raises(errors.InvalidArgument, match="rank"):
            session.run_with_ort_values(None, {"x": x, "w": column}, stream=stream.handle)
        return session.run_with_ort_values(None, {"x": x, "w": x}, stream=stream.handle)

    with _captured(record) as graph:
        graph.replay()
        assert (graph.given[0].numpy() == 2).all()


@pytest.mark.parametrize("is_warm", [True, False])
def test_the_graph_of_torch(gpu: FakeDriver | None, is_warm: bool) -> None:
    torch = pytest.importorskip("torch")
    if gpu is not None:
        pytest.skip("torch needs a GPU")
    session = _session()
    x, w = torch.ones((4, 5), device="cuda"), torch.tensor(_floats(5, 8), device="cuda")
    if is_warm:
        session(x, w)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        twice = x * 2
        _, z = session(twice, w)  # the current stream is captured, so this run is
        total = z.sum() + 1
        bound = session.run_with_ort_values(
            None,
            {"x": ort.OrtValue.from_dlpack(twice), "w": ort.OrtValue.from_dlpack(w)},
            stream=torch.cuda.current_stream(),
        )
    for seed in (2, 3):
        fed = _floats(4, 5, seed=seed)
        x.copy_(torch.tensor(fed))
        graph.replay()
        torch.cuda.synchronize()
        wanted = _expected(2 * fed, w.cpu().numpy())
        assert_near(z.cpu().numpy(), wanted[1], "float: products")
        assert_near(total.item(), wanted[1].sum() + 1, "float: layers without cancellation")
        assert_near(bound[0].numpy(), wanted[0], "float: products")
    assert session.memory()["reserved_for_callers_graphs_bytes"] > 0
    graph.reset()
    del z, total
    _wait_until_free(session)


def test_a_capture_that_is_broken_is_named(lazy: FakeDriver) -> None:
    device(0).enter()
    session = _session(_ADD)
    x = _value(np.ones(3, np.float32))
    stream = device(0).new_stream()
    call("cuStreamBeginCapture", stream.handle, GLOBAL)
    lazy.is_broken = True
    with pytest.raises(errors.RuntimeException, match="broken the capture"):
        session.run_with_ort_values(None, {"x": x, "w": x}, stream=stream.handle)
    with pytest.raises(errors.RuntimeException, match="INVALIDATED"):
        call("cuStreamEndCapture", stream.handle)
    assert (session.run(None, {"x": x, "w": x})[0] == 2).all()


def _uses() -> dict[str, tuple[Any, Any]]:
    """What a thread may do, warm, and what that gives."""
    session, x, y = _session(_ADD), _floats(300), _floats(400)
    session.trim()  # memory that other libraries had comes back after all work, captured or not
    values, other = {"x": _value(x), "w": _value(x)}, {"x": y, "w": y}
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    for _ in range(4):
        session.run_with_ort_values(None, values)
        session.run(None, {"x": x, "w": x})

    def in_new_sizes() -> Any:
        given = {name: _value(array) for name, array in other.items()}
        return session.run_with_ort_values(None, given)[0].numpy()

    def give_back() -> None:
        for _ in range(3):  # their results are let go of while nobody knows that they are there
            session.run_with_ort_values(None, values, options)
        session.trim()

    return {
        "again": (lambda: session.run_with_ort_values(None, values)[0].numpy(), x + x),
        "new sizes": (in_new_sizes, y + y),
        "NumPy": (lambda: session.run(None, {"x": x, "w": x})[0], x + x),
        "a value": (lambda: values["x"].numpy(), x),
        "an update": (lambda: values["x"].update_inplace(x), None),
        "nobody waits": (
            lambda: session.run_with_ort_values(None, values, options)[0].numpy(), x + x,
        ),
        "memory": (give_back, None),
    }  # fmt: skip


@pytest.mark.parametrize(
    "use", ["again", "new sizes", "NumPy", "a value", "an update", "nobody waits", "memory"]
)
def test_what_another_thread_captures_is_not_spoilt(gpu: FakeDriver | None, use: str) -> None:
    """In the mode that forbids all threads what could spoil a capture: torch's graphs have it."""
    do, expected = _uses()[use]
    found: list[Any] = []

    def record() -> None:
        thread = threading.Thread(target=lambda: found.append(do()))
        thread.start()
        thread.join()

    graph = _Graph(device(0), device(0).new_stream(), record)
    graph.end()
    np.testing.assert_array_equal(found[0], expected)
