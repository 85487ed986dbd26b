"""How the kernels of a frame reach the device: tables for native code, and arguments on the device.

A kernel is launched with its own arguments, which the driver copies at once, or with the address of
a table in the device's memory that holds the arguments of all commands. The latter is what graphs
do: before a replay one copy brings the table up to date, so one graph serves other addresses and
other sizes, too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from sardonyx.codegen.ptx import THREADS
from sardonyx.cuda.device import Device
from sardonyx.cuda.driver import bindings, call, release
from sardonyx.cuda.memory import DeviceMemory
from sardonyx.cuda.module import Module
from sardonyx.kernel.context import SIZE_BYTES
from sardonyx.plan.plan import Command
from sardonyx.runtime.arena import Words, address_of
from sardonyx.runtime.image import Image
from sardonyx.runtime.native_layout import JOB, LAUNCHED, LAUNCHER, WORD

#: Thread blocks for each multiprocessor, at most: what is beyond, warps do one after the other.
PER_PROCESSOR = 16
#: The first version of the driver's interface that has what is called here.
_INTERFACE = 12000


@cache
def function_of_driver(name: str) -> int:
    """The address of a function of the driver."""
    found = call("cuGetProcAddress", name.encode(), _INTERFACE, 0)
    return int(found[0] if isinstance(found, tuple) else found)


class PinnedWords:
    """64-bit words in memory of the host that the device copies from and to without help.

    Attributes:
        words: They.
        address: Where they are.
    """

    def __init__(self, device: Device, count: int) -> None:
        device.enter()
        self._device = device
        portable = bindings().CU_MEMHOSTALLOC_PORTABLE
        self.address = int(call("cuMemHostAlloc", WORD * max(1, count), portable))
        memory = (ctypes.c_int64 * max(1, count)).from_address(self.address)
        self.words: Words = np.frombuffer(memory, np.int64)
        self.words[:] = 0

    def __del__(self) -> None:
        if getattr(self, "address", 0) and release is not None:
            release("cuMemFreeHost", self.address)


class Launches:
    """The launches of one frame.

    Attributes:
        address: A table for native code, with a record for each command.
        launcher: A record for native code, with the driver's functions.
        bucket: Equal for sizes that one graph serves well.

    Args:
        device: Where.
        module: The kernels.
        image: The plan.
        jobs: The frame's table of that name.
        arguments: The frame's table of that name; it stays where it is.
        contexts: Where the kernels' contexts are, in the order of the commands.
        stream: The queue of the frame's work.
        waits: Whether steps read what kernels write.
    """

    def __init__(
        self,
        device: Device,
        module: Module,
        image: Image,
        jobs: Words,
        arguments: Words,
        contexts: int,
        stream: Any,
        waits: bool,
    ) -> None:
        commands = image.plan.commands
        kernels = [(k, c) for k, c in enumerate(commands) if _is_kernel(c)]
        self._jobs, self._arguments = jobs.reshape(-1, JOB.words), arguments
        self._kernels = np.array([k for k, _ in kernels], np.intp)
        self._library = _library_words(image)
        self._most = device.processors * PER_PROCESSOR
        self._table = DeviceMemory(device, "arguments of kernels")
        self._table.grow(max(WORD, arguments.nbytes))
        self._pinned = PinnedWords(device, len(arguments))
        count = max(1, len(commands))
        self._records = np.zeros((count, LAUNCHED.words), np.int64)
        self._tails = np.zeros((count, 2), np.int64)
        self._places = np.zeros(count, np.int64)
        self._parameters = []
        start, tails = address_of(arguments), address_of(self._tails)
        for number, command in kernels:
            first = image.argument_places[number]
            own = len(command.kernel_arguments)
            listed = [start + WORD * (first + k) for k in range(own)]
            tail = tails + 2 * WORD * number
            listed += [start + WORD * (first - 1), tail, tail + WORD]
            parameters = np.array(listed, np.int64)
            self._parameters.append(parameters)
            self._tails[number, 0] = contexts + number * SIZE_BYTES
            self._places[number] = WORD * (first - 1)
            values = {
                "function": int(module.function(command.kernel)),
                "parameters": address_of(parameters),
                "group": THREADS[1], "most": self._most, "x": THREADS[0], "y": THREADS[1],
            }  # fmt: skip
            _fill(self._records[number], LAUNCHED.names, values)
        self._header = np.zeros(LAUNCHER.words, np.int64)
        values = {
            "launch": function_of_driver("cuLaunchKernel"),
            "wait": function_of_driver("cuStreamSynchronize"),
            "stream": int(stream), "waits": int(waits),
        }  # fmt: skip
        _fill(self._header, LAUNCHER.names, values)
        self.address, self.launcher = address_of(self._records), address_of(self._header)
        self.bucket = b""
        self.stream = stream

    def limit(self, warps: int) -> None:
        """No launch may have more warps: there is no more memory for them to work in."""
        most = max(1, min(self._most, warps // THREADS[1]))
        self._records[:, LAUNCHED["most"]] = most
        self.bucket = self._capacities().tobytes() + most.to_bytes(8, "little")

    def _capacities(self) -> np.ndarray[Any, Any]:
        """Blocks of each kernel, rounded up to powers of two."""
        blocks = self._jobs[self._kernels, JOB["blocks"]]
        exponents = np.ceil(np.log2(np.maximum(blocks, 1)))
        return np.where(blocks > 0, np.exp2(exponents), 0).astype(np.int64)

    @property
    def fixed(self) -> bytes:
        """What a graph with calls of libraries cannot look up in a table: their arguments."""
        return self._arguments[self._library].tobytes() if len(self._library) else b""

    @property
    def table_bytes(self) -> int:
        """How large the table on the device is."""
        return int(self._arguments.nbytes)

    def use_table(self) -> None:
        """Launch what reads the table, with room for all sizes of the bucket."""
        self._tails[:, 1] = self._table.address + self._places
        self._blocks = self._jobs[:, JOB["blocks"]].copy()
        self._jobs[self._kernels, JOB["blocks"]] = self._capacities()

    def use_arguments(self) -> None:
        """Launch what has arguments of its own."""
        self._tails[:, 1] = 0
        self._jobs[:, JOB["blocks"]] = self._blocks

    def upload(self) -> None:
        """Copy the arguments to the device, in the order of the stream; `stage` wrote them."""
        source, size = self._pinned.address, self.table_bytes
        call("cuMemcpyHtoDAsync", self._table.address, source, size, self.stream)

    def stage(self) -> None:
        """Put the arguments where copies to the device begin."""
        self._pinned.words[: len(self._arguments)] = self._arguments

    def launch(self, number: int) -> None:
        """Launch a kernel from here: the command of a library that did not take it."""
        record, blocks = self._records[number], int(self._jobs[number, JOB["blocks"]])
        if blocks > 0:
            function, parameters, group, most, x, y, shared, _ = record.tolist()
            grid = min(-(-blocks // group), most)
            stream = self.stream
            call("cuLaunchKernel", function, grid, 1, 1, x, y, 1, shared, stream, parameters, 0)


def _is_kernel(command: object) -> bool:
    return isinstance(command, Command) and command.host is None


def _library_words(image: Image) -> np.ndarray[Any, Any]:
    """Places of the arguments of calls of libraries."""
    found: list[int] = []
    for number, command in enumerate(image.plan.commands):
        if isinstance(command, Command) and command.library is not None:
            first = image.argument_places[number]
            found += range(first, first + len(command.arguments))
    return np.array(found, np.intp)


def _fill(record: Words, names: tuple[str, ...], values: Mapping[str, int]) -> None:
    for k, name in enumerate(names):
        record[k] = values.get(name, 0)
