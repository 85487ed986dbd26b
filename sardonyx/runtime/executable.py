"""Runs plans: checks feeds, leases a frame, enters native code once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.errors import (
    EngineError,
    InvalidArgument,
    RuntimeException,
    message,
)
from sardonyx.base.interrupt import Interrupted, counting, watching
from sardonyx.native.execute import CANCELLED
from sardonyx.native.functions import library
from sardonyx.native.layout import (
    NEED_GROWTH,
    NEED_HOST,
    NEED_MEMORY,
    NEED_RESULTS,
    NOT_LAUNCHED,
    REFUSED,
)
from sardonyx.plan.plan import Command, Plan
from sardonyx.runtime import arrays, pool, refusals
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.arrays import ITEMS_OFFSET, NATIVE, Mirror
from sardonyx.runtime.async_runs import AsyncRun
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.fast_path import FastPath
from sardonyx.runtime.frame import Frame, Result
from sardonyx.runtime.growable_buffer import GrowableBuffers
from sardonyx.runtime.growable_values import HOST_ROOMS
from sardonyx.runtime.host_calls import HostPlan, HostTable
from sardonyx.runtime.host_epilogue import HostEpilogue
from sardonyx.runtime.plan_tables import PlanCode, PlanTables
from sardonyx.runtime.results import check_output, check_outputs, new_result, new_results
from sardonyx.runtime.storage import HOST, Array, MemoryKind, OutputPlacement, place
from sardonyx.runtime.team import Team
from sardonyx.targets.target import host_target

if TYPE_CHECKING:
    from sardonyx.runtime.recording import Sink
    from sardonyx.store.model_record import ModelRecord


class Executable(FastPath):
    """A plan with code and constants; any number of threads may run it at once.

    Args:
        plan: What to do.
        code: Has the address of every kernel of the plan; kept alive.
        constants: Contiguous arrays behind the plan's constants; kept alive.
        threads: How many threads a run may use, the caller included; or how they share it.
        functions: Addresses of shared functions, for the context's field of that name.
        budget: What its memory counts in; by default it may have what the machine has.
        image: Its tables, if they are made already.

    Raises:
        EngineError: The parts do not fit each other.
        NotFound: The code lacks a kernel.
    """

    def __init__(
        self,
        plan: Plan,
        code: PlanCode,
        constants: Sequence[Array] = (),
        *,
        threads: int | Team = 1,
        functions: Sequence[int] = (),
        budget: Budget | None = None,
        image: PlanTables | None = None,
    ) -> None:
        self.budget = budget or Budget()
        self.team = threads if isinstance(threads, Team) else Team(threads)
        self.plan = plan
        self._image = image or PlanTables(plan, code, constants, self.team)
        self._functions = np.array([*functions, 0], np.int64)
        native = library()
        self._native_bind, self._native_resolve = native.bind, native.resolve
        self._native_execute, self._native_fits = native.execute, native.fits
        self._native_again = native.again
        if self.team.flushes_denormals:
            self._native_execute = native.flushing_execute
            self._native_again = native.flushing_again
        self._free: list[Frame] = []
        self._frames: list[Frame] = []
        self._input_count = len(plan.inputs)
        self._pool: pool.Pool | None = None
        self._generation = -1
        self._resolves = 0
        self._segmented = len(plan.segments) > 1
        self._host = HostPlan(plan) if plan.has_objects else None
        self._late = HostEpilogue.of(self._host, self._image)

    def _new_frame(self) -> Frame:
        return Frame(self._image, address_of(self._functions), self.budget)

    def recorded(self, record: ModelRecord, sink: Sink) -> Executable:
        """What runs the same plan, and gives `sink` a trace of each run.

        This one gives up its memory, and its quick ways, which bindings may still have.
        """
        from sardonyx.runtime.recording import RecordedExecutable

        made = RecordedExecutable(self, record, sink)
        self.trim()
        for frame in list(self._frames):  # of runs that are under way
            frame.invalidate()
        return made

    def flush(self) -> None:
        """Give the sink of recorded runs those that it does not have yet."""

    @property
    def runs_on(self) -> str:
        """The machine that kernels run on, in words."""
        return host_target().name

    @property
    def is_settling(self) -> bool:
        """Whether something is made in the background that later runs need, or are faster with."""
        return False

    def remarks(self) -> list[str]:
        """What is to be said about runs beside the plan, one line each."""
        return []

    def release_graphs(self, number: int) -> None:
        """Forget runs that were captured under a number, where runs are captured."""

    @property
    def resolves(self) -> int:
        """How often shapes were new to a frame."""
        return self._resolves

    # -- running ------------------------------------------------------------------------------

    def run(self, feeds: Sequence[object], cancel: CancelFlag | None = None) -> list[Array]:
        """Run once.

        Args:
            feeds: One array per input, in order; C-contiguous arrays are not copied. They must not
                be changed meanwhile.
            cancel: Ends the run when it is set.

        Returns:
            Arrays, one per output, in memory that nobody else has while they live.

        Raises:
            InvalidArgument: A feed does not fit.
            RuntimeException: A kernel met data that it cannot work on.
            Fail: The run was cancelled; TimedOut if its time is over.
            OutOfMemory: There is not enough memory.
        """
        with self.lease() as frame:
            kept = self._bind(frame, self._encoded(frame, feeds))
            outputs: list[Any] = new_results(frame)
            self._execute(frame, outputs, cancel)
            del kept
            if frame.host is not None:
                outputs = frame.host.decode(self.plan.outputs, outputs)
        return outputs

    def run_to(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> list[Any]:
        """Run once, with results where they are wanted; feeds may lie on devices.

        Raises as `run` does, and:
            InvalidArgument: A target does not fit.
        """
        results = self.run(feeds, cancel)
        rows = zip(self.plan.outputs, wanted.targets, results, strict=True)
        return [place(spec.name, target, result) for spec, target, result in rows]

    def run_alike(
        self, feeds: Sequence[Any], targets: Sequence[Any] | None = None
    ) -> list[Any] | None:
        """`run_to` in memory of a device, if all is as in the last run but addresses.

        None for other runs: then `run_to` knows what to do.

        Args:
            feeds: As many as there are inputs.
            targets: Where results are wanted; None: in new memory.
        """
        return None

    def fetch_alike(self, feeds: tuple[Any, ...]) -> list[Any] | None:
        """`run_alike`, with results as NumPy arrays."""
        return None

    def leave_alike(self, feeds: tuple[Any, ...]) -> list[Any] | None:
        """`run_alike`, but nobody waits for the run: it may be under way."""
        return None

    def tensors_alike(self, feeds: tuple[Any, ...]) -> list[Any] | None:
        """`run_alike` with tensors of torch, in its current stream; results are such, too."""
        return None

    @property
    def follows_tensors(self) -> bool:
        """Whether calls with tensors of torch are best in torch's stream."""
        return False

    def callers_capture(self, wanted: OutputPlacement) -> AbstractContextManager[None] | None:
        """What to run in if the run's stream is captured by the caller; None if it is not.

        The run then is one whose `OutputPlacement.is_captured` is set: its work becomes part of a
        graph.
        """
        return None

    @property
    def reserved_bytes(self) -> int:
        """Memory that graphs of callers keep."""
        return 0

    @property
    def is_asynchronous(self) -> bool:
        """Whether `start` comes back before the run has happened."""
        return False

    @property
    def growable_buffers(self) -> GrowableBuffers | None:
        """What has values that grow where they lie; None if results are always new memory."""
        return HOST_ROOMS

    def start(
        self, feeds: Sequence[Any], wanted: OutputPlacement, cancel: CancelFlag | None = None
    ) -> AsyncRun:
        """Begin a run as `run_to` does, for somebody to finish."""
        return AsyncRun(self.run_to(feeds, replace(wanted, waits=True), cancel))

    def trim_staging(self) -> None:
        """Give back memory of the host through which copies to and from a device go."""

    @property
    def memory_kind(self) -> MemoryKind:
        """Where feeds are wanted, and results lie at first."""
        return HOST

    def device_statistics(self) -> dict[str, dict[str, Any]]:
        """What arenas of devices hold, by their names; see `cuda.memory.arena.Arena.statistics`."""
        return {}

    def settle(self) -> None:
        """Wait for runs that were not waited for.

        Raises:
            RuntimeException: In one of them a kernel met data that it cannot work on.
        """

    def _encoded(self, frame: Frame, feeds: Sequence[object]) -> tuple[object, ...]:
        """The feeds, with codes for objects, whose table the frame has from now on."""
        if self._host is None:
            return tuple(feeds)
        frame.host = HostTable(self._host, self.budget)
        return frame.host.encode(self.plan.inputs, feeds)

    def run_into(
        self,
        feeds: Sequence[object],
        outputs: Sequence[Array],
        cancel: CancelFlag | None = None,
    ) -> None:
        """Run once, writing to arrays that exist: right shape and type, contiguous, writable.

        They must not overlap the feeds or each other. Raises as `run` does.
        """
        with self.lease() as frame:
            kept = self._bind(frame, self._encoded(frame, feeds))
            given = list(outputs)
            check_outputs(self.plan, frame, given)
            self._execute(frame, given, cancel)
            del kept

    def output_shapes(self, feeds: Sequence[object]) -> list[tuple[int, ...] | None]:
        """Shapes that a run with these feeds would give, without running it.

        None for an output whose shape depends on more than the feeds' shapes.
        """
        with self.lease() as frame:
            self._bind(frame, self._encoded(frame, feeds))
            return [None if r is None else r[0] for r in frame.results]

    def _bind(self, frame: Frame, feeds: tuple[object, ...]) -> tuple[object, ...]:
        """Give the frame the feeds; what comes back must live as long as the run."""
        if len(feeds) != self._input_count:
            raise InvalidArgument(
                message(
                    "run",
                    "The number of feeds is wrong",
                    expected=str(self._input_count),
                    got=str(len(feeds)),
                )
            )
        state = self._enter(frame, feeds)
        seen = -1
        while state < 0:
            number = -1 - state
            if number == seen:
                raise EngineError(message("run", f"Feed {number} cannot be made plain"))
            seen = number
            with counting(self._claim, self.budget.give):
                fit = arrays.plain(feeds[number], self.plan.inputs[number])
            feeds = (*feeds[:number], fit, *feeds[number + 1 :])
            state = self._enter(frame, feeds)
        if state:
            self._resolve(frame)
        return feeds

    def _claim(self, size_bytes: int) -> None:
        self.budget.take(size_bytes, "copies of feeds")

    def _enter(self, frame: Frame, feeds: tuple[object, ...]) -> int:
        if NATIVE:
            return self._native_bind(frame.address, id(feeds) + ITEMS_OFFSET)
        mirror = Mirror(feeds)  # it must live until native code has read it
        return self._native_bind(frame.address, mirror.address)

    def _resolve(self, frame: Frame) -> None:
        self._resolves += 1
        code = self._native_resolve(frame.address, 0)
        if code:
            frame.invalidate()
            raise refusals.refusal(code, frame, self._image)
        frame.prepare()

    def _execute(self, frame: Frame, outputs: list[Any], cancel: CancelFlag | None) -> None:
        """Run a bound frame; outputs that are None are made when their shapes are known."""
        known = tuple([outputs[k] for k in self._image.later[0]]) if self._segmented else outputs
        items = tuple(known)
        mirror = None if NATIVE else Mirror(items)
        address = id(items) + ITEMS_OFFSET if mirror is None else mirror.address
        if cancel is not None:
            frame.watch(cancel.address)
        try:
            code = self._do_commands(frame, address, outputs)
        finally:
            if cancel is not None:
                frame.watch(None)
        if code:
            raise refusals.fault(code, frame, self.plan, cancel)

    def _do_commands(self, frame: Frame, items: int, outputs: list[Any]) -> int:
        """Do the commands, with the session's threads if no other run has them."""
        workers = self._workers() if frame.threads > 1 else None
        # A pool that another run has does not make this one wait.
        if workers is not None and workers.lock.acquire(blocking=False):
            try:
                return self._execute_on(workers, frame, items, outputs)
            finally:
                workers.lock.release()
        return self._enter_until_done(frame, items, None, outputs)

    def _execute_on(self, workers: pool.Pool, frame: Frame, items: int, outputs: list[Any]) -> int:
        if workers.closed or not self._may_share(workers, frame):
            return self._enter_until_done(frame, items, None, outputs)
        workers.reserve(frame.scratch.capacity_bytes)
        return self._enter_until_done(frame, items, workers, outputs)

    def _may_share(self, workers: pool.Pool, frame: Frame) -> bool:
        """Whether the session may have what kernels work in for every thread."""
        lacking = workers.lacking_bytes(frame.scratch.capacity_bytes)
        return not lacking or self.budget.may_take(lacking)

    def _enter_until_done(
        self, frame: Frame, items: int, workers: pool.Pool | None, outputs: list[Any]
    ) -> int:
        address = 0 if workers is None else workers.address
        # Between two rounds Python's signal handlers run: Ctrl-C ends a long run.
        while (code := self._native_execute(frame.address, items, address)) < 0:
            if code == NEED_MEMORY:
                frame.supply(frame.get("detail_a"))
                if workers is not None and self._may_share(workers, frame):
                    workers.reserve(frame.scratch.capacity_bytes)
                elif workers is not None:
                    address = 0
            elif code == NEED_RESULTS:
                self._give_results(frame, frame.get("detail_a"), outputs)
            elif code == NEED_GROWTH:
                frame.grow()
            elif code == NEED_HOST:
                try:
                    self._call_host(frame, frame.get("command"))
                except Interrupted:
                    return CANCELLED
            elif code == REFUSED:
                raise refusals.refusal(frame.get("detail_c"), frame, self._image)
            elif code == NOT_LAUNCHED:
                raise self._not_launched(frame, frame.get("detail_a"))
        return code

    def _not_launched(self, frame: Frame, code: int) -> Exception:
        """What to raise when a device refuses work."""
        return RuntimeException(message("run", f"A kernel is refused with code {code}"))

    def _call_host(self, frame: Frame, number: int) -> None:
        """Do the command at which native code stopped."""
        command = self.plan.commands[number]
        assert isinstance(command, Command)  # noqa: S101 - native code stops at no other
        assert frame.host is not None  # noqa: S101 - a plan with such commands has a table
        start = self._image.argument_places[number]
        words = frame.table("arguments")[start : start + len(command.arguments)]
        with watching(frame.checkpoint):
            frame.host.call(number, command, words.tolist())
        frame.go_on(number + 1)

    def _give_results(self, frame: Frame, segment: int, outputs: list[Any]) -> None:
        """Memory for the outputs whose shapes a segment has brought."""
        frame.reserve_results(segment)
        for number in self._image.later[segment]:
            result = frame.result(number)
            if outputs[number] is None:
                outputs[number] = self._new_result(frame, result)
            else:
                check_output(self.plan, number, result, outputs[number])
        frame.give(segment, {number: outputs[number] for number in self._image.later[segment]})

    def _new_result(self, frame: Frame, result: Result) -> Any:
        return new_result(frame, result)

    @property
    def workers(self) -> pool.Pool | None:
        """The threads that runs have had so far; None if they had none."""
        return self._pool

    def _workers(self) -> pool.Pool | None:
        if self._generation != pool.generation:
            self._pool = pool.shared_pool(self.team.size, self.team.setup)
            self._generation = pool.generation
        return self._pool
