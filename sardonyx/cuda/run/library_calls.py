"""Commands that the host does on a device: calls of libraries, and numbers that it draws."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.libraries.libraries import CallPlace
from sardonyx.cuda.libraries.rehearsal import Rehearsal
from sardonyx.cuda.memory import staging
from sardonyx.cuda.run.device_state import DeviceState
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.plan.plan import Command
from sardonyx.runtime.host_calls import HostPlan


class LibraryCalls:
    """Does such commands of a plan.

    Args:
        state: What the plan has on the device.

    Attributes:
        undone: Commands that no library did when they were last done.
        draws: Whether the host draws keys of random numbers in each run.
    """

    def __init__(self, state: DeviceState) -> None:
        self._state, self._calls = state, state.calls
        self._host = HostPlan(state.plan) if state.plan.has_objects else None
        self.undone: set[int] = set()
        self.draws = self._host is not None

    @property
    def done(self) -> set[int]:
        """Commands that libraries did when they were last done."""
        return self._calls.keys() - self.undone

    def do(
        self,
        frame: CudaFrame,
        number: int,
        before_waiting: Callable[[], None] = lambda: None,
        *,
        early: bool = True,
    ) -> None:
        """Let a library do a command, or launch the kernel that does the same; or draw a key.

        Args:
            frame: The run's.
            number: The command's.
            before_waiting: Called before anything may wait for the stream.
            early: Whether a kernel may begin before the work in front of it has ended.
        """
        if number not in self._calls:
            before_waiting()
            self._draw(frame, number)
            return
        state = self._state
        library_call, first, last = self._calls[number]
        start = state.image.argument_places[number]
        words = frame.table("arguments")[start + first : start + last].tolist()

        def work_in(size_bytes: int) -> int:
            if size_bytes > frame.libraries.workspace_bytes:
                before_waiting()
            return frame.libraries.work_in(size_bytes, frame.queue)

        def rehearse() -> Rehearsal | None:
            return Rehearsal.of(frame, state.image, number, state.module)

        launches = frame.launches
        is_ready = partial(launches.is_ready, number)
        place = CallPlace(launches.queue.handle, work_in, rehearse, is_ready)
        if state.libraries.run(library_call, words, place):
            self.undone.discard(number)
        else:
            self.undone.add(number)
            launches.launch(number, early=early)
        frame.go_on(number + 1)

    def do_or_launch(self, frame: CudaFrame, number: int) -> None:
        """Do a command, whatever it is."""
        if number in self._calls:
            self.do(frame, number)
        else:
            frame.launches.launch(number)
            frame.go_on(number + 1)

    def _draw(self, frame: CudaFrame, number: int) -> None:
        """Have numbers on the device that only the host gives, in the order of the run."""
        command = self._state.plan.commands[number]
        assert isinstance(command, Command)  # noqa: S101 - steps have no calls
        assert self._host is not None  # noqa: S101 - a plan with such commands has one
        assert command.host is not None  # noqa: S101 - the provider takes no other
        found = self._host.function(number, command.host)()
        start, queue = self._state.image.argument_places[number], frame.launches.queue
        words = frame.table("arguments")[start : start + len(command.arguments)].tolist()
        for result, value in zip(command.host.results, (found,), strict=True):
            if result is not None:
                array = np.ascontiguousarray(value, result.dtype.stored)
                block = staging.pinned_copy(self._state.device, array, "a key")
                address = words[0] + words[1] * array.itemsize
                call("cuMemcpyAsync", address, block.address, array.nbytes, queue.handle)
                block.uses[queue] = queue.record()
        frame.go_on(number + 1)
