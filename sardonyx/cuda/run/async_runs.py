"""Runs of a device that somebody waits for later. Each has its frame until it is over."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

from sardonyx.cuda.driver.driver import bindings, call
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.cancel import CancelFlag

if TYPE_CHECKING:
    from sardonyx.cuda.run.frame_pool import CudaFrames


class CudaAsyncRun(AsyncRun):
    """See `AsyncRun`.

    Args:
        frames: Those of the executable.
        frame: The run's. No other run gets it before this one is over, so what it finds wrong is
            this one's.
        results: What it gives.
        cancel: Ends it early where it has loops of the device, and makes it an error.
    """

    def __init__(
        self,
        frames: CudaFrames,
        frame: CudaFrame,
        results: list[Any],
        cancel: CancelFlag | None = None,
    ) -> None:
        super().__init__(results)
        self._frames, self._frame, self._cancel = frames, frame, cancel
        self._is_finished = False

    @property
    def is_over(self) -> bool:
        """See `AsyncRun.is_over`."""
        cancel, is_mine = self._cancel, not self._is_finished
        if is_mine and cancel is not None and cancel.is_set and not self._frame.is_patient:
            self._frame.contexts.stop()
        busy = self._frame.busy
        return self._is_finished or busy is None or busy[1].is_over

    @property
    def needs_looks(self) -> bool:
        """See `AsyncRun.needs_looks`."""
        return self._cancel is not None and not self._frame.is_patient

    def close_when_over(self, descriptor: int) -> bool:
        """See `AsyncRun.close_when_over`."""
        busy = self._frame.busy
        if self.is_over or busy is None:
            return False
        with self._frames.state.device.entered():
            call("cuLaunchHostFunc", busy[0].handle, _closing(), descriptor)
        return True

    def finish(self) -> list[Any]:
        """See `AsyncRun.finish`."""
        if not self._is_finished:
            try:
                self._frame.wait()
                self._frame.busy = None
                self._frames.check_fault(self._frame, self._cancel)
            finally:
                self._give_frame_back()
            if self._cancel is not None and self._cancel.is_set:
                raise self._cancel.error("run")
        return self.results

    def _give_frame_back(self) -> None:
        if not self._is_finished:
            self._is_finished = True
            self._frames.free.append(self._frame)

    def __del__(self) -> None:
        # Whoever gets the frame next waits for its run if it must, and hears of its faults.
        if hasattr(self, "_is_finished"):
            self._give_frame_back()


@cache
def _closing() -> Any:
    """The C library's `close`, as the driver calls functions of the host: with one word."""
    address = ctypes.cast(ctypes.CDLL(None).close, ctypes.c_void_p).value
    return bindings().CUhostFn(address)
