"""What the leaves of trees say: the lowering that all tree ensembles share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sardonyx.base import integer
from sardonyx.base.dtypes import DType
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Array, Constant
from sardonyx.ir.long_list import LongList
from sardonyx.ops.generation.generate import constant_tensor
from sardonyx.ops.ml.forest import Forest, plant
from sardonyx.ops.ml.forest_chains import chains_of
from sardonyx.ops.ml.forest_masks import masks_of, small_trees
from sardonyx.ops.ml.forest_model import Trees, fail
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
        tables = _tables(forest, join)
        constants = [
            constant_tensor(Constant.from_array(array))
            for arrays in tables.values()
            for array in arrays
        ]
        kept[key] = forest, tuple(tables), constants
    forest, forms, constants = kept[key]
    t.assume_at_most(forest.width, x.shape[1], where, "The trees ask for more features than x has")
    rows = _columns_for(forest, x.cast(dtype), is_known=width is not None)
    parts, chunk = _parts(forest, rows.shape[0], _MASKED_ROWS if "masks" in forms else _LEAST_ROWS)
    shape: tuple[Dim, ...] = (rows.shape[0], targets)
    if parts != 1:
        shape = (parts, *shape)
    votes: Tensor
    (votes,) = make_call(
        "forest",
        (rows, *constants),
        ((shape, dtype),),
        words=forest.words,
        shift=forest.shift,
        single=forest.single,
        join=join,
        trees=len(forest.roots),
        depth=forest.depth,
        chunk=chunk,
        forms=forms,
    )
    if parts != 1:
        votes = t.reduce({"add": "sum"}.get(join, join), votes, 0)
    if join != "add":
        infinite = t.equal(votes, float("inf") if join == "min" else float("-inf"))
        votes = t.where(infinite, t.constant(0.0, dtype), votes)
    return votes, kept["trees"]


def _columns_for(forest: Forest, rows: Tensor, *, is_known: bool) -> Tensor:
    """The columns that nodes name; `is_known` says whether rows are as wide as nodes think."""
    lowest, before = t.constant(float("-inf"), rows.dtype), list[Tensor]()
    if forest.shift:
        before = [t.constant(float("-inf"), rows.dtype, (rows.shape[0], 1))]
    if not forest.has_copy:
        return t.concat([*before, rows], 1) if before else rows
    # The table places the copy behind as many features as it was made for.
    rows = rows if is_known else t.slice_axis(rows, 1, 0, forest.width)
    return t.concat([*before, rows, t.where(t.not_equal(rows, rows), lowest, rows)], 1)


def _tables(forest: Forest, join: str) -> dict[str, tuple[Array, ...]]:
    """The forms that the trees take, and their tables.

    Small trees are masks for groups of rows and chains for the rows that are left. Others are
    walked, and so are the rows that are left where there are too many tests for chains.
    """
    roots, found = forest.roots, dict[str, tuple[Array, ...]]()
    small = small_trees(forest) if join == "add" else None
    if small is not None:
        trees, order = small
        masks = masks_of(forest, trees)
        found["masks"] = masks.starts, masks.tests, masks.leaves, masks.targets
        chains = chains_of(forest, trees) if _most_parts(forest) <= 1 else None
        if chains is not None:
            return found | {
                "chains": (
                    chains.limits, chains.features, chains.ways, chains.groups, chains.weights,
                )
            }  # fmt: skip
        roots = roots[order]  # one order of votes for all rows
    return {"walk": (forest.nodes, roots, forest.targets, forest.weights), **found}


def _most_parts(forest: Forest) -> int:
    trees = len(forest.roots)
    return min(_MOST_PARTS, trees * forest.depth // _PART_NS, trees // 8)


def _parts(forest: Forest, rows: Dim, least: int) -> tuple[Dim, Dim]:
    """Into how many parts the trees go, and how many rows walk together, at least `least`.

    Few rows through many trees are worth dividing the trees; else rows are divided alone.
    """
    most = _most_parts(forest)
    parts: Dim = 1
    if most > 1:
        groups = integer.maximum(integer.ceildiv(rows, least), 1)
        parts = integer.maximum(integer.floordiv(most, groups), 1)
    share = integer.ceildiv(integer.ceildiv(rows, _ROW_PARTS), least) * least
    return parts, integer.minimum(integer.maximum(share, least), _MOST_ROWS)


def integers(values: LongList[int], count: int, name: str, where: str) -> Array:
    """An attribute of so many integers, of any width that holds them.

    Raises:
        InvalidGraph: There are more or fewer.
    """
    if len(values) != count:
        raise fail(where, f"The attribute {name} has the wrong length", count, len(values))
    return values.array
