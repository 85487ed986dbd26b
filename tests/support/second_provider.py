"""The provider of `second_device`: launches, frames, recorded runs, times, executables."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from sardonyx.base import errors
from sardonyx.base.errors import message
from sardonyx.kernel.language.context import FIELDS, TICKETS
from sardonyx.link.executable_memory import load_blob
from sardonyx.native.layout import JOB, LAUNCHED, LAUNCHER, WORD
from sardonyx.plan.plan import Command, Plan
from sardonyx.plan.vendor_offers import Accelerator, Offer
from sardonyx.runtime import arrays, refusals
from sardonyx.runtime.arena import Memory, address_of
from sardonyx.runtime.array_records import ArrayRecords
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.device import DeviceInterfaces
from sardonyx.runtime.executable import DeviceFacts, Executable, ExecutableReport
from sardonyx.runtime.frame import Frame, Result
from sardonyx.runtime.frame_pool import FramePool
from sardonyx.runtime.native_runs import NativeRuns
from sardonyx.runtime.plan_tables import PlanTables
from sardonyx.runtime.provider import Generated
from sardonyx.runtime.recording import Sink
from sardonyx.runtime.storage import Array, OutputPlacement, is_of_host
from sardonyx.runtime.team import Team
from sardonyx.runtime.try_run import TryRun, never
from sardonyx.store.entries import Entry
from sardonyx.store.model_record import ModelRecord
from tests.support.second_device import (
    SecondArray,
    SecondBlock,
    SecondDevice,
    SecondEvent,
    SecondHeap,
    SecondMachine,
    SecondMemory,
    SecondModule,
    SecondQueue,
    print_programs,
    second_target,
)

#: Thread blocks of a launch at most: what is beyond, they do one after the other.
_MOST = 6
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 4)
_WAIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)


class SecondRunMemory(Memory):
    """As `Memory`, of the device."""

    __slots__ = ("_block", "_heap")

    def __init__(self, heap: SecondHeap, purpose: str, budget: Budget | None) -> None:
        super().__init__(purpose, budget)
        self._heap = heap
        self._block: SecondBlock | None = None

    def grow(
        self, needed_bytes: int, keep_bytes: int = 0, largest: Callable[[], str] | None = None
    ) -> bool:
        if needed_bytes <= self.capacity_bytes:
            return False
        if self._budget is not None:
            self._budget.take(needed_bytes, self._purpose, largest)
        block = self._heap.allocate(needed_bytes, self._purpose)
        if keep_bytes:
            kept = self._heap.view(self.address, keep_bytes)
            self._heap.view(block.address, keep_bytes)[:] = kept
        self._release(self.capacity_bytes)
        self._block, self.address, self.capacity_bytes = block, block.address, needed_bytes
        return True


class SecondLauncher:
    """See `KernelLauncher`."""

    def __init__(self, owner: SecondExecutable, frame: SecondFrame) -> None:
        image = owner.image
        self._owner, self._image, self._module = owner, image, owner.module
        self._jobs = frame.table("jobs").reshape(-1, JOB.words)
        self._arguments = frame.table("arguments")
        count = max(1, len(image.plan.commands))
        self._records = np.zeros((count, LAUNCHED.words), np.int64)
        self.kernels = [
            k
            for k, c in enumerate(image.plan.commands)
            if isinstance(c, Command) and c.host is None
        ]
        for number in self.kernels:
            command = image.plan.commands[number]
            assert isinstance(command, Command)
            record = self._records[number]
            record[LAUNCHED["function"]] = owner.module.function(command.kernel)
            record[LAUNCHED["parameters"]] = number
            record[LAUNCHED["group"]] = owner.blocks.subgroups
            record[LAUNCHED["most"]] = _MOST
        self._mirror = np.zeros(len(image.measures) + 1, np.int64)
        self._functions = (_LAUNCH(self._launch), _WAIT(lambda _: 0), _LAUNCH(self._fetch))
        header = self._header = np.zeros(LAUNCHER.words, np.int64)
        for name, function in zip(("launch", "wait", "fetch"), self._functions, strict=True):
            header[LAUNCHER[name]] = ctypes.cast(function, ctypes.c_void_p).value or 0
        header[LAUNCHER["reads"]] = 1
        header[LAUNCHER["mirror"]] = address_of(self._mirror)
        self.address, self.launcher = address_of(self._records), address_of(header)
        heap = owner.device.heap
        # Behind the tickets there are zeros: nothing cancels a kernel.
        self._zeros = heap.allocate(4 * TICKETS + WORD, "tickets")
        heap.view(self._zeros.address, 4 * TICKETS + WORD)[:] = 0
        self._scratch = self._scratch_bytes = 0
        self.error: BaseException | None = None
        self.fault: list[int] | None = None
        self.recorded: list[tuple[int, int, int]] | None = None
        self.launches = 0

    def work_in(self, scratch: int, each_bytes: int) -> None:
        """Where kernels work: so many bytes for each subgroup."""
        self._scratch, self._scratch_bytes = scratch, each_bytes

    def limit(self, subgroups: int) -> None:
        self._records[:, LAUNCHED["most"]] = max(
            1, min(_MOST, subgroups // self._owner.blocks.subgroups)
        )

    def launch(self, number: int) -> bool:
        record, blocks = self._records[number], int(self._jobs[number, JOB["blocks"]])
        if blocks <= 0:
            return False
        grid = min(-(-blocks // int(record[LAUNCHED["group"]])), int(record[LAUNCHED["most"]]))
        self.do(int(record[LAUNCHED["function"]]), number, grid)
        return True

    def _launch(self, record: int, function: int, number: int, _: int) -> int:
        """What native code calls; gives a code of this driver, 0 if all is well."""
        try:
            self.do(function, number, ctypes.c_int32.from_address(record).value)
        except BaseException as error:  # noqa: BLE001 - native code knows codes alone
            self.error = error
            return 1
        return 0

    def _fetch(self, target: int, source: int, size: int, _: int) -> int:
        found = self._owner.device.heap.view(source, size).tobytes()
        ctypes.memmove(target, found, size)
        return 0

    def do(self, function: int, number: int, grid: int) -> None:
        """Do the kernel of a command with the arguments that the frame has now."""
        self.launches += 1
        if self.recorded is not None:
            self.recorded.append((function, number, grid))
        command = self._image.plan.commands[number]
        assert isinstance(command, Command)
        first = self._image.argument_places[number]
        words = self._arguments[first : first + len(command.kernel_arguments)].tolist()
        tickets = self._zeros.address
        values = {
            "tickets": tickets, "cancel": tickets + 4 * TICKETS, "command": number,
            "scratch": self._scratch, "scratch_bytes": self._scratch_bytes,
        }  # fmt: skip
        assert values.keys() <= FIELDS.keys()
        machine = SecondMachine(
            self._module.program(function), self._module.programs, self._owner.device,
            self._owner.blocks, values,
        )  # fmt: skip
        machine.launch(words, int(self._jobs[number, JOB["blocks"]]), grid)
        if machine.fault is not None and self.fault is None:
            code, *numbers = machine.fault
            self.fault = [code, number, *numbers]


class SecondFrame(Frame):
    """A frame whose memory is the device's."""

    __slots__ = ("_recordings", "feeds", "given", "launches", "make")

    def __init__(self, owner: SecondExecutable) -> None:
        heap, plan = owner.device.heap, owner.plan
        super().__init__(
            owner.image, 0, owner.budget, lambda purpose, b: SecondRunMemory(heap, purpose, b)
        )
        self.feeds = ArrayRecords((i.dtype.stored, len(i.dims)) for i in plan.inputs)
        known = [plan.outputs[k] for k in owner.image.later[0]]
        self.given = ArrayRecords((o.dtype.stored, len(o.dims)) for o in known)
        self.launches = SecondLauncher(owner, self)
        self._set("launches", self.launches.address)
        self._set("launcher", self.launches.launcher)
        self.make: Callable[[int, Result], SecondArray] | None = None
        self._recordings: dict[bytes, SecondRecording] = {}

    def supply(self, segment: int) -> None:
        super().supply(segment)
        each = -(-self.get("scratch_bytes") // 64) * 64
        subgroups = _MOST * 4
        self.scratch.grow(max(64, each * subgroups))
        self.launches.work_in(self.scratch.address, each)
        self.launches.limit(subgroups)

    def recording(self, walk: Callable[[], int]) -> tuple[SecondRecording | None, int]:
        """What was recorded of runs of these sizes; else do and record one, and give its code."""
        key = self.table("jobs").tobytes()
        found = self._recordings.get(key)
        if found is not None:
            return found, 0
        self.launches.recorded = listed = list[tuple[int, int, int]]()
        try:
            code = walk()
        finally:
            self.launches.recorded = None
        if not code:
            self._recordings[key] = SecondRecording(self.launches, listed)
        return None, code


class SecondRecording:
    """See `RecordedWork`."""

    def __init__(self, launches: SecondLauncher, listed: list[tuple[int, int, int]]) -> None:
        self._launches, self._listed = launches, listed

    def launch(self, stream: Any) -> None:
        for one in self._listed:
            self._launches.do(*one)


class SecondTimer:
    """See `CommandTimer`."""

    def __init__(self) -> None:
        self._found: list[tuple[int, int]] = []

    def do(self, numbers: Sequence[int], work: Callable[[int], None]) -> None:
        for number in numbers:
            start = time.perf_counter_ns()
            work(number)
            self._found.append((number, time.perf_counter_ns() - start))

    def take(self, times: Any, commands: Sequence[object], by_library: set[int]) -> None:
        for number, took in self._found:
            command = commands[number]
            assert isinstance(command, Command)
            times.append((command.kernel, took))
        self._found.clear()

    def close(self) -> None:
        """Nothing."""


class SecondStops:
    """See `runtime.native_runs.Stops`."""

    def __init__(self, image: PlanTables) -> None:
        self._image = image

    def give_results(self, frame: SecondFrame, segment: int, outputs: list[Any]) -> None:
        assert frame.make is not None
        frame.reserve_results(segment)
        for number in self._image.later[segment]:
            outputs[number] = frame.make(number, frame.result(number))
        frame.give(segment, {k: outputs[k] for k in self._image.later[segment]})

    def call_host(self, frame: SecondFrame, number: int) -> None:
        raise AssertionError("it has no functions of the host")

    def not_launched(self, frame: SecondFrame, code: int) -> Exception:
        error, frame.launches.error = frame.launches.error, None
        assert isinstance(error, Exception), code
        return error


class SecondExecutable:
    """See `runtime.executable.Executable`: native code walks the commands, and launches."""

    def __init__(
        self,
        plan: Plan,
        module: SecondModule,
        constants: Sequence[Array],
        device: SecondDevice,
        target: Any,
        budget: Budget | None = None,
    ) -> None:
        self.plan, self.budget, self.team = plan, budget or Budget(), Team()
        self.device, self.module, self.blocks = device, module, target.thread_blocks
        self.queue = device.new_stream()
        self.memory = SecondMemory(device)
        self.facts = DeviceFacts(device.name, self.memory)
        self._weights = [self.memory.copy_of(np.ascontiguousarray(a)) for a in constants]
        addresses = [a.address for a in self._weights]
        self.image = PlanTables(plan, module, constants, self.team, remote=addresses)
        self._runs = NativeRuns(self.image, SecondStops(self.image))
        self._frames = FramePool(lambda: SecondFrame(self), self.image.tape.symbols)
        self.try_run: TryRun = never
        self.replays = 0

    @property
    def frames(self) -> FramePool[SecondFrame]:
        return self._frames

    def run(self, feeds: Sequence[object], cancel: CancelFlag | None = None) -> list[Any]:
        return self.run_to(feeds, OutputPlacement([None] * len(self.plan.outputs)), cancel)

    def run_to(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> list[Any]:
        with self.frames.lease() as frame:
            kept, results = self._prepare(frame, feeds, wanted)

            def walk() -> int:
                return self._runs.walk(frame, frame.given.address, results)

            if len(self.plan.segments) > 1:
                code = walk()
            else:
                recording, code = frame.recording(walk)
                if recording is not None:
                    frame.go_on(len(self.plan.commands))  # what comes before the commands, alone
                    code = walk()
                    recording.launch(self.queue.handle)
                    self.replays += 1
            self.queue.synchronize()
            self._check(frame, code, cancel)
            del kept
        rows = zip(wanted.targets, results, strict=True)
        return [_placed(target, result) for target, result in rows]

    def run_into(
        self, feeds: Sequence[object], outputs: Sequence[Array], cancel: CancelFlag | None = None
    ) -> None:
        self.run_to(feeds, OutputPlacement(list(outputs)), cancel)

    def start(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> AsyncRun:
        return AsyncRun(self.run_to(feeds, wanted, cancel))

    def _prepare(
        self, frame: SecondFrame, feeds: Sequence[Any], wanted: OutputPlacement
    ) -> tuple[list[SecondArray], list[Any]]:
        if len(feeds) != len(self.plan.inputs):
            raise refusals.wrong_number_of_feeds(len(self.plan.inputs), len(feeds))
        kept = []
        for number, (feed, spec) in enumerate(zip(feeds, self.plan.inputs, strict=True)):
            if not isinstance(feed, SecondArray):
                feed = self.memory.copy_of(arrays.plain(feed, spec))
            kept.append(feed)
            frame.feeds.put(number, feed.address, feed.shape)
        state = self._runs.bind(frame.address, frame.feeds.address)
        assert state >= 0
        if state:
            self._runs.resolve(frame)
        results: list[Any] = [None] * len(self.plan.outputs)

        def make(k: int, found: Result) -> SecondArray:
            target = wanted.targets[k]
            if isinstance(target, SecondArray):
                assert (target.shape, target.dtype) == found
                results[k] = target
            else:
                results[k] = self.memory.empty(*found)
            made: SecondArray = results[k]
            return made

        for number, k in enumerate(self.image.later[0]):
            found = frame.results[k]
            assert found is not None
            frame.given.put(number, make(k, found).address)
        frame.make = make
        return kept, results

    def _check(self, frame: SecondFrame, code: int, cancel: CancelFlag | None) -> None:
        fault, frame.launches.fault = frame.launches.fault, None
        if fault is not None:
            code, *rest = fault
            for name, value in zip(("command", "a", "b", "c"), rest, strict=True):
                frame.note_fault(name, value)
        if code:
            raise refusals.fault(code, frame, self.plan, cancel)

    def measure(self, feeds: Sequence[Any]) -> list[tuple[str, int]]:
        """Kernels of one run, in their order, with their nanoseconds."""
        found: list[tuple[str, int]] = []
        with self.frames.lease() as frame:
            kept, results = self._prepare(
                frame, feeds, OutputPlacement([None] * len(self.plan.outputs))
            )
            frame.go_on(len(self.plan.commands))
            self._runs.walk(frame, frame.given.address, results)
            timer = SecondTimer()
            timer.do(frame.launches.kernels, lambda number: void(frame.launches.launch(number)))
            timer.take(found, self.plan.commands, set())
            timer.close()
            del kept
        return found

    def callers_capture(self, wanted: OutputPlacement) -> None:
        """Its streams are no one's but its own."""

    def settle(self) -> None:
        """Nothing: all runs are waited for."""

    @property
    def is_settling(self) -> bool:
        return False

    def trim(self) -> None:
        self.frames.trim()

    def trim_staging(self) -> None:
        """Nothing: copies go straight to the device."""

    def release_graphs(self, number: int) -> None:
        """Nothing: callers capture nothing."""

    def report(self) -> ExecutableReport:
        return ExecutableReport(devices={"second": self.device.heap.statistics()})

    def recorded(self, record: ModelRecord, sink: Sink) -> Executable:
        raise NotImplementedError("its runs are not recorded")

    def flush(self) -> None:
        """Nothing: its runs are not recorded."""


def void(_: object) -> None:
    """Nothing."""


def _placed(target: Any, result: SecondArray) -> Any:
    if target is None:
        return result.numpy()
    if isinstance(target, np.ndarray):
        result.read_to(target)
        return target
    return result.numpy() if is_of_host(target) else result


class NoLibraries(Accelerator):
    """Says of every offer why it is not taken."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def refusal(self, offer: Offer) -> str:
        self.asked.append(offer.function)
        return "the second device has no libraries"


class SecondProvider:
    """See `runtime.provider.Provider`."""

    without: frozenset[str] = frozenset()

    def __init__(self, accelerator: Accelerator | None = None, **capabilities: int) -> None:
        self.device = SecondDevice()
        self.target = second_target(**capabilities)
        self.key = self.target.key
        self.accelerator = accelerator
        self.modules: list[SecondModule] = []

    def check(self, lowered: Any) -> None:
        """Nothing."""

    def on_kernel(self, kernel: Any, units: Any) -> None:
        """Nothing: all kernels become one module."""

    def keeper(self, _units: Any, *, winograd: bool, bf16_products: bool) -> None:
        """Nothing: all kernels become one module."""

    def generate(
        self, compiled: Any, phase: Callable[[str], AbstractContextManager[None]], units: Any
    ) -> Generated:
        if compiled.main.has_objects:
            raise errors.NotImplemented(message("second", "It has no functions of the host"))
        early = {c.kernel for p in compiled.preparations for c in p.plan.calls}
        with phase("emit"):
            units.take(compiled.programs(early))
            printed = print_programs(
                compiled.programs({c.kernel for c in compiled.main.calls}), self.target
            )
        with phase("llvm"):
            initial = load_blob(units.blob(early))
        module = SecondModule(printed)
        self.modules.append(module)
        return Generated(initial, lambda: (b"", module))

    def load(self, entry: Entry) -> Any:
        raise NotImplementedError("its sessions have no cache to load kernels from")

    def executable(
        self, plan: Plan, code: Any, constants: Sequence[Array], team: Team, budget: Budget
    ) -> Executable:
        return SecondExecutable(plan, code, constants, self.device, self.target, budget)


#: A type checker proves that they fit.
SECOND_INTERFACES = DeviceInterfaces(
    SecondProvider, SecondDevice, SecondQueue, SecondEvent, SecondHeap, SecondBlock, SecondMemory,
    print_programs, SecondModule, SecondLauncher, SecondRecording, SecondTimer, NoLibraries,
)  # fmt: skip
