"""TreeEnsembleClassifier and TreeEnsembleRegressor (ai.onnx.ml, versions 1 and 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.base.dtypes import DOUBLE, FLOAT, INT64, STRING, DType
from sardonyx.ir.constant import Array, Constant
from sardonyx.ir.long_list import NO_FLOATS, NO_INTEGERS, NO_TEXTS, LongList
from sardonyx.ops.core.registry import op
from sardonyx.ops.ml.common import (
    ML,
    check_transform,
    column,
    columns,
    labels_of,
    matrix_of,
    numbers,
    pick_labels,
    transformed,
)
from sardonyx.ops.ml.forest_blocks import first_of
from sardonyx.ops.ml.forest_model import LEAF, Trees, fail
from sardonyx.ops.ml.forest_nodes import Following, Positions, modes_of
from sardonyx.ops.ml.linear import top_class, two_classes
from sardonyx.ops.ml.tree_votes import JOIN, integers, votes_of
from sardonyx.tensor import language as t
from sardonyx.tensor.tensor import Tensor


def _either(
    floats: Sequence[float] | LongList[float], tensor: Constant | None, name: str, where: str
) -> Array:
    """Numbers that are given as floats or as a tensor."""
    if tensor is None:
        given = floats.array if isinstance(floats, LongList) else floats
        return np.asarray(given, np.float32)
    if len(floats):
        raise fail(where, f"Both {name} and {name}_as_tensor are given", "one of them")
    if not tensor.dtype.is_float:
        raise fail(where, f"{name}_as_tensor must hold floats", "float or double", tensor.dtype)
    return tensor.array().reshape(-1)


def _trees(
    where: str,
    nodes: dict[str, Any],
    values: Array,
    votes: tuple[LongList[int], LongList[int], LongList[int]],
    weights: Array,
    prefix: str,
) -> Trees:
    """The trees of TreeEnsembleClassifier and TreeEnsembleRegressor.

    Args:
        where: Names the operator in errors.
        nodes: The attributes `nodes_*` without that prefix.
        values: What nodes compare with.
        votes: Trees, nodes and targets of the votes.
        weights: Weights of the votes.
        prefix: How the names of the attributes of votes begin.
    """
    count = len(nodes["treeids"])
    modes = modes_of(nodes["modes"], where)

    def given(name: str) -> Array:
        return integers(nodes[name], count, f"nodes_{name}", where)

    tree, number, features = given("treeids"), given("nodeids"), given("featureids")
    if len(modes) != count:
        raise fail(where, "The attribute nodes_modes has the wrong length", count, len(modes))
    if len(values) != count:
        raise fail(where, "The attribute nodes_values has the wrong length", count, len(values))
    tracks = nodes["missing_value_tracks_true"]
    missing = given("missing_value_tracks_true") if len(tracks) else np.zeros(count, np.int8)
    if not count:
        raise fail(where, "There are no nodes")
    place = Positions(tree, number, where)
    inner = modes != LEAF
    branches = []
    for name in ("truenodeids", "falsenodeids"):
        wanted = given(name)
        found = Following(place, tree, wanted, inner)
        if found.lost >= 0:
            k = found.lost
            what = f"The node {number[k]} of tree {tree[k]} leads to a node that does not exist"
            raise fail(where, what, f"a node of tree {tree[k]} in nodes_{name}", wanted[k])
        branches.append(found)
    names = [f"{prefix}_{name}" for name in ("treeids", "nodeids", "ids")]
    of_tree, of_node, target = (
        integers(v, len(weights), n, where) for v, n in zip(votes, names, strict=True)
    )
    leaf = place.find(of_tree, of_node)
    k = first_of(len(leaf), lambda part: (leaf[part] < 0) | (modes[leaf[part]] != LEAF))
    if k >= 0:
        what = f"Vote number {k} is not that of a leaf"
        raise fail(where, what, "a leaf", f"node {of_node[k]} of tree {of_tree[k]}")
    return Trees(
        modes, values, features, missing != 0, branches[0], branches[1], place.firsts,
        (leaf, target, weights),
    )  # fmt: skip


def _base(values: Array, dtype: DType) -> Tensor:
    return numbers(values, dtype)


def _compare_type(x: Tensor, *tensors: Constant | None) -> DType:
    """What is computed in: double if features or numbers of the trees are double, else float."""
    wide = x.dtype is DOUBLE or any(c is not None and c.dtype is DOUBLE for c in tensors)
    return DOUBLE if wide else FLOAT


#: Attributes that both have as tensors, too, from version 3 on.
_TENSORS = ("base_values_as_tensor", "nodes_hitrates_as_tensor", "nodes_values_as_tensor")


@op(
    "TreeEnsembleRegressor", 1, 3, 5, domain=ML,
    added=dict.fromkeys((*_TENSORS, "target_weights_as_tensor"), 3),
)  # fmt: skip
def tree_ensemble_regressor(
    x: Tensor,
    *,
    aggregate_function: str = "SUM",
    base_values: Sequence[float] = (),
    base_values_as_tensor: Constant | None = None,
    n_targets: int = 1,
    nodes_falsenodeids: LongList[int] = NO_INTEGERS,
    nodes_featureids: LongList[int] = NO_INTEGERS,
    nodes_hitrates: LongList[float] = NO_FLOATS,
    nodes_hitrates_as_tensor: Constant | None = None,
    nodes_missing_value_tracks_true: LongList[int] = NO_INTEGERS,
    nodes_modes: LongList[str] = NO_TEXTS,
    nodes_nodeids: LongList[int] = NO_INTEGERS,
    nodes_treeids: LongList[int] = NO_INTEGERS,
    nodes_truenodeids: LongList[int] = NO_INTEGERS,
    nodes_values: LongList[float] = NO_FLOATS,
    nodes_values_as_tensor: Constant | None = None,
    post_transform: str = "NONE",
    target_ids: LongList[int] = NO_INTEGERS,
    target_nodeids: LongList[int] = NO_INTEGERS,
    target_treeids: LongList[int] = NO_INTEGERS,
    target_weights: LongList[float] = NO_FLOATS,
    target_weights_as_tensor: Constant | None = None,
    kept: dict[object, Any],
) -> Tensor:
    """The sum, mean, minimum or maximum of what the leaves of all trees say, for each target."""
    where = "TreeEnsembleRegressor"
    check_transform(post_transform, where)
    rows = matrix_of(x, where)
    if aggregate_function not in JOIN:
        raise fail(where, "There is no such aggregate_function", ", ".join(JOIN),
                   aggregate_function)  # fmt: skip
    if n_targets < 1:
        raise fail(where, "n_targets is too small", "at least 1", n_targets)
    base = _either(base_values, base_values_as_tensor, "base_values", where)
    if len(base) not in (0, 1, n_targets):
        raise fail(where, "base_values must have a number for each target", n_targets, len(base))

    def describe() -> Trees:
        nodes = {
            "falsenodeids": nodes_falsenodeids, "featureids": nodes_featureids,
            "missing_value_tracks_true": nodes_missing_value_tracks_true, "modes": nodes_modes,
            "nodeids": nodes_nodeids, "treeids": nodes_treeids, "truenodeids": nodes_truenodeids,
        }  # fmt: skip
        values = _either(nodes_values, nodes_values_as_tensor, "nodes_values", where)
        weights = _either(target_weights, target_weights_as_tensor, "target_weights", where)
        votes = (target_treeids, target_nodeids, target_ids)
        return _trees(where, nodes, values, votes, weights, "target")

    dtype = _compare_type(x, nodes_values_as_tensor, target_weights_as_tensor)
    join = JOIN[aggregate_function]
    scores, trees = votes_of(rows, describe, n_targets, join, dtype, kept, where)
    if aggregate_function == "AVERAGE":
        scores = scores / float(len(trees.roots))
    if len(base):
        scores = scores + _base(base, dtype)
    return transformed(scores, post_transform).cast(FLOAT)


@op(
    "TreeEnsembleClassifier", 1, 3, 5, domain=ML,
    added=dict.fromkeys((*_TENSORS, "class_weights_as_tensor"), 3),
)  # fmt: skip
def tree_ensemble_classifier(
    x: Tensor,
    *,
    base_values: Sequence[float] = (),
    base_values_as_tensor: Constant | None = None,
    class_ids: LongList[int] = NO_INTEGERS,
    class_nodeids: LongList[int] = NO_INTEGERS,
    class_treeids: LongList[int] = NO_INTEGERS,
    class_weights: LongList[float] = NO_FLOATS,
    class_weights_as_tensor: Constant | None = None,
    classlabels_int64s: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    nodes_falsenodeids: LongList[int] = NO_INTEGERS,
    nodes_featureids: LongList[int] = NO_INTEGERS,
    nodes_hitrates: LongList[float] = NO_FLOATS,
    nodes_hitrates_as_tensor: Constant | None = None,
    nodes_missing_value_tracks_true: LongList[int] = NO_INTEGERS,
    nodes_modes: LongList[str] = NO_TEXTS,
    nodes_nodeids: LongList[int] = NO_INTEGERS,
    nodes_treeids: LongList[int] = NO_INTEGERS,
    nodes_truenodeids: LongList[int] = NO_INTEGERS,
    nodes_values: LongList[float] = NO_FLOATS,
    nodes_values_as_tensor: Constant | None = None,
    post_transform: str = "NONE",
    kept: dict[object, Any],
) -> tuple[Tensor, Tensor]:
    """The class with the largest sum of votes, and the transformed sums.

    Two labels of which only one gets votes share one score s: see `_one_sided`.
    """
    where = "TreeEnsembleClassifier"
    check_transform(post_transform, where)
    rows = matrix_of(x, where)
    count, labels = labels_of(classlabels_int64s, classlabels_strings, where)
    base = _either(base_values, base_values_as_tensor, "base_values", where)
    if len(base) not in (0, 1, count):
        raise fail(where, "base_values must have a number for each class", count, len(base))
    weights = _either(class_weights, class_weights_as_tensor, "class_weights", where)
    voted = set(np.unique(class_ids.array).tolist())
    # The only class that gets votes is the only target.
    alone = count <= 2 and len(voted) == 1 and voted <= set(range(count))

    def describe() -> Trees:
        nodes = {
            "falsenodeids": nodes_falsenodeids, "featureids": nodes_featureids,
            "missing_value_tracks_true": nodes_missing_value_tracks_true, "modes": nodes_modes,
            "nodeids": nodes_nodeids, "treeids": nodes_treeids, "truenodeids": nodes_truenodeids,
        }  # fmt: skip
        values = _either(nodes_values, nodes_values_as_tensor, "nodes_values", where)
        zeros = LongList[int](np.zeros(len(class_ids), np.int8))
        targets = zeros if alone else class_ids
        votes = (class_treeids, class_nodeids, targets)
        return _trees(where, nodes, values, votes, weights, "class")

    dtype = _compare_type(x, nodes_values_as_tensor, class_weights_as_tensor)
    targets = 1 if alone else count
    scores, _ = votes_of(rows, describe, targets, "add", dtype, kept, where)
    if count == 1:
        if len(base):
            scores = scores + _base(base, dtype)
        outputs = transformed(scores, post_transform if post_transform == "PROBIT" else "NONE")
        return _single_label(labels, column(scores, 0)), outputs.cast(FLOAT)
    if alone and len(base) < 2:
        if len(base):
            scores = scores + _base(base, dtype)
        return _one_sided(
            labels, column(scores, 0), voted.pop(), post_transform, bool((weights >= 0).all())
        )
    if alone:
        other = t.constant(0.0, dtype, (rows.shape[0],))
        only = column(scores, 0)
        scores = columns(only, other) if 0 in voted else columns(other, only)
    if len(base):
        scores = scores + _base(base, dtype)
    chosen = pick_labels(labels, top_class(scores))
    return chosen, transformed(scores, post_transform).cast(FLOAT)


def _single_label(labels: Tensor, score: Tensor) -> Tensor:
    """A single integer label stands for 1 where the score is above 0, else 0 (onnxruntime)."""
    if labels.dtype is STRING:
        return pick_labels(labels, (score > 0).cast(INT64) * 0)
    return (score > 0).cast(INT64)


def _one_sided(
    labels: Tensor, score: Tensor, voted: int, transform: str, positive: bool
) -> tuple[Tensor, Tensor]:
    """Two labels, votes for one of them.

    The score speaks for the second label, above 0.5 if weights are all positive (a share), else
    above 0. Votes for the first class mean that the other class has 1 - s, or -s; votes for the
    second class leave it at 0 (onnxruntime; the standard does not say).
    """
    limit = 0.5 if positive else 0.0
    chosen = pick_labels(labels, (score > limit).cast(INT64))
    if voted == 0:
        outputs = two_classes(score, transform, as_share=positive)
    else:
        none = t.constant(0.0, score.dtype, score.shape)
        outputs = transformed(columns(none, score), transform)
    return chosen, outputs.cast(FLOAT)
