"""What the evaluator of tensors makes of operators of ai.onnx.ml with kernels of their own."""

import numpy as np
import pytest

from tests.engine.test_ml_trees import MODES, attributes_of, beside, features, grow
from tests.support.ml import assert_same, ml_model, run_ml
from tests.support.ops import run_model

RNG = np.random.default_rng(14)


def trees(targets, join):
    nodes, leaves = grow(RNG, 7, 4, targets=targets)
    given = attributes_of(nodes, leaves, "target")
    return "TreeEnsembleRegressor", features(RNG, 40), {
        **given, "n_targets": targets, "aggregate_function": join,
    }  # fmt: skip


def plain_trees(depth):
    """Small trees, which are masks and chains, or nodes of two words."""
    nodes, leaves = beside(*grow(RNG, 4, depth, MODES[:2], votes=1, targets=1, chance=1.0))
    given = attributes_of(nodes, leaves, "target")
    return "TreeEnsembleRegressor", features(RNG, 40), {**given, "n_targets": 1}


CASES = [
    plain_trees(4),
    plain_trees(7),
    trees(1, "SUM"),
    trees(3, "AVERAGE"),
    trees(3, "MIN"),
    ("LabelEncoder", np.array([4, 9, -1]), {"keys_int64s": [9, 4], "values_int64s": [1, 2]}),
    ("SVMClassifier", RNG.standard_normal((6, 2)).astype(np.float32),
     {"vectors_per_class": [1, 1, 1], "support_vectors": [1.0, 0.0, 0.0, 1.0, 1.0, 1.0],
      "coefficients": [1.0, -0.5, 0.5, 0.25, -1.0, 1.0], "rho": [0.1, 0.2, 0.3],
      "prob_a": [-1.0, -1.5, -2.0], "prob_b": [0.1, -0.1, 0.0], "classlabels_ints": [1, 2, 3]}),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "x", "attributes"), CASES)
def test_evaluated_and_compiled(op_type, x, attributes):
    outputs = 2 if op_type == "SVMClassifier" else 1
    version = 2 if op_type == "LabelEncoder" else 1
    compiled = run_ml(op_type, [x], version, outputs, **attributes)
    evaluated = run_model(ml_model(op_type, [x], version, outputs, **attributes), {"x0": x})
    for mine, exact in zip(compiled, evaluated, strict=True):
        is_coupled = op_type == "SVMClassifier"
        like = "float: coupled probabilities" if is_coupled else "float: products"
        assert_same(mine, exact, like)
