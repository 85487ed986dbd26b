"""A driver whose device is the processor: kernels of the host, graphs that are lists of calls.

`installed()` puts it where `cuda.bindings.driver` is looked for. Work is done at once, in order, or
kept in a graph while a stream is captured. What is freed is filled with nonsense first.
"""

# ruff: noqa: N802, N815 - these are the driver's names

from __future__ import annotations

import ctypes
import enum
import gc
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sardonyx.base.forks import compiling
from sardonyx.codegen.target import host_target
from sardonyx.cuda import device, driver, launching
from sardonyx.cuda.executor import CudaExecutable
from sardonyx.runtime.executable import load_blob
from sardonyx.runtime.provider import Generated

_KERNEL = ctypes.CFUNCTYPE(
    None, *[ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p,
    ctypes.c_void_p,
)  # fmt: skip
_WAIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900


class _Names:
    def __getattr__(self, name: str) -> Any:
        return types.SimpleNamespace(value=1, name=name)


@dataclass
class FakeDriver:
    """The functions that the provider calls. Each gives a code, then its results.

    Attributes:
        memory: Blocks that are not freed, by address.
        slots: How many slots the kernel at an address has.
        launches: Kernels launched one by one.
        replays: Graphs launched.
        uncapturable: Calls that fail while a stream is captured.
    """

    memory: dict[int, Any] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)
    graphs: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    capture: list[Callable[[], None]] | None = None
    launches: int = 0
    captures: int = 0
    replays: int = 0
    fail_launch: int = 0
    uncapturable: set[str] = field(default_factory=set)
    CUresult = CUresult
    CUdevice_attribute = CUstream_flags = CUstreamCaptureMode = _Names()
    CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP = 1, 2

    def __post_init__(self) -> None:
        self._launch, self._wait = _LAUNCH(self._launched), _WAIT(lambda stream: 0)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *_: (CUresult.CUDA_SUCCESS,)

    def cuDeviceGetCount(self) -> Any:
        return CUresult.CUDA_SUCCESS, 1

    def cuDeviceGet(self, number: int) -> Any:
        return CUresult.CUDA_SUCCESS, 0

    cuDevicePrimaryCtxRetain = cuDeviceGet

    def cuDeviceGetName(self, size: int, number: int) -> Any:
        return CUresult.CUDA_SUCCESS, b"processor\0"

    def cuDeviceGetAttribute(self, which: Any, number: int) -> Any:
        values = {"CAPABILITY_MAJOR": 9, "CAPABILITY_MINOR": 0, "PROCESSOR_COUNT": 3}
        return CUresult.CUDA_SUCCESS, next(v for k, v in values.items() if k in which.name)

    def cuGetErrorString(self, code: int) -> Any:
        return CUresult.CUDA_SUCCESS, b"as was asked for"

    def cuStreamCreate(self, flags: int) -> Any:
        return CUresult.CUDA_SUCCESS, 77

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> Any:
        found = self._launch if name == b"cuLaunchKernel" else self._wait
        return CUresult.CUDA_SUCCESS, ctypes.cast(found, ctypes.c_void_p).value, 0

    # -- memory -------------------------------------------------------------------------------

    def cuMemAlloc(self, size: int, flags: int = 0) -> Any:
        block = ctypes.create_string_buffer(size + 64)
        ctypes.memset(block, 0xCD, size + 64)
        address = ctypes.addressof(block) + 63 & -64
        self.memory[address] = block
        return CUresult.CUDA_SUCCESS, address

    cuMemHostAlloc = cuMemAlloc

    def cuMemFree(self, address: int) -> Any:
        block = self.memory.pop(address)
        ctypes.memset(block, 0xAB, len(block))
        return (CUresult.CUDA_SUCCESS,)

    cuMemFreeHost = cuMemFree

    def cuMemcpy(self, target: int, source: int, size: int, stream: Any = None) -> Any:
        return self._do("copy", lambda: ctypes.memmove(target, source, size))

    cuMemcpyHtoD = cuMemcpyDtoH = cuMemcpyHtoDAsync = cuMemcpyDtoHAsync = cuMemcpy
    cuMemcpyDtoDAsync = cuMemcpy

    def cuMemsetD8Async(self, target: int, value: int, size: int, stream: Any) -> Any:
        return self._do("set", lambda: ctypes.memset(target, value, size))

    # -- launches -----------------------------------------------------------------------------

    def cuLaunchKernel(self, function: int, *rest: Any) -> Any:
        return (CUresult(self._launched(function, *rest)),)

    def _launched(self, function: int, *rest: Any) -> int:
        if self.fail_launch:
            return self.fail_launch
        count = self.slots[function] + 3
        addresses = (ctypes.c_void_p * count).from_address(rest[8])
        words = [ctypes.c_int64.from_address(a).value for a in addresses]
        self.launches += self.capture is None
        code, *_ = self._do("launch", lambda: self._run(function, words))
        return int(code)

    def _run(self, function: int, words: Sequence[int]) -> None:
        *slots, blocks, context, table = words
        if table:
            given = (ctypes.c_int64 * (len(slots) + 1)).from_address(table)
            blocks, slots = given[0], list(given[1:])
        held = (ctypes.c_int64 * max(1, len(slots)))(*slots)
        _KERNEL(function)(ctypes.addressof(held), 0, blocks, context)

    def _do(self, what: str, work: Callable[[], Any]) -> Any:
        if self.capture is None:
            work()
        elif what in self.uncapturable:
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        else:
            self.capture.append(work)
        return (CUresult.CUDA_SUCCESS,)

    # -- graphs -------------------------------------------------------------------------------

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> Any:
        assert self.capture is None
        self.capture = []
        return (CUresult.CUDA_SUCCESS,)

    def cuStreamEndCapture(self, stream: Any) -> Any:
        assert self.capture is not None
        self.captures += 1
        number = self.captures
        self.graphs[number], self.capture = self.capture, None
        return CUresult.CUDA_SUCCESS, number

    def cuGraphInstantiate(self, graph: int, flags: int) -> Any:
        self.graphs[-graph] = self.graphs[graph]
        return CUresult.CUDA_SUCCESS, -graph

    def cuGraphDestroy(self, graph: int) -> Any:
        del self.graphs[graph]
        return (CUresult.CUDA_SUCCESS,)

    def cuGraphExecDestroy(self, graph: int) -> Any:
        del self.graphs[graph]
        return (CUresult.CUDA_SUCCESS,)

    def cuGraphLaunch(self, graph: int, stream: Any) -> Any:
        self.replays += 1
        for work in self.graphs[graph]:
            work()
        return (CUresult.CUDA_SUCCESS,)


class _Module:
    def __init__(self, code: Any) -> None:
        self._code = code

    def function(self, symbol: str) -> int:
        return int(self._code.address(symbol))

    def address(self, symbol: str) -> int:
        return 1


class FakeProvider:
    """As `CudaProvider`, with kernels of the host."""

    accelerator: Any = None

    def __init__(self, fake: FakeDriver, **options: Any) -> None:
        self.fake, self.options = fake, options
        self.device = device.Device(0)
        self.target = host_target()
        self.key = f"fake {id(fake)}"

    def generate(self, compiled: Any, phase: Any) -> Generated:
        with compiling:
            from sardonyx.codegen.blob import build
            from sardonyx.codegen.module import emit_module
        code = load_blob(build(emit_module(compiled.programs(), self.target), self.target))
        for invocation in compiled.invocations:
            program = invocation.kernel.program
            self.fake.slots[code.address(program.name)] = len(program.parameters)
        return Generated(b"", _Module(code), code)

    def load(self, path: Any) -> Any:
        raise NotImplementedError

    def executable(
        self, plan: Any, code: Any, constants: Any, threads: int, budget: Any
    ) -> CudaExecutable:
        return CudaExecutable(plan, code, constants, self.device, budget, **self.options)


@contextmanager
def installed() -> Iterator[FakeDriver]:
    """The driver in place of NVIDIA's, until the block ends."""
    fake = FakeDriver()
    modules = {name: types.ModuleType(name) for name in ("cuda", "cuda.bindings")}
    modules["cuda.bindings"].driver = fake  # type: ignore[attr-defined]  # it has what the module has
    before = {name: sys.modules.get(name) for name in modules}
    caches = (driver.bindings, launching.function_of_driver)
    sys.modules.update(modules)
    for cached in caches:
        cached.cache_clear()
    try:
        yield fake
    finally:
        gc.collect()  # engines give back what they hold
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
        for cached in caches:
            cached.cache_clear()
