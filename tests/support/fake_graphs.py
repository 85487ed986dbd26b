"""Captures and graphs of a driver whose device is the processor: graphs are lists of calls."""

# ruff: noqa: N802 - these are the driver's names

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.driver_types import GLOBAL, RELAXED, CUresult, in_a_context

NUMBERS = itertools.count(1000)
#: What graphs of conditional nodes may have in them.
_IN_NODES = ("launch", "copy", "set", "node")
#: What a condition is before a kernel has set it.
_UNSET = -7


@dataclass(eq=False)
class FakeGraphs:
    """What `FakeDriver` does of captures and graphs. Each function gives a code, then its results.

    Attributes:
        queues: The work of each stream that is still to be done.
        placed: How much work of each kind was put in each stream so far, captured or not.
        capture: What the stream that is captured now is kept in.
        captured: Which stream that is.
        captures: How many captures were begun.
        replays: Graphs launched.
        uncapturable: Calls that fail while a stream is captured.
        mode: What the stream that is captured now was begun in.
        is_broken: Whether something happened that the capture does not survive.
        rounds: How often conditional nodes did a graph of theirs.
    """

    queues: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    placed: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    graphs: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    capture: list[Callable[[], None]] | None = None
    captured: int = 0
    captures: int = 0
    replays: int = 0
    uncapturable: set[str] = field(default_factory=set)
    mode: int = 1
    is_broken: bool = False
    rounds: int = 0

    def __post_init__(self) -> None:
        #: Graphs of conditional nodes; conditions, whose names are addresses of their values; and
        #: what was captured when the capture to a node's graph began.
        self._bodies: dict[int, list[Callable[[], None]]] = {}
        self._conditions: dict[int, ctypes.c_int32] = {}
        self._outer: list[tuple[list[Callable[[], None]] | None, int, dict[int, bool]]] = []
        #: Other streams that are captured now, and whether what they do is waited for.
        self._forked: dict[int, bool] = {}
        self._modes = threading.local()
        #: Devices capture at once; here one after the other.
        self._one_captures = threading.Lock()
        #: User objects: what to call with what, once no graph refers to them.
        self._objects: dict[int, tuple[int, int]] = {}
        self._retained: dict[int, list[int]] = {}

    @in_a_context
    def do(self, what: str, work: Callable[[], Any], stream: int) -> Any:
        """Put work in a stream, or in the graph that it is captured to."""
        stream = self.queue_of(stream)
        self.placed[stream][what] += 1
        if self.capture is None or not self._takes(stream):
            self.queues.setdefault(stream, []).append(work)
        elif what in self.uncapturable or (self._outer and what not in _IN_NODES):
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        else:
            self.capture.append(work)
            if stream in self._forked:
                self._forked[stream] = False
        return (CUresult.CUDA_SUCCESS,)

    def _takes(self, stream: int) -> bool:
        """Whether a stream's work becomes part of a graph."""
        return self.capture is not None and (stream == self.captured or stream in self._forked)

    @in_a_context
    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> Any:
        assert self._one_captures.acquire(timeout=60), "a thread captures two streams at once"
        self.capture, self.captured, self.is_broken = [], int(stream), False
        self.mode = mode if isinstance(mode, int) else 1
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamEndCapture(self, stream: Any) -> Any:
        assert self.capture is not None
        if self._outer:  # to the graph of a node
            assert all(self._forked.values()), "a branch of a graph is never waited for"
            self.capture, self.captured, self._forked = self._outer.pop()
            return CUresult.CUDA_SUCCESS, 0
        self.is_broken |= not all(self._forked.values())
        self._forked = {}
        self.captures += 1
        number = self.captures
        self.graphs[number], self.capture = self.capture, None
        is_broken = self.is_broken
        self._one_captures.release()
        if is_broken:
            self.cuGraphDestroy(number)
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 0
        return CUresult.CUDA_SUCCESS, number

    def _is_unsafe(self) -> bool:
        """Whether this thread may not do now what could break a capture; then it has."""
        mode = getattr(self._modes, "now", GLOBAL)
        found = self.capture is not None and self.mode == GLOBAL and mode != RELAXED
        self.is_broken |= found
        return found

    def _broken(self, code: CUresult) -> Any:
        self.is_broken = True
        return (code,)

    def _cuStreamIsCapturing(self, stream: int | None, status: int) -> int:
        if not self.context:
            return int(CUresult.CUDA_ERROR_INVALID_CONTEXT)
        is_it = self.capture is not None and (stream or 0) == self.captured
        ctypes.c_int.from_address(status).value = is_it and (2 if self.is_broken else 1)
        return 0

    def _cuThreadExchangeStreamCaptureMode(self, mode: int) -> int:
        held = ctypes.c_int.from_address(mode)
        before = getattr(self._modes, "now", GLOBAL)
        self._modes.now, held.value = held.value, before
        return 0

    def _cuStreamGetCaptureInfo(
        self, stream: int, status: int, _: Any, graph: int, *__: Any
    ) -> int:
        ctypes.c_void_p.from_address(graph).value = self.captures + 1
        return self._cuStreamIsCapturing(stream, status)

    def _cuUserObjectCreate(self, made: int, given: int, function: int, *_: int) -> int:
        number = ctypes.c_void_p.from_address(made).value = next(NUMBERS)
        self._objects[number] = (function, given)
        return 0

    def _cuGraphRetainUserObject(self, graph: int, user_object: int, *_: int) -> int:
        self._retained.setdefault(graph, []).append(user_object)
        return 0

    def _released(self, graph: int) -> None:
        """A graph is gone; what only it retained is, too."""
        for number in self._retained.pop(graph, []):
            if not any(number in others for others in self._retained.values()):
                function, given = self._objects.pop(number)
                ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(given)

    def cuStreamGetCaptureInfo(self, stream: int) -> Any:
        assert self.capture is not None and self._takes(int(stream))
        graph = next((k for k, b in self._bodies.items() if b is self.capture), self.captures + 1)
        return CUresult.CUDA_SUCCESS, 1, 0, graph, ["node"] * 5, [None] * 5, 1

    def cuGraphConditionalHandleCreate(self, graph: int, *_: int) -> Any:
        made = ctypes.c_int32(_UNSET)
        address = ctypes.addressof(made)
        self._conditions[address] = made
        return CUresult.CUDA_SUCCESS, address

    def cuGraphAddNode(self, graph: int, before: Any, edges: Any, count: int, given: Any) -> Any:
        assert self.capture is not None and len(before) == len(edges) == count == 1
        wanted = given.conditional
        value, bodies = self._conditions[wanted.handle], []
        for _ in range(wanted.size):
            number = next(NUMBERS)
            bodies.append(self._bodies.setdefault(number, []))
            wanted.phGraph_out = [*getattr(wanted, "phGraph_out", ()), number]
        is_loop = "WHILE" in wanted.type.name

        def work() -> None:
            assert value.value != _UNSET, "a kernel sets a condition before a node asks for it"
            while True:
                side = 0 if value.value else 1
                if side < len(bodies):
                    self.rounds += 1
                    for inner in bodies[side]:
                        inner()
                if not (is_loop and value.value):
                    break
            value.value = _UNSET

        return self.do("node", work, self.captured) + ("node",)

    def cuStreamUpdateCaptureDependencies(
        self, stream: int, nodes: Any, edges: Any, count: int, flags: Any
    ) -> Any:
        assert nodes == ["node"] and edges is None and count == 1
        return (CUresult.CUDA_SUCCESS,)

    @in_a_context
    def cuStreamBeginCaptureToGraph(self, stream: int, graph: int, *_: Any) -> Any:
        assert int(stream) != self.captured
        self._outer.append((self.capture, self.captured, self._forked))
        self.capture, self.captured, self._forked = self._bodies[graph], int(stream), {}
        return (CUresult.CUDA_SUCCESS,)

    def cuGraphInstantiate(self, graph: int, flags: int) -> Any:
        self.graphs[-graph] = self.graphs[graph]
        self._retained[-graph] = list(self._retained.get(graph, []))
        return CUresult.CUDA_SUCCESS, -graph

    def cuGraphDestroy(self, graph: int) -> Any:
        del self.graphs[graph]
        self._released(graph)
        return (CUresult.CUDA_SUCCESS,)

    def cuGraphExecDestroy(self, graph: int) -> Any:
        if self._is_unsafe():
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        self.graphs.pop(graph, None)
        self._released(graph)
        return (CUresult.CUDA_SUCCESS,)

    @in_a_context
    def cuGraphLaunch(self, graph: int, stream: Any) -> Any:
        self.replays += 1
        for work in self.graphs[graph]:
            self.do("replay", work, stream)
        return (CUresult.CUDA_SUCCESS,)
