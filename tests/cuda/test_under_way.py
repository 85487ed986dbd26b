"""Runs that nobody waits for at once: `await run_async`, and pipelines."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base import errors
from sardonyx.cuda import conveyor, row_writer, staging
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


# -- pipelines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_results_come_in_order(provider: str, depth: int) -> None:
    session = _session(_TEXT, provider)
    feeds = [_numbers(n % 3 + 1, n % 5 + 1) for n in range(11)]
    taken = []

    def tiles() -> Iterator[Any]:
        for x in feeds:
            taken.append(x)
            yield x

    with session.pipeline(depth) as pipe:
        for _ in range(2):
            for number, y in enumerate(pipe.map(tiles())):
                np.testing.assert_array_equal(y, feeds[number] * feeds[number] + feeds[number])
                assert len(taken) - number <= depth
            taken.clear()


def test_several_inputs_and_outputs(provider: str) -> None:
    session = _session(_TWO, provider)
    feeds = [(_numbers(9), _numbers(9)) for _ in range(4)]
    for given in (feeds, [{"x": x, "w": w} for x, w in feeds]):
        with session.pipeline() as pipe:
            for (y, z), (x, w) in zip(pipe.map(given), feeds, strict=True):
                np.testing.assert_array_equal(y, x + w)
                np.testing.assert_array_equal(z, x * w)


def _image(*shape: int, pinned: bool) -> Any:
    if not pinned:
        return np.zeros(shape, np.float32)
    info = ort.OrtMemoryInfo(
        "CudaPinned", ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    made = ort.OrtValue.ortvalue_from_shape_and_type(list(shape), np.float32, memory_info=info)
    return made.numpy()


@pytest.mark.parametrize("width", [40, 160])
@pytest.mark.parametrize("pinned", [False, True])
def test_tiles_of_images(gpu: FakeDriver | None, pinned: bool, width: int) -> None:
    session = _session("g (float[C,H,W] x) => (float[C,H,W] y) { a = Mul(x, x) y = Add(a, x) }")
    image, result = (_image(3, 16, 4 * width, pinned=pinned) for _ in range(2))
    image[...] = _numbers(*image.shape)
    places = [
        np.s_[:, y : y + 8, x : x + width] for y in (0, 8) for x in range(0, 4 * width, width)
    ]
    before = dict(gpu.copied) if gpu is not None else {}
    with session.pipeline(3) as pipe:
        for place, found in zip(
            places, pipe.map((image[p] for p in places), (result[p] for p in places)), strict=True
        ):
            np.testing.assert_array_equal(found, result[place])
    np.testing.assert_array_equal(result, image * image + image)
    if gpu is not None:
        copied = {k: n - before.get(k, 0) for k, n in gpu.copied.items()}
        assert copied["device, pinned"] == image.nbytes  # straight to the result, or staged once
        assert copied.get("device, host", 0) == 0


@pytest.mark.parametrize(
    ("shape", "place", "by_kernel"),
    [
        ((3, 64, 64), np.s_[:, 10:50, 16:48], True),
        ((1, 3, 1, 50, 64), np.s_[:, :, :, :40, 32:], True),
        ((40, 64), np.s_[:, :32], True),
        ((2, 20, 3, 32), np.s_[:, 5:15], True),  # a row goes over two axes
        ((40, 64), np.s_[:, 3:35], False),  # it begins anywhere
        ((40, 64), np.s_[:, :33], False),  # or ends so
        ((2, 3, 40, 64), np.s_[:, :2, :, :32], False),  # too many axes in front of rows
        ((40, 64), np.s_[3:30], False),  # no rows: it is dense
        ((1, 64), np.s_[:, :32], False),
    ],
)
def test_a_kernel_writes_a_part_of_rows(
    gpu: FakeDriver | None,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, ...],
    place: Any,
    by_kernel: bool,
) -> None:
    for holder, name in (
        (staging, "_LEAST_ROW_BYTES"), (row_writer, "_LEAST_ROW_BYTES"),
        (row_writer, "_LEAST_BYTES"),
    ):  # fmt: skip
        monkeypatch.setattr(holder, name, 64)
    written: list[Any] = []
    write = row_writer.write_rows

    def counted(where: Any, rows: Any, *more: Any) -> None:
        written.append(rows)
        write(where, rows, *more)

    monkeypatch.setattr(conveyor, "write_rows", counted)
    result = _image(*shape, pinned=True)
    names = ",".join("ABCDE"[: len(shape)])
    session = _session(f"g (float[{names}] x) => (float[{names}] y) {{ y = Mul(x, x) }}")
    part = result[place]
    feeds = [_numbers(*part.shape) for _ in range(4)]
    result[...] = 7
    with session.pipeline(3) as pipe:
        for x, y in zip(feeds, pipe.map(feeds, [part] * 4), strict=True):
            assert y.shape == x.shape
    expected = np.full(shape, 7, np.float32)
    expected[place] = feeds[-1] * feeds[-1]
    np.testing.assert_array_equal(result, expected)
    assert len(written) == 4 * by_kernel
    assert all(0 < w.rows * w.blocks * w.width < part.nbytes for w in written)


def test_a_fault_is_raised_where_its_result_is_due(provider: str) -> None:
    session = _session(_TAKE, provider)
    x = _numbers(5)
    rows = [np.array([0]), np.array([5]), np.array([4])]
    with session.pipeline(3) as pipe:
        found = pipe.map((x, i) for i in rows)
        np.testing.assert_array_equal(next(found), x[[0]])
        with pytest.raises((errors.RuntimeException, errors.InvalidArgument)):
            next(found)
    with session.pipeline(2) as pipe:
        (only,) = pipe.map([(x, rows[2])])
        np.testing.assert_array_equal(only, x[[4]])


def test_what_is_left_is_waited_for(provider: str) -> None:
    session = _session(_TEXT, provider)
    with session.pipeline(4) as pipe:
        found = pipe.map(_numbers(3, 3) for _ in range(9))
        next(found)
    x = _numbers(3, 3)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * x + x)


BAD: dict[str, Any] = {
    "depth": lambda s: s.pipeline(0),
    "feeds": lambda s: list(s.pipeline(2).__enter__().map([(_numbers(2), _numbers(2))])),
    "places": lambda s: list(s.pipeline(2).__enter__().map([_numbers(2, 2)] * 2, [_numbers(2, 2)])),
    "place": lambda s: list(s.pipeline(2).__enter__().map([_numbers(2, 2)], [_numbers(1, 2)])),
    "no array": lambda s: list(s.pipeline(2).__enter__().map([_numbers(2, 2)], [[1.0]])),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(provider: str, name: str) -> None:
    session = _session(_TEXT, provider)
    with pytest.raises(errors.InvalidArgument):
        BAD[name](session)
    x = _numbers(3, 3)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * x + x)
