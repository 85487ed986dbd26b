"""What fills buffers that are packed once, found again for layers of one structure."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.selection.general_copy import general_copy, structure_of_copy
from sardonyx.selection.invocation import Invocation, is_constant, moved_to
from sardonyx.selection.strided_copy import strided_copy
from sardonyx.tensor.tensor import Buffer, Map, Reduce, Tensor

if TYPE_CHECKING:
    from sardonyx.selection.selector import KernelSelector


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
            contents: A map, or sums.
            packed: A buffer of its shape, row-major.
            strides: Of what it reads.
        """
        if not isinstance(contents, Map):
            return selector.pack(contents, packed, strides)
        structure, read = structure_of_copy(contents, strides)
        # What stands for constants in a general copy does not say that it never changes.
        never_changes = all(map(is_constant, read))
        key = structure, never_changes, selector.block_sizes.tiling
        if key in self._known:
            before, held, made = self._known[key]
            return moved_to(made, {**dict(zip(before, read, strict=True)), held: packed})
        copy = strided_copy(contents, packed, strides) or general_copy(
            contents, packed, strides, runs_once=never_changes
        )
        if copy is None:
            return selector.pack(contents, packed, strides)
        made = selector.pack(copy.contents, copy.target, copy.strides, is_early=never_changes)
        made = copy.specific(made)
        self._known[key] = read, packed, made
        return made
