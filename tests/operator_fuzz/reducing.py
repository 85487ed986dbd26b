"""Reductions, running sums and normalisations over axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.operator_fuzz.draw import Array, Draw, is_float
from tests.operator_fuzz.instance import Instance, makes
from tests.operator_fuzz.layout import INT64, axis_for
from tests.operator_fuzz.oracle import Use, reference


def _reduction(draw: Draw, shape: list[int], x: Array) -> Instance:
    rank = len(shape)
    axes = draw.order(rank)[: draw.integer(0, rank)]
    if draw.version >= 11:
        axes = [a - rank if draw.chance(0.3) else a for a in axes]
    attributes: dict[str, Any] = {"keepdims": draw.maybe(draw.integer(0, 1))}
    if not draw.has_attribute("noop_with_empty_axes"):
        return Instance([x], {**attributes, "axes": axes or None})
    attributes["noop_with_empty_axes"] = draw.maybe(draw.integer(0, 1))
    given = np.array(axes, INT64) if axes or draw.chance(0.3) else None
    return Instance([x, given], attributes)


@makes("ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum "
       "ReduceSumSquare")  # fmt: skip
def reduced(draw: Draw) -> Instance:
    name = draw.schema.name
    empty = draw.chance(0.1) and name in ("ReduceSum", "ReduceL1", "ReduceProd", "ReduceSumSquare")
    shape = draw.shape(0, 5, low=0 if empty else 1)
    dtype = draw.input_type(0)
    low, high = {"ReduceLogSum": (0.25, 4), "ReduceProd": (0.5, 1.5)}.get(name, (-4, 4))
    if not is_float(dtype):
        low, high = {"ReduceLogSum": (1, 4), "ReduceProd": (-2, 2)}.get(name, (-4, 4))
    return _reduction(draw, shape, draw.values(shape, dtype, low, high))


@makes("ReduceMax ReduceMin", exact=True)
def extremes(draw: Draw) -> Instance:
    shape = draw.shape(0, 5, low=0 if draw.version >= 20 and draw.chance(0.2) else 1)
    return _reduction(draw, shape, draw.values(shape, draw.input_type(0), -30, 30))


@makes("ArgMax ArgMin", exact=True)
def places(draw: Draw) -> Instance:
    shape = draw.shape(1, 5, low=1)
    x = draw.values(shape, draw.input_type(0), -3, 3)
    last = draw.maybe(draw.integer(0, 1)) if draw.has_attribute("select_last_index") else None
    axis = draw.maybe(axis_for(draw, len(shape)), 0.8)
    keep = draw.maybe(draw.integer(0, 1))
    return Instance([x], {"axis": axis, "keepdims": keep, "select_last_index": last})


@makes("CumSum CumProd", steady=[1])
def running(draw: Draw) -> Instance:
    shape = draw.shape(1, 4)
    x = draw.values(shape, draw.input_type(0), -2, 2)
    axis = np.asarray(draw.axis(len(shape)), draw.input_type(1))
    attributes = {k: draw.maybe(draw.integer(0, 1)) for k in ("exclusive", "reverse")}
    return Instance([x, axis], attributes)


def _soft_axis(draw: Draw, rank: int) -> int | None:
    """An axis; the former default of 1 is none of a vector's."""
    axis = axis_for(draw, rank)
    return axis if rank == 1 and draw.version < 13 else draw.maybe(axis, 0.8)


@makes("Softmax LogSoftmax", absolute=1, coarse=True)  # 1 + small, whose logarithm is small
def soft(draw: Draw) -> Instance:
    shape = draw.shape(1, 5, low=0 if draw.chance(0.1) else 1)
    x = draw.reals(shape, draw.input_type(0), 3)
    return Instance([x], {"axis": _soft_axis(draw, len(shape))})


@makes("Hardmax", exact=True)
def hard(draw: Draw) -> Instance:
    shape = draw.shape(1, 5, low=1)
    x = draw.values(shape, draw.input_type(0))
    return Instance([x], {"axis": _soft_axis(draw, len(shape))})


@reference("Softmax LogSoftmax Hardmax", until=12)
def flattened(use: Use, x: Array) -> Array:
    """The input is seen as a matrix, split at the axis."""
    axis = use.attributes["axis"] % x.ndim if x.ndim > 1 or use.attributes["axis"] < 1 else 1
    matrix = x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))
    if use.node.op_type == "Hardmax":
        result = np.zeros_like(matrix)
        result[np.arange(len(matrix)), np.argmax(matrix, 1)] = 1
        return result.reshape(x.shape)
    if not matrix.size:
        return x
    shifted = matrix - matrix.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return (logs if use.node.op_type == "LogSoftmax" else np.exp(logs)).reshape(x.shape)


@reference("Softmax LogSoftmax", since=13)
def along_an_axis(use: Use, x: Array) -> Array:
    if not x.size:
        return x
    axis = use.attributes["axis"]
    shifted = x - x.max(axis, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    return logs if use.node.op_type == "LogSoftmax" else np.exp(logs)


_REDUCTIONS = {
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(np.square(x), **k)),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **k: np.sum(np.square(x), **k),
}


@reference(" ".join(_REDUCTIONS))
def reduction(use: Use, x: Array, axes: Array | None = None) -> Array:
    """In double; of integers the result is cut off to the type."""
    given = use.attributes.get("axes") if axes is None else [int(a) for a in axes]
    if not given:
        given = [] if use.attributes.get("noop_with_empty_axes") else range(x.ndim)
    along = tuple(a % x.ndim for a in given)
    name = use.node.op_type
    whole = x.dtype.kind in "iu"
    if name in ("ReduceMax", "ReduceMin"):
        if 0 in [x.shape[a] for a in along]:
            shape = [1 if a in along else s for a, s in enumerate(x.shape)]
            least = name == "ReduceMax"
            if x.dtype == bool:
                found = np.full(shape, not least)
            elif whole:
                limits = np.iinfo(x.dtype)
                found = np.full(shape, limits.min if least else limits.max, x.dtype)
            else:
                found = np.full(shape, -np.inf if least else np.inf)
            return found if use.attributes["keepdims"] else found.squeeze(along)
        return np.asarray(
            _REDUCTIONS[name](x, axis=along, keepdims=bool(use.attributes["keepdims"]))
        )
    if whole:
        if name in ("ReduceSum", "ReduceProd", "ReduceSumSquare", "ReduceL1"):
            work = x.astype(np.int64)
        else:
            work = x.astype(np.float64)
    else:
        work = x
    found = _REDUCTIONS[name](work, axis=along, keepdims=bool(use.attributes["keepdims"]))
    return np.asarray(found).astype(x.dtype) if whole else np.asarray(found)
