"""How long calls of libraries take, without a capture that others would notice."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from sardonyx.api.providers import cuda_is_missing
from sardonyx.cuda.driver import pausing
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.libraries import measuring
from sardonyx.cuda.memory import row_writer
from tests.support.ptxas import ARCHITECTURES, assemble, with_ptxas

with_gpu = pytest.mark.skipif(bool(cuda_is_missing()), reason="there is no GPU with a driver")


@with_ptxas
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_ptxas_takes_what_is_written_by_hand(architecture: str) -> None:
    kernels = {pausing.PTX: ("pause", "gate"), row_writer.PTX: ("write_rows",)}
    for text, names in kernels.items():
        told = assemble(text, architecture)
        assert all(f"Compiling entry function '{name}'" in told for name in names)


@with_gpu
@pytest.mark.parametrize("length_us", [20, 200, 2000])
def test_time_of_a_kernel(length_us: int) -> None:
    from sardonyx.cuda.driver.device import device

    gpu = device(0)
    gpu.enter()
    stream = gpu.new_stream().handle

    def once() -> None:
        pausing.pause(gpu, length_us * 1000, stream)

    found = measuring.milliseconds(once, stream, gpu, 5)
    assert length_us <= found * 1000 < 1.2 * length_us + 15


@with_gpu
def test_others_may_wait_for_the_device_meanwhile() -> None:
    from sardonyx.cuda.driver.device import device

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
    stream = gpu.new_stream().handle
    thread = threading.Thread(target=wait)
    thread.start()
    for _ in range(50):
        measuring.milliseconds(lambda: pausing.pause(gpu, 5000, stream), stream, gpu)
    ended.set()
    thread.join()
    assert not errors


@with_gpu
@pytest.mark.parametrize(("opened", "least_ms", "most_ms"), [(True, 0, 20), (False, 50, 90)])
def test_a_gate_opens_by_itself(opened: bool, least_ms: float, most_ms: float) -> None:
    """Somebody who waits for the whole device meanwhile is not what it waits for."""
    from sardonyx.cuda.driver.device import device
    from sardonyx.cuda.run.argument_table import PinnedWords

    gpu = device(0)
    gpu.enter()
    pausing.load(gpu)
    stream, words = gpu.new_stream().handle, PinnedWords(gpu, 2)
    taken = int(call("cuMemAlloc", 1024))
    began = time.perf_counter()
    pausing.gate(gpu, words.address, 50_000_000, stream)
    if opened:
        words.words[0] = 1
    call("cuMemFree", taken)  # waits for the device
    call("cuStreamSynchronize", stream)
    took = 1000 * (time.perf_counter() - began)
    assert least_ms <= took < most_ms
    assert int(words.words[1]) == (not opened)
