"""Contractions with constant codes of few bits: the kernels of digits, of packing, of products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sardonyx.kernel.matmul.blockwise_product import BlockwiseKernel
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.plan.blockwise import Blockwise, digits
from sardonyx.plan.canonical import Canonical, Strides
from sardonyx.plan.groups import Contraction
from sardonyx.plan.layout import row_major
from sardonyx.plan.pipeline import plan_beside
from sardonyx.selection.invocation import Invocation, invocation_of
from sardonyx.tensor.tensor import Buffer, Tensor

if TYPE_CHECKING:
    from sardonyx.selection.selector import KernelSelector


def blockwise_product(
    selector: KernelSelector, found: Blockwise, strides: dict[Tensor, Strides]
) -> list[Invocation]:
    """The invocations that compute a contraction with codes.

    Args:
        selector: Forms kernels, and keeps them.
        found: The contraction.
        strides: Of all buffers.
    """
    left = digits(found)
    steps, made = _left_factor(selector, found, left.tensors, strides)
    strides = strides | {x: row_major(x.shape) for x in (*made, found.digit, found.weight)}
    canonical = Canonical(found.group, strides)
    count = len(left.parts)
    facts = (count, found.block, found.bits, found.shift is None)
    key = ("blockwise", canonical.key, *facts)
    kernel, form = selector.blockwise.get(key) or (None, None)
    if kernel is None or form is None:
        group = canonical.group
        assert isinstance(group, Contraction)  # noqa: S101 - narrows the type for the checker
        schedule = ContractionSchedule(
            group, canonical.strides, selector.options.lanes, selector.block_sizes
        )
        form = BlockwiseKernel(schedule, found, count, selector.name("blockwise"))
        kernel, _ = form.build()
        selector.kernels[key] = kernel
        selector.blockwise[key] = kernel, form
    packed, packs = selector.packed_buffer(form.contents(found), strides)
    actual = {**canonical.buffers, form.packs[0].packed: packed}
    actual |= dict(zip(form.beside, made, strict=True))
    return [*steps, *packs, invocation_of(kernel, actual, found.group)]


def _left_factor(
    selector: KernelSelector, found: Blockwise, wanted: list[Tensor], strides: dict[Tensor, Strides]
) -> tuple[list[Invocation], list[Buffer]]:
    """What makes digits, starts, scales and sums of the left factor, and where they lie."""
    planned = plan_beside(wanted)
    strides = strides | {r.buffer: row_major(r.buffer.shape) for r in planned.roots}
    steps = [i for group in planned.groups for i in selector.form(group, strides)]
    for step in steps:
        step.group = found.group  # its nodes are those that the digits are made for
    places = {r.tensor: r.buffer for r in planned.roots}
    return steps, [places[t] for t in wanted]
