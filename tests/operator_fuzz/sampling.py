"""Operators on images: resizing, sampling, regions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.operator_fuzz.draw import STRING, Array, Draw, is_float
from tests.operator_fuzz.instance import Instance, Still, makes
from tests.operator_fuzz.layout import INT64
from tests.operator_fuzz.oracle import Use, reference
from tests.operator_fuzz.products import Window

F32 = np.dtype(np.float32)
_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


@makes("Resize", steady=[1, 2], factor=24, absolute=32)
def resized(draw: Draw) -> Instance:
    names = [c.type_param_str for c in draw.schema.type_constraints]
    dtype = draw.type_of("T1" if "T1" in names else "T")
    if dtype in (STRING, bool) or dtype.kind == "c":
        dtype = F32
        draw.at_most(**{"T1" if "T1" in names else "T": dtype})
    mode = draw.pick(
        ["nearest", "linear", "cubic"] if draw.version >= 11 else ["nearest", "linear"]
    )
    if not is_float(dtype):
        mode = "nearest"
    rank = 4 if mode != "nearest" else draw.integer(2, 4)
    shape = [draw.size(1, 5) for _ in range(rank)]
    free = range(rank) if mode == "nearest" else (2, 3)
    scales = [draw.pick([0.5, 1.0, 1.5, 2.0, 2.5, 0.75]) if k in free else 1.0 for k in range(rank)]
    out = [max(1, int(np.floor(s * f))) for s, f in zip(shape, scales, strict=True)]
    if min(int(np.floor(s * f)) for s, f in zip(shape, scales, strict=True)) < 1:
        shape = [max(s, 2) for s in shape]
        out = [int(np.floor(s * f)) for s, f in zip(shape, scales, strict=True)]
    x = draw.reals(shape, dtype) if is_float(dtype) else draw.values(shape, dtype, -100, 100)
    factors = Still(np.array(scales, F32))
    if draw.version < 11:
        return Instance([x, factors], {"mode": mode})
    attributes: dict[str, Any] = {"mode": mode}
    attributes["coordinate_transformation_mode"] = draw.maybe(draw.pick(_COORDINATES))
    if mode == "nearest":
        attributes["nearest_mode"] = draw.maybe(
            draw.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
        )
    if mode == "cubic":
        attributes["cubic_coeff_a"] = draw.maybe(-0.5)
        attributes["exclude_outside"] = draw.maybe(draw.integer(0, 1))
    if draw.version >= 18 and mode != "nearest":
        attributes["antialias"] = draw.maybe(draw.integer(0, 1))
    if draw.version == 11:
        roi: Array | None = np.zeros(0, F32)
        nothing: Array | None = np.zeros(0, F32)
    else:
        roi, nothing = None, None
    if draw.chance(0.5):
        return Instance([x, roi, factors], attributes)
    return Instance([x, roi, nothing, np.array(out, INT64)], attributes)


@makes("Upsample", steady=[1], factor=24)
def upsampled(draw: Draw) -> Instance:
    dtype = draw.type_of("T")
    dtype = dtype if dtype.kind == "f" else F32
    draw.at_most(T=dtype)
    scales = [1.0, 1.0, draw.pick([1.0, 2.0, 1.5]), draw.pick([1.0, 2.0, 3.0])]
    x = draw.reals([draw.size(1, 2), draw.size(1, 3), draw.size(1, 4), draw.size(1, 4)], dtype)
    mode = draw.maybe(draw.pick(["nearest"] + ["linear"] * (draw.version >= 7)))
    if draw.version == 1:
        return Instance([x], {"height_scale": scales[2], "width_scale": scales[3], "mode": mode})
    if draw.version < 9:
        return Instance([x], {"scales": scales, "mode": mode})
    return Instance([x, Still(np.array(scales, F32))], {"mode": mode})


@reference("Resize", until=10)
@reference("Upsample")
def upsample(use: Use, x: Array, scales: Any = None) -> Array:
    """Asymmetric coordinates; nearest takes the floor."""
    g = use.attributes
    if scales is None:
        scales = g.get("scales") or [1, 1, g["height_scale"], g["width_scale"]]
    for axis, factor in enumerate(scales):
        size = x.shape[axis]
        at = np.arange(int(np.floor(size * float(factor)))) / float(factor)
        low = np.clip(np.floor(at).astype(int), 0, size - 1)
        found = np.take(x, low, axis)
        if g["mode"] == "linear":
            part = (at - low).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
            found = found * (1 - part) + np.take(x, np.minimum(low + 1, size - 1), axis) * part
        x = found
    return x


@makes("GridSample", steady=[1], factor=24, absolute=16)
def sampled(draw: Draw) -> Instance:
    rank = 2 if draw.version < 20 else draw.integer(2, 3)
    dtype = draw.type_of("T1")
    dtype = dtype if dtype.kind == "f" else F32
    # Places are computed in the grid's type or in float32.
    where = dtype if dtype == np.float64 else draw.type_of("T2")
    draw.at_most(T1=dtype, T2=where)
    sizes = [draw.size(2, 5) for _ in range(rank)]
    batch, channels = draw.size(1, 2), draw.size(1, 3)
    x = draw.reals([batch, channels, *sizes], dtype)
    new = [draw.size(1, 4) for _ in range(rank)]
    # No multiple of these is where a nearest neighbour or a border changes.
    at = draw.contents.integers(-23, 24, (batch, *new, rank)) / 16 + 1 / 64
    linear = "linear" if draw.version >= 20 else "bilinear"
    cubic = "cubic" if draw.version >= 20 else "bicubic"
    modes = [linear, "nearest"] + [cubic] * (rank == 2)
    mode = draw.pick(modes)
    attributes = {
        "mode": draw.maybe(mode) if mode == linear else mode,
        "padding_mode": draw.maybe(
            draw.pick(["zeros", "reflection", *["border"] * (mode != cubic)])
        ),
        "align_corners": draw.maybe(draw.integer(0, 1)),
    }
    return Instance([x, at.astype(where)], attributes)


@makes("AffineGrid", steady=[1], factor=24, absolute=8)
def grid(draw: Draw) -> Instance:
    rank = draw.integer(2, 3)
    batch = draw.size(1, 2)
    theta = draw.reals([batch, rank, rank + 1], draw.type_of("T1"))
    corners = draw.maybe(draw.integer(0, 1))
    low = 2 if corners else 1  # where the one corner of an axis lies is not said
    size = [batch, draw.integer(1, 3), *[draw.size(low, 4) for _ in range(rank)]]
    return Instance([theta, np.array(size, INT64)], {"align_corners": corners})


def _boxes(draw: Draw, count: int, dtype: Any) -> Array:
    low = draw.contents.integers(0, 24, (count, 2)) / 8
    return np.concatenate([low, low + draw.contents.integers(9, 33, (count, 2)) / 8], 1).astype(
        dtype
    )


@makes("RoiAlign", steady=[1], factor=24, absolute=16)
def aligned(draw: Draw) -> Instance:
    dtype = draw.type_of("T1")
    batch, count = draw.size(1, 2), draw.size(1, 4)
    x = draw.reals([batch, draw.size(1, 2), draw.size(5, 8), draw.size(5, 8)], dtype)
    rois = _boxes(draw, count, dtype)
    which = draw.contents.integers(0, batch, count).astype(INT64)
    attributes: dict[str, Any] = {
        "mode": draw.maybe(draw.pick(["avg", "max"])),
        "output_height": draw.maybe(draw.integer(1, 3)),
        "output_width": draw.maybe(draw.integer(1, 3)),
        "sampling_ratio": draw.integer(1, 3),
        "spatial_scale": draw.maybe(draw.pick([0.5, 1.0])),
    }
    if draw.version >= 16:
        attributes["coordinate_transformation_mode"] = draw.maybe(
            draw.pick(["half_pixel", "output_half_pixel"])
        )
    return Instance([x, rois, which], attributes)


@makes("MaxRoiPool", exact=True)
def pooled(draw: Draw) -> Instance:
    dtype = draw.input_type(0)
    batch, count = draw.size(1, 2), draw.size(1, 4)
    x = draw.values([batch, draw.size(1, 2), draw.size(5, 8), draw.size(5, 8)], dtype, -9, 9)
    low = draw.contents.integers(0, 3, (count, 2))
    high = low + draw.contents.integers(0, 5, (count, 2))
    rois = np.concatenate([draw.contents.integers(0, batch, (count, 1)), low, high], 1)
    shape = [draw.pick([1, 2, 4]) for _ in range(2)]
    return Instance(
        [x, rois.astype(dtype)], {"pooled_shape": shape, "spatial_scale": draw.maybe(1.0)}
    )


@reference("MaxRoiPool")
def max_of_regions(use: Use, x: Array, rois: Array) -> Array:
    """Ends are included; a bin without elements is 0."""
    rows, columns = use.attributes["pooled_shape"]
    scale = use.attributes["spatial_scale"]
    result = np.zeros((len(rois), x.shape[1], rows, columns))
    for number, roi in enumerate(rois):
        image = x[int(roi[0])]
        left, top, right, bottom = (int(np.floor(v * scale + 0.5)) for v in roi[1:])
        height, width = max(bottom - top + 1, 1), max(right - left + 1, 1)
        for i, j in np.ndindex(rows, columns):
            y = [
                int(np.floor(i * height / rows)) + top,
                int(np.ceil((i + 1) * height / rows)) + top,
            ]
            z = [
                int(np.floor(j * width / columns)) + left,
                int(np.ceil((j + 1) * width / columns)) + left,
            ]
            y, z = np.clip(y, 0, x.shape[2]), np.clip(z, 0, x.shape[3])
            part = image[:, y[0] : y[1], z[0] : z[1]]
            if part.size:
                result[number, :, i, j] = part.max((1, 2))
    return result


@makes("MaxUnpool", exact=True)
def unpooled(draw: Draw) -> Instance:
    shape = [draw.size(1, 2), draw.size(1, 2), draw.size(1, 3), draw.size(1, 3)]
    dtype = draw.type_of("T1")
    whole = [shape[0], shape[1], 2 * shape[2], 2 * shape[3]]
    room = 4 * shape[2] * shape[3]
    places = (
        np.stack(
            [
                draw.contents.permutation(room)[: shape[2] * shape[3]] + k * room
                for k in range(shape[0] * shape[1])
            ]
        )
        .reshape(shape)
        .astype(INT64)
    )
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    given = np.array(whole, INT64) if draw.chance(0.4) else None
    return Instance([draw.values(shape, dtype), places, given], attributes)


@reference("MaxUnpool")
def unpool(use: Use, x: Array, places: Array, shape: Any = None) -> Array:
    shape = (
        [*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3]] if shape is None else [int(s) for s in shape]
    )
    result = np.zeros(int(np.prod(shape)), x.dtype)
    result[places.reshape(-1)] = x.reshape(-1)
    return result.reshape(shape)


@makes("DeformConv", steady=[2], factor=24, absolute=16)
def deformed(draw: Draw) -> Instance:
    window = Window(draw, 2)
    group, offset_group = draw.pick([1, 2]), draw.pick([1, 2])
    inner = draw.integer(1, 2) * 2
    dtype = draw.type_of("T")
    batch = draw.size(1, 2)
    pads = window.pads
    out = [
        (window.sizes[k] + pads[k] + pads[k + 2] - (window.kernel[k] - 1) * window.dilations[k] - 1)
        // window.strides[k]
        + 1
        for k in range(2)
    ]
    taps = window.kernel[0] * window.kernel[1]
    x = draw.reals([batch, group * inner, *window.sizes], dtype)
    w = draw.reals([group * draw.integer(1, 2), inner, *window.kernel], dtype)
    at = draw.contents.integers(-12, 13, (batch, 2 * offset_group * taps, *out)) / 8 + 1 / 64
    bias = draw.reals([w.shape[0]], dtype) if draw.chance(0.4) else None
    mask = (
        draw.values([batch, offset_group * taps, *out], dtype, 0, 1) if draw.chance(0.5) else None
    )
    attributes = {
        "strides": window.strides,
        "pads": pads,
        "dilations": window.dilations,
        "group": group,
        "offset_group": offset_group,
        "kernel_shape": draw.maybe(window.kernel),
    }
    return Instance([x, w, at.astype(dtype), bias, mask], attributes)


@makes("NonMaxSuppression", exact=True, own=True)
def suppressed(draw: Draw) -> Instance:
    batch, count, classes = draw.size(1, 2), draw.size(1, 6), draw.size(1, 3)
    low = draw.contents.integers(0, 32, (batch, count, 2)) / 4
    boxes = np.concatenate([low, low + draw.contents.integers(1, 16, (batch, count, 2)) / 4], 2)
    if draw.contents.random() < 0.3:
        boxes = boxes[..., [2, 1, 0, 3]]
    centre = draw.integer(0, 1)
    if centre:
        boxes = np.concatenate([low, draw.contents.integers(1, 16, (batch, count, 2)) / 4], 2)
    scores = draw.distinct([batch, classes, count], F32) / np.float32(16)
    most = np.array([draw.integer(0, 4)], INT64) if draw.chance(0.85) else None
    overlap = draw.maybe(np.array([draw.pick([0.0, 0.31, 0.51, 1.0])], F32), 0.8)
    least = draw.maybe(np.array([draw.pick([-0.26, 0.03])], F32))
    return Instance(
        [boxes.astype(F32), scores.astype(F32), most, overlap, least],
        {"center_point_box": centre if centre else draw.maybe(0)},
    )


@reference("AffineGrid")
def affine(use: Use, theta: Array, size: Array) -> Array:
    """Places of the corners' centres, or of the corners themselves, under the map."""
    axes = []
    for n in map(int, size[2:]):
        if use.attributes["align_corners"]:
            axes.append(np.linspace(-1, 1, n))
        else:
            axes.append((2 * np.arange(n) + 1) / n - 1)
    grids = np.meshgrid(*axes, indexing="ij")
    places = np.stack([*reversed(grids), np.ones(grids[0].shape)], -1)
    return np.einsum("brk,...k->b...r", theta, places)


@reference("DeformConv")
def deform(use: Use, x: Array, w: Array, at: Array, b: Any = None, mask: Any = None) -> Array:
    """Bilinear samples, zero outside, one for each tap, then a product with the weights."""
    g = use.attributes
    (sy, sx), (dy, dx), pads = g["strides"], g["dilations"], g["pads"]
    batch, channels, height, width = x.shape
    out, inner, rows, columns = w.shape
    groups, parts = g["group"], g["offset_group"]
    high, wide = at.shape[2:]
    at = at.reshape(batch, parts, rows, columns, 2, high, wide)
    result = np.zeros((batch, out, high, wide))
    each = channels // parts
    sampled = np.zeros((batch, channels, rows, columns, high, wide))
    for n, part, i, j in np.ndindex(batch, parts, rows, columns):
        y = np.arange(high)[:, None] * sy - pads[0] + i * dy + at[n, part, i, j, 0]
        z = np.arange(wide)[None, :] * sx - pads[1] + j * dx + at[n, part, i, j, 1]
        value = np.zeros((each, high, wide))
        for oy, oz in np.ndindex(2, 2):
            cy, cz = np.floor(y).astype(int) + oy, np.floor(z).astype(int) + oz
            weight = (1 - np.abs(y - cy)) * (1 - np.abs(z - cz))
            inside = (cy >= 0) & (cy < height) & (cz >= 0) & (cz < width)
            taken = x[n, part * each : (part + 1) * each][
                :, np.clip(cy, 0, height - 1), np.clip(cz, 0, width - 1)
            ]
            value += np.where(inside, weight * taken, 0)
        if mask is not None:
            value = value * mask.reshape(batch, parts, rows, columns, high, wide)[n, part, i, j]
        sampled[n, part * each : (part + 1) * each, i, j] = value
    for k in range(groups):
        taken = sampled[:, k * inner : (k + 1) * inner]
        factor = w[k * out // groups : (k + 1) * out // groups]
        result[:, k * out // groups : (k + 1) * out // groups] = np.einsum(
            "bcijhw,ocij->bohw", taken, factor
        )
    return result if b is None else result + b.reshape(-1, 1, 1)


@reference("NonMaxSuppression")
def suppress(
    use: Use, boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None
) -> Array:
    """The best first; what overlaps a chosen box by more than the threshold goes."""
    limit = 0 if most is None else int(most.reshape(-1)[0])
    threshold = 0.0 if overlap is None else float(overlap.reshape(-1)[0])
    boxes = boxes.astype(np.float64)
    if use.attributes["center_point_box"]:
        half = boxes[..., 2:] / 2
        boxes = np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], -1)
    low, high = (
        np.minimum(boxes[..., :2], boxes[..., 2:]),
        np.maximum(boxes[..., :2], boxes[..., 2:]),
    )
    found: list[list[int]] = []
    for n, c in np.ndindex(scores.shape[:2]):
        chosen: list[int] = []
        for k in np.argsort(-scores[n, c], kind="stable"):
            if len(chosen) >= limit or (
                least is not None and scores[n, c, k] <= least.reshape(-1)[0]
            ):
                break
            area = np.prod(high[n] - low[n], -1)
            shared = [
                np.prod(
                    np.maximum(
                        np.minimum(high[n, k], high[n, j]) - np.maximum(low[n, k], low[n, j]), 0
                    )
                )
                for j in chosen
            ]
            if all(
                s / (area[k] + area[j] - s) <= threshold
                for s, j in zip(shared, chosen, strict=False)
            ):
                chosen.append(int(k))
        found += [[n, c, k] for k in chosen]
    return np.array(found, np.int64).reshape(-1, 3)


def _matrix(size: int, count: int, scale: float, g: Any) -> Array:
    """What each element of the input adds to each element of a resized axis."""
    places, result = np.arange(count), np.zeros((count, size))
    kind = g["coordinate_transformation_mode"]
    if kind == "align_corners":
        # The length may be a fraction: the standard's own cases are computed like this.
        at = places * (size - 1) / (size * scale - 1) if count > 1 else places * 0.0
    elif kind == "asymmetric":
        at = places / scale
    else:
        at = (places + 0.5) / scale - 0.5
        if kind == "pytorch_half_pixel" and count == 1:
            at = at * 0
    low = np.floor(at)
    if g["mode"] == "nearest":
        part = at - low
        up = {
            "round_prefer_floor": part > 0.5,
            "round_prefer_ceil": part >= 0.5,
            "floor": part < 0,
            "ceil": part > 0,
        }[g["nearest_mode"]]
        taps, weights = [low + up], [np.ones(count)]
    elif g["mode"] == "linear":
        taps, weights = [low, low + 1], [1 - (at - low), at - low]
    else:
        a = g["cubic_coeff_a"]
        taps, weights = [low + k for k in (-1, 0, 1, 2)], []
        for tap in taps:
            d = np.abs(at - tap)
            near = ((a + 2) * d - (a + 3)) * d * d + 1
            weights.append(np.where(d <= 1, near, ((d - 5) * d + 8) * d * a - 4 * a))
        if g["exclude_outside"]:
            weights = [
                np.where((t >= 0) & (t < size), w, 0) for t, w in zip(taps, weights, strict=True)
            ]
            total = sum(weights)
            weights = [w / total for w in weights]
    for tap, weight in zip(taps, weights, strict=True):
        np.add.at(result, (places, np.clip(tap, 0, size - 1).astype(int)), weight)
    return result


@reference("Resize", since=11)
def resize(use: Use, x: Array, roi: Any = None, scales: Any = None, sizes: Any = None) -> Array:
    """Axis by axis; see the formulas of coordinate_transformation_mode."""
    g = use.attributes
    if g.get("antialias", 0):
        return NotImplemented
    for axis in range(x.ndim):
        size = x.shape[axis]
        if sizes is None or not sizes.size:
            scale = float(scales[axis])
            count = int(np.floor(size * scale))
        else:
            count, scale = int(sizes[axis]), int(sizes[axis]) / size
        if count != size or scale != 1:
            matrix = _matrix(size, count, scale, g)
            if g["mode"] == "nearest":
                x = np.take(x, np.argmax(matrix, 1), axis)
            else:
                x = np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)
    return x
