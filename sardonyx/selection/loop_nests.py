"""Maps and reductions: the tables of the kernels that compute them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from sardonyx.base.forks import compiling
from sardonyx.base.sizes import Dim
from sardonyx.kernel.loops.loop_nest_schedule import LoopNestSchedule
from sardonyx.plan.canonical import Canonical
from sardonyx.plan.groups import LoopNest
from sardonyx.plan.inline import is_view
from sardonyx.plan.reasons import Reason
from sardonyx.selection.general_loop_nest import GeneralLoopNest
from sardonyx.selection.invocation import Invocation, invocation_of, is_prepared
from sardonyx.selection.kernel_record import KernelRecord
from sardonyx.selection.table import Candidate, Table, always, choose
from sardonyx.tensor.tensor import Tensor

if TYPE_CHECKING:
    from sardonyx.kernel.language.compiled import Kernel
    from sardonyx.kernel.loops.block_sizes import Tiling
    from sardonyx.selection.selector import KernelSelector

#: How names of kernels begin that only move elements.
COPY = "copy"

_NO_BLOCKS = Reason("the target has no thread blocks")
_ONCE = Reason("it is computed once, by the processor, when the session is made")
_SIZES = Reason("thread blocks take sizes as they are")
_NAMED = Reason("it lays out an operand of one contraction")
_NOT_REDUCED = Reason("it reduces nothing")
_NO_THREADS = Reason("its rows are unknown, too long, or of several axes for a thread block")


def kind_of(group: object) -> str:
    """What a kernel of maps and reductions is called."""
    assert isinstance(group, LoopNest)  # noqa: S101 - narrows the type for the checker
    if all(s.kind == "map" and is_view(s.body) for s in group.stages):
        return COPY
    return "rows" if group.inner else "map"


class LoopNestTask:
    """Maps and reductions that are to be computed.

    Args:
        selector: Builds kernels.
        group: The loop nest.
        strides: Of all buffers.
        name: How its name has to begin, if that matters.
        is_early: Whether it runs before any run.
    """

    def __init__(
        self,
        selector: KernelSelector,
        group: LoopNest,
        strides: dict[Tensor, tuple[Dim, ...]],
        name: str | None = None,
        is_early: bool = False,
    ) -> None:
        self.selector, self.group, self.name, self.is_early = selector, group, name, is_early
        self.canonical: Canonical = selector.canonical(group, strides)
        #: Whether thread blocks may do it: what is done once is done by the processor.
        self.has_threads = selector.block_sizes.has_thread_blocks and not (
            is_early or is_prepared(group)
        )
        self.tiling: Tiling | None = selector.block_sizes.tiling if self.has_threads else None

    @cached_property
    def windows(self) -> GeneralLoopNest | Reason:
        """It as windows of any sizes."""
        return self.selector.general_windows(self.canonical)

    @cached_property
    def maps(self) -> GeneralLoopNest | Reason:
        """It as maps of any sizes."""
        return self.selector.general_maps(self.canonical)

    @cached_property
    def rows(self) -> GeneralLoopNest | Reason:
        """It as reductions of rows of any sizes."""
        return self.selector.general_rows(self.canonical)


def _only_for_sizes(task: LoopNestTask) -> Reason | None:
    """Why a kernel is for the sizes of one group."""
    if task.selector.block_sizes.has_thread_blocks:
        return _SIZES
    return _NAMED if task.name is not None else None


def _no_windows(task: LoopNestTask) -> Reason | None:
    refusal = _only_for_sizes(task)
    if refusal is None and not task.group.inner:
        refusal = _NOT_REDUCED
    if refusal is not None:
        return refusal
    return task.windows if isinstance(task.windows, Reason) else None


def _no_maps(task: LoopNestTask) -> Reason | None:
    refusal = _only_for_sizes(task)
    if refusal is not None:
        return refusal
    return task.maps if isinstance(task.maps, Reason) else None


def _no_rows(task: LoopNestTask) -> Reason | None:
    refusal = _only_for_sizes(task)
    if refusal is None and not task.group.inner:
        refusal = _NOT_REDUCED
    if refusal is not None:
        return refusal
    return task.rows if isinstance(task.rows, Reason) else None


def _windows(task: LoopNestTask) -> Invocation:
    return _general(task, task.windows)


def _maps(task: LoopNestTask) -> Invocation:
    return _general(task, task.maps)


def _rows(task: LoopNestTask) -> Invocation:
    return _general(task, task.rows)


def _general(task: LoopNestTask, general: GeneralLoopNest | Reason) -> Invocation:
    assert not isinstance(general, Reason)  # noqa: S101 - the row's `why_not` looked
    return task.selector.general(general, task.group, kind_of(task.group))


def _own_kernel(task: LoopNestTask) -> Invocation:
    selector, canonical = task.selector, task.canonical

    def build() -> KernelRecord:
        form = choose(LOOPS, LoopsTask(task), selector.trace)
        made = form.build()
        made.program.as_written = task.is_early  # it runs once
        return KernelRecord(made)

    kernel = selector.kernel_of((canonical.key, task.tiling), build, task.name)
    return invocation_of(kernel, canonical.buffers, task.group)


def _own_cost(task: LoopNestTask) -> Dim | None:
    return None if task.has_threads else LoopsTask(task).schedule.cost_ns()


#: Kernels of loop nests.
LOOP_NESTS: Table[LoopNestTask, Invocation] = (
    Candidate("windows of any sizes", _no_windows, _windows),
    Candidate("maps of any sizes", _no_maps, _maps),
    Candidate("rows of any sizes", _no_rows, _rows),
    Candidate("kernel of its own", always, _own_kernel, _own_cost),
)


class LoopKernel(Protocol):
    """What builds the kernel of one loop nest."""

    def build(self) -> Kernel:
        """The kernel, with what it asks of its caller."""


class LoopsTask:
    """A loop nest over placeholders that gets a kernel of its own."""

    def __init__(self, task: LoopNestTask) -> None:
        group = task.canonical.group
        assert isinstance(group, LoopNest)  # noqa: S101 - narrows the type for the checker
        self.selector, self.strides = task.selector, task.canonical.strides
        self.has_threads, self.tiling = task.has_threads, task.tiling
        self.loop_nest, self._stem = group, task.name

    @cached_property
    def title(self) -> str:
        """The name of its kernel."""
        return self.selector.name(self._stem or kind_of(self.loop_nest))

    @cached_property
    def threads(self) -> LoopKernel | None:
        """It for thread blocks."""
        tiling = self.tiling
        assert tiling is not None  # noqa: S101 - `_no_threads` looked
        with compiling:
            from sardonyx.kernel.gpu.thread_loop_nest import thread_form

        block_sizes = self.selector.block_sizes
        return thread_form(self.loop_nest, self.strides, tiling, block_sizes, self.title)

    @cached_property
    def schedule(self) -> LoopNestSchedule:
        """How vectors go over its axes."""
        return LoopNestSchedule.fitting(
            self.loop_nest, self.strides, self.selector.options.lanes, self.selector.block_sizes
        )


def _no_threads(task: LoopsTask) -> Reason | None:
    if not task.has_threads:
        return _ONCE if task.selector.block_sizes.has_thread_blocks else _NO_BLOCKS
    return _NO_THREADS if task.threads is None else None


def _threads(task: LoopsTask) -> LoopKernel:
    assert task.threads is not None  # noqa: S101 - `_no_threads` looked
    return task.threads


def _vectors(task: LoopsTask) -> LoopKernel:
    with compiling:
        from sardonyx.kernel.loops.loop_nest import LoopNestKernel

    title = task.title
    return LoopNestKernel(task.schedule, title)


#: How a kernel for the sizes of one loop nest goes over its axes.
LOOPS: Table[LoopsTask, LoopKernel] = (
    Candidate("loops of thread blocks", _no_threads, _threads),
    Candidate("loops of vectors", always, _vectors),
)
