"""How the kernels of a frame reach the device: tables for native code, and arguments on the device.

A kernel is launched with its own arguments, which the driver copies at once, or with the address of
a table in the device's memory that holds the arguments of all commands. The latter is what graphs
do: before a replay one copy brings the table up to date, so one graph serves other addresses and
other sizes, too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.driver import INTERFACE, call, failure
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.run.argument_table import ArgumentTable, PinnedWords
from sardonyx.kernel.language.context import SIZE_BYTES
from sardonyx.llvm.ptx import THREADS, early_blocks, waits_itself
from sardonyx.native.layout import JOB, LAUNCHED, LAUNCHER, WORD
from sardonyx.plan.control_flow import ControlSteps
from sardonyx.plan.plan import Command, PointerArgument
from sardonyx.runtime.arena import Words, address_of
from sardonyx.runtime.plan_tables import PlanTables

if TYPE_CHECKING:
    from sardonyx.cuda.run.device_state import DeviceState

#: The driver's attribute of a launch that lets it begin before the launch in front of it has ended,
#: and the first driver that captures such launches (CUDA 12.4).
_EARLY = np.array([6, 1, *[0] * 7], np.int64)
_KNOWS_EARLY = 12040

#: Thread blocks for each multiprocessor, at most: what is beyond, warps do one after the other.
PER_PROCESSOR = 16


@cache
def function_of_driver(name: str) -> int:
    """The address of a function of the driver."""
    found = call("cuGetProcAddress", name.encode(), INTERFACE, 0)
    return int(found[0] if isinstance(found, tuple) else found)


@cache
def _launching() -> Callable[..., int]:
    """The driver's function for one launch."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
    return kind(function_of_driver("cuLaunchKernelEx"))


def launch_kernel(record: int, function: int, parameters: int) -> None:
    """Launch a kernel as the driver's record of a launch says.

    Raises:
        RuntimeException: The driver refuses.
    """
    code = _launching()(record, function, parameters, None)
    if code:
        raise failure("cuLaunchKernelEx", code)


@cache
def begins_early(device: Device) -> bool:
    """Whether kernels may begin while those before them end: they wait themselves."""
    return waits_itself(device.architecture) and call("cuDriverGetVersion") >= _KNOWS_EARLY


class Launches:
    """The launches of one frame.

    Attributes:
        address: A table for native code, with a record for each command.
        launcher: A record for native code, with the driver's functions.
        table: What the device has of the arguments.
        bucket: Equal for sizes that one graph serves well.
        moving: The inputs and outputs that libraries read or write: kind and number of each.

    Args:
        state: What the plan has on the device.
        jobs: The frame's table of that name.
        arguments: The frame's table of that name; it stays where it is.
        table: What the device has of it.
        contexts: Where the kernels' contexts are, in the order of the commands.
        queue: The stream of the frame's work.
    """

    def __init__(
        self,
        state: DeviceState,
        jobs: Words,
        arguments: Words,
        table: ArgumentTable,
        contexts: int,
        queue: Stream,
    ) -> None:
        image, module, reads = state.image, state.module, state.mapped
        commands = image.plan.commands
        kernels = [
            (k, c) for k, c in enumerate(commands) if isinstance(c, Command) and c.host is None
        ]
        self._jobs, self._arguments = jobs.reshape(-1, JOB.words), arguments
        self._kernels = np.array([k for k, _ in kernels], np.intp)
        self._image = image
        self._moving, self._resting, self.moving = library_words(image, image.hosted)
        #: Values of libraries' arguments in parts of the plan, by the first command of each.
        self._parts: dict[int, np.ndarray[Any, Any]] = {}
        #: Values of the latter, once they are known.
        self._rest: bytes | None = None
        self._most = queue.device.processors * PER_PROCESSOR
        self.table, self._contexts = table, contexts
        count = max(1, len(commands))
        self._records = np.zeros((count, LAUNCHED.words), np.int64)
        self._tails = np.zeros((count, 2), np.int64)
        self._places = np.zeros(count, np.int64)
        self._parameters = []
        #: Kernels are asked for where a library leaves their work to them.
        self._module, self._names = module, {k: c.kernel for k, c in kernels}
        start, tails = address_of(arguments), address_of(self._tails)
        for number, command in kernels:
            first, hosted = image.argument_places[number], number in image.hosted
            own = len(command.kernel_arguments)
            listed = [start + WORD * (first + k) for k in range(own)]
            tail = tails + 2 * WORD * number
            listed += [start + WORD * (first - 1), tail, tail + WORD]
            parameters = np.array(listed, np.int64)
            self._parameters.append(parameters)
            self._tails[number, 0] = contexts + number * SIZE_BYTES
            self._places[number] = WORD * (first - 1)
            values = {
                "function": 0 if hosted else int(module.function(command.kernel)),
                "parameters": address_of(parameters),
                "group": THREADS[1], "most": self._most, "grid_z_block_x": 1 | THREADS[0] << 32,
                "block_yz": THREADS[1] | 1 << 32, "attributes": address_of(_EARLY),
                "early": begins_early(queue.device) * early_blocks(queue.device.processors),
            }  # fmt: skip
            _fill(self._records[number], LAUNCHED.names, values)
        self._header = np.zeros(LAUNCHER.words, np.int64)
        values = {
            "launch": function_of_driver("cuLaunchKernelEx"),
            "wait": function_of_driver("cuStreamSynchronize"),
            "stream": queue.handle, "reads": int(reads),
        }  # fmt: skip
        if reads:
            self._mirror = PinnedWords(queue.device, len(image.measures) + 1)
            values["mirror"] = self._mirror.address
            values["fetch"] = function_of_driver("cuMemcpyDtoHAsync")
        _fill(self._header, LAUNCHER.names, values)
        self.address, self.launcher = address_of(self._records), address_of(self._header)
        self.bucket = b""
        self.queue = queue

    def limit(self, warps: int) -> None:
        """No launch may have more warps: there is no more memory for them to work in."""
        most = max(1, min(self._most, warps // THREADS[1]))
        self._records[:, LAUNCHED["most"]] = most
        self.bucket = self._capacities(self._kernels).tobytes() + most.to_bytes(8, "little")
        self._rest = None

    def _capacities(self, kernels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Blocks of kernels, rounded up to powers of two."""
        blocks = self._jobs[kernels, JOB["blocks"]]
        exponents = np.ceil(np.log2(np.maximum(blocks, 1)))
        return np.where(blocks > 0, np.exp2(exponents), 0).astype(np.int64)

    def part(self, commands: range) -> tuple[bytes, bytes]:
        """As `bucket` and `fixed`, for some commands in a row, no library of which moves."""
        first, end = np.searchsorted(self._kernels, [commands.start, commands.stop])
        kernels = self._kernels[first:end]
        most = int(self._records[kernels[0], LAUNCHED["most"]])
        bucket = np.array([commands.start, most, *self._capacities(kernels)], np.int64)
        places = self._parts.get(commands.start)
        if places is None:
            places = library_words(self._image, commands)[1]
            self._parts[commands.start] = places
        return bucket.tobytes(), self._arguments[places].tobytes()

    @property
    def fixed(self) -> bytes:
        """What a graph with calls of libraries cannot look up in a table: their arguments."""
        if self._rest is None:
            self._rest = bytes(self._arguments[self._resting].tobytes())
        if not len(self._moving):
            return self._rest
        return self._rest + bytes(self._arguments[self._moving].tobytes())

    def use_stream(self, queue: Stream) -> None:
        """Work in another stream from now on."""
        self.queue = queue
        self._header[LAUNCHER["stream"]] = queue.handle

    def use_table(self) -> None:
        """Launch what reads the table, with room for all sizes of the bucket."""
        self._tails[:, 1] = self.table.place_of(self._arguments) + self._places
        self._blocks = self._jobs[:, JOB["blocks"]].copy()
        self._jobs[self._kernels, JOB["blocks"]] = self._capacities(self._kernels)

    def use_arguments(self) -> None:
        """Launch what has arguments of its own."""
        self._tails[:, 1] = 0
        self._jobs[:, JOB["blocks"]] = self._blocks

    def is_ready(self, number: int) -> bool:
        """Whether a kernel can be launched from here without waiting for the driver's compiler."""
        has_function = bool(self._records[number, LAUNCHED["function"]])
        return has_function or self._module.is_ready(self._names[number])

    def launch(self, number: int, *, early: bool = True) -> bool:
        """Launch a kernel from here: the command of a library that did not take it.

        Args:
            number: The command's.
            early: Whether it may begin before the work in front of it has ended.

        Returns:
            Whether it has anything to do.
        """
        record = self.record_of(number, early=early)
        if record is not None:
            place = address_of(record) + WORD * LAUNCHED["grid_xy"]
            function, parameters = record[: LAUNCHED["parameters"] + 1].tolist()
            launch_kernel(place, function, parameters)
        return record is not None

    def record_of(self, number: int, *, early: bool = True) -> Words | None:
        """The record of such a launch; None if there are no blocks."""
        record, blocks = self._records[number], int(self._jobs[number, JOB["blocks"]])
        if blocks <= 0:
            return None
        if not record[LAUNCHED["function"]]:
            record[LAUNCHED["function"]] = int(self._module.function(self._names[number]))
        given: Words = record.copy()
        grid = min(-(-blocks // int(record[LAUNCHED["group"]])), int(record[LAUNCHED["most"]]))
        given[LAUNCHED["grid_xy"]] = grid | 1 << 32
        given[LAUNCHED["stream"]] = self.queue.handle
        given[LAUNCHED["count"]] = early and grid <= given[LAUNCHED["early"]]
        return given

    def launch_control(self, control: ControlSteps, first: int, second: int) -> None:
        """Launch a control step, which works on the table on the device.

        Args:
            control: Which.
            first, second: What the driver calls its conditions; 0 for none.
        """
        context = self._contexts + control.command * SIZE_BYTES
        tables, halt = self.table.part_places, self.table.halt
        values = np.array([*tables, halt, first, second, 1, context, 0], np.int64)
        addresses = address_of(values) + WORD * np.arange(len(values))
        record = np.zeros(LAUNCHED.words, np.int64)
        given = {
            "grid_xy": 1 | 1 << 32, "grid_z_block_x": 1 | THREADS[0] << 32,
            "block_yz": THREADS[1] | 1 << 32, "stream": self.queue.handle,
        }  # fmt: skip
        _fill(record, LAUNCHED.names, given)
        function = int(self._module.function(control.name))
        launch_kernel(
            address_of(record) + WORD * LAUNCHED["grid_xy"], function, address_of(addresses)
        )


def library_words(
    image: PlanTables, numbers: Iterable[int]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], frozenset[tuple[str, int]]]:
    """Places of the arguments of some commands' calls: addresses of feeds and results, others.

    Also which feeds and results they are.
    """
    found: tuple[list[int], list[int]] = ([], [])
    moving: set[tuple[str, int]] = set()
    buffers = image.plan.buffers
    for number in numbers:
        if number not in image.hosted:
            continue
        command = image.plan.commands[number]
        assert isinstance(command, Command)  # noqa: S101 - steps have no calls
        first = image.argument_places[number] + len(command.kernel_arguments)
        for place, argument in enumerate(command.library_arguments, first):
            held = buffers[argument.buffer] if isinstance(argument, PointerArgument) else None
            moves = held is not None and held.kind in ("input", "output")
            found[0 if moves else 1].append(place)
            if moves and held is not None:
                moving.add((held.kind, held.number))
    return np.array(found[0], np.intp), np.array(found[1], np.intp), frozenset(moving)


def _fill(record: Words, names: tuple[str, ...], values: Mapping[str, int]) -> None:
    for k, name in enumerate(names):
        record[k] = values.get(name, 0)
