"""Ensembles of trees, and operators on maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tests.operator_fuzz.draw import STRING, Array, Draw
from tests.operator_fuzz.instance import Instance, makes
from tests.operator_fuzz.layout import INT64
from tests.operator_fuzz.learning import F32, ML, _labels, _numbers, _posted, _table
from tests.operator_fuzz.oracle import Use, reference


def _tree(draw: Draw, columns: int) -> dict[str, list[Any]]:
    """Three trees of depth two."""
    g: dict[str, list[Any]] = {
        k: []
        for k in (
            "treeids",
            "nodeids",
            "featureids",
            "values",
            "modes",
            "truenodeids",
            "falsenodeids",
        )
    }
    for tree in range(3):
        mode = draw.pick(
            ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
        )
        for node in range(7):
            inner = node < 3
            g["treeids"].append(tree)
            g["nodeids"].append(node)
            g["featureids"].append(draw.integer(0, columns - 1) if inner else 0)
            g["values"].append(draw.number(-3, 3) if inner else 0.0)
            g["modes"].append(mode if inner else "LEAF")
            g["truenodeids"].append(2 * node + 1 if inner else 0)
            g["falsenodeids"].append(2 * node + 2 if inner else 0)
    return {f"nodes_{k}": v for k, v in g.items()}


@makes("TreeEnsembleRegressor", domain=ML, factor=16, absolute=8, steady=[0])
def tree_regressed(draw: Draw) -> Instance:
    x, columns = _table(draw, draw.type_of("T"))
    targets = draw.integer(1, 2)
    attributes: dict[str, Any] = _tree(draw, columns)
    leaves = [(t, n) for t in range(3) for n in range(3, 7)]
    attributes |= {
        "target_treeids": [t for t, _ in leaves],
        "target_nodeids": [n for _, n in leaves],
        "target_ids": [draw.integer(0, targets - 1) for _ in leaves],
        "target_weights": _numbers(draw, len(leaves)),
        "n_targets": targets,
        "aggregate_function": draw.maybe(draw.pick(["SUM", "AVERAGE", "MIN", "MAX"])),
        "base_values": draw.maybe(_numbers(draw, targets)),
    }
    if attributes["aggregate_function"] in ("MIN", "MAX"):
        attributes["target_ids"] = [0 for _ in leaves]
        attributes["n_targets"] = 1
        attributes["base_values"] = None
    return Instance([x], attributes)


def _leaves(g: Any, row: Array) -> list[tuple[int, int]]:
    """The leaf that a row reaches in each tree."""
    tests = {
        "BRANCH_LEQ": np.less_equal,
        "BRANCH_LT": np.less,
        "BRANCH_GTE": np.greater_equal,
        "BRANCH_GT": np.greater,
        "BRANCH_EQ": np.equal,
        "BRANCH_NEQ": np.not_equal,
    }
    where = {
        (t, n): k
        for k, (t, n) in enumerate(zip(g["nodes_treeids"], g["nodes_nodeids"], strict=True))
    }
    found = []
    for tree in dict.fromkeys(g["nodes_treeids"]):
        node = 0
        while True:
            k = where[tree, node]
            mode = g["nodes_modes"][k].decode()
            if mode == "LEAF":
                break
            passed = tests[mode](np.float64(row[g["nodes_featureids"][k]]), g["nodes_values"][k])
            node = g["nodes_truenodeids" if passed else "nodes_falsenodeids"][k]
        found.append((tree, node))
    return found


@reference("TreeEnsembleRegressor", domain=ML)
def tree_regress(use: Use, x: Array) -> Array:
    g = use.attributes
    weights = {
        (t, n): (i, w)
        for t, n, i, w in zip(
            g["target_treeids"],
            g["target_nodeids"],
            g["target_ids"],
            g["target_weights"],
            strict=True,
        )
    }
    how = {"SUM": np.sum, "AVERAGE": np.sum, "MIN": np.min, "MAX": np.max}[g["aggregate_function"]]
    result = np.zeros((len(x), g["n_targets"]))
    for n, row in enumerate(x):
        votes = [weights[leaf] for leaf in _leaves(g, row)]
        for target in range(g["n_targets"]):
            own = [w for i, w in votes if i == target]
            result[n, target] = how(own) if own else 0.0
    result = result / 3 if g["aggregate_function"] == "AVERAGE" else result
    return result + np.array(g.get("base_values", 0.0))


@makes("TreeEnsembleClassifier", domain=ML, factor=16, absolute=8, steady=[0])
def tree_classified(draw: Draw) -> Instance:
    x, columns = _table(draw, draw.type_of("T1"))
    classes = draw.integer(3, 4)
    labels, kind = _labels(draw, classes, "classlabels_int64s")
    attributes: dict[str, Any] = {**labels, **_tree(draw, columns)}
    leaves = [(t, n) for t in range(3) for n in range(3, 7)]
    attributes |= {
        "class_treeids": [t for t, _ in leaves for _ in range(classes)],
        "class_nodeids": [n for _, n in leaves for _ in range(classes)],
        "class_ids": [c for _ in leaves for c in range(classes)],
        # No two classes have the same sum.
        "class_weights": [draw.number(0, 2) + c / 100 for _ in leaves for c in range(classes)],
        "post_transform": draw.maybe(draw.pick(["NONE", "SOFTMAX", "LOGISTIC"])),
    }
    return Instance([x], attributes, [kind, F32])


@reference("TreeEnsembleClassifier", domain=ML)
def tree_classify(use: Use, x: Array) -> Any:
    g = use.attributes
    strings = [n.decode() for n in g.get("classlabels_strings", ())]
    labels = np.array(strings, object) if strings else np.array(g["classlabels_int64s"], np.int64)
    scores = np.zeros((len(x), len(labels)))
    votes = list(
        zip(g["class_treeids"], g["class_nodeids"], g["class_ids"], g["class_weights"], strict=True)
    )
    for n, row in enumerate(x):
        reached = set(_leaves(g, row))
        for tree, node, label, weight in votes:
            if (tree, node) in reached:
                scores[n, label] += weight
    return labels[np.argmax(scores, 1)], _posted(scores, g["post_transform"])


@makes("TreeEnsemble", domain=ML, factor=16, absolute=8, steady=[0])
def ensemble(draw: Draw) -> Instance:
    """Three trees: a root, whose false branch is a leaf, and a node with two leaves."""
    dtype = draw.type_of("T")
    x, columns = _table(draw, dtype)
    targets = draw.integer(1, 2)
    roots = [0, 2, 4]
    members: list[float] = []
    modes, splits = [], []
    for _ in range(6):
        mode = draw.integer(0, 6)
        modes.append(mode)
        splits.append(draw.number(-3, 3))
        if mode == 6:
            members += [draw.number(-3, 3), 1.0, float("nan")]
    attributes: dict[str, Any] = {
        "n_targets": targets,
        "aggregate_function": draw.maybe(draw.integer(0, 1)),
        "post_transform": draw.maybe(draw.pick([0, 1, 2])),
        "tree_roots": roots,
        "nodes_featureids": [draw.integer(0, columns - 1) for _ in modes],
        "nodes_modes": np.array(modes, np.uint8),
        "nodes_splits": np.array(splits).astype(dtype),
        "nodes_truenodeids": [1, 1, 3, 4, 5, 7],
        "nodes_trueleafs": [0, 1, 0, 1, 0, 1],
        "nodes_falsenodeids": [0, 2, 3, 5, 6, 8],
        "nodes_falseleafs": [1, 1, 1, 1, 1, 1],
        "leaf_targetids": [draw.integer(0, targets - 1) for _ in range(9)],
        "leaf_weights": np.array(_numbers(draw, 9)).astype(dtype),
        "membership_values": np.array(members).astype(dtype) if members else None,
    }
    return Instance([x], attributes)


@reference("TreeEnsemble", domain=ML)
def ensemble_of(use: Use, x: Array) -> Array:
    g = {
        k: onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v
        for k, v in use.attributes.items()
    }
    tests = [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal]
    groups: list[list[float]] = [[]]
    for value in np.asarray(g.get("membership_values", ()), np.float64):
        if np.isnan(value):
            groups.append([])
        else:
            groups[-1].append(float(value))
    sets = iter(groups)
    owned = [next(sets) if mode == 6 else [] for mode in g["nodes_modes"]]
    result = np.zeros((len(x), g["n_targets"]))
    for n, row in enumerate(x):
        for node in g["tree_roots"]:
            leaf = False
            while not leaf:
                value, mode = np.float64(row[g["nodes_featureids"][node]]), g["nodes_modes"][node]
                split = np.float64(g["nodes_splits"][node])
                passed = value in owned[node] if mode == 6 else tests[mode](value, split)
                way = "true" if passed else "false"
                leaf = bool(g[f"nodes_{way}leafs"][node])
                node = g[f"nodes_{way}nodeids"][node]
            result[n, g["leaf_targetids"][node]] += np.float64(g["leaf_weights"][node])
    if g["aggregate_function"] == 0:
        result = result / len(g["tree_roots"])
    return _posted(result, ("NONE", "SOFTMAX", "LOGISTIC")[g["post_transform"]])


@makes("DictVectorizer", domain=ML, exact=True, own=True)
def vectorised(draw: Draw) -> Instance:
    kind = draw.pick([float, int])
    named = draw.chance(0.5) or kind is int
    keys: list[Any] = ["a", "c", "b", "z"] if named else [3, 1, 7, 5]
    chosen = [k for k in keys if draw.contents.random() < 0.6] or keys[:1]
    feed = {k: kind(draw.contents.integers(1, 9)) for k in chosen}
    name = "string_vocabulary" if named else "int64_vocabulary"
    return Instance([feed], {name: keys}, [F32 if kind is float else INT64])


@reference("DictVectorizer", domain=ML)
def vectorise(use: Use, x: dict[Any, Any]) -> Array:
    keys = use.attributes.get("int64_vocabulary") or [
        k.decode() for k in use.attributes["string_vocabulary"]
    ]
    return np.array([[x.get(k, 0) for k in keys]], use.types[0])


@makes("CastMap", domain=ML, exact=True, own=True)
def cast_map(draw: Draw) -> Instance:
    keys = sorted({int(k) for k in draw.contents.integers(0, 6, 4)})
    to, kind = draw.pick([("TO_FLOAT", F32), ("TO_INT64", INT64), ("TO_STRING", STRING)])
    value: Any = str if draw.chance(0.5) or to == "TO_STRING" else float
    feed = {k: value(int(draw.contents.integers(1, 9))) for k in keys}
    sparse = draw.chance(0.5)
    attributes: dict[str, Any] = {"cast_to": draw.maybe(to) if to == "TO_FLOAT" else to}
    if sparse:
        attributes |= {"map_form": "SPARSE", "max_map": 7}
    return Instance([feed], attributes, [kind])


@reference("CastMap", domain=ML)
def map_to_tensor(use: Use, x: dict[int, Any]) -> Array:
    kind = use.types[0]
    empty = "" if kind == STRING else 0
    places = (
        range(use.attributes["max_map"]) if use.attributes["map_form"] == "SPARSE" else sorted(x)
    )
    values = [x.get(k, empty) for k in places]
    return np.array([[str(v) if kind == STRING else float(v) for v in values]], kind)
