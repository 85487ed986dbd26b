"""Small trees for many rows at once, without jumps: leaves are struck out by tests that fail.

A group of rows lies in scratch feature by feature, so that one test is a comparison of vectors.
What is left of a tree's leaves stays in registers.

Loop nest::

    for row in low..whole step GROUP:
        features[width, GROUP], sums[targets, GROUP] = columns of the rows, 0
        for tree in first..last:
            left[GROUP] = all leaves
            for number in starts[tree]..starts[tree + 1]:
                left &= features[feature] <= limit ? all : mask
            sums[target] += leaves[tree, first bit of left]
        votes[row : row + GROUP] = sums
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base.sizes import Dim
from sardonyx.kernel.custom.frame import KernelFrame
from sardonyx.kernel.custom.task import View
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import F32, I32, I64, Type

#: Rows of a group.
GROUP = 32

#: Bits of a mask, and words of a test: limit, feature, mask.
_LEAVES, _WORDS = 32, 3


class Strike:
    """Writes the votes of groups of rows.

    Args:
        frame: The kernel.
        rows: Features of rows, (n, width), float.
        votes: (parts, n, targets), or (n, targets).
        masks: The tables of `ops.ml.forest_masks.Masks`.
    """

    def __init__(self, frame: KernelFrame, rows: View, votes: View, masks: Sequence[View]) -> None:
        self.frame, self.b = frame, frame.builder
        self.rows, self.votes = rows, votes
        self.starts, tests, leaves, self.targets = masks
        self.tests, self.leaves = frame.pointer(tests), frame.pointer(leaves)
        self.lanes = min(frame.task.lanes, GROUP)
        self.width, self.count = rows.shape[1], votes.shape[-1]
        for size in (self.width, self.count):
            frame.dim(size)

    @property
    def scratch_bytes(self) -> Dim:
        """The features and the votes of a group."""
        return (self.width + self.count) * (GROUP * F32.size_bytes)

    def write(
        self, lead: Sequence[Operand], low: Operand, high: Operand, first: Operand, last: Operand
    ) -> Operand:
        """Votes of the trees from `first` to `last` for whole groups of rows.

        Args:
            lead: Coordinates in front of those of the row and the target.
            low: The first row.
            high: The row after the last one.
            first: The first tree.
            last: The tree after the last one.

        Returns:
            The first row that is left.
        """
        b, frame = self.b, self.frame
        features = b.context("scratch")
        sums = b.offset(features, frame_dim(frame, self.width) * GROUP, F32)
        whole = low + ((high - low) & -GROUP)
        with b.for_(low, whole, GROUP) as row:
            with b.for_(0, frame.dim(self.width)) as feature, b.for_(0, GROUP) as k:
                value = frame.load(self.rows, [row + k, feature])
                b.store(value, features, feature * GROUP + k)
            with b.for_(0, frame_dim(frame, self.count) * GROUP) as k:
                b.store(b.value(F32, 0.0), sums, k)
            with b.for_(first, last) as tree:
                self._tree(tree, features, sums)
            with b.for_(0, GROUP) as k, b.for_(0, frame.dim(self.count)) as target:
                at = target * GROUP + k
                place = [*lead, row + k, target]
                frame.store(self.votes, place, b.load(F32, sums, at))
        return whole

    def _tree(self, tree: Operand, features: Operand, sums: Operand) -> None:
        b, lanes = self.b, self.lanes
        wide = F32.with_lanes(lanes)
        groups = range(0, GROUP, lanes)
        left = [b.variable(b.splat(b.value(I32, -1), lanes), name="left") for _ in groups]
        begin = b.convert(self.frame.load_raw(self.starts, [tree]), I64)
        after = self.frame.load_raw(self.starts, [tree + 1])
        with b.for_(begin, b.convert(after, I64)) as number:
            test = b.offset(self.tests, number * _WORDS, I32)
            limit = b.splat(b.load(F32, test, 0, invariant=True), lanes)
            feature = b.convert(b.load(I32, test, 1, invariant=True), I64)
            mask = b.splat(b.load(I32, test, 2, invariant=True), lanes)
            column = b.offset(features, feature * GROUP, F32)
            for leaves, k in zip(left, groups, strict=True):
                holds = _load(self, wide, column, k) <= limit
                before = leaves.get()
                leaves.set(b.select(holds, before, before & mask))
        target = b.convert(self.frame.load_raw(self.targets, [tree]), I64)
        column = b.offset(sums, target * GROUP, F32)
        weights = b.offset(self.leaves, tree * _LEAVES, F32)
        for leaves, k in zip(left, groups, strict=True):
            leaf = b.unary("ctlz", leaves.get())
            weight = b.load(wide, weights, b.convert(leaf, I64))
            total = _load(self, wide, column, k) + weight
            b.store(total, column, k, align_bytes=F32.size_bytes)


def _load(strike: Strike, kind: Type, pointer: Operand, index: int) -> Operand:
    return strike.b.load(kind, pointer, index, align_bytes=F32.size_bytes)


def frame_dim(frame: KernelFrame, dim: Dim) -> Operand:
    """A size as a value, also where it is a plain number."""
    return frame.builder.lift(frame.dim(dim), I64)
