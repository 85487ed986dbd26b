"""Groups to invocations: found by their structure, or built, for which the rest is imported."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from sardonyx.base.forks import compiling
from sardonyx.base.log import get_logger
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.loops.block_sizes import BlockSizes
from sardonyx.plan.canonical import LatestCanonical
from sardonyx.plan.groups import CustomKernel, Group, LoopNest
from sardonyx.plan.joined import joined
from sardonyx.selection.invocation import Invocation
from sardonyx.selection.layers import LayerKeeper, Layers
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
        packed: What was packed so far.
    """

    options: SelectionOptions
    kept: LayerKeeper | None = None
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

        def alone() -> list[Invocation]:
            return self.selector.form(group, strides)

        if isinstance(group, CustomKernel) or self.options.block_sizes.has_thread_blocks:
            return alone()
        many = joined(group) if isinstance(group, LoopNest) else None
        if many is not None:
            parts = self.selector.parts(many, strides)
            if parts:
                return parts
            what = "%d joined parts are one kernel: their expressions have more than sizes in them"
            _log.info(what, len(many.shares))
        canonical = self._canonical.of(group, strides)
        return self._layers.of(canonical, group, self.packed, alone, self._names.of, self.kept)
