"""BatchNormalization, with statistics that are given, or with those of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.ops.core.registry import CONSUMED_INPUTS, op
from sardonyx.ops.onnx.normalisation import deviations, per_channel
from sardonyx.tensor.language import (
    Tensor,
    accumulator,
    assume_shape,
    cast,
    mean,
    reshape,
    rsqrt,
    unsqueeze,
)
from sardonyx.tensor.tensor import Shape


def _check(x: Tensor, parts: Sequence[Tensor], *, spatial: bool = True) -> None:
    """Refuse statistics that are not one for each channel, or, if not `spatial`, activation.

    Raises:
        InvalidGraph: They are not.
    """
    where = "BatchNormalization"
    if x.rank == 0:
        raise InvalidGraph(message(where, "It needs at least one axis"))
    channels: Shape = x.shape[1:2] or (1,)
    wanted = channels if spatial or x.rank == 1 else x.shape[1:]
    for name, part in zip(("scale", "bias", "mean", "variance"), parts, strict=True):
        assume_shape(part.shape, wanted, where, f"Its {name}")


def _batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, average: Tensor, variance: Tensor, epsilon: float
) -> Tensor:
    # One factor and one summand per channel: the rest is a multiplication and an addition.
    wide = accumulator(x.dtype)
    factor = cast(scale, wide) * rsqrt(cast(variance, wide) + epsilon)
    summand = cast(bias, wide) - cast(average, wide) * factor
    if factor.rank > 1:  # statistics per activation, of the versions before 9
        factor, summand = unsqueeze(factor, [0]), unsqueeze(summand, [0])
    elif x.rank > 1:
        factor, summand = per_channel(factor, x), per_channel(summand, x)
    return cast(cast(x, wide) * factor + summand, x.dtype)


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch normalised by its own statistics, and what training keeps of them."""

    result: Tensor
    running_mean: Tensor
    running_variance: Tensor
    mean: Tensor
    variance: Tensor


def _trained_batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor],
    epsilon: float,
    momentum: float,
) -> _Batch:
    average, variance = running
    wide = accumulator(x.dtype)
    per_activation = scale.rank > 1  # in versions before 9
    axes = (0,) if per_activation else (0, *range(2, x.rank))
    batch_mean, centred, inverse = deviations(cast(x, wide), axes, epsilon)

    def along(values: Tensor) -> Tensor:
        wider = cast(values, wide)
        return unsqueeze(wider, [0]) if per_activation else per_channel(wider, x)

    def kept(old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        kind = old.dtype if old.dtype.bits > wide.bits else wide
        own = cast(reshape(new, old.shape), kind)
        mixed = cast(old, kind) * momentum + own * (1.0 - momentum)
        return cast(mixed, old.dtype), cast(own, old.dtype)

    result = cast(centred * inverse * along(scale) + along(bias), x.dtype)
    running_mean, own_mean = kept(average, batch_mean)
    running_variance, own_variance = kept(variance, mean(centred * centred, axes))
    return _Batch(result, running_mean, running_variance, own_mean, own_variance)


@op("BatchNormalization", 1, 6, removed=CONSUMED_INPUTS)
def batch_normalization_1(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    average: Tensor,
    variance: Tensor,
    *,
    output_count: int,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    is_test: int = 0,
    spatial: int = 1,
    consumed_inputs: Sequence[int] = (),
) -> Tensor | tuple[Tensor, ...]:
    """As later; a test, if it is said to be one."""
    return batch_normalization_7(
        x, scale, bias, average, variance, output_count=1 if is_test else output_count,
        epsilon=epsilon, momentum=momentum, spatial=spatial,
    )  # fmt: skip


@op("BatchNormalization", 7, 9, removed={"spatial": 9})
def batch_normalization_7(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    average: Tensor,
    variance: Tensor,
    *,
    output_count: int,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
) -> Tensor | tuple[Tensor, ...]:
    """With the given statistics, or with those of the batch if these are asked for, too."""
    _check(x, (scale, bias, average, variance), spatial=bool(spatial))
    if output_count == 1:
        return _batch_norm(x, scale, bias, average, variance, epsilon)
    found = _trained_batch_norm(x, scale, bias, (average, variance), epsilon, momentum)
    running = (found.running_mean, found.running_variance)
    return found.result, *running, found.mean, found.variance


@op("BatchNormalization", 14, 15)
def batch_normalization_14(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    average: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """With the given statistics, or in training mode with those of the batch."""
    _check(x, (scale, bias, average, variance))
    if not training_mode:
        return _batch_norm(x, scale, bias, average, variance, epsilon)
    found = _trained_batch_norm(x, scale, bias, (average, variance), epsilon, momentum)
    return found.result, found.running_mean, found.running_variance
