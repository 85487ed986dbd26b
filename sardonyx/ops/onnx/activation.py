"""Activations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ops.core.registry import CONSUMED_INPUTS, op
from sardonyx.tensor import language as t
from sardonyx.tensor.tensor import Tensor


@op("Relu", 1, 6, 13, 14, removed=CONSUMED_INPUTS)
def relu_1(x: Tensor, *, consumed_inputs: Sequence[int] = ()) -> Tensor:
    """max(x, 0)."""
    return t.maximum(x, 0)


@op("LeakyRelu", 1, 6, 16, removed=CONSUMED_INPUTS)
def leaky_relu_1(x: Tensor, *, alpha: float = 0.01, consumed_inputs: Sequence[int] = ()) -> Tensor:
    """x, scaled where negative."""
    return t.where(x < 0, x * alpha, x)


@op("PRelu", 1, 6, removed=CONSUMED_INPUTS)
def prelu_1(x: Tensor, slope: Tensor, *, consumed_inputs: Sequence[int] = ()) -> Tensor:
    """x, scaled where negative by one number, or by one for each channel."""
    if slope.rank == 1 and slope.shape != (1,) and x.rank > 1:
        t.assume_shape(slope.shape, x.shape[1:2], "PRelu", "The slope")
        slope = t.unsqueeze(slope, range(1, x.rank - 1))
    return prelu_7(x, slope)


@op("PRelu", 7, 9, 16)
def prelu_7(x: Tensor, slope: Tensor) -> Tensor:
    """x, scaled by a tensor where negative."""
    t.assume_broadcast(slope.shape, x.shape, "PRelu", "The slope")
    return t.where(x < 0, x * slope, x)


@op("ThresholdedRelu", 10, 22)
def thresholded_relu_10(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x where above alpha, else 0."""
    return t.where(x > alpha, x, 0)


@op("Elu", 1, 6, 22, removed=CONSUMED_INPUTS)
def elu_1(x: Tensor, *, alpha: float = 1.0, consumed_inputs: Sequence[int] = ()) -> Tensor:
    """alpha * (exp(x) - 1) where negative."""
    return t.where(x < 0, t.expm1(x) * alpha, x)


@op("Selu", 1)
def selu_1(
    x: Tensor,
    *,
    alpha: float = 1.6732,
    gamma: float = 1.0507,
    consumed_inputs: Sequence[int] = (),
) -> Tensor:
    """gamma times Elu, with constants of fewer digits."""
    return selu_6(x, alpha=alpha, gamma=gamma)


@op("Selu", 6, 22)
def selu_6(
    x: Tensor, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805
) -> Tensor:
    """gamma times Elu."""
    return t.where(x <= 0, t.expm1(x) * alpha, x) * gamma


@op("Celu", 12)
def celu_12(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""
    return t.maximum(x, 0) + t.minimum(t.expm1(x / alpha) * alpha, 0)


@op("HardSigmoid", 1, 6, 22, removed=CONSUMED_INPUTS)
def hard_sigmoid_1(
    x: Tensor, *, alpha: float = 0.2, beta: float = 0.5, consumed_inputs: Sequence[int] = ()
) -> Tensor:
    """alpha * x + beta, kept between 0 and 1."""
    return t.clip(x * alpha + beta, 0.0, 1.0)


@op("HardSwish", 14, 22)
def hard_swish_14(x: Tensor) -> Tensor:
    """x * HardSigmoid(x) with alpha 1/6 and beta 1/2: x + 3 is exact where it is near 0."""
    return x * (t.clip(x + 3.0, 0.0, 6.0) * (1 / 6))


@op("Softplus", 1, 22)
def softplus_1(x: Tensor) -> Tensor:
    """log(1 + exp(x)), written so that it does not overflow."""
    return t.maximum(x, 0) + t.log1p(t.exp(-t.absolute(x)))


@op("Softsign", 1, 22)
def softsign_1(x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return x / (t.absolute(x) + 1.0)


@op("Gelu", 20)
def gelu_20(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x times the normal distribution's integral up to x, perhaps by tanh."""
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (t.tanh(inner) + 1.0)
    if approximate != "none":
        raise InvalidGraph(
            message("Gelu", "Bad approximation", expected="none or tanh", got=repr(approximate))
        )
    return x * 0.5 * (t.erf(x * math.sqrt(0.5)) + 1.0)


@op("Mish", 18, 22)
def mish_18(x: Tensor) -> Tensor:
    """x * tanh(Softplus(x))."""
    return x * t.tanh(softplus_1(x))


@op("Swish", 24)
def swish_24(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x * sigmoid(alpha * x)."""
    return x * t.sigmoid(x * alpha)


@op("SwiGLU", 28)
def swiglu_28(a: Tensor, b: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Swish of `a` times `b`, which have the same shape."""
    t.assume_shape(b.shape, a.shape, "SwiGLU", "The second input")
    return swish_24(a, alpha=alpha) * b


@op("Shrink", 9)
def shrink_9(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """0 near 0, else x moved toward 0 by the bias."""
    if not x.dtype.is_float:  # bias and lambd are floats
        return shrink_9(x.cast(dtypes.DOUBLE), bias=bias, lambd=lambd).cast(x.dtype)
    below = t.where(x < -lambd, x + bias, t.constant(0, x.dtype))
    return t.where(x > lambd, x - bias, below)
