"""Losses against formulas in double."""

import numpy as np
import pytest

from sardonyx.base.errors import InvalidGraph, RuntimeException
from tests.support.ops import check_op

RNG = np.random.default_rng(12)


def loss_of(logarithms, labels, weight, ignore, reduction):
    """The definition, one element after the other (ONNX operator spec)."""
    weight = np.ones(logarithms.shape[1]) if weight is None else weight.astype(np.float64)
    losses, factors = np.zeros(labels.shape), np.zeros(labels.shape)
    for at in np.ndindex(*labels.shape):
        label = int(labels[at])
        if label != ignore:
            factors[at] = weight[label]
            losses[at] = -logarithms[(at[0], label, *at[1:])] * weight[label]
    if reduction == "none":
        return losses
    with np.errstate(invalid="ignore"):  # all may be ignored
        return np.asarray(losses.sum() / (factors.sum() if reduction == "mean" else 1))


def logarithms_of(x):
    e = np.exp(x.astype(np.float64))
    return np.log(e / e.sum(1, keepdims=True))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore", [None, 1, -5])
@pytest.mark.parametrize("space", [(), (4,), (2, 3), (2, 1, 3)])
def test_losses(reduction, weighted, ignore, space):
    x = RNG.standard_normal((3, 5, *space)).astype(np.float32)
    labels = RNG.integers(0, 5, (3, *space))
    if ignore is not None:
        labels[1] = ignore
    weight = RNG.random(5).astype(np.float32) if weighted else None
    attributes = {"reduction": reduction}
    if ignore is not None:
        attributes["ignore_index"] = ignore
    inputs = [x, labels] if weight is None else [x, labels, weight]

    own = loss_of(x.astype(np.float64), labels, weight, ignore, reduction)
    for opset in (12, 13, 22):
        expected = [own.astype(np.float32)]
        check_op("NegativeLogLikelihoodLoss", inputs, attributes, opset, expected=expected)
    logarithms = logarithms_of(x)
    loss = loss_of(logarithms, labels, weight, ignore, reduction)
    expected = [loss.astype(np.float32), logarithms.astype(np.float32)]
    check_op("SoftmaxCrossEntropyLoss", inputs, attributes, 13, outputs=2, expected=expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_types(dtype):
    x = RNG.standard_normal((6, 50)).astype(dtype)
    labels = RNG.integers(0, 50, 6, dtype=np.int32)
    loss = loss_of(logarithms_of(x), labels, None, None, "mean").astype(dtype)
    check_op("SoftmaxCrossEntropyLoss", [x, labels], {}, 13, expected=[loss])


def test_large_scores_do_not_overflow():
    x = np.array([[1000.0, 0.0]], np.float32)
    labels = np.array([1])
    check_op("SoftmaxCrossEntropyLoss", [x, labels], {}, 13, expected=[np.float32(1000)])


def test_refusals():
    x, labels = np.ones((2, 3), np.float32), np.array([0, 1])
    op_type = "NegativeLogLikelihoodLoss"
    for inputs, attributes, text in (
        ([x, labels], {"reduction": "max"}, "no such reduction"),
        ([x, labels[:1]], {}, "labels has the wrong shape"),
        ([x, labels, np.ones(2, np.float32)], {}, "weight has the wrong shape"),
        ([x[0], labels[0]], {}, "no axis of classes"),
    ):
        with pytest.raises(InvalidGraph, match=text):
            check_op(op_type, inputs, attributes, 13, expected=[], symbolic=False)
    with pytest.raises(RuntimeException):
        check_op(op_type, [x, labels + 2], {}, 13, expected=[])
