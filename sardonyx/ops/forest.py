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
from sardonyx.ops.forest_blocks import blocks, first_of

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
    count = len(trees.modes)
    needed = 1 + max(
        int(trees.features[part].max(initial=0, where=trees.modes[part] != LEAF))
        for part in blocks(count)
    )
    wide = width if width is not None else needed
    table = _Table(trees, wide, dtype)
    if len(table.nodes) > _MOST_NODES:
        raise fail(where, "There are too many tests", f"at most {_MOST_NODES}", len(table.nodes))
    single = targets == 1 and (aggregate == "add" or _each_once(trees))
    of_votes, weights = np.zeros(0, np.int32), np.zeros(0, dtype.numpy)
    if single:
        table.hang_weights(*_sums(trees))
    else:
        leaves, places, of_votes, weights = _votes(trees, dtype)
        table.hang_places(leaves, places)
    words = table.nodes.itemsize // 4
    return Forest(
        table.nodes.view(np.int32), words, (trees.roots * words).astype(np.int32),
        of_votes, weights, single, needed, table.has_copy, _depth(trees),
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
        place = _first_outside(found, count, inner)
        if place >= 0:
            raise fail(where, f"The {name} branch of the node at position {place} leads nowhere")
    features = trees.features
    limit = _MOST_FEATURES if width is None else width
    place = _first_outside(features, limit, inner)
    if place >= 0:
        what = f"The node at position {place} asks for a feature that the input does not have"
        raise fail(where, what, f"0 to {limit - 1}", features[place])
    outside = np.flatnonzero((trees.roots < 0) | (trees.roots >= count))
    if outside.size:
        raise fail(where, f"The root of tree number {outside[0]} is no node")
    target = trees.votes[1]
    place = _first_outside(target, targets, None)
    if place >= 0:
        what = f"The target of vote number {place} does not exist"
        raise fail(where, what, f"0 to {targets - 1}", target[place])
    _check_cycles(trees, inner, where)


def _first_outside(values: Array, limit: int, counted: Array | None) -> int:
    """The first place where a number that counts is not in [0, limit); -1 if there is none."""

    def fault(part: slice) -> Array:
        outside = (values[part] < 0) | (values[part] >= limit)
        return outside if counted is None else outside & counted[part]

    return first_of(len(values), fault)


def _check_cycles(trees: Trees, inner: Array, where: str) -> None:
    """Refuse nodes that come after themselves; several nodes may lead to one."""
    count = len(trees.modes)
    here = np.arange(count, dtype=np.int32)
    if not (inner & ((trees.true <= here) | (trees.false <= here))).any():
        return  # all branches lead on
    parents = np.zeros(count, np.int32)
    for branch in (trees.true, trees.false):
        for part in blocks(count):
            after = branch[part][inner[part]].astype(np.intp)  # add.at is slow with others
            np.add.at(parents, after[inner[after]], 1)
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
        nodes: For each the number that it compares with, the column that it reads, and the next
            node, by its first word, where the test holds and where it does not.
        has_copy: Whether a test reads the copy without NaN.
    """

    def __init__(self, trees: Trees, width: int, dtype: DType) -> None:
        self._kind = kind = dtype.numpy
        self._words = 6 if dtype is DOUBLE else 4
        form = {
            "names": ["value", "feature", "true", "false"],
            "formats": [kind, np.int32, np.int32, np.int32],
            "itemsize": 4 * self._words,
        }
        self._form = np.dtype(form)  # type: ignore[call-overload]  # NumPy documents this spelling
        count = len(trees.modes)
        self.nodes = np.zeros(count, self._form)
        self.has_copy = False
        special = [self._take(trees, part, width) for part in blocks(count)]
        self._more: list[tuple[Any, int, int, int]] = []
        with np.errstate(all="ignore"):  # the neighbour of the smallest number is -inf
            self._add_special(trees, np.concatenate(special).tolist())

    def hang_weights(self, leaves: Array, weights: Array) -> None:
        """Give leaves their only votes."""
        values = self.nodes["value"]
        for part in blocks(len(leaves)):
            values[leaves[part]] = weights[part]

    def hang_places(self, leaves: Array, places: Array) -> None:
        """Tell leaves where their votes begin."""
        self.nodes.view(np.int32)[leaves * self._words] = places

    def _take(self, trees: Trees, part: slice, width: int) -> Array:
        """Set the tests of some nodes; gives the positions of those that take more than a test."""
        modes, true, false = trees.modes[part], trees.true[part], trees.false[part]
        inner = modes != LEAF
        values = trees.values[part].astype(self._kind)
        less = (modes == _LT) | (modes == _GTE)
        swapped = (modes == _GT) | (modes == _GTE)
        plain = (modes <= _GT) & np.isfinite(values)
        if less.any():
            with np.errstate(all="ignore"):
                values = np.where(less, np.nextafter(values, self._kind.type(-np.inf)), values)
        # NaN must go where `tracks` says; on its own it goes where the test fails.
        copied = plain & (trees.tracks[part] != swapped)
        self.has_copy |= bool(copied.any())
        here = np.arange(part.start, part.stop)
        nodes = self.nodes[part]
        nodes["value"] = np.where(inner, values, 0)
        nodes["feature"] = np.where(inner, trees.features[part] + width * copied, 0)
        nodes["true"] = np.where(inner, np.where(swapped, false, true), here) * self._words
        nodes["false"] = np.where(inner, np.where(swapped, true, false), here) * self._words
        special: Array = np.flatnonzero(inner & ~plain) + part.start
        return special

    def _add_special(self, trees: Trees, special: list[int]) -> None:
        sets = iter(trees.members)
        count = len(self.nodes)
        for node in special:
            mode, value = int(trees.modes[node]), self._kind.type(trees.values[node])
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
            test = (np.nan, 0, head, head) if head < count else self._more[head - count]
            self.nodes[node] = self._record(test)
        if self._more:
            nodes = np.zeros(count + len(self._more), self._form)  # concatenate would repack them
            nodes[:count] = self.nodes
            nodes[count:] = [self._record(test) for test in self._more]
            self.nodes = nodes

    def _record(self, test: tuple[Any, int, int, int]) -> tuple[Any, int, int, int]:
        value, feature, true, false = test
        return value, feature, true * self._words, false * self._words

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


def _sums(trees: Trees) -> tuple[Array, Array]:
    """Leaves, and the sum of the votes of each."""
    leaf, _, weight = trees.votes
    if (leaf[1:] > leaf[:-1]).all():
        return leaf, weight
    sums = np.zeros(len(trees.modes), np.float64)
    for part in blocks(len(leaf)):
        # add.at is slow with other types.
        np.add.at(sums, leaf[part].astype(np.intp), weight[part].astype(np.float64))
    leaves = np.flatnonzero(trees.modes == LEAF)
    return leaves, sums[leaves]


def _votes(trees: Trees, dtype: DType) -> tuple[Array, Array, Array, Array]:
    """The leaves, where the votes of each begin, and the votes' targets and weights."""
    leaf, target, weight = trees.votes
    order = np.argsort(leaf, kind="stable")
    each = np.bincount(leaf, minlength=len(trees.modes))
    leaves = np.flatnonzero(trees.modes == LEAF)
    # One entry more for each leaf: how many votes follow.
    taken = each[leaves] + 1
    places = np.cumsum(taken) - taken
    total = int(taken.sum())
    of_votes, weights = np.zeros(total, np.int32), np.zeros(total, dtype.numpy)
    of_votes[places] = each[leaves]
    starts = np.zeros(len(trees.modes), np.int64)
    starts[leaves] = places
    before = np.cumsum(each) - each
    sorted_leaf = leaf[order]
    at = starts[sorted_leaf] + 1 + np.arange(len(order)) - before[sorted_leaf]
    of_votes[at], weights[at] = target[order], weight[order]
    return leaves, places, of_votes, weights


def _each_once(trees: Trees) -> bool:
    each = np.bincount(trees.votes[0], minlength=len(trees.modes))
    return bool((each[trees.modes == LEAF] == 1).all())


def _depth(trees: Trees) -> int:
    """About how many tests lead to a leaf: as if trees were nearly balanced."""
    inner = int((trees.modes != LEAF).sum())
    return 1 + int(np.ceil(1.3 * np.log2(1 + inner / len(trees.roots))))
