"""Tree ensembles against a walk in plain Python, by the standard's text."""

import itertools

import numpy as np
import pytest
from onnx import numpy_helper

import sardonyx
from sardonyx.base.errors import InvalidGraph
from sardonyx.ops.ml import forest_chains
from tests.engine.test_ml_linear import TRANSFORMS, transform
from tests.support.ml import assert_same, ml_model, run_ml

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
COMPARE = [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal]
FEATURES = 4
NODES = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
         "missing_value_tracks_true")  # fmt: skip


def grow(rng, trees, depth, modes=MODES, votes=2, targets=3, chance=0.85):
    """Random trees as attributes of versions 1 and 3; thresholds are a few round numbers."""
    nodes = {name: [] for name in NODES}
    leaves = {"treeids": [], "nodeids": [], "ids": [], "weights": []}

    def add(tree, level):
        number = len(nodes["treeids"]) - first
        for name, value in (("treeids", tree), ("nodeids", number), ("truenodeids", 0),
                            ("falsenodeids", 0), ("featureids", int(rng.integers(FEATURES))),
                            ("values", float(rng.integers(-3, 4)) / 2),
                            ("missing_value_tracks_true", int(rng.integers(2)))):  # fmt: skip
            nodes[name].append(value)
        at = first + number
        if level == depth or (level and rng.random() > chance):
            nodes["modes"].append("LEAF")
            for _ in range(rng.integers(1, votes + 1)):
                leaves["treeids"].append(tree)
                leaves["nodeids"].append(number)
                leaves["ids"].append(int(rng.integers(targets)))
                leaves["weights"].append(float(np.float32(rng.standard_normal())))
            return number
        nodes["modes"].append(str(rng.choice(modes)))
        nodes["truenodeids"][at] = add(tree, level + 1)
        nodes["falsenodeids"][at] = add(tree, level + 1)
        return number

    for tree in range(trees):
        first = len(nodes["treeids"])
        add(tree, 0)
    return nodes, leaves


def walk(nodes, leaves, x, targets):
    """For each row the votes for each target."""
    pairs = list(zip(nodes["treeids"], nodes["nodeids"], strict=True))
    at = {(t, n): k for k, (t, n) in enumerate(pairs)}
    said = {}
    columns = (leaves[k] for k in ("treeids", "nodeids", "ids", "weights"))
    for t, n, target, weight in zip(*columns, strict=True):
        said.setdefault((t, n), []).append((target, weight))
    tracks = nodes.get("missing_value_tracks_true") or [0] * len(nodes["modes"])
    roots = {}
    for t, n in pairs:
        roots.setdefault(t, n)
    found = []
    for row in x:
        votes = [[] for _ in range(targets)]
        for t, n in roots.items():
            while nodes["modes"][at[t, n]] != "LEAF":
                k = at[t, n]
                value = row[nodes["featureids"][k]]
                answer = COMPARE[MODES.index(nodes["modes"][k])](value, nodes["values"][k])
                if np.isnan(value):
                    answer = tracks[k] == 1
                n = nodes["truenodeids" if answer else "falsenodeids"][k]
            for target, weight in said.get((t, n), []):
                votes[target].append(weight)
        found.append(votes)
    return found


def features(rng, count, dtype=np.float32, missing=True):
    x = (rng.integers(-4, 5, (count, FEATURES)) / 2).astype(dtype)
    if missing and x.dtype.kind == "f":
        x[rng.random(x.shape) < 0.2] = np.nan
        x[0, 0], x[0, 1], x[0, 2] = np.inf, -np.inf, -0.0
    return x


def attributes_of(nodes, leaves, prefix):
    found = {f"nodes_{k}": v for k, v in nodes.items()}
    return found | {f"{prefix}_{k}": v for k, v in leaves.items()}


JOIN = {
    "SUM": lambda v, trees: sum(v),
    "AVERAGE": lambda v, trees: sum(v) / trees,
    "MIN": lambda v, trees: min(v, default=0.0),
    "MAX": lambda v, trees: max(v, default=0.0),
}


# Fewer rows than walks go in step, as many, more; fewer and more trees than that.
@pytest.mark.parametrize(
    ("rows", "trees", "join", "targets"),
    [(1, 1, "SUM", 1), (1, 40, "SUM", 1), (3, 21, "AVERAGE", 3), (45, 17, "MIN", 3),
     (45, 21, "MAX", 1), (16, 5, "MIN", 1), (45, 17, "MAX", 3), (700, 3, "SUM", 1),
     (700, 2, "AVERAGE", 3)],
)  # fmt: skip
def test_regressor(rows, trees, join, targets):
    rng = np.random.default_rng(rows + trees)
    nodes, leaves = grow(rng, trees, 5, targets=targets)
    x = features(rng, rows)
    base = [0.5, -0.25, 0.125][:targets]
    got = run_ml(
        "TreeEnsembleRegressor", [x], 1, n_targets=targets, aggregate_function=join,
        base_values=base, **attributes_of(nodes, leaves, "target"),
    )[0]  # fmt: skip
    votes = walk(nodes, leaves, x, targets)
    want = [[JOIN[join](v, trees) for v in row] for row in votes] + np.array(base)
    assert_same(got, want.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_types(dtype):
    rng = np.random.default_rng(4)
    nodes, leaves = grow(rng, 25, 4, votes=1, targets=1)
    x = features(rng, 40, dtype)
    got = run_ml("TreeEnsembleRegressor", [x], 1, **attributes_of(nodes, leaves, "target"))[0]
    want = np.array([[sum(v) for v in row] for row in walk(nodes, leaves, x, 1)])
    assert_same(got, want.astype(np.float32))


EXTREME = [np.inf, -np.inf, np.nan, 0.0, 1e-45, -3.4028235e38]


def test_extreme_thresholds():
    """A tree and a target for each mode, threshold and way of NaN."""
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4028235e38, -3.4028235e38])
    x = x[:, None].repeat(FEATURES, 1).astype(np.float32)
    cases = list(itertools.product(MODES, EXTREME, (0, 1)))
    count = len(cases)
    numbers = list(range(count))
    nodes = {
        "treeids": [t for t in numbers for _ in range(3)], "nodeids": [0, 1, 2] * count,
        "featureids": [1, 0, 0] * count,
        "modes": [m for mode, _, _ in cases for m in (mode, "LEAF", "LEAF")],
        "values": [v for _, value, _ in cases for v in (float(np.float32(value)), 0.0, 0.0)],
        "truenodeids": [1, 0, 0] * count, "falsenodeids": [2, 0, 0] * count,
        "missing_value_tracks_true": [f for _, _, tracks in cases for f in (tracks, 0, 0)],
    }  # fmt: skip
    leaves = {
        "treeids": [t for t in numbers for _ in range(2)], "nodeids": [1, 2] * count,
        "ids": [t for t in numbers for _ in range(2)], "weights": [1.0, 2.0] * count,
    }  # fmt: skip
    given = attributes_of(nodes, leaves, "target")
    got = run_ml("TreeEnsembleRegressor", [x], 1, n_targets=count, **given)[0]
    want = np.array(walk(nodes, leaves, x, count))[:, :, 0]
    assert_same(got, want.astype(np.float32))


def test_double_thresholds():
    rng = np.random.default_rng(6)
    nodes, leaves = grow(rng, 5, 4, MODES[:4], targets=2)
    nodes["values"] = [v + 1e-12 for v in nodes["values"]]
    x = features(rng, 30, np.float64) + np.where(rng.random((30, FEATURES)) < 0.5, 1e-12, 0)
    given = attributes_of(nodes, leaves, "target")
    for name in ("nodes_values", "target_weights"):
        given[f"{name}_as_tensor"] = numpy_helper.from_array(np.array(given.pop(name)))
    got = run_ml("TreeEnsembleRegressor", [x], 3, n_targets=2, **given)[0]
    want = np.array([[sum(v) for v in row] for row in walk(nodes, leaves, x, 2)])
    assert_same(got, want.astype(np.float32))


def test_rows_whose_width_is_not_known():
    rng = np.random.default_rng(7)
    nodes, leaves = grow(rng, 5, 4, targets=1, votes=1)
    x = features(rng, 20)
    model = ml_model("TreeEnsembleRegressor", [x], 1, **attributes_of(nodes, leaves, "target"))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "width"
    session = sardonyx.InferenceSession(model.SerializeToString())
    want = np.array([[sum(v) for v in row] for row in walk(nodes, leaves, x, 1)])
    wider = np.concatenate([x, x], 1)
    for given in (x, wider):
        assert_same(session.run(None, {"x0": given})[0], want.astype(np.float32))
    with pytest.raises(Exception, match="more features than x has"):
        session.run(None, {"x0": x[:, : max(nodes["featureids"])]})


def test_numbers_of_nodes_and_trees_need_no_order():
    rng = np.random.default_rng(17)
    nodes, leaves = grow(rng, 6, 4, targets=1, votes=1)
    x = features(rng, 20)
    want = np.array([[sum(v) for v in row] for row in walk(nodes, leaves, x, 1)])
    for names in (nodes, leaves):
        for name in ("nodeids", "truenodeids", "falsenodeids"):
            if name in names:
                names[name] = [1000 - 7 * n for n in names[name]]
        names["treeids"] = [(t * 5) % 7 - 3 for t in names["treeids"]]
    # Nodes of all trees take turns; each tree's first one still comes first.
    order = np.argsort([nodes["treeids"][:k].count(t) for k, t in enumerate(nodes["treeids"])])
    nodes = {name: [values[k] for k in order] for name, values in nodes.items()}
    got = run_ml("TreeEnsembleRegressor", [x], 1, **attributes_of(nodes, leaves, "target"))[0]
    assert_same(got, want.astype(np.float32))


@pytest.mark.parametrize(
    ("depth", "chance", "modes"), [(1, 1.0, 6), (5, 1.0, 4), (6, 1.0, 4), (3, 0.7, 6)]
)
@pytest.mark.parametrize("targets", [1, 3])
def test_trees_of_few_leaves_for_groups_of_rows(depth, chance, modes, targets):
    """Up to 32 leaves, all for one target, are masks or chains; 64 leaves are walked to."""
    rng = np.random.default_rng(depth)
    nodes, leaves = grow(rng, 11, depth, MODES[:modes], votes=1, chance=chance)
    leaves["ids"] = [tree % targets for tree in leaves["treeids"]]
    given = attributes_of(nodes, leaves, "target")
    x = features(rng, 75)
    model = ml_model("TreeEnsembleRegressor", [x], 1, n_targets=targets, **given)
    session = sardonyx.InferenceSession(model.SerializeToString())
    want = np.array([[sum(v) for v in row] for row in walk(nodes, leaves, x, targets)])
    for count in (75, 32, 31):
        got = session.run(None, {"x0": x[:count]})[0]
        assert_same(got, want[:count].astype(np.float32))


def beside(nodes, leaves):
    """The same trees, with both followers of a node side by side, the true one first."""
    pairs = list(zip(nodes["treeids"], nodes["nodeids"], strict=True))
    at = {pair: k for k, pair in enumerate(pairs)}
    order, number = [], {}
    for tree in dict.fromkeys(nodes["treeids"]):
        row = [(tree, 0)]
        for pair in row:
            number[pair] = row.index(pair)
            order.append(at[pair])
            if nodes["modes"][at[pair]] != "LEAF":
                row += [(tree, nodes[name][at[pair]]) for name in ("truenodeids", "falsenodeids")]
    moved = {name: [values[k] for k in order] for name, values in nodes.items()}
    for name in ("nodeids", "truenodeids", "falsenodeids"):
        named = zip(moved["treeids"], moved[name], moved["modes"], strict=True)
        moved[name] = [
            number[tree, k] if name == "nodeids" or mode != "LEAF" else 0 for tree, k, mode in named
        ]
    named = zip(leaves["treeids"], leaves["nodeids"], strict=True)
    return moved, leaves | {"nodeids": [number[pair] for pair in named]}


@pytest.mark.parametrize(
    ("modes", "votes", "targets", "join", "weight", "width"),
    [(1, 1, 1, "SUM", 1.0, 4), (2, 1, 1, "MIN", 1.0, 9), (2, 2, 3, "SUM", 1.0, 4),
     (1, 1, 1, "SUM", np.nan, 4), (1, 1, 1, "MAX", -np.inf, 4), (4, 1, 1, "SUM", 1.0, 4),
     (2, 1, 1, "SUM", 1.0, None)],
)  # fmt: skip
def test_nodes_whose_followers_lie_side_by_side(modes, votes, targets, join, weight, width):
    """Nodes of two words, unless modes or weights forbid that; walks of 1, 16 and more rows."""
    rng = np.random.default_rng(modes + targets)
    nodes, leaves = beside(*grow(rng, 5, 7, MODES[:modes], votes, targets, chance=0.97))
    leaves["weights"][::7] = [weight] * len(leaves["weights"][::7])
    x = np.resize(features(rng, 40), (40, width or 4))
    model = ml_model(
        "TreeEnsembleRegressor", [x], 1, n_targets=targets, aggregate_function=join,
        **attributes_of(nodes, leaves, "target"),
    )  # fmt: skip
    if width is None:
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "width"
    session = sardonyx.InferenceSession(model.SerializeToString())
    want = [[JOIN[join](v, 5) for v in row] for row in walk(nodes, leaves, x, targets)]
    for count in (40, 16, 1):
        got = session.run(None, {"x0": x[:count]})[0]
        assert_same(got, np.array(want[:count], np.float32))


@pytest.mark.parametrize("places", [1 << 16, 100])
def test_rows_get_the_same_bits_alone_and_in_groups(monkeypatch, places):
    """Masks, and chains or walks: trees of one leaf, groups of trees that are not full."""
    monkeypatch.setattr(forest_chains, "_MOST_PLACES", places)
    rng = np.random.default_rng(places)  # no model that the cache knows
    nodes, leaves = grow(rng, 40, 5, MODES[:4], votes=1, chance=0.6)
    for tree in range(40, 44):  # nothing is asked
        for name in nodes:
            nodes[name].append({"treeids": tree, "modes": "LEAF", "values": 0.0}.get(name, 0))
        for name, value in zip(leaves, (tree, 0, 0, 0.1), strict=True):
            leaves[name].append(value)
    leaves["ids"] = [tree % 3 for tree in leaves["treeids"]]
    given = attributes_of(nodes, leaves, "target")
    x = features(rng, 64)
    session = sardonyx.InferenceSession(
        ml_model("TreeEnsembleRegressor", [x], 1, n_targets=3, **given).SerializeToString()
    )
    whole = session.run(None, {"x0": x})[0]
    want = np.array([[sum(v) for v in row] for row in walk(nodes, leaves, x, 3)])
    assert_same(whole, want.astype(np.float32))
    for first, count in ((0, 1), (5, 1), (7, 9), (31, 33)):
        part = session.run(None, {"x0": x[first : first + count]})[0]
        assert np.array_equal(part, whole[first : first + count])


# -- classifiers ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRANSFORMS)
def test_classifier_of_several_classes(name):
    rng = np.random.default_rng(9)
    nodes, leaves = grow(rng, 20, 4, targets=3)
    leaves["weights"] = [abs(w) / 40 for w in leaves["weights"]]
    x = features(rng, 37)
    base = [0.25, 0.125, 0.0625]
    label, got = run_ml(
        "TreeEnsembleClassifier", [x], 1, 2, post_transform=name, base_values=base,
        classlabels_int64s=[4, 2, 7], **attributes_of(nodes, leaves, "class"),
    )  # fmt: skip
    scores = np.array([[sum(v) for v in row] for row in walk(nodes, leaves, x, 3)]) + base
    assert_same(label, np.array([4, 2, 7])[scores.argmax(1)])
    assert_same(got, transform(scores, name).astype(np.float32), "float: sums that cancel")


@pytest.mark.parametrize("name", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("voted", [0, 1])
def test_two_classes_of_which_one_gets_votes(name, positive, voted):
    """A score for the second class; what the first one has depends on who gets the votes."""
    rng = np.random.default_rng(10)
    nodes, leaves = grow(rng, 6, 4, targets=1)
    leaves["ids"] = [voted] * len(leaves["ids"])
    if positive:
        leaves["weights"] = [abs(w) / 10 for w in leaves["weights"]]
    x = features(rng, 23)
    label, got = run_ml(
        "TreeEnsembleClassifier", [x], 1, 2, post_transform=name, classlabels_int64s=[4, 9],
        base_values=[0.125], **attributes_of(nodes, leaves, "class"),
    )  # fmt: skip
    score = np.array([sum(row[voted]) for row in walk(nodes, leaves, x, 2)]) + 0.125
    assert_same(label, np.where(score > (0.5 if positive else 0), 9, 4))
    first = 1 - score if positive and name == "NONE" else -score
    first = first if voted == 0 else np.zeros_like(score)
    assert_same(got, transform(np.stack([first, score], 1), name).astype(np.float32))


def test_two_classes_that_both_get_votes():
    rng = np.random.default_rng(11)
    nodes, leaves = grow(rng, 6, 4, targets=2)
    x = features(rng, 23)
    label, got = run_ml(
        "TreeEnsembleClassifier", [x], 3, 2, classlabels_int64s=[4, 9],
        **attributes_of(nodes, leaves, "class"),
    )  # fmt: skip
    scores = np.array([[sum(v) for v in row] for row in walk(nodes, leaves, x, 2)])
    assert_same(label, np.array([4, 9])[scores.argmax(1)])
    assert_same(got, scores.astype(np.float32))


# -- version 5 --------------------------------------------------------------------------------


def tensors(**arrays):
    return {k: numpy_helper.from_array(np.asarray(v)) for k, v in arrays.items()}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("function", range(4))
def test_tree_ensemble_5(dtype, function):
    """A tree of six modes in a row, one that tests membership, and one that is a leaf."""
    sets = [[1.0, 1.5, -2.0], [0.0]]
    modes = [0, 1, 2, 3, 4, 5, 6, 6, 0]
    splits = [0.5, 0.0, 1.0, -0.5, 0.0, 1.0, 9.0, 9.0, 0.0]
    following = [1, 2, 3, 4, 5, None, 7, None, None]
    tracks = [0, 1, 0, 1, 0, 1, 1, 0, 0]
    true = list(range(9))
    false = [9 if n is None else n for n in following]
    true[8] = false[8] = 10
    targets = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]
    weights = np.arange(1, 12) / 4
    members = np.concatenate([[*s, np.nan] for s in sets])
    rng = np.random.default_rng(12)
    x = features(rng, 40, dtype)
    got = run_ml(
        "TreeEnsemble", [x], 5, n_targets=3, aggregate_function=function, tree_roots=[0, 6, 8],
        nodes_featureids=[k % FEATURES for k in range(9)], nodes_missing_value_tracks_true=tracks,
        nodes_truenodeids=true, nodes_trueleafs=[1] * 9, nodes_falsenodeids=false,
        nodes_falseleafs=[int(n is None) for n in following], leaf_targetids=targets,
        **tensors(nodes_modes=np.array(modes, np.uint8), nodes_splits=np.array(splits, dtype),
                  leaf_weights=weights.astype(dtype), membership_values=members.astype(dtype)),
    )[0]  # fmt: skip

    def leaf(row, node):
        value = row[node % FEATURES]
        if modes[node] == 6:
            answer = value in sets[node - 6]
        else:
            answer = COMPARE[modes[node]](value, splits[node])
        answer = bool(tracks[node]) if np.isnan(value) else answer
        after = following[node]
        return true[node] if answer else (false[node] if after is None else leaf(row, after))

    join = JOIN[["AVERAGE", "SUM", "MIN", "MAX"][function]]
    want = []
    for row in x:
        reached = [leaf(row, 0), leaf(row, 6), 10]
        votes = [[weights[k] for k in reached if targets[k] == target] for target in range(3)]
        want.append([join(v, 3) for v in votes])
    assert_same(
        got,
        np.array(want).astype(dtype),
        "half: two roundings" if dtype is np.float16 else "float: products",
    )


# -- large ensembles, and damaged ones -----------------------------------------------------------


def test_parts_of_the_trees_for_few_rows():
    rng = np.random.default_rng(13)
    nodes, leaves = grow(rng, 2600, 7, MODES[:1], votes=1, targets=2, chance=0.4)
    x = features(rng, 33, missing=False)
    model = ml_model(
        "TreeEnsembleRegressor", [x], 1, n_targets=2, **attributes_of(nodes, leaves, "target")
    )
    session = sardonyx.InferenceSession(model.SerializeToString())
    want = np.array([[sum(v) for v in row] for row in walk(nodes, leaves, x, 2)])
    for count in (1, 15, 33):
        got = session.run(None, {"x0": x[:count]})[0]
        assert_same(got, want[:count].astype(np.float32), "float: sums that cancel")


def damaged(**changes):
    nodes = {"treeids": [0] * 5, "nodeids": [0, 1, 2, 3, 4], "featureids": [0, 1, 0, 0, 0],
             "modes": ["BRANCH_LEQ", "BRANCH_LT", "LEAF", "LEAF", "LEAF"],
             "values": [0.0] * 5, "truenodeids": [1, 3, 0, 0, 0],
             "falsenodeids": [2, 4, 0, 0, 0]}  # fmt: skip
    leaves = {"treeids": [0] * 3, "nodeids": [2, 3, 4], "ids": [0] * 3, "weights": [1.0] * 3}
    return attributes_of(nodes, leaves, "target") | changes


BAD = [
    ({"nodes_truenodeids": [9, 3, 0, 0, 0]}, "node 0 of tree 0 leads to a node that does not"),
    ({"nodes_truenodeids": [1, 0, 0, 0, 0]}, "comes after itself"),
    ({"nodes_falsenodeids": [2, 1, 0, 0, 0]}, "comes after itself"),
    ({"nodes_featureids": [0, 4, 0, 0, 0]}, "Expected 0 to 3, got 4"),
    ({"nodes_featureids": [0, -1, 0, 0, 0]}, "Expected 0 to 3, got -1"),
    ({"nodes_nodeids": [0, 1, 2, 3, 3]}, "node 3 of tree 0 is described twice"),
    ({"nodes_modes": ["BRANCH_LEQ", "LESS", "LEAF", "LEAF", "LEAF"]}, "no node mode 'LESS'"),
    ({"nodes_values": [0.0]}, "nodes_values has the wrong length"),
    ({"nodes_treeids": [0]}, "nodes_nodeids has the wrong length"),
    ({"target_ids": [0, 0, 1]}, "target of vote number 2"),
    ({"target_ids": [0, 0, -1]}, "target of vote number 2"),
    ({"target_ids": [0]}, "target_ids has the wrong length"),
    ({"target_nodeids": [2, 3, 1]}, "Vote number 2 is not that of a leaf"),
    ({"target_nodeids": [2, 3, 7]}, "Vote number 2 is not that of a leaf"),
    ({"n_targets": 0}, "n_targets is too small"),
    ({"n_targets": 1 << 40}, "too many targets"),
    ({"base_values": [0.0, 1.0]}, "base_values must have"),
    ({"aggregate_function": "MEDIAN"}, "no such aggregate_function"),
    ({"post_transform": "TANH"}, "no such post_transform"),
]


@pytest.mark.parametrize(("changes", "text"), BAD)
def test_errors(changes, text):
    x = np.zeros((2, FEATURES), np.float32)
    with pytest.raises(InvalidGraph, match=text) as error:
        run_ml("TreeEnsembleRegressor", [x], 1, **damaged(**changes))
    assert "node it" in str(error.value)


def test_nodes_that_several_nodes_lead_to():
    """Converters of categories let the true branches of several nodes meet."""
    shared = damaged(
        nodes_truenodeids=[1, 3, 0, 0, 0], nodes_falsenodeids=[3, 4, 0, 0, 0],
        target_weights=[1.0, 2.0, 4.0],
    )  # fmt: skip
    x = np.array([[-1, -1], [-1, 1], [1, -1]], np.float32)
    got = run_ml("TreeEnsembleRegressor", [x], 1, **shared)[0]
    assert_same(got, np.array([[2], [4], [2]], np.float32))
