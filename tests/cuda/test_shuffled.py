"""Pipelines and runs nobody waits for, on a device whose streams go on in any order there may be.

Plans of libraries become ready in the middle of it, in runs, too. No two tiles are alike, so one
that holds another's content, or that of a run before, is found.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from examples import tiles
from sardonyx.api.providers import cuda_is_missing
from sardonyx.cuda import provider
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.libraries import background, cudnn_plans
from sardonyx.cuda.libraries import cudnn as module
from sardonyx.cuda.libraries.cudnn_convolution import ConvolutionForm
from sardonyx.cuda.libraries.libraries import Libraries, LibrarySettings
from sardonyx.cuda.memory import row_writer, staging
from sardonyx.store.cache import Cache
from tests.support.fake_cudnn import Cudnn
from tests.support.fake_library import FakeLibrary
from tests.support.fake_provider import FakeProvider, installed
from tests.support.session import model_of
from tests.support.shuffled_driver import ShuffledDriver
from tests.support.tolerances import assert_near

_random = np.random.default_rng(9)
_TILES = 8


def _numbers(*shape: int) -> Any:
    return (_random.integers(-8, 9, shape) / 8).astype(np.float32)


#: What runs are made of: kernels alone, libraries between kernels, libraries that have feeds and
#: results themselves.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "kernels": ("g (float[1,3,H,W] x) => (float[1,3,H,W] y) { a = Sin(x) y = Mul(a, x) }", {}),
    "the example": tiles.model(),
    "convolutions": (
        """g (float[1,3,H,W] x) => (float[1,4,H,W] y, float[1,6,H,W] z) {
          a = Conv<pads=[1,1,1,1]>(x, f) b = Relu(a) z = Mul(b, b) y = Conv<pads=[1,1,1,1]>(b, h)
        }""",
        {"f": _numbers(6, 3, 3, 3), "h": _numbers(4, 6, 3, 3)},
    ),
    "a product": (
        "g (float[1,3,H,W] x) => (float[1,3,H,8] y) { y = MatMul(x, f) }", {"f": _numbers(8, 8)},
    ),
    "products": (
        """g (float[1,3,H,W] x) => (float[1,3,H,8] y, float[1,3,H,8] z) {
          a = MatMul(x, f) z = Sin(a) y = MatMul(a, f)
        }""",
        {"f": _numbers(8, 8)},
    ),
}  # fmt: skip
_HEIGHTS = {"one size": (8,), "sizes that change": (8, 8, 8, 4, 12)}


class _Libraries:
    """A convolution's plans are made, and products done otherwise, whenever `go_on` is called."""

    def __init__(self, driver: ShuffledDriver, patch: pytest.MonkeyPatch) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._is_busy = False
        patch.setattr(cudnn_plans, "default_cache", lambda: Cache(None, 1))
        patch.setitem(sys.modules, "cudnn", Cudnn(driver))
        patch.setattr(background.Background, "do", lambda _, work, **__: self._do(work))
        patch.setattr(ConvolutionForm, "competes", lambda *_: False)
        self._convolutions = module.Cudnn(device(0), LibrarySettings())
        self._products = FakeLibrary(driver, unable=True)
        self.all = Libraries({"convolution": self._convolutions, "matmul": self._products})

    def _do(self, work: Callable[[], None]) -> bool:
        self._jobs.append(work)
        return True

    def go_on(self) -> None:
        if self._is_busy or self._convolutions._lock.locked():
            return
        self._is_busy = True
        try:
            if self._jobs:
                self._jobs.popleft()()
            elif self._products.version < 3:
                self._products.version += 1
                self._products.unable = self._products.version == 2
        finally:
            self._is_busy = False


@pytest.fixture
def shuffled() -> Iterator[ShuffledDriver]:
    if not cuda_is_missing():
        pytest.skip("there is a GPU, whose driver is loaded already")
    # What tests patch is put back before the driver goes: `monkeypatch` is theirs alone.
    with pytest.MonkeyPatch.context() as patch:
        for holder, name in (
            (staging, "_LEAST_ROW_BYTES"), (row_writer, "_LEAST_ROW_BYTES"),
            (row_writer, "_LEAST_BYTES"),
        ):  # fmt: skip
            patch.setattr(holder, name, 16)
        with installed(ShuffledDriver) as driver:
            assert isinstance(driver, ShuffledDriver)
            yield driver
            driver.interrupt = None


class _Work:
    """Tiles of an image, what is to come of each, and where it is to be written."""

    def __init__(self, model: bytes, heights: tuple[int, ...]) -> None:
        host = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        sizes = [heights[k % len(heights)] for k in range(_TILES)]
        image = _pinned(3, max(sizes), 8 * _TILES)
        image[...] = _numbers(*image.shape)
        self.feeds = [image[:, :, :h, 8 * k : 8 * (k + 1)] for k, h in enumerate(sizes)]
        self.expected = [host.run(None, {"x": np.ascontiguousarray(f)}) for f in self.feeds]
        self.results, places = [], []
        for y in self.expected[0]:
            times = y.shape[3] // 8
            result = _pinned(y.shape[1], times * max(sizes), times * 8 * _TILES)
            self.results.append(result)
            width = times * 8
            places.append(
                [
                    result[:, :, : times * h, width * k : width * (k + 1)]
                    for k, h in enumerate(sizes)
                ]
            )
        self.targets = list(zip(*places, strict=True))

    def check(self, number: int, found: Any) -> None:
        for y, expected in zip(found, self.expected[number], strict=True):
            assert_near(y, expected, "float: layers", err_msg=f"tile {number}")


def _pinned(*shape: int) -> Any:
    kind = ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    info = ort.OrtMemoryInfo("CudaPinned", kind, 0, ort.OrtMemType.DEFAULT)
    made = ort.OrtValue.ortvalue_from_shape_and_type([1, *shape], np.float32, memory_info=info)
    return made.numpy()


def _leave_some(session: ort.InferenceSession, work: _Work, choose: random.Random) -> None:
    """Runs with values, of which most are left; what comes of them is looked at in any order."""
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    held: list[tuple[int, Any]] = []
    for _ in range(10):
        number = choose.randrange(_TILES)
        feed = np.ascontiguousarray(work.feeds[number])
        value = ort.OrtValue.ortvalue_from_numpy(feed, "cuda", 0)
        chosen = choose.choice((options, options, None))
        held.append((number, session.run_with_ort_values(None, {"x": value}, chosen)))
        del value
        if choose.random() < 0.4:
            number, found = held.pop(choose.randrange(len(held)))
            work.check(number, [y.numpy() for y in found])
    for number, found in held:
        work.check(number, [y.numpy() for y in found])


@pytest.mark.parametrize(("heights", "seed"), [(name, k) for k, name in enumerate(_HEIGHTS)])
@pytest.mark.parametrize("name", MODELS)
def test_every_tile_is_its_own(
    shuffled: ShuffledDriver, monkeypatch: pytest.MonkeyPatch, name: str, heights: str, seed: int
) -> None:
    libraries = _Libraries(shuffled, monkeypatch)
    monkeypatch.setattr(
        provider, "CudaProvider",
        lambda _, settings: FakeProvider(shuffled, settings=settings, libraries=libraries.all),
    )  # fmt: skip
    text, weights = MODELS[name]
    model = model_of(text, weights, opset=17).SerializeToString()
    session = ort.InferenceSession(model, providers=["CUDAExecutionProvider"])
    work, choose = _Work(model, _HEIGHTS[heights]), random.Random(seed)
    shuffled.start(seed)
    chance = choose.choice((0.01, 0.05))
    shuffled.interrupt = lambda: libraries.go_on() if choose.random() < chance else None
    for depth, _ in itertools.product((3, choose.choice((2, 4))), range(3)):
        for result in work.results:
            result[...] = np.nan
        with session.pipeline(depth) as pipe:
            for number, _ in enumerate(pipe.map(work.feeds, work.targets)):
                work.check(number, work.targets[number])
        _leave_some(session, work, choose)
        number = choose.randrange(_TILES)
        feed = np.ascontiguousarray(work.feeds[number])
        work.check(number, session.run(None, {"x": feed}))
    assert shuffled.replays


@pytest.mark.parametrize(("has_stream", "seed"), [(False, 0), (True, 1), (True, 2)])
@pytest.mark.parametrize("name", MODELS)
def test_copies_in_streams_of_their_own(
    shuffled: ShuffledDriver, monkeypatch: pytest.MonkeyPatch, name: str, has_stream: bool,
    seed: int,
) -> None:  # fmt: skip
    """Runs of all kinds, one behind the other: those that are left go on meanwhile."""
    libraries = _Libraries(shuffled, monkeypatch)
    monkeypatch.setattr(
        provider, "CudaProvider",
        lambda _, settings: FakeProvider(shuffled, settings=settings, libraries=libraries.all),
    )  # fmt: skip
    text, weights = MODELS[name]
    model = model_of(text, weights, opset=17).SerializeToString()
    asked: dict[str, Any] = {"do_copy_in_default_stream": 0}
    if has_stream:
        asked["user_compute_stream"] = device(0).new_stream().handle
    session = ort.InferenceSession(model, providers=[("CUDAExecutionProvider", asked)])
    work, choose = _Work(model, _HEIGHTS["sizes that change"]), random.Random(seed)
    names = [v.name for v in session.get_outputs()]
    bindings = [session.io_binding() for _ in range(3)]
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    shuffled.start(seed)
    shuffled.interrupt = lambda: libraries.go_on() if choose.random() < 0.03 else None

    def plain(feed: Any, expected: list[Any]) -> Any:
        return session.run(None, {"x": feed})

    def to_memory(feed: Any, expected: list[Any]) -> Any:
        return session.run(None, {"x": feed}, out=[np.zeros_like(y) for y in expected])

    def awaited(feed: Any, expected: list[Any]) -> Any:
        return asyncio.run(session.run_async({"x": feed}))

    def from_device(feed: Any, expected: list[Any]) -> Any:
        return session.run(None, {"x": ort.OrtValue.ortvalue_from_numpy(feed, "cuda", 0)})

    def left(feed: Any, expected: list[Any]) -> Any:
        value = ort.OrtValue.ortvalue_from_numpy(feed)
        return [y.numpy() for y in session.run_with_ort_values(None, {"x": value}, options)]

    def bound(feed: Any, expected: list[Any]) -> Any:
        binding = choose.choice(bindings)
        binding.bind_cpu_input("x", feed)
        for output in names:
            binding.bind_output(output, choose.choice(("cpu", "cuda")))
        session.run_with_iobinding(binding, options)
        if choose.random() < 0.5:
            return None
        return binding.copy_outputs_to_cpu()

    for _ in range(40):
        number = choose.randrange(_TILES)
        feed, expected = np.ascontiguousarray(work.feeds[number]), work.expected[number]
        found = choose.choice((plain, to_memory, awaited, from_device, left, bound))(feed, expected)
        feed[...] = np.nan
        if found is not None:
            work.check(number, found)
