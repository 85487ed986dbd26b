"""Operators that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.operator_fuzz.draw import STRING, Array, Draw
from tests.operator_fuzz.instance import Const, Instance, makes
from tests.operator_fuzz.oracle import Use, reference

INT64 = np.dtype(np.int64)


def whole(*numbers: int) -> Array:
    """A tensor of int64 with one axis."""
    return np.array(numbers, INT64)


def axis_for(draw: Draw, rank: int, negative_since: int = 11) -> int:
    """An axis, negative ones from a version on."""
    return draw.axis(rank) if draw.version >= negative_since else draw.integer(0, rank - 1)


@makes("Identity", exact=True, own=True)
def same(draw: Draw) -> Instance:
    return Instance([draw.anything(draw.shape(), draw.type_of("T" if "T" in draw.types else "V"))])


@makes("Transpose", exact=True)
def transposed(draw: Draw) -> Instance:
    x = draw.anything(draw.shape(), draw.input_type(0))
    return Instance([x], {"perm": draw.maybe(draw.order(x.ndim), 0.8)})


@makes("Reshape", exact=True)
def reshaped(draw: Draw) -> Instance:
    shape = draw.shape(1, 5, low=1)
    x = draw.anything(shape, draw.input_type(0))
    target: list[int] = []
    kind = draw.integer(0, 3)
    if kind == 0:
        target = [-1]
    elif kind == 1:  # copies, then the rest
        keep = draw.integer(0, len(shape) - 1)
        target = [0] * keep + [-1]
    elif kind == 2:
        target = [1, *[0] * (len(shape) - 1), -1] if len(shape) > 1 else [-1, 1]
        if len(shape) > 1:
            x = draw.anything([1, *shape[1:]], draw.input_type(0))
            target = [0] * len(shape) + [1] if draw.chance(0.5) else [0, -1, 1]
    else:
        target = list(np.array(shape)[draw.order(len(shape))])
    if draw.version < 5:
        if kind == 3:
            target = [0] * (len(shape) - 1) + [-1]
        return Instance([x], {"shape": [int(t) for t in target]})
    return Instance([x, np.array(target, INT64)])


@makes("Flatten", exact=True)
def flat(draw: Draw) -> Instance:
    x = draw.anything(draw.shape(1 if draw.version < 11 else 0, 6), draw.input_type(0))
    axis = draw.integer(0 if draw.version < 11 else -x.ndim, x.ndim)
    return Instance([x], {"axis": draw.maybe(axis, 0.8) if x.ndim else 0})


@reference("Flatten")
def flattened(use: Use, x: Array) -> Array:
    axis = use.attributes["axis"]
    axis += x.ndim if axis < 0 else 0
    return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))


@makes("Squeeze", exact=True)
def squeezed(draw: Draw) -> Instance:
    ones = draw.integer(0, 2)
    shape = draw.shape(0, 4, low=0 if ones else 2)  # without axes, all of size 1 go
    axes = sorted(draw.order(len(shape) + ones)[:ones])
    sizes = iter(shape)
    shape = [1 if a in axes else next(sizes) for a in range(len(shape) + ones)]
    x = draw.anything(shape, draw.input_type(0))
    if draw.version >= 11:
        axes = [a - len(shape) if draw.chance(0.4) else a for a in axes]
    if draw.version < 13:
        return Instance([x], {"axes": axes or None})
    # An empty list is no list here, as in onnxruntime: see oracle_faults.
    return Instance([x, np.array(axes, INT64) if axes else None])


@makes("Unsqueeze", exact=True)
def unsqueezed(draw: Draw) -> Instance:
    x = draw.anything(draw.shape(0, 4), draw.input_type(0))
    count = draw.integer(1, 2)
    rank = x.ndim + count
    axes = draw.order(rank)[:count]
    if draw.version >= 11:
        axes = [a - rank if draw.chance(0.4) else a for a in axes]
    else:
        axes = sorted(axes)
    if draw.version < 13:
        return Instance([x], {"axes": axes})
    return Instance([x, np.array(axes, INT64)])


@reference("Unsqueeze")
def with_ones(use: Use, x: Array, axes: Any = None) -> Array:
    axes = use.attributes["axes"] if axes is None else [int(a) for a in axes]
    rank = x.ndim + len(axes)
    sizes = iter(x.shape)
    placed = {a % rank for a in axes}
    return x.reshape([1 if a in placed else next(sizes) for a in range(rank)])


@reference("Squeeze")
def without_ones(use: Use, x: Array, axes: Any = None) -> Array:
    axes = use.attributes.get("axes") if axes is None else [int(a) for a in axes]
    if axes is None:
        return x.squeeze()
    return x.squeeze(tuple(a % x.ndim for a in axes))


@makes("Concat", exact=True)
def joined(draw: Draw) -> Instance:
    shape = draw.shape(1, 5)
    axis = axis_for(draw, len(shape))
    arrays = []
    for _ in range(draw.integer(1, 4)):
        shape[axis] = draw.size(0, 4)
        arrays.append(draw.anything(shape, draw.input_type(0)))
    if draw.version < 4:
        shape = draw.shape(4, 4)
        arrays = [draw.anything(shape, draw.input_type(0)) for _ in arrays]
        return Instance(arrays, {"axis": draw.maybe(draw.integer(0, 3))})
    return Instance(arrays, {"axis": axis})


@reference("Concat", until=3)
def former_joined(use: Use, *arrays: Array) -> Array:
    """The axis is 1 if none is given."""
    return np.concatenate(arrays, use.attributes.get("axis", 1))


@makes("Split", exact=True)
def split(draw: Draw) -> Instance:
    shape = draw.shape(1, 5)
    axis = axis_for(draw, len(shape))
    count = draw.integer(1, 4)
    dtype = draw.input_type(0)
    given = draw.chance(0.5)
    sizes = [draw.integer(0, 3) for _ in range(count)]
    attributes: dict[str, Any] = {"axis": axis}
    if given:
        shape[axis] = sum(sizes)
    elif draw.version >= 18 and draw.chance(0.5):
        each = draw.integer(1, 3)
        shape[axis] = max(each * count - draw.integer(0, min(each - 1, 1)), 1)
        parts = -(-shape[axis] // count)
        if parts * (count - 1) >= shape[axis]:
            shape[axis] = each * count
    else:
        shape[axis] = count * draw.size(0, 3)
    x = draw.anything(shape, dtype)
    outputs = [dtype] * count
    if draw.version == 1:
        if given and draw.chance(0.5):
            return Instance([x, np.array(sizes, dtype)], attributes, outputs)
        return Instance([x], {**attributes, "split": sizes if given else None}, outputs)
    if draw.version < 13:
        return Instance([x], {**attributes, "split": sizes if given else None}, outputs)
    if not given and draw.version >= 18:
        attributes["num_outputs"] = count
    return Instance([x, np.array(sizes, INT64) if given else None], attributes, outputs)


@reference("Split", until=1)
def former_split(use: Use, x: Array, sizes: Array | None = None) -> Any:
    sizes = use.attributes.get("split") if sizes is None else sizes
    axis = use.attributes.get("axis", 0)
    if sizes is None:
        return tuple(np.split(x, len(use.types), axis))
    return tuple(np.split(x, np.cumsum(np.asarray(sizes, int))[:-1], axis))


@makes("Slice", exact=True)
def sliced(draw: Draw) -> Instance:
    shape = draw.shape(1, 5)
    rank = len(shape)
    axes = draw.order(rank)[: draw.integer(1, rank)]
    full = draw.chance(0.3)
    if full:
        axes = list(range(len(axes)))
    starts, ends, steps = [], [], []
    for _ in axes:
        step = draw.pick([1, 1, 2, 3, -1, -2]) if draw.version >= 10 else 1
        start, end = draw.integer(-8, 8), draw.pick([*range(-8, 9), 2**31 - 1, 2**63 - 1])
        if step < 0 and draw.chance(0.5):
            start, end = draw.pick([-1, 2**31 - 1]), draw.pick([-(2**31), -(2**63), 0])
        starts.append(start)
        ends.append(end)
        steps.append(step)
    x = draw.anything(shape, draw.input_type(0))
    if draw.version >= 10:
        axes = [a - rank if draw.chance(0.3) else a for a in axes]
    if draw.version < 10:
        return Instance([x], {"starts": starts, "ends": ends, "axes": None if full else axes})
    kind = draw.type_of("Tind")
    small = np.iinfo(kind)
    clip = [np.clip(np.array(v, object), small.min, small.max).astype(kind) for v in (starts, ends)]
    given_axes = None if full and draw.chance(0.6) else np.array(axes, kind)
    given_steps = np.array(steps, kind)
    if given_axes is None and draw.version < 11 and not all(s == 1 for s in steps):
        given_axes = np.array(axes, kind)
    return Instance(
        [x, *clip, given_axes, None if set(steps) == {1} and draw.chance(0.5) else given_steps]
    )


@makes("Expand", exact=True)
def expanded(draw: Draw) -> Instance:
    shapes = draw.operands(2, 0, 5)
    x = draw.anything(shapes[0], draw.input_type(0))
    return Instance([x, np.array(shapes[1], INT64)])


@makes("Tile", exact=True)
def tiled(draw: Draw) -> Instance:
    if draw.version == 1:
        shape = draw.shape(1, 4)
        x = draw.anything(shape, draw.type_of("T"))
        tiles, axis = draw.integer(0, 3), draw.integer(0, len(shape) - 1)
        return Instance([x, np.asarray(tiles, x.dtype), Const(np.asarray(axis, x.dtype))])
    shape = draw.shape(1, 4, high=4)
    repeats = [draw.integer(0 if draw.chance(0.2) else 1, 3) for _ in shape]
    return Instance([draw.anything(shape, draw.type_of("T")), np.array(repeats, INT64)])


@reference("Tile", until=1)
def former_tiled(use: Use, x: Array, tiles: Array, axis: Array) -> Array:
    return (
        np.concatenate([x[:0] if not tiles else x] * max(int(tiles), 1), int(axis))
        if tiles
        else (np.take(x, [], int(axis)))
    )


@makes("Pad", exact=True)
def padded(draw: Draw) -> Instance:
    shape = draw.shape(1, 4, low=2)
    rank = len(shape)
    dtype = draw.type_of("T")
    if draw.schema.inputs[0].type_str == "tensor(bool)":
        dtype = np.dtype(bool)
    modes = ["constant", "reflect", "edge"] + ["wrap"] * (draw.version >= 19)
    mode = draw.pick(modes)
    low = -1 if mode == "constant" and draw.version >= 2 else 0
    axes = draw.order(rank)[: draw.integer(1, rank)] if draw.version >= 18 else list(range(rank))
    high = 1 if mode in ("reflect", "wrap") else 3
    pads = [draw.integer(low, high) for _ in range(2 * len(axes))]
    x = draw.values(shape, dtype)
    mode_given = None if mode == "constant" and draw.chance(0.5) else mode
    if draw.version < 11:
        name = "paddings" if draw.version == 1 else "pads"
        value = draw.maybe(draw.number(-3, 3))
        return Instance([x], {name: pads, "mode": mode_given, "value": value})
    value_array = draw.maybe(draw.values([], dtype)) if mode == "constant" else None
    inputs: list[Any] = [x, np.array(pads, INT64), value_array]
    if draw.version >= 18:
        kind = draw.type_of("Tind")
        axes = [a - rank if draw.chance(0.3) else a for a in axes]
        plain = axes == list(range(rank)) and draw.chance(0.6)
        inputs.append(None if plain else np.array(axes, kind))
    return Instance(inputs, {"mode": mode_given})


@makes("Shape Size", exact=True)
def measured(draw: Draw) -> Instance:
    x = draw.values(draw.shape(), draw.input_type(0))
    attributes: dict[str, Any] = {}
    if draw.has_attribute("start"):
        attributes = {k: draw.maybe(draw.integer(-7, 7)) for k in ("start", "end")}
    return Instance([x], attributes)


@makes("DepthToSpace", exact=True)
def to_space(draw: Draw) -> Instance:
    block = draw.integer(1, 3)
    shape = [draw.size(0, 3), block * block * draw.size(1, 3), draw.size(0, 4), draw.size(0, 4)]
    x = draw.values(shape, draw.input_type(0))
    mode = draw.maybe(draw.pick(["DCR", "CRD"])) if draw.has_attribute("mode") else None
    return Instance([x], {"blocksize": block, "mode": mode})


@makes("SpaceToDepth", exact=True)
def to_depth(draw: Draw) -> Instance:
    block = draw.integer(1, 3)
    shape = [draw.size(0, 3), draw.size(1, 3), block * draw.size(0, 3), block * draw.size(0, 3)]
    mode = draw.maybe(draw.pick(["DCR", "CRD"])) if draw.has_attribute("mode") else None
    return Instance([draw.values(shape, draw.input_type(0))], {"blocksize": block, "mode": mode})


@makes("ReverseSequence", exact=True)
def reversed_rows(draw: Draw) -> Instance:
    shape = draw.shape(2, 4, low=1)
    time = draw.integer(0, 1)
    x = draw.anything(shape, draw.input_type(0))
    lengths = draw.contents.integers(1, shape[time] + 1, shape[1 - time]).astype(INT64)
    plain = time == 0 and draw.chance(0.5)
    attributes = {} if plain else {"time_axis": time, "batch_axis": 1 - time}
    return Instance([x, lengths], attributes)


@makes("Trilu", exact=True)
def triangle(draw: Draw) -> Instance:
    dtype = draw.input_type(0)
    dtype = np.dtype(np.float32) if dtype == STRING else dtype  # there is no zero of strings
    draw.at_most(T=dtype)
    x = draw.values(draw.shape(2, 5), dtype)
    k = draw.maybe(np.asarray(draw.integer(-4, 4), INT64))
    return Instance([x, k], {"upper": draw.maybe(draw.integer(0, 1))})


@makes("EyeLike", exact=True)
def diagonal(draw: Draw) -> Instance:
    x = draw.values(draw.shape(2, 2), draw.input_type(0))
    to = draw.maybe(draw.type_of("T2"))
    return Instance([x], {"k": draw.maybe(draw.integer(-3, 3)), "dtype": to}, [to or x.dtype])


@makes("CenterCropPad", exact=True)
def centered(draw: Draw) -> Instance:
    x = draw.values(draw.shape(1, 4), draw.input_type(0))
    axes = draw.order(x.ndim)[: draw.integer(1, x.ndim)]
    target = np.array([draw.integer(1, 7) for _ in axes], draw.type_of("Tind"))
    plain = axes == list(range(x.ndim)) and draw.chance(0.6)
    axes = [a - x.ndim if draw.chance(0.3) else a for a in axes]
    return Instance([x, target], {"axes": None if plain else axes})


@makes("ConstantOfShape", exact=True)
def filled(draw: Draw) -> Instance:
    shape = draw.shape(0, 5)
    value = draw.maybe(draw.fixed([1], draw.type_of("T2")), 0.8)
    kind = np.dtype(np.float32) if value is None else value.dtype
    return Instance([np.array(shape, INT64)], {"value": value}, [kind])


@reference("Reshape", until=4)
def former_reshaped(use: Use, x: Array) -> Array:
    shape = [x.shape[k] if s == 0 else s for k, s in enumerate(use.attributes["shape"])]
    return x.reshape(shape)


_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


@reference("Pad")
def pad(use: Use, x: Array, pads: Any = None, value: Any = None, axes: Any = None) -> Array:
    """Negative pads take elements away."""
    if pads is None:
        pads = use.attributes.get("pads", use.attributes.get("paddings"))
        value = use.attributes.get("value", 0.0)
    along = list(range(x.ndim)) if axes is None else [int(a) % x.ndim for a in axes]
    before, after = [0] * x.ndim, [0] * x.ndim
    for k, axis in enumerate(along):
        before[axis], after[axis] = int(pads[k]), int(pads[k + len(along)])
    keep = tuple(
        slice(max(-b, 0), s - max(-a, 0)) for b, a, s in zip(before, after, x.shape, strict=False)
    )
    widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    mode = use.attributes.get("mode", "constant")
    if mode != "constant":
        return np.pad(x[keep], widths, mode=_MODES[mode])
    if value is None:
        value = "" if x.dtype == object else 0
    fill = np.asarray(value, x.dtype).reshape(())
    result = np.full(
        [s + b + a for s, (b, a) in zip(x[keep].shape, widths, strict=False)], fill, x.dtype
    )
    result[tuple(slice(b, b + s) for s, (b, _) in zip(x[keep].shape, widths, strict=False))] = x[
        keep
    ]
    return result


@reference("Slice", since=10)
def slice_of(
    use: Use, x: Array, starts: Array, ends: Array, axes: Any = None, steps: Any = None
) -> Array:
    """Starts and ends are clamped as the text of Slice-13 says; see oracle_faults."""
    along = range(len(starts)) if axes is None else [int(a) % x.ndim for a in axes]
    for k, axis in enumerate(along):
        size, step = x.shape[axis], 1 if steps is None else int(steps[k])
        start, end = int(starts[k]), int(ends[k])
        start, end = start + size * (start < 0), end + size * (end < 0)
        if step > 0:
            places = range(min(max(start, 0), size), min(max(end, 0), size), step)
        else:
            places = range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step)
        x = np.take(x, np.array(list(places), int), axis)
    return x


@reference("Shape")
def shape_of(use: Use, x: Array) -> Array:
    """Negative ends count from the last axis; what lies outside is clamped."""

    def place(name: str, default: int) -> int:
        at = use.attributes.get(name, default)
        return min(max(at + x.ndim if at < 0 else at, 0), x.ndim)

    return np.array(x.shape[place("start", 0) : place("end", x.ndim)], INT64)
