"""What the leaves of trees say: the lowering that all tree ensembles share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sardonyx.base import integer, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Array, Constant
from sardonyx.ir.long_list import LongList
from sardonyx.ops.forest import Forest, Trees, fail, plant
from sardonyx.ops.forest_masks import masks_of
from sardonyx.ops.generate import constant_tensor
from sardonyx.tensor import language as t
from sardonyx.tensor.tensor import Tensor, make_call

#: How votes are joined; an average is a sum that is divided.
JOIN = {"SUM": "add", "AVERAGE": "add", "MIN": "min", "MAX": "max"}

#: Rows that share a walk over the trees, at least and at most, and into how many parts rows go.
_LEAST_ROWS, _MOST_ROWS, _ROW_PARTS = 16, 512, 64

#: The least number of rows for trees that are masks.
_MASKED_ROWS = 32

#: A part of the trees takes a row about this long, and there are at most so many parts.
_PART_NS, _MOST_PARTS = 15_000, 16


def votes_of(
    x: Tensor,
    describe: Callable[[], Trees],
    targets: int,
    join: str,
    dtype: DType,
    kept: dict[object, Any],
    where: str,
) -> tuple[Tensor, Trees]:
    """What the leaves say for each row and target, joined over the trees: [N, targets].

    Targets without any vote are 0.

    Args:
        x: Rows of features, [N, F].
        describe: Gives the trees.
        targets: How many targets there are.
        join: `add`, `min` or `max`.
        dtype: What is computed in, FLOAT or DOUBLE.
        kept: Stays with the node, so that the table is made once.
        where: Names the operator in errors.
    """
    width = x.shape[1] if isinstance(x.shape[1], int) else None
    key = (width, dtype)
    if key not in kept:
        if "trees" not in kept:
            kept["trees"] = describe()
        forest = plant(kept["trees"], targets, dtype, join, width, where)
        arrays = [forest.nodes, forest.roots, forest.targets, forest.weights]
        masks = masks_of(forest) if join == "add" else None
        if masks is not None:
            arrays += [masks.starts, masks.tests, masks.leaves, masks.targets]
        tables = [constant_tensor(Constant.from_array(array)) for array in arrays]
        kept[key] = forest, masks is not None, tables
    forest, has_masks, constants = kept[key]
    t.assume_at_most(forest.width, x.shape[1], where, "The trees ask for more features than x has")
    rows = x.cast(dtype)
    if forest.has_copy:
        # The table places the copy behind as many features as it was made for.
        rows = rows if width is not None else t.slice_axis(rows, 1, 0, forest.width)
        lowest = t.constant(float("-inf"), dtype)
        rows = t.concat([rows, t.where(t.not_equal(rows, rows), lowest, rows)], 1)
    parts, chunk = _parts(forest, rows.shape[0], _MASKED_ROWS if has_masks else _LEAST_ROWS)
    shape: tuple[Dim, ...] = (rows.shape[0], targets)
    if parts != 1:
        shape = (parts, *shape)
    votes: Tensor
    (votes,) = make_call(
        "forest",
        (rows, *constants),
        ((shape, dtype),),
        words=forest.words,
        single=forest.single,
        join=join,
        depth=forest.depth,
        chunk=chunk,
    )
    if parts != 1:
        votes = t.reduce({"add": "sum"}.get(join, join), votes, 0)
    if join != "add":
        infinite = t.equal(votes, float("inf") if join == "min" else float("-inf"))
        votes = t.where(infinite, t.constant(0.0, dtype), votes)
    return votes, kept["trees"]


def _parts(forest: Forest, rows: Dim, least: int) -> tuple[Dim, Dim]:
    """Into how many parts the trees go, and how many rows walk together, at least `least`.

    Few rows through many trees are worth dividing the trees; else rows are divided alone.
    """
    trees = len(forest.roots)
    most = min(_MOST_PARTS, trees * forest.depth // _PART_NS, trees // 8)
    parts: Dim = 1
    if most > 1:
        groups = integer.maximum(integer.ceildiv(rows, least), 1)
        parts = integer.maximum(integer.floordiv(most, groups), 1)
    share = sizes.multiply(integer.ceildiv(integer.ceildiv(rows, _ROW_PARTS), least), least)
    return parts, integer.minimum(integer.maximum(share, least), _MOST_ROWS)


def integers(values: LongList[int], count: int, name: str, where: str) -> Array:
    """An attribute of so many integers, of any width that holds them.

    Raises:
        InvalidGraph: There are more or fewer.
    """
    if len(values) != count:
        raise fail(where, f"The attribute {name} has the wrong length", count, len(values))
    return values.array
