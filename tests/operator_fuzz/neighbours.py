"""Cheap nodes around the one that is tried: exact ones before it, continuous ones after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.operator_fuzz.draw import Array, Draw, DType

Arrays = list[Array]


@dataclass(frozen=True)
class Neighbour:
    """A node: its first input is `arrays` in each run, others are constants or more arrays."""

    op_type: str
    arrays: Arrays
    attributes: dict[str, Any]
    constants: Sequence[Array] = ()
    others: Sequence[Arrays] = ()
    others_first: bool = False


def _numeric(dtype: DType) -> bool:
    return dtype.name in ("float16", "float32", "float64")


def _negated(draw: Draw, wanted: Arrays) -> Neighbour | None:
    dtype = wanted[0].dtype
    if not (_numeric(dtype) or (dtype.kind == "i" and draw.opset >= 6)):
        return None
    return Neighbour("Neg", [np.asarray(-w) for w in wanted], {})


def _transposed(draw: Draw, wanted: Arrays) -> Neighbour | None:
    order = draw.order(wanted[0].ndim)
    back = list(np.argsort(order))
    return Neighbour("Transpose", [w.transpose(back) for w in wanted], {"perm": order})


def _squeezed(draw: Draw, wanted: Arrays) -> Neighbour | None:
    axis = draw.integer(0, wanted[0].ndim)
    arrays = [np.expand_dims(w, axis) for w in wanted]
    if draw.opset < 13:
        return Neighbour("Squeeze", arrays, {"axes": [axis]})
    return Neighbour("Squeeze", arrays, {}, [np.array([axis])])


def _sliced(draw: Draw, wanted: Arrays) -> Neighbour | None:
    if not wanted[0].ndim:
        return None
    axis = draw.integer(0, wanted[0].ndim - 1)
    if draw.opset >= 10 and draw.chance(0.4):
        arrays = [np.flip(w, axis) for w in wanted]
        low, high, step = -1, -(2**40), -1
    else:
        arrays = []
        for w in wanted:
            more = draw.values((*w.shape[:axis], 1, *w.shape[axis + 1 :]), w.dtype)
            arrays.append(np.concatenate([more, w], axis))
        low, high, step = 1, 2**40, 1
    if draw.opset < 10:
        return Neighbour("Slice", arrays, {"starts": [low], "ends": [high], "axes": [axis]})
    constants = [np.array([n]) for n in (low, high, axis, step)]
    return Neighbour("Slice", arrays, {}, constants)


def _joined(draw: Draw, wanted: Arrays) -> Neighbour | None:
    if not wanted[0].ndim or draw.opset < 4:
        return None
    axis = draw.integer(0, wanted[0].ndim - 1)
    at = draw.integer(0, min(w.shape[axis] for w in wanted))
    parts = [np.split(w, [at], axis) for w in wanted]
    rest = [p[1] for p in parts]
    return Neighbour("Concat", [p[0] for p in parts], {"axis": axis}, others=[rest])


def _arithmetic(draw: Draw, wanted: Arrays) -> Neighbour | None:
    dtype = wanted[0].dtype
    if not _numeric(dtype) or draw.opset < 7:
        return None
    op_type, back = draw.pick(
        [("Add", np.subtract), ("Sub", np.add), ("Mul", np.divide), ("Div", np.multiply)]
    )
    by = np.asarray(draw.pick([1, 2, 0.5, 4]), dtype)
    with np.errstate(all="ignore"):
        arrays = [np.asarray(back(w, by), dtype) for w in wanted]
        forward = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[op_type]
        if any(
            not np.array_equal(forward(a, by), w, True)
            for a, w in zip(arrays, wanted, strict=False)
        ):
            return None
    return Neighbour(op_type, arrays, {}, [by])


def _folded(draw: Draw, wanted: Arrays) -> Neighbour | None:
    shapes = [w.shape for w in wanted]
    moving = [len({s[a] for s in shapes}) > 1 for a in range(wanted[0].ndim)]
    if draw.opset < 5 or sum(moving) > 1 or any(0 in s for s in shapes):
        return None
    target = [-1 if m else s for m, s in zip(moving, shapes[0], strict=True)]
    flat = [w.reshape(-1) for w in wanted]
    return Neighbour("Reshape", flat, {}, [np.array(target, np.int64)])


def _cast(draw: Draw, wanted: Arrays) -> Neighbour | None:
    dtype = wanted[0].dtype
    if draw.opset < 6 or not (_numeric(dtype) or dtype.kind in "iub"):
        return None
    narrow = dtype.kind in "iu" and dtype.itemsize < 4
    source = np.dtype(draw.pick([np.float32, np.float64] + [np.int32] * narrow))
    with np.errstate(all="ignore"):
        arrays = [w.astype(source) for w in wanted]
        back = [a.astype(dtype) for a in arrays]
    if dtype.kind in "iu" and dtype.itemsize == 8:
        return None
    if any(not np.array_equal(b, w, dtype.kind == "f") for b, w in zip(back, wanted, strict=True)):
        return None
    return Neighbour("Cast", arrays, {"to": dtype})


_BEFORE: tuple[Callable[[Draw, Arrays], Neighbour | None], ...] = (
    _negated, _transposed, _transposed, _squeezed, _sliced, _joined, _arithmetic, _folded, _cast
)  # fmt: skip


def before(draw: Draw, wanted: Arrays) -> Neighbour | None:
    """A node that gives exactly these arrays, or nothing if the one drawn cannot."""
    return draw.pick(_BEFORE)(draw, wanted)


def after(draw: Draw, results: Arrays, dtype: DType) -> Neighbour | None:
    """A node that reads a result: a continuous function of it, or a layout operation."""
    rank = results[0].ndim
    kind = draw.integer(0, 9)
    old = draw.opset < 13
    if kind == 0:
        return Neighbour("Transpose", results, {"perm": draw.order(rank)})
    if kind == 1:
        axis = draw.integer(0, rank)
        extra: list[Array] = [] if old else [np.array([axis])]
        return Neighbour("Unsqueeze", results, {"axes": [axis]} if old else {}, extra)
    if kind == 2 and draw.opset >= 5:
        return Neighbour("Reshape", results, {}, [np.array([-1])])
    if kind == 3 and rank and draw.opset >= 4:
        axis = draw.integer(0, rank - 1)
        return Neighbour("Concat", results, {"axis": axis}, others=[results])
    if not _numeric(dtype):
        return None
    if kind == 4 and draw.opset >= 6:
        return Neighbour("Cast", results, {"to": np.dtype(draw.pick([np.float32, np.float64]))})
    if kind in (5, 6) and draw.opset >= 7:
        by = np.asarray(draw.pick([1, 2, 0.5, -3]), dtype)
        return Neighbour(draw.pick(["Add", "Mul", "Sub", "Max"] if draw.opset >= 8 else ["Add"]),
                         results, {}, [by])  # fmt: skip
    if kind == 7 and rank and 11 <= draw.opset < 18 and all(r.size for r in results):
        return Neighbour("ReduceMax", results, {"axes": [draw.integer(0, rank - 1)], "keepdims": 1})
    return Neighbour(draw.pick(["Neg", "Abs", "Relu", "Identity"]), results, {})
