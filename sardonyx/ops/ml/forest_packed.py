"""Nodes of two words, for large forests: half the memory to fill, to keep and to walk through.

That is for trees in which the node after a failed test is the one behind the node after a passed
one, as most exporters number them, and comparisons are `<=` or `<` with finite numbers.
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.constant import Array
from sardonyx.ops.ml.forest_blocks import blocks
from sardonyx.ops.ml.forest_model import LEAF, LT, Trees


def shift_of(width: int) -> int:
    """How many bits of the second word say how far it is to the next node.

    Those above number the column: the first one is for leaves, the rows and their copies follow.
    """
    return 32 - max(1, (2 * width).bit_length())


class Packed:
    """The nodes.

    A node's words are its limit, and column << shift | distance to the next node if the test
    holds; if not, that is one further. A leaf has column 0, where minus infinity stands, and
    distance 0.

    Attributes:
        nodes: Both words of each.
        shift: Bits of the distance.
        has_copy: Whether a test reads the copy without NaN.
        words: Words of a node.
    """

    words = 2

    def __init__(self, nodes: Array, shift: int, *, has_copy: bool) -> None:
        self.nodes, self.shift, self.has_copy = nodes, shift, has_copy

    @classmethod
    def of(cls, trees: Trees, width: int) -> Packed | None:
        """The nodes of trees; None where they do not fit."""
        shift, count = shift_of(width), len(trees.modes)
        if shift < 1:
            return None
        nodes = np.empty(count, np.uint64)
        has_copy = False
        for part in blocks(count):
            inner = trees.modes[part] != LEAF
            tests = _tests(trees, part, width, shift, inner)
            if tests is None:
                return None
            np.multiply(tests, inner, out=nodes[part])
            has_copy |= bool((trees.tracks[part] & inner).any())
        return cls(nodes, shift, has_copy=has_copy)

    def hang_weights(self, leaves: Array, weights: Array) -> None:
        """Give leaves their only votes, none of which is NaN."""
        values = self.nodes.view(np.float32)
        for part in blocks(len(leaves)):
            values[leaves[part] * np.int64(self.words)] = weights[part]

    def hang_places(self, leaves: Array, places: Array) -> None:
        """Tell leaves where their votes begin."""
        self.nodes.view(np.int32)[leaves * np.int64(self.words)] = places


def _tests(trees: Trees, part: slice, width: int, shift: int, inner: Array) -> Array | None:
    """Both words of some nodes, of which those of leaves mean nothing; None if some do not fit."""
    modes = trees.modes[part]
    values = trees.values[part].astype(np.float32)
    if ((modes > LT) & inner).any() or not (np.isfinite(values) | ~inner).all():
        return None
    if (modes == LT).any():
        with np.errstate(all="ignore"):  # the neighbour of the smallest number is -inf
            below = np.nextafter(values, np.float32(-np.inf))
        values = np.where(modes == LT, below, values)
    true = trees.true[part]
    distance = true - np.arange(part.start, part.stop, dtype=np.int32)
    fits = (distance > 0) & (distance < 1 << shift) & (trees.false[part] - true == 1)
    if not (fits | ~inner).all():
        return None
    columns = trees.features[part].astype(np.uint32) + np.uint32(1)
    columns += np.uint32(width) * trees.tracks[part]
    words: Array = (columns << np.uint32(shift) | distance.astype(np.uint32)).astype(np.uint64)
    words <<= np.uint64(32)
    words |= values.view(np.uint32)
    return words
