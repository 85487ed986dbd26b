"""Small trees as masks: every test that fails strikes out the leaves behind its other answer.

The leaf that a row reaches is the first one that is left (C. Lucchese et al., QuickScorer, 2015).
All tests of a tree are made, in any order and for many rows at once, without any jump; for trees of
up to 32 leaves that is faster than to walk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sardonyx.ir.constant import Array
from sardonyx.ops.forest import Forest

#: Leaves of a tree, each of which has a bit.
LEAVES = 32

#: Beyond so many nodes the trees are not looked at: the numbering of leaves takes time.
_MOST_NODES = 200_000

#: Words of a test: limit, feature, mask.
TEST_WORDS = 3


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


def masks_of(forest: Forest) -> Masks | None:
    """The masks of a forest; None if a tree is too large, or its leaves vote for several targets.

    Leaf number n has bit 31 - n, so that the first one that is left is the highest bit.
    """
    words = forest.words
    table = forest.nodes.reshape(-1, words)
    if words != 4 or not 0 < len(table) <= min(_MOST_NODES, 3 * LEAVES * len(forest.roots)):
        return None
    passed, failed = (table[:, 2] // words).tolist(), (table[:, 3] // words).tolist()
    limits = table[:, 0].tolist()
    features = table[:, 1].tolist()
    starts, tests = [0], list[tuple[int, int, int]]()
    leaves = np.zeros((len(forest.roots), LEAVES), np.float32)
    targets = []
    for number, root in enumerate((forest.roots // words).tolist()):
        found = _tests(root, passed, failed)
        if found is None:
            return None
        order, reached = found
        tests += [(limits[node], features[node], mask) for node, mask in order]
        starts.append(len(tests))
        votes = _leaf_weights(forest, [limits[leaf] for leaf in reached])
        if votes is None:
            return None
        target, weights = votes
        leaves[number, : len(weights)] = weights
        targets.append(target)
    flat = np.array(tests, np.int64).reshape(-1).astype(np.uint32).view(np.int32)
    return Masks(np.array(starts, np.int32), flat, leaves.reshape(-1), np.array(targets, np.int32))


def _tests(
    root: int, passed: list[int], failed: list[int]
) -> tuple[list[tuple[int, int]], list[int]] | None:
    """The tests of a tree with their masks, and its leaves; None if there are too many."""
    reached: list[int] = []
    tests: list[tuple[int, int]] = []
    # Nodes to enter, and tests to complete once the leaves behind their first answer are known.
    pending: list[tuple[int, int]] = [(root, -1)]
    while pending:
        node, first = pending.pop()
        if first >= 0:
            struck = sum(1 << (LEAVES - 1 - leaf) for leaf in range(first, len(reached)))
            tests.append((node, ~struck & 0xFFFFFFFF))
            continue
        if passed[node] == failed[node] == node:
            reached.append(node)
            if len(reached) > LEAVES:
                return None
            continue
        if len(tests) >= LEAVES:
            return None
        pending += [(failed[node], -1), (node, len(reached)), (passed[node], -1)]
    return tests, reached


def _leaf_weights(forest: Forest, words: list[int]) -> tuple[int, Array] | None:
    """What the leaves of a tree weigh, and for which target, if it is one for all of them."""
    places = np.array(words, np.int32)
    if forest.single:
        return 0, places.view(np.float32)
    if (forest.targets[places] != 1).any():
        return None
    targets = forest.targets[places + 1]
    return (int(targets[0]), forest.weights[places + 1]) if (targets == targets[0]).all() else None
