"""Trees as one table that a kernel walks: every node asks whether a feature is at most a number.

A node of any kind is a row of intervals with an outcome each, cut by tests `x <= c`: `x < c` is a
test against the next smaller number, membership in a set a search tree of tests. NaN fails every
test. A test that NaN should pass reads the feature from a second copy of the row in which NaN is
minus infinity. Leaves lead to themselves, so that walks of different lengths can go in step.

Everything is checked here, since kernels follow the table blindly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base.dtypes import FLOAT, DType
from sardonyx.base.records import dataclass
from sardonyx.ir.constant import Array
from sardonyx.ops.ml.forest_blocks import blocks, first_of
from sardonyx.ops.ml.forest_model import LEAF, Trees, fail
from sardonyx.ops.ml.forest_packed import Packed
from sardonyx.ops.ml.forest_table import ForestTable

#: Words of the table, targets and columns of rows and their copies have 31 bits.
_MOST_NODES, _MOST_TARGETS, _MOST_FEATURES = 1 << 28, 1 << 30, 1 << 29


#: Nodes of forests whose trees may be small, in all and for each tree.
_MOST_SMALL_NODES, _MOST_PER_SMALL_TREE = 200_000, 96


@dataclass(slots=True)
class Forest:
    """The table.

    Attributes:
        nodes: int32, `words` for each node: the threshold (one word, or two of a double), feature,
            next node if the test holds, next node if not. Nodes are named by their first word. A
            leaf's threshold is its weight if `single`, else where its votes begin.
        words: Words of a node.
        shift: Where nodes have the form of `forest_packed` its shift, else 0.
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
    shift: int
    roots: Array
    targets: Array
    weights: Array
    single: bool
    width: int
    has_copy: bool
    depth: int


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
    table: ForestTable | Packed | None = None
    if dtype is FLOAT and not may_be_small(count, len(trees.roots)):
        table = Packed.of(trees, wide)
    table = table or ForestTable(trees, wide, dtype)
    if len(table.nodes) > _MOST_NODES:
        raise fail(where, "There are too many tests", f"at most {_MOST_NODES}", len(table.nodes))
    single = targets == 1 and (aggregate == "add" or _each_once(trees))
    of_votes, weights = np.zeros(0, np.int32), np.zeros(0, dtype.numpy)
    if single:
        leaves, sums = _sums(trees)
        if table.shift and np.isnan(sums).any():  # a leaf must pass its own test
            table = ForestTable(trees, wide, dtype)
        table.hang_weights(leaves, sums)
    else:
        leaves, places, of_votes, weights = _votes(trees, dtype)
        table.hang_places(leaves, places)
    return Forest(
        table.nodes.view(np.int32), table.words, table.shift,
        (trees.roots * table.words).astype(np.int32), of_votes, weights, single, needed,
        table.has_copy, _depth(trees),
    )  # fmt: skip


def may_be_small(nodes: int, trees: int) -> bool:
    """Whether trees may all be small, by the number of their nodes; these are few, too."""
    return nodes <= min(_MOST_SMALL_NODES, _MOST_PER_SMALL_TREE * trees)


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
        place = _first_outside(found, count, inner) if isinstance(found, np.ndarray) else -1
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
    if all(_leads_on(branch, inner) for branch in (trees.true, trees.false)):
        return
    parents = np.zeros(count, np.int32)
    for branch in (trees.true, trees.false):
        for part in blocks(count):
            after = branch[part][inner[part]].astype(np.intp)  # add.at is slow with others
            np.add.at(parents, after[inner[after]], 1)
    if parents.max() <= 1 and not parents[trees.roots].any():
        return  # whoever enters a cycle is its second parent, or starts inside
    left, pending = parents.copy(), np.flatnonzero(inner & (parents == 0)).tolist()
    seen = 0
    true, false, asks = trees.true[:].tolist(), trees.false[:].tolist(), inner.tolist()
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


def _leads_on(branch: Any, inner: Array) -> bool:
    """Whether all tests come before the nodes that a branch leads to."""
    if not isinstance(branch, np.ndarray):
        return bool(branch.leads_on)
    return not (inner & (branch <= np.arange(len(branch)))).any()


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
