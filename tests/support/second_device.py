"""A device that is no maker's: memory of its own below 4 GiB, and kernels run by an interpreter.

Subgroups have 16 threads, addresses 32 bits; there are no units for matrices and no copies beside
other work. `second_provider` makes a provider of it. Both use what `docs/providers.md` lists, and
nothing of another device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sardonyx.base.errors import NotFound, OutOfMemory, message
from sardonyx.kernel.gpu.warp import to_warp
from sardonyx.kernel.language.program import Effect, Let, Program, Return, SsaValue
from sardonyx.kernel.language.thread_blocks import ProductCosts, ThreadBlocks
from sardonyx.kernel.language.types import Type
from sardonyx.kernel.loops.block_sizes import BlockSizes, Tiling
from sardonyx.runtime.storage import DeviceArray, MemoryKind, Tensor, to_host
from sardonyx.targets.target import Target
from tests.support.threads import _TYPES, Machine, Shared

Array = np.ndarray[Any, Any]

#: Where its memory begins and ends, and where shared memory begins: all in 32 bits.
BASE, SIZE, _SHARED_BASE = 1 << 16, 64 * 2**20, 0xF000_0000
_ALIGNMENT = 256


def second_target(subgroup_size: int = 16, shared_bytes: int = 32 * 2**10) -> Target:
    """What kernels are built for. Its `features` tell devices of other capabilities apart."""
    blocks = ThreadBlocks(
        subgroup_size=subgroup_size,
        threads=128,
        shared_bytes=shared_bytes,
        costs=ProductCosts(busy=(("fma", 4000),), alone=(("fma", 4000),), step=1, tile=1, meet=1,
            part=1),
        pointer_bits=32,
    )  # fmt: skip
    sizes = BlockSizes(
        rows=4, elements=4 * subgroup_size, vectors=2, transpose_stores=False, tiles=0
    )
    return Target(
        name="second", arch="second", isa="interpreted", triple="", cpu="second",
        features=f"+subgroups-of-{subgroup_size},+shared-{shared_bytes}",
        vector_bits=32 * subgroup_size, registers=64, has_fma=True, has_f16=True,
        block_sizes=replace(sizes, tiling=Tiling(3, tf32=True, aligned=True, thread_blocks=blocks)),
    )  # fmt: skip


# -- driver ---------------------------------------------------------------------------------------


class SecondEvent:
    """See `DeviceEvent`: work is done when it is queued."""

    is_done = True

    def synchronize(self) -> None:
        """Nothing."""


class SecondQueue:
    """See `DeviceQueue`."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def record(self) -> SecondEvent:
        return SecondEvent()

    def wait_for(self, event: SecondEvent) -> None:
        """Nothing."""

    def synchronize(self) -> None:
        """Nothing."""


class SecondDevice:
    """See `DeviceDriver`."""

    number, name, processors = 0, "an interpreter", 3

    def __init__(self) -> None:
        self.heap = SecondHeap()
        self._handles = 0

    def memory_info(self) -> tuple[int, int]:
        return SIZE - self.heap.used_bytes, SIZE

    def new_stream(self) -> SecondQueue:
        self._handles += 1
        return SecondQueue(self._handles)

    def synchronize(self) -> None:
        """Nothing."""


# -- memory ---------------------------------------------------------------------------------------


class SecondBlock:
    """See `DeviceBlock`."""

    def __init__(self, heap: SecondHeap, address: int, size_bytes: int) -> None:
        self.address, self.size_bytes, self._heap = address, size_bytes, heap

    def __del__(self) -> None:
        self._heap.free(self)


class SecondHeap:
    """See `DeviceAllocator`; also what a `Machine` reads and writes: blocks in use, and no more."""

    def __init__(self) -> None:
        self.bytes = np.full(SIZE, 0xFF, np.uint8)
        self._holes = [(BASE, SIZE)]
        self._in_use = np.zeros(SIZE // _ALIGNMENT, bool)
        self.used_bytes = self.peak_bytes = 0

    def allocate(self, size_bytes: int, purpose: str) -> SecondBlock:
        wanted = -(-max(1, size_bytes) // _ALIGNMENT) * _ALIGNMENT
        for number, (address, hole) in enumerate(self._holes):
            if hole >= wanted:
                self._holes[number] = (address + wanted, hole - wanted)
                self.used_bytes += wanted
                self.peak_bytes = max(self.peak_bytes, self.used_bytes)
                self._mark(address, wanted, used=True)
                return SecondBlock(self, address, wanted)
        what = f"The second device refuses {size_bytes} bytes for {purpose}"
        raise OutOfMemory(message("memory", what))

    def free(self, block: SecondBlock) -> None:
        """Take back a block."""
        self.used_bytes -= block.size_bytes
        self._mark(block.address, block.size_bytes, used=False)
        self._holes.append((block.address, block.size_bytes))
        merged: list[tuple[int, int]] = []
        for address, size in sorted(self._holes):
            if merged and sum(merged[-1]) == address:
                merged[-1] = merged[-1][0], merged[-1][1] + size
            else:
                merged.append((address, size))
        self._holes = merged

    def _mark(self, address: int, size: int, *, used: bool) -> None:
        first = (address - BASE) // _ALIGNMENT
        self._in_use[first : first + size // _ALIGNMENT] = used

    def trim(self) -> None:
        """Nothing: it is an array."""

    def statistics(self) -> dict[str, Any]:
        return {"InUse": self.used_bytes, "MaxInUse": self.peak_bytes}

    def view(self, address: int, size_bytes: int) -> Array:
        """Bytes from an address on, for copies of the host."""
        start = address - BASE
        assert 0 <= start <= start + size_bytes <= SIZE
        return self.bytes[start : start + size_bytes]

    def _places(self, addresses: Array, size: int, active: Array) -> Array:
        places = (addresses[active] - BASE)[:, None] + np.arange(size)
        if places.size:
            assert places.min() >= 0 and places.max() < SIZE, "an address is not of the device"
            assert self._in_use[places // _ALIGNMENT].all(), "memory that nobody has"
        return places

    def read(self, addresses: Array, size: int, active: Array) -> Array:
        """See `threads.Memory`."""
        found = np.zeros((*addresses.shape, size), np.uint8)
        found[active] = self.bytes[self._places(addresses, size, active)]
        return found

    def write(self, addresses: Array, values: Array, active: Array) -> None:
        """See `threads.Memory`."""
        self.bytes[self._places(addresses, values.shape[-1], active)] = values[active]


class SecondMemory(MemoryKind):
    """Memory of the device for feeds and results."""

    name, memory_name, number, is_host = "second", "Second", 0, False

    def __init__(self, device: SecondDevice) -> None:
        self.device = device

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> SecondArray:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return SecondArray(self, self.device.heap.allocate(size, "a value"), shape, dtype)

    def copy_of(self, tensor: Tensor) -> SecondArray:
        made = self.empty(tensor.shape, tensor.dtype)
        made.write(tensor)
        return made

    def at(
        self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any = None
    ) -> SecondArray:
        return SecondArray(self, owner, shape, dtype, address)

    def synchronize(self) -> None:
        """Nothing."""


class SecondArray(DeviceArray):
    """A tensor in memory of the device."""

    __slots__ = ("_kind", "_owner")

    def __init__(
        self,
        kind: SecondMemory,
        owner: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        address: int | None = None,
    ) -> None:
        super().__init__(shape, dtype, owner.address if address is None else address)
        self._kind, self._owner = kind, owner

    @property
    def kind(self) -> SecondMemory:
        return self._kind

    def _bytes(self) -> Array:
        return self._kind.device.heap.view(self.address, self.nbytes)

    def numpy(self) -> Array:
        found: Array = self._bytes().copy().view(self.dtype).reshape(self.shape)
        return found

    def write(self, source: Tensor, stream: Any = None) -> None:
        self._bytes()[:] = np.ascontiguousarray(to_host(source)).reshape(-1).view(np.uint8)

    def read_to(self, target: Array, stream: Any = None) -> None:
        target[...] = self.numpy().reshape(target.shape)

    def as_shape(self, shape: tuple[int, ...], dtype: np.dtype[Any] | None = None) -> SecondArray:
        return self._kind.at(self.address, shape, dtype or self.dtype, self._owner)

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("no other library reaches this memory")

    def __dlpack_device__(self) -> tuple[int, int]:
        raise BufferError("no other library reaches this memory")


# -- kernels --------------------------------------------------------------------------------------


def print_programs(programs: Sequence[Program], target: Target) -> dict[str, Program]:
    """See `KernelPrinter`: what this device's driver loads is programs of threads."""
    size = target.subgroup_size
    return {p.name: p if p.kind == "block" else to_warp(p, size) for p in programs}


class SecondModule:
    """See `KernelModule`: kernels are named by numbers from 1."""

    pending = 0

    def __init__(self, programs: Mapping[str, Program]) -> None:
        self.programs = programs
        self._listed = list(programs)

    def function(self, symbol: str) -> int:
        if symbol not in self.programs:
            raise NotFound(message("second", f"There is no kernel {symbol!r}"))
        return 1 + self._listed.index(symbol)

    def program(self, function: int) -> Program:
        """What `function` gave, as a program."""
        return self.programs[self._listed[function - 1]]

    def is_ready(self, symbol: str) -> bool:
        return True

    def address(self, symbol: str) -> int:
        return 1


class SmallShared(Shared):
    """Shared memory at an address of 32 bits."""

    BASE = _SHARED_BASE


class SecondMachine(Machine):
    """Runs one launch on the device's memory.

    Args:
        program: As `print_programs` gives it.
        programs: Those that it may call.
        device: Where.
        blocks: What its thread blocks can do.
        context: Values of the fields of a kernel's context.
    """

    SHARED = SmallShared

    def __init__(
        self,
        program: Program,
        programs: Mapping[str, Program],
        device: SecondDevice,
        blocks: ThreadBlocks,
        context: Mapping[str, int],
    ) -> None:
        self.program, self._programs, self.device = program, programs, blocks
        self.is_block, self.size = program.kind == "block", blocks.subgroup_size
        self.threads = blocks.threads if self.is_block else self.size
        self.memory: Any = device.heap
        self._heap, self._context = device.heap, context
        self.shared = None
        self.groups, self.open = [], []
        #: Code and three numbers of the first thing that is wrong.
        self.fault: list[int] | None = None
        self._own: dict[int, SecondBlock] = {}
        self._returned: Array | None = None

    def launch(self, words: Sequence[int], blocks: int, grid: int) -> None:
        """Do all blocks; `words` are the slots, as 64 bits each."""
        if not self.is_block:
            grid *= self.device.subgroups
        for number in range(grid):
            self.number, self.grid, self.blocks, self.shared = number, grid, blocks, None
            self.values, self.variables = {}, {}
            given = [*words, blocks, 0]
            for parameter, word in zip(self.program.parameters, given, strict=True):
                kind = parameter.value.type
                self.values[parameter.value] = np.full(self.threads, _of_word(word, kind))
            with np.errstate(all="ignore"):
                self.block(self.program.body, np.ones(self.threads, bool))

    def let(self, let: Let, active: Array) -> Array:
        match let.op:
            case "context":
                return np.full(self.threads, self._context[str(let.attribute("field"))])
            case "shared":  # a subgroup's own
                held = self._own.get(id(let))
                if held is None:
                    size = int(str(let.attribute("size_bytes")))
                    held = self._own[id(let)] = self._heap.allocate(size, "a subgroup's own")
                return np.full(self.threads, held.address)
            case "call":
                self._call(let, active)
                assert self._returned is not None
                return self._returned
        return super().let(let, active)

    def effect(self, effect: Effect, active: Array) -> None:
        match effect.op:
            case "fault":
                if self.fault is None and active.any():
                    first = int(np.argmax(active))
                    numbers = [int(self.of(x)[first]) for x in effect.operands]
                    self.fault = [int(str(effect.attribute("code"))), *numbers]
            case "call":
                self._call(effect, active)
            case _:
                super().effect(effect, active)

    def _call(self, statement: Let | Effect, active: Array) -> None:
        program = self._programs[str(statement.attribute("name"))]
        given = [self.of(x) for x in statement.operands]
        before = self.values, self.variables
        names: dict[SsaValue, Array] = {
            p.value: value for p, value in zip(program.parameters, given, strict=True)
        }
        self.values, self.variables, self._returned = names, {}, None
        *body, last = program.body.statements
        for one in body:
            self.block(_Single(one), active)  # type: ignore[arg-type]  # it has statements
        if isinstance(last, Return):
            self._returned = None if last.value is None else self.of(last.value)
        else:
            self.block(_Single(last), active)  # type: ignore[arg-type]  # it has statements
        self.values, self.variables = before


class _Single:
    def __init__(self, statement: object) -> None:
        self.statements = [statement]


def _of_word(word: int, kind: Type) -> Any:
    """A value in the low bytes of a word."""
    if kind.scalar == "i1":
        return np.bool_(word & 0xFF)
    if kind.scalar == "ptr":
        assert 0 <= word < 1 << 32, "a pointer has more than 32 bits"
    held = np.array([word], np.int64).view(np.uint8)[: kind.size_bytes]
    return held.view(_TYPES[kind.scalar])[0]
