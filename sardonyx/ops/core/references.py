"""What the special kernels of these operators mean, for the evaluator of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sardonyx.base.errors import RuntimeException, message
from sardonyx.tensor.arithmetic import Array
from sardonyx.tensor.evaluate import Sizes, reference
from sardonyx.tensor.tensor import Call

_COMBINE = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _running(kind: str, call: Call, operands: Sequence[Array]) -> Array:
    axis = int(operands[1].reshape(-1)[0]) if len(operands) > 1 else _axis(call)
    x = np.moveaxis(operands[0], axis, -1)
    reverse = bool(call.attribute("reverse"))
    rows = x[..., ::-1] if reverse else x
    running, start = (np.cumsum, 0) if kind == "sum" else (np.cumprod, 1)
    result = running(rows, axis=-1, dtype=x.dtype)
    if call.attribute("exclusive"):
        first = np.full_like(result[..., :1], start)
        result = np.concatenate([first, result[..., :-1]], axis=-1)
    return np.moveaxis(result[..., ::-1] if reverse else result, -1, axis)


def _axis(call: Call) -> int:
    given = dict(call.attributes).get("axis", -1)
    assert isinstance(given, int)  # noqa: S101 - narrows the type for the checker
    return given


def _scan_magnitudes(call: Call, operands: Sequence[Array]) -> Sequence[Array]:
    """What was combined, by the root of how much: every step rounds, as in a reduction."""
    sizes = [np.abs(operands[0]), *operands[1:]]
    terms = [np.ones_like(operands[0]), *operands[1:]]
    return [
        _running(str(call.attribute("kind")), call, sizes) * np.sqrt(_running("sum", call, terms))
    ]


@reference("scan", _scan_magnitudes)
def scan(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """Running sums or products along the last axis, or along the one that a second operand says.

    Attributes: kind, exclusive, reverse, perhaps axis (counted from the end).
    """
    return [_running(str(call.attribute("kind")), call, operands)]


@reference("compact")
def compact(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """Positions of what is true along one axis."""
    return [np.flatnonzero(operands[0]).astype(np.int64)]


@reference("top_k")
def top_k(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """(values, positions) of the k extremes along `axis`, ties in favour of lower positions."""
    (x,) = operands
    axis = call.integer("axis")
    count = shapes[0][axis]
    if count > x.shape[axis]:
        what = f"There are no {count} elements along an axis of {x.shape[axis]}"
        raise RuntimeException(message("evaluate top_k", what))
    ranked = np.argsort(x, axis=axis, kind="stable")
    if call.attribute("largest"):  # backwards twice: equal elements keep their order
        backwards = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        ranked = x.shape[axis] - 1 - backwards
    ranked = np.take(ranked, range(count), axis)
    return [np.take_along_axis(x, ranked, axis), ranked.astype(np.int64)]


@reference("sort_rows")
def sort_rows(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """The order of rows by their first elements, of equal ones by the next, and so on."""
    (x,) = operands
    order = np.arange(len(x))
    for column in reversed(range(x.shape[1])):
        order = order[np.argsort(x[order, column], kind="stable")]
    return [order]


@reference("scatter_elements")
def scatter_elements(
    call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]
) -> Sequence[Array]:
    """A copy of the first operand, changed at `positions` along `axis`; attribute reduction."""
    x, positions, updates = operands
    result = x.copy()
    axis = call.integer("axis")
    for at in np.ndindex(*positions.shape):
        target = (*at[:axis], int(positions[at]), *at[axis + 1 :])
        _put(result, target, updates[at], call)
    return [result]


@reference("scatter_nd")
def scatter_nd(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """A copy of the first operand, changed at index tuples; attributes depth, reduction."""
    x, positions, updates = operands
    result = x.copy()
    for at in np.ndindex(*positions.shape[:-1]):
        _put(result, tuple(int(i) for i in positions[at]), updates[at], call)
    return [result]


@reference("select_boxes")
def select_boxes(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """Boxes kept of each class, best first; how many (ONNX operator spec: NonMaxSuppression)."""
    boxes, scores, most, overlap, least = operands
    corners = _corners(boxes, bool(call.attribute("centred")))
    kept, counts = np.zeros(shapes[0], np.int64), np.zeros(shapes[1], np.int64)
    for batch, kind in np.ndindex(*scores.shape[:2]):
        chosen: list[int] = []
        ranked = np.argsort(-scores[batch, kind], kind="stable")
        for box in ranked:
            passes = not call.attribute("scored") or scores[batch, kind, box] > least
            if len(chosen) >= most or not passes:
                break
            if not any(_overlap(corners[batch], box, other) > overlap for other in chosen):
                chosen.append(int(box))
        kept[batch, kind, : len(chosen)], counts[batch, kind] = chosen, len(chosen)
    return [kept, counts]


@reference("list_boxes")
def list_boxes(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """Rows of batch, class and box, from lists of boxes and their lengths."""
    kept, counts = operands
    rows = [
        (batch, kind, box)
        for batch, kind in np.ndindex(*counts.shape)
        for box in kept[batch, kind, : counts[batch, kind]]
    ]
    return [np.array(rows, np.int64).reshape(-1, 3)]


def _corners(boxes: Array, centred: bool) -> Array:
    """Lowest, then highest coordinates of every box."""
    a, b = boxes[..., :2], boxes[..., 2:]
    low, high = (a - b / 2, a + b / 2) if centred else (np.minimum(a, b), np.maximum(a, b))
    return np.concatenate([low, high], -1)


def _overlap(corners: Array, box: int, other: int) -> float:
    """The intersection of two boxes as a part of their union."""
    low = np.maximum(corners[box][:2], corners[other][:2])
    high = np.minimum(corners[box][2:], corners[other][2:])
    shared = float(np.prod(np.maximum(high - low, 0)))
    areas = sum(float(np.prod(corners[k][2:] - corners[k][:2])) for k in (box, other))
    return shared / (areas - shared) if shared > 0 else 0.0


@reference("determinant")
def determinant(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """Determinants of matrices in the last two axes."""
    return [np.linalg.det(operands[0].astype(np.float64)).astype(operands[0].dtype)]


def _put(result: Array, at: tuple[int, ...], value: Array, call: Call) -> None:
    reduction = str(call.attribute("reduction"))
    if reduction == "none":
        result[at] = value
    else:
        result[at] = _COMBINE[reduction](result[at], value)


@reference("find_key")
def find_key(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """Places of elements whose key stands in an ascending table, else -1; NaN is a key, too."""
    x, keys, places = operands
    if not keys.size:
        return [np.full(x.shape, -1, np.int64)]
    at = np.minimum(np.searchsorted(keys, x), keys.size - 1)
    same = (keys[at] == x) | ((keys[at] != keys[at]) & (x != x))
    return [np.where(same, places[at], -1)]


@reference("couple")
def couple(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """Class probabilities p that minimise the sum of (r_ji p_i - r_ij p_j)^2 under sum p = 1."""
    (pairwise,) = operands
    count = shapes[0][1]
    upper = np.triu_indices(count, 1)
    found = np.empty((len(pairwise), count), pairwise.dtype)
    for row, shares in enumerate(pairwise.astype(np.float64)):
        r = np.zeros((count, count))
        r[upper], r.T[upper] = shares, 1 - shares
        system = np.zeros((count + 1, count + 1))
        system[:count, :count] = np.diag((r.T**2).sum(1)) - r * r.T
        system[count, :count] = system[:count, count] = 1
        found[row] = np.linalg.solve(system, np.eye(count + 1)[count])[:count]
    return [found]


@reference("forest")
def forest(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """Votes [n, targets], or [1, n, targets], of the leaves that rows reach."""
    rows, *tables = operands
    join = str(call.attribute("join"))
    start = {"add": 0.0, "min": np.inf, "max": -np.inf}[join]
    votes = np.full((len(rows), shapes[0][-1]), start, rows.dtype)
    # The first form says all; others say the same again.
    is_walk = call.attribute("forms")[0] == "walk"  # type: ignore[index]  # a tuple of names
    for n, row in enumerate(rows):
        said = _walked(call, row, tables[:4]) if is_walk else _struck(row, tables[:4])
        for target, weight in said:
            votes[n, target] = _COMBINE[join](votes[n, target], weight)
    return [votes[None] if len(shapes[0]) > 2 else votes]


def _walked(call: Call, row: Array, tables: Sequence[Array]) -> Iterator[tuple[int, Any]]:
    """Targets and weights by the tables of `ops.ml.forest.Forest`."""
    nodes, roots, targets, weights = tables
    words = call.integer("words")
    shift = call.integer("shift")
    table = nodes.reshape(-1, words)
    first = words - 4 if words > 4 else 1
    limits = np.ascontiguousarray(table[:, :first]).view(row.dtype)[:, 0]
    if shift:
        steps = table[:, 1].view(np.uint32)
        features = steps >> np.uint32(shift)
        passed = np.arange(len(table)) + (steps & np.uint32((1 << shift) - 1))
        passed, failed = passed * words, (passed + 1) * words
    else:
        features, passed, failed = (table[:, first + k] for k in range(3))
    for root in roots:
        at, before = root // words, -1
        while at != before:
            before = at
            at = (passed if row[features[at]] <= limits[at] else failed)[at] // words
        if call.attribute("single"):
            yield 0, limits[at]
            continue
        begin = int(table[at, 0])
        for k in range(begin + 1, begin + 1 + int(targets[begin])):
            yield int(targets[k]), weights[k]


def _struck(row: Array, tables: Sequence[Array]) -> Iterator[tuple[int, Any]]:
    """Targets and weights by the tables of `ops.ml.forest_masks.Masks`."""
    starts, tests, leaves, targets = tables
    limits, features = tests[0::3].view(np.float32), tests[1::3]
    masks = np.where(row[features] <= limits, np.uint32(0xFFFFFFFF), tests[2::3].view(np.uint32))
    weights = leaves.reshape(len(targets), -1)
    for tree, target in enumerate(targets):
        left = np.bitwise_and.reduce(masks[starts[tree] : starts[tree + 1]])
        yield int(target), weights[tree, weights.shape[1] - int(left).bit_length()]


@reference("sparse_rows")
def sparse_rows(call: Call, operands: Sequence[Array], shapes: Sequence[Sizes]) -> Sequence[Array]:
    """The product of a matrix in compressed rows (outer, inner, values) and a dense one."""
    outer, inner, values, dense = operands
    result = np.zeros((len(outer) - 1, dense.shape[1]), dense.dtype)
    row = np.repeat(np.arange(len(result)), np.diff(outer))
    np.add.at(result, row, values[:, None] * dense[inner])
    return [result]
