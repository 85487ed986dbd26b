"""Nodes of trees as models name them: by tree and number, with a mode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.ir.constant import Array
from sardonyx.ops.forest import MODES, fail


class Positions:
    """Finds nodes by their tree and their number in it.

    Args:
        trees: The tree of each node.
        ids: Its number.
        where: Names the operator in errors.

    Raises:
        InvalidGraph: Two nodes have the same number in one tree.
    """

    def __init__(self, trees: Array, ids: Array, where: str) -> None:
        begins = np.flatnonzero(np.append(True, trees[1:] != trees[:-1]))
        counts = np.diff(np.append(begins, len(trees)))
        self._trees, tree = trees[begins], np.repeat(np.arange(len(begins)), counts)
        numbered = ids - (np.arange(len(ids)) - begins[tree])
        self._begins, self._counts = begins, counts
        self._are_numbered = not numbered.any() and bool((self._trees[1:] > self._trees[:-1]).all())
        if self._are_numbered:
            return
        self._trees, tree = np.unique(trees, return_inverse=True)
        self._ids, number = np.unique(ids, return_inverse=True)
        keys = tree * len(self._ids) + number
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        twice = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        if twice.size:
            place = self._order[twice[0] + 1]
            raise fail(where, f"The node {ids[place]} of tree {trees[place]} is described twice")

    def find(self, trees: Array, ids: Array) -> Array:
        """Positions of nodes; -1 where there is none."""
        tree = np.minimum(np.searchsorted(self._trees, trees), len(self._trees) - 1)
        known = self._trees[tree] == trees
        if self._are_numbered:
            known &= (ids >= 0) & (ids < self._counts[tree])
            return np.where(known, self._begins[tree] + ids, -1)
        number = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        keys = tree * len(self._ids) + number
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known &= (self._ids[number] == ids) & (self._keys[at] == keys)
        return np.where(known, self._order[at], -1)


def modes_of(names: Sequence[str], where: str) -> Array:
    """Positions in `MODES` of the names of modes."""
    numbers = {name: k for k, name in enumerate(MODES) if name != "BRANCH_MEMBER"}
    found = np.fromiter((numbers.get(n, -1) for n in names), np.int8, len(names))
    unknown = np.flatnonzero(found < 0)
    if unknown.size:
        raise fail(where, f"There is no node mode {names[unknown[0]]!r}", ", ".join(numbers))
    return found
