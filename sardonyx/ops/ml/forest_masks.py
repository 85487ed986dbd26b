"""Small trees as masks: every test that fails strikes out the leaves behind its other answer.

The leaf that a row reaches is the first one that is left (C. Lucchese et al., QuickScorer, 2015).
All tests of a tree are made, in any order and for many rows at once, without any jump; for trees of
up to 32 leaves that is faster than to walk.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from sardonyx.base.records import dataclass
from sardonyx.ir.constant import Array
from sardonyx.ops.ml.forest import Forest, may_be_small

#: Leaves of a tree, each of which has a bit.
LEAVES = 32

#: Words of a test: limit, feature, mask.
TEST_WORDS = 3


@dataclass(slots=True)
class SmallTree:
    """A tree of at most `LEAVES` leaves, and tests that are numbered from the root.

    Attributes:
        tests: The node of each test.
        masks: Which leaves stay where a test fails. Leaf number n has bit 31 - n, so that the
            first one that is left is the highest bit.
        ways: For each test what follows if it holds, and if not: a test, or ~number of a leaf.
        leaves: The node of each leaf.
        depth: The most tests that lead to a leaf.
        target: Which target it votes for.
        weights: The vote of each leaf.
    """

    tests: list[int] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)
    ways: list[list[int]] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)
    depth: int = 0
    target: int = 0
    weights: Array = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass(slots=True)
class Masks:
    """The trees of a forest as masks.

    Attributes:
        starts: int32: where the tests of each tree begin, and where those of the last one end.
        tests: int32, three for each test: limit, feature, which leaves stay if it fails.
        leaves: The weight of each leaf, `LEAVES` for each tree.
        targets: int32: which target each tree votes for.
    """

    starts: Array
    tests: Array
    leaves: Array
    targets: Array


def small_trees(forest: Forest) -> tuple[list[SmallTree], Array] | None:
    """The trees in another order, and which ones of the forest they are.

    Trees for one target come together, the deepest first: what walks them in step waits for few.
    None if a tree is too large, or its leaves vote for several targets.
    """
    words = forest.words
    table = forest.nodes.reshape(-1, words)
    if words != 4 or not may_be_small(len(table), len(forest.roots)):
        return None
    passed, failed = (table[:, 2] // words).tolist(), (table[:, 3] // words).tolist()
    trees = []
    for root in (forest.roots // words).tolist():
        tree = _unfolded(root, passed, failed)
        if tree is None or not _set_votes(tree, forest, table[tree.leaves, 0]):
            return None
        trees.append(tree)
    order = sorted(range(len(trees)), key=lambda k: (trees[k].target, -trees[k].depth))
    return [trees[k] for k in order], np.array(order, np.int64)


def masks_of(forest: Forest, trees: list[SmallTree]) -> Masks:
    """The masks of small trees."""
    table = forest.nodes.reshape(-1, forest.words)
    nodes = [node for tree in trees for node in tree.tests]
    tests = np.zeros((len(nodes), TEST_WORDS), np.int32)
    tests[:, :2] = table[nodes, :2]
    masks = np.array([mask for tree in trees for mask in tree.masks], np.uint32)
    tests[:, 2] = masks.view(np.int32)
    leaves = np.zeros((len(trees), LEAVES), np.float32)
    for number, tree in enumerate(trees):
        leaves[number, : len(tree.weights)] = tree.weights
    starts = np.cumsum([0, *(len(tree.tests) for tree in trees)])
    targets = np.array([tree.target for tree in trees], np.int32)
    return Masks(starts.astype(np.int32), tests.reshape(-1), leaves.reshape(-1), targets)


def _unfolded(root: int, passed: list[int], failed: list[int]) -> SmallTree | None:
    """A tree in which no two tests lead to one node; None if it has too many leaves."""
    tree = SmallTree()
    firsts: list[int] = []
    # Nodes to enter, the tests that lead to them and by which answer, and how many came before.
    pending = [(root, -1, 0, 0)]
    while pending:
        node, test, answer, depth = pending.pop()
        if answer:  # all leaves behind the other answer have their numbers
            struck = (1 << (LEAVES - firsts[test])) - (1 << (LEAVES - len(tree.leaves)))
            tree.masks[test] = ~struck & 0xFFFFFFFF
        if passed[node] == failed[node] == node:
            found = ~len(tree.leaves)
            tree.leaves.append(node)
            tree.depth = max(tree.depth, depth)
        else:
            found = len(tree.tests)
            tree.tests.append(node)
            tree.masks.append(0)
            tree.ways.append([0, 0])
            firsts.append(len(tree.leaves))
            pending += [(failed[node], found, 1, depth + 1), (passed[node], found, 0, depth + 1)]
        if len(tree.leaves) > LEAVES or len(tree.tests) >= LEAVES:
            return None
        if test >= 0:
            tree.ways[test][answer] = found
    return tree


def _set_votes(tree: SmallTree, forest: Forest, words: Array) -> bool:
    """Set what the leaves weigh, and for which target; gives whether it is one for all of them."""
    if forest.single:
        tree.weights = np.ascontiguousarray(words).view(np.float32)
        return True
    if (forest.targets[words] != 1).any():
        return False
    targets = forest.targets[words + 1]
    tree.target, tree.weights = int(targets[0]), forest.weights[words + 1]
    return bool((targets == targets[0]).all())
