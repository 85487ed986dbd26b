"""The examples run, on the processor and on a device, and copy what they say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples import decode_loop, denoise, from_cpp, tiles
from sardonyx.api.providers import cuda_is_missing
from tests.support.fake_driver import FakeDriver
from tests.support.fake_provider import installed

_MISSING = cuda_is_missing()


@pytest.fixture(params=["device", "processor"])
def driver(request: pytest.FixtureRequest) -> Iterator[FakeDriver | None]:
    """A device of some kind, or none."""
    if request.param == "processor":
        if not _MISSING:
            pytest.skip("there is a GPU, and the examples take it")
        yield None
    elif _MISSING:
        with installed() as fake:
            yield fake
    else:
        yield None


def _says_what_is_copied(text: str, device: str) -> None:
    """Bytes where there is a device; without one that no copy is saved."""
    assert ("bytes copied" in text) == (device == "cuda")
    assert ("no copy is saved" in text) == (device == "cpu")


def test_decode_loop(driver: FakeDriver | None) -> None:
    found = decode_loop.run(steps=12, room=4)
    assert len(found["tokens"]) == 12
    _says_what_is_copied(decode_loop.told(found), found["device"])
    if driver is None:
        return
    assert found["device"] == "cuda"
    session = decode_loop.session_of(*decode_loop.model())
    cache = decode_loop.Cache(session, 4)
    cache.start(7)
    assert cache.step() == found["tokens"][0]
    before = dict(driver.copied)
    assert cache.step() == found["tokens"][1]
    copied = {k: n - before.get(k, 0) for k, n in driver.copied.items() if n != before.get(k, 0)}
    assert copied.pop("device, pinned") == found["bytes per step"]
    assert not {k for k in copied if "host" in k or k == "device, device"}


def test_denoise(driver: FakeDriver | None) -> None:
    found = denoise.run(size=8, channels=4, steps=3)
    assert found["difference"] < 1e-3
    assert found["bytes"] < found["bytes, NumPy"]
    _says_what_is_copied(denoise.told(found), found["device"])


def test_tiles(driver: FakeDriver | None) -> None:
    found = tiles.run(height=32, width=32, tile=16)
    assert found["tiles"] == 4
    assert found["difference"] < 1e-3
    assert ("copy in" in found) == (driver is not None or not _MISSING)


def test_from_cpp(driver: FakeDriver | None) -> None:
    found = from_cpp.run(steps=4)
    assert found["difference"] < 1e-6
    if driver is None:
        return
    assert found["device"] == "cuda"
    # Noise and latents to the device, the result back: between steps nothing is copied.
    noise, latents = 4 * 64 * 64 * 4, 4 * 64 * 64 * 2
    assert driver.copied.keys() == {"pinned, device", "device, pinned"}
    assert driver.copied["device, pinned"] == noise
    assert driver.copied["pinned, device"] < noise + latents + 8192  # arguments and weights
