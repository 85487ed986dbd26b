"""The frames of an executable on a device, whose runs may be under way while nobody has them."""

from __future__ import annotations

import contextlib

from sardonyx.base.errors import SardonyxError
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.run.device_state import DeviceState
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.plan.control_flow import fault_of_control
from sardonyx.runtime import refusals
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.frame_pool import FramePool


class CudaFrames(FramePool[CudaFrame]):
    """See `FramePool`.

    Args:
        state: What the plan has on the device; it is kept until no run of a frame is under way.
    """

    def __init__(self, state: DeviceState) -> None:
        super().__init__(lambda: CudaFrame(state), state.image.tape.symbols)
        self.state = state

    def take_for(self, queue: Stream | None) -> CudaFrame:
        """A frame whose next run need not wait for one in another stream; None: its own."""
        for _ in range(len(self.free)):
            try:
                frame = self.free.pop()
            except IndexError:  # another thread had it
                break
            if frame.may_run_in(queue):
                return frame
            self.free.insert(0, frame)
        made = self.make()
        self.held.append(made)
        return made

    def trim(self) -> None:
        """See `Executable.trim`; waits for what is under way in these frames."""
        self._drop()
        self.state.memory.arena.trim()

    def _drop(self) -> None:
        faulty = []
        while True:
            try:
                frame = self.free.pop()
            except IndexError:
                break
            frame.wait()
            if (
                frame.contexts.has_fault
            ):  # of a run for which nobody waited: somebody must hear of it
                faulty.append(frame)
            else:
                self.held.remove(frame)
        self.free += faulty

    def __del__(self) -> None:
        # Kernels may be under way that read the weights, and memory that frames have.
        with contextlib.suppress(SardonyxError, ImportError, AttributeError, TypeError):
            for frame in self.held:
                frame.wait()

    def settle(self) -> None:
        """See `Executable.settle`."""
        for frame in list(self.held):
            frame.wait()
            try:
                self.free.remove(frame)
            except ValueError:  # another run has it, which looks for faults itself
                continue
            try:
                frame.busy = None
                self.check_fault(frame, None)
            finally:
                self.free.append(frame)

    def check_fault(self, frame: CudaFrame, cancel: CancelFlag | None) -> None:
        """After a run has happened.

        Raises:
            RuntimeException: A kernel met data that it cannot work on.
        """
        fault = frame.contexts.take_fault()
        if fault is not None:
            code, *rest = fault
            state = self.state
            if fault_of_control(code)[0]:
                raise refusals.control_fault(code, rest[1], rest[2], frame, state.image)
            for name, value in zip(("command", "a", "b", "c"), rest, strict=True):
                frame.note_fault(name, value)
            raise refusals.fault(code, frame, state.plan, cancel)

    def forget_runs(self, number: int) -> None:
        """Forget the graphs that runs with a number captured."""
        for frame in list(self.held):
            frame.graphs.release(number)
            frame.last_run = None
