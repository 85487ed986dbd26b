"""Walks over tables of tree nodes: many rows through one tree in step, or one row through many.

A walk is a chain of dependent loads, so several of them are interleaved, without branches: a leaf
leads to itself. That keeps a processor busier than compiled branches, half of which it would
mispredict, and the code is as small for any number of nodes.

Loop nest of walks::

    parallel block in 0..parts * groups:                  # `chunk` rows, a part of the trees
        for tree in first..last:
            for row in low..whole step _WALKS:
                while one moved: at[k] = next node of at[k] for row + k       # _STEPS times
                votes[row + k] = join(votes[row + k], weight of leaf at[k])
        for row in whole..high:
            for tree in first..last step _WALKS: the same, a walk for each tree
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer, sizes
from sardonyx.kernel.custom.forest_chains import Chase
from sardonyx.kernel.custom.forest_masks import Strike
from sardonyx.kernel.custom.frame import KernelFrame
from sardonyx.kernel.custom.task import CustomTask, View, special
from sardonyx.kernel.expressions.representation import value_type
from sardonyx.kernel.language.builder import Register
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import I32, I64, U32

#: Walks that go in step, and tests that each of them makes before it is asked whether one moved.
_WALKS, _STEPS = 16, 4


@special("forest")
def build_forest(task: CustomTask, symbol: str) -> Kernel:
    """rows (n, width), tables -> votes (n, targets) or (parts, n, targets).

    The attribute `forms` says which tables there are: those of `ops.ml.forest.Forest` for walks, of
    `ops.ml.forest_masks.Masks` for groups of rows, of `ops.ml.forest_chains.Chains` for the rows
    that are left, instead of walks. A block is `chunk` rows and one of the parts into which the
    trees go. Further attributes: words, shift, single, join (add, min, max), trees, depth, chunk.
    """
    return _Votes(task, symbol).build()


#: How many tables each form has.
_TABLES = {"walk": 4, "masks": 4, "chains": 5}


def _number(task: CustomTask, name: str) -> int:
    return int(str(task.attribute(name)))


class _Votes:
    """The kernel: which rows and trees a block has, and what serves them."""

    def __init__(self, task: CustomTask, symbol: str) -> None:
        votes = task.outputs[0]
        assert votes is not None  # noqa: S101 - a kernel without result is never planned
        self.votes = votes
        self.join = str(task.attribute("join"))
        self.visits = _number(task, "trees") * _number(task, "depth")
        self.trees = _number(task, "trees")
        self.chunk: sizes.Dim = task.attribute("chunk")  # type: ignore[assignment]  # a size
        self.frame = frame = KernelFrame(task, symbol, (self.chunk,))
        self.b = frame.builder
        rows, *tables = task.operands
        of_form: dict[str, list[View]] = {}
        for form in task.attribute("forms"):  # type: ignore[attr-defined]  # a tuple of names
            of_form[form], tables = tables[: _TABLES[form]], tables[_TABLES[form] :]
        masks, chains, walk = (of_form.get(form) for form in ("masks", "chains", "walk"))
        self.type = value_type(rows.dtype)
        self.strike = None if masks is None else Strike(frame, rows, votes, masks)
        self.chase = None if chains is None else Chase(frame, rows, votes, chains)
        self.walk = None if walk is None else _Walk(frame, rows, votes, walk)

    def build(self) -> Kernel:
        b, frame = self.b, self.frame
        count, targets = self.votes.shape[-2:]
        parts: sizes.Dim = self.votes.shape[0] if len(self.votes.shape) > 2 else 1
        groups = integer.ceildiv(count, self.chunk)
        share = integer.ceildiv(self.trees, parts)
        for size in (groups, share):
            frame.dim(size)
        with b.parallel() as block:
            part = block // frame.dim(groups)
            group = block % frame.dim(groups)
            low: Operand = group * frame.dim(self.chunk)
            high = b.min(low + frame.dim(self.chunk), frame.dim(count))
            lead = [part] if len(self.votes.shape) > 2 else []
            first = part * frame.dim(share)
            last = b.min(first + frame.dim(share), self.trees)
            if self.strike is not None:
                low = self.strike.write(lead, low, high, first, last)
            self._clear(lead, low, high, targets)
            if self.chase is not None:
                self.chase.write(low, high)
            if self.walk is not None:
                self.walk.write(lead, low, high, first, last)
        scratch: sizes.Dim = 0
        for form in (self.strike, self.chase):
            scratch = scratch if form is None else scratch + form.scratch_bytes
        visits = count * self.visits
        return frame.kernel(parts * groups, visits, scratch)

    def _clear(
        self, lead: Sequence[Operand], low: Operand, high: Operand, targets: sizes.Dim
    ) -> None:
        start = {"add": 0.0, "min": float("inf"), "max": float("-inf")}[self.join]
        with self.b.for_(low, high) as row, self.b.for_(0, self.frame.dim(targets)) as target:
            self.frame.store(self.votes, [*lead, row, target], self.b.constant(self.type, start))


class _Walk:
    """Adds the votes of trees to those of rows, which have their first values.

    Args:
        frame: The kernel.
        rows: Features of rows, (n, width).
        votes: (parts, n, targets), or (n, targets).
        tables: The tables of `ops.ml.forest.Forest`: nodes, roots, targets, weights.
    """

    def __init__(self, frame: KernelFrame, rows: View, votes: View, tables: Sequence[View]) -> None:
        self.frame, self.b = frame, frame.builder
        self.rows, self.votes = rows, votes
        nodes, self.roots, self.targets, self.weights = tables
        self.table = frame.pointer(nodes)
        self.join = str(frame.task.attribute("join"))
        self.single = bool(frame.task.attribute("single"))
        self.words, self.shift = _number(frame.task, "words"), _number(frame.task, "shift")
        self.type = value_type(rows.dtype)

    def write(
        self, lead: Sequence[Operand], low: Operand, high: Operand, first: Operand, last: Operand
    ) -> None:
        """Walk rows from `low` to `high` through trees from `first` to `last`.

        `lead` has the coordinates of votes in front of those of the row and the target.
        """
        b, frame = self.b, self.frame
        whole = low + ((high - low) & -_WALKS)
        with b.for_(first, last) as tree:
            root = frame.load_raw(self.roots, [tree])
            with b.for_(low, whole, _WALKS) as row:
                rows = [row + k for k in range(_WALKS)]
                self._walk([root] * _WALKS, row, rows, lead)
        even = first + ((last - first) & -_WALKS)
        with b.for_(whole, high) as row:
            with b.for_(first, even, _WALKS) as tree:
                numbers = [tree + k for k in range(_WALKS)]
                roots = [frame.load_raw(self.roots, [number]) for number in numbers]
                self._walk(roots, row, [row] * _WALKS, lead)
            with b.for_(even, last) as tree:
                self._walk([frame.load_raw(self.roots, [tree])], row, [row], lead)

    def _walk(
        self,
        roots: Sequence[Operand],
        base: Operand,
        rows: Sequence[Operand],
        lead: Sequence[Operand],
    ) -> None:
        """Walk from each root to a leaf, and count what the leaf says for the row."""
        b = self.b
        features = [
            self.frame.element_pointer(self.rows, [row, b.value(I64, 0)])
            for row in ([base] if rows[0] is rows[-1] else rows)
        ]
        if len(features) == 1:
            features *= len(rows)
        places = [b.variable(b.convert(root, I64), name="at") for root in roots]
        moved = b.variable(1, I64, name="moved")
        with b.while_(lambda: b.ne(moved.get(), 0)):
            at: list[Operand] = [place.get() for place in places]
            before = at
            for _ in range(_STEPS):
                before = at
                at = [self._step(a, f) for a, f in zip(at, features, strict=True)]
            change: Operand | None = None
            for place, old, new in zip(places, before, at, strict=True):
                differs = old ^ new
                change = differs if change is None else change | differs
                place.set(new)
            assert change is not None  # noqa: S101 - there is at least one walk
            moved.set(change)
        self._count(places, rows, lead)

    def _step(self, at: Operand, features: Operand) -> Operand:
        """The node after the one at `at`."""
        b = self.b
        node = b.offset(self.table, at, I32)
        if self.shift:
            return self._near(at, node, features)
        first = 1 if self.words == 4 else 2
        feature = b.convert(b.load(I32, node, first, invariant=True), I64)
        stride = self.rows.strides[1]
        if stride != 1:
            feature = feature * self.frame.dim(stride)
        value = b.load(self.type, features, feature)
        limit = b.load(self.type, node, 0, invariant=True)
        passed = b.load(I32, node, first + 1, invariant=True)
        failed = b.load(I32, node, first + 2, invariant=True)
        return b.convert(b.select(value <= limit, passed, failed), I64)

    def _near(self, at: Operand, node: Operand, features: Operand) -> Operand:
        """The node after one that has the form of `ops.ml.forest_packed`."""
        b = self.b
        word = b.convert(b.load(U32, node, 1, invariant=True), I64)
        column: Operand = word >> self.shift
        stride = self.rows.strides[1]
        if stride != 1:
            column = column * self.frame.dim(stride)
        value = b.load(self.type, features, column)
        limit = b.load(self.type, node, 0, invariant=True)
        failed = b.convert(b.unary("not", value <= limit), I64)
        distance = (word & ((1 << self.shift) - 1)) + failed
        return at + distance * self.words

    def _count(
        self, places: Sequence[Register], rows: Sequence[Operand], lead: Sequence[Operand]
    ) -> None:
        b = self.b
        leaves = [b.offset(self.table, place.get(), I32) for place in places]
        if self.single:
            zero = b.value(I64, 0)
            weights = [b.load(self.type, leaf, 0, invariant=True) for leaf in leaves]
            if rows[0] is not rows[-1] or len(rows) == 1:
                for weight, row in zip(weights, rows, strict=True):
                    self._add([*lead, row, zero], weight)
                return
            total = self.frame.load(self.votes, [*lead, rows[0], zero])
            for weight in weights:
                total = b.binary(self.join, total, weight)
            self.frame.store(self.votes, [*lead, rows[0], zero], total)
            return
        for leaf, row in zip(leaves, rows, strict=True):
            start = b.convert(b.load(I32, leaf, 0, invariant=True), I64)
            count = b.convert(self.frame.load_raw(self.targets, [start]), I64)
            first = start + 1
            with b.for_(first, first + count) as vote:
                target = b.convert(self.frame.load_raw(self.targets, [vote]), I64)
                self._add([*lead, row, target], self.frame.load(self.weights, [vote]))

    def _add(self, at: Sequence[Operand], weight: Operand) -> None:
        old = self.frame.load(self.votes, at)
        self.frame.store(self.votes, at, self.b.binary(self.join, old, weight))
