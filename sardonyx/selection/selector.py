"""Groups to kernels: which form computes each, one kernel for all groups of equal structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING

from sardonyx.base import sizes
from sardonyx.base.forks import compiling
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.loops.block_sizes import BlockSizes
from sardonyx.kernel.loops.loop_nest_schedule import LoopNestSchedule
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule, Packing
from sardonyx.plan.axes import dims_of, extent_of
from sardonyx.plan.canonical import Canonical, LatestCanonical, Shareable, as_rows
from sardonyx.plan.grouping import pointwise, sum_alone
from sardonyx.plan.groups import Attention, Contraction, CustomKernel, Group, LoopNest
from sardonyx.plan.inline import Materialized, is_view
from sardonyx.plan.integers import integer_factors
from sardonyx.plan.joined import Joined
from sardonyx.plan.layout import row_major
from sardonyx.plan.roles import roles
from sardonyx.plan.swap_operands import is_across_batches
from sardonyx.selection.general_attention import GeneralAttention, general_attention
from sardonyx.selection.general_contraction import GeneralContraction, general_product, is_brief
from sardonyx.selection.general_copy import Valued
from sardonyx.selection.general_group import Remembered
from sardonyx.selection.general_loop_nest import GeneralLoopNest, GeneralWindows, general_map
from sardonyx.selection.invocation import (
    Invocation,
    invocation_of,
    is_constant,
    is_prepared,
)
from sardonyx.selection.joined import parts_of
from sardonyx.selection.kernel_cache import KernelNames, PackedBuffers, SelectionOptions
from sardonyx.selection.kernel_record import KernelRecord
from sardonyx.selection.layers import PACKED
from sardonyx.selection.matmul import PRODUCT, product_of_kernels
from sardonyx.selection.packing import Packings
from sardonyx.selection.variants import DEFAULT, Variant
from sardonyx.tensor import scalar
from sardonyx.tensor.arithmetic import constant
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import load
from sardonyx.tensor.tensor import (
    Buffer,
    Map,
    Reduce,
    Tensor,
    buffer,
    indices,
    make_map,
)
from sardonyx.tensor.traverse import loads_of

if TYPE_CHECKING:
    from sardonyx.kernel.matmul.blockwise_product import BlockwiseKernel

__all__ = ["COPY", "KernelSelector", "Invocation"]

#: How names of kernels begin that only move elements.
COPY = "copy"


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
    _windows: Remembered[GeneralLoopNest] | None = None
    _maps: Remembered[GeneralLoopNest] | None = None
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
                from sardonyx.selection.custom_kernel import special

            return [special(self, group, strides)]
        if isinstance(group, Attention):
            return self._attention(group, strides)
        if isinstance(group, Contraction):
            return self._accelerated(group, strides)
        return [self.rows(group, strides)]

    def canonical(self, group: Shareable, strides: dict[Tensor, tuple[Dim, ...]]) -> Canonical:
        """A group over placeholders; made once where it is asked for several times in a row."""
        return self._canonical.of(group, strides)

    def _attention(
        self, group: Attention, strides: dict[Tensor, tuple[Dim, ...]]
    ) -> list[Invocation]:
        """An attention, by a library where one takes it."""
        found: list[Invocation] | str = ""
        with compiling:
            from sardonyx.selection.tiles import attention

        accelerator = self.options.accelerator
        if accelerator is not None:
            with compiling:
                from sardonyx.selection.vendor_attention import accelerated_attention

            found = accelerated_attention(self, group, strides, accelerator)
        if isinstance(found, list):
            return found
        made = attention(self, group, strides)
        made.note = f"no library does it: {found}" if found else ""
        return [made]

    def _accelerated(
        self, group: Contraction, strides: dict[Tensor, tuple[Dim, ...]]
    ) -> list[Invocation]:
        """A contraction, by a library where one takes it."""
        found: list[Invocation] | str = ""
        accelerator = self.options.accelerator
        if accelerator is not None and not is_prepared(group):
            with compiling:
                from sardonyx.selection.vendor_products import accelerated

            found = accelerated(self, group, strides, accelerator)
        if isinstance(found, list):
            return found
        made = self.product(group, strides)
        remark = f"no library does it: {found}" if found else ""
        refused = made[-1].kernel.program.name.startswith(PRODUCT) and group.contraction.remark
        made[-1].note = "; ".join(text for text in (remark, refused) if text)
        return made

    def product(
        self, group: Contraction, strides: dict[Tensor, tuple[Dim, ...]], *, pack: bool = True
    ) -> list[Invocation]:
        """The invocations of kernels alone that compute a contraction.

        Args:
            group: What to compute.
            strides: Of all buffers.
            pack: Whether constant factors may be packed, and several kernels built of which sizes
                choose one. What a library mostly does has one kernel, that shares its operands.
        """
        tiling = self.block_sizes.tiling
        if tiling is not None and not is_prepared(group):
            with compiling:
                from sardonyx.kernel.gpu.tile_schedule import takes
                from sardonyx.selection.tiles import tiled_product

            if takes(group, tiling):
                return tiled_product(self, group, strides, tiling, pack)
        found = roles(group)
        if found is not None and not self._fills_no_panel(group, *found):
            return product_of_kernels(self, group, strides, pack)
        return self._per_lane(group, strides)

    def _fills_no_panel(
        self, group: Contraction, batch: list[Dim], rows: list[Dim], columns: list[Dim]
    ) -> bool:
        """Whether lanes lie better across batches."""
        if not self.block_sizes.transpose_stores or integer_factors(group) is not None:
            return False
        return is_across_batches(group, batch, rows, columns, self.options.lanes)

    def _per_lane(
        self, group: Contraction, strides: dict[Tensor, tuple[Dim, ...]]
    ) -> list[Invocation]:
        """A contraction without columns (a depthwise convolution): every lane sums its own.

        A constant right factor is packed with the axes that it shares with the left one last, so
        that lanes lie side by side.
        """
        steps: list[Invocation] = []
        fixed = all(is_constant(x.tensor) for x in loads_of(group.right))
        if fixed and loads_of(group.right):
            used = {a for d in dims_of(group.right) for a in sizes.atoms_of(d, "index")}
            order = [v for v in (*group.reduced, *group.loops) if sizes.as_atom(v) in used]
            shape = tuple(map(extent_of, order))
            atoms = dict(zip(map(sizes.variable, order), indices(shape), strict=True))
            value = scalar.cast(group.right, group.accumulator)
            contents = make_map(shape, rewrite(value, atoms=atoms))
            packed, steps = self.packed_buffer(contents, strides)
            strides = {**strides, packed: row_major(shape)}
            group = replace(group, right=load(packed, tuple(order)))
        return [*steps, self.rows(as_rows(group), strides)]

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
        canonical = self.canonical(group, strides)
        tiling = self.block_sizes.tiling
        if tiling is not None and (is_early or is_prepared(group)):
            tiling = None
        general = None
        if not self.block_sizes.has_thread_blocks and name is None:
            general = self._general_windows().of(canonical) if group.inner else None
            general = general or self._general_maps().of(canonical)
        if general is not None:
            return self.general(general, group, _kind(group))

        def build() -> KernelRecord:
            renamed = canonical.group
            assert isinstance(renamed, LoopNest)  # noqa: S101 - narrows the type for the checker
            title = self.name(name or _kind(renamed))
            form = None
            if tiling is not None:
                with compiling:
                    from sardonyx.kernel.gpu.thread_loop_nest import thread_form

                form = thread_form(renamed, canonical.strides, tiling, self.block_sizes, title)
            if form is None:
                schedule = LoopNestSchedule.fitting(
                    renamed, canonical.strides, self.options.lanes, self.block_sizes
                )
                with compiling:
                    from sardonyx.kernel.loops.loop_nest import LoopNestKernel

                form = LoopNestKernel(schedule, title)
            made = form.build()
            made.program.as_written = is_early  # it runs once
            return KernelRecord(made)

        kernel = self.kernel_of((canonical.key, tiling), build, name)
        return invocation_of(kernel, canonical.buffers, group)

    def parts(self, joined: Joined, strides: dict[Tensor, tuple[Dim, ...]]) -> list[Invocation]:
        """The invocations that compute a joined tensor part by part; none if that cannot be."""
        whole, found = joined.stage.root.buffer, list[Invocation]()
        for part in parts_of(joined, strides):
            made = self.general(part.rows, joined.group, _kind(part.rows.group))
            reads = tuple(b for b in made.reads if b not in part.places)
            found.append(replace(made, reads=reads, writes=(whole,), places=part.places))
        return found

    def _general_windows(self) -> Remembered[GeneralLoopNest]:
        if self._windows is None:
            self._windows = Remembered(GeneralWindows(self.options.lanes, self.block_sizes).of)
        return self._windows

    def _general_maps(self) -> Remembered[GeneralLoopNest]:
        if self._maps is None:
            lanes = self.options.lanes
            self._maps = Remembered(lambda canonical: general_map(canonical, lanes))
        return self._maps

    def general_product(
        self, group: Contraction, strides: dict[Tensor, tuple[Dim, ...]]
    ) -> GeneralContraction | None:
        """A product by a constant for any sizes; None where its form depends on them."""
        brief = is_brief(group)
        remembered = self._products.get(brief)
        if remembered is None:
            lanes, block_sizes = self.options.lanes, self.block_sizes
            remembered = self._products[brief] = Remembered(
                lambda canonical: general_product(canonical, lanes, block_sizes, brief=brief)
            )
        return remembered.of(self.canonical(group, strides))

    def general_attention(self, canonical: Canonical) -> GeneralAttention | None:
        """An attention for any number of queries; None where its form depends on that."""
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
            return kernel
        choices, keeper = self.options.choices, self.options.keeper
        variant = DEFAULT if choices is None else choices.of(key)
        record = self.known(key, kind, variant)
        if record is None:
            with self._varied(variant):
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


def _kind(group: object) -> str:
    """What a kernel of rows is called."""
    assert isinstance(group, LoopNest)  # noqa: S101 - narrows the type for the checker
    if all(s.kind == "map" and is_view(s.body) for s in group.stages):
        return COPY
    return "rows" if group.inner else "map"
