"""Contractions by kernels: those for any sizes, and those of their own after their operands."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sardonyx.base.forks import compiling
from sardonyx.base.sizes import Dim
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.factors import Packing
from sardonyx.plan.canonical import Canonical
from sardonyx.plan.groups import Contraction
from sardonyx.plan.integers import integer_factors
from sardonyx.plan.layout import row_major
from sardonyx.plan.pad_input import LEAST_ON_DEVICE, LEAST_RUN
from sardonyx.plan.pipeline import Operands, prepare_operands
from sardonyx.plan.reasons import PassOutcome
from sardonyx.selection.general_contraction import GeneralContraction
from sardonyx.selection.invocation import Invocation, invocation_of
from sardonyx.selection.kernel_record import KernelRecord
from sardonyx.selection.variants import DEFAULT
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import load
from sardonyx.tensor.tensor import Buffer, Map, Reduce, Tensor, make_map, make_reduce

if TYPE_CHECKING:
    from sardonyx.selection.selector import KernelSelector

#: How names of contractions begin that round their factors to bfloat16.
HALVES = "halves"
#: What is behind the beginning where they are computed in registers for matrices.
IN_MATRICES = "_in_matrices"
MATRICES = f"{HALVES}{IN_MATRICES}"
#: How names of contractions of 8-bit codes begin.
INTEGERS = "integers"
#: How names of convolutions begin that transform their inputs.
WINOGRAD = "winograd"
#: How names of contractions of floats begin.
PRODUCT = "product"


def own_kernel(
    selector: KernelSelector,
    group: Contraction,
    strides: dict[Tensor, tuple[Dim, ...]],
    fixed: bool,
) -> list[Invocation]:
    """A contraction by a kernel for its sizes, after what its operands need.

    Args:
        selector: Builds kernels.
        group: The contraction.
        strides: Of all buffers.
        fixed: Whether the right factor never changes, and is packed.
    """
    work = _OwnKernel(selector, group, strides, fixed)
    for one, after, refusal in prepare_operands(group, work.operands):
        if selector.trace is not None:
            reason = one.why if refusal is None else refusal
            selector.trace.passed(PassOutcome(one.name, refusal is None, reason))
        work.group = group = after
    key, canonical = work.key
    kernel = selector.kernel_of(key, lambda: _built(selector, canonical, fixed))
    actual, steps = {**canonical.buffers}, list[Invocation]()
    for packing in selector.needs[key]:
        actual[packing.packed], before = selector.packed_buffer(
            contents_of(packing, canonical), work.strides
        )
        steps += before
    return [*work.steps, *steps, invocation_of(kernel, actual, group)]


def _built(selector: KernelSelector, canonical: Canonical, fixed: bool) -> KernelRecord:
    with compiling:
        from sardonyx.selection.matmul_candidates import built

    return built(selector, canonical, fixed)


class _OwnKernel:
    """Makes what operands of a contraction need, while planning passes look at them.

    Attributes:
        group: The contraction as it is by now.
        strides: Of all buffers, those that were made for it too.
        steps: What runs before its kernel.
        operands: What passes know of it.
    """

    def __init__(
        self,
        selector: KernelSelector,
        group: Contraction,
        strides: dict[Tensor, tuple[Dim, ...]],
        fixed: bool,
    ) -> None:
        self.selector, self.group, self.strides, self._fixed = selector, group, strides, fixed
        self.steps: list[Invocation] = []
        has_blocks = selector.block_sizes.has_thread_blocks
        self.operands = Operands(
            fixed, LEAST_ON_DEVICE if has_blocks else LEAST_RUN, self._copied, self._stored,
            self._walks_rows,
        )  # fmt: skip
        self._canonical: tuple[Contraction, Canonical] | None = None
        self._owns_strides = False

    @property
    def key(self) -> tuple[tuple[object, ...], Canonical]:
        """The structure of the kernel, and the group over placeholders."""
        canonical = self._of(self.group)
        # What has no copy may get one, and is another kernel then.
        return (canonical.key, self._fixed, bool(self.steps)), canonical

    def _of(self, group: Contraction) -> Canonical:
        if self._canonical is None or self._canonical[0] is not group:
            self._canonical = group, self.selector.canonical(group, self.strides)
        return self._canonical[1]

    def _copied(self, name: str, contents: Map, place: Buffer) -> None:
        made = self.selector.pack(contents, place, self.strides, name)
        self.steps.append(replace(made, group=self.group))
        self._lies(place)

    def _lies(self, buffer: Buffer) -> None:
        """Note strides; the caller's stay as they are, and are known by their identity."""
        if not self._owns_strides:
            self.strides, self._owns_strides = dict(self.strides), True
        self.strides[buffer] = row_major(buffer.shape)

    def _stored(self, contents: Map) -> Buffer:
        if contents.body.op == "constant":
            return self.selector.number(contents)
        packed, before = self.selector.packed_buffer(contents, self.strides)
        self._lies(packed)
        self.steps += before
        return packed

    def _walks_rows(self, group: Contraction) -> bool:
        """Whether a contraction needs no copy of its left factor, or its kernel is known."""
        key, canonical = self.key
        return (
            bool(self.steps)
            or key in self.selector.kernels
            or _stays(self.selector, key, canonical)
        )


def general_invocations(
    selector: KernelSelector,
    general: GeneralContraction,
    group: Contraction,
    strides: dict[Tensor, tuple[Dim, ...]],
) -> list[Invocation]:
    """A contraction by a kernel that others of other sizes use, too."""

    def build() -> KernelRecord:
        return KernelRecord(*general.build(selector.options.lanes, selector.name(PRODUCT)))

    kernel = selector.kernel_of(general.key, build)
    actual, steps = {**general.actual}, list[Invocation]()
    for packing in selector.needs[general.key]:
        actual[packing.packed], before = selector.packed_buffer(general.contents(packing), strides)
        steps += before
    specific = selector.valued.of(kernel, general.values)
    return [*steps, invocation_of(specific, actual, group)]


def _stays(selector: KernelSelector, key: tuple[object, ...], canonical: Canonical) -> bool:
    """Whether a contraction needs no copy of its left factor: it walks rows where they lie."""
    group, structure = canonical.group, canonical.key
    assert isinstance(group, Contraction)  # noqa: S101 - narrows the type for the checker
    if structure in selector.walked:
        return selector.walked[structure]
    known, choices = None, selector.options.choices
    if choices is None or choices.of(key) == DEFAULT:
        known = selector.known(key, None, DEFAULT)
    if known is not None:
        selector.kernels[key], selector.needs[key] = known.kernel, known.packings
    elif integer_factors(group) is None:
        schedule = ContractionSchedule(
            group, canonical.strides, selector.options.lanes, selector.block_sizes
        )
        selector.walked[structure] = schedule.access.direct
        selector.schedules[structure] = schedule
        return schedule.access.direct
    return True


def contents_of(packing: Packing, canonical: Canonical) -> Map | Reduce:
    """What is packed, of the buffers that a group has."""
    contents = packing.contents
    body = rewrite(
        contents.body,
        lambda x: load(canonical.buffers[x.buffer], x.at),
    )
    if isinstance(contents, Map):
        return make_map(contents.shape, body)
    return make_reduce(contents.shape, contents.extents, contents.kind, body, contents.dtype)
