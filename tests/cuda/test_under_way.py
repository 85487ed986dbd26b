"""Runs that nobody waits for at once: `await run_async`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base import errors
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of

PROVIDERS = {"device": "CUDAExecutionProvider", "processor": "CPUExecutionProvider"}
_TEXT = "g (float[N,M] x) => (float[N,M] y) { a = Mul(x, x) y = Add(a, x) }"
_TWO = "g (float[N] x, float[N] w) => (float[N] y, float[N] z) { y = Add(x, w) z = Mul(x, w) }"
_TAKE = "g (float[N] x, int64[M] i) => (float[M] y) { y = Gather(x, i) }"
_NONZERO = "g (float[N,M] x) => (int64[A,B] y) { y = NonZero(x) }"
_random = np.random.default_rng(5)


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest, gpu: FakeDriver | None) -> str:
    return PROVIDERS[request.param]


def _session(text: str, provider: str = PROVIDERS["device"]) -> ort.InferenceSession:
    return ort.InferenceSession(model_of(text).SerializeToString(), providers=[provider])


def _numbers(*shape: int) -> Any:
    return (_random.integers(-8, 9, shape) / 4).astype(np.float32)


# -- await ----------------------------------------------------------------------------------------


def test_awaited_runs_give_what_runs_give(provider: str) -> None:
    session = _session(_TWO, provider)
    x, w = _numbers(100), _numbers(100)

    async def work() -> None:
        for _ in range(3):
            y, z = await session.run_async({"x": x, "w": w})
            np.testing.assert_array_equal(y, x + w)
            np.testing.assert_array_equal(z, x * w)
        (z,) = await session.run_async(["z"], {"x": x, "w": w})
        np.testing.assert_array_equal(z, x * w)
        (z,) = await session.run_async(["z"], {"x": x, "w": w}, run_options=ort.RunOptions())
        np.testing.assert_array_equal(z, x * w)

    asyncio.run(work())


def test_many_awaited_at_once(provider: str) -> None:
    session = _session(_TEXT, provider)
    feeds = [_numbers(3, n) for n in range(1, 20)]

    async def work() -> None:
        found = await asyncio.gather(*(session.run_async({"x": x}) for x in feeds))
        for (y,), x in zip(found, feeds, strict=True):
            np.testing.assert_array_equal(y, x * x + x)

    asyncio.run(work())


def test_runs_that_are_recorded_since_they_were_asked_for(provider: str) -> None:
    session, x = _session(_TAKE, provider), _numbers(300)
    right, wrong = np.arange(300, dtype=np.int64), np.full(300, 300)
    for _ in range(3):
        session.run(None, {"x": x, "i": right})

    async def work() -> None:
        good, bad = (session.run_async({"x": x, "i": i}) for i in (right, wrong))
        with session.profile():
            (y,) = await good
            np.testing.assert_array_equal(y, x)
            with pytest.raises(errors.RuntimeException, match="Gather"):
                await bad

    asyncio.run(work())


def test_no_thread_is_held(gpu: FakeDriver | None) -> None:
    session = _session(_TEXT)
    session.run(None, {"x": _numbers(2, 3)})
    before = threading.active_count()
    seen = []

    async def look() -> None:
        seen.append(sum("asyncio" in t.name for t in threading.enumerate()))

    async def work() -> None:
        await asyncio.gather(session.run_async({"x": _numbers(2, 3)}), look())

    asyncio.run(work())
    assert seen == [0]
    assert threading.active_count() <= before + (gpu is not None)


def test_device_values_stay_there(gpu: FakeDriver | None) -> None:
    session = _session(_TEXT)
    x = _numbers(4, 5)

    async def work() -> None:
        (y,) = await session.run_async({"x": ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)})
        assert y.device_name() == "cuda"
        np.testing.assert_array_equal(y.numpy(), x * x + x)

    asyncio.run(work())


def test_an_awaited_run_gets_its_own_faults(gpu: FakeDriver | None) -> None:
    session = _session(_TAKE)
    x, right, wrong = _numbers(5), np.array([4, 0]), np.array([5])

    async def work() -> None:
        runs = (session.run_async({"x": x, "i": i}) for i in (right, wrong, right))
        found = await asyncio.gather(*runs, return_exceptions=True)
        assert isinstance(found[1], errors.RuntimeException | errors.InvalidArgument)
        for k in (0, 2):
            np.testing.assert_array_equal(found[k][0], x[right])

    asyncio.run(work())
    np.testing.assert_array_equal(session.run(None, {"x": x, "i": right})[0], x[right])


def test_an_awaited_run_that_is_dropped(gpu: FakeDriver | None) -> None:
    session = _session(_TEXT)
    x = _numbers(6, 7)

    async def work() -> None:
        for _ in range(3):
            task = asyncio.ensure_future(session.run_async({"x": x}))
            await asyncio.sleep(0)
            task.cancel()  # it may be over by then
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(work())
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * x + x)


def test_what_a_host_controls_is_awaited_in_a_thread(provider: str) -> None:
    session = _session(_NONZERO, provider)
    x = _numbers(4, 3)
    (found,) = asyncio.run(session.run_async({"x": x}))
    np.testing.assert_array_equal(found, np.array(np.nonzero(x)))


def _options(**entries: str) -> ort.RunOptions:
    made = ort.RunOptions()
    for key, value in entries.items():
        made.add_run_config_entry(key.replace("__", "."), value)
    return made


def _value(x: Any) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(x)


@pytest.mark.parametrize(
    ("text", "names", "options"),
    [
        (_TEXT, None, {}),
        (_TEXT, ["y"], {"run__timeout_seconds": "60"}),
        (_TEXT, ["y"], {"disable_synchronize_execution_providers": "1"}),
        (_TEXT, ["a"], {}),
        (_TEXT, ["a"], {"disable_synchronize_execution_providers": "1"}),
        (_NONZERO, None, {}),
        (_NONZERO, ["y"], {"gpu_graph_id": "3"}),
    ],
)
def test_results_are_like_feeds(
    provider: str, text: str, names: list[str] | None, options: dict[str, str]
) -> None:
    session, x = _session(text, provider), _numbers(3, 4)
    for feed in (x, _value(x)):
        wanted = session.run(names, {"x": x})
        run = session.run_async(names, {"x": feed}, run_options=_options(**options))
        (found,) = asyncio.run(run)
        if feed is x:
            assert isinstance(found, np.ndarray)
            np.testing.assert_array_equal(found, wanted[0])
        else:
            assert isinstance(found, ort.OrtValue)
            assert found.device_name() == ("cuda" if provider.startswith("CUDA") else "cpu")
            np.testing.assert_array_equal(found.numpy(), wanted[0])


@pytest.mark.parametrize("text", [_TEXT, _NONZERO])
@pytest.mark.parametrize("ends", ["before", "meanwhile"])
def test_awaited_runs_end_when_they_are_told_to(provider: str, text: str, ends: str) -> None:
    session, options = _session(text, provider), ort.RunOptions()
    # A device takes longer to copy so much than this thread does to set a flag.
    x = _numbers(2048, 4096) if ends == "meanwhile" else _numbers(3, 4)

    async def work() -> None:
        options.terminate = ends == "before"
        run = asyncio.ensure_future(session.run_async(None, {"x": x}, run_options=options))
        if ends == "meanwhile":
            await asyncio.sleep(0)
            options.terminate = True
        with pytest.raises(errors.Fail, match="cancelled"):
            await run
        options.terminate = False
        (found,) = await session.run_async(None, {"x": x}, run_options=options)
        np.testing.assert_array_equal(found, session.run(None, {"x": x})[0])

    if ends == "meanwhile" and (provider.startswith("CPU") or text is _NONZERO):
        pytest.skip("a thread may have done it by then")
    asyncio.run(work())


def test_awaited_runs_give_memory_back(gpu: FakeDriver | None) -> None:
    session, x = _session(_TEXT), _numbers(300, 400)
    options = _options(memory__enable_memory_arena_shrinkage="gpu:0")

    def held() -> int:
        return int(session.memory()["devices"]["cuda:0"]["held_bytes"])

    asyncio.run(session.run_async({"x": x}))
    before = held()
    asyncio.run(session.run_async(None, {"x": x}, run_options=options))
    assert held() < before


@pytest.mark.parametrize("callback", [None, lambda *_: None])
@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        (5, errors.InvalidArgument, "run_options is of another type"),
        (
            _options(memory__enable_memory_arena_shrinkage="gpu:9"), errors.InvalidArgument,
            "no memory of gpu:9",
        ),
    ],
)  # fmt: skip
def test_options_that_cannot_be_done(
    provider: str, callback: Any, options: Any, kind: Any, said: str
) -> None:
    session, x = _session(_TEXT, provider), _numbers(2, 2)
    target = np.zeros_like(x)
    with pytest.raises(kind, match=said):
        session.run_async(None, {"x": x}, callback, None, options)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("y", _value(target))
    for run in (
        lambda: session.run(None, {"x": x}, options, out=[target]),
        lambda: session.run_with_iobinding(binding, options),
    ):
        with pytest.raises(kind, match=said):
            run()
    assert not target.any()


def test_limits_and_memory_of_the_caller(provider: str) -> None:
    session, x = _session(_TEXT, provider), _numbers(3, 4)
    for feed in (x, _value(x)):
        target = np.zeros_like(x)
        run = session.run_async(None, {"x": feed}, out=[target], timeout=60)
        (found,) = asyncio.run(run)
        assert found is target
        np.testing.assert_array_equal(target, x * x + x)
    with pytest.raises(errors.InvalidArgument, match="timeout"):
        asyncio.run(session.run_async(None, {"x": x}, timeout=-1))


def test_callbacks_have_streams_limits_and_memory(gpu: FakeDriver | None) -> None:
    session, x = _session(_TEXT), _numbers(3, 4)
    target, told = np.zeros_like(x), threading.Event()
    said: list[Any] = []

    def tell(*given: Any) -> None:
        said.append(given)
        told.set()

    stream = ort.get_ep_devices()[1].create_sync_stream()
    for further in ({"stream": stream, "timeout": 60}, {"out": [target]}, {"stream": "zzz"}):
        told.clear()
        session.run_async(None, {"x": x}, tell, 7, **further)
        assert told.wait(60)
    (first, second, third) = said
    np.testing.assert_array_equal(first[0][0], x * x + x)
    assert second[0][0] is target and second[1:] == (7, "")
    np.testing.assert_array_equal(target, x * x + x)
    assert third[0] == [] and "This is no stream" in third[2]
    if gpu is not None:
        assert gpu.done[stream.get_handle()] > 0
    with pytest.raises(errors.InvalidArgument, match="has no streams"):
        _session(_TEXT, PROVIDERS["processor"]).run_async(None, {"x": x}, tell, stream=stream)


def test_a_feed_that_is_missing_is_an_error_at_once(provider: str) -> None:
    session = _session(_TWO, provider)
    with pytest.raises(errors.InvalidArgument, match="'w'.*missing"):
        session.run_async({"x": _numbers(3)})


def test_no_feeds() -> None:
    with pytest.raises(errors.InvalidArgument, match="no feeds"):
        _session(_TEXT, PROVIDERS["processor"]).run_async(None)
