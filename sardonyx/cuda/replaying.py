"""How graphs are replayed: natively, since each call from Python costs as much as it does."""

from __future__ import annotations

import numpy as np

from sardonyx.cuda.device import Device
from sardonyx.cuda.driver import RELAXED, failure
from sardonyx.cuda.launching import function_of_driver
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.library import library
from sardonyx.runtime.native_layout import REPLAY
from sardonyx.runtime.native_replay import STEPS

_TARGET, _SOURCE, _BYTES, _GRAPH, _STREAM, _WAITS = (
    REPLAY[name] for name in ("target", "source", "bytes", "graph", "stream", "waits")
)
_FUNCTIONS = dict(
    zip(
        STEPS,
        (
            "cuCtxGetCurrent",
            "cuCtxSetCurrent",
            "cuThreadExchangeStreamCaptureMode",
            "cuMemcpyAsync",
            "cuGraphLaunch",
            "cuStreamSynchronize",
        ),
        strict=True,
    )
)


class Replays:
    """Those of one frame.

    Args:
        device: Where.
    """

    __slots__ = ("_address", "_replay", "_table", "_words")

    def __init__(self, device: Device) -> None:
        self._table = np.zeros(REPLAY.words, np.int64)
        self._address = address_of(self._table)
        self._words = self._table.data
        self._words[REPLAY["context"]], self._words[REPLAY["mode"]] = device.context, RELAXED
        for name, function in _FUNCTIONS.items():
            self._words[REPLAY[name]] = function_of_driver(function)
        self._replay = library().replay

    def go(
        self, graph: int, stream: int, waits: bool, sent: tuple[int, int, int] = (0, 0, 0)
    ) -> None:
        """Enter the device, send arguments, replay a graph, and wait for it if that is wanted.

        Args:
            graph: The driver's handle of it.
            stream: Handle of the stream.
            waits: Whether to wait for all that is in the stream.
            sent: Where the arguments go and come from, and how many bytes they are.

        Raises:
            RuntimeException: The driver refuses, or a run before has failed.
        """
        words = self._words
        words[_TARGET], words[_SOURCE], words[_BYTES] = sent
        words[_GRAPH], words[_STREAM], words[_WAITS] = graph, stream, waits
        code = self._replay(self._address)
        if code:
            raise failure(_FUNCTIONS[STEPS[code >> 32]], code & 0xFFFFFFFF)
