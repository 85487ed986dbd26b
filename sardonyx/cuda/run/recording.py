"""Runs on a device whose kernels are timed for a profile, by the device itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sardonyx.cuda.run.timing import TIMES, Times, measured
from sardonyx.runtime.recording import DeviceSpan, RecordedExecutable, RunTrace, Sink
from sardonyx.runtime.try_run import TryRun, never

if TYPE_CHECKING:
    from sardonyx.cuda.run.executable import CudaExecutable
    from sardonyx.store.model_record import ModelRecord

_NO_GRAPH = (
    "on the GPU: profiled runs are no CUDA graphs, each kernel is launched and timed by itself, and"
    " the rest of a run is the host's launches; other runs take less"
)


class CudaRecorder:
    """See `runtime.recording.RunRecorder`; runs of the fast path could not be measured.

    Args:
        base: What runs.
        record: What else is known of the model.
        sink: Gets the traces.
    """

    def __init__(self, base: CudaExecutable, record: ModelRecord, sink: Sink) -> None:
        self._plan, self._frames = base.plan, base.frames
        self._record, self._sink = record, sink
        self.try_run: TryRun = never

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Measure the run, which is over when its call is, and no graph: see `timing`."""
        trace = RunTrace(self._plan, self._record, time.perf_counter_ns())
        outer = TIMES.get()
        with measured() as times:
            try:
                yield
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
                frames = self._frames
                trace.sizes, trace.arena_bytes = frames.sizes, frames.arena_bytes
                if outer is not None:
                    outer.kernels += times.kernels
                    outer.late += times.late
                self._sink.take(trace)

    def flush(self) -> None:
        """See `RunRecorder.flush`: the sink has all runs."""


def recorded(base: CudaExecutable, record: ModelRecord, sink: Sink) -> RecordedExecutable:
    """What runs the plan of an executable, and gives `sink` a trace of each run."""
    return RecordedExecutable(base, CudaRecorder(base, record, sink))


def _remark(times: Times) -> str:
    if times.late:
        return f"{_NO_GRAPH}; this one's kernels waited for the host, which another thread kept"
    return _NO_GRAPH
