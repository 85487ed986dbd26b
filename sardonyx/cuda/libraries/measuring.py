"""How long calls of libraries take, on memory of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np

from sardonyx.cuda.driver import pausing
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.driver import bindings, call
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.storage import Array

_REPEATS, _MOST_REPEATS = 3, 8
#: The first pause is a guess; the next ones are twice as long as the host needed.
_FIRST_PAUSE_NS, _LONGEST_PAUSE_NS = 100_000, 2_000_000
#: How often something is called for one measurement.
CALLS = 10
#: So many random numbers are drawn; memory that holds more has them again and again.
_DRAWN = 250_007


class Loan:
    """Memory of the device for a measurement, given back when the block ends.

    Args:
        capturing: Held while the driver is asked: it may look at all streams then, which spoils
            the capture of a run.
    """

    def __init__(self, capturing: AbstractContextManager[Any]) -> None:
        self._taken: list[int] = []
        self._capturing = capturing

    def __enter__(self) -> Loan:
        return self

    def take(self, size_bytes: int, stream: Any, content: int = 0) -> int:
        """The address of so many bytes, all `content`."""
        with self._capturing:
            address = int(call("cuMemAlloc", max(1, size_bytes)))
            self._taken.append(address)
            call("cuMemsetD8Async", address, content, max(1, size_bytes), stream)
        return address

    def fill(self, address: int, count: int, dtype: np.dtype[Any], stream: Any) -> None:
        """Have random numbers from -1 to 1 in so many elements of lent memory."""
        numbers = drawn(count, dtype)
        size, done = dtype.itemsize, len(numbers)
        with self._capturing:
            call("cuMemcpyAsync", address, address_of(numbers), done * size, stream)
            while done < count:
                more = min(done, count - done)
                call("cuMemcpyAsync", address + done * size, address, more * size, stream)
                done += more
        call("cuStreamSynchronize", stream)

    def __exit__(self, *_: object) -> None:
        with self._capturing:
            for address in self._taken:
                call("cuMemFree", address)


@cache
def _all_drawn(dtype: np.dtype[Any]) -> Array:
    numbers = np.random.default_rng(0).uniform(-1, 1, _DRAWN).astype(dtype)
    numbers.flags.writeable = False
    return numbers


def drawn(count: int, dtype: np.dtype[Any]) -> Array:
    """The random numbers of which so many elements are full: as many, or fewer that repeat."""
    return _all_drawn(dtype)[:count]


def milliseconds(
    work: Callable[[], None], stream: Any, device: Device, calls: int = CALLS
) -> float:
    """The least time of a call, of some in a row: how long the host needs does not count.

    The device pauses until the host has sent all calls. A graph would do, too, but while something
    is captured the driver lets nobody wait for the whole device: another library of the process
    that does so, at any time, would get an error.
    """
    with device.measurement_gate.measurement():
        return _measured(work, stream, device, calls) / calls


def _measured(work: Callable[[], None], stream: Any, device: Device, calls: int) -> float:
    flags = bindings().CUevent_flags.CU_EVENT_DEFAULT.value
    first, last = (int(call("cuEventCreate", flags)) for _ in range(2))
    with device.capturing:
        pausing.load(device)
        work()  # loads what is loaded when it is first called
    call("cuStreamSynchronize", stream)
    good, any_times, pause_ns = list[float](), list[float](), _FIRST_PAUSE_NS
    while len(good) < _REPEATS and len(any_times) < _MOST_REPEATS:
        with device.capturing:
            began = time.perf_counter_ns()
            pausing.pause(device, pause_ns, stream)
            call("cuEventRecord", first, stream)
            for _ in range(calls):
                work()
            call("cuEventRecord", last, stream)
            sent_ns = time.perf_counter_ns() - began
        call("cuEventSynchronize", last)
        any_times.append(float(call("cuEventElapsedTime", first, last)))
        if sent_ns < pause_ns:  # all calls were there before the first began
            good.append(any_times[-1])
        pause_ns = min(2 * sent_ns, _LONGEST_PAUSE_NS)
    for event in (first, last):
        call("cuEventDestroy", event)
    return min(good or any_times)
