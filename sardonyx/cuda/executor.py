"""Runs plans on a device: native code of the host launches kernels, or a graph is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.base.errors import EngineError, Fail, RuntimeException, SardonyxError, message
from sardonyx.base.log import get_logger
from sardonyx.codegen.ptx import THREADS
from sardonyx.cuda.device import Device
from sardonyx.cuda.driver import call, error_text
from sardonyx.cuda.graphs import GRAPH_ID, Graph, Graphs
from sardonyx.cuda.launching import PER_PROCESSOR, Launches, PinnedWords
from sardonyx.cuda.memory import DeviceArray, DeviceMemory
from sardonyx.cuda.module import Module
from sardonyx.kernel.context import FIELDS, SIZE_BYTES
from sardonyx.plan.plan import Plan
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
    NEEDED_FLAGS,
    RANK_OFFSET,
    TYPE_OFFSET,
    WORD,
)

_logger = get_logger("cuda")
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
        launches: How its kernels reach the device.
        graphs: Its captured runs.
        staging: Memory of each feed.
    """

    __slots__ = (
        "_contexts", "_device", "_fault", "_found", "_owner", "_scratch", "graphs", "launches",
        "staging", "stream",
    )  # fmt: skip

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
        self._scratch = DeviceMemory(owner.device, "what kernels work in")
        self._found = PinnedWords(owner.device, _FAULT_WORDS)
        self.launches = Launches(
            owner.device, owner.module, owner.image, self.table("jobs"), self.table("arguments"),
            self._contexts.address, self.stream, owner.mapped,
        )  # fmt: skip
        self._set("launches", self.launches.address)
        self._set("launcher", self.launches.launcher)
        self.graphs = Graphs()

    def supply(self, segment: int) -> None:
        """See `Frame.supply`; kernels learn where they may work, too."""
        super().supply(segment)
        each = -(-self.get("scratch_bytes") // 64) * 64
        warps = self._device.processors * PER_PROCESSOR * THREADS[1]
        if each:
            warps = max(THREADS[1], min(warps, _MOST_SCRATCH // each))
            self._scratch.grow(each * warps)
        self.launches.limit(warps)
        self._place_contexts(self._scratch.address, each)

    def _place_contexts(self, scratch: int, each_bytes: int) -> None:
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

    def end(self) -> None:
        """Let the host know of faults, when the run is done."""
        size = WORD * _FAULT_WORDS
        call("cuMemcpyDtoHAsync", self._found.address, self._fault.address, size, self.stream)

    def fault(self) -> list[int]:
        """Waits for the run; what went wrong in it: code, command, and two numbers."""
        call("cuStreamSynchronize", self.stream)
        return self._found.words[:_FAULT_WORDS].tolist()  # type: ignore[no-any-return]

    def skip(self) -> None:
        """Let native code do what comes before the commands, but no command."""
        self.go_on(len(self._image.plan.commands))


class CudaExecutable(Executable):
    """As `Executable`, on a device.

    Sizes that only a run knows are read by the host: plans with such sizes keep their values in
    memory of the host that the device reaches, and the host waits for what it reads.
    """

    def __init__(
        self,
        plan: Plan,
        module: Module,
        constants: Sequence[Array],
        device: Device,
        budget: Budget | None = None,
        graphs: str = "automatic",
    ) -> None:
        self.device, self.module = device, module
        self.mapped = len(plan.segments) > 1
        device.enter()
        self._weights = [self._upload(a) for a in constants]
        self.image = Image(plan, module, constants, 1, remote=[w.address for w in self._weights])
        self.graph_mode = graphs
        super().__init__(plan, module, constants, budget=budget, image=self.image)
        self._no_graph = self._why_no_graph()

    def _why_no_graph(self) -> str:
        """Why runs are not captured; "" if they are."""
        if self.graph_mode == "off":
            return "they are switched off"
        if self.mapped:
            return "the host reads sizes or conditions that the run computes"
        return ""

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
        code = self._launch(frame, mirror.address, outputs)
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

    # -- launching ----------------------------------------------------------------------------

    def _launch(self, frame: CudaFrame, items: int, outputs: list[Any]) -> int:
        """Do a run: replay its graph, or launch one kernel after the other."""
        number = GRAPH_ID.get()
        if self._no_graph or number < 0:
            return self._launch_each(frame, items, outputs)
        frame.skip()
        code = self._native_execute(frame.address, items, 0)  # writes the arguments
        if code:
            return code
        key = (number, frame.launches.bucket, frame.launches.fixed)
        graph = frame.graphs.find(key)
        if graph is None and frame.graphs.wants(key):
            graph = self._capture(frame, items, outputs)
            if graph is not None:
                frame.graphs.add(key, graph)
        if graph is None:
            frame.go_on(0)
            return self._launch_each(frame, items, outputs)
        frame.launches.stage()
        graph.launch(frame.stream)
        return 0

    def _launch_each(self, frame: CudaFrame, items: int, outputs: list[Any]) -> int:
        frame.begin()
        code = self._enter_until_done(frame, items, None, outputs)
        frame.end()
        return code

    def _capture(self, frame: CudaFrame, items: int, outputs: list[Any]) -> Graph | None:
        """The graph of a run; None, from now on, if it cannot be captured."""

        def record() -> None:
            frame.launches.upload()
            frame.begin()
            frame.go_on(0)
            code = self._enter_until_done(frame, items, None, outputs)
            if code:
                raise EngineError(message("CUDA graph", f"The walk ended with code {code}"))
            frame.end()

        frame.launches.use_table()
        try:
            return Graph(frame.stream, record)
        except SardonyxError as error:
            self._no_graph = f"the driver does not capture it: {error}"
            _logger.warning("runs go without a graph: %s", self._no_graph)
            return None
        finally:
            frame.launches.use_arguments()

    def release_graphs(self, number: int) -> None:
        """Forget the graphs that runs with this number captured."""
        for frame in list(self._frames):
            assert isinstance(frame, CudaFrame)  # noqa: S101 - it makes no others
            frame.graphs.release(number)

    def remarks(self) -> list[str]:
        """See `Executable.remarks`."""
        if self._no_graph:
            return [f"CUDA graphs: none, {self._no_graph}"]
        graphs = [f.graphs for f in self._frames if isinstance(f, CudaFrame)]
        held, replays = sum(map(len, graphs)), sum(g.replays for g in graphs)
        return [f"CUDA graphs: {held}, replayed {replays} times; captured when a size comes again"]

    def _not_launched(self, frame: Frame, code: int) -> Exception:
        what = f"A kernel is refused: {error_text(code)}"
        return RuntimeException(message("CUDA", what))

    def run_into(self, feeds: Any, outputs: Any, cancel: Any = None) -> None:
        """See `Executable.run_into`."""
        for target, source in zip(outputs, self.run(feeds, cancel), strict=True):
            if target.shape != source.shape or target.dtype != source.dtype:
                raise Fail(message("run", "An array to write to does not fit"))
            target[...] = source
