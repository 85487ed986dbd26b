"""TreeEnsemble (ai.onnx.ml, version 5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base.dtypes import DOUBLE, FLOAT
from sardonyx.ir.constant import Array, Constant
from sardonyx.ir.long_list import NO_INTEGERS, LongList
from sardonyx.ops.core.registry import op
from sardonyx.ops.ml.common import ML, TRANSFORMS, transformed
from sardonyx.ops.ml.forest_model import LEAF, MODES, Trees, fail
from sardonyx.ops.ml.tree_votes import JOIN, integers, votes_of
from sardonyx.tensor.tensor import Tensor


@op("TreeEnsemble", 5, domain=ML)
def tree_ensemble(
    x: Tensor,
    *,
    aggregate_function: int = 1,
    leaf_targetids: LongList[int],
    leaf_weights: Constant,
    membership_values: Constant | None = None,
    n_targets: int = 1,
    nodes_falseleafs: LongList[int],
    nodes_falsenodeids: LongList[int],
    nodes_featureids: LongList[int],
    nodes_hitrates: Constant | None = None,
    nodes_missing_value_tracks_true: LongList[int] = NO_INTEGERS,
    nodes_modes: Constant,
    nodes_splits: Constant,
    nodes_trueleafs: LongList[int],
    nodes_truenodeids: LongList[int],
    post_transform: int = 0,
    tree_roots: LongList[int],
    kept: dict[object, Any],
) -> Tensor:
    """As TreeEnsembleRegressor; leaves are apart from nodes, which may test membership in sets."""
    where = "TreeEnsemble"
    if not 0 <= post_transform < len(TRANSFORMS):
        raise fail(where, "There is no such post_transform", "0 to 4", post_transform)
    functions = ("AVERAGE", "SUM", "MIN", "MAX")
    if not 0 <= aggregate_function < len(functions):
        raise fail(where, "There is no such aggregate_function", "0 to 3", aggregate_function)
    if n_targets < 1:
        raise fail(where, "n_targets is too small", "at least 1", n_targets)
    if not x.dtype.is_float or x.rank != 2:
        raise fail(where, "The input must be a matrix of floats", got=f"{x.dtype}{list(x.shape)}")

    def describe() -> Trees:
        count, leaves = len(nodes_featureids), len(leaf_targetids)
        modes, splits = nodes_modes.array().reshape(-1), nodes_splits.array().reshape(-1)
        weights = leaf_weights.array().reshape(-1)
        for name, length, wanted in (
            ("nodes_modes", len(modes), count), ("nodes_splits", len(splits), count),
            ("leaf_weights", len(weights), leaves),
        ):  # fmt: skip
            if length != wanted:
                raise fail(where, f"The attribute {name} has the wrong length", wanted, length)
        if modes.dtype.kind != "u" or (modes >= MODES.index("LEAF")).any():
            raise fail(where, "The attribute nodes_modes has a wrong element", "uint8, 0 to 6")
        branches = []
        for name, ids, flags in (
            ("true", nodes_truenodeids, nodes_trueleafs),
            ("false", nodes_falsenodeids, nodes_falseleafs),
        ):
            to = integers(ids, count, f"nodes_{name}nodeids", where).astype(np.int64)
            ends = integers(flags, count, f"nodes_{name}leafs", where) != 0
            limit = np.where(ends, leaves, count)
            lost = np.flatnonzero((to < 0) | (to >= limit))
            if lost.size:
                what = f"The {name} branch of node {lost[0]} leads nowhere"
                raise fail(where, what, f"0 to {limit[lost[0]] - 1}", to[lost[0]])
            branches.append(np.where(ends, to + count, to))
        none, tracks = np.zeros(leaves, np.int64), nodes_missing_value_tracks_true
        missing = np.zeros(count, np.bool_)
        if len(tracks):
            missing = integers(tracks, count, "nodes_missing_value_tracks_true", where) != 0
        features = integers(nodes_featureids, count, "nodes_featureids", where)
        return Trees(
            np.concatenate([modes.astype(np.int8), none.astype(np.int8) + np.int8(LEAF)]),
            np.concatenate([splits, none.astype(splits.dtype)]),
            np.concatenate([features, none]),
            np.concatenate([missing, none != 0]),
            np.concatenate([branches[0], none]),
            np.concatenate([branches[1], none]),
            _roots(tree_roots, count, where),
            (np.arange(leaves) + count, leaf_targetids.array.astype(np.int64), weights),
            _members(modes, membership_values, where),
        )

    dtype = DOUBLE if x.dtype is DOUBLE or nodes_splits.dtype is DOUBLE else FLOAT
    function = functions[aggregate_function]
    scores, trees = votes_of(x, describe, n_targets, JOIN[function], dtype, kept, where)
    if function == "AVERAGE":
        scores = scores / float(len(trees.roots))
    return transformed(scores, TRANSFORMS[post_transform]).cast(x.dtype)


def _roots(given: LongList[int], count: int, where: str) -> Array:
    roots = given.array.astype(np.int64)
    bad = np.flatnonzero((roots < 0) | (roots >= count))
    if bad.size:
        what = f"The root of tree number {bad[0]} does not exist"
        raise fail(where, what, f"0 to {count - 1}", roots[bad[0]])
    return roots


def _members(modes: Array, values: Constant | None, where: str) -> list[Array]:
    """The sets that nodes test, which NaN separates."""
    wanted = int((modes == MODES.index("BRANCH_MEMBER")).sum())
    found: list[Array] = []
    if values is not None:
        flat = values.array().reshape(-1)
        ends = np.flatnonzero(np.isnan(flat))
        starts = np.concatenate([[0], ends[:-1] + 1]) if ends.size else ends
        found = [flat[a:b] for a, b in zip(starts, ends, strict=True)]
    if len(found) != wanted:
        what = "membership_values must hold a set for each node of mode BRANCH_MEMBER"
        raise fail(where, what, f"{wanted} sets that end with NaN", len(found))
    return found
