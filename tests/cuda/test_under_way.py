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


def test_what_a_host_steers_is_awaited_in_a_thread(provider: str) -> None:
    session = _session(_NONZERO, provider)
    x = _numbers(4, 3)
    (found,) = asyncio.run(session.run_async({"x": x}))
    np.testing.assert_array_equal(found, np.array(np.nonzero(x)))


def test_no_feeds() -> None:
    with pytest.raises(errors.InvalidArgument, match="no feeds"):
        _session(_TEXT, PROVIDERS["processor"]).run_async(None)
