"""How contractions are computed: the forms of their kernels, imported when the first is formed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sardonyx.kernel.matmul.bf16_product import HalfKernel, HalfSchedule, may_round
from sardonyx.kernel.matmul.integer_product import IntegerKernel
from sardonyx.kernel.matmul.integer_schedule import IntegerSchedule
from sardonyx.kernel.matmul.matrix_product import (
    HalfMatrixKernel,
    HalfMatrixSchedule,
    IntegerMatrixKernel,
    IntegerMatrixSchedule,
)
from sardonyx.kernel.matmul.product import ProductKernel
from sardonyx.kernel.matmul.product_schedule import ProductSchedule
from sardonyx.kernel.matmul.winograd_choice import fitting
from sardonyx.kernel.matmul.winograd_product import WinogradKernel
from sardonyx.plan.canonical import Canonical
from sardonyx.plan.groups import Product
from sardonyx.plan.integers import integer_factors
from sardonyx.selection.kernel_record import Formed
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
    from sardonyx.selection.selector import Former


def built(former: Former, canonical: Canonical, fixed: bool) -> Formed:
    """The kernel of a contraction, whose right factor is packed before if it is `fixed`."""
    form = _form(former, canonical, fixed)
    kernel, packings = form.build()
    # Where nothing is copied or packed, its time goes by in micro-kernels.
    kernel.program.as_written = type(form) is ProductKernel and form.schedule.direct and fixed
    return Formed(kernel, packings)


def _form(former: Former, canonical: Canonical, fixed: bool) -> ProductKernel:
    """How a contraction is computed."""
    group, strides = canonical.group, canonical.strides
    assert isinstance(group, Product)  # noqa: S101 - narrows the type for the checker
    if integer_factors(group) is not None:
        if former.grain.matrices:
            codes = IntegerMatrixSchedule(group, strides, former.options.lanes, former.grain)
            if not codes.zeros and not codes.has_few_rows:
                name = former.name(f"{INTEGERS}{IN_MATRICES}")
                return IntegerMatrixKernel(codes, name, fixed)
        integers = IntegerSchedule(group, strides, former.options.lanes, former.grain)
        return IntegerKernel(integers, former.name(INTEGERS), fixed)
    rounds = former.options.halves and may_round(group)
    if rounds and former.grain.matrices:
        wide = HalfMatrixSchedule(group, strides, former.options.lanes, former.grain)
        if not wide.has_few_rows:
            return HalfMatrixKernel(wide, former.name(MATRICES), fixed)
    schedule = former.schedules.pop(canonical.key, None)
    if schedule is None or former.variant != DEFAULT:
        schedule = ProductSchedule(group, strides, former.options.lanes, former.grain)
    tiles = None
    if fixed and former.options.winograd:
        tiles = fitting(schedule, former.grain.tiles, former.variant.winograd)
    if tiles is not None:
        if former.grain.wide > former.grain.vectors:
            grain = replace(former.grain, vectors=former.grain.wide)
            schedule = ProductSchedule(group, strides, former.options.lanes, grain)
            tiles = fitting(schedule, grain.tiles, tiles.outputs) or tiles
        return WinogradKernel(schedule, tiles, former.name(f"{WINOGRAD}{tiles.outputs}"))
    if rounds:
        halves = HalfSchedule(group, strides, former.options.lanes, former.grain)
        return HalfKernel(halves, former.name(HALVES), fixed)
    return ProductKernel(schedule, former.name(PRODUCT), fixed)
