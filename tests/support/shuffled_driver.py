"""The driver of the host as a device whose streams go on when they like, as far as events allow.

Whenever anything is asked of the driver, some streams do some of their work: now and then none, now
and then all. A copy happens in two halves, and reads what lies there when its turn comes: memory of
the host that was overwritten too early shows in results. What is freed is nonsense at once.
"""

# ruff: noqa: N802, N815 - these are the driver's names

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.support.driver_types import CUresult
from tests.support.fake_driver import FakeDriver

#: How fast a stream goes on: most are drawn as one of these, again and again.
_SPEEDS = (0.0, 0.0, 0.02, 0.3, 1.0)
#: After so many calls the speeds of all streams are drawn again, on average.
_MOOD_CALLS = 40


class _Wait:
    """A stream waits here for a point of another one."""

    def __init__(self, stream: int, mark: int) -> None:
        self.stream, self.mark = stream, mark

    def __call__(self) -> None:
        """Nothing is to be done."""


class ShuffledDriver(FakeDriver):
    """See the module.

    Attributes:
        random: Decides who goes on.
        interrupt: Called now and then, when the driver is asked for something that runs ask for.
    """

    random: random.Random
    interrupt: Callable[[], None] | None

    def start(self, seed: int) -> None:
        """Go on at random from now on."""
        self.random, self.interrupt = random.Random(seed), None
        self._speeds: dict[int, float] = {}
        self._is_going = False

    def _shuffle(self) -> None:
        if not hasattr(self, "random"):
            return
        with self._working:
            if self._is_going or self.capture is not None:
                return
            self._is_going = True
            try:
                if self.random.random() * _MOOD_CALLS < 1:
                    self._speeds.clear()
                for stream in self.random.sample(list(self.queues), len(self.queues)):
                    speed = self._speeds.setdefault(stream, self.random.choice(_SPEEDS))
                    while self.random.random() < speed and self._step(stream):
                        pass
            finally:
                self._is_going = False
            if self.interrupt is not None:
                self.interrupt()

    def _step(self, stream: int) -> bool:
        """Do the next work of a stream; False if there is none, or it waits."""
        queue = self.queues.get(stream)
        if not queue:
            return False
        work: Any = queue[0]
        if isinstance(work, _Wait) and self.done.get(work.stream, 0) < work.mark:
            return False
        work()
        del queue[0]
        self.done[stream] = self.done.get(stream, 0) + 1
        return True

    def _run_stream(self, stream: int, upto: int | None = None) -> int:
        if self.capture is not None and self.mode == 0:
            return super()._run_stream(stream, upto)
        with self._working:
            while self.queues.get(stream) and (upto is None or self.done.get(stream, 0) < upto):
                if not self._step(stream):
                    work: Any = self.queues[stream][0]
                    self._run_stream(work.stream, work.mark)
        return 0

    def do(self, what: str, work: Callable[[], Any], stream: int) -> Any:
        self._shuffle()
        with self._working:
            return super().do(what, work, stream)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> Any:
        held = self.events[event]
        if self.capture is not None or held.stream is None:
            return super().cuStreamWaitEvent(stream, event, flags)
        return self.do("wait", _Wait(held.stream, held.mark), stream)

    def cuMemcpyAsync(self, target: int, source: int, size: int, stream: int) -> Any:
        half = size // 2
        if half and self.capture is None:
            super().cuMemcpyAsync(target, source, half, stream)
        else:
            half = 0
        return super().cuMemcpyAsync(target + half, source + half, size - half, stream)

    def cuEventRecord(self, event: int, stream: int) -> Any:
        self._shuffle()
        with self._working:
            return super().cuEventRecord(event, stream)

    def cuEventQuery(self, event: int) -> Any:
        self._shuffle()
        return super().cuEventQuery(event)

    def cuMemFree(self, address: int) -> Any:
        if hasattr(self, "random") and self.capture is None:  # it waits for the device
            self.cuCtxSynchronize()
        return super().cuMemFree(address)

    cuMemFreeHost = cuMemFree

    def cuCtxSynchronize(self) -> Any:
        for stream in list(self.queues):
            self._run_stream(stream)
        return (CUresult.CUDA_SUCCESS,)
