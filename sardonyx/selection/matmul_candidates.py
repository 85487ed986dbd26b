"""How contractions are computed: the forms of their kernels, imported when the first is built."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sardonyx.kernel.matmul.bf16_product import Bf16Kernel, Bf16Schedule, may_round
from sardonyx.kernel.matmul.contraction import ContractionKernel
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.integer_product import IntegerKernel
from sardonyx.kernel.matmul.integer_schedule import IntegerSchedule
from sardonyx.kernel.matmul.matrix_product import (
    Bf16MatrixKernel,
    Bf16MatrixSchedule,
    IntegerMatrixKernel,
    IntegerMatrixSchedule,
)
from sardonyx.kernel.matmul.winograd_choice import fitting
from sardonyx.kernel.matmul.winograd_product import WinogradKernel
from sardonyx.plan.canonical import Canonical
from sardonyx.plan.groups import Contraction
from sardonyx.plan.integers import integer_factors
from sardonyx.selection.kernel_record import KernelRecord
from sardonyx.selection.matmul import (
    HALVES,
    IN_MATRICES,
    INTEGERS,
    MATRICES,
    PRODUCT,
    WINOGRAD,
)
from sardonyx.selection.variants import DEFAULT

if TYPE_CHECKING:
    from sardonyx.selection.selector import KernelSelector


def built(selector: KernelSelector, canonical: Canonical, fixed: bool) -> KernelRecord:
    """The kernel of a contraction, whose right factor is packed before if it is `fixed`."""
    form = _form(selector, canonical, fixed)
    kernel, packings = form.build()
    # Where nothing is copied or packed, its time goes by in micro-kernels.
    kernel.program.as_written = type(form) is ContractionKernel and form.schedule.direct and fixed
    return KernelRecord(kernel, packings)


def _form(selector: KernelSelector, canonical: Canonical, fixed: bool) -> ContractionKernel:
    """How a contraction is computed."""
    group, strides = canonical.group, canonical.strides
    assert isinstance(group, Contraction)  # noqa: S101 - narrows the type for the checker
    if integer_factors(group) is not None:
        if selector.block_sizes.matrices:
            codes = IntegerMatrixSchedule(
                group, strides, selector.options.lanes, selector.block_sizes
            )
            if not codes.zeros and not codes.has_few_rows:
                name = selector.name(f"{INTEGERS}{IN_MATRICES}")
                return IntegerMatrixKernel(codes, name, fixed)
        integers = IntegerSchedule(group, strides, selector.options.lanes, selector.block_sizes)
        return IntegerKernel(integers, selector.name(INTEGERS), fixed)
    rounds = selector.options.bf16_products and may_round(group)
    if rounds and selector.block_sizes.matrices:
        wide = Bf16MatrixSchedule(group, strides, selector.options.lanes, selector.block_sizes)
        if not wide.has_few_rows:
            return Bf16MatrixKernel(wide, selector.name(MATRICES), fixed)
    schedule = selector.schedules.pop(canonical.key, None)
    if schedule is None or selector.variant != DEFAULT:
        schedule = ContractionSchedule(group, strides, selector.options.lanes, selector.block_sizes)
    tiles = None
    if fixed and selector.options.winograd:
        tiles = fitting(schedule, selector.block_sizes.tiles, selector.variant.winograd)
    if tiles is not None:
        if selector.block_sizes.wide > selector.block_sizes.vectors:
            block_sizes = replace(selector.block_sizes, vectors=selector.block_sizes.wide)
            schedule = ContractionSchedule(group, strides, selector.options.lanes, block_sizes)
            tiles = fitting(schedule, block_sizes.tiles, tiles.outputs) or tiles
        return WinogradKernel(schedule, tiles, selector.name(f"{WINOGRAD}{tiles.outputs}"))
    if rounds:
        bf16_products = Bf16Schedule(group, strides, selector.options.lanes, selector.block_sizes)
        return Bf16Kernel(bf16_products, selector.name(HALVES), fixed)
    return ContractionKernel(schedule, selector.name(PRODUCT), fixed)
