"""Runs whose feeds come, and whose results go, in streams of their own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.cuda.driver.device import on_device
from sardonyx.cuda.driver.stream import Event
from sardonyx.cuda.memory import staging
from sardonyx.cuda.memory.rectangles import copy_rectangles
from sardonyx.cuda.memory.row_writer import rows_of, write_rows
from sardonyx.cuda.memory.values import CudaArray, CudaMemory
from sardonyx.runtime import arrays
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.storage import Array, DeviceArray, OutputPlacement, Tensor, fitted

if TYPE_CHECKING:
    from sardonyx.plan.plan import InputSpec
    from sardonyx.runtime.engine import Engine

#: How often a flag is looked at for loops of the device.
_LOOK_SECONDS = 2e-4


class CopyStreams:
    """Two streams of copies beside those of runs; events order the three.

    Args:
        memory: Where runs have their feeds and results.
    """

    def __init__(self, memory: CudaMemory) -> None:
        self._memory, self.device = memory, memory.device
        self._incoming, self._outgoing = (memory.device.lend_stream() for _ in range(2))

    @on_device
    def close(self) -> None:
        """Give the streams back, when what is under way in them has happened."""
        for stream in (self._incoming, self._outgoing):
            stream.synchronize()
            stream.forget()
            self.device.take_back(stream)

    @on_device
    def start(
        self,
        engine: Engine,
        feeds: list[Any],
        targets: list[Tensor | None],
        cancel: CancelFlag | None = None,
    ) -> AsyncRun:
        """Begin a run.

        Args:
            engine: What runs.
            feeds: Its feeds, in order.
            targets: For each output memory, wherever it lies; None for a new array of the host.
            cancel: Ends the run early where it has loops of the device.
        """
        specs = engine.executable.plan.inputs
        rows = zip(feeds, specs, strict=True)
        brought = [self._bring(f, s) if isinstance(f, np.ndarray) else f for f, s in rows]
        places = [t if isinstance(t, DeviceArray) else self._memory for t in targets]
        started = engine.start(brought, OutputPlacement(places, waits=False), cancel)
        names = [info.name for info in engine.outputs]
        rows_out = zip(names, started.results, targets, strict=True)
        found = [self._fetch(name, source, target) for name, source, target in rows_out]
        return _CopiedRun(started, brought, found, self._outgoing.record())

    def _bring(self, feed: Array, spec: InputSpec) -> CudaArray:
        """A feed on the device, when the stream of copies has come so far."""
        stream = self._incoming
        if not (feed.dtype == spec.dtype.stored and staging.lies_in_rows(feed)):
            feed = arrays.plain(feed, spec)
        made = self._memory.empty(feed.shape, feed.dtype, f"input {spec.name}", stream)
        kept = staging.upload(made.address, feed, stream)
        event = stream.record()
        made.used_until(stream, event, is_written=True)
        stream.keep(event, kept)
        return made

    def _fetch(self, name: str, source: Any, target: Tensor | None) -> Any:
        """A result where it is wanted, when the stream of copies has come so far."""
        if not isinstance(source, CudaArray):
            return source
        stream = self._outgoing
        source.ready_in(stream)
        if isinstance(target, DeviceArray):
            return source
        if target is None:
            found = staging.fetched(source.address, source.shape, source.dtype, stream)
        else:
            fit = fitted(name, target, source.shape, source.dtype)
            assert isinstance(fit, np.ndarray)  # noqa: S101 - the target is one
            self._write(source, fit)
            found = fit
        event = stream.record()
        source.used_until(stream, event)
        stream.keep(event, found, source)
        return found

    def _write(self, source: CudaArray, target: Array) -> None:
        """Copy a result to an array, in the stream of copies; a kernel takes its part of rows."""
        stream, dense = self._outgoing, staging.dense_steps(target)
        is_part = not target.flags.c_contiguous and staging.lies_in_rows(target)
        rows = rows_of(target, dense) if is_part else None
        if rows is None:
            staging.download(source.address, target, stream)
            return
        writing = self.device.urgent
        # The copies before may write to the same memory.
        writing.wait_for(stream.record())
        write_rows(self.device, rows, source.address, writing.handle)
        rest = target[(slice(None),) * rows.axis + (slice(rows.rows, None),)]
        if rest.size:
            start = source.address + rows.rows * rows.source_step
            copy_rectangles(
                address_of(rest), rest.strides, start, dense, rest.shape, rest.itemsize,
                stream.handle,
            )  # fmt: skip
        stream.wait_for(writing.record())


class _CopiedRun(AsyncRun):
    """A run with the copies before and after it.

    Args:
        started: The run.
        feeds: What was brought for it: until it is over, no other feed gets this memory.
        results: What it gives, on the host.
        event: The end of the copies.
    """

    def __init__(
        self, started: AsyncRun, feeds: list[Any], results: list[Any], event: Event
    ) -> None:
        super().__init__(results)
        self._started, self._feeds, self._event = started, feeds, event

    @property
    def is_over(self) -> bool:
        """See `AsyncRun.is_over`."""
        return self._event.is_over

    def finish(self) -> list[Any]:
        """See `AsyncRun.finish`."""
        while self._started.needs_looks and not self._started.is_over:
            time.sleep(_LOOK_SECONDS)
        self._event.synchronize()
        self._started.finish()
        self._started.results = []  # memory of the device
        self._feeds = []
        return self.results
