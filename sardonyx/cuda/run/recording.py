"""Runs on a device whose kernels are timed for a profile, by the device itself."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence
from typing import Any

from sardonyx.cuda.run.executable import CudaExecutable
from sardonyx.cuda.run.frame import CudaFrame
from sardonyx.cuda.run.timing import TIMES, Times, measured
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.recording import DeviceSpan, RunTrace, Sink
from sardonyx.runtime.storage import OutputPlacement
from sardonyx.store.model_record import ModelRecord

_NO_GRAPH = (
    "on the GPU: profiled runs are no CUDA graphs, each kernel is launched and timed by itself, and"
    " the rest of a run is the host's launches; other runs take less"
)


class RecordedCudaExecutable(CudaExecutable):
    """As another executable, whose frames and memory it uses; see `of`.

    A run is over when its call is, and no graph: see `timing`.
    """

    _record: ModelRecord
    _sink: Sink

    @staticmethod
    def of(base: CudaExecutable, record: ModelRecord, sink: Sink) -> RecordedCudaExecutable:
        """What runs the same plan, and gives `sink` a trace of each run."""
        made = copy.copy(base)
        made.__class__ = RecordedCudaExecutable
        assert isinstance(made, RecordedCudaExecutable)  # noqa: S101 - narrows the type
        made._record, made._sink = record, sink
        return made

    def run_to(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> list[Any]:
        """See `Executable.run_to`."""
        trace = RunTrace(self.plan, self._record, time.perf_counter_ns())
        outer = TIMES.get()
        with measured() as times:
            try:
                return super().run_to(feeds, wanted, cancel)
            except BaseException as error:
                trace.error = f"{type(error).__name__}: {error}"
                raise
            finally:
                trace.ended_ns = time.perf_counter_ns()
                trace.device = [
                    DeviceSpan(k.command, k.kernel, k.start_ns, k.duration_ns)
                    for k in times.kernels
                ]
                trace.remark = _remark(times)
                trace.thread = threading.get_ident(), threading.get_native_id()
                trace.sizes, trace.arena_bytes = self.sizes, self.arena_bytes
                if outer is not None:
                    outer.kernels += times.kernels
                    outer.late += times.late
                self._sink.take(trace)

    def run_alike(
        self,
        feeds: Sequence[Any],
        targets: Sequence[Any] | None = None,
        end: int = 0,
        kept: list[CudaFrame] | None = None,
    ) -> list[Any] | None:
        """See `Executable.run_alike`; such a run could not be measured."""
        return None

    @property
    def is_asynchronous(self) -> bool:
        """No: the host waits for what is measured."""
        return False

    def start(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> AsyncRun:
        """See `Executable.start`; the run is over afterwards."""
        return AsyncRun(self.run_to(feeds, wanted, cancel))


def _remark(times: Times) -> str:
    if times.late:
        return f"{_NO_GRAPH}; this one's kernels waited for the host, which another thread kept"
    return _NO_GRAPH
