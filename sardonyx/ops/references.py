"""What the special kernels of these operators mean, for the evaluator of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.tensor.arithmetic import Array
from sardonyx.tensor.evaluate import reference
from sardonyx.tensor.tensor import Call

_COMBINE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@reference("scan")
def scan(call: Call, operands: Sequence[Array]) -> Sequence[Array]:
    """Running sums or products along the last axis, or along the one that a second operand says.

    Attributes: kind, exclusive, reverse.
    """
    axis = int(operands[1].reshape(-1)[0]) if len(operands) > 1 else -1
    x = np.moveaxis(operands[0], axis, -1)
    reverse = bool(call.attribute("reverse"))
    rows = x[..., ::-1] if reverse else x
    running, start = (np.cumsum, 0) if call.attribute("kind") == "sum" else (np.cumprod, 1)
    result = running(rows, axis=-1, dtype=x.dtype)
    if call.attribute("exclusive"):
        first = np.full_like(result[..., :1], start)
        result = np.concatenate([first, result[..., :-1]], axis=-1)
    return [np.moveaxis(result[..., ::-1] if reverse else result, -1, axis)]


@reference("compact")
def compact(call: Call, operands: Sequence[Array]) -> Sequence[Array]:
    """Positions of what is true along one axis."""
    return [np.flatnonzero(operands[0]).astype(np.int64)]


@reference("top_k")
def top_k(call: Call, operands: Sequence[Array]) -> Sequence[Array]:
    """(values, positions) of the k extremes along `axis`, ties in favour of lower positions."""
    (x,) = operands
    axis: int = call.attribute("axis")  # type: ignore[assignment]
    count: int = call.all_outputs[0][0][axis]  # type: ignore[assignment]
    ranked = np.argsort(x, axis=axis, kind="stable")
    if call.attribute("largest"):  # backwards twice: equal elements keep their order
        backwards = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        ranked = x.shape[axis] - 1 - backwards
    ranked = np.take(ranked, range(count), axis)
    return [np.take_along_axis(x, ranked, axis), ranked.astype(np.int64)]


@reference("scatter_elements")
def scatter_elements(call: Call, operands: Sequence[Array]) -> Sequence[Array]:
    """A copy of the first operand, changed at `positions` along `axis`; attribute reduction."""
    x, positions, updates = operands
    result = x.copy()
    axis: int = call.attribute("axis")  # type: ignore[assignment]
    for at in np.ndindex(*positions.shape):
        target = (*at[:axis], int(positions[at]), *at[axis + 1 :])
        _put(result, target, updates[at], call)
    return [result]


@reference("scatter_nd")
def scatter_nd(call: Call, operands: Sequence[Array]) -> Sequence[Array]:
    """A copy of the first operand, changed at index tuples; attributes depth, reduction."""
    x, positions, updates = operands
    result = x.copy()
    for at in np.ndindex(*positions.shape[:-1]):
        _put(result, tuple(int(i) for i in positions[at]), updates[at], call)
    return [result]


def _put(result: Array, at: tuple[int, ...], value: Array, call: Call) -> None:
    reduction = str(call.attribute("reduction"))
    if reduction == "none":
        result[at] = value
    else:
        result[at] = _COMBINE[reduction](result[at], value)
