"""The table of kernels of contractions for their sizes, imported when the first is built."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from sardonyx.base.sizes import Dim
from sardonyx.kernel.matmul.bf16_product import Bf16Factors, bf16_parts, may_round
from sardonyx.kernel.matmul.code_factors import CodeFactors
from sardonyx.kernel.matmul.contraction import ContractionKernel, float_parts
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule, FactorsOf
from sardonyx.kernel.matmul.factors import Factors
from sardonyx.kernel.matmul.integer_product import integer_parts
from sardonyx.kernel.matmul.matrix_product import (
    BF16_UNIT,
    CODE_UNIT,
    bf16_matrix_parts,
    integer_matrix_parts,
)
from sardonyx.kernel.matmul.matrix_unit import MatrixUnit
from sardonyx.kernel.matmul.winograd_choice import WinogradTiles, fitting
from sardonyx.kernel.matmul.winograd_product import WinogradKernel
from sardonyx.plan.canonical import Canonical
from sardonyx.plan.groups import Contraction
from sardonyx.plan.integers import integer_factors
from sardonyx.plan.reasons import Reason
from sardonyx.selection.kernel_record import KernelRecord
from sardonyx.selection.matmul import (
    HALVES,
    IN_MATRICES,
    INTEGERS,
    MATRICES,
    PRODUCT,
    WINOGRAD,
)
from sardonyx.selection.table import Candidate, Table, always, choose
from sardonyx.selection.variants import DEFAULT

if TYPE_CHECKING:
    from sardonyx.selection.selector import KernelSelector


_NOT_CODES = Reason("its factors are not 8-bit codes")
_NO_MATRICES = Reason("the target has no registers for matrices")
_ZEROS = Reason("the zero points of its right factor differ from 0")
_EXACT = Reason("factors are not rounded: session.allow_bfloat16_products is not set")
_NOT_ROUNDED = Reason("it is no sum of float32 products, or one too short or too long to gain")
_CHANGES = Reason("its filters change from run to run")
_CODES = Reason("its factors are codes")
_OFF = Reason("session.disable_winograd is set, or nothing is fused")


class KernelTask:
    """A contraction over placeholders that gets a kernel of its own.

    Args:
        selector: Builds kernels.
        canonical: The contraction.
        fixed: Whether its right factor is packed before.
    """

    def __init__(self, selector: KernelSelector, canonical: Canonical, fixed: bool) -> None:
        group = canonical.group
        assert isinstance(group, Contraction)  # noqa: S101 - narrows the type for the checker
        self.selector, self.canonical, self.fixed = selector, canonical, fixed
        self.contraction, self.block_sizes = group, selector.block_sizes

    def schedule_of(
        self, factors: FactorsOf = Factors, matrices: MatrixUnit | None = None
    ) -> ContractionSchedule:
        """How such factors are multiplied, by vectors or by registers for matrices."""
        lanes, strides = self.selector.options.lanes, self.canonical.strides
        sizes = self.block_sizes
        return ContractionSchedule(self.contraction, strides, lanes, sizes, factors, matrices)

    @cached_property
    def is_of_codes(self) -> bool:
        """Whether codes are multiplied."""
        return integer_factors(self.contraction) is not None

    @cached_property
    def codes_in_matrices(self) -> ContractionSchedule:
        """How registers for matrices would multiply codes."""
        return self.schedule_of(CodeFactors, CODE_UNIT)

    @cached_property
    def codes(self) -> ContractionSchedule:
        """How vectors would multiply codes."""
        return self.schedule_of(CodeFactors)

    @cached_property
    def rounds(self) -> bool:
        """Whether factors are rounded to bfloat16."""
        return self.selector.options.bf16_products and may_round(self.contraction)

    @cached_property
    def rounded_in_matrices(self) -> ContractionSchedule:
        """How registers for matrices would multiply rounded factors."""
        return self.schedule_of(Bf16Factors, BF16_UNIT)

    @cached_property
    def schedule(self) -> ContractionSchedule:
        """How it is summed directly."""
        found = self.selector.schedules.get(self.canonical.key)
        if found is None or self.selector.variant != DEFAULT:
            found = self.schedule_of()
        return found

    @cached_property
    def tiles(self) -> WinogradTiles | Reason:
        """How tiles of an image would be transformed; why they are not."""
        return fitting(self.schedule, self.block_sizes.tiles, self.selector.variant.winograd)

    def name(self, stem: str) -> str:
        """A name for its kernel."""
        return self.selector.name(stem)


def _refusal_of_matrices(task: KernelTask) -> Reason | None:
    return None if task.block_sizes.matrices else _NO_MATRICES


def _no_matrices_for(s: ContractionSchedule) -> Reason | None:
    rows, unit = s.row_count(), s.matrices
    if unit is None or not unit.has_few(rows):
        return None
    return Reason("{} rows, no more than {}: vectors are as fast", rows, unit.few)


def _no_codes_in_matrices(task: KernelTask) -> Reason | None:
    if not task.is_of_codes:
        return _NOT_CODES
    refusal = _refusal_of_matrices(task)
    if refusal is not None:
        return refusal
    s = task.codes_in_matrices
    assert isinstance(s.factors, CodeFactors)  # noqa: S101 - they are made so
    if s.factors.zeros:
        return _ZEROS
    return _no_matrices_for(s)


def _codes_in_matrices(task: KernelTask) -> ContractionKernel:
    name = task.name(f"{INTEGERS}{IN_MATRICES}")
    return ContractionKernel(task.codes_in_matrices, name, task.fixed, integer_matrix_parts)


def _no_codes(task: KernelTask) -> Reason | None:
    return None if task.is_of_codes else _NOT_CODES


def _codes(task: KernelTask) -> ContractionKernel:
    return ContractionKernel(task.codes, task.name(INTEGERS), task.fixed, integer_parts)


def _not_rounded(task: KernelTask) -> Reason | None:
    if task.rounds:
        return None
    return _NOT_ROUNDED if task.selector.options.bf16_products else _EXACT


def _not_rounded_in_matrices(task: KernelTask) -> Reason | None:
    refusal = _not_rounded(task) or _refusal_of_matrices(task)
    if refusal is not None:
        return refusal
    return _no_matrices_for(task.rounded_in_matrices)


def _rounded_in_matrices(task: KernelTask) -> ContractionKernel:
    schedule, name = task.rounded_in_matrices, task.name(MATRICES)
    return ContractionKernel(schedule, name, task.fixed, bf16_matrix_parts)


def _no_winograd(task: KernelTask) -> Reason | None:
    if task.is_of_codes:
        return _CODES
    _ = task.schedule  # every row behind this one needs it
    if not task.fixed:
        return _CHANGES
    if not task.selector.options.winograd:
        return _OFF
    return task.tiles if isinstance(task.tiles, Reason) else None


def _winograd(task: KernelTask) -> WinogradKernel:
    schedule, tiles, block_sizes = task.schedule, task.tiles, task.block_sizes
    assert not isinstance(tiles, Reason)  # noqa: S101 - `_no_winograd` looked
    if block_sizes.wide > block_sizes.vectors:
        block_sizes = replace(block_sizes, vectors=block_sizes.wide)
        lanes, strides = task.selector.options.lanes, task.canonical.strides
        schedule = ContractionSchedule(task.contraction, strides, lanes, block_sizes)
        wide = fitting(schedule, block_sizes.tiles, tiles.outputs)
        tiles = tiles if isinstance(wide, Reason) else wide
    return WinogradKernel(schedule, tiles, task.name(f"{WINOGRAD}{tiles.outputs}"))


def _rounded(task: KernelTask) -> ContractionKernel:
    schedule = task.schedule_of(Bf16Factors)
    return ContractionKernel(schedule, task.name(HALVES), task.fixed, bf16_parts)


def _direct(task: KernelTask) -> ContractionKernel:
    return ContractionKernel(task.schedule, task.name(PRODUCT), task.fixed)


def _direct_cost(task: KernelTask) -> Dim | None:
    return None if task.is_of_codes else task.schedule.cost_ns()


def _winograd_cost(task: KernelTask) -> Dim | None:
    if isinstance(task.tiles, Reason):
        return None
    return WinogradKernel(task.schedule, task.tiles, "").cost_ns()


#: Kernels of contractions for their sizes, in the order in which they are preferred.
KERNELS: Table[KernelTask, ContractionKernel | WinogradKernel] = (
    Candidate(
        "integers in matrices", _no_codes_in_matrices, _codes_in_matrices,
        lambda task: task.codes_in_matrices.cost_ns(),
    ),
    Candidate("integers", _no_codes, _codes, lambda task: task.codes.cost_ns()),
    Candidate(
        "bfloat16 in matrices", _not_rounded_in_matrices, _rounded_in_matrices,
        lambda task: task.rounded_in_matrices.cost_ns(),
    ),
    Candidate("winograd", _no_winograd, _winograd, _winograd_cost),
    Candidate("bfloat16", _not_rounded, _rounded),
    Candidate("product", always, _direct, _direct_cost),
)  # fmt: skip


def built(selector: KernelSelector, canonical: Canonical, fixed: bool) -> KernelRecord:
    """The kernel of a contraction, whose right factor is packed before if it is `fixed`."""
    form = choose(KERNELS, KernelTask(selector, canonical, fixed), selector.trace)
    kernel, packings = form.build()
    # Where nothing is copied or packed, its time goes by in micro-kernels.
    is_plain = isinstance(form, ContractionKernel) and form.make_parts is float_parts
    kernel.program.as_written = is_plain and form.schedule.access.direct and fixed
    return KernelRecord(kernel, packings)
