"""How long calls of libraries take, on memory of their own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from sardonyx.cuda.driver import bindings, call
from sardonyx.cuda.graphs import Graph

_REPEATS = 3
#: How often something is called for one measurement.
CALLS = 10


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

    def __exit__(self, *_: object) -> None:
        with self._capturing:
            for address in self._taken:
                call("cuMemFree", address)


def milliseconds(
    work: Callable[[], None],
    stream: Any,
    capturing: AbstractContextManager[Any],
    calls: int = CALLS,
) -> float:
    """The least time of a call, of some in a graph: how long the host needs does not count."""
    flags = bindings().CUevent_flags.CU_EVENT_DEFAULT.value
    first, last = (int(call("cuEventCreate", flags)) for _ in range(2))

    def record() -> None:
        for _ in range(calls):
            work()

    with capturing:
        work()  # loads what is loaded when it is first called
        graph = Graph(stream, record)
    best = float("inf")
    for _ in range(_REPEATS):
        call("cuEventRecord", first, stream)
        graph.launch(stream)
        call("cuEventRecord", last, stream)
        call("cuEventSynchronize", last)
        best = min(best, float(call("cuEventElapsedTime", first, last)))
    for event in (first, last):
        call("cuEventDestroy", event)
    return best / calls
