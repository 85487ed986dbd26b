"""Small trees for one row after the other: all tests at once, then walks of one load a node.

Loop nest::

    for row in low..high:
        for number in 0..tests:                           # _TESTS tests of one feature
            table[number * _TESTS:] = row[feature] <= limits ? passed : failed
        for start in 0..groups:                           # _TREES trees
            for _ in 0..steps: at[tree] = table[at[tree]]
            votes[row, target] += weights[at[tree]]
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base.sizes import Dim
from sardonyx.kernel.custom.frame import KernelFrame
from sardonyx.kernel.custom.task import View
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import F32, I32, I64, U16

#: Tests of one feature, trees of a group, and words before the roots of a group.
_TESTS, _TREES, _HEAD = 16, 12, 2

#: Leaves that are written together.
_LEAVES = 32


class Chase:
    """Writes the votes of rows, one by one.

    Args:
        frame: The kernel.
        rows: Features of rows, (n, width), float.
        votes: (n, targets).
        chains: The tables of `ops.ml.forest_chains.Chains`.
    """

    def __init__(self, frame: KernelFrame, rows: View, votes: View, chains: Sequence[View]) -> None:
        self.frame, self.b = frame, frame.builder
        self.rows, self.votes = rows, votes
        limits, features, ways, groups, weights = chains
        self.places, self.leaves = limits.shape[0], weights.shape[0]
        self.tests, self.groups = features.shape[0], groups.shape[0]
        self.limits, self.features, self.ways, self.group_words, self.weights = (
            frame.pointer(view) for view in chains
        )
        self.lanes = min(frame.task.lanes, _TESTS)

    @property
    def scratch_bytes(self) -> Dim:
        """A successor for each test and each leaf, and what is written beyond."""
        places = self.places + self.leaves + _LEAVES
        return places * U16.size_bytes

    def write(self, low: Operand, high: Operand) -> None:
        """Add the votes of all trees to those of the rows from `low` on, before `high`."""
        b, frame = self.b, self.frame
        table = b.context("scratch")
        first_leaf = b.lift(frame.dim(self.places), I64)
        lanes = min(frame.task.lanes * 2, _LEAVES)
        with b.if_(low < high), b.for_(0, frame.dim(self.leaves), _LEAVES) as leaf:
            for k in range(0, _LEAVES, lanes):
                place = first_leaf + leaf + k
                start = b.splat(b.convert(place, U16), lanes)
                own = b.iota(U16.with_lanes(lanes)) + start
                b.store(own, table, place, align_bytes=U16.size_bytes)
        with b.for_(low, high) as row:
            self._test(row, table)
            self._chase(row, table, b.offset(self.weights, 0 - first_leaf, F32))

    def _test(self, row: Operand, table: Operand) -> None:
        """Write what follows each test for a row."""
        b, lanes = self.b, self.lanes
        features = self.frame.element_pointer(self.rows, [row, b.value(I64, 0)])
        stride = self.rows.strides[1]
        with b.for_(0, self.frame.dim(self.tests)) as number:
            feature = b.convert(b.load(I32, self.features, number, invariant=True), I64)
            if stride != 1:
                feature = feature * self.frame.dim(stride)
            value = b.splat(b.load(F32, features, feature), lanes)
            first = number * _TESTS
            ways = number * (2 * _TESTS)
            for k in range(0, _TESTS, lanes):
                at = first + k
                limit = b.load(F32.with_lanes(lanes), self.limits, at, invariant=True)
                passed, failed = (
                    b.load(U16.with_lanes(lanes), self.ways, ways + (k + answer),
                           invariant=True)
                    for answer in (0, _TESTS)
                )  # fmt: skip
                after = b.select(value <= limit, passed, failed)
                b.store(after, table, at, align_bytes=U16.size_bytes)

    def _chase(self, row: Operand, table: Operand, weights: Operand) -> None:
        """Add what the leaves say that the successors lead to."""
        b, words = self.b, _HEAD + _TREES
        with b.for_(0, self.frame.dim(self.groups), words) as start:
            group = b.offset(self.group_words, start, I32)
            steps, target, *roots = (
                b.convert(b.load(I32, group, k, invariant=True), I64) for k in range(words)
            )
            places = [b.variable(root, I64, name="at") for root in roots]
            with b.for_(0, steps):
                for place in places:
                    place.set(b.convert(b.load(U16, table, place.get()), I64))
            total = self.frame.load(self.votes, [row, target])
            for place in places:
                weight = b.load(F32, weights, place.get(), invariant=True)
                total = total + weight
            self.frame.store(self.votes, [row, target], total)
