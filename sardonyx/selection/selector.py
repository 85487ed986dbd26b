"""Groups to kernels: which candidate computes each, one kernel for groups of equal structure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING

from sardonyx.base.forks import compiling
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.loops.block_sizes import BlockSizes
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.factors import Packing
from sardonyx.plan.canonical import Canonical, LatestCanonical, Shareable
from sardonyx.plan.grouping import pointwise, sum_alone
from sardonyx.plan.groups import Attention, Contraction, CustomKernel, Group, LoopNest
from sardonyx.plan.inline import Materialized
from sardonyx.plan.joined import Joined
from sardonyx.plan.layout import row_major
from sardonyx.plan.reasons import Reason
from sardonyx.selection.attentions import ATTENTION_KERNELS, ATTENTIONS, AttentionTask
from sardonyx.selection.contractions import CONTRACTIONS, PRODUCTS, ContractionTask
from sardonyx.selection.general_attention import GeneralAttention, general_attention
from sardonyx.selection.general_contraction import GeneralContraction, general_product, is_brief
from sardonyx.selection.general_copy import Valued
from sardonyx.selection.general_group import Remembered
from sardonyx.selection.general_loop_nest import (
    GeneralLoopNest,
    GeneralWindows,
    general_map,
    general_rows,
)
from sardonyx.selection.invocation import Invocation, invocation_of
from sardonyx.selection.joined import parts_of
from sardonyx.selection.kernel_cache import KernelNames, PackedBuffers, SelectionOptions
from sardonyx.selection.kernel_record import KernelRecord
from sardonyx.selection.layers import PACKED
from sardonyx.selection.loop_nests import LOOP_NESTS, LoopNestTask, kind_of
from sardonyx.selection.matmul import PRODUCT
from sardonyx.selection.packing import Packings
from sardonyx.selection.table import SelectionTrace, choose
from sardonyx.selection.variants import DEFAULT, Variant
from sardonyx.tensor.arithmetic import constant
from sardonyx.tensor.tensor import Buffer, Map, Reduce, Tensor, buffer

if TYPE_CHECKING:
    from sardonyx.kernel.matmul.blockwise_product import BlockwiseKernel


@dataclass(eq=False, slots=True)
class KernelSelector:
    """Forms kernels for one target.

    Attributes:
        options: What for, and how.
        packed: What was packed so far.
        kernels: Every kernel built so far, by the structure that it serves.
        blockwise: Those of contractions with codes in blocks, with what forms them.
        block_sizes: How much a block of the kernel that is being built does.
        variant: How that kernel is computed.
        needs: What is packed before a kernel runs, by its structure.
        walked: Which left factors need no copy, by the structure of the contraction.
        schedules: Those made to find out.
        tiled: Kernels in tiles of a contraction, with what they need, by its structure.
        partials: Memory for parts of an attention's results, by its structure.
        masks: Arrays of what attentions add to their scores, by their contents.
        valued: Gives kernels for any sizes those of a layer.
        trace: Takes note of candidates; None in sessions.
    """

    options: SelectionOptions
    packed: PackedBuffers = field(default_factory=PackedBuffers)
    _names: KernelNames = field(default_factory=KernelNames)
    _canonical: LatestCanonical = field(default_factory=LatestCanonical)
    kernels: dict[object, Kernel] = field(default_factory=dict)
    blockwise: dict[object, tuple[Kernel, BlockwiseKernel]] = field(default_factory=dict)
    block_sizes: BlockSizes = field(init=False)
    variant: Variant = DEFAULT
    needs: dict[object, list[Packing]] = field(default_factory=dict)
    walked: dict[object, bool] = field(default_factory=dict)
    schedules: dict[object, ContractionSchedule] = field(default_factory=dict)
    tiled: dict[object, list[tuple[Kernel, list[Packing], Buffer | None]]] = field(
        default_factory=dict
    )
    partials: dict[object, Buffer | None] = field(default_factory=dict)
    masks: dict[Map, Buffer] = field(default_factory=dict)
    _packings: Packings = field(default_factory=Packings)
    valued: Valued = field(default_factory=Valued)
    trace: SelectionTrace | None = None
    _windows: Remembered[GeneralLoopNest] | None = None
    _maps: Remembered[GeneralLoopNest] | None = None
    _rows: Remembered[GeneralLoopNest] | None = None
    _products: dict[bool, Remembered[GeneralContraction]] = field(default_factory=dict)
    _attentions: Remembered[GeneralAttention] | None = None

    def __post_init__(self) -> None:
        self.block_sizes = self.options.block_sizes

    @contextmanager
    def for_slices(self) -> Iterator[None]:
        """Inside, buffers may begin anywhere: those of loops are slices of others."""
        before = self.block_sizes
        self.block_sizes = before.for_any_address()
        try:
            yield
        finally:
            self.block_sizes = before

    def form(self, group: Group, strides: dict[Tensor, tuple[Dim, ...]]) -> list[Invocation]:
        """The invocations that compute `group`, in order, as if there were no other group."""
        if isinstance(group, CustomKernel):
            with compiling:
                from sardonyx.selection.custom_kernel import CUSTOM_KERNELS, CustomKernelTask

            return choose(CUSTOM_KERNELS, CustomKernelTask(self, group, strides), self.trace)
        if isinstance(group, LoopNest):
            return [self.rows(group, strides)]
        if isinstance(group, Attention):
            attention = AttentionTask(self, group, strides)
            made = choose(ATTENTIONS, attention, self.trace)
            _note(made[-1], attention.refusal, "")
            return made
        contraction = ContractionTask(self, group, strides)
        made = choose(CONTRACTIONS, contraction, self.trace)
        is_product = made[-1].kernel.program.name.startswith(PRODUCT)
        _note(made[-1], contraction.refusal, group.contraction.remark if is_product else "")
        return made

    def canonical(self, group: Shareable, strides: dict[Tensor, tuple[Dim, ...]]) -> Canonical:
        """A group over placeholders; made once where it is asked for several times in a row."""
        return self._canonical.of(group, strides)

    def attention_kernel(
        self, group: Attention, strides: dict[Tensor, tuple[Dim, ...]]
    ) -> list[Invocation]:
        """The invocation of a kernel alone that computes an attention."""
        return choose(ATTENTION_KERNELS, AttentionTask(self, group, strides), self.trace)

    def product(
        self, group: Contraction, strides: dict[Tensor, tuple[Dim, ...]], *, pack: bool = True
    ) -> list[Invocation]:
        """The invocations of kernels alone that compute a contraction; see `ContractionTask`."""
        return choose(PRODUCTS, ContractionTask(self, group, strides, pack), self.trace)

    def packed_buffer(
        self, contents: Map | Reduce, strides: dict[Tensor, tuple[Dim, ...]]
    ) -> tuple[Buffer, list[Invocation]]:
        """The buffer with these contents, and what fills it if nothing does yet."""
        packed = self.packed.get(contents)
        if packed is not None:
            return packed, []
        packed = buffer((PACKED, contents), contents.shape, contents.dtype)
        self.packed[contents] = packed
        return packed, [self._packings.filling(self, contents, packed, strides)]

    def name(self, prefix: str) -> str:
        """A name that no kernel has."""
        return self._names.of(prefix)

    def rows(
        self,
        group: LoopNest,
        strides: dict[Tensor, tuple[Dim, ...]],
        name: str | None = None,
        *,
        is_early: bool = False,
    ) -> Invocation:
        """The invocation that computes maps and reductions, before any run if `is_early`."""
        return choose(LOOP_NESTS, LoopNestTask(self, group, strides, name, is_early), self.trace)

    def parts(self, joined: Joined, strides: dict[Tensor, tuple[Dim, ...]]) -> list[Invocation]:
        """The invocations that compute a joined tensor part by part; none if that cannot be."""
        whole, found = joined.stage.root.buffer, list[Invocation]()
        for part in parts_of(joined, strides):
            made = self.general(part.rows, joined.group, kind_of(part.rows.group))
            reads = tuple(b for b in made.reads if b not in part.places)
            found.append(replace(made, reads=reads, writes=(whole,), places=part.places))
        return found

    def general_windows(self, canonical: Canonical) -> GeneralLoopNest | Reason:
        """Windows for any sizes; why their form depends on them."""
        if self._windows is None:
            self._windows = Remembered(GeneralWindows(self.options.lanes, self.block_sizes).of)
        return self._windows.of(canonical)

    def general_maps(self, canonical: Canonical) -> GeneralLoopNest | Reason:
        """Maps for any sizes; why their form depends on them."""
        if self._maps is None:
            lanes = self.options.lanes
            self._maps = Remembered(lambda canonical: general_map(canonical, lanes))
        return self._maps.of(canonical)

    def general_rows(self, canonical: Canonical) -> GeneralLoopNest | Reason:
        """Reductions of rows for any sizes; why their form depends on them."""
        if self._rows is None:
            lanes = self.options.lanes
            self._rows = Remembered(lambda canonical: general_rows(canonical, lanes))
        return self._rows.of(canonical)

    def general_product(
        self, group: Contraction, strides: dict[Tensor, tuple[Dim, ...]]
    ) -> GeneralContraction | Reason:
        """A product by a constant for any sizes; why its form depends on them."""
        brief = is_brief(group)
        remembered = self._products.get(brief)
        if remembered is None:
            lanes, block_sizes = self.options.lanes, self.block_sizes
            remembered = self._products[brief] = Remembered(
                lambda canonical: general_product(canonical, lanes, block_sizes, brief=brief)
            )
        return remembered.of(self.canonical(group, strides))

    def general_attention(self, canonical: Canonical) -> GeneralAttention | Reason:
        """An attention for any number of queries; why its form depends on that."""
        if self._attentions is None:
            block_sizes = self.block_sizes
            self._attentions = Remembered(
                lambda canonical: general_attention(canonical, block_sizes)
            )
        return self._attentions.of(canonical)

    def general(
        self, general: GeneralLoopNest | GeneralAttention, group: Group, kind: str
    ) -> Invocation:
        """The invocation of a kernel that others of other sizes use, too."""

        def build() -> KernelRecord:
            return KernelRecord(
                general.build(self.options.lanes, self.block_sizes, self.name(kind))
            )

        kernel = self.kernel_of(general.key, build)
        return invocation_of(self.valued.of(kernel, general.values), dict(general.actual), group)

    def number(self, contents: Map) -> Buffer:
        """The buffer of one known number."""
        found, dtype = self.packed.get(contents), contents.dtype
        if found is None:
            held = Constant.from_array(
                constant(contents.body.payload, dtype, dtype.numpy).reshape(1)
            )
            found = buffer(("number", contents), contents.shape, dtype, constant=held)
            self.packed[contents] = found
        return found

    def kernel_of(
        self, key: tuple[object, ...], build: Callable[[], KernelRecord], kind: str | None = None
    ) -> Kernel:
        """The kernel of a structure: known, or built now.

        Args:
            key: The structure.
            build: Forms it.
            kind: How its name has to begin, if that matters.
        """
        kernel = self.kernels.get(key)
        if kernel is not None:
            if self.trace is not None:
                self.trace.again(key)
            return kernel
        choices, keeper = self.options.choices, self.options.keeper
        variant = DEFAULT if choices is None else choices.of(key)
        record = self.known(key, kind, variant)
        if record is None:
            noted = contextlib.nullcontext() if self.trace is None else self.trace.kernel(key)
            with noted, self._varied(variant):
                record = build()
            if keeper is not None:
                keeper.keep(_kept_as(key, kind, variant), record)
        self.kernels[key], self.needs[key] = record.kernel, record.packings
        return record.kernel

    def known(
        self, key: tuple[object, ...], kind: str | None, variant: Variant
    ) -> KernelRecord | None:
        """The kernel of a structure that was built before; see `kernel_of`."""
        keeper = self.options.keeper
        return None if keeper is None else keeper.find(_kept_as(key, kind, variant), self.name)

    @contextmanager
    def _varied(self, variant: Variant) -> Iterator[None]:
        """Inside, kernels are built in another way."""
        before, self.variant = (self.block_sizes, self.variant), variant
        self.block_sizes = variant.block_sizes(self.block_sizes)
        try:
            yield
        finally:
            self.block_sizes, self.variant = before

    def pack(
        self,
        contents: Map | Reduce,
        packed: Buffer,
        strides: dict[Tensor, tuple[Dim, ...]],
        name: str | None = None,
        *,
        is_early: bool = False,
    ) -> Invocation:
        """The invocation that writes `contents` to `packed`, before any run if `is_early`."""
        root = Materialized(contents, packed, (contents.body,))
        group = pointwise(root) if isinstance(contents, Map) else sum_alone(root)
        own = {packed: row_major(packed.shape), **strides}
        return self.rows(group, own, name, is_early=is_early)


def _kept_as(key: object, kind: str | None, variant: Variant) -> tuple[object, ...]:
    """What a keeper knows a structure by."""
    return (key, kind) if variant == DEFAULT else (key, kind, *variant.to_numbers().items())


def _note(made: Invocation, refusal: str | None, remark: str) -> None:
    """Say why no library does what a kernel does, and why it is not computed on integers."""
    if refusal is not None:
        refused = f"no library does it: {refusal}" if refusal else ""
        made.note = "; ".join(text for text in (refused, remark) if text)
