"""Linear and support vector machines against NumPy, in double, by the standard's formulas."""

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph
from tests.support.ml import assert_same, run_ml
from tests.support.tolerances import assert_near

RNG = np.random.default_rng(8)
X = RNG.standard_normal((9, 5)).astype(np.float32)
TYPES = [np.float32, np.float64, np.int64, np.int32]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def softmax(s):
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def softmax_zero(s):
    top = s.max(1, keepdims=True)
    e = np.where(np.abs(s) > 1e-7, np.exp(s - top), s * np.exp(-top))
    return e / e.sum(1, keepdims=True)


def probit(p):
    with np.errstate(all="ignore"):
        x = 2 * p - 1
        log = np.log((1 - x) * (1 + x))
        v = 2 / (np.pi * 0.147) + log / 2
        return np.sqrt(2) * np.sign(x) * np.sqrt(np.sqrt(v * v - log / 0.147) - v)


def transform(scores, name):
    return {
        "NONE": lambda s: s,
        "SOFTMAX": softmax,
        "LOGISTIC": lambda s: 1 / (1 + np.exp(-s)),
        "SOFTMAX_ZERO": softmax_zero,
        "PROBIT": probit,
    }[name](scores)


def weights(*shape):
    # What a float attribute can hold.
    return RNG.standard_normal(shape).astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(dtype, targets):
    x, w, c = (X * 4).astype(dtype), weights(targets, 5), weights(targets)
    got = run_ml("LinearRegressor", [x], targets=targets, coefficients=w.reshape(-1), intercepts=c)[
        0
    ]
    assert_same(got, (x @ w.T + c).astype(np.float32), "float: sums that cancel")


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_several_classes(name):
    w, c = weights(3, 5) * 0.05, np.array([0.3, 0.4, 0.5])
    c = c.astype(np.float32).astype(np.float64)
    w = w.astype(np.float32).astype(np.float64)
    scores = X @ w.T + c
    label, got = run_ml(
        "LinearClassifier", [X], outputs=2, coefficients=w.reshape(-1), intercepts=c,
        classlabels_ints=[5, -7, 9], post_transform=name,
    )  # fmt: skip
    assert_same(label, np.array([5, -7, 9])[scores.argmax(1)])
    assert_same(got, transform(scores, name).astype(np.float32), "float: sums that cancel")


@pytest.mark.parametrize(
    ("dtype", "name"), [*zip(TYPES, TRANSFORMS, strict=False), (np.float32, "PROBIT")]
)
def test_two_classes_with_one_row_of_coefficients(dtype, name):
    x, w = (X * 2).astype(dtype), weights(5) * 0.05
    w = w.astype(np.float32).astype(np.float64)
    score = x @ w + 0.5
    label, got = run_ml(
        "LinearClassifier", [x], outputs=2, coefficients=w, intercepts=[0.5],
        classlabels_ints=[3, 8], post_transform=name,
    )  # fmt: skip
    first = 1 - score if name in ("NONE", "PROBIT") else -score
    assert_same(label, np.where(score > 0, 8, 3))
    assert_same(
        got,
        transform(np.stack([first, score], 1), name).astype(np.float32),
        "float: sums that cancel",
    )


# -- support vector machines ------------------------------------------------------------------

GAMMA, OFFSET, DEGREE = 0.25, 0.5, 3.0
KERNELS = {
    "LINEAR": lambda x, v: x @ v.T,
    "POLY": lambda x, v: (GAMMA * (x @ v.T) + OFFSET) ** DEGREE,
    "RBF": lambda x, v: np.exp(-GAMMA * ((x[:, None] - v) ** 2).sum(2)),
    "SIGMOID": lambda x, v: np.tanh(GAMMA * (x @ v.T) + OFFSET),
}
PARAMETERS = [GAMMA, OFFSET, DEGREE]


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize(
    ("kind", "dtype", "one_class"),
    [("LINEAR", np.float32, 0), ("POLY", np.float64, 0), ("RBF", np.float32, 0),
     ("SIGMOID", np.float32, 0), ("RBF", np.int64, 1), ("LINEAR", np.int32, 1)],
)  # fmt: skip
def test_svm_regressor(kind, dtype, one_class, count):
    x, v, a = (X * 2).astype(dtype), weights(count, 5), weights(count)
    want = KERNELS[kind](x.astype(np.float64), v) @ a + 0.75
    want = np.where(want > 0, 1, -1) if one_class else want
    got = run_ml(
        "SVMRegressor", [x], kernel_type=kind, kernel_params=PARAMETERS, n_supports=count,
        support_vectors=v.reshape(-1), coefficients=a, rho=[0.75], one_class=one_class,
    )[0]  # fmt: skip
    assert_same(got, want[:, None].astype(np.float32), "float: sums that cancel")


def test_gaussian_kernel_far_from_the_origin():
    x, v, a = X + 1000, weights(7, 5) + 1000, weights(7)
    v = v.astype(np.float32).astype(np.float64)
    want = KERNELS["RBF"](x.astype(np.float64), v) @ a
    got = run_ml(
        "SVMRegressor", [x], kernel_type="RBF", kernel_params=PARAMETERS, n_supports=7,
        support_vectors=v.reshape(-1), coefficients=a, rho=[0.0],
    )[0]  # fmt: skip
    assert_same(got, want[:, None].astype(np.float32), "float: sums that cancel")


def test_svm_regressor_without_vectors():
    w = weights(5)
    got = run_ml("SVMRegressor", [X], coefficients=w, rho=[0.5])[0]
    assert_same(got, (X @ w + 0.5)[:, None].astype(np.float32))


def decisions_of(x, counts, kind, v, coefficients, rho):
    """libsvm's decisions, one for each pair of classes."""
    k = KERNELS[kind](x.astype(np.float64), v)
    starts = np.cumsum([0, *counts])
    parts = [slice(a, b) for a, b in zip(starts[:-1], starts[1:], strict=True)]
    found, votes = [], np.zeros((len(x), len(counts)))
    for i in range(len(counts)):
        for j in range(i + 1, len(counts)):
            d = k[:, parts[i]] @ coefficients[j - 1, parts[i]]
            d = d + k[:, parts[j]] @ coefficients[i, parts[j]] + rho[len(found)]
            votes[:, i] += d > 0
            votes[:, j] += d <= 0
            found.append(d)
    return np.stack(found, 1), votes


def coupled(decisions, a, b, count):
    """The p with sum 1 that minimises the sum of (r_ji p_i - r_ij p_j)^2, solved directly."""
    shares = np.clip(1 / (1 + np.exp(decisions * a + b)), 1e-7, 1 - 1e-7)
    found = []
    for row in shares:
        r = np.zeros((count, count))
        r[np.triu_indices(count, 1)] = row
        r.T[np.triu_indices(count, 1)] = 1 - row
        q = np.diag((r**2).sum(0)) - r * r.T
        system = np.block([[q, np.ones((count, 1))], [np.ones((1, count)), np.zeros((1, 1))]])
        found.append(np.linalg.solve(system, np.eye(count + 1)[count])[:count])
    return np.array(found)


@pytest.mark.parametrize(
    ("kind", "counts"), [("LINEAR", (3, 4)), ("RBF", (2, 3, 4)), ("POLY", (1, 2, 2, 3))]
)
@pytest.mark.parametrize("probabilities", [False, True])
def test_svm_classifier(kind, counts, probabilities):
    classes, total = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    v, c, rho = weights(total, 5), weights(classes - 1, total), weights(pairs)
    a, b = -np.abs(weights(pairs)) - 0.5, weights(pairs)
    attributes = {
        "kernel_type": kind, "kernel_params": PARAMETERS, "support_vectors": v.reshape(-1),
        "coefficients": c.reshape(-1), "rho": rho, "vectors_per_class": counts,
        "classlabels_ints": [10 * k for k in range(classes)],
    }  # fmt: skip
    if probabilities:
        attributes |= {"prob_a": a, "prob_b": b}
    decisions, votes = decisions_of(X, counts, kind, v, c, rho)
    a, b = (z.astype(np.float32).astype(np.float64) for z in (a, b))
    label, got = run_ml("SVMClassifier", [X], outputs=2, **attributes)
    assert_same(label, votes.argmax(1) * 10)
    if probabilities:
        # The iteration stops at 0.005 / classes.
        assert_same(
            got,
            coupled(decisions, a, b, classes).astype(np.float32),
            "float: coupled probabilities",
        )
        assert_near(got.sum(1), 1, "float: scores")
    else:
        want = np.concatenate([-decisions, decisions], 1) if pairs == 1 else decisions
        assert_same(got, want.astype(np.float32), "float: many steps")


def test_svm_classifier_without_vectors():
    w = weights(3, 5)
    label, got = run_ml(
        "SVMClassifier", [X], outputs=2, coefficients=w.reshape(-1), rho=[0.5],
        classlabels_ints=[4, 5, 6],
    )  # fmt: skip
    scores = X @ w.T + 0.5
    assert_same(label, scores.argmax(1) + 4)
    assert_same(got, scores.astype(np.float32))


def svc(**changes):
    return {
        "vectors_per_class": [1, 1], "support_vectors": [0.0] * 10, "coefficients": [1.0, 2.0],
        "rho": [0.0], "classlabels_ints": [0, 1], **changes,
    }  # fmt: skip


BAD = [
    ("LinearRegressor", {"coefficients": [1.0] * 4}, "rows of 4 numbers"),
    ("LinearRegressor", {"coefficients": [1.0] * 7, "targets": 2}, "multiple of 2 numbers"),
    ("LinearRegressor", {"coefficients": [1.0] * 5, "targets": 0}, "whole number of rows"),
    ("LinearRegressor", {"coefficients": [1.0] * 5, "post_transform": "X"}, "no such post"),
    ("LinearClassifier", {"coefficients": [1.0] * 5}, "Class labels are needed"),
    ("LinearClassifier", {"coefficients": [1.0] * 15, "classlabels_ints": [1, 2, 3],
                          "intercepts": [1.0, 2.0]}, "an intercept for each score"),
    ("SVMRegressor", {"coefficients": [1.0], "n_supports": 1, "support_vectors": [1.0] * 5,
                      "kernel_type": "CUBIC"}, "no such kernel_type"),
    ("SVMRegressor", {"coefficients": [1.0], "n_supports": 1, "support_vectors": [1.0] * 5,
                      "kernel_params": [1.0]}, "gamma, coef0 and degree"),
    ("SVMClassifier", svc(coefficients=[1.0]), "coefficients of all vectors"),
    ("SVMClassifier", svc(rho=[0.0, 0.0]), "rho must hold a number for each pair"),
    ("SVMClassifier", svc(prob_a=[1.0]), "prob_b must hold"),
    ("SVMClassifier", svc(vectors_per_class=[1, -1]), "vectors_per_class"),
    ("SVMClassifier", svc(support_vectors=[1.0] * 8), "rows of 4 numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "attributes", "text"), BAD)
def test_errors(op_type, attributes, text):
    outputs = 2 if op_type.endswith("Classifier") else 1
    with pytest.raises(InvalidGraph, match=text) as error:
        run_ml(op_type, [X], outputs=outputs, **attributes)
    assert "node it" in str(error.value)
