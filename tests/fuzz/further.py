"""Rules for operators that few models have: sampling, transforms, sequences, narrow types."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from tests.fuzz.builder import Builder, Declined, bounded
from tests.fuzz.products import as_image
from tests.fuzz.values import RUNS, Extent, Value, fixed, free, volume


def inverse(g: Builder) -> Value:
    """Functions of numbers between -1 and 1, away from where they are steep."""
    x = g.pick(lambda v: v.is_float and v.bound <= 1.0)
    small = x.like(exact=False, whole=False, bound=0.9)
    small = g.node("Mul", [x, g.constant(np.array(0.9, x.dtype))], [small])
    name = g.random.choice(["Asin", "Acos", "Atanh", "Tan"])
    return g.node(name, [small], [small.like(bound=3.2)])


def root_mean_square(g: Builder) -> Value:
    x = g.pick(lambda v: v.is_float and v.rank > 0 and v.shape[-1].is_static)
    if not x.shape[-1].number:
        raise Declined
    scale = g.weights((x.shape[-1].number,), x.dtype, False)
    bound = 3.0 * math.sqrt(x.shape[-1].number) + 1
    result = x.like(exact=False, whole=False, bound=bound)
    return g.node("RMSNormalization", [x, scale], [bounded(g, result)], axis=-1)


def centre(g: Builder) -> Value:
    """MeanVarianceNormalization of an image."""
    x = as_image(g, 2)
    if any(e.least < 1 for e in (x.shape[0], *x.shape[2:])):
        raise Declined
    result = x.like(exact=False, whole=False, bound=120.0)
    return g.node("MeanVarianceNormalization", [x], [bounded(g, result)])


def running_product(g: Builder) -> Value:
    x = g.pick(lambda v: v.is_float and v.rank > 0 and v.bound <= 1.0)
    axis = g.constant(np.array(g.number(-x.rank, x.rank - 1), np.int64))
    result = x.like(exact=x.is_exact_whole)
    ways = {"exclusive": g.number(0, 1), "reverse": g.number(0, 1)}
    return g.node("CumProd", [x, axis], [result], **ways)


# -- positions that the data decides --------------------------------------------------------


def unique(g: Builder) -> Value:
    x = g.pick(lambda v: v.exact and v.rank > 0 and not any(e.free for e in v.shape))
    if volume(x.shape) > 2000 or any(e.least < 1 for e in x.shape):
        raise Declined
    flat = g.chance(0.6)
    axis = 0 if flat else g.number(0, x.rank - 1)
    every = [math.prod(e.at[run] for e in x.shape) if flat else x.shape[axis].at[run]
             for run in range(RUNS)]  # fmt: skip
    extent = Extent(tuple(every))
    found = free(extent.at)
    rest = () if flat else x.shape[axis + 1 :]
    shape = (found, *rest) if flat else (*x.shape[:axis], found, *rest)
    most = float(max(every))
    places = Value("", "i8", (found,), bound=most)
    outputs = [x.like(shape=shape), places, places.like(shape=(extent,)), places]
    ways = {} if flat else {"axis": axis}
    return g.node("Unique", [x], outputs[: g.number(1, 4)], sorted=g.number(0, 1), **ways)


def chosen(g: Builder) -> Value:
    """The rows of one value for which another one is not zero."""
    c = g.pick(lambda v: v.exact and v.rank == 1 and not v.shape[0].free)
    x = g.pick(lambda v: v.rank > 0 and v.shape[0] == c.shape[0])
    found = free(c.shape[0].at)
    places = Value("", "i8", (fixed(1), found), bound=float(max(c.shape[0].at) + 1))
    places = g.node("NonZero", [c], [places])
    result = x.like(shape=(found, *x.shape[1:]))
    if g.chance(0.5):
        turned = places.like(shape=(found, fixed(1)))
        turned = g.node("Transpose", [places], [turned], perm=[1, 0])
        return g.node("GatherND", [x, turned], [result])
    first = g.constant(np.array([0], np.int64))
    row = g.node("Squeeze", [places, first], [places.like(shape=(found,))])
    return g.node("Gather", [x, row], [result], axis=0)


# -- images -----------------------------------------------------------------------------------


def sample(g: Builder) -> Value:
    """GridSample at a grid of weights, or of an affine map; never where it jumps."""
    x = as_image(g, 2)
    if any(e.least < 1 or e.free for e in (x.shape[0], *x.shape[2:])):
        raise Declined
    align = g.number(0, 1)
    height, width = g.number(1, 5), g.number(1, 5)
    shape = (x.shape[0], fixed(height), fixed(width), fixed(2))
    if g.chance(0.5) and x.shape[0].is_static and x.dtype != "f2":
        batch = x.shape[0].number
        theta = g.weights((batch, 2, 3), x.dtype, False, 0.4)
        size = g.constant(np.array([batch, x.shape[1].number, height, width], np.int64))
        grid = Value("", x.dtype, shape, False, False, 5.0)
        grid = g.node("AffineGrid", [theta, size], [grid], align_corners=align)
    elif x.shape[0].is_static:
        sizes = (x.shape[0].number, height, width, 2)
        grid = g.weights(sizes, x.dtype, False, 0.6)
    else:
        raise Declined
    ways = {
        "mode": g.random.choice(["linear", "cubic"]),
        "padding_mode": g.random.choice(["zeros", "border", "reflection"]),
        "align_corners": align,
    }
    result = x.like(shape=(*x.shape[:2], *shape[1:3]), exact=False, whole=False, bound=3 * x.bound)
    return g.node("GridSample", [x, grid], [bounded(g, result)], **ways)


def regions(g: Builder) -> Value:
    x = as_image(g, 2, ("f4", "f8"))
    if any(e.least < 1 or e.free for e in (x.shape[0], *x.shape[2:])):
        raise Declined
    count = g.number(1, 3)
    corners = np.abs(g.numbers((count, 2), x.dtype, False))
    boxes = np.concatenate([corners, corners + np.abs(g.numbers((count, 2), x.dtype, False))], 1)
    batch = np.array([g.number(0, x.shape[0].least - 1) for _ in range(count)], np.int64)
    height, width = g.number(1, 3), g.number(1, 3)
    shape = (fixed(count), x.shape[1], fixed(height), fixed(width))
    result = x.like(shape=shape, exact=False, whole=False)
    return g.node(
        "RoiAlign", [x, g.constant(boxes), g.constant(batch)], [result],
        output_height=height, output_width=width, sampling_ratio=g.number(1, 2),
        mode=g.random.choice(["avg", "max"]), spatial_scale=g.random.choice([1.0, 0.5]),
    )  # fmt: skip


def columns(g: Builder) -> Value:
    """Col2Im of blocks that overlap."""
    high, wide, kernel = g.number(2, 5), g.number(2, 5), g.number(1, 2)
    blocks = (high - kernel + 1) * (wide - kernel + 1)
    channels = g.number(1, 2)
    shape = (channels * kernel * kernel, blocks)
    x = g.pick(lambda v: v.is_float and v.rank >= 1 and v.shape[0].least > 0)
    ones = [g.constant(np.array([-1], np.int64)), g.constant(np.array([0], np.int64))]
    flat = Extent(tuple(math.prod(e.at[run] for e in x.shape) for run in range(RUNS)))
    if any(e.free for e in x.shape):
        raise Declined
    row = g.node("Reshape", [x, ones[0]], [x.like(shape=(flat,))])
    row = g.node("Unsqueeze", [row, g.constant(np.array([0, 1], np.int64))],
                 [x.like(shape=(fixed(1), fixed(1), flat))])  # fmt: skip
    target = g.constant(np.array([1, shape[0], blocks], np.int64))
    axes = [0, 1, 2]
    cut = x.like(shape=(fixed(1), fixed(shape[0]), fixed(blocks)))
    block = g.node("CenterCropPad", [row, target], [cut], axes=axes)
    result = x.like(
        shape=(fixed(1), fixed(channels), fixed(high), fixed(wide)),
        exact=x.is_exact_whole, bound=x.bound * kernel * kernel,
    )  # fmt: skip
    operands = [block, *(g.constant(np.array(s, np.int64)) for s in ([high, wide], [kernel] * 2))]
    return g.node("Col2Im", operands, [bounded(g, result)])


def max_positions(g: Builder) -> Value:
    """MaxPool with positions, of what no rounding decides."""
    x = as_image(g, 2, ("f4", "f8"))
    if not x.exact or any(e.least < 2 or e.free for e in x.shape[2:]):
        raise Declined
    spatial = [e.map(lambda n: n - 1) for e in x.shape[2:]]
    shape = (*x.shape[:2], *spatial)
    places = Value("", "i8", shape, bound=float(volume(x.shape)))
    return g.node("MaxPool", [x], [x.like(shape=shape), places], kernel_shape=[2, 2])


# -- linear algebra ---------------------------------------------------------------------------


def transform(g: Builder) -> Value:
    """A discrete Fourier transform of real numbers, one-sided or not."""
    x = g.pick(lambda v: v.dtype in ("f4", "f8") and v.rank > 0 and not v.shape[-1].free)
    length = x.shape[-1]
    if length.least < 1 or max(length.at) > 70:
        raise Declined
    last = g.constant(np.array([-1], np.int64))
    x = g.node("Unsqueeze", [x, last], [x.like(shape=(*x.shape, fixed(1)))])
    onesided = g.number(0, 1)
    kept = length.map(lambda n: n // 2 + 1) if onesided else length
    result = x.like(
        shape=(*x.shape[:-2], kept, fixed(2)), exact=False, whole=False,
        bound=x.bound * max(length.at),
    )  # fmt: skip
    axis = g.constant(np.array(x.rank - 2, np.int64))
    return g.node("DFT", [x, None, axis], [bounded(g, result)], onesided=onesided)


def attend(g: Builder) -> Value:
    """The Attention operator, with and without a causal mask."""
    x = g.pick(
        lambda v: (
            v.dtype in ("f4", "f8") and v.rank == 3 and v.shape[2].is_static and v.shape[2].number
            and v.shape[1].least and not v.shape[1].free and v.bound < 30
        )
    )  # fmt: skip
    width = x.shape[2].number
    heads = g.random.choice([h for h in range(1, width + 1) if width % h == 0])
    keys = g.pick(lambda v: v.dtype == x.dtype and v.shape == x.shape and v.bound < 30)
    ways = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": g.number(0, 1)}
    if g.chance(0.3):
        ways["softcap"] = 2.0
    result = x.like(exact=False, whole=False, bound=keys.bound)
    return g.node("Attention", [x, keys, keys], [result], **ways)


# -- narrow types -----------------------------------------------------------------------------


def narrow(g: Builder) -> Value:
    """To a narrow float and back, through an operator that only moves elements."""
    x = g.pick(lambda v: v.dtype in ("f4", "f8", "f2") and v.bound < 400)
    kind, most = g.random.choice([(TensorProto.BFLOAT16, 256), (TensorProto.FLOAT8E4M3FN, 16)])
    exact = x.is_exact_whole and x.bound <= most
    if not exact and kind != TensorProto.BFLOAT16:
        raise Declined
    held = g.node("Cast", [x], [x.like()], to=kind)
    hidden = [held]
    if x.rank > 1 and g.chance(0.5):
        order = list(range(x.rank))
        g.random.shuffle(order)
        turned = x.like(shape=tuple(x.shape[k] for k in order))
        held = g.node("Transpose", [held], [turned], perm=order)
        hidden.append(held)
    for v in hidden:  # other rules do not know the type
        g.values.remove(v)
        g.made.remove(v)
    back = {"f4": TensorProto.FLOAT, "f8": TensorProto.DOUBLE, "f2": TensorProto.FLOAT16}[x.dtype]
    result = held.like(exact=exact, whole=x.whole and exact, bound=x.bound * 1.01)
    return g.node("Cast", [held], [result], to=back)


def by_channel(g: Builder) -> Value:
    """Quantised and back with a scale for each element of an axis."""
    x = g.pick(lambda v: v.dtype == "f4" and v.exact and v.rank > 0)
    axes = [k for k, e in enumerate(x.shape) if e.is_static and e.number]
    if not axes:
        raise Declined
    axis = g.random.choice(axes)
    count = x.shape[axis].number
    scales = np.array([g.random.choice([0.25, 0.5, 1.0]) for _ in range(count)], np.float32)
    zeros = np.array([g.number(0, 200) for _ in range(count)], np.uint8)
    operands = [g.constant(scales), g.constant(zeros)]
    held = Value("", "u1", x.shape, bound=255.0)
    held = g.node("QuantizeLinear", [x, *operands], [held], axis=axis)
    result = x.like(exact=True, whole=False, bound=255.0)
    return g.node("DequantizeLinear", [held, *operands], [result], axis=axis)


def quantised_product(g: Builder) -> Value:
    x = g.pick(lambda v: v.dtype == "u1" and v.rank > 1 and v.shape[-1].is_static)
    depth, wide = x.shape[-1].number, g.number(1, 9)
    y = g.weights((depth, wide), "u1", True)

    def parameters(scale: float) -> list[Value]:
        zero = np.array(g.number(0, 9), np.uint8)
        return [g.constant(np.array(scale, np.float32)), g.constant(zero)]

    result = Value("", "u1", (*x.shape[:-1], fixed(wide)), bound=255.0)
    operands = [x, *parameters(0.5), y, *parameters(0.25), *parameters(1.0)]
    return g.node("QLinearMatMul", operands, [result])


# -- sequences --------------------------------------------------------------------------------


def sequence(g: Builder) -> Value:
    """Tensors into a sequence, and one or all of them out of it."""
    x = g.pick(lambda v: v.rank > 0 and not any(e.free for e in v.shape))
    others = [g.pick(lambda v: v.dtype == x.dtype and v.shape == x.shape) for _ in range(2)]
    items = [x, *others[: g.number(1, 2)]]
    every = g.node("SequenceConstruct", items, [x.like()])
    g.values.remove(every)
    g.made.remove(every)
    exact, whole = (all(getattr(v, fact) for v in items) for fact in ("exact", "whole"))
    like = x.like(exact=exact, whole=whole, bound=max(v.bound for v in items))
    if g.chance(0.5):
        place = g.constant(np.array(g.number(-len(items), len(items) - 1), np.int64))
        return g.node("SequenceAt", [every, place], [like])
    shape = (fixed(len(items)), *x.shape)
    return g.node("ConcatFromSequence", [every], [like.like(shape=shape)], axis=0, new_axis=1)


#: Rule, how often.
RULES = [
    (inverse, 2), (root_mean_square, 1), (centre, 1), (running_product, 1), (unique, 3),
    (chosen, 3), (sample, 3), (regions, 1), (columns, 1), (max_positions, 1), (transform, 2),
    (attend, 2), (narrow, 3), (by_channel, 2), (quantised_product, 1), (sequence, 2),
]  # fmt: skip
