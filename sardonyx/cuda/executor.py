"""Runs plans on a device: the host walks the commands and launches kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.base.errors import EngineError, Fail, message
from sardonyx.codegen.ptx import THREADS
from sardonyx.cuda.device import Device
from sardonyx.cuda.driver import call
from sardonyx.cuda.memory import DeviceArray, DeviceMemory
from sardonyx.cuda.module import Module
from sardonyx.kernel.context import FIELDS, SIZE_BYTES
from sardonyx.plan.plan import Command, Plan
from sardonyx.runtime import arrays
from sardonyx.runtime.arena import Memory, address_of
from sardonyx.runtime.arrays import Array
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.executor import Executable
from sardonyx.runtime.frame import Frame, Result
from sardonyx.runtime.image import Image
from sardonyx.runtime.native_layout import (
    DATA_OFFSET,
    DESCR_OFFSET,
    DIMS_OFFSET,
    FLAGS_OFFSET,
    JOB,
    NEEDED_FLAGS,
    RANK_OFFSET,
    TYPE_OFFSET,
    WORD,
)

#: Thread blocks for each multiprocessor, at most: what is beyond, warps do one after the other.
_PER_PROCESSOR = 16
#: All warps together work in at most so much.
_MOST_SCRATCH = 1 << 30
_FAULT_WORDS = 4


class Mirror:
    """Arrays of a device as native code sees NumPy's."""

    def __init__(self, held: Sequence[tuple[int, tuple[int, ...], Any]]) -> None:
        self._records: list[Any] = []
        self._items = np.zeros(max(1, len(held)), np.int64)
        for k, (address, shape, dtype) in enumerate(held):
            dims = np.array([*shape, 0], np.int64)
            record = np.zeros(FLAGS_OFFSET // WORD + 1, np.int64)
            record[TYPE_OFFSET // WORD] = id(np.ndarray)
            record[DATA_OFFSET // WORD] = address
            record[RANK_OFFSET // WORD] = len(shape)
            record[DIMS_OFFSET // WORD] = address_of(dims)
            record[DESCR_OFFSET // WORD] = id(dtype)
            record[FLAGS_OFFSET // WORD] = NEEDED_FLAGS
            self._records += [dims, record]
            self._items[k] = address_of(record)
        self.address = address_of(self._items)


class CudaFrame(Frame):
    """A frame with a stream, memory for feeds, and the contexts of its kernels.

    Attributes:
        stream: The queue of its work.
        staging: Memory of each feed.
    """

    __slots__ = ("_contexts", "_device", "_fault", "_launches", "_owner", "staging", "stream")

    def __init__(self, owner: CudaExecutable) -> None:
        self._device, self._owner = owner.device, owner
        super().__init__(owner.image, 0, owner.budget, owner.memory)
        self.stream = owner.device.stream()
        self.staging = [owner.memory("a feed", None) for _ in owner.plan.inputs]
        self._fault = DeviceMemory(owner.device, "faults")
        self._fault.grow(64)
        count = len(owner.plan.commands)
        self._contexts = DeviceMemory(owner.device, "contexts")
        self._contexts.grow(max(1, count) * SIZE_BYTES)
        self._launches: dict[int, Any] = {}

    def supply(self, segment: int) -> None:
        """See `Frame.supply`; kernels learn where they may work, too."""
        super().supply(segment)
        self._owner.place_scratch(self)

    def place_contexts(self, scratch: int, each_bytes: int) -> None:
        """Tell kernels where they may work, and where faults go."""
        count = len(self._image.plan.commands)
        table = np.zeros((max(1, count), SIZE_BYTES // WORD), np.int64)
        table[:, FIELDS["fault"] // WORD] = self._fault.address
        table[:, FIELDS["scratch"] // WORD] = scratch
        table[:, FIELDS["scratch_bytes"] // WORD] = each_bytes
        table[:, FIELDS["command"] // WORD] = np.arange(len(table))
        # The second half of the faults' memory is zero for good: nothing cancels a kernel.
        table[:, FIELDS["cancel"] // WORD] = self._fault.address + 32
        call("cuMemcpyHtoD", self._contexts.address, address_of(table), table.nbytes)

    def begin(self) -> None:
        """Forget faults of the run before."""
        call("cuMemsetD8Async", self._fault.address, 0, 64, self.stream)

    def fault(self) -> list[int]:
        """Waits for the run; what went wrong in it: code, command, and two numbers."""
        words = np.zeros(_FAULT_WORDS, np.int64)
        call("cuMemcpyDtoHAsync", address_of(words), self._fault.address, words.nbytes, self.stream)
        call("cuStreamSynchronize", self.stream)
        return words.tolist()  # type: ignore[no-any-return]

    def parameters(self, number: int) -> int:
        """The address of a table of addresses of a kernel's arguments."""
        found = self._launches.get(number)
        if found is None:
            command = self._image.plan.commands[number]
            assert isinstance(command, Command)  # noqa: S101 - native code stops at no other
            start = self._image.host_arguments[number]
            words = address_of(self.table("arguments")) + WORD * start
            context = np.array([self._contexts.address + number * SIZE_BYTES], np.int64)
            blocks = address_of(self.table("jobs")) + WORD * (number * JOB.words + JOB["blocks"])
            listed = [words + WORD * k for k in range(len(command.arguments))]
            found = (np.array([*listed, blocks, address_of(context)], np.int64), context)
            self._launches[number] = found
        return address_of(found[0])

    def blocks(self, number: int) -> int:
        """How many blocks a kernel has in this run."""
        return int(self.table("jobs")[number * JOB.words + JOB["blocks"]])


class CudaExecutable(Executable):
    """As `Executable`, on a device.

    Sizes that only a run knows are read by the host: plans with such sizes keep their values in
    memory of the host that the device reaches, and the host waits for each kernel.
    """

    def __init__(
        self,
        plan: Plan,
        module: Module,
        constants: Sequence[Array],
        device: Device,
        budget: Budget | None = None,
    ) -> None:
        self.device, self._module = device, module
        self.mapped = len(plan.segments) > 1
        device.enter()
        self._weights = [self._upload(a) for a in constants]
        self.image = Image(plan, module, constants, 1, remote=[w.address for w in self._weights])
        self._scratch = DeviceMemory(device, "what kernels work in")
        super().__init__(plan, module, constants, budget=budget, image=self.image)

    @property
    def runs_on(self) -> str:
        """The device, as its maker calls it."""
        return f"{self.device.name} ({self.device.architecture})"

    def memory(self, purpose: str, budget: Budget | None) -> Memory:
        """New memory for values of a run."""
        return DeviceMemory(self.device, purpose, budget, self.mapped)

    def _upload(self, array: Array) -> DeviceArray:
        held = DeviceArray(self.device, array.shape, array.dtype, self.mapped)
        plain = np.ascontiguousarray(array)
        if plain.nbytes:
            call("cuMemcpyHtoD", held.address, address_of(plain), plain.nbytes)
        return held

    def _new_frame(self) -> CudaFrame:
        return CudaFrame(self)

    def run(self, feeds: Sequence[object], cancel: CancelFlag | None = None) -> list[Array]:
        """See `Executable.run`; NumPy arrays are copied to the device and back."""
        self.device.enter()
        with self.lease() as frame:
            assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
            results = self._run(frame, feeds, cancel)
            found = [np.empty(r.shape, r.dtype) for r in results]
            for target, source in zip(found, results, strict=True):
                if source.nbytes:
                    call("cuMemcpyDtoH", address_of(target), source.address, source.nbytes)
        return found

    def _run(
        self, frame: CudaFrame, feeds: Sequence[object], cancel: CancelFlag | None
    ) -> list[DeviceArray]:
        given = []
        for feed, spec, memory in zip(feeds, self.plan.inputs, frame.staging, strict=True):
            array = arrays.plain(feed, spec)
            memory.grow(max(1, array.nbytes))
            if array.nbytes:
                size = array.nbytes
                call("cuMemcpyHtoDAsync", memory.address, address_of(array), size, frame.stream)
            given.append((memory.address, array.shape, spec.dtype.stored))
        mirror = Mirror(given)
        state = self._native_bind(frame.address, mirror.address)
        if state < 0:
            raise EngineError(message("run", f"Feed {-1 - state} cannot be bound"))
        if state:
            self._resolve(frame)
        outputs: list[Any] = [r and self._new_result(frame, r) for r in frame.results]
        known = [outputs[k] for k in self._image.later[0]]
        mirror = Mirror([(a.address, a.shape, a.dtype) for a in known])
        frame.begin()
        code = self._enter_until_done(frame, mirror.address, None, outputs)
        if cancel is not None and cancel.is_set:
            raise cancel.error("run")
        code, *rest = frame.fault() if not code else (code, 0, 0, 0)
        if code:
            for name, value in zip(("command", "a", "b"), rest, strict=True):
                frame.note_fault(name, value)
            raise self._fault(frame, code, cancel)
        return outputs

    def _new_result(self, frame: Frame, result: Result) -> DeviceArray:
        return DeviceArray(self.device, *result, self.mapped)

    def place_scratch(self, frame: CudaFrame) -> None:
        """Make room for all warps to work in, once it is known how much each needs."""
        each = -(-frame.get("scratch_bytes") // 64) * 64
        warps = self.device.processors * _PER_PROCESSOR * THREADS[1]
        if each:
            warps = max(THREADS[1], min(warps, _MOST_SCRATCH // each))
            self._scratch.grow(each * warps)
        self._warps = warps
        frame.place_contexts(self._scratch.address, each)

    def _call_host(self, frame: Frame, number: int) -> None:
        """Launch the kernel of a command."""
        assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
        command = self.plan.commands[number]
        assert isinstance(command, Command)  # noqa: S101 - native code stops at no other
        blocks = frame.blocks(number)
        if blocks > 0:
            x, y = THREADS
            grid = min(-(-blocks // y), max(1, self._warps // y))
            function = self._module.function(command.kernel)
            parameters = frame.parameters(number)
            call("cuLaunchKernel", function, grid, 1, 1, x, y, 1, 0, frame.stream, parameters, 0)
            if self.mapped:
                call("cuStreamSynchronize", frame.stream)
        frame.go_on(number + 1)

    def run_into(self, feeds: Any, outputs: Any, cancel: Any = None) -> None:
        """See `Executable.run_into`."""
        for target, source in zip(outputs, self.run(feeds, cancel), strict=True):
            if target.shape != source.shape or target.dtype != source.dtype:
                raise Fail(message("run", "An array to write to does not fit"))
            target[...] = source
