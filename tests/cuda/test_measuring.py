"""How long calls of libraries take, without a capture that others would notice."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sardonyx.api.providers import cuda_is_missing
from sardonyx.cuda import measuring
from sardonyx.cuda.driver import call
from tests.support.ptxas import ARCHITECTURES, assemble, with_ptxas

with_gpu = pytest.mark.skipif(bool(cuda_is_missing()), reason="there is no GPU with a driver")


@with_ptxas
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_ptxas_takes_the_pause(architecture: str) -> None:
    assert "Compiling entry function 'pause'" in assemble(measuring.PAUSE, architecture)


@with_gpu
@pytest.mark.parametrize("length_us", [20, 200, 2000])
def test_time_of_a_kernel(length_us: int) -> None:
    from sardonyx.cuda.device import device

    gpu = device(0)
    gpu.enter()
    kernel = measuring._pausing(gpu)
    stream = gpu.new_stream().handle

    def once() -> None:
        measuring._pause(kernel, length_us * 1000, stream)

    found = measuring.milliseconds(once, stream, gpu, 5)
    assert length_us <= found * 1000 < 1.2 * length_us + 15


@with_gpu
def test_others_may_wait_for_the_device_meanwhile() -> None:
    from sardonyx.cuda.device import device

    gpu = device(0)
    ended, errors = threading.Event(), list[Any]()

    def wait() -> None:
        gpu.enter()
        while not ended.is_set():
            try:
                call("cuCtxSynchronize")  # without the lock, as another library does
            except Exception as error:
                errors.append(error)
                return

    gpu.enter()
    kernel, stream = measuring._pausing(gpu), gpu.new_stream().handle
    thread = threading.Thread(target=wait)
    thread.start()
    for _ in range(50):
        measuring.milliseconds(lambda: measuring._pause(kernel, 5000, stream), stream, gpu)
    ended.set()
    thread.join()
    assert not errors
