"""Small trees as chains: all tests of all trees are made first, which leaves one successor each.

Tests that read one feature lie side by side, and so are comparisons of vectors with one number.
What follows a test is written where the test has its place, so a walk is a load for each node on
its way: no feature, no limit, no choice. That is for a row on its own, or for few.
"""

from __future__ import annotations

import numpy as np

from sardonyx.base.records import dataclass
from sardonyx.ir.constant import Array
from sardonyx.ops.ml.forest import Forest
from sardonyx.ops.ml.forest_masks import SmallTree

#: Tests of one feature that are made together, and trees for one target that are walked in step.
LANES, STEP = 16, 12

#: Places are uint16.
_MOST_PLACES = 1 << 16


@dataclass(slots=True)
class Chains:
    """The trees of a forest as chains.

    Places 0, 1, ... are those of tests, `LANES` in a row; those of leaves come after.

    Attributes:
        limits: float32: what each test compares with.
        features: int32: the feature of each row of tests.
        ways: uint16: for each row of tests the places that follow if they hold, then if not.
        groups: int32, for `STEP` trees each: the most tests on a way, the target, roots' places.
        weights: float32: the vote of each leaf. The first one, 0, is that of missing trees.
    """

    limits: Array
    features: Array
    ways: Array
    groups: Array
    weights: Array


def chains_of(forest: Forest, trees: list[SmallTree]) -> Chains | None:
    """The chains of trees that `small_trees` gives; None if there are too many tests."""
    table = forest.nodes.reshape(-1, forest.words)
    nodes = np.array([node for tree in trees for node in tree.tests], np.int64)
    asked = table[nodes, 1]
    order = np.argsort(asked, kind="stable")
    features, counts = np.unique(asked, return_counts=True)
    rows = -(-counts // LANES)
    rows[-1:] += int(rows.sum()) % 2  # leaves begin at a whole vector of places
    total = int(rows.sum()) * LANES
    leaves = 1 + sum(len(tree.leaves) for tree in trees)
    if total + leaves > _MOST_PLACES:
        return None
    # The places of a feature's tests begin with its first row.
    shift = LANES * (np.cumsum(rows) - rows) - (np.cumsum(counts) - counts)
    places = np.empty(len(nodes), np.int64)
    places[order] = np.arange(len(nodes)) + np.repeat(shift, counts)
    limits = np.zeros(total, np.float32)
    limits[places] = table[nodes, 0].view(np.float32)
    ways = np.zeros((total, 2), np.uint16)
    roots, tests, leaf = [], 0, total + 1
    for tree in trees:
        after = np.array(tree.ways, np.int64).reshape(-1, 2)
        mine = places[tests : tests + len(after)]
        is_leaf = after < 0
        ways[mine] = np.where(is_leaf, leaf + ~after, mine[np.where(is_leaf, 0, after)])
        roots.append(int(mine[0]) if len(mine) else leaf)
        tests += len(after)
        leaf += len(tree.leaves)
    weights = np.concatenate([np.zeros(1, np.float32), *(tree.weights for tree in trees)])
    by_answer = ways.reshape(-1, LANES, 2).transpose(0, 2, 1)
    return Chains(
        limits, np.repeat(features, rows).astype(np.int32),
        np.ascontiguousarray(by_answer).reshape(-1), _groups(trees, roots, total), weights,
    )  # fmt: skip


def _groups(trees: list[SmallTree], roots: list[int], nothing: int) -> Array:
    """Trees of one target in groups, the last of which are filled up with what votes for none."""
    groups: list[list[int]] = []
    for tree, root in zip(trees, roots, strict=True):
        if not groups or groups[-1][1] != tree.target or len(groups[-1]) == 2 + STEP:
            groups.append([tree.depth, tree.target])
        groups[-1][0] = max(groups[-1][0], tree.depth)
        groups[-1].append(root)
    full = [group + [nothing] * (2 + STEP - len(group)) for group in groups]
    return np.array(full, np.int32).reshape(-1)
