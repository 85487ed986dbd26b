"""Operators whose inputs say where elements are taken from or put."""

from __future__ import annotations

from math import prod

import numpy as np

from tests.operator_fuzz.draw import STRING, Draw, is_float
from tests.operator_fuzz.instance import Instance, Still, makes
from tests.operator_fuzz.layout import INT64, axis_for
from tests.operator_fuzz.oracle import Use, reference


@makes("Gather", exact=True)
def gathered(draw: Draw) -> Instance:
    shape = draw.shape(1, 4, low=1)
    axis = axis_for(draw, len(shape))
    x = draw.anything(shape, draw.input_type(0))
    where = draw.shape(0, 3, high=4)
    found = draw.indices(where, shape[axis], draw.input_type(1), draw.version >= 11)
    return Instance([x, found], {"axis": axis or draw.maybe(0)})


@makes("GatherElements", exact=True)
def gathered_elements(draw: Draw) -> Instance:
    shape = draw.shape(1, 4, low=1)
    axis = draw.axis(len(shape))
    x = draw.anything(shape, draw.input_type(0))
    where = [s if draw.chance(0.6) else max(1, s - 1) for s in shape]
    where[axis] = draw.size(0, 5)
    return Instance([x, draw.indices(where, shape[axis], draw.input_type(1), True)], {"axis": axis})


@makes("GatherND", exact=True)
def gathered_nd(draw: Draw) -> Instance:
    shape = draw.shape(1, 4, low=1)
    rank = len(shape)
    batch = draw.integer(0, min(rank - 1, 2)) if draw.has_attribute("batch_dims") else 0
    depth = draw.integer(1, rank - batch)
    outer = shape[:batch] + draw.shape(0, 2, high=3)
    places = [
        draw.indices(outer, shape[batch + k], INT64, draw.version >= 11) for k in range(depth)
    ]
    x = draw.anything(shape, draw.input_type(0))
    return Instance([x, Still(np.stack(places, -1))], {"batch_dims": batch or None})


def _reductions(draw: Draw) -> list[str]:
    kinds = ["none"]
    if draw.version >= 16:
        kinds += ["add", "mul"]
    if draw.version >= 18:
        kinds += ["max", "min"]
    return kinds


@makes("ScatterElements Scatter", exact=True)
def scattered(draw: Draw) -> Instance:
    shape = draw.shape(1, 4, low=1)
    axis = draw.axis(len(shape)) if draw.version >= 11 else draw.integer(0, len(shape) - 1)
    dtype = draw.input_type(0)
    x = draw.values(shape, dtype)
    where = [s if draw.chance(0.6) else max(1, s - 1) for s in shape]
    kind = draw.pick(_reductions(draw))
    if kind in ("add", "mul", "max", "min") and (dtype == STRING or dtype.kind in "bc"):
        kind = "none"
    count = shape[axis]
    if kind == "none":  # no place twice
        where[axis] = count if draw.chance(0.5) else max(1, count - 1)
        order = (
            np.argsort(
                draw.contents.random((*where[:axis], count, *where[axis % len(shape) + 1 :])), axis
            )
            if axis >= 0
            else np.argsort(
                draw.contents.random(
                    [count if a == axis % len(shape) else s for a, s in enumerate(where)]
                ),
                axis,
            )
        )
        places = np.take(order, np.arange(where[axis]), axis)
        if draw.version >= 11:
            places = np.where(draw.contents.random(places.shape) < 0.3, places - count, places)
    else:
        where[axis] = draw.size(0, 5)
        places = draw.indices(where, count, INT64, True)
    places = places.astype(draw.type_of("Tind"))
    low, high = (-2, 2) if kind == "mul" else (-4, 4)
    if kind == "mul" and is_float(dtype):
        updates = draw.contents.choice([0.5, 1, 2, -1], tuple(where)).astype(dtype)
    else:
        updates = draw.values(where, dtype, low, high)
    given = None if kind == "none" and (draw.version < 16 or draw.chance(0.5)) else kind
    return Instance([x, places, updates], {"axis": axis, "reduction": given})


@makes("ScatterND", exact=True)
def scattered_nd(draw: Draw) -> Instance:
    shape = draw.shape(1, 4, low=1)
    rank = len(shape)
    depth = draw.integer(1, rank)
    dtype = draw.type_of("T")
    kind = draw.pick(_reductions(draw))
    if dtype == STRING or dtype.kind in "bc":
        kind = "none"
    room = prod(shape[:depth])
    if kind == "none":
        flat = draw.contents.permutation(room)[: int(draw.contents.integers(1, room + 1))]
    else:
        flat = draw.contents.integers(0, room, draw.size(0, 6))
    places = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(INT64).reshape(-1, depth)
    if draw.version >= 11 and len(places):
        sizes = np.array(shape[:depth])
        places = np.where(draw.contents.random(places.shape) < 0.2, places - sizes, places)
    updates_shape = [len(flat), *shape[depth:]]
    if kind == "mul" and is_float(dtype):
        updates = draw.contents.choice([0.5, 1, 2, -1], tuple(updates_shape)).astype(dtype)
    else:
        updates = draw.values(updates_shape, dtype)
    given = None if kind == "none" else kind
    return Instance([draw.values(shape, dtype), Still(places), updates], {"reduction": given})


_UPDATES = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": np.maximum,
    "min": np.minimum,
}


@reference("ScatterND")
def scatter_nd(use: Use, x: np.ndarray, places: np.ndarray, updates: np.ndarray) -> np.ndarray:
    result = x.copy()
    combine = _UPDATES[use.attributes.get("reduction", "none")]
    for at in np.ndindex(places.shape[:-1]):
        place = tuple(int(k) for k in places[at])
        result[place] = combine(result[place], updates[at])
    return result


@reference("ScatterElements Scatter")
def scatter_elements(
    use: Use, x: np.ndarray, places: np.ndarray, updates: np.ndarray
) -> np.ndarray:
    result = x.copy()
    combine = _UPDATES[use.attributes.get("reduction", "none")]
    axis = use.attributes["axis"] % x.ndim
    for at in np.ndindex(places.shape):
        place = (*at[:axis], int(places[at]), *at[axis + 1 :])
        result[place] = combine(result[place], updates[at])
    return result


@makes("OneHot", exact=True)
def one_hot(draw: Draw) -> Instance:
    depth = draw.integer(1, 5)
    shape = draw.shape(0, 3)
    places = draw.values(shape, draw.type_of("T1"), -depth - 2, depth + 2)
    places = np.asarray(np.trunc(places.astype(np.float64))).astype(places.dtype)
    if draw.version < 11:
        places = np.abs(places.astype(np.float64)).astype(places.dtype)
    depth_array = np.asarray(depth, draw.type_of("T2"))
    depth_array = depth_array.reshape([1]) if draw.chance(0.5) else depth_array
    values = draw.values([2], draw.type_of("T3"))
    axis = draw.integer(-len(shape) - 1, len(shape))
    if draw.version < 11:
        axis = draw.integer(-1, len(shape))
    return Instance([places, depth_array, values], {"axis": draw.maybe(axis, 0.8)})


@reference("OneHot")
def hot(use: Use, places: np.ndarray, depth: np.ndarray, values: np.ndarray) -> np.ndarray:
    count = int(depth.reshape(-1)[0])
    axis = use.attributes["axis"] % (places.ndim + 1)
    numbers = places.astype(np.int64)
    valid = (numbers >= -count) & (numbers < count)
    numbers = np.where(valid, numbers % count, -1)
    hit = np.expand_dims(numbers, axis) == np.arange(count).reshape(
        [count if a == axis else 1 for a in range(places.ndim + 1)]
    )
    return np.where(hit, values[1], values[0])


@makes("NonZero", exact=True)
def nonzero(draw: Draw) -> Instance:
    dtype = draw.input_type(0)
    dtype = np.dtype(bool) if dtype == STRING else dtype  # there is no zero of strings
    return Instance([draw.values(draw.shape(1, 4), dtype, -1, 1)])


@makes("Compress", exact=True)
def compressed(draw: Draw) -> Instance:
    shape = draw.shape(1, 4, low=1)
    axis = None
    if draw.chance(0.7):
        axis = axis_for(draw, len(shape))
    count = prod(shape) if axis is None else shape[axis]
    kept = draw.values([int(draw.contents.integers(1, count + 1))], np.dtype(bool))
    return Instance([draw.anything(shape, draw.input_type(0)), kept], {"axis": axis})


@makes("TopK", exact=True)
def largest(draw: Draw) -> Instance:
    shape = draw.shape(1, 4, low=1)
    axis = axis_for(draw, len(shape))
    x = draw.distinct(shape, draw.type_of("T"))
    if draw.type_of("T").name in ("int8", "uint8") and prod(shape) > 100:
        x = x[tuple(slice(0, 2) for _ in shape)]
        shape = list(x.shape)
    if draw.version == 1:
        k = draw.integer(1, 1)
        return Instance([x], {"axis": axis, "k": k})
    k = int(draw.contents.integers(1, shape[axis] + 1))
    attributes = {"axis": draw.maybe(axis, 0.8) if axis == -1 else axis}
    if draw.version >= 11:
        attributes |= {a: draw.maybe(draw.integer(0, 1)) for a in ("largest",)}
    return Instance([x, np.array([k], INT64)], attributes)


@reference("TopK")
def top(use: Use, x: np.ndarray, k: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    axis = use.attributes["axis"]
    count = use.attributes["k"] if k is None else int(k[0])
    keys = x.astype(object) if x.dtype.kind in "iu" else x
    keys = keys if not use.attributes.get("largest", 1) else -keys
    order = np.argsort(keys, axis, kind="stable")
    order = np.take(order, np.arange(count), axis).astype(np.int64)
    return np.take_along_axis(x, order, axis), order


@makes("Unique", exact=True)
def unique(draw: Draw) -> Instance:
    shape = draw.shape(1, 3, low=1)
    axis = draw.maybe(draw.axis(len(shape)))
    x = draw.values(shape, draw.input_type(0), -2, 2)
    types = [draw.input_type(0), INT64, INT64, INT64]
    kept = [t if k == 0 or draw.chance(0.7) else None for k, t in enumerate(types)]
    while kept[-1] is None:
        kept.pop()
    return Instance([x], {"axis": axis, "sorted": draw.maybe(draw.integer(0, 1))}, kept)


@makes("TensorScatter", exact=True)
def written(draw: Draw) -> Instance:
    shape = draw.shape(3, 4, low=1)
    axis = draw.integer(1, len(shape) - 1)
    axis = axis - len(shape) if draw.chance(0.5) else axis
    dtype = draw.type_of("T")
    mode = draw.pick(["linear", "circular"])
    room = shape[axis]
    count = int(draw.contents.integers(1, room + 1))
    update = list(shape)
    update[axis] = count
    high = room - count if mode == "linear" else room - 1
    starts = draw.contents.integers(0, high + 1, shape[0]).astype(INT64)
    inputs = [draw.anything(shape, dtype), draw.anything(update, dtype)]
    if draw.chance(0.8):
        inputs.append(starts)
    return Instance(
        inputs,
        {
            "axis": draw.maybe(axis) if axis == -2 else axis,
            "mode": draw.maybe(mode) if mode == "linear" else mode,
        },
    )


@reference("GatherElements")
def gather_elements(use: Use, x: np.ndarray, places: np.ndarray) -> np.ndarray:
    axis = use.attributes["axis"] % x.ndim
    result = np.empty(places.shape, x.dtype)
    for at in np.ndindex(places.shape):
        result[at] = x[(*at[:axis], int(places[at]), *at[axis + 1 :])]
    return result


@reference("Unique")
def uniques(use: Use, x: np.ndarray) -> tuple[np.ndarray, ...]:
    axis = use.attributes.get("axis")
    rows = x.reshape(-1, 1) if axis is None else np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    if x.dtype.kind == "c":  # by the real part, then by the imaginary one
        rows = np.stack([rows.real, rows.imag], -1).reshape(len(rows), -1)
    keys = [tuple(row.tolist()) for row in rows]
    found = list(dict.fromkeys(keys))
    if use.attributes["sorted"]:
        found.sort()
    first = np.array([keys.index(k) for k in found], np.int64)
    inverse = np.array([found.index(k) for k in keys], np.int64)
    counts = np.array([keys.count(k) for k in found], np.int64)
    kept = x.reshape(-1)[first] if axis is None else np.take(x, first, axis)
    return kept, first, inverse, counts
