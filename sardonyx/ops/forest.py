"""Trees as one table that a kernel walks: every node asks whether a feature is at most a number.

A node of any kind is a row of intervals with an outcome each, cut by tests `x <= c`: `x < c` is a
test against the next smaller number, membership in a set a search tree of tests. NaN fails every
test. A test that NaN should pass reads the feature from a second copy of the row in which NaN is
minus infinity. Leaves lead to themselves, so that walks of different lengths can go in step.

Everything is checked here, since kernels follow the table blindly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sardonyx.base.dtypes import DOUBLE, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.constant import Array

#: What a node asks, in the order in which TreeEnsemble-5 numbers it, and the leaf.
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
         "BRANCH_MEMBER", "LEAF")  # fmt: skip
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER, LEAF = range(8)


#: Words of the table, targets and columns of rows and their copies have 31 bits.
_MOST_NODES, _MOST_TARGETS, _MOST_FEATURES = 1 << 28, 1 << 30, 1 << 29


@dataclass(slots=True)
class Trees:
    """Trees as a model describes them; positions of nodes are counted over all trees.

    Attributes:
        modes: What each node asks: positions in `MODES`.
        values: What it compares with.
        features: Which feature it asks for.
        tracks: Whether NaN goes where true answers go.
        true: The node after a true answer.
        false: The node after a false one.
        roots: The first node of each tree.
        votes: For each vote the leaf that it belongs to, its target and its weight.
        members: The set of each node that tests membership, in the order of the nodes.
    """

    modes: Array
    values: Array
    features: Array
    tracks: Array
    true: Array
    false: Array
    roots: Array
    votes: tuple[Array, Array, Array]
    members: list[Array] = field(default_factory=list)


@dataclass(slots=True)
class Forest:
    """The table.

    Attributes:
        nodes: int32, `words` for each node: the threshold (one word, or two of a double), feature,
            next node if the test holds, next node if not. Nodes are named by their first word. A
            leaf's threshold is its weight if `single`, else where its votes begin.
        words: Words of a node.
        roots: int32, the root of each tree.
        targets: int32: at the beginning of votes their number, then the target of each.
        weights: The weight of each vote, at the same places.
        single: Whether every leaf has one vote, for the only target.
        width: How many features the rows must have.
        has_copy: Whether a second copy of the rows, without NaN, follows the first one.
        depth: About how many tests lead to a leaf.
    """

    nodes: Array
    words: int
    roots: Array
    targets: Array
    weights: Array
    single: bool
    width: int
    has_copy: bool
    depth: int


def fail(where: str, what: str, expected: object = "", got: object = "") -> InvalidGraph:
    """An error about the description of the trees."""
    return InvalidGraph(message(where, what, expected=str(expected), got=str(got)))


def plant(
    trees: Trees, targets: int, dtype: DType, aggregate: str, width: int | None, where: str
) -> Forest:
    """The table of the trees.

    Args:
        trees: What the model says.
        targets: How many targets there are.
        dtype: Type that features are compared in: float or double.
        aggregate: `add`, `min` or `max`: how votes of one leaf for one target are joined.
        width: How many features rows have, where that is known.
        where: Names the operator in errors.

    Raises:
        InvalidGraph: The description is not that of trees.
    """
    _check(trees, targets, width, where)
    asked = np.flatnonzero(trees.modes != LEAF)
    needed = int(trees.features[asked].max()) + 1 if asked.size else 1
    wide = width if width is not None else needed
    table = _Table(trees, wide, dtype)
    words = 6 if dtype is DOUBLE else 4
    if len(table.values) > _MOST_NODES:
        raise fail(where, "There are too many tests", f"at most {_MOST_NODES}", len(table.values))
    first = words - 4 if dtype is DOUBLE else 1
    nodes = np.zeros((len(table.values), words), np.int32)
    values = table.values.astype(dtype.numpy)
    leaves = np.flatnonzero(trees.modes == LEAF)
    single, places, vote_targets, weights = _votes(trees, targets, dtype, aggregate)
    if single:
        values[leaves] = weights[leaves] if len(weights) else 0
        weights = np.zeros(0, dtype.numpy)
    nodes[:, :first] = values.reshape(-1, 1).view(np.int32)
    if not single:
        nodes[leaves, 0] = places[leaves]
    nodes[:, first] = table.features
    nodes[:, first + 1] = table.true * words
    nodes[:, first + 2] = table.false * words
    return Forest(
        nodes.reshape(-1), words, (table.heads[trees.roots] * words).astype(np.int32),
        vote_targets, weights, single, needed, table.has_copy, _depth(trees),
    )  # fmt: skip


def _check(trees: Trees, targets: int, width: int | None, where: str) -> None:
    count = len(trees.modes)
    if not count or not len(trees.roots):
        raise fail(where, "There is no tree")
    for what, most, given in (
        ("nodes", _MOST_NODES, count), ("targets", _MOST_TARGETS, targets),
        ("features", _MOST_FEATURES, width or 0),
    ):  # fmt: skip
        if given > most:
            raise fail(where, f"There are too many {what}", f"at most {most}", given)
    inner = trees.modes != LEAF
    for name, found in (("true", trees.true), ("false", trees.false)):
        outside = np.flatnonzero(inner & ((found < 0) | (found >= count)))
        if outside.size:
            raise fail(
                where, f"The {name} branch of the node at position {outside[0]} leads nowhere"
            )
    features = trees.features[inner]
    limit = _MOST_FEATURES if width is None else width
    bad = np.flatnonzero((features < 0) | (features >= limit))
    if bad.size:
        place = np.flatnonzero(inner)[bad[0]]
        what = f"The node at position {place} asks for a feature that the input does not have"
        raise fail(where, what, f"0 to {limit - 1}", features[bad[0]])
    outside = np.flatnonzero((trees.roots < 0) | (trees.roots >= count))
    if outside.size:
        raise fail(where, f"The root of tree number {outside[0]} is no node")
    leaf, target, _ = trees.votes
    bad = np.flatnonzero((target < 0) | (target >= targets))
    if bad.size:
        what = f"The target of vote number {bad[0]} does not exist"
        raise fail(where, what, f"0 to {targets - 1}", target[bad[0]])
    _check_cycles(trees, inner, where)


def _check_cycles(trees: Trees, inner: Array, where: str) -> None:
    """Refuse nodes that come after themselves; several nodes may lead to one."""
    count = len(trees.modes)
    parents = np.zeros(count, np.int64)
    for branch in (trees.true, trees.false):
        parents += np.bincount(branch[inner & inner[branch * inner]], minlength=count)
    if parents.max() <= 1 and not parents[trees.roots].any():
        return  # whoever enters a cycle is its second parent, or starts inside
    left, pending = parents.copy(), np.flatnonzero(inner & (parents == 0)).tolist()
    seen = 0
    true, false, asks = trees.true.tolist(), trees.false.tolist(), inner.tolist()
    while pending:
        node = pending.pop()
        seen += 1
        for after in (true[node], false[node]):
            if asks[after]:
                left[after] -= 1
                if not left[after]:
                    pending.append(after)
    if seen < int(inner.sum()):
        node = int(np.flatnonzero(inner & (left > 0))[0])
        raise fail(where, f"The node at position {node} comes after itself", "trees without cycles")


class _Table:
    """The nodes as tests: the first ones stand for the model's nodes, others follow them.

    Attributes:
        values: What tests compare with.
        features: Columns that tests read.
        true: The next node where the test holds.
        false: The next node where it does not.
        heads: Where the walk of each of the model's nodes begins.
        has_copy: Whether a test reads the copy without NaN.
    """

    def __init__(self, trees: Trees, width: int, dtype: DType) -> None:
        kind = dtype.numpy
        self._width, self._kind = width, kind
        inner = trees.modes != LEAF
        here = np.arange(len(trees.modes))
        values = trees.values.astype(kind)
        modes = trees.modes
        less = (modes == _LT) | (modes == _GTE)
        swapped = (modes == _GT) | (modes == _GTE)
        plain = (modes <= _GT) & np.isfinite(values)
        with np.errstate(all="ignore"):
            self.values = np.where(less, np.nextafter(values, kind.type(-np.inf)), values)
        passing = np.where(swapped, trees.false, trees.true)
        failing = np.where(swapped, trees.true, trees.false)
        # NaN must go where `tracks` says; on its own it goes where the test fails.
        copied = plain & (trees.tracks != swapped)
        self.features = np.where(inner, trees.features + width * copied, 0)
        self.true = np.where(inner, passing, here)
        self.false = np.where(inner, failing, here)
        self.has_copy = bool(copied.any())
        self.heads = here
        self._more: list[tuple[Any, int, int, int]] = []
        special = np.flatnonzero(inner & ~plain)
        if special.size:
            with np.errstate(over="ignore"):  # the neighbour of the smallest number is -inf
                self._add_special(trees, special, values)

    def _add_special(self, trees: Trees, special: Array, values: Array) -> None:
        sets = iter(trees.members)
        count = len(values)
        for node in special.tolist():
            mode, value = int(trees.modes[node]), values[node]
            members = next(sets) if mode == _MEMBER else None
            cuts, outcomes = self._intervals(mode, value, members)
            ends = (int(trees.false[node]), int(trees.true[node]))
            after = [ends[o] for o in outcomes]
            of_nan = ends[int(trees.tracks[node])]
            feature = int(trees.features[node])
            head = self._search(feature, cuts, after, count)
            if after[-1] != of_nan:
                head = self._add((self._kind.type(np.inf), feature, head, of_nan), count)
            # The model's node keeps its place, as others lead to it: it becomes the first test.
            if head >= count:
                value, feature, true, false = self._more[head - count]
                self.values[node], self.features[node] = value, feature
                self.true[node], self.false[node] = true, false
            else:
                self.values[node], self.features[node] = np.nan, 0
                self.true[node] = self.false[node] = head
        if self._more:
            more = list(zip(*self._more, strict=True))
            self.values = np.concatenate([self.values, np.array(more[0], self._kind)])
            self.features = np.concatenate([self.features, np.array(more[1], np.int64)])
            self.true = np.concatenate([self.true, np.array(more[2], np.int64)])
            self.false = np.concatenate([self.false, np.array(more[3], np.int64)])

    def _intervals(
        self, mode: int, value: Any, members: Array | None
    ) -> tuple[list[Any], list[bool]]:
        """Cuts in ascending order and the answer in each interval, for all numbers but NaN."""
        smallest = self._kind.type(-np.inf)
        if mode in (_EQ, _NEQ, _MEMBER):
            wanted = np.array([value], self._kind) if members is None else members
            wanted = np.unique(wanted[~np.isnan(wanted)].astype(self._kind))
            inside = mode != _NEQ
            cuts: list[Any] = []
            outcomes = [not inside]
            for one in wanted:
                below = np.nextafter(one, smallest)
                if cuts and cuts[-1] == below:
                    cuts.pop()
                    outcomes.pop()
                    outcomes[-1] = inside
                elif one == smallest:
                    outcomes[-1] = inside
                else:
                    cuts.append(below)
                    outcomes.append(inside)
                cuts.append(one)
                outcomes.append(not inside)
            return cuts, outcomes
        if np.isnan(value):
            return [], [False]
        upward = mode in (_GT, _GTE)
        if mode in (_LT, _GTE):
            if value == smallest:
                return [], [upward]
            value = np.nextafter(value, smallest)
        return [value], [not upward, upward]

    def _search(self, feature: int, cuts: list[Any], after: list[int], first: int) -> int:
        """A balanced tree of tests; gives its root, or the only node that is left."""
        if not cuts:
            return after[0]
        middle = len(cuts) // 2
        low = self._search(feature, cuts[:middle], after[: middle + 1], first)
        high = self._search(feature, cuts[middle + 1 :], after[middle + 1 :], first)
        return self._add((cuts[middle], feature, low, high), first)

    def _add(self, test: tuple[Any, int, int, int], first: int) -> int:
        self._more.append(test)
        return first + len(self._more) - 1


def _votes(
    trees: Trees, targets: int, dtype: DType, aggregate: str
) -> tuple[bool, Array, Array, Array]:
    """Whether leaves have one weight each, where the votes of each node begin, and the votes.

    With one weight each, the weights are by node.
    """
    count = len(trees.modes)
    leaf, target, weight = trees.votes
    if targets == 1 and (aggregate == "add" or _each_once(leaf, trees)):
        sums = np.zeros(count, np.float64)
        np.add.at(sums, leaf, weight.astype(np.float64))
        return True, np.zeros(0, np.int32), np.zeros(0, np.int32), sums.astype(dtype.numpy)
    order = np.argsort(leaf, kind="stable")
    each = np.bincount(leaf, minlength=count)
    leaves = trees.modes == LEAF
    # One entry more for each leaf: how many votes follow.
    taken = np.where(leaves, each + 1, 0)
    starts = np.cumsum(taken) - taken
    total = int(taken.sum())
    of_votes, weights = np.zeros(total, np.int32), np.zeros(total, dtype.numpy)
    of_votes[starts[leaves]] = each[leaves]
    before = np.cumsum(each) - each
    sorted_leaf = leaf[order]
    at = starts[sorted_leaf] + 1 + np.arange(len(order)) - before[sorted_leaf]
    of_votes[at], weights[at] = target[order], weight[order]
    return False, starts.astype(np.int32), of_votes, weights


def _each_once(leaf: Array, trees: Trees) -> bool:
    each = np.bincount(leaf, minlength=len(trees.modes))
    return bool((each[trees.modes == LEAF] == 1).all())


def _depth(trees: Trees) -> int:
    """About how many tests lead to a leaf: as if trees were nearly balanced."""
    inner = int((trees.modes != LEAF).sum())
    return 1 + int(np.ceil(1.3 * np.log2(1 + inner / len(trees.roots))))
