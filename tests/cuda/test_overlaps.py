"""Memory of outputs that overlaps on a device: see `tests/api/test_overlaps.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.providers import cuda_is_missing
from sardonyx.base import errors
from tests.support.fake_driver import FakeDriver
from tests.support.fake_provider import installed
from tests.support.session import model_of
from tests.support.shuffled_driver import ShuffledDriver

_TWO = "g (float[N] x) => (float[N] y, float[N] z) { y = Neg(x) z = Mul(x, x) }"
_X = np.arange(1, 9, dtype=np.float32)
_Y, _Z = -_X, _X * _X


def _device_session() -> ort.InferenceSession:
    model = model_of(_TWO).SerializeToString()
    return ort.InferenceSession(model, providers=["CUDAExecutionProvider"])


def _pinned(array: Any) -> Any:
    info = ort.OrtMemoryInfo(
        "CudaPinned", ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    made = ort.OrtValue.ortvalue_from_shape_and_type(array.shape, array.dtype, memory_info=info)
    made.numpy()[...] = array
    return made.numpy()


def _on_device(array: Any) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0)


@pytest.mark.parametrize("offset", [0, 16, 32])
def test_addresses_on_a_device(gpu: FakeDriver | None, offset: int) -> None:
    session, memory = _device_session(), _on_device(np.zeros(32, np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", _on_device(_X))
    start = memory.data_ptr()
    binding.bind_output("y", "cuda", 0, np.float32, [8], start)
    binding.bind_output("z", "cuda", 0, np.float32, [8], start + offset)
    for _ in range(2):
        if offset < 32:
            with pytest.raises(errors.InvalidArgument, match="output z.*'y'"):
                session.run_with_iobinding(binding)
            continue
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(memory.numpy()[:16], np.concatenate([_Y, _Z]))


def test_an_output_over_a_feed_of_a_device(gpu: FakeDriver | None) -> None:
    session, x, z = _device_session(), _on_device(_X), _on_device(np.zeros_like(_X))
    for k in range(3):
        session.run(None, {"x": x}, out=[x, z])
        np.testing.assert_array_equal(x.numpy(), _Y if k % 2 == 0 else _X)
        np.testing.assert_array_equal(z.numpy(), _Z)


@pytest.fixture
def any_device() -> Iterator[FakeDriver | None]:
    """The real one (None), or one whose streams go on in any order there may be."""
    if not cuda_is_missing():
        yield None
        return
    with installed(ShuffledDriver) as driver:
        assert isinstance(driver, ShuffledDriver)
        yield driver
        driver.interrupt = None


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("kind", ["host", "pinned", "device"])
def test_a_feed_is_what_an_earlier_run_writes(
    any_device: ShuffledDriver | None, depth: int, kind: str
) -> None:
    """Runs under way are waited for where a feed is their result; other rows overlap as usual."""
    session, random = _device_session(), np.random.default_rng(3)
    for seed in range(10):
        line = random.integers(-4, 5, 40).astype(np.float32)
        expected = line.copy()
        for k in range(0, 32, 4):
            expected[k + 4 : k + 12] = expected[k : k + 8] * -1
        z: Any = np.zeros_like(_X)
        if kind == "pinned":
            line, z = _pinned(line), _pinned(z)
        if kind == "device":
            memory, z = _on_device(line), _on_device(z)
            at = memory.data_ptr()

            def part(k: int, at: int = at) -> Any:
                return ort.OrtValue.ortvalue_from_address(at + 4 * k, [8], np.float32, "cuda", 0)
        else:

            def part(k: int, line: Any = line) -> Any:
                return line[k : k + 8]

        if any_device is not None:
            any_device.start(seed)
        with session.pipeline(depth=depth) as pipe:
            tiles = (part(k) for k in range(0, 32, 4))
            places = ((part(k + 4), z) for k in range(0, 32, 4))
            assert len(list(pipe.map(tiles, places))) == 8
        found = memory.numpy() if kind == "device" else line
        np.testing.assert_array_equal(found, expected)


def test_two_outputs_of_a_run_of_a_row(gpu: FakeDriver | None) -> None:
    place = np.zeros_like(_X)
    with pytest.raises(errors.InvalidArgument, match="output z.*'y'"):
        list(_device_session().pipeline().map([_X], [(place, place)]))
