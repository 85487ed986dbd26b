"""Nodes of trees as models name them: by tree and number, with a mode."""

from __future__ import annotations

import numpy as np

from sardonyx.ir.constant import Array
from sardonyx.ir.long_list import LongList
from sardonyx.ops.ml.forest_blocks import blocks
from sardonyx.ops.ml.forest_model import MODES, fail


class Positions:
    """Finds nodes by their tree and their number in it.

    Args:
        trees: The tree of each node.
        ids: Its number.
        where: Names the operator in errors.

    Attributes:
        firsts: The first node of each tree, in ascending order.

    Raises:
        InvalidGraph: Two nodes have the same number in one tree.
    """

    def __init__(self, trees: Array, ids: Array, where: str) -> None:
        begins = _begins(trees)
        self._trees, self.firsts = trees[begins].astype(np.int64), begins
        self._counts = np.diff(np.append(begins, len(trees)))
        # As exporters number: trees in ascending order, the nodes of each from 0 on.
        self._are_numbered = bool((self._trees[1:] > self._trees[:-1]).all()) and _count_up(
            ids, begins
        )
        if self._are_numbered:
            return
        trees, ids = trees.astype(np.int64), ids.astype(np.int64)
        self._trees, firsts, tree = np.unique(trees, return_index=True, return_inverse=True)
        self.firsts = np.sort(firsts)
        self._ids, number = np.unique(ids, return_inverse=True)
        keys = tree * len(self._ids) + number
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        twice = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        if twice.size:
            place = self._order[twice[0] + 1]
            raise fail(where, f"The node {ids[place]} of tree {trees[place]} is described twice")

    def find(self, trees: Array, ids: Array) -> Array:
        """Positions of nodes, int32; -1 where there is none."""
        found = np.empty(len(ids), np.int32)
        for block in blocks(len(ids)):
            found[block] = self._find(trees[block], ids[block])
        return found

    def _find(self, trees: Array, ids: Array) -> Array:
        begins = _begins(trees)
        named = trees[begins].astype(np.int64)
        place = np.minimum(np.searchsorted(self._trees, named), len(self._trees) - 1)
        lengths = np.diff(np.append(begins, len(trees)))
        known = self._trees[place] == named
        if self._are_numbered:
            counts = np.where(known, self._counts[place], 0).astype(np.int32)
            firsts = self.firsts[place].astype(np.int32)
            if ids.dtype.itemsize > firsts.itemsize:
                firsts = firsts.astype(ids.dtype)
            positions = np.repeat(firsts, lengths)
            positions += ids
            outside = ids >= np.repeat(counts, lengths)
            outside |= ids < 0
            if outside.any():
                positions[outside] = -1
            return positions
        ids = ids.astype(np.int64)
        number = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        keys = np.repeat(place, lengths) * len(self._ids) + number
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        good = np.repeat(known, lengths) & (self._ids[number] == ids) & (self._keys[at] == keys)
        return np.where(good, self._order[at], -1)


class Following:
    """Positions of the nodes after each node, worked out where they are asked for.

    A model of millions of nodes has its numbers in a byte or two; positions would take four.

    Args:
        place: Where nodes are.
        trees: The tree of each node.
        ids: The numbers of the nodes that follow.
        inner: Which nodes have one.

    Attributes:
        lost: The first node whose follower does not exist; -1 if there is none.
        leads_on: Whether each comes after the node that it follows.
    """

    def __init__(self, place: Positions, trees: Array, ids: Array, inner: Array) -> None:
        self._place, self._trees, self._ids = place, trees, ids
        self.lost, self.leads_on = -1, True
        for block in blocks(len(ids)):
            found, asks = self[block], inner[block]
            here = np.arange(block.start, block.stop, dtype=np.int32)
            if not (asks & (found <= here)).any():
                continue
            self.leads_on = False
            lost = asks & (found < 0)
            if lost.any() and self.lost < 0:
                self.lost = block.start + int(lost.argmax())

    def __getitem__(self, part: slice) -> Array:
        """Positions, int32, of some; -1 where there is no such node."""
        return self._place.find(self._trees[part], self._ids[part])


def _begins(values: Array) -> Array:
    """Where runs of equal values begin."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.concatenate([[0], changes]) if len(values) else changes


def _count_up(values: Array, begins: Array) -> bool:
    """Whether values are 0 at some places, the first one among them, and go up by 1 between."""
    steps = values[1:] == values[:-1] + 1
    steps[begins[1:] - 1] = True
    return not values[begins].any() and bool(steps.all()) and int(values.min()) >= 0


def modes_of(names: LongList[str], where: str) -> Array:
    """Positions in `MODES` of the names of modes."""
    numbers = {name: k for k, name in enumerate(MODES) if name != "BRANCH_MEMBER"}
    known = np.array([numbers.get(str(name), -1) for name in names.table or ()], np.int8)
    if (known < 0).any():
        unknown = (names.table or ())[int(known.argmin())]
        raise fail(where, f"There is no node mode {unknown!r}", ", ".join(numbers))
    return known[names.array]
