"""Losses: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss (ONNX operator spec)."""

from __future__ import annotations

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.ranges import row_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.normalisation import log_softmax_over
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_shape,
    cast,
    compute,
)
from sardonyx.tensor.scalar import Scalar

_REDUCTIONS = ("none", "sum", "mean")


def _likelihood_loss(
    where: str,
    x: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    ignore_index: int | None,
    reduction: str,
) -> Tensor:
    """What the logarithms of probabilities `x`, (N, C, ...), say against the labels, (N, ...).

    The mean is weighted: elements that are ignored do not count.
    """
    if x.rank < 2:
        raise InvalidGraph(message(where, "There is no axis of classes", got=f"rank {x.rank}"))
    if reduction not in _REDUCTIONS:
        raise InvalidGraph(
            message(where, "There is no such reduction", expected=", ".join(_REDUCTIONS),
                    got=reduction)
        )  # fmt: skip
    classes = x.shape[1]
    assume_shape(labels.shape, (x.shape[0], *x.shape[2:]), where, "The tensor of labels")
    if weight is not None:
        assume_shape(weight.shape, (classes,), where, "The weight")
    wide = accumulator(x.dtype)

    def parts(at: tuple[Dim, ...]) -> tuple[Scalar, Scalar]:
        """The weight and the loss of one element."""
        label = scalar.cast(scalar.load(labels, at), dtypes.INT64)
        ignored: Scalar | None = None
        if ignore_index is not None:
            ignored = scalar.compare("eq", label, ignore_index)
            label = scalar.select(ignored, 0, label)  # it may be no class at all
        chosen = row_in(label, "labels", classes)
        factor = scalar.constant(1.0, wide)
        if weight is not None:
            factor = scalar.cast(scalar.load(weight, (chosen,)), wide)
        loss = -scalar.cast(scalar.load(x, (at[0], chosen, *at[1:])), wide)
        if weight is not None:
            loss = loss * factor
        if ignored is not None:
            factor = scalar.select(ignored, 0.0, factor)
            loss = scalar.select(ignored, 0.0, loss)
        return factor, loss

    losses = compute(labels.shape, lambda *at: parts(at)[1])
    if reduction == "none":
        return losses
    total = losses.sum()
    if reduction == "sum":
        return total
    return total / compute(labels.shape, lambda *at: parts(at)[0]).sum()


@op("NegativeLogLikelihoodLoss", 12, 13, 22)
def negative_log_likelihood_loss_12(
    x: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Minus the logarithms of the probabilities of the labels."""
    where = "NegativeLogLikelihoodLoss"
    return cast(_likelihood_loss(where, x, labels, weight, ignore_index, reduction), x.dtype)


@op("SoftmaxCrossEntropyLoss", 12, 13)
def softmax_cross_entropy_loss_12(
    x: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    """(the loss of the softmax of scores, its logarithm)."""
    where = "SoftmaxCrossEntropyLoss"
    if x.rank < 2:
        raise InvalidGraph(message(where, "There is no axis of classes", got=f"rank {x.rank}"))
    logarithms = log_softmax_over(cast(x, accumulator(x.dtype)), (1,))
    loss = _likelihood_loss(where, logarithms, labels, weight, ignore_index, reduction)
    return cast(loss, x.dtype), cast(logarithms, x.dtype)
