"""Rules for products, convolutions, pools and normalisations."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.builder import Builder, Declined, bounded
from tests.fuzz.values import RUNS, Extent, Value, broadcast, fixed


def _terms(*extents: Extent) -> int:
    return max(math.prod(e.at[run] for e in extents) for run in range(RUNS))


def _sum_of_products(x: Value, y: Value, terms: int, shape: tuple[Extent, ...]) -> Value:
    whole = x.whole and y.whole
    bound = max(1.0, x.bound * y.bound * terms)
    return Value("", x.dtype, shape, x.exact and y.exact and whole, whole, bound)


def _columns(g: Builder, x: Value, extent: Extent) -> Value:
    """A right factor with this many rows."""
    if extent.is_static and g.chance(0.6):
        columns = g.random.choice([1, 2, 3, 5, 8, 16, 17])
        scale = 1 / math.sqrt(extent.number or 1)
        return g.weights((extent.number, columns), x.dtype, x.whole and g.chance(0.8), scale)

    def fits(v: Value) -> bool:
        return v.dtype == x.dtype and v.rank > 0 and v.shape[-2:][0] == extent

    try:
        return g.pick(fits)
    except Declined:
        y = g.pick(lambda v: v.dtype == x.dtype and v.rank > 1 and v.shape[-1] == extent)
        order = [*range(y.rank - 2), y.rank - 1, y.rank - 2]
        shape = tuple(y.shape[k] for k in order)
        return g.node("Transpose", [y], [y.like(shape=shape)], perm=order)


def matmul(g: Builder) -> Value:
    x = g.pick(lambda v: (v.is_float or v.dtype in ("i4", "i8")) and v.rank > 0)
    y = _columns(g, x, x.shape[-1])
    left = x.shape if x.rank > 1 else (fixed(1), *x.shape)
    right = y.shape if y.rank > 1 else (*y.shape, fixed(1))
    lead = broadcast(left[:-2], right[:-2])
    if lead is None:
        raise Declined
    rows = (left[-2],) if x.rank > 1 else ()
    columns = (right[-1],) if y.rank > 1 else ()
    shape = (*lead, *rows, *columns)
    result = bounded(g, _sum_of_products(x, y, _terms(left[-1]), shape))
    return g.node("MatMul", [x, y], [result])


def gemm(g: Builder) -> Value:
    x = g.pick(lambda v: v.is_float and v.rank == 2)
    transposed = g.number(0, 1)
    rows, depth = (x.shape[1], x.shape[0]) if transposed else x.shape
    y = _columns(g, x, depth)
    if y.rank != 2:
        raise Declined
    ways = {"transA": transposed, "transB": 0}
    columns = y.shape[1]
    if g.chance(0.3) and y.contents is not None:
        y = g.constant(np.ascontiguousarray(y.contents[0].T))
        ways["transB"] = 1
    result = _sum_of_products(x, y, _terms(depth), (rows, columns))
    operands = [x, y]
    if g.chance(0.6):
        extent = columns.number if columns.is_static else 1
        shape = g.random.choice([(extent,), (1, extent), (1,), ()])
        operands.append(g.weights(shape, x.dtype, x.whole))
        result = result.like(bound=result.bound + 3, whole=result.whole and operands[-1].whole)
    if g.chance(0.3):
        ways["alpha"] = 2.0
        result = result.like(bound=result.bound * 2)
    result = result.like(exact=result.exact and result.whole)
    return g.node("Gemm", operands, [bounded(g, result)], **ways)


def einsum(g: Builder) -> Value:
    x = g.pick(lambda v: v.is_float and v.rank in (2, 3))
    y = g.pick(lambda v: v.dtype == x.dtype and v.rank in (2, 3))
    letters: dict[Extent, str] = {}
    for e in (*x.shape, *y.shape):
        letters.setdefault(e, "abcdefgh"[len(letters)])
    terms = ["".join(letters[e] for e in v.shape) for v in (x, y)]
    if any(len(set(t)) < len(t) for t in terms):
        raise Declined
    used = sorted(set(terms[0] + terms[1]))
    kept = [c for c in used if g.chance(0.6)]
    g.random.shuffle(kept)
    extents = {c: e for e, c in letters.items()}
    summed = _terms(*(extents[c] for c in used if c not in kept))
    shape = tuple(extents[c] for c in kept)
    result = bounded(g, _sum_of_products(x, y, summed, shape))
    equation = f"{','.join(terms)}->{''.join(kept)}"
    return g.node("Einsum", [x, y], [result], equation=equation)


def integer_product(g: Builder) -> Value:
    x = g.pick(lambda v: v.dtype == "u1" and v.rank > 1 and v.shape[-1].is_static)
    columns = g.number(1, 9)
    y = g.weights((x.shape[-1].number, columns), "u1", True)
    shape = (*x.shape[:-1], fixed(columns))
    result = Value("", "i4", shape, bound=300.0 * 255 * x.shape[-1].number + 1)
    zero = g.constant(np.array(g.number(0, 9), np.uint8))
    return g.node("MatMulInteger", [x, y, zero], [bounded(g, result)])


# -- images -----------------------------------------------------------------------------------


def as_image(g: Builder, axes: int, dtypes: tuple[str, ...] = ("f4", "f8", "f2")) -> Value:
    """A value (batch, static channels, `axes` axes), with axes added where there are too few."""
    fitting = [
        v
        for v in g.values
        if v.rank == axes + 2 and v.shape[1].is_static and v.shape[1].number and v.dtype in dtypes
    ]
    if fitting and g.chance(0.8):
        return g.random.choice(fitting)
    x = g.pick(lambda v: v.dtype in dtypes and axes - 1 <= v.rank <= axes + 1)
    missing = axes + 2 - x.rank
    if missing == 1 and x.shape[0].is_static and x.shape[0].number:
        places = [0]
    else:
        places = list(range(2))[:missing] if missing < 3 else [0, 1, 2]
        places = [1] if missing == 1 else places
    shape = list(x.shape)
    for place in places:
        shape.insert(place, fixed(1))
    if not shape[1].is_static or not shape[1].number:
        raise Declined
    added = g.constant(np.array(places, np.int64))
    return g.node("Unsqueeze", [x, added], [x.like(shape=tuple(shape))])


class _Window:
    """Kernel, strides, dilations and padding of a window over an image."""

    def __init__(self, g: Builder, x: Value, pool: bool) -> None:
        axes = x.rank - 2
        self.kernel = [g.number(1, 3) for _ in range(axes)]
        self.strides = [g.number(1, 2) for _ in range(axes)]
        self.dilations = [1 if g.chance(0.7) else 2 for _ in range(axes)]
        most = [k - 1 if pool else k for k in self.kernel]
        self.pads = [g.number(0, m) if g.chance(0.7) else 0 for m in [*most, *most]]
        if pool:  # a window that is all padding has no meaning
            self.dilations = [1] * axes
        self.spatial: list[Extent] = []
        for k, extent in enumerate(x.shape[2:]):
            reach = (self.kernel[k] - 1) * self.dilations[k] + 1
            padding = self.pads[k] + self.pads[k + axes]
            if extent.least + padding < reach or extent.free or extent.least < 1:
                raise Declined
            self.spatial.append(
                extent.map(lambda n, k=k, r=reach, p=padding: (n + p - r) // self.strides[k] + 1)
            )

    def attributes(self) -> dict[str, list[int]]:
        return {
            "kernel_shape": self.kernel, "strides": self.strides, "pads": self.pads,
            "dilations": self.dilations,
        }  # fmt: skip


def conv(g: Builder) -> Value:
    x = as_image(g, g.random.choice([1, 2, 2, 2, 3]))
    window = _Window(g, x, False)
    channels = x.shape[1].number
    group = g.random.choice([1, 1, channels])
    out = group * g.random.choice([1, 2, 3]) if group > 1 else g.random.choice([1, 2, 4, 9, 16])
    shape = (out, channels // group, *window.kernel)
    terms = math.prod(shape[1:])
    w = g.weights(shape, x.dtype, x.whole and g.chance(0.8), 1 / math.sqrt(terms))
    result = _sum_of_products(x, w, terms, (x.shape[0], fixed(out), *window.spatial))
    operands = [x, w]
    if g.chance(0.6):
        operands.append(g.weights((out,), x.dtype, x.whole))
        whole = result.whole and operands[-1].whole
        result = result.like(bound=result.bound + 3, whole=whole, exact=result.exact and whole)
    result = bounded(g, result)
    y = g.node("Conv", operands, [result], group=group, **window.attributes())
    if g.chance(0.3) and x.dtype != "f2":
        return _batch_norm(g, y)
    return y


def conv_transpose(g: Builder) -> Value:
    x = as_image(g, g.random.choice([1, 2]))
    if any(e.free or e.least < 1 for e in x.shape[2:]):
        raise Declined
    axes, channels, out = x.rank - 2, x.shape[1].number, g.number(1, 4)
    kernel = [g.number(1, 3) for _ in range(axes)]
    strides = [g.number(1, 2) for _ in range(axes)]
    w = g.weights((channels, out, *kernel), x.dtype, x.whole and g.chance(0.8))
    spatial = [
        e.map(lambda n, s=s, k=k: (n - 1) * s + k)
        for e, s, k in zip(x.shape[2:], strides, kernel, strict=True)
    ]
    terms = channels * math.prod(kernel)
    result = _sum_of_products(x, w, terms, (x.shape[0], fixed(out), *spatial))
    ways = {"kernel_shape": kernel, "strides": strides}
    return g.node("ConvTranspose", [x, w], [bounded(g, result)], **ways)


def pool(g: Builder) -> Value:
    x = as_image(g, g.random.choice([1, 2, 2]))
    whole_axis = all(e.least for e in x.shape[2:])
    if g.chance(0.3) and whole_axis:
        name = g.random.choice(["GlobalAveragePool", "GlobalMaxPool"])
        shape = (*x.shape[:2], *[fixed(1)] * (x.rank - 2))
        exact = x.exact and name == "GlobalMaxPool"
        return g.node(name, [x], [x.like(shape=shape, exact=exact, whole=x.whole and exact)])
    window = _Window(g, x, True)
    shape = (*x.shape[:2], *window.spatial)
    ways: dict[str, object] = dict(window.attributes())
    del ways["dilations"]
    name = g.random.choice(["MaxPool", "AveragePool", "LpPool"])
    if name == "MaxPool":
        return g.node(name, [x], [x.like(shape=shape)], **ways)
    result = x.like(shape=shape, exact=False, whole=False, bound=max(1.0, x.bound))
    if name == "LpPool":
        ways["p"] = 1 + g.number(0, 1)
        bound = result.bound * math.prod(window.kernel)
        return g.node(name, [x], [bounded(g, result.like(bound=bound))], **ways)
    return g.node(name, [x], [result], count_include_pad=g.number(0, 1), **ways)


# -- normalisations ---------------------------------------------------------------------------


def _batch_norm(g: Builder, x: Value) -> Value:
    channels = x.shape[1].number
    parts = [g.weights((channels,), x.dtype, False) for _ in range(3)]
    variance = np.abs(g.numbers((channels,), x.dtype, False)) + np.array(0.5, x.dtype)
    result = x.like(exact=False, whole=False, bound=4.5 * (x.bound + 3) + 3)
    operands = [x, *parts, g.constant(variance.astype(x.dtype))]
    return g.node("BatchNormalization", operands, [bounded(g, result)])


def normalise(g: Builder) -> Value:
    kind = g.random.choice(["Layer", "Layer", "Layer", "Batch", "Instance", "Group", "LRN"])
    if kind == "Layer":
        x = g.pick(lambda v: v.is_float and v.rank > 0 and v.shape[-1].is_static)
        if not x.shape[-1].number:
            raise Declined
        scale, shift = (g.weights((x.shape[-1].number,), x.dtype, False) for _ in range(2))
        result = bounded(g, x.like(exact=False, whole=False, bound=60.0))
        operands = [x, scale] if g.chance(0.3) else [x, scale, shift]
        return g.node("LayerNormalization", operands, [result], axis=-1)
    x = as_image(g, g.random.choice([1, 2]))
    if kind == "Batch":
        return _batch_norm(g, x)
    if any(e.least < 1 for e in x.shape[2:]):
        raise Declined
    channels = x.shape[1].number
    if kind == "LRN":
        result = x.like(exact=False, whole=False, bound=x.bound)
        return g.node("LRN", [x], [result], size=g.random.choice([1, 3]), alpha=0.1, bias=1.0)
    scale, shift = (g.weights((channels,), x.dtype, False) for _ in range(2))
    result = bounded(g, x.like(exact=False, whole=False, bound=60.0))
    if kind == "Instance":
        return g.node("InstanceNormalization", [x, scale, shift], [result])
    groups = g.random.choice([k for k in range(1, channels + 1) if channels % k == 0])
    return g.node("GroupNormalization", [x, scale, shift], [result], num_groups=groups)


def attention(g: Builder) -> Value:
    """A product, a softmax, a product: what is recognised, and what nearly is."""
    x = g.pick(lambda v: v.is_float and v.rank in (2, 3, 4))
    if x.shape[-1].free or x.shape[-2].free:
        raise Declined
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    keys = g.node("Transpose", [x], [x.like(shape=tuple(x.shape[k] for k in order))], perm=order)
    square = (*x.shape[:-1], x.shape[-2])
    scores = g.node(
        "MatMul", [x, keys], [bounded(g, _sum_of_products(x, x, _terms(x.shape[-1]), square))]
    )
    if g.chance(0.5):
        factor = g.constant(np.array(0.25, x.dtype))
        scores = g.node("Mul", [scores, factor], [scores.like(exact=False, whole=False)])
    if g.chance(0.4):
        mask = partner_mask(g, scores)
        scores = g.node("Add", [scores, mask], [scores.like(exact=False, bound=scores.bound + 3)])
    axis = g.random.choice([-1, -1, -1, -2, 0])
    weights = scores.like(exact=False, whole=False, bound=1.0)
    weights = g.node("Softmax", [scores], [weights], axis=axis)
    y = x if g.chance(0.5) else g.pick(lambda v: v.dtype == x.dtype and v.shape == x.shape)
    result = x.like(exact=False, whole=False, bound=y.bound)
    return g.node("MatMul", [weights, y], [result])


def partner_mask(g: Builder, scores: Value) -> Value:
    def fits(v: Value) -> bool:
        return v.dtype == scores.dtype and broadcast(v.shape, scores.shape) == scores.shape

    return g.pick(fits)


#: Rule, how often.
RULES = [
    (matmul, 8), (gemm, 4), (einsum, 2), (integer_product, 1), (conv, 6), (conv_transpose, 2),
    (pool, 4), (normalise, 5), (attention, 5),
]  # fmt: skip
