"""Contractions and attentions that thread blocks of a GPU compute in tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.base.forks import compiling
from sardonyx.base.sizes import Dim
from sardonyx.kernel.gpu.attention_shape import element_of
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.loops.block_sizes import Tiling
from sardonyx.kernel.matmul.contraction_schedule import Packing
from sardonyx.plan.canonical import Canonical
from sardonyx.plan.groups import Attention, Contraction
from sardonyx.selection.invocation import UNREAD, Invocation, invocation_of, is_constant
from sardonyx.selection.kernel_record import KernelRecord
from sardonyx.selection.matmul import contents_of
from sardonyx.tensor.tensor import Buffer, Tensor

if TYPE_CHECKING:
    from sardonyx.kernel.attention.kernel import AttentionKernel
    from sardonyx.kernel.gpu.tile_attention import AttentionTileKernel
    from sardonyx.selection.selector import KernelSelector


def tiled_product(
    selector: KernelSelector,
    group: Contraction,
    strides: dict[Tensor, tuple[Dim, ...]],
    tiling: Tiling,
    pack: bool,
) -> list[Invocation]:
    """The kernels of a contraction that thread blocks compute in tiles: a run uses one."""
    canonical = Canonical(group, strides)
    fixed = {name for name, x in canonical.buffers.items() if pack and is_constant(x)}
    key = (canonical.key, tiling, tuple(name in fixed for name in canonical.buffers), pack)
    if key not in selector.tiled:
        selector.tiled[key] = _form_tiles(selector, canonical, tiling, fixed, alone=not pack)
    steps: dict[Buffer, list[Invocation]] = {}
    found = []
    for number, (kernel, packings, partial) in enumerate(selector.tiled[key]):
        actual = dict(canonical.buffers)
        for packing in packings:
            packed, before = selector.packed_buffer(contents_of(packing, canonical), strides)
            steps.setdefault(packed, before)
            actual[packing.packed] = packed
        if partial is not None:
            spare = (UNREAD, group.root.buffer, number)
            actual[partial] = Buffer(partial.shape, partial.dtype, spare)
        found.append(invocation_of(kernel, actual, group))
    return [*(step for before in steps.values() for step in before), *found]


def _form_tiles(
    selector: KernelSelector,
    canonical: Canonical,
    tiling: Tiling,
    fixed: set[Buffer],
    *,
    alone: bool,
) -> list[tuple[Kernel, list[Packing], Buffer | None]]:
    with compiling:  # processors do without
        from sardonyx.kernel.gpu.tile import TileKernel
        from sardonyx.kernel.gpu.tile_schedule import TileSchedule
        from sardonyx.kernel.gpu.tile_shape import TileChoice

    group = canonical.group
    assert isinstance(group, Contraction)  # noqa: S101 - narrows the type for the checker
    found = []
    choices = TileSchedule(group, canonical.strides, tiling).choices
    for choice in [TileChoice(choices[0].shape)] if alone else choices:
        schedule = TileSchedule(group, canonical.strides, tiling, choice.shape)
        packings = schedule.pack(fixed.__contains__)
        name = selector.name("tiles")
        form = TileKernel(schedule, name, choice.parts, choice.used)
        kernel = selector.kernels["tiles", name] = form.build()
        found.append((kernel, packings, form.partial))
    return found


def attention(
    selector: KernelSelector, group: Attention, strides: dict[Tensor, tuple[Dim, ...]]
) -> Invocation:
    """The kernel of an attention: in tiles where they take its type, else as processors do it."""
    canonical = selector.canonical(group, strides)
    key = (canonical.key, selector.block_sizes.tiling)
    general = (
        None if selector.block_sizes.has_thread_blocks else selector.general_attention(canonical)
    )
    if general is not None:
        return selector.general(general, group, "attention")

    def build() -> KernelRecord:
        form = _attention_form(selector, canonical)
        made = form.build()
        selector.partials[key] = getattr(form, "partial", None)
        return KernelRecord(made)

    kernel = selector.kernel_of(key, build)
    actual = dict(canonical.buffers)
    partial = selector.partials.get(key)
    if partial is not None:
        spare = (UNREAD, group.root.buffer, 0)
        actual[partial] = Buffer(partial.shape, partial.dtype, spare)
    return invocation_of(kernel, actual, group)


def _attention_form(
    selector: KernelSelector, canonical: Canonical
) -> AttentionKernel | AttentionTileKernel:
    """How an attention is computed."""
    group, name, tiling = canonical.group, selector.name("attention"), selector.block_sizes.tiling
    assert isinstance(group, Attention)  # noqa: S101 - narrows the type for the checker
    element = element_of(group, tiling) if tiling is not None else None
    if tiling is not None and element is not None:
        with compiling:
            from sardonyx.kernel.gpu.tile_attention import AttentionTileKernel

        return AttentionTileKernel(group, canonical.strides, tiling, element, name)
    with compiling:
        from sardonyx.kernel.attention.kernel import AttentionKernel

    return AttentionKernel(
        group, canonical.strides, selector.options.lanes, selector.block_sizes, name
    )
