"""Rules for operators that move elements, and for arithmetic on shapes."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.builder import Builder, Declined
from tests.fuzz.values import RUNS, Extent, Value, broadcast, combined, fixed


def transpose(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 1)
    order = list(range(x.rank))
    g.random.shuffle(order)
    return g.node("Transpose", [x], [x.like(shape=tuple(x.shape[k] for k in order))], perm=order)


def reshape(g: Builder) -> Value:
    """Axes merged, split, or put into any other shape of the same volume."""
    x = g.pick(lambda v: not any(e.free for e in v.shape))
    shape = list(x.shape)
    for _ in range(g.number(1, 3)):
        kind = g.random.choice(["merge", "merge", "split", "one"])
        if kind == "merge" and len(shape) > 1:
            k = g.number(0, len(shape) - 2)
            shape[k : k + 2] = [combined(lambda a, b: a * b, *shape[k : k + 2])]
        elif kind == "split" and shape:
            k = g.number(0, len(shape) - 1)
            divisors = [d for d in (2, 3, 4) if all(n % d == 0 for n in shape[k].at)]
            if divisors:
                d = g.random.choice(divisors)
                rest = shape[k].map(lambda n, d=d: n // d)
                shape[k : k + 1] = g.random.choice([[fixed(d), rest], [rest, fixed(d)]])
        elif kind == "one":
            shape.insert(g.number(0, len(shape)), fixed(1))
    result = x.like(shape=tuple(shape))
    g.check(result.shape)
    guess = g.number(0, len(shape) - 1) if shape and g.chance(0.4) else None
    others = [e for k, e in enumerate(shape) if k != guess]
    if guess is not None and all(e.least > 0 for e in others):
        given = list(shape)
        if all(e.is_static for e in others):
            numbers = [-1 if k == guess else e.number for k, e in enumerate(given)]
            return g.node("Reshape", [x, g.constant(np.array(numbers, np.int64))], [result])
    if any(0 in e.at for e in shape):  # a zero would mean the size of the operand
        return g.node("Reshape", [x, g.sizes(shape)], [result], allowzero=1)
    if not shape:
        return g.node("Reshape", [x, g.constant(np.zeros(0, np.int64))], [result])
    return g.node("Reshape", [x, g.sizes(shape)], [result])


def flatten(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 0 and not any(e.free for e in v.shape))
    axis = g.number(0, x.rank)

    def product(extents: tuple[Extent, ...]) -> Extent:
        return Extent(tuple(math.prod(e.at[run] for e in extents) for run in range(RUNS)))

    shape = (product(x.shape[:axis]), product(x.shape[axis:]))
    return g.node("Flatten", [x], [x.like(shape=shape)], axis=axis)


def ones(g: Builder) -> Value:
    """Axes of extent 1, added or removed."""
    x = g.pick()
    single = [k for k, e in enumerate(x.shape) if e == fixed(1)]
    if single and g.chance(0.5):
        axes = g.random.sample(single, g.number(1, len(single)))
        shape = tuple(e for k, e in enumerate(x.shape) if k not in axes)
        operand = g.constant(np.array(axes, np.int64))
        return g.node("Squeeze", [x, operand], [x.like(shape=shape)])
    axes = sorted(g.random.sample(range(x.rank + 2), g.number(1, 2)))
    rank = x.rank + len(axes)
    axes = [k for k in axes if k < rank]
    rank = x.rank + len(axes)
    if any(k >= rank for k in axes):
        raise Declined
    rest = iter(x.shape)
    shape = tuple(fixed(1) if k in axes else next(rest) for k in range(rank))
    operand = g.constant(np.array(axes, np.int64))
    return g.node("Unsqueeze", [x, operand], [x.like(shape=shape)])


def slice_(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 0)
    axes = sorted(g.random.sample(range(x.rank), g.number(1, min(2, x.rank))))
    starts, ends, steps, shape = [], [], [], list(x.shape)
    for axis in axes:
        step = g.random.choice([1, 1, 1, 2, 3, -1, -2])
        low, high = g.number(-4, 3), g.random.choice([g.number(-3, 8), 1 << 40])
        if step < 0:
            low, high = g.random.choice([-1, 5, 1 << 40]), g.random.choice([-(1 << 40), 0, -9])
        starts.append(low)
        ends.append(high)
        steps.append(step)
        shape[axis] = x.shape[axis].map(
            lambda n, s=low, e=high, d=step: len(range(*slice(s, _end(n, e, d), d).indices(n)))
        )
    operands = [g.constant(np.array(a, np.int64)) for a in (starts, ends, axes, steps)]
    if len(axes) == 1 and steps == [1] and g.chance(0.4):
        extent = shape[axes[0]]
        if not x.shape[axes[0]].free:  # the first ones, as many as something says
            operands = [g.constant(np.array([0])), g.sizes([extent]), operands[2]]
    elif steps == [1] * len(axes) and g.chance(0.5):
        operands.pop()
    return g.node("Slice", [x, *operands], [x.like(shape=tuple(shape))])


def _end(n: int, end: int, step: int) -> int | None:
    return None if step < 0 and end < -n else end


def concat(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 0)
    axis = g.number(0, x.rank - 1)

    def fits(v: Value) -> bool:
        return (
            v.dtype == x.dtype
            and v.rank == x.rank
            and all(
                a == b for k, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if k != axis
            )
        )

    parts = [x, *(g.pick(fits) for _ in range(g.number(1, 2)))]
    if g.chance(0.3) and all(e.is_static for k, e in enumerate(x.shape) if k != axis):
        shape = [2 if k == axis else e.number for k, e in enumerate(x.shape)]
        parts.append(g.weights(shape, x.dtype, x.whole))
    g.random.shuffle(parts)
    extent = combined(lambda *n: sum(n), *(p.shape[axis] for p in parts))
    shape = tuple(extent if k == axis else e for k, e in enumerate(x.shape))
    result = Value(
        "", x.dtype, shape, all(p.exact for p in parts), all(p.whole for p in parts),
        max(p.bound for p in parts),
    )  # fmt: skip
    return g.node("Concat", parts, [result], axis=g.random.choice([axis, axis - x.rank]))


def split(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 0 and any(e.is_static and e.number > 1 for e in v.shape))
    axis = g.random.choice([k for k, e in enumerate(x.shape) if e.is_static and e.number > 1])
    first = g.number(0, x.shape[axis].number)
    lengths = [first, x.shape[axis].number - first]
    outputs = [
        x.like(shape=tuple(fixed(n) if k == axis else e for k, e in enumerate(x.shape)))
        for n in lengths
    ]
    operand = g.constant(np.array(lengths, np.int64))
    return g.node("Split", [x, operand], outputs, axis=axis)


def expand(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank < 5)
    y = g.pick(lambda v: v.rank > 0)
    shape = broadcast(x.shape, y.shape)
    if shape is None or any(e.free for e in shape):
        raise Declined
    return g.node("Expand", [x, g.sizes(y.shape)], [x.like(shape=shape)])


def tile(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 0)
    times = [g.random.choice([1, 1, 2, 3]) for _ in x.shape]
    shape = tuple(
        e.map(lambda n, t=t: n * t) if t > 1 else e for e, t in zip(x.shape, times, strict=True)
    )
    operand = g.constant(np.array(times, np.int64))
    return g.node("Tile", [x, operand], [x.like(shape=shape)])


def pad(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 0 and v.dtype != "b1")
    mode = g.random.choice(["constant", "constant", "constant", "edge", "reflect", "wrap"])
    least = {"constant": 0, "edge": 1, "reflect": 3, "wrap": 2}[mode]
    before, after = [], []
    for e in x.shape:
        here = e.least >= least
        before.append(g.number(0, 2) if here else 0)
        after.append(g.number(0, 2) if here else 0)
    shape = tuple(
        e.map(lambda n, p=a + b: n + p) if a + b else e
        for e, a, b in zip(x.shape, before, after, strict=True)
    )
    operands = [x, g.constant(np.array(before + after, np.int64))]
    if mode == "constant" and g.chance(0.6):
        operands.append(g.constant(np.array(2, x.dtype)))
    return g.node("Pad", operands, [x.like(shape=shape, bound=max(x.bound, 2.0))], mode=mode)


def space(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank == 4 and v.shape[1].is_static and v.is_float)
    channels = x.shape[1].number
    if channels % 4 == 0 and channels:
        rows = [e.map(lambda n: n * 2) for e in x.shape[2:]]
        shape = (x.shape[0], fixed(channels // 4), *rows)
        mode = g.random.choice(["DCR", "CRD"])
        return g.node("DepthToSpace", [x], [x.like(shape=shape)], blocksize=2, mode=mode)
    if any(n % 2 for e in x.shape[2:] for n in e.at):
        raise Declined
    rows = [e.map(lambda n: n // 2) for e in x.shape[2:]]
    shape = (x.shape[0], fixed(channels * 4), *rows)
    return g.node("SpaceToDepth", [x], [x.like(shape=shape)], blocksize=2)


def triangle(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 1)
    k = g.constant(np.array(g.number(-2, 2), np.int64))
    return g.node("Trilu", [x, k], [x.like()], upper=g.number(0, 1))


def resize(g: Builder) -> Value:
    x = g.pick(lambda v: v.is_float and v.rank in (3, 4))
    if any(e.least < 1 or e.free for e in x.shape[2:]):
        raise Declined
    mode = g.random.choice(["nearest", "linear", "cubic"])
    scales = [1.0, 1.0] + [g.random.choice([2.0, 1.0, 3.0, 0.5]) for _ in x.shape[2:]]
    spatial = [
        e.map(lambda n, s=s: int(n * s)) for e, s in zip(x.shape[2:], scales[2:], strict=True)
    ]
    if any(e.least < 1 for e in spatial):
        raise Declined
    exact = mode == "nearest"
    shape = (*x.shape[:2], *spatial)
    result = x.like(
        shape=shape, exact=x.exact and exact, whole=x.whole and exact, bound=2 * x.bound
    )
    place = g.random.choice(["asymmetric", "half_pixel", "align_corners"])
    ways: dict[str, object] = {"mode": mode, "coordinate_transformation_mode": place}
    if mode == "nearest":  # other places may be half way between two elements
        ways |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if g.chance(0.3) and mode != "nearest":
        return g.node("Resize", [x, None, None, g.sizes(shape)], [result], **ways)
    operand = g.constant(np.array(scales, np.float32))
    return g.node("Resize", [x, None, operand], [result], **ways)


# -- shapes as values -------------------------------------------------------------------------


def measure(g: Builder) -> Value:
    """Shape and Size of a value: integers like any others."""
    x = g.pick(lambda v: v.rank > 0)
    if g.chance(0.3):
        most = float(max(math.prod(e.at[run] for e in x.shape) for run in range(RUNS)))
        return g.node("Size", [x], [Value("", "i8", (), bound=max(most, 1.0))])
    bound = float(max(max(e.at) for e in x.shape))
    return g.node("Shape", [x], [Value("", "i8", (fixed(x.rank),), bound=max(bound, 1.0))])


def filled(g: Builder) -> Value:
    """ConstantOfShape, Range: tensors made of sizes alone."""
    x = g.pick(lambda v: v.rank > 0)
    shape = tuple(e for e in x.shape if not e.free)[:3]
    if not shape:
        raise Declined
    if g.chance(0.5):
        dtype = g.random.choice(["f4", "i8", "f2"])
        from onnx import numpy_helper

        value = numpy_helper.from_array(np.array([g.number(-2, 2)], dtype))
        result = Value("", dtype, shape, bound=2.0)
        return g.node("ConstantOfShape", [g.sizes(shape)], [result], value=value)
    extent = shape[0]
    count = g.sizes([extent])
    none = g.constant(np.array([0], np.int64))
    limit = g.node("Squeeze", [count, none], [Value("", "i8", (), bound=99.0)])
    zero, one = (g.constant(np.array(n, np.int64)) for n in (0, 1))
    result = Value("", "i8", (extent,), bound=float(max(extent.at) + 1))
    return g.node("Range", [zero, limit, one], [result])


#: Rule, how often.
RULES = [
    (transpose, 7), (reshape, 9), (flatten, 1), (ones, 4), (slice_, 6), (concat, 6), (split, 3),
    (expand, 3), (tile, 1), (pad, 3), (space, 1), (triangle, 1), (resize, 2), (measure, 2),
    (filled, 2),
]  # fmt: skip
