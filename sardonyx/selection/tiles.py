"""Contractions that thread blocks of a GPU compute in tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.base.forks import compiling
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.loops.block_sizes import Tiling
from sardonyx.kernel.matmul.factors import Packing
from sardonyx.plan.canonical import Canonical
from sardonyx.plan.groups import Contraction
from sardonyx.selection.invocation import UNREAD, Invocation, invocation_of, is_constant
from sardonyx.selection.matmul import contents_of
from sardonyx.tensor.tensor import Buffer, Tensor

if TYPE_CHECKING:
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
