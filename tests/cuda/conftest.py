"""The driver of the tests here: NVIDIA's where there is a GPU, else one of the host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sardonyx.api.providers import cuda_is_missing
from sardonyx.base import errors
from sardonyx.cuda.libraries import cublaslt
from tests.support.fake_driver import FakeDriver
from tests.support.fake_provider import installed

_MISSING = cuda_is_missing()


@pytest.fixture(autouse=True)
def _runs_wait_for_products() -> Iterator[None]:
    """Tests look at what libraries did in first runs, however slow the machine is.

    The patch is its own: `monkeypatch` would be made before a test's driver then, undone after it,
    and put back what the driver had put in place.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cublaslt, "_TRIED_SECONDS", float("inf"))
        yield


@pytest.fixture
def gpu() -> Iterator[FakeDriver | None]:
    """A device: the real one (None), or one that is as lazy as a device may be."""
    if _MISSING:
        with installed() as driver:
            yield driver
    else:
        yield None


@pytest.fixture
def two_gpus() -> Iterator[FakeDriver | None]:
    """Two devices: real ones (None), or those of the driver of the host."""
    if _MISSING:
        with installed() as driver:
            driver.devices = 2
            yield driver
        return
    try:
        cuda_is_missing(1)
    except errors.InvalidArgument:
        pytest.skip("there is one GPU, whose driver is loaded already")
    yield None


@pytest.fixture
def lazy() -> Iterator[FakeDriver]:
    """The driver of the host, for tests that look at what it was asked to do."""
    if not _MISSING:
        pytest.skip("there is a GPU, whose driver is loaded already")
    with installed() as driver:
        yield driver
