"""What the operators of ai.onnx.ml share: constants out of attributes, labels, score transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.ops.generation.generate import constant_tensor
from sardonyx.tensor import language as t
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor

#: The domain of these operators.
ML = "ai.onnx.ml"

#: Ways to turn scores into outputs, in the order in which TreeEnsemble-5 numbers them.
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

#: Scores nearer to 0 than this count as 0 for SOFTMAX_ZERO.
_ZERO = 1e-7


def numbers(
    values: Sequence[float] | np.ndarray[Any, np.dtype[Any]] | None,
    dtype: DType,
    shape: tuple[int, ...] | None = None,
) -> Tensor:
    """A constant of the numbers that an attribute holds, along one axis or in a given shape."""
    array = np.asarray([] if values is None else values, dtype.numpy)
    return constant_tensor(Constant.from_array(array if shape is None else array.reshape(shape)))


def matrix_of(x: Tensor, where: str) -> Tensor:
    """The input as rows of features, [N, F]: one axis is one row.

    Raises:
        InvalidGraph: It has another number of axes.
    """
    if x.rank == 1:
        return x.reshape(1, x.shape[0])
    if x.rank != 2:
        what = "The input must hold one row of features, or a matrix of them"
        raise InvalidGraph(message(where, what, got=str(list(x.shape))))
    return x


def real(x: Tensor) -> Tensor:
    """The type that numbers of the input's type are computed in: itself, or float of integers."""
    return x if x.dtype.is_float else x.cast(dtypes.FLOAT)


def labels_of(
    integers: Sequence[int] | None, strings: Sequence[str] | None, where: str
) -> tuple[int, Tensor]:
    """How many class labels there are, and the constant that holds them.

    Raises:
        InvalidGraph: Not exactly one of the two kinds is given.
    """
    given = [labels for labels in (integers, strings) if labels]
    if len(given) != 1:
        what = "Class labels are needed, either integers or strings"
        raise InvalidGraph(message(where, what, got=f"{len(given)} lists"))
    if strings:
        array = np.empty(len(strings), object)
        array[:] = strings
        return len(strings), constant_tensor(Constant.from_array(array, dtypes.STRING))
    return len(given[0]), numbers(integers, dtypes.INT64)


def pick_labels(labels: Tensor, chosen: Tensor) -> Tensor:
    """The label of each row, given int64 positions [N] that lie inside."""
    count = labels.shape[0]
    return t.compute(
        chosen.shape,
        lambda i: scalar.load(labels, (scalar.as_index(scalar.load(chosen, (i,)), count),)),
        labels.dtype,
    )


def check_transform(name: str, where: str) -> None:
    """Refuse a `post_transform` that does not exist.

    Raises:
        InvalidGraph: There is none of that name.
    """
    if name not in TRANSFORMS:
        raise InvalidGraph(
            message(
                where,
                "There is no such post_transform",
                expected=", ".join(TRANSFORMS),
                got=repr(name),
            )
        )


def transformed(scores: Tensor, name: str) -> Tensor:
    """Scores [N, K] under one of `TRANSFORMS`."""
    if name == "SOFTMAX":
        powers = t.exp(scores - scores.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
    if name == "LOGISTIC":
        return t.sigmoid(scores)
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(scores)
    if name == "PROBIT":
        return t.elementwise(_probit, scores)
    return scores


def _softmax_zero(scores: Tensor) -> Tensor:
    """Softmax in which scores of 0 stay (nearly) 0; 0.5 where the sum is 0."""
    highest = scores.max(1, keepdims=True)
    near = t.absolute(scores) <= _ZERO
    powers = t.where(near, scores * t.exp(-highest), t.exp(scores - highest))
    total = powers.sum(1, keepdims=True)
    return t.where(t.equal(total, 0), t.constant(0.5, scores.dtype), powers / total)


def _probit(p: Scalar) -> Scalar:
    """The quantile of the normal distribution, sqrt(2) * erfinv(2 p - 1).

    erfinv is Winitzki's approximation, as in ONNX's reference evaluator:
    sign(x) * sqrt(sqrt(v * v - w) - v), v = 2 / (0.147 pi) + log(1 - x^2) / 2, w = log / 0.147.
    """
    x = p * 2.0 - 1.0
    rest = (scalar.constant(1.0, p.dtype) - x) * (x + 1.0)
    logarithm = scalar.unary("log", rest)
    v = logarithm * 0.5 + 2.0 / (np.pi * 0.147)
    root = scalar.unary("sqrt", v * v - logarithm / 0.147)
    inverse = scalar.binary("copysign", scalar.unary("sqrt", root - v), x) * 1.41421356
    return scalar.select(scalar.compare("eq", rest, 0.0), scalar.constant(0.0, p.dtype), inverse)


def columns(*parts: Tensor) -> Tensor:
    """Vectors [N] side by side as the columns of a matrix."""
    return t.concat([part.reshape(part.shape[0], 1) for part in parts], 1)


def column(scores: Tensor, number: Dim) -> Tensor:
    """One column [N] of a matrix."""
    return t.reindex(scores, (scores.shape[0],), lambda i: (i, number))
