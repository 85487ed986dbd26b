"""Operators of training: steps of optimisers, and Gradient (ONNX: ai.onnx.preview.training)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import dtypes, errors
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.core.scope import Scope
from sardonyx.tensor.differentiate import gradients
from sardonyx.tensor.language import (
    Tensor,
    assume_shape,
    cast,
    constant,
    power,
    sqrt,
    where,
)
from sardonyx.tensor.rewriting import substituted
from sardonyx.tensor.tensor import buffer

DOMAIN = "ai.onnx.preview.training"

#: One tensor with its gradient and what is kept of former steps -> the new tensor and the latter.
_Update = Callable[..., tuple[Tensor, ...]]


def _updated(
    where_: str, given: Sequence[Tensor], each: int, update: _Update
) -> tuple[Tensor, ...]:
    """New tensors, then what is kept of each: of inputs in groups, as many as there are tensors.

    Args:
        where_: The operator.
        given: All tensors, then all gradients, then what is kept, kind by kind.
        each: How many groups there are.
        update: The step for one tensor.
    """
    if not given or len(given) % each:
        what = f"Its {len(given)} tensors are not {each} for each that is optimised"
        raise InvalidGraph(message(where_, what))
    count = len(given) // each
    results = []
    for k in range(count):
        x, *others = given[k::count]
        for other in others:
            assume_shape(other.shape, x.shape, where_, "What belongs to a tensor")
        results.append(update(x, *others))
    return tuple(result[kind] for kind in range(len(results[0])) for result in results)


def _scalar(where_: str, x: Tensor, dtype: DType) -> Tensor:
    return cast(scalar_of(x, where_), dtype)


@op("Adagrad", 1, domain=DOMAIN)
def adagrad_1(
    rate: Tensor,
    count: Tensor,
    *given: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Tensor, ...]:
    """Steps by gradients over the root of the sum of their squares (Duchi et al., 2011)."""

    def update(x: Tensor, g: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        r, t = (_scalar("Adagrad", v, x.dtype) for v in (rate, count))
        gradient = x * norm_coefficient + g
        squares = h + gradient * gradient
        step = r / (t * decay_factor + 1.0)
        return x - gradient * step / (sqrt(squares) + epsilon), squares

    return _updated("Adagrad", given, 3, update)


@op("Adam", 1, domain=DOMAIN)
def adam_1(
    rate: Tensor,
    count: Tensor,
    *given: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Tensor, ...]:
    """Steps by running means of gradients and of their squares (Kingma and Ba, 2014)."""

    def update(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        r, t = (_scalar("Adam", s, dtypes.DOUBLE) for s in (rate, count))
        gradient = x * norm_coefficient + g
        means = v * alpha + gradient * (1 - alpha)
        squares = h * beta + gradient * gradient * (1 - beta)
        corrected = r * sqrt(1.0 - _power_of(beta, t)) / (1.0 - _power_of(alpha, t))
        step = cast(where(t > 0.0, corrected, r), x.dtype)
        moved = x - means / (sqrt(squares) + epsilon) * step
        return moved * (1 - norm_coefficient_post), means, squares

    return _updated("Adam", given, 4, update)


def _power_of(base: float, exponent: Tensor) -> Tensor:
    return power(exponent * 0.0 + base, exponent)


@op("Momentum", 1, domain=DOMAIN)
def momentum_1(
    rate: Tensor,
    count: Tensor,
    *given: Tensor,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Tensor, ...]:
    """Steps by gradients that are summed up and fade; with `nesterov`, of a step ahead."""
    if mode not in ("standard", "nesterov"):
        raise InvalidGraph(
            message("Momentum", "Bad mode", expected="standard or nesterov", got=mode)
        )

    def update(x: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        r, t = (_scalar("Momentum", s, x.dtype) for s in (rate, count))
        gradient = x * norm_coefficient + g
        momentum = v * alpha + gradient * where(t > 0.0, constant(beta, x.dtype), 1.0)
        step = gradient + momentum * alpha if mode == "nesterov" else momentum
        return x - step * r, momentum

    return _updated("Momentum", given, 3, update)


# -- gradients --------------------------------------------------------------------------------


@op("Gradient", 1, domain=DOMAIN, flags=("strings",))
def gradient_1(
    *given: Tensor, xs: Sequence[str], y: str, zs: Sequence[str] = (), scope: Scope
) -> tuple[Tensor, ...]:
    """The gradient of the sum of `y` by each of `xs`, at the given values of `xs` and `zs`.

    After the values come the tensors that `xs`, `zs` and `y` name (passes/link_gradients.py).
    """
    count = len(xs) + len(zs)
    if len(given) != 2 * count + 1:
        what = f"It names {count} tensors in xs and zs, and has other inputs"
        raise InvalidGraph(message("Gradient", what))
    values, named, target = given[:count], given[count:-1], given[-1]
    for name, value, tensor in zip((*xs, *zs), values, named, strict=True):
        assume_shape(value.shape, tensor.shape, "Gradient", f"The value of {name}")
        if value.dtype is not tensor.dtype:
            what = f"The value of {name} has another type"
            expected, got = str(tensor.dtype), str(value.dtype)
            raise InvalidGraph(message("Gradient", what, expected=expected, got=got))
    for name, tensor in zip((*xs, y), (*named[: len(xs)], target), strict=True):
        if not tensor.dtype.is_float:
            what = f"There is no derivative where {name} is {tensor.dtype}"
            raise InvalidGraph(message("Gradient", what))
    if scope.by_shapes:
        # What the target is made of is not known: only shapes are asked for.
        return tuple(
            buffer((scope.name, "gradient", k), x.shape, x.dtype)
            for k, x in enumerate(named[: len(xs)])
        )
    _check_apart((*xs, *zs), named, values)
    found = gradients(target, named[: len(xs)], named[len(xs) :])
    other = {n: v for n, v in zip(named, values, strict=True) if n is not v}
    return tuple(substituted(found, other)) if other else tuple(found)


def _check_apart(names: Sequence[str], named: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Refuse two names of one tensor: what reads it as the one, and what as the other, is lost."""
    seen: dict[Tensor, tuple[str, Tensor]] = {}
    for name, tensor, value in zip(names, named, values, strict=True):
        other, given = seen.setdefault(tensor, (name, value))
        if other != name or given is not value:
            what = f"{other} and {name} are the same tensor, and so not independent"
            raise errors.NotImplemented(message("Gradient", what))
