"""Matrix products, convolutions and pools."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.operator_fuzz.draw import Array, Draw, is_float
from tests.operator_fuzz.instance import Instance, makes
from tests.operator_fuzz.layout import INT64
from tests.operator_fuzz.oracle import Use, reference


def contents(draw: Draw, shape: list[int], number: int) -> Array:
    """Contents of an input that is summed up."""
    dtype = draw.input_type(number)
    return draw.reals(shape, dtype) if is_float(dtype) else draw.values(shape, dtype, -9, 9)


@makes("MatMul")
def product(draw: Draw) -> Instance:
    rows, inner, columns = (draw.size(0 if draw.chance(0.1) else 1, 9) for _ in range(3))
    kind = draw.integer(0, 9)
    if kind == 0:
        a, b = [inner], [inner]
    elif kind == 1:
        a, b = [inner], [*draw.shape(0, 2, high=3), inner, columns]
    elif kind == 2:
        a, b = [*draw.shape(0, 2, high=3), rows, inner], [inner]
    else:
        first, second = draw.operands(2, 0, 3)
        first, second = [min(s, 3) for s in first], [min(s, 3) for s in second]
        a, b = [*first, rows, inner], [*second, inner, columns]
    return Instance([contents(draw, a, 0), contents(draw, b, 1)])


@makes("Gemm")
def general_product(draw: Draw) -> Instance:
    rows, inner, columns = (draw.size(0 if draw.chance(0.1) else 1, 9) for _ in range(3))
    across = [draw.integer(0, 1) for _ in range(2)]
    a = [inner, rows] if across[0] else [rows, inner]
    b = [columns, inner] if across[1] else [inner, columns]
    attributes: dict[str, Any] = {
        "transA": draw.maybe(across[0]) if not across[0] else 1,
        "transB": draw.maybe(across[1]) if not across[1] else 1,
    }
    if is_float(draw.input_type(0)):
        attributes |= {k: draw.maybe(draw.number(-2, 2)) for k in ("alpha", "beta")}
    c: Array | None = None
    if draw.version < 7:
        kind = draw.pick(range(4))  # the same for all sizes, as the attribute is
        shape = [[rows, columns], [columns], [1, columns], [1]][kind]
        attributes["broadcast"] = draw.maybe(0) if draw.chance(0.3) and not kind else 1
        c = contents(draw, shape, 2)
    elif draw.version < 11 or draw.chance(0.7):
        shape = draw.pick([[rows, columns], [columns], [1, columns], [rows, 1], [1], []])
        c = contents(draw, shape, 2)
    return Instance([contents(draw, a, 0), contents(draw, b, 1), c], attributes)


@reference("Gemm")
def gemm(use: Use, a: Array, b: Array, c: Array | None = None) -> Array:
    g = use.attributes
    found = (a.T if g["transA"] else a) @ (b.T if g["transB"] else b)
    if np.dtype(use.types[0]).kind in "iu":
        return found if c is None else found + c
    found = g["alpha"] * found
    return found if c is None else found + g["beta"] * c


class Window:
    """A random window over some axes, and sizes that it fits into."""

    def __init__(self, draw: Draw, rank: int, *, dilated: bool = True, pool: bool = False) -> None:
        self.kernel = [draw.integer(1, 3) for _ in range(rank)]
        self.strides = [draw.integer(1, 3) for _ in range(rank)]
        self.dilations = [draw.integer(1, 2) if dilated else 1 for _ in range(rank)]
        self.auto = draw.pick(["NOTSET"] * 4 + ["VALID", "SAME_UPPER", "SAME_LOWER"])
        most = [(k - 1) if pool else k for k in self.kernel]
        self.pads = [draw.integer(0, m) for m in most * 2] if draw.chance(0.5) else [0] * 2 * rank
        self.sizes = [
            draw.size((k - 1) * d + 1, 9) for k, d in zip(self.kernel, self.dilations, strict=True)
        ]
        self.attributes: dict[str, Any] = {
            "strides": self.strides if draw.chance(0.7) else None,
        }
        if dilated:
            self.attributes["dilations"] = (
                self.dilations if set(self.dilations) != {1} else (draw.maybe(self.dilations))
            )
        if self.auto == "NOTSET":
            self.attributes["pads"] = self.pads if any(self.pads) else draw.maybe(self.pads)
        else:
            self.attributes["auto_pad"] = self.auto


@makes("Conv")
def convolution(draw: Draw) -> Instance:
    window = Window(draw, draw.integer(1, 3))
    group = draw.pick([1, 1, 2, 3])
    inner = draw.integer(1, 3)
    outer = draw.integer(1, 3)
    if group > 1 and draw.chance(0.4):
        inner = outer = 1
    batch = draw.size(0 if draw.chance(0.1) else 1, 3)
    x = contents(draw, [batch, group * inner, *window.sizes], 0)
    w = contents(draw, [group * outer, inner, *window.kernel], 1)
    bias = contents(draw, [group * outer], 2) if draw.chance(0.5) else None
    if draw.chance(0.6):
        w = draw.fixed(w.shape, w.dtype)
    attributes = {
        **window.attributes,
        "group": group if group > 1 else draw.maybe(1),
        "kernel_shape": draw.maybe(window.kernel),
    }
    return Instance([x, w, bias], attributes)


@makes("ConvTranspose")
def transposed_convolution(draw: Draw) -> Instance:
    rank = draw.integer(1, 2)
    window = Window(draw, rank)
    group, inner, outer = draw.pick([1, 1, 2]), draw.integer(1, 2), draw.integer(1, 2)
    sizes = [draw.size(1, 5) for _ in range(rank)]
    attributes = {**window.attributes, "strides": window.strides, "dilations": window.dilations}
    attributes["group"] = group if group > 1 else draw.maybe(1)
    attributes["kernel_shape"] = draw.maybe(window.kernel)
    span = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True)]
    if window.auto.startswith("SAME") and any(
        p < s for p, s in zip(span, window.strides, strict=True)
    ):
        attributes["auto_pad"] = None  # negative padding: see oracle_faults
    if "pads" in attributes:
        # What is cut off leaves something of the smallest input.
        full = [(k - 1) * d for k, d in zip(window.kernel, window.dilations, strict=True)]
        attributes["pads"] = [draw.integer(0, f // 2) for f in full * 2]
        if draw.chance(0.3):
            attributes["output_padding"] = [draw.integer(0, s - 1) for s in window.strides]
    x = contents(draw, [draw.size(1, 2), group * inner, *sizes], 0)
    w = contents(draw, [group * inner, outer, *window.kernel], 1)
    bias = contents(draw, [group * outer], 2) if draw.chance(0.5) else None
    return Instance([x, w, bias], attributes)


@reference("ConvTranspose")
def conv_transpose(use: Use, x: Array, w: Array, b: Array | None = None) -> Array:
    """The formulas of the pads and of the output's shape, then a sum over scattered windows."""
    g = use.attributes
    rank = x.ndim - 2
    strides, dilations = g.get("strides", [1] * rank), g.get("dilations", [1] * rank)
    extra = g.get("output_padding", [0] * rank)
    group = g["group"]
    auto = g["auto_pad"]
    span = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    full = [s * (n - 1) + p for s, n, p in zip(strides, x.shape[2:], span, strict=True)]
    pads = list(g.get("pads", [0] * 2 * rank))
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            f + e - n * s for f, e, n, s in zip(full, extra, x.shape[2:], strides, strict=True)
        ]
        half = [max(t, 0) // 2 for t in total]
        rest = [max(t, 0) - h for t, h in zip(total, half, strict=True)]
        pads = half + rest if auto == "SAME_UPPER" else rest + half
        sizes = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    else:
        sizes = [
            f + e - pads[k] - pads[k + rank]
            for k, (f, e) in enumerate(zip(full, extra, strict=False))
        ]
    room = [max(f, s + pads[k]) for k, (f, s) in enumerate(zip(full, sizes, strict=True))]
    outer = w.shape[1]
    result = np.zeros((x.shape[0], group * outer, *room), x.dtype)
    inner = x.shape[1] // group
    for number in range(group):
        part = x[:, number * inner : (number + 1) * inner]
        factor = w[number * inner : (number + 1) * inner]
        for tap in np.ndindex(w.shape[2:]):
            term = np.einsum("bi...,io->bo...", part, factor[(slice(None), slice(None), *tap)])
            at = tuple(
                slice(t * d, t * d + s * (n - 1) + 1, s)
                for t, d, s, n in zip(tap, dilations, strides, x.shape[2:], strict=True)
            )
            result[(slice(None), slice(number * outer, (number + 1) * outer), *at)] += term
    cut = tuple(slice(pads[k], pads[k] + s) for k, s in enumerate(sizes))
    result = result[(slice(None), slice(None), *cut)]
    return result if b is None else result + b.reshape(-1, *[1] * rank)


@makes("MaxPool AveragePool LpPool")
def pooled(draw: Draw) -> Instance:
    name = draw.schema.name
    window = Window(draw, draw.integer(1, 3), dilated=draw.has_attribute("dilations"), pool=True)
    attributes = {**window.attributes, "kernel_shape": window.kernel}
    ceil = draw.has_attribute("ceil_mode") and window.auto == "NOTSET" and draw.chance(0.3)
    attributes["ceil_mode"] = 1 if ceil else None
    dtype = draw.input_type(0)
    shape = [draw.size(1, 3), draw.size(1, 3), *window.sizes]
    x = draw.values(shape, dtype, -20, 20) if name == "MaxPool" else draw.reals(shape, dtype)
    outputs: list[Any] = []
    if name == "MaxPool":
        if draw.version >= 8 and draw.chance(0.5):
            x = draw.distinct(shape, dtype) if is_float(dtype) else x
            attributes["storage_order"] = draw.maybe(draw.integer(0, 1))
            outputs = [dtype, INT64]
        else:
            outputs = [dtype]
    elif name == "AveragePool" and draw.version >= 7:
        attributes["count_include_pad"] = draw.maybe(draw.integer(0, 1))
    elif name == "LpPool":
        whole = draw.version >= 2
        attributes["p"] = draw.maybe(draw.integer(1, 3) if whole else draw.pick([1.0, 2.0, 3.0]))
        if draw.version == 1:
            attributes["kernel_shape"] = window.kernel
    return Instance([x], attributes, outputs)


def _pool_axes(use: Use, x: Array) -> Any:
    """Per axis: for each place of the window the inputs under it, None for padding."""
    g = use.attributes
    rank = x.ndim - 2
    kernel = g["kernel_shape"]
    strides, dilations = g.get("strides", [1] * rank), g.get("dilations", [1] * rank)
    pads = list(g.get("pads", [0] * 2 * rank))
    result = []
    for k in range(rank):
        size, span = x.shape[k + 2], (kernel[k] - 1) * dilations[k] + 1
        before, after = pads[k], pads[k + rank]
        auto = g.get("auto_pad", "NOTSET")
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-size // strides[k])
            total = max((count - 1) * strides[k] + span - size, 0)
            before = total // 2 if auto == "SAME_UPPER" else total - total // 2
            after = total - before
        elif auto == "VALID":
            before = after = 0
        room = size + before + after - span
        count = (-(-room // strides[k]) if g.get("ceil_mode", 0) else room // strides[k]) + 1
        if g.get("ceil_mode", 0) and (count - 1) * strides[k] >= size + before:
            count -= 1  # a window that starts in the padding at the end is not one
        starts = [j * strides[k] - before for j in range(count)]
        result.append([[s + t * dilations[k] for t in range(kernel[k])] for s in starts])
        result[-1] = [(places, size, before, after) for places in result[-1]]
    return result


@reference("MaxPool AveragePool LpPool")
def pool(use: Use, x: Array) -> Any:
    """Window by window; averages count padding, if asked, but not what lies beyond it."""
    axes = _pool_axes(use, x)
    name, g = use.node.op_type, use.attributes
    sizes = tuple(map(len, axes))
    dtype = x.dtype
    values = np.zeros((*x.shape[:2], *sizes), dtype)
    places = np.zeros(values.shape, np.int64)
    for at in np.ndindex(sizes):
        chosen = [axes[k][j] for k, j in enumerate(at)]
        inside = [[p for p in c[0] if 0 <= p < c[1]] for c in chosen]
        counted = int(
            np.prod(
                [
                    len([p for p in c[0] if -c[2] <= p < c[1] + c[3]])
                    if g.get("count_include_pad", 0)
                    else len(i)
                    for c, i in zip(chosen, inside, strict=True)
                ]
            )
        )
        for lead in np.ndindex(x.shape[:2]):
            window = x[lead][np.ix_(*inside)]
            where = (*lead, *at)
            if name == "AveragePool":
                values[where] = window.sum() / counted
            elif name == "LpPool":
                p = g.get("p", 2)
                values[where] = (np.abs(window) ** p).sum() ** (1 / p)
            elif window.size:
                flat = int(np.argmax(window))
                values[where] = window.reshape(-1)[flat]
                found = np.unravel_index(flat, window.shape)
                index = [inside[k][int(j)] for k, j in enumerate(found)]
                order = "F" if g.get("storage_order", 0) else "C"
                offset = np.ravel_multi_index(index, x.shape[2:], order=order)
                start = int(np.prod(x.shape[2:])) * (lead[0] * x.shape[1] + lead[1])
                places[where] = start + int(offset)
            else:
                values[where] = -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
    return (values, places) if name == "MaxPool" else values


@makes("GlobalAveragePool GlobalMaxPool GlobalLpPool")
def pooled_whole(draw: Draw) -> Instance:
    shape = [draw.size(1, 3), draw.size(1, 3), *draw.shape(1, 3, low=1, high=5)]
    attributes: dict[str, Any] = {}
    if draw.schema.name == "GlobalLpPool":
        attributes["p"] = draw.maybe(draw.integer(1, 3) if draw.version > 1 else 2.0)
    return Instance([draw.reals(shape, draw.input_type(0))], attributes)


@reference("GlobalLpPool")
def norm_of_all(use: Use, x: Array) -> Array:
    p = use.attributes["p"]
    along = tuple(range(2, x.ndim))
    return np.sum(np.abs(x) ** p, along, keepdims=True) ** (1 / p)


@reference("GlobalMaxPool GlobalAveragePool")
def over_space(use: Use, x: Array) -> Array:
    along = tuple(range(2, x.ndim))
    pooled = np.max if use.node.op_type == "GlobalMaxPool" else np.mean
    return pooled(x, axis=along, keepdims=True)


@makes("LRN")
def local(draw: Draw) -> Instance:
    shape = [draw.size(1, 3), draw.size(1, 6), *draw.shape(1, 2, low=1, high=5)]
    attributes: dict[str, Any] = {"size": draw.pick([1, 3, 5, 2, 4])}
    attributes |= {"alpha": draw.maybe(0.5), "beta": draw.maybe(0.5), "bias": draw.maybe(2.0)}
    return Instance([draw.reals(shape, draw.input_type(0))], attributes)


@reference("LRN")
def local_response(use: Use, x: Array) -> Array:
    """Channels from c - floor((size - 1) / 2) to c + ceil((size - 1) / 2)."""
    g = use.attributes
    size, total = g["size"], np.zeros_like(x)
    for c in range(x.shape[1]):
        low, high = max(0, c - (size - 1) // 2), min(x.shape[1] - 1, c + -(-(size - 1) // 2))
        total[:, c] = np.sum(x[:, low : high + 1] ** 2, 1)
    return x / (g["bias"] + g["alpha"] / size * total) ** g["beta"]


_FORMULAS = (
    "ij,jk->ik",
    "bij,bjk->bik",
    "ii->i",
    "ii->",
    "ij->ji",
    "i,i->",
    "i,j->ij",
    "ij->",
    "ij->j",
    "...ij,...jk->...ik",
    "bij,jk,bk->bi",
    "ijk,k",
    "ij,kj",
    "bhqd,bhkd->bhqk",
    "i...->...",
    "...i,...i->...",
    "bijk,bij->bk",
    "a b , b c -> a c",
    "ijj->ij",
)


@makes("Einsum", factor=20)
def einsum(draw: Draw) -> Instance:
    equation = draw.pick(_FORMULAS)
    sizes: dict[str, int] = {}
    more = draw.shape(0, 2, low=1, high=3)
    arrays = []
    for number, term in enumerate(equation.split("->")[0].replace(" ", "").split(",")):
        shape: list[int] = []
        term = term.replace("...", ".")
        for letter in term:
            if letter == ".":
                shape += draw.broadcast(more) if number and draw.chance(0.3) else more
            else:
                if letter not in sizes:
                    sizes[letter] = draw.size(1, 4)
                shape.append(sizes[letter])
        arrays.append(contents(draw, shape, 0))
    return Instance(arrays, {"equation": equation})


@reference("Einsum")
def summed_product(use: Use, *arrays: Array) -> Array:
    return np.asarray(np.einsum(use.attributes["equation"], *arrays))


@makes("Det")
def determinant(draw: Draw) -> Instance:
    size = draw.size(1, 4)
    x = draw.reals([*draw.shape(0, 2, low=1, high=3), size, size], draw.input_type(0))
    return Instance([x])


@makes("Col2Im")
def columns(draw: Draw) -> Instance:
    rank = draw.integer(1, 3)
    window = Window(draw, rank)
    sizes = [
        max(s, (k - 1) * d + 1)
        for s, k, d in zip(window.sizes, window.kernel, window.dilations, strict=True)
    ]
    pads = window.pads
    count = 1
    for k in range(rank):
        span = (window.kernel[k] - 1) * window.dilations[k] + 1
        count *= (sizes[k] + pads[k] + pads[k + rank] - span) // window.strides[k] + 1
    if draw.type_of("T").kind in "Ob":  # there are no sums of strings and bools
        draw.at_most(T=np.dtype(np.float32))
    channels = draw.integer(1, 2) * int(np.prod(window.kernel))
    x = draw.reals([draw.size(1, 2), channels, count], draw.type_of("T"))
    attributes = {"strides": window.strides, "pads": pads, "dilations": window.dilations}
    return Instance([x, np.array(sizes), np.array(window.kernel)], attributes)


@reference("Col2Im")
def image(use: Use, x: Array, sizes: Array, kernel: Array) -> Array:
    """Every block is added where it was taken from."""
    g, rank = use.attributes, len(sizes)
    strides, pads, dilations = g["strides"], g["pads"], g["dilations"]
    taps = [int(k) for k in kernel]
    room = [int(s) + pads[k] + pads[k + rank] for k, s in enumerate(sizes)]
    counts = [
        (r - (t - 1) * d - 1) // s + 1
        for r, t, d, s in zip(room, taps, dilations, strides, strict=True)
    ]
    blocks = x.reshape(x.shape[0], -1, *taps, *counts)
    result = np.zeros((*blocks.shape[:2], *room), x.dtype)
    for tap in np.ndindex(*taps):
        at = tuple(
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilations, strides, counts, strict=True)
        )
        result[(slice(None), slice(None), *at)] += blocks[(slice(None), slice(None), *tap)]
    cut = tuple(slice(pads[k], pads[k] + int(s)) for k, s in enumerate(sizes))
    return result[(slice(None), slice(None), *cut)]
