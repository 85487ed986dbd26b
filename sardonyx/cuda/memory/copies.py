"""Streams of the copies between the host and a run: the run's own, or two others."""

from __future__ import annotations

from typing import Any

from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.memory import staging
from sardonyx.runtime.storage import Array


class Copies:
    """What of a frame's runs comes from the host, or goes there.

    With streams of their own, copies of one run overlap the work of others in the same stream; as
    onnxruntime has it with `do_copy_in_default_stream` = 0.

    Args:
        device: Where; None for copies in the streams of runs.
    """

    def __init__(self, device: Device | None = None) -> None:
        self._device = device
        self._incoming: Stream | None = None
        self._outgoing: Stream | None = None
        if device is not None:
            self._incoming, self._outgoing = device.lend_stream(), device.lend_stream()
        #: Whether results are on their way that nobody has waited for.
        self._is_pending = False

    def incoming(self, queue: Stream) -> Stream:
        """The stream in which feeds of a run in `queue` come: their memory is first used there."""
        return self._incoming or queue

    def bring(self, address: int, array: Array, queue: Stream) -> Any:
        """Copy a feed; what is in `queue` comes after it. Gives what must live until then."""
        stream = self.incoming(queue)
        kept = staging.upload(address, array, stream)
        if stream is not queue:
            queue.wait_for(stream.record())
        return kept

    def outgoing(self, queue: Stream) -> Stream:
        """The stream for results to be fetched in, which comes after what `queue` has by now."""
        if self._outgoing is None:
            return queue
        self._outgoing.wait_for(queue.record())
        self._is_pending = True
        return self._outgoing

    def join(self, queue: Stream) -> None:
        """Let what comes in `queue` wait for results that are on their way."""
        if self._is_pending and self._outgoing is not None:
            queue.wait_for(self._outgoing.record())
            self._is_pending = False

    def finish(self) -> None:
        """Wait, on the host, for results that are on their way."""
        if self._is_pending and self._outgoing is not None:
            self._outgoing.synchronize()
            self._is_pending = False

    def give_up(self) -> None:
        """Wait for all copies, after a run that failed: its memory is let go of."""
        for stream in (self._incoming, self._outgoing):
            if stream is not None:
                stream.synchronize()
        self._is_pending = False

    def close(self) -> None:
        """Others may have the streams."""
        for stream in (self._incoming, self._outgoing):
            if stream is not None and self._device is not None:
                self._device.take_back(stream)
        self._incoming = self._outgoing = None
