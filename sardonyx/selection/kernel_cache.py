"""Groups to invocations: found by their structure, or built, for which the rest is imported."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from sardonyx.base.forks import compiling
from sardonyx.base.log import get_logger
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.loops.block_sizes import BlockSizes
from sardonyx.plan.canonical import Canonical, LatestCanonical
from sardonyx.plan.groups import CustomKernel, Group, LoopNest
from sardonyx.plan.joined import Joined, joined
from sardonyx.plan.reasons import Reason
from sardonyx.selection.invocation import Invocation, is_constant
from sardonyx.selection.layers import LayerKeeper, Layers
from sardonyx.selection.table import Candidate, SelectionTrace, Table, always, choose
from sardonyx.tensor.tensor import Buffer, Tensor

if TYPE_CHECKING:
    from sardonyx.kernel.language.compiled import Kernel
    from sardonyx.plan.vendor_offers import Accelerator
    from sardonyx.selection.kernel_record import Keeper
    from sardonyx.selection.selector import KernelSelector
    from sardonyx.selection.variants import Choices

_log = get_logger("compile")


@dataclass(slots=True)
class KernelNames:
    """Names of kernels, each given once."""

    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def of(self, stem: str) -> str:
        """A name that no kernel has."""
        return f"{stem}_{next(self._numbers)}"


class PackedBuffers(dict[object, Buffer]):
    """What was packed so far, by its contents: nothing is packed twice."""

    def go_back(self, before: dict[object, Buffer]) -> None:
        """Forget what was packed since it was `before`: nobody runs what packs it."""
        self.clear()
        self.update(before)


@dataclass(eq=False, frozen=True, slots=True)
class SelectionOptions:
    """What kernels are built for, and how.

    Attributes:
        lanes: 32-bit lanes of a vector register.
        block_sizes: How much a block of a kernel does.
        winograd: Whether convolutions may be computed with fewer, but less exact, products.
        dots: Whether the target has an instruction for sums of four products of bytes.
        accelerator: Who has libraries.
        bf16_products: Whether factors of products in float32 are rounded to bfloat16.
        keeper: Has kernels of other models.
        choices: Says which structures are computed otherwise than the cost model would.
    """

    lanes: int
    block_sizes: BlockSizes
    winograd: bool = False
    dots: bool = False
    accelerator: Accelerator | None = None
    bf16_products: bool = False
    keeper: Keeper | None = None
    choices: Choices | None = None


@dataclass(eq=False, slots=True)
class KernelCache:
    """What computes groups, for one target.

    Attributes:
        options: What for, and how.
        kept: Has what groups of other models became.
        trace: Takes note of candidates; None in sessions.
        packed: What was packed so far.
    """

    options: SelectionOptions
    kept: LayerKeeper | None = None
    trace: SelectionTrace | None = None
    packed: PackedBuffers = field(default_factory=PackedBuffers)
    _names: KernelNames = field(default_factory=KernelNames)
    _canonical: LatestCanonical = field(default_factory=LatestCanonical)
    _layers: Layers = field(default_factory=Layers)
    _selector: KernelSelector | None = None

    @property
    def selector(self) -> KernelSelector:
        """What forms kernels."""
        if self._selector is None:
            with compiling:
                from sardonyx.selection.selector import KernelSelector

            self._selector = KernelSelector(self.options, self.packed, self._names, self._canonical)
            self._selector.trace = self.trace
        return self._selector

    @property
    def kernels(self) -> dict[object, Kernel]:
        """Every kernel built so far, by the structure that it serves."""
        return {} if self._selector is None else self._selector.kernels

    @property
    def takes_integers(self) -> bool:
        """Whether contractions of dequantised codes should be of the codes."""
        return not self.options.block_sizes.has_thread_blocks

    @property
    def product_lanes(self) -> int:
        """Lanes that the columns of a contraction should fill.

        0 where thread blocks have tiles, or libraries are asked about filters as they are.
        """
        others = self.options.block_sizes.has_thread_blocks or self.options.accelerator is not None
        return 0 if others else self.options.lanes

    @contextmanager
    def for_slices(self) -> Iterator[None]:
        """Inside, buffers may begin anywhere: those of loops are slices of others."""
        if not self.options.block_sizes.has_thread_blocks:
            yield
            return
        with self.selector.for_slices():
            yield

    def form(self, group: Group, strides: dict[Tensor, tuple[Dim, ...]]) -> Sequence[Invocation]:
        """The invocations that compute `group`, in order."""

        task = _GroupTask(self, group, strides)
        if self.trace is None:
            return choose(GROUPS, task)
        with self.trace.group(group, task.structure):
            has_parts = isinstance(group, LoopNest) and not task.is_alone
            return choose(GROUPS, task, self.trace if has_parts else None)


class _GroupTask:
    """A group that is to be computed."""

    def __init__(
        self, cache: KernelCache, group: Group, strides: dict[Tensor, tuple[Dim, ...]]
    ) -> None:
        self.cache, self.group, self.strides = cache, group, strides

    @property
    def is_alone(self) -> bool:
        """Whether it is built for itself, whatever other groups are."""
        has_thread_blocks = self.cache.options.block_sizes.has_thread_blocks
        return isinstance(self.group, CustomKernel) or has_thread_blocks

    @property
    def structure(self) -> object:
        """What groups have in common that are built once; None for those that are built alone."""
        if isinstance(self.group, CustomKernel) or self.is_alone:
            return None
        canonical = Canonical(self.group, self.strides)
        return canonical.key, tuple(map(is_constant, canonical.buffers.values()))

    @cached_property
    def joined(self) -> Joined | None:
        """The many parts that it is joined of."""
        return joined(self.group) if isinstance(self.group, LoopNest) else None

    @cached_property
    def parts(self) -> list[Invocation]:
        """What computes these; nothing if they cannot share kernels."""
        assert self.joined is not None  # noqa: S101 - `_no_parts` looked
        return self.cache.selector.parts(self.joined, self.strides)

    def form(self) -> list[Invocation]:
        """Its kernels as if there were no other group."""
        return self.cache.selector.form(self.group, self.strides)


_BUILT_ALONE = Reason("it is built for itself, whatever other groups are")
_NOT_JOINED = Reason("it does not choose between many parts along an axis")
_MORE_THAN_SIZES = Reason("its parts have more than sizes in them, so they could share no kernel")


def _no_parts(task: _GroupTask) -> Reason | None:
    if task.is_alone:
        return _BUILT_ALONE
    if task.joined is None:
        return _NOT_JOINED
    if task.parts:
        return None
    what = "%d joined parts are one kernel: their expressions have more than sizes in them"
    _log.info(what, len(task.joined.shares))
    return _MORE_THAN_SIZES


def _parts(task: _GroupTask) -> Sequence[Invocation]:
    return task.parts


def _whole(task: _GroupTask) -> Sequence[Invocation]:
    group, cache = task.group, task.cache
    if task.is_alone or isinstance(group, CustomKernel):
        return task.form()
    canonical = cache._canonical.of(group, task.strides)
    return cache._layers.of(canonical, group, cache.packed, task.form, cache._names.of, cache.kept)


#: How kernels are found for a group: part by part, or by what computes groups of its kind.
GROUPS: Table[_GroupTask, Sequence[Invocation]] = (
    Candidate("part by part", _no_parts, _parts),
    Candidate("as a whole", always, _whole),
)
