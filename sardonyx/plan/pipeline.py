"""The planning passes, in one list: from tensors to kernels to be, and what those read.

A pass is a record with a name, a sentence, and a function. The kinds of passes differ in what that
function takes:

- `TensorPass`: inputs and outputs of a graph, before anything else.
- `GroupPass`: the plan of a block so far (`BlockPlan`); gives the next one.
- `StepwisePass`: one group, and the plan so far. Those that stand side by side walk the groups
  together, as the order of a tensor's axes decides on what the groups after it do.
- `LoopPass`: a loop of the model.
- `OperandPass`: a contraction whose kernel is built; it may have an operand copied first. Kernel
  selection runs these, once for all contractions of equal structure.

Every pass gives its reason where it does nothing, and why it did what it did. `Reasons` collects
them if somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby

from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.attention import ATTENTION, fuse_attention
from sardonyx.plan.grouping import GROUP, make_groups
from sardonyx.plan.groups import Contraction, CustomKernel, Group
from sardonyx.plan.hoisting import with_numbers
from sardonyx.plan.inline import INLINE, Materialized, find_roots
from sardonyx.plan.inplace_append import INPLACE_APPEND, Slot, find_appended
from sardonyx.plan.integers import INTEGERS, as_integers, integer_factors, why_integers
from sardonyx.plan.layout import LAYOUTS, Order, choose_layouts
from sardonyx.plan.operand_order import in_order
from sardonyx.plan.pad_input import with_borders
from sardonyx.plan.plan import Appended
from sardonyx.plan.reasons import Reason, Reasons
from sardonyx.plan.rings import RINGS, Ring, rings_of, taken_over, why_no_ring
from sardonyx.plan.swap_operands import (
    SWAP_OPERANDS,
    SWAPPED,
    with_long_columns,
    with_whole_image,
)
from sardonyx.tensor.region import Repetition
from sardonyx.tensor.tensor import Buffer, Map, Tensor
from sardonyx.tensor.traverse import loads_of

_OFF = Reason("the pass is left out")
_UNFUSED = Reason("nothing is fused at this optimisation level")


@dataclass(eq=False, frozen=True, slots=True)
class PlanSettings:
    """What planning passes go by.

    Attributes:
        separate: What gets memory and a kernel of its own, if nothing is to be fused.
        without: Names of optional passes that are left out.
        integers: Whether the target multiplies codes as they are.
        lanes: 32-bit lanes that the columns of a contraction should fill; 0 for none.
        apart: What is not computed where a contraction is.
        slots: What is written into growable buffers of inputs.
        reasons: Takes what passes did, and why; None in sessions.
    """

    separate: Container[Tensor] | None = None
    without: Container[str] = ()
    integers: bool = False
    lanes: int = 0
    apart: Container[Tensor] = ()
    slots: Mapping[Tensor, Slot] = field(default_factory=dict)
    reasons: Reasons | None = None

    @property
    def fuse(self) -> bool:
        """Whether kernels may compute more than one tensor."""
        return self.separate is None

    def refusal(self, name: str) -> Reason | None:
        """Why a pass is not to run."""
        if not self.fuse:
            return _UNFUSED
        return _OFF if name in self.without else None

    @property
    def codes(self) -> bool:
        """Whether contractions of dequantised codes become contractions of the codes."""
        return self.integers and self.refusal(INTEGERS) is None


@dataclass(eq=False, frozen=True, slots=True)
class BlockPlan:
    """The plan of a block: as much of it as there is.

    Attributes:
        settings: What passes go by.
        outputs: What is wanted.
        kept: What must lie in memory beside that.
        awaited: Where symbols come from that only a run brings.
        roots: What has memory.
        groups: What one kernel each computes, in an order in which they can run.
        orders: How the axes of what groups compute lie in memory.
    """

    settings: PlanSettings
    outputs: list[Tensor]
    kept: list[Tensor] = field(default_factory=list)
    awaited: Mapping[Dim, Tensor] = field(default_factory=dict)
    roots: list[Materialized] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    orders: dict[Tensor, Order] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TensorPass:
    """A pass over inputs and outputs of a graph: which outputs continue which input."""

    name: str
    does: str
    run: Callable[[Sequence[Buffer], Sequence[Tensor], Reasons | None], list[Appended]]


@dataclass(frozen=True, slots=True)
class GroupPass:
    """A pass over all groups. See the module's text."""

    name: str
    does: str
    run: Callable[[BlockPlan], BlockPlan]


@dataclass(frozen=True, slots=True)
class StepwisePass:
    """A pass over one group after the other: gives the group as it is then."""

    name: str
    does: str
    run: Callable[[Group, BlockPlan], Group]


@dataclass(frozen=True, slots=True)
class LoopPass:
    """A pass over the loops of a model: the values that move into rings, and these; or neither."""

    name: str
    does: str
    run: Callable[[Repetition, PlanSettings], tuple[dict[int, int], list[Ring]]]


@dataclass(frozen=True, slots=True)
class OperandPass:
    """A pass over the operands of one contraction: gives it as it is then, or why it stays."""

    name: str
    does: str
    run: Callable[[Contraction, Operands], Contraction | Reason]
    why: Reason


Pass = TensorPass | GroupPass | StepwisePass | LoopPass | OperandPass


@dataclass(eq=False, slots=True)
class Operands:
    """What selection knows of a contraction, and does for it.

    Attributes:
        fixed: Whether the right factor never changes, and is packed.
        least_run: The shortest run of elements that is worth a padded copy of the input.
        copied: Has a copy made: its name, what it contains, and where that is to lie.
        stored: Has constants computed once: gives where.
        walks_rows: Whether the kernel walks the rows of the left factor where they lie.
        copies: How many copies were made.
    """

    fixed: bool
    least_run: int
    copied: Callable[[str, Map, Buffer], None]
    stored: Callable[[Map], Buffer]
    walks_rows: Callable[[Contraction], bool]
    copies: int = 0


# -- passes over groups -----------------------------------------------------------------------


def _inline(p: BlockPlan) -> BlockPlan:
    s = p.settings
    roots = find_roots(p.outputs, p.kept, s.separate, integers=s.codes, reasons=s.reasons)
    return replace(p, roots=roots)


def _group(p: BlockPlan) -> BlockPlan:
    s = p.settings
    groups = make_groups(p.roots, fuse=s.fuse, apart=s.apart, measured=p.awaited, reasons=s.reasons)
    return replace(p, groups=groups)


def _attention(p: BlockPlan) -> BlockPlan:
    refusal = p.settings.refusal(ATTENTION)
    if refusal is None:
        return replace(p, groups=fuse_attention(p.groups, p.settings.reasons))
    _note_all(p, ATTENTION, refusal)
    return p


_HAS_MATRIX_UNITS = Reason("thread blocks and libraries take factors in floats")


def _integers(p: BlockPlan) -> BlockPlan:
    s = p.settings
    if not s.codes:
        _note_all(p, INTEGERS, s.refusal(INTEGERS) or _HAS_MATRIX_UNITS)
        return p
    groups = [as_integers(group) for group in p.groups]
    if s.reasons is not None:
        for before, after in zip(p.groups, groups, strict=True):
            if not isinstance(after, CustomKernel):
                reason, changed = why_integers(before, after)
                s.reasons.note(INTEGERS, after, reason, changed=changed)
    return replace(p, groups=groups)


def _note_all(p: BlockPlan, name: str, reason: Reason) -> None:
    if p.settings.reasons is not None:
        for group in p.groups:
            if isinstance(group, Contraction):
                p.settings.reasons.note(name, group, reason, changed=False)


# -- passes that walk the groups --------------------------------------------------------------

_NO_LANES = Reason("thread blocks and libraries take columns as they are")


def _swap_operands(group: Group, p: BlockPlan) -> Group:
    s = p.settings
    if not isinstance(group, Contraction):
        return group
    refusal = s.refusal(LAYOUTS)
    found: Contraction | Reason
    if refusal is not None or not s.lanes:
        found = refusal or _NO_LANES
    else:
        found = with_long_columns(group, p.orders, s.lanes)
    if s.reasons is not None:
        changed = not isinstance(found, Reason)
        reason = found if isinstance(found, Reason) else SWAPPED
        s.reasons.note(SWAP_OPERANDS, group, reason, changed=changed)
    return group if isinstance(found, Reason) else found


def _layouts(group: Group, p: BlockPlan) -> Group:
    s = p.settings
    refusal = s.refusal(LAYOUTS)
    for root, reason, changed in choose_layouts(group, p.orders, fuse=refusal is None):
        if s.reasons is not None:
            s.reasons.add(LAYOUTS, root.tensor, refusal or reason, changed=changed)
    return group


# -- loops ------------------------------------------------------------------------------------


def _rings(region: Repetition, settings: PlanSettings) -> tuple[dict[int, int], list[Ring]]:
    if RINGS in settings.without:
        return {}, []
    sources = taken_over(region)
    return sources, rings_of(region, sources)


# -- operands ---------------------------------------------------------------------------------

_CHANGES = Reason("its right factor changes from run to run: nothing of it is packed")
_NOT_SWAPPED = Reason("its operands were not swapped: the left factor is no constant")
_COPIED = Reason("its left factor is a copy already")
_IN_PLACE = Reason("its kernel walks the rows of the left factor where they lie")
_NO_CODES = Reason("its factors are no codes")


def _pad_input(group: Contraction, operands: Operands) -> Contraction | Reason:
    if not operands.fixed:
        return _CHANGES
    return _copied(with_borders(group, operands.least_run), "image", operands)


def _lay_out_image(group: Contraction, operands: Operands) -> Contraction | Reason:
    if operands.copies:
        return _COPIED
    if operands.fixed or not _is_fixed(group):
        return _NOT_SWAPPED
    return _copied(with_whole_image(group), "image", operands)


def _hoist_numbers(group: Contraction, operands: Operands) -> Contraction | Reason:
    if integer_factors(group) is None:
        return _NO_CODES
    return with_numbers(group, operands.stored)


def _reorder(group: Contraction, operands: Operands) -> Contraction | Reason:
    if not operands.fixed:
        return _CHANGES
    if operands.copies:
        return _COPIED
    if operands.walks_rows(group):
        return _IN_PLACE
    return _copied(in_order(group), "moved", operands)


def _copied(
    found: tuple[Map, Buffer, Contraction] | Reason, name: str, operands: Operands
) -> Contraction | Reason:
    if isinstance(found, Reason):
        return found
    contents, place, group = found
    operands.copied(name, contents, place)
    operands.copies += 1
    return group


def _is_fixed(group: Contraction) -> bool:
    """Whether the left factor never changes: operands were swapped, and the right is an image."""
    tensors = [x.tensor for x in loads_of(group.left)]
    return all(isinstance(t, Buffer) and t.constant is not None for t in tensors)


# -- the list ---------------------------------------------------------------------------------

#: All passes, in the order in which a block of a model goes through them.
PASSES: tuple[Pass, ...] = (
    TensorPass(
        INPLACE_APPEND, "Outputs that continue an input are written behind it.", find_appended
    ),
    GroupPass(INLINE, "Maps that cost nothing where they are read get no memory.", _inline),
    GroupPass(GROUP, "Sums get epilogues; reductions and maps over one domain join.", _group),
    GroupPass(ATTENTION, "Product, softmax and product become one kernel.", _attention),
    GroupPass(INTEGERS, "Contractions of dequantised codes become those of codes.", _integers),
    StepwisePass(SWAP_OPERANDS, "Factors change places if that fills vectors.", _swap_operands),
    StepwisePass(LAYOUTS, "The order of each buffer's axes in memory is chosen.", _layouts),
    LoopPass(RINGS, "What a loop carries is computed where the next trip reads it.", _rings),
    OperandPass(
        "pad input", "Images of few channels are copied with borders, channels last.", _pad_input,
        Reason("windows over few channels become long runs"),
    ),
    OperandPass(
        "lay out image", "What swapped convolutions read is copied with borders.", _lay_out_image,
        Reason("all that its windows see lies in one image"),
    ),
    OperandPass(
        "hoist numbers", "What epilogues of codes compute of constants is stored.", _hoist_numbers,
        Reason("layers that differ in these numbers alone share a kernel"),
    ),
    OperandPass(
        "reorder operand", "The left factor is copied with channels side by side.", _reorder,
        Reason("its channels lie apart, or are computed where they are read"),
    ),
)  # fmt: skip

#: Passes that sessions (`optimization.disable_specified_optimizers`), tuning and providers may
#: leave out; results differ by rounding.
OPTIONAL = frozenset((ATTENTION, INTEGERS, LAYOUTS, RINGS))


def append_in_place(
    inputs: Sequence[Buffer], outputs: Sequence[Tensor], reasons: Reasons | None = None
) -> list[Appended]:
    """Which outputs continue an input, so that only what is new need be written."""
    (one,) = (p for p in PASSES if isinstance(p, TensorPass))
    return one.run(inputs, outputs, reasons)


def run(planned: BlockPlan) -> BlockPlan:
    """The groups of a block, and how what they compute lies in memory."""
    for is_step, some in groupby(PASSES, lambda p: isinstance(p, StepwisePass)):
        passes = list(some)
        if is_step:
            planned = walk(planned, [p for p in passes if isinstance(p, StepwisePass)])
            continue
        for one in passes:
            if isinstance(one, GroupPass):
                planned = one.run(planned)
    return planned


def plan_beside(tensors: list[Tensor]) -> BlockPlan:
    """Groups of tensors that a kernel needs beside those of the graph: all are row-major."""
    return _group(_inline(BlockPlan(PlanSettings(), tensors)))


def walk(planned: BlockPlan, steps: list[StepwisePass]) -> BlockPlan:
    """Let steps walk the groups together, one group after the other."""
    found = replace(planned, groups=[], orders=dict(planned.orders))
    for group in planned.groups:
        for step in steps:
            group = step.run(group, found)
        found.groups.append(group)
    return found


def arrange(groups: list[Group], settings: PlanSettings) -> BlockPlan:
    """What the steps alone make of groups: factors in their places, and orders of axes."""
    steps = [p for p in PASSES if isinstance(p, StepwisePass)]
    return walk(BlockPlan(settings, [], groups=groups), steps)


def prepare_operands(
    group: Contraction, operands: Operands
) -> Iterator[tuple[OperandPass, Contraction, Reason | None]]:
    """A contraction after each of the passes over its operands, with why that left it as it was."""
    for one in PASSES:
        if isinstance(one, OperandPass):
            found = one.run(group, operands)
            if isinstance(found, Reason):
                yield one, group, found
            else:
                group = found
                yield one, group, None


def in_rings(
    group: CustomKernel, region: Repetition, settings: PlanSettings
) -> tuple[dict[int, int], list[Ring]]:
    """For carried values that others hand on, from which; and the rings that they lie in."""
    (one,) = (p for p in PASSES if isinstance(p, LoopPass))
    sources, rings = one.run(region, settings)
    if settings.reasons is not None:
        refusal = _OFF if RINGS in settings.without else why_no_ring(region)
        reason = Reason("values that lie in rings: {}", sum(len(r.members) for r in rings))
        settings.reasons.note(
            RINGS, group, reason if rings or sources else refusal, changed=bool(rings or sources)
        )
    return sources, rings
