"""What fills buffers that are packed once, found again for layers of one structure."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.grouping import pointwise, sum_alone
from sardonyx.plan.groups import LoopNest
from sardonyx.plan.inline import Materialized
from sardonyx.plan.reasons import Reason
from sardonyx.selection.general_copy import GeneralCopy, general_copy, structure_of_copy
from sardonyx.selection.invocation import Invocation, is_constant, moved_to
from sardonyx.selection.strided_copy import strided_copy
from sardonyx.selection.table import Candidate, Table, always, choose
from sardonyx.tensor.tensor import Buffer, Map, Reduce, Tensor

if TYPE_CHECKING:
    from sardonyx.selection.selector import KernelSelector

_REDUCES = Reason("it reduces elements")


@dataclass(slots=True)
class Packings:
    """Invocations of copies by the structure of what they write."""

    _known: dict[object, tuple[list[Buffer], Buffer, Invocation]] = field(default_factory=dict)

    def filling(
        self,
        selector: KernelSelector,
        contents: Map | Reduce,
        packed: Buffer,
        strides: dict[Tensor, tuple[Dim, ...]],
    ) -> Invocation:
        """What writes `contents` to `packed`.

        Args:
            selector: Forms kernels.
            contents: A map, or what reduces one.
            packed: A buffer of its shape, row-major.
            strides: Of what it reads.
        """
        structure, read = structure_of_copy(contents, strides)
        # What stands for constants in a general copy does not say that it never changes.
        never_changes = all(map(is_constant, read))
        key = structure, never_changes, selector.block_sizes.tiling
        if key in self._known:
            before, held, made = self._known[key]
            return moved_to(made, {**dict(zip(before, read, strict=True)), held: packed})
        task = CopyTask(selector, contents, packed, strides, never_changes)
        copy = choose(COPIES, task, selector.trace)
        if copy is None:
            return selector.pack(contents, packed, strides)
        made = selector.pack(copy.contents, copy.target, copy.strides, is_early=never_changes)
        made = copy.specific(made)
        self._known[key] = read, packed, made
        return made


class CopyTask:
    """What is to be packed.

    Args:
        selector: Forms kernels.
        contents: What is written.
        packed: Where, row-major.
        strides: Of what it reads.
        never_changes: Whether it is packed once.
    """

    def __init__(
        self,
        selector: KernelSelector,
        contents: Map | Reduce,
        packed: Buffer,
        strides: dict[Tensor, tuple[Dim, ...]],
        never_changes: bool,
    ) -> None:
        self.selector, self.never_changes = selector, never_changes
        self._arguments = contents, packed, strides

    @property
    def group(self) -> LoopNest:
        """It as a group, which is told apart from what it is packed for."""
        contents, packed, _ = self._arguments
        root = Materialized(contents, packed, (contents.body,))
        return pointwise(root) if isinstance(contents, Map) else sum_alone(root)

    @cached_property
    def strided(self) -> GeneralCopy | Reason:
        """It as a copy of any sizes that goes through its source in even steps."""
        contents, packed, strides = self._arguments
        if not isinstance(contents, Map):
            return _REDUCES
        return strided_copy(contents, packed, strides)

    @cached_property
    def general(self) -> GeneralCopy | Reason:
        """It as anything else of any sizes."""
        return general_copy(*self._arguments, runs_once=self.never_changes)


def _no_steps(task: CopyTask) -> Reason | None:
    return task.strided if isinstance(task.strided, Reason) else None


def _strided(task: CopyTask) -> GeneralCopy | None:
    return None if isinstance(task.strided, Reason) else task.strided


def _not_general(task: CopyTask) -> Reason | None:
    return task.general if isinstance(task.general, Reason) else None


def _general(task: CopyTask) -> GeneralCopy | None:
    return None if isinstance(task.general, Reason) else task.general


def _as_it_is(task: CopyTask) -> GeneralCopy | None:
    return None


#: What packs; the last one is a loop nest like others.
COPIES: Table[CopyTask, GeneralCopy | None] = (
    Candidate("copy in even steps", _no_steps, _strided),
    Candidate("map of any sizes", _not_general, _general),
    Candidate("loop nest", always, _as_it_is),
)
