"""How graphs are replayed: natively, since each call from Python costs as much as it does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.driver import RELAXED, failure
from sardonyx.cuda.run.argument_table import ArgumentTable
from sardonyx.cuda.run.launching import function_of_driver
from sardonyx.native.functions import library
from sardonyx.native.graph_replay import STEPS
from sardonyx.native.layout import FAULTY, NO_SOURCE, REPLAY, SENT, WRITE
from sardonyx.runtime.arena import address_of

_GRAPH, _STREAM, _WAITS, _UNSENT = (REPLAY[name] for name in ("graph", "stream", "waits", "unsent"))
_FUNCTIONS = dict(
    zip(
        STEPS[1:],
        (
            "cuCtxGetCurrent",
            "cuCtxSetCurrent",
            "cuThreadExchangeStreamCaptureMode",
            "cuMemcpyAsync",
            "cuGraphLaunch",
            "cuEventRecord",
            "cuStreamSynchronize",
        ),
        strict=True,
    )
)


class Replay:
    """A native record: what is replayed, and where feeds and results lie.

    Args:
        device: Where.
        table: What the device has of the arguments.
        fault: The address of the word in which kernels note faults.
        count: How many feeds and results there are.
        writes: Of arguments in them: the address of each, the number of what it lies in, and the
            bytes from there.

    Attributes:
        given: Where they lie, to be set before a replay.
    """

    __slots__ = ("_address", "_replay", "_rewrite", "_table", "_tables", "_words", "given")

    def __init__(
        self,
        device: Device,
        table: ArgumentTable,
        fault: int,
        count: int,
        writes: Sequence[tuple[int, int, int]],
    ) -> None:
        record = np.zeros(REPLAY.words, np.int64)
        addresses = np.zeros((2, max(1, count)), np.int64)
        rows = np.array(writes, np.int64).reshape(-1, WRITE.words)
        self._tables, self._table = (record, addresses, rows), table
        self._address = address_of(record)
        self._words, self.given = record.data, addresses[0].data
        values = {
            "context": device.context, "mode": RELAXED, "staging": table.staging, "fault": fault,
            "given": address_of(addresses), "known": address_of(addresses[1]), "count": count,
            "writes": address_of(rows), "write_count": len(rows),
            **{name: function_of_driver(function) for name, function in _FUNCTIONS.items()},
        }  # fmt: skip
        for name, value in values.items():
            self._words[REPLAY[name]] = value
        self._replay, self._rewrite = library().replay, library().rewrite

    def aim(self, graph: int, stream: int, waits: bool) -> None:
        """Have replays be those of a graph.

        Args:
            graph: The driver's handle of it.
            stream: Handle of the stream.
            waits: Whether to wait for all that is in the stream.
        """
        words = self._words
        words[_GRAPH], words[_STREAM], words[_WAITS] = graph, stream, waits

    def rewrite(self) -> bool:
        """Write arguments that lie elsewhere now; gives whether they are to be sent."""
        self._rewrite(self._address)
        return bool(self._words[_UNSENT])

    def go(self, event: int = 0) -> bool:
        """Enter the device, write and send arguments that lie elsewhere now, replay, wait.

        The event of that handle is recorded behind the graph, unless it is 0. Gives whether
        somebody waited and kernels have noted a fault.

        Raises:
            RuntimeException: The driver refuses, or a run before has failed.
        """
        state = self._replay(self._address, event)
        return self._after(state, event) if state else False

    def _after(self, state: int, event: int) -> bool:
        if state == NO_SOURCE:
            self._table.find_source()
            state = self._replay(self._address, event)
        if state & ~FAULTY:  # where a function failed, perhaps
            self._table.sent_others()
        if state & ~(SENT | FAULTY):
            raise failure(_FUNCTIONS[STEPS[state >> 32]], state & 0xFFFFFFFF)
        return bool(state & FAULTY)
