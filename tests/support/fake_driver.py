"""A driver whose device is the processor: kernels of the host, graphs that are lists of calls.

`fake_provider.installed()` puts it where `cuda.bindings.driver` is looked for. It is as lazy as a
driver may be: the work of a stream is done when somebody waits for it, or kept in a graph while the
stream is captured. What is freed is filled with nonsense first.
"""

# ruff: noqa: N802, N815 - these are the driver's names

from __future__ import annotations

import ctypes
import threading
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sardonyx.cuda.driver import pausing
from sardonyx.cuda.memory import row_writer
from sardonyx.kernel.language.context import FIELDS
from tests.support.driver_types import (
    DIRECT,
    ENTER,
    FETCH,
    GLOBAL,
    KERNEL,
    LAUNCH,
    REPLAY,
    WAIT,
    CUmemorytype,
    CUresult,
    Event,
    LaunchRecord,
    Names,
    in_a_context,
    signed,
)
from tests.support.fake_graphs import NUMBERS, FakeGraphs

#: So often somebody asks whether an event has happened, and it has: a device goes on by itself.
_PATIENCE = 20
#: Handles of streams from here on; those of NVIDIA's driver are addresses.
_FIRST_STREAM = 0x10000
#: Contexts of the devices from here on.
_FIRST_CONTEXT = 0x100


@dataclass(eq=False)  # each is itself alone, and may be a key
class FakeDriver(FakeGraphs):
    """The functions that the provider calls. Each gives a code, then its results.

    Attributes:
        memory: Blocks that are not freed, by address.
        slots: How many slots the kernel at an address has.
        launches: Kernels launched one by one.
        limit_bytes: How much memory the device has.
        goes_on: Whether work before a function of the host is done some time later by itself.
        copied: How many bytes were copied from one kind of memory to another: `host, device`.
        homes: The device of each block, and of each stream.
        opened: Devices whose context somebody has asked for.
        mapped: Addresses of blocks that are ranges of one memory, which was mapped piece by piece.
        knows_ranges: Whether the driver tells how far memory goes.
    """

    memory: dict[int, Any] = field(default_factory=dict)
    pinned: set[int] = field(default_factory=set)
    done: dict[int, int] = field(default_factory=dict)
    copied: dict[str, int] = field(default_factory=dict)
    events: dict[int, Event] = field(default_factory=dict)
    limit_bytes: int = 1 << 40
    devices: int = 1
    homes: dict[int, int] = field(default_factory=dict)
    opened: set[int] = field(default_factory=set)
    mapped: set[int] = field(default_factory=set)
    knows_ranges: bool = True
    interface: int = 13000
    slots: dict[int, int] = field(default_factory=dict)
    launches: int = 0
    fail_launch: int = 0
    goes_on: bool = True
    CUresult = CUresult
    CUmemorytype = CUmemorytype
    CUDA_MEMCPY2D = types.SimpleNamespace
    CUdevice_attribute = CUstream_flags = CUstreamCaptureMode = Names()
    CUgraphConditionalNodeType = CUgraphNodeType = CUdevice_attribute
    CUstreamUpdateCaptureDependencies_flags = CUdevice_attribute
    CUDA_CONDITIONAL_NODE_PARAMS = CUgraphNodeParams = types.SimpleNamespace
    CUevent_flags = CUpointer_attribute = CUdevice_attribute
    CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP = 1, 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._working = threading.RLock()
        self._entered = threading.local()
        self._direct = {
            name.encode(): ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(getattr(self, f"_{name}"))
            for name, kinds in DIRECT.items()
        }
        self._launch = LAUNCH(self._launched)
        self._fetch = FETCH(lambda t, s, n, q: int(self.cuMemcpyAsync(t, s, n, q or 0)[0]))
        self._wait = WAIT(lambda stream: int(self.cuStreamSynchronize(stream or 0)[0]))
        #: What native code calls besides.
        self._replaying = {
            b"cuCtxSetCurrent": ENTER(lambda context: int(self.cuCtxSetCurrent(context)[0])),
            b"cuThreadExchangeStreamCaptureMode": ENTER(self._cuThreadExchangeStreamCaptureMode),
            b"cuMemcpyAsync": self._fetch,
            b"cuEventRecord": REPLAY(
                lambda event, queue: int(self.cuEventRecord(event, queue or 0)[0])
            ),
            b"cuGraphLaunch": REPLAY(
                lambda graph, queue: int(self.cuGraphLaunch(signed(graph), queue or 0)[0])
            ),
        }

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *_: (CUresult.CUDA_SUCCESS,)

    def queue_of(self, stream: int) -> int:
        """By what a stream's work is known: each device has default streams of its own."""
        handle = int(stream)
        return handle + 16 * self._here if handle <= 2 and self.context else handle

    def cuDeviceGetCount(self) -> Any:
        return CUresult.CUDA_SUCCESS, self.devices

    def cuDeviceGet(self, number: int) -> Any:
        return CUresult.CUDA_SUCCESS, number

    @property
    def context(self) -> int:
        """What this thread has entered; 0 for nothing."""
        return int(getattr(self._entered, "context", 0))

    def cuDevicePrimaryCtxGetState(self, number: int) -> Any:
        return CUresult.CUDA_SUCCESS, 0, int(number in self.opened)

    @property
    def _here(self) -> int:
        """The device that this thread's calls mean."""
        assert self.context, "no device was entered"
        return self.context - _FIRST_CONTEXT

    def cuDevicePrimaryCtxRetain(self, number: int) -> Any:
        self.opened.add(number)
        return CUresult.CUDA_SUCCESS, _FIRST_CONTEXT + number

    def cuCtxSetCurrent(self, context: int | None) -> Any:
        self._entered.context = int(context or 0)
        return (CUresult.CUDA_SUCCESS,)

    def _cuCtxGetCurrent(self, place: int) -> int:
        ctypes.c_int64.from_address(place).value = self.context
        return 0

    def cuCtxGetDevice(self) -> Any:
        return CUresult.CUDA_SUCCESS, self._here

    def cuDeviceGetName(self, size: int, number: int) -> Any:
        return CUresult.CUDA_SUCCESS, b"processor\0"

    def cuDeviceGetAttribute(self, which: Any, number: int) -> Any:
        values = {"CAPABILITY_MAJOR": 9, "CAPABILITY_MINOR": 0, "PROCESSOR_COUNT": 3}
        return CUresult.CUDA_SUCCESS, next(v for k, v in values.items() if k in which.name)

    def cuGetErrorString(self, code: int) -> Any:
        return CUresult.CUDA_SUCCESS, b"as was asked for"

    @in_a_context
    def cuCtxGetStreamPriorityRange(self) -> Any:
        return CUresult.CUDA_SUCCESS, 0, -5

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> Any:
        assert priority == -5
        return self.cuStreamCreate(flags)

    @in_a_context
    def cuStreamCreate(self, flags: int) -> Any:
        handle = _FIRST_STREAM + len(self.queues)
        self.queues[handle], self.homes[handle] = [], self._here
        return CUresult.CUDA_SUCCESS, handle

    def cuStreamGetCtx(self, stream: int) -> Any:
        if int(stream) not in self.homes:
            return CUresult.CUDA_ERROR_INVALID_HANDLE, None
        return CUresult.CUDA_SUCCESS, _FIRST_CONTEXT + self.homes[int(stream)]

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> Any:
        own = {
            b"cuLaunchKernelEx": self._launch, b"cuStreamSynchronize": self._wait,
            b"cuMemcpyDtoHAsync": self._fetch,
        }  # fmt: skip
        found = {**self._direct, **self._replaying, **own}.get(name)
        if found is None:
            return CUresult.CUDA_ERROR_NOT_FOUND, 0, 1
        return CUresult.CUDA_SUCCESS, ctypes.cast(found, ctypes.c_void_p).value, 0

    # -- memory -------------------------------------------------------------------------------

    @in_a_context
    def cuMemAlloc(self, size: int, flags: int | None = None) -> Any:
        if self._is_unsafe():
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        if self._used() + size > self.limit_bytes and flags is None:
            return (CUresult.CUDA_ERROR_OUT_OF_MEMORY,)
        block = ctypes.create_string_buffer(size + 64)
        ctypes.memset(block, 0xCD, size + 64)
        address = ctypes.addressof(block) + 63 & -64
        self.memory[address], self.homes[address] = block, self._here
        return CUresult.CUDA_SUCCESS, address

    def cuMemHostAlloc(self, size: int, flags: int) -> Any:
        code, *found = self.cuMemAlloc(size, flags)
        if code:
            return (code,)
        address = found[0]
        self.pinned.add(address)
        return code, address

    def cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> Any:
        return self.do("set", lambda: ctypes.memset(address, value, size), stream)

    @in_a_context
    def cuMemFree(self, address: int) -> Any:
        if self._is_unsafe():
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        block = self.memory.pop(address, None)
        if block is None:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        self.pinned.discard(address)
        ctypes.memset(block, 0xAB, len(block))
        return (CUresult.CUDA_SUCCESS,)

    cuMemFreeHost = cuMemFree

    @in_a_context
    def cuMemGetInfo(self) -> Any:
        return CUresult.CUDA_SUCCESS, self.limit_bytes - self._used(), self.limit_bytes

    def _used(self) -> int:
        """How much memory of this thread's device is taken."""
        own = [a for a in self.memory if a not in self.pinned and self.homes[a] == self._here]
        return sum(len(self.memory[a]) - 64 for a in own)

    def _start(self, address: int) -> int | None:
        """Where the block begins that has an address."""
        found = (a for a, b in self.memory.items() if a <= address < a + len(b) - 64)
        return next(found, None)

    def _kind(self, address: int) -> str:
        start = self._start(address)
        return "host" if start is None else "pinned" if start in self.pinned else "device"

    def cuMemGetAddressRange(self, address: int) -> Any:
        start = self._start(address)
        if start is None or not self.knows_ranges:
            return CUresult.CUDA_ERROR_NOT_FOUND, None, None
        return CUresult.CUDA_SUCCESS, start, len(self.memory[start]) - 64

    def cuPointerGetAttribute(self, which: Any, address: int) -> Any:
        kind = self._kind(address)
        if kind == "host":
            return CUresult.CUDA_ERROR_INVALID_VALUE, None
        start = self._start(address)
        assert start is not None
        if "ORDINAL" in which.name:
            return CUresult.CUDA_SUCCESS, self.homes[start]
        if "LEGACY" in which.name:
            return CUresult.CUDA_SUCCESS, int(start not in self.mapped)
        return CUresult.CUDA_SUCCESS, CUmemorytype(1 if kind == "pinned" else 2)

    @in_a_context
    def cuMemcpy(self, target: int, source: int, size: int) -> Any:
        ctypes.memmove(target, source, size)
        return (CUresult.CUDA_SUCCESS,)

    def cuMemcpyAsync(self, target: int, source: int, size: int, stream: int) -> Any:
        kinds = self._kind(source), self._kind(target)
        name = ", ".join(kinds)
        self.copied[name] = self.copied.get(name, 0) + size
        if kinds[0] == "host":  # the driver takes such memory at once
            held = ctypes.string_at(source, size)
            return self.do("copy", lambda: ctypes.memmove(target, held, size), stream)
        code = self.do("copy", lambda: ctypes.memmove(target, source, size), stream)
        if kinds[1] == "host":
            self._run_stream(stream)
        return code

    def cuMemcpy2DAsync(self, given: Any, stream: int) -> Any:
        rows = [
            (given.dstDevice + k * given.dstPitch, given.srcDevice + k * given.srcPitch)
            for k in range(given.Height)
        ]

        name = f"{self._kind(given.srcDevice)}, {self._kind(given.dstDevice)}"
        self.copied[name] = self.copied.get(name, 0) + given.WidthInBytes * given.Height

        def work() -> None:
            for target, source in rows:
                ctypes.memmove(target, source, given.WidthInBytes)

        return self.do("copy", work, stream)

    # -- functions of the host ------------------------------------------------------------------

    @staticmethod
    def CUhostFn(address: int) -> int:
        return address

    def cuLaunchHostFunc(self, stream: int, function: int, given: int) -> Any:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
        done = self.do("function", lambda: call(given), stream)
        if self.goes_on:  # a device works whether or not anybody waits
            threading.Timer(0.02, self._run_stream, (int(stream),)).start()
        return done

    # -- streams and events -------------------------------------------------------------------

    def _run_stream(self, stream: int, upto: int | None = None) -> int:
        stream = self.queue_of(stream)
        if self.capture is not None and self.mode == GLOBAL:
            if stream == self.captured:
                return int(self._broken(CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)[0])
            if self._is_unsafe():
                return int(CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        with self._working:
            queue = self.queues.setdefault(stream, [])
            while queue and (upto is None or self.done.get(stream, 0) < upto):
                work = queue.pop(0)
                self.done[stream] = self.done.get(stream, 0) + 1
                work()
        return 0

    @in_a_context
    def cuStreamSynchronize(self, stream: int) -> Any:
        return (CUresult(self._run_stream(int(stream))),)

    @in_a_context
    def cuCtxSynchronize(self) -> Any:
        if self.capture is not None and self.mode == GLOBAL:
            return self._broken(CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        for stream in list(self.queues):
            self._run_stream(stream)
        return (CUresult.CUDA_SUCCESS,)

    @in_a_context
    def cuEventCreate(self, flags: int) -> Any:
        number = next(NUMBERS)
        self.events[number] = Event()
        return CUresult.CUDA_SUCCESS, number

    def cuEventDestroy(self, event: int) -> Any:
        self.events.pop(event, None)
        return (CUresult.CUDA_SUCCESS,)

    @in_a_context
    def cuEventRecord(self, event: int, stream: int) -> Any:
        held = self.events[event]
        held.stream, held.asked = self.queue_of(stream), 0
        held.is_captured = self._takes(held.stream)
        held.mark = self.done.get(held.stream, 0) + len(self.queues.setdefault(held.stream, []))
        return (CUresult.CUDA_SUCCESS,)

    def cuEventQuery(self, event: int) -> Any:
        held = self.events[event]
        if self._is_unsafe():
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        if held.is_captured:
            return (CUresult.CUDA_ERROR_CAPTURED_EVENT,)
        held.asked += 1
        if held.asked > _PATIENCE:
            self._wait_for(held)
        is_done = held.stream is None or self.done.get(held.stream, 0) >= held.mark
        return (CUresult.CUDA_SUCCESS if is_done else CUresult.CUDA_ERROR_NOT_READY,)

    def _wait_for(self, held: Event) -> None:
        if held.stream is not None:
            self._run_stream(held.stream, held.mark)

    @in_a_context
    def cuEventSynchronize(self, event: int) -> Any:
        if self._is_unsafe() or self.events[event].is_captured:
            return self._broken(CUresult.CUDA_ERROR_CAPTURED_EVENT)
        self._wait_for(self.events[event])
        return (CUresult.CUDA_SUCCESS,)

    def cuEventElapsedTime(self, first: int, last: int) -> Any:
        assert isinstance(first, int)
        assert isinstance(last, int)
        return CUresult.CUDA_SUCCESS, 1.5

    @in_a_context
    def cuModuleLoadData(self, text: bytes) -> Any:
        known = [ptx.encode() + b"\0" for ptx in (pausing.PTX, row_writer.PTX)]
        assert text in known, "there are other kernels of the host"
        return CUresult.CUDA_SUCCESS, 1

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        return CUresult.CUDA_SUCCESS, name.decode()

    @in_a_context
    def cuModuleUnload(self, module: int) -> Any:
        return (CUresult.CUDA_SUCCESS,)

    def cuLaunchKernel(self, kernel: str, *more: int) -> Any:
        *shape, shared, stream, parameters, extra = more
        if kernel == "write_rows":
            return self._write_rows(parameters, stream)
        assert (shape, shared, extra) == ([1] * 6, 0, 0)
        if kernel == "pause":
            return self.do("pause", lambda: None, stream)
        place = ctypes.c_void_p.from_address(parameters).value
        words = (ctypes.c_int64 * 2).from_address(ctypes.c_int64.from_address(place or 0).value)

        def work() -> None:
            words[1] = int(words[0] == 0)  # nobody opens it: its time is over

        return self.do("gate", work, stream)

    def _write_rows(self, parameters: int, stream: int) -> Any:
        places = (ctypes.c_void_p * 9).from_address(parameters)
        to, from_, width, rows, count, *steps = (
            ctypes.c_int64.from_address(place).value for place in places
        )
        target, source = (steps[0], steps[2]), (steps[1], steps[3])

        def work() -> None:
            for number in range(count):
                row, block = number % rows, number // rows
                offsets = [row * step + block * skip for step, skip in (target, source)]
                ctypes.memmove(to + offsets[0], from_ + offsets[1], width)

        return self.do("write", work, stream)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> Any:
        is_strict = self._takes(int(stream)) and self.mode == GLOBAL
        if is_strict and not self.events[event].is_captured:
            return self._broken(CUresult.CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        before = self.events[event]
        if before.is_captured and self.capture is not None and before.stream is not None:
            if int(stream) != self.captured:
                self._forked.setdefault(int(stream), False)
            if before.stream in self._forked:
                self._forked[before.stream] = True
            return (CUresult.CUDA_SUCCESS,)
        held = Event()
        held.stream, held.mark = self.events[event].stream, self.events[event].mark
        return self.do("wait", lambda: self._wait_for(held), stream)

    def cuCtxRecordEvent(self, context: int, event: int) -> Any:
        return (CUresult.CUDA_ERROR_INVALID_VALUE,)

    # -- launches -----------------------------------------------------------------------------

    def cuDriverGetVersion(self) -> Any:
        return CUresult.CUDA_SUCCESS, self.interface

    def _launched(self, record: int, function: int, parameters: int, extra: int | None) -> int:
        if self.fail_launch:
            return self.fail_launch
        launch = LaunchRecord.from_address(record)
        assert (*launch.grid[1:], *launch.block) == (1, 1, 32, 4, 1)
        assert launch.grid[0] > 0 and launch.shared == 0 and launch.count in (0, 1)
        if self.homes.get(launch.stream or 0, self._here) != self._here:
            return int(CUresult.CUDA_ERROR_INVALID_HANDLE)
        count = self.slots[function] + 3
        addresses = (ctypes.c_void_p * count).from_address(parameters)
        words = [ctypes.c_int64.from_address(a).value for a in addresses]
        self.launches += self.capture is None
        code, *_ = self.do("launch", lambda: self._run(function, words), launch.stream or 0)
        return int(code)

    def _run(self, function: int, words: Sequence[int]) -> None:
        *slots, blocks, context, table = words
        if table:
            given = (ctypes.c_int64 * (len(slots) + 1)).from_address(table)
            blocks, slots = given[0], list(given[1:])
        held = (ctypes.c_int64 * max(1, len(slots)))(*slots)
        # The kernel is one of the processor's: see `native.walk.forget_kept`.
        if ctypes.c_int64.from_address(context + FIELDS["scratch_bytes"]).value:
            scratch = ctypes.c_int64.from_address(context + FIELDS["scratch"]).value
            ctypes.c_int64.from_address(scratch).value = 0
        KERNEL(function)(ctypes.addressof(held), 0, blocks, context)
