"""Linear and support vector machines: LinearRegressor, LinearClassifier, SVM* (ai.onnx.ml)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
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
    real,
    transformed,
)
from sardonyx.tensor import language as t
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor, make_call

#: Limits of what a pair of classes contributes to coupled probabilities (libsvm).
_LEAST = 1e-7


def _weights(values: Sequence[float], rows: int, x: Tensor, where: str, what: str) -> Tensor:
    """A matrix [rows, features] out of a flat list; its width must be that of `x`."""
    width, rest = divmod(len(values), rows) if rows > 0 else (0, 1)
    if rest or not values:
        raise InvalidGraph(
            message(where, f"{what} must be a whole number of rows",
                    expected=f"a multiple of {rows} numbers", got=str(len(values)))
        )  # fmt: skip
    t.assume_equal(x.shape[1], width, where, f"{what} have rows of {width} numbers, not")
    return numbers(values, x.dtype, (rows, width))


def _shift(scores: Tensor, values: Sequence[float], where: str) -> Tensor:
    """Scores plus one number for each column."""
    if not values:
        return scores
    if len(values) not in (1, scores.shape[1]):
        raise InvalidGraph(
            message(where, "There must be an intercept for each score",
                    expected=str(scores.shape[1]), got=str(len(values)))
        )  # fmt: skip
    return scores + numbers(values, scores.dtype)


@op("LinearRegressor", 1, domain=ML)
def linear_regressor(
    x: Tensor,
    *,
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] = (),
    targets: int = 1,
    post_transform: str = "NONE",
) -> Tensor:
    """x @ coefficients^T + intercepts."""
    check_transform(post_transform, "LinearRegressor")
    rows = real(matrix_of(x, "LinearRegressor"))
    weights = _weights(coefficients, targets, rows, "LinearRegressor", "The coefficients")
    scores = _shift(t.matmul(rows, weights.transpose()), intercepts, "LinearRegressor")
    return transformed(scores, post_transform).cast(dtypes.FLOAT)


def two_classes(score: Tensor, transform: str, *, as_share: bool) -> Tensor:
    """Outputs [N, 2] of a score [N] that speaks for the second class.

    Args:
        score: The score.
        transform: One of `TRANSFORMS`.
        as_share: Without a transform, the first class has 1 - score, not -score.
    """
    if transform == "PROBIT" or (transform == "NONE" and as_share):
        first = t.constant(1.0, score.dtype) - score
    else:
        first = -score
    return transformed(columns(first, score), transform)


def top_class(scores: Tensor) -> Tensor:
    """The position [N] of the first best class."""
    return t.argmax(scores, 1)


@op("LinearClassifier", 1, domain=ML)
def linear_classifier(
    x: Tensor,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Tensor, Tensor]:
    """The class of the largest x @ coefficients^T + intercepts, and transformed scores.

    With two labels and one row of coefficients the score speaks for the second label where it is
    above 0; untransformed, the outputs are then (1 - score, score), as in onnxruntime.
    """
    check_transform(post_transform, "LinearClassifier")
    count, labels = labels_of(classlabels_ints, classlabels_strings, "LinearClassifier")
    rows = real(matrix_of(x, "LinearClassifier"))
    is_single = count <= 2 and (
        len(intercepts) == 1
        or (isinstance(rows.shape[1], int) and rows.shape[1] == len(coefficients))
    )
    weights = _weights(
        coefficients, 1 if is_single else count, rows, "LinearClassifier", "The coefficients"
    )
    scores = _shift(t.matmul(rows, weights.transpose()), intercepts, "LinearClassifier")
    if not is_single:
        chosen = pick_labels(labels, top_class(scores))
        return chosen, transformed(scores, post_transform).cast(dtypes.FLOAT)
    score = column(scores, 0)
    positive = score > 0
    if count == 2:
        chosen = pick_labels(labels, positive.cast(dtypes.INT64))
        outputs = two_classes(score, post_transform, as_share=True)
        return chosen, outputs.cast(dtypes.FLOAT)
    if labels.dtype is dtypes.STRING:
        raise InvalidGraph(message("LinearClassifier", "A single label must be an integer"))
    label = t.element(labels, (0,))
    chosen = t.elementwise(lambda p: scalar.select(p, label, 0), positive)
    return chosen, transformed(scores, post_transform).cast(dtypes.FLOAT)


# -- support vector machines ------------------------------------------------------------------


def _kernel_values(
    x: Tensor, vectors: Sequence[float], count: int, kind: str, parameters: Sequence[float],
    where: str,
) -> Tensor:  # fmt: skip
    """k(x_i, v_j) [N, count]: linear, gamma x.v + coef0 to a power or in tanh, or Gaussian."""
    matrix = _weights(vectors, count, x, where, "The support vectors")
    if kind not in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        raise InvalidGraph(
            message(where, "There is no such kernel_type", expected="LINEAR, POLY, RBF or SIGMOID",
                    got=repr(kind))
        )  # fmt: skip
    if parameters and len(parameters) != 3:
        what = "kernel_params must hold gamma, coef0 and degree"
        raise InvalidGraph(message(where, what, expected="3 numbers", got=str(len(parameters))))
    gamma, offset, degree = parameters or (0.0, 0.0, 0.0)
    if kind == "RBF":
        return t.exp(_squared_distances(x, vectors, count) * -gamma)
    products = t.matmul(x, matrix.transpose())
    if kind == "LINEAR":
        return products
    affine = products * gamma + offset
    return t.tanh(affine) if kind == "SIGMOID" else t.elementwise(_raised(int(degree)), affine)


def _raised(degree: int) -> Callable[[Scalar], Scalar]:
    def body(value: Scalar) -> Scalar:
        if not 0 <= degree <= 8:
            return scalar.binary("pow", value, float(degree))
        result = scalar.constant(1.0, value.dtype)
        for _ in range(degree):
            result = value * result
        return result

    return body


def _squared_distances(x: Tensor, vectors: Sequence[float], count: int) -> Tensor:
    """|x_i - v_j|^2 as |x|^2 - 2 x.v + |v|^2, by one product.

    Everything is moved by the vectors' mean first, so that the three terms are not much larger
    than their sum.
    """
    exact = np.asarray(vectors, np.float64).reshape(count, -1)
    mean = exact.mean(0)
    moved = exact - mean
    matrix = numbers(moved.reshape(-1), x.dtype, moved.shape)
    norms = numbers((moved * moved).sum(1), x.dtype)
    centred = x - numbers(mean, x.dtype)
    products = t.matmul(centred, matrix.transpose())
    own = (centred * centred).sum(1, keepdims=True)
    return t.maximum(products * -2.0 + norms + own, 0.0)


@op("SVMRegressor", 1, domain=ML)
def svm_regressor(
    x: Tensor,
    *,
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
) -> Tensor:
    """The sum of coefficients times kernel values, plus rho; its sign for one class."""
    where = "SVMRegressor"
    check_transform(post_transform, where)
    rows = real(matrix_of(x, where))
    if n_supports > 0:
        values = _kernel_values(
            rows, support_vectors, n_supports, kernel_type, kernel_params, where
        )
    else:
        values = rows
    weights = _weights(coefficients, 1, values, where, "The coefficients")
    scores = _shift(t.matmul(values, weights.transpose()), rho[:1], where)
    if one_class:
        scores = t.where(scores > 0, t.constant(1.0, scores.dtype), -1.0)
    return transformed(scores, post_transform).cast(dtypes.FLOAT)


@op("SVMClassifier", 1, domain=ML)
def svm_classifier(
    x: Tensor,
    *,
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Sequence[float] = (),
    prob_b: Sequence[float] = (),
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (),
) -> tuple[Tensor, Tensor]:
    """One machine for each pair of classes, and votes; or one product for each class.

    The second output holds probabilities if prob_a and prob_b are given, else the decisions: one
    for each pair, and (-d, d) of a single one.
    """
    where = "SVMClassifier"
    check_transform(post_transform, where)
    count, labels = labels_of(classlabels_ints, classlabels_strings, where)
    rows = real(matrix_of(x, where))
    if not any(vectors_per_class):
        weights = _weights(coefficients, count, rows, where, "The coefficients")
        scores = _shift(t.matmul(rows, weights.transpose()), rho[:1], where)
        chosen = pick_labels(labels, top_class(scores))
        return chosen, transformed(scores, post_transform).cast(dtypes.FLOAT)
    pairs = _pairs(count)
    _check_pairs(where, count, len(pairs), vectors_per_class, rho, prob_a, prob_b)
    total = sum(vectors_per_class)
    values = _kernel_values(rows, support_vectors, total, kernel_type, kernel_params, where)
    decisions = t.matmul(values, _pair_weights(coefficients, vectors_per_class, rows.dtype, where))
    decisions = _shift(decisions, rho, where)
    votes = top_class(_votes(decisions, count, pairs))
    if prob_a:
        shares = _coupled(decisions, prob_a, prob_b, count)
        outputs = transformed(shares, post_transform)
    elif len(pairs) == 1:
        outputs = two_classes(column(decisions, 0), post_transform, as_share=False)
    else:
        outputs = transformed(decisions, post_transform)
    return pick_labels(labels, votes), outputs.cast(dtypes.FLOAT)


def _pairs(count: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def _check_pairs(
    where: str,
    count: int,
    pairs: int,
    vectors: Sequence[int],
    rho: Sequence[float],
    prob_a: Sequence[float],
    prob_b: Sequence[float],
) -> None:
    if count < 2 or len(vectors) != count or min(vectors) < 0:
        raise InvalidGraph(
            message(where, "vectors_per_class must hold a number for each of at least two labels",
                    expected=f"{count} numbers", got=repr(tuple(vectors)))
        )  # fmt: skip
    for name, values in (("rho", rho), ("prob_a", prob_a), ("prob_b", prob_b)):
        optional = name != "rho" and not prob_a and not prob_b
        if len(values) != pairs and not optional:
            what = f"{name} must hold a number for each pair of classes"
            raise InvalidGraph(
                message(where, what, expected=f"{pairs} numbers", got=str(len(values)))
            )


def _pair_weights(
    coefficients: Sequence[float], vectors: Sequence[int], dtype: DType, where: str
) -> Tensor:
    """[vectors, pairs]: the machine of classes i < j weighs the vectors of both, and no others.

    libsvm stores [classes - 1, vectors]: row j - 1 for those of i, row i for those of j.
    """
    classes, total = len(vectors), sum(vectors)
    if len(coefficients) != (classes - 1) * total:
        raise InvalidGraph(
            message(where, "There must be coefficients of all vectors for all classes but one",
                    expected=f"{(classes - 1) * total} numbers", got=str(len(coefficients)))
        )  # fmt: skip
    given = np.asarray(coefficients, np.float64).reshape(classes - 1, total)
    starts = np.concatenate([[0], np.cumsum(vectors)])
    pairs = _pairs(classes)
    found = np.zeros((total, len(pairs)))
    for number, (i, j) in enumerate(pairs):
        of_i, of_j = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        found[of_i, number] = given[j - 1, of_i]
        found[of_j, number] = given[i, of_j]
    return numbers(found.reshape(-1), dtype, found.shape)


def _votes(decisions: Tensor, count: int, pairs: list[tuple[int, int]]) -> Tensor:
    """How many pairs each class has won, [N, count]: a decision above 0 is for the first one."""
    wins = np.zeros((len(pairs), count), np.int32)
    losses = np.zeros((len(pairs), count), np.int32)
    for number, (i, j) in enumerate(pairs):
        wins[number, i] = losses[number, j] = 1
    first, second = (numbers(a.reshape(-1), dtypes.INT32, a.shape) for a in (wins, losses))

    def body(n: Dim, k: Dim, pair: Dim) -> Scalar:
        positive = scalar.load(decisions, (n, pair)) > 0.0
        return scalar.select(
            positive, scalar.load(first, (pair, k)), scalar.load(second, (pair, k))
        )

    return t.compute((decisions.shape[0], count, len(pairs)), body).sum(2)


def _coupled(
    decisions: Tensor, prob_a: Sequence[float], prob_b: Sequence[float], count: int
) -> Tensor:
    """Probabilities [N, count] of the classes out of those of pairs (Platt; Wu, Lin and Weng)."""
    a, b = numbers(prob_a, decisions.dtype), numbers(prob_b, decisions.dtype)
    powers = decisions * a + b
    pairwise = t.clip(t.sigmoid(-powers), _LEAST, 1.0 - _LEAST)
    (shares,) = make_call("couple", (pairwise,), (((decisions.shape[0], count), decisions.dtype),))
    return shares
