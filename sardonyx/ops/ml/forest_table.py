"""Nodes of four words, or six with limits in double: for trees of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base.dtypes import DOUBLE, DType
from sardonyx.ir.constant import Array
from sardonyx.ops.ml.forest_blocks import blocks
from sardonyx.ops.ml.forest_model import EQ, GT, GTE, LEAF, LEQ, LT, MEMBER, NEQ, Trees


class ForestTable:
    """The nodes as tests: the first ones stand for the model's nodes, others follow them.

    Attributes:
        nodes: For each the number that it compares with, the column that it reads, and the next
            node, by its first word, where the test holds and where it does not.
        has_copy: Whether a test reads the copy without NaN.
        words: Words of a node.
        shift: 0: see `forest_packed.Packed`.
    """

    shift = 0

    def __init__(self, trees: Trees, width: int, dtype: DType) -> None:
        self._kind = kind = dtype.numpy
        self.words = 6 if dtype is DOUBLE else 4
        form = {
            "names": ["value", "feature", "true", "false"],
            "formats": [kind, np.int32, np.int32, np.int32],
            "itemsize": 4 * self.words,
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
        self.nodes.view(np.int32)[leaves * self.words] = places

    def _take(self, trees: Trees, part: slice, width: int) -> Array:
        """Set the tests of some nodes; gives the positions of those that take more than a test."""
        modes, true, false = trees.modes[part], trees.true[part], trees.false[part]
        inner = modes != LEAF
        values = trees.values[part].astype(self._kind, copy=False)
        plain = (modes <= GT) & np.isfinite(values)
        copied = plain & trees.tracks[part]
        if ((modes != LEQ) & inner).any():
            less = (modes == LT) | (modes == GTE)
            with np.errstate(all="ignore"):
                values = np.where(less, np.nextafter(values, self._kind.type(-np.inf)), values)
            swapped = (modes == GT) | (modes == GTE)
            true, false = np.where(swapped, false, true), np.where(swapped, true, false)
            # NaN must go where `tracks` says; on its own it goes where the test fails.
            copied = plain & (trees.tracks[part] != swapped)
        nodes, here = self.nodes[part], np.arange(part.start, part.stop, dtype=np.int32)
        features = trees.features[part]
        if copied.any():
            self.has_copy = True
            features = features + width * copied
        np.copyto(nodes["value"], values, where=inner)
        np.copyto(nodes["feature"], features, where=inner, casting="same_kind")
        for name, found in (("true", true), ("false", false)):
            after = np.where(inner, found, here)
            np.multiply(after, self.words, out=nodes[name], casting="same_kind")
        special: Array = np.flatnonzero(inner & ~plain) + part.start
        return special

    def _add_special(self, trees: Trees, special: list[int]) -> None:
        sets = iter(trees.members)
        count = len(self.nodes)
        for node in special:
            mode, value = int(trees.modes[node]), self._kind.type(trees.values[node])
            members = next(sets) if mode == MEMBER else None
            cuts, outcomes = self._intervals(mode, value, members)
            ends = tuple(int(x[node : node + 1][0]) for x in (trees.false, trees.true))
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
        return value, feature, true * self.words, false * self.words

    def _intervals(
        self, mode: int, value: Any, members: Array | None
    ) -> tuple[list[Any], list[bool]]:
        """Cuts in ascending order and the answer in each interval, for all numbers but NaN."""
        smallest = self._kind.type(-np.inf)
        if mode in (EQ, NEQ, MEMBER):
            wanted = np.array([value], self._kind) if members is None else members
            wanted = np.unique(wanted[~np.isnan(wanted)].astype(self._kind))
            inside = mode != NEQ
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
        upward = mode in (GT, GTE)
        if mode in (LT, GTE):
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
