"""Casts, and operators between whole numbers and floats."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.operator_fuzz.draw import STRING, TYPES, Array, Draw, DType, is_float
from tests.operator_fuzz.instance import Instance, makes
from tests.operator_fuzz.oracle import Use, reference
from tests.operator_fuzz.products import Window

#: The least and the greatest number of integers narrower than NumPy's.
_LIMITS = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}
_NARROW = tuple(_LIMITS)


def _castable(draw: Draw, source: DType, to: DType) -> Array:
    """Contents whose cast the standard defines."""
    shape = draw.shape(0, 5)
    low, high = _LIMITS.get(source.name, (-4.0, 4.0))
    if to == STRING:
        return draw.values(shape, source, -9, 9)
    if source == STRING:
        words = ["1", "0", "12", "3"] + (
            ["-2.5", "1e2", "NaN", "-INF", "3.0"] if is_float(to) else []
        )
        return draw.contents.choice(np.array(words, object), size=tuple(shape)).astype(object)
    if is_float(source) and not is_float(to):
        if to.kind == "u" or to.name in ("uint4", "uint2"):
            low = 0
        least, most = _LIMITS.get(to.name, (low, high))
        return draw.values(shape, source, max(low, least), min(high, most))
    if is_float(source):
        found = draw.reals(shape, source, 2.0)
        return found
    return draw.anything(shape, source)


@makes("Cast CastLike", exact=True, own=True)
def cast(draw: Draw) -> Instance:
    source, to = draw.type_of("T1"), draw.type_of("T2")
    if "complex" in source.name or "complex" in to.name:
        source = to = np.dtype(np.float32)
    if source == to == STRING:
        source = np.dtype(np.int64)
    if to == STRING and source.name not in ("int64", "int32", "uint8"):
        source = np.dtype(np.int64)
    if source == STRING and to.name not in ("float32", "float64", "int64", "int32"):
        to = np.dtype(np.float32)
    if "float8_e8m0" in source.name + to.name or "float4" in source.name + to.name:
        source = to = np.dtype(np.float32)
    draw.at_most(T1=source, T2=to)
    x = _castable(draw, source, to)
    saturate = draw.maybe(draw.integer(0, 1)) if draw.has_attribute("saturate") else None
    saturate = saturate if "float8" in to.name and is_float(source) else None
    if draw.schema.name == "Cast":
        return Instance([x], {"to": to, "saturate": saturate}, [to])
    return Instance([x, draw.values([1], to)], {"saturate": saturate}, [to])


@makes("BitCast", exact=True, own=True)
def bitcast(draw: Draw) -> Instance:
    source = draw.type_of("T1")
    width = source.itemsize
    kindred = [
        t
        for t in draw.schema.type_constraints[1].allowed_type_strs
        if t in TYPES
        and TYPES[t].itemsize == width
        and TYPES[t] != STRING
        and TYPES[t].name not in _NARROW
        and "float4" not in t
        and TYPES[t] != np.dtype(bool)
    ]
    if source.name in _NARROW or "float4" in source.name or not kindred or source in (STRING, bool):
        source, kindred = np.dtype(np.float32), ["tensor(int32)", "tensor(uint32)"]
    draw.at_most(T1=source)
    to = TYPES[draw.pick(kindred)]
    return Instance([draw.values(draw.shape(), source)], {"to": to}, [to])


def _granules(draw: Draw, shape: list[int]) -> tuple[list[int], int, int]:
    """The shape of a scale for all, for each place on an axis or for each block; axis; block."""
    kind = draw.integer(0, 2 if draw.has_attribute("block_size") else 1)
    axis = draw.axis(len(shape))
    if kind == 0 or draw.version < 13:
        return [], 1, 0
    if kind == 1:
        return [shape[axis]], axis, 0
    block = draw.integer(1, 3)
    whole = list(shape)
    whole[axis] = -(-shape[axis] // block)
    return whole, axis, block


def _spread(x: Array, values: Array | None, g: Any) -> Any:
    """A scale or zero point for each element."""
    if values is None or not values.ndim:
        return 0.0 if values is None else values.astype(np.float64)
    axis = g["axis"] % x.ndim
    wide = values.astype(np.float64)
    if g.get("block_size", 0):
        return np.take(np.repeat(wide, g["block_size"], axis), np.arange(x.shape[axis]), axis)
    return wide.reshape([-1 if a == axis else 1 for a in range(x.ndim)])


@makes("QuantizeLinear", exact=True, own=True)
def quantised(draw: Draw) -> Instance:
    names = [c.type_param_str for c in draw.schema.type_constraints]
    source, to = draw.type_of("T1"), draw.type_of(names[-1])
    if "float4" in to.name:
        to = np.dtype(np.uint8)
    scale_type = draw.input_type(1)
    if "e8m0" in scale_type.name:
        scale_type = np.dtype(np.float32)
        draw.at_most(T2=scale_type)
    if source.kind != "f":
        source = np.dtype(np.float32)
        scale_type = source if draw.version in (19, 21) else scale_type
    draw.at_most(T1=source, **{names[-1]: to})
    shape = draw.shape(1, 4, low=1)
    granules, axis, block = _granules(draw, shape)
    powers = draw.contents.choice([0.25, 0.5, 1.0, 2.0], tuple(granules))
    low, high = _LIMITS.get(to.name, (-3, 3))
    zero: Array | None = draw.values(granules, to, max(low, -3), min(high, 3))
    if is_float(to):
        zero = np.zeros(granules, to)
    attributes: dict[str, Any] = {"axis": axis if axis != 1 else draw.maybe(1)}
    if draw.version < 13:
        attributes = {}
    attributes["block_size"] = block or None
    if draw.chance(0.3):
        if draw.has_attribute("output_dtype"):
            zero, attributes["output_dtype"] = None, to
        elif to == np.uint8:
            zero = None
    x = draw.values(shape, source, -20, 20)
    return Instance([x, np.asarray(powers).astype(scale_type), zero], attributes, [to])


@reference("QuantizeLinear")
def quantise(use: Use, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """saturate(round half to even(x / scale) + zero point); floats are rounded by the cast."""
    to = use.types[0]
    found = x.astype(np.float64) / _spread(x, scale, use.attributes)
    if is_float(to):
        top = float(ml_dtypes.finfo(to).max)
        return np.clip(found, -top, top).astype(np.float32).astype(to)
    found = np.rint(found) + _spread(x, zero, use.attributes)
    low, high = _LIMITS.get(to.name) or (np.iinfo(to).min, np.iinfo(to).max)
    return np.clip(found, low, high).astype(np.int32).astype(to)


@makes("DequantizeLinear")
def dequantised(draw: Draw) -> Instance:
    first = draw.schema.type_constraints[0].type_param_str
    source = draw.type_of(first)
    if "float4" in source.name:
        source = np.dtype(np.int8)
        draw.at_most(**{first: source})
    scale_type = draw.input_type(1)
    if "e8m0" in scale_type.name:  # the result has no such type
        scale_type = np.dtype(np.float32)
        draw.at_most(T2=scale_type)
    shape = draw.shape(1, 4, low=1)
    granules, axis, block = _granules(draw, shape)
    low, high = _LIMITS.get(source.name, (-100, 100))
    zero = draw.values(granules, source, max(low, -3), min(high, 3)) if draw.chance(0.7) else None
    if zero is not None and (source == np.int32 or is_float(source)):
        zero = np.zeros_like(zero)
    to: Any = None
    if draw.has_attribute("output_dtype"):
        to = draw.maybe(draw.type_of(draw.schema.outputs[0].type_str), 0.3)
    result = to or (scale_type if draw.version >= 19 else np.dtype(np.float32))
    attributes: dict[str, Any] = {"axis": axis if axis != 1 else draw.maybe(1)}
    if draw.version < 13:
        attributes = {}
    attributes |= {"output_dtype": to, "block_size": block or None}
    x = draw.values(shape, source, low, high)
    scale = draw.values(granules, scale_type, 0.125, 2)
    return Instance([x, scale, zero], attributes, [result])


@reference("DequantizeLinear")
def dequantise(use: Use, x: Array, scale: Array, zero: Array | None = None) -> Array:
    g = use.attributes
    return (x.astype(np.float64) - _spread(x, zero, g)) * _spread(x, scale, g)


@makes("DynamicQuantizeLinear", own=True)
def ranged(draw: Draw) -> Instance:
    x = draw.values(draw.shape(1, 4, low=1), np.dtype(np.float32), -16, 16)
    # A range of 255 / 8, so that the scale is exact and no rounding decides a number.
    flat = x.reshape(-1)
    flat[0], flat[-1] = (-15.875 if flat.size > 1 else 31.875), (16 if flat.size > 1 else 31.875)
    return Instance([x])


@makes("MatMulInteger", exact=True)
def whole_product(draw: Draw) -> Instance:
    a, b = draw.operands(2, 0, 2)
    rows, inner, columns = (draw.size(1, 9) for _ in range(3))
    left = draw.values(
        [*a, rows, inner], draw.type_of("T1"), -128, 255 if draw.type_of("T1").kind == "u" else 127
    )
    right = draw.values(
        [*b, inner, columns],
        draw.type_of("T2"),
        -128,
        255 if draw.type_of("T2").kind == "u" else 127,
    )
    zeros = [
        draw.values([], draw.type_of("T1"), 0, 9) if draw.chance(0.6) else None,
        draw.values([columns] if draw.chance(0.4) and not b else [], draw.type_of("T2"), 0, 9)
        if draw.chance(0.6)
        else None,
    ]
    return Instance([left, right, *zeros])


@makes("ConvInteger", exact=True)
def whole_convolution(draw: Draw) -> Instance:
    window = Window(draw, draw.integer(1, 2))
    group, inner, outer = draw.pick([1, 1, 2]), draw.integer(1, 3), draw.integer(1, 3)
    x = draw.values([draw.size(1, 2), group * inner, *window.sizes], draw.type_of("T1"), -99, 99)
    w = draw.values([group * outer, inner, *window.kernel], draw.type_of("T2"), -99, 99)
    zeros = [
        draw.values([], t, 0, 9) if draw.chance(0.6) else None
        for t in (draw.type_of("T1"), draw.type_of("T2"))
    ]
    attributes = {**window.attributes, "group": group if group > 1 else draw.maybe(1)}
    return Instance([x, w, *zeros], {**attributes, "kernel_shape": draw.maybe(window.kernel)})


def _scale(draw: Draw, shape: list[int], dtype: DType) -> Array:
    return np.asarray(draw.contents.choice([0.25, 0.5, 1.0], tuple(shape))).astype(dtype)


@makes("QLinearMatMul", exact=True, own=True)
def quantised_product(draw: Draw) -> Instance:
    new = draw.version >= 21
    kinds = [draw.type_of(t) for t in ("T1", "T2", "T3")]
    kinds = [k if k.kind in "iu" else np.dtype(np.uint8) for k in kinds]
    draw.at_most(T1=kinds[0], T2=kinds[1], T3=kinds[2])
    scale = draw.type_of("TS") if new else np.dtype(np.float32)
    rows, inner, columns = (draw.size(1, 7) for _ in range(3))
    lead = draw.shape(0, 1, low=1, high=3)
    a = draw.values([*lead, rows, inner], kinds[0], -20, 20)
    b = draw.values([*lead, inner, columns], kinds[1], -20, 20)
    zeros = [draw.values([], k, 0, 5) for k in kinds]
    scales = [_scale(draw, [], scale) for _ in range(2)]
    return Instance(
        [a, scales[0], zeros[0], b, scales[1], zeros[1], np.asarray(8.0, scale), zeros[2]]
    )


@reference("QLinearMatMul")
def product_of_quantised(
    use: Use, a: Any, sa: Any, za: Any, b: Any, sb: Any, zb: Any, sy: Any, zy: Any
) -> Array:
    total = (a.astype(np.int64) - int(za)) @ (b.astype(np.int64) - int(zb))
    found = np.rint(total * float(sa) * float(sb) / float(sy)) + int(zy)
    limits = np.iinfo(use.types[0])
    return np.clip(found, limits.min, limits.max).astype(use.types[0])


@makes("QLinearConv", exact=True, own=True)
def quantised_convolution(draw: Draw) -> Instance:
    kinds = [draw.type_of(t) for t in ("T1", "T2", "T3")]
    window = Window(draw, draw.integer(1, 2))
    group, inner, outer = draw.pick([1, 1, 2]), draw.integer(1, 3), draw.integer(1, 3)
    x = draw.values([draw.size(1, 2), group * inner, *window.sizes], kinds[0], -20, 20)
    w = draw.values([group * outer, inner, *window.kernel], kinds[1], -20, 20)
    zeros = [draw.values([], k, 0, 5) for k in kinds]
    per_axis = draw.chance(0.4)
    scale_w = _scale(draw, [group * outer] if per_axis else [], np.dtype(np.float32))
    zero_w = np.broadcast_to(zeros[1], scale_w.shape).copy()
    scale = np.dtype(np.float32)
    bias = draw.values([group * outer], np.dtype(np.int32), -50, 50) if draw.chance(0.5) else None
    attributes = {
        **window.attributes,
        "group": group if group > 1 else draw.maybe(1),
        "kernel_shape": draw.maybe(window.kernel),
    }
    return Instance(
        [
            x,
            _scale(draw, [], scale),
            zeros[0],
            w,
            scale_w,
            zero_w,
            np.asarray(8.0, scale),
            zeros[2],
            bias,
        ],
        attributes,
    )


def convolve(x: Array, w: Array, g: Any) -> Array:
    """A convolution, summed up in the type of `x`."""
    rank = x.ndim - 2
    strides, dilations = g.get("strides", [1] * rank), g.get("dilations", [1] * rank)
    pads = list(g.get("pads", [0] * 2 * rank))
    span = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    if g["auto_pad"] in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            max((-(-n // s) - 1) * s + p - n, 0)
            for n, s, p in zip(x.shape[2:], strides, span, strict=True)
        ]
        half = [t // 2 for t in total]
        rest = [t - h for t, h in zip(total, half, strict=True)]
        pads = half + rest if g["auto_pad"] == "SAME_UPPER" else rest + half
    x = np.pad(x, [(0, 0), (0, 0), *((pads[k], pads[k + rank]) for k in range(rank))])
    sizes = [(n - p) // s + 1 for n, p, s in zip(x.shape[2:], span, strides, strict=True)]
    group = g["group"]
    inner, outer = w.shape[1], w.shape[0] // group
    result = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    for number in range(group):
        part = x[:, number * inner : (number + 1) * inner]
        for tap in np.ndindex(w.shape[2:]):
            at = tuple(
                slice(t * d, t * d + s * (n - 1) + 1, s)
                for t, d, s, n in zip(tap, dilations, strides, sizes, strict=True)
            )
            factor = w[(slice(number * outer, (number + 1) * outer), slice(None), *tap)]
            taken = part[(slice(None), slice(None), *at)]
            term = np.einsum("bi...,oi->bo...", taken, factor)
            result[:, number * outer : (number + 1) * outer] += term
    return result


@reference("Conv")
def conv(use: Use, x: Array, w: Array, b: Array | None = None) -> Array:
    found = convolve(x, w, use.attributes)
    return found if b is None else found + b.reshape(-1, *[1] * (x.ndim - 2))


@reference("ConvInteger")
def conv_integer(use: Use, x: Array, w: Array, zx: Any = None, zw: Any = None) -> Array:
    x = x.astype(np.int64) - (0 if zx is None else int(zx))
    w = w.astype(np.int64) - (0 if zw is None else int(zw))
    return convolve(x, w, use.attributes).astype(np.int32)


@reference("QLinearConv")
def conv_quantised(
    use: Use, x: Any, sx: Any, zx: Any, w: Any, sw: Any, zw: Any, sy: Any, zy: Any, b: Any = None
) -> Array:
    column = (-1, *[1] * (x.ndim - 1))
    left, right = (
        x.astype(np.int64) - int(zx),
        w.astype(np.int64) - zw.reshape(column if zw.ndim else ()).astype(np.int64),
    )
    total = convolve(left, right, use.attributes)
    along = (-1, *[1] * (x.ndim - 2))
    if b is not None:
        total = total + b.reshape(along)
    factor = float(sx) * sw.astype(np.float64) / float(sy)
    found = np.rint(total * (factor.reshape(along) if factor.ndim else factor)) + int(zy)
    limits = np.iinfo(use.types[0])
    return np.clip(found, limits.min, limits.max).astype(use.types[0])


@reference("Cast CastLike")
def cast_of(use: Use, x: Array, like: Any = None) -> Array:
    """Towards zero to whole numbers; to floats of 8 bits saturating, unless told otherwise."""
    to = use.types[0]
    if to == STRING:
        return np.vectorize(str, otypes=[object])(x)
    if x.dtype == STRING:
        x = np.vectorize(float, otypes=[np.float64])(x)
    if "float8" in to.name and use.attributes.get("saturate", 1):
        top = float(ml_dtypes.finfo(to).max)
        x = np.clip(x.astype(np.float64), -top, top).astype(np.float32)
    if to == np.dtype(bool):
        return x.astype(np.float64) != 0 if is_float(x.dtype) else x.astype(np.int64) != 0
    if to.name in _NARROW:
        return x.astype(np.int32).astype(to)
    return x.astype(to)
