"""Rules for operators that select by data, for quantised numbers and for recurrence."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import Builder, Declined, bounded
from tests.fuzz.elementwise import is_number
from tests.fuzz.values import RUNS, Extent, Value, fixed, free, volume


def _positions(g: Builder, x: Value, axis: int, shape: tuple[Extent, ...]) -> Value:
    """int64 positions along an axis, some counted from its end."""
    if x.shape[axis].least < 1:
        raise Declined
    least = x.shape[axis].least
    arrays = [
        np.array([g.number(-least, least - 1) for _ in range(int(np.prod(sizes)))], np.int64)
        for sizes in ([e.at[run] for e in shape] for run in range(RUNS))
    ]
    if all(e.is_static for e in shape) and g.chance(0.5):
        return g.constant(arrays[0].reshape([e.number for e in shape]))
    fed = g.feed(shape, "i8", True, arrays)
    return fed


def gather(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 0)
    axis = g.number(0, x.rank - 1)
    shape: tuple[Extent, ...] = ()
    for _ in range(g.number(0, 2)):
        others = [e for v in g.values for e in v.shape if not e.free]
        shape += (g.random.choice([*others, fixed(2)]),)
    if volume(shape) > 60:
        raise Declined
    positions = _positions(g, x, axis, shape)
    result = x.like(shape=(*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :]))
    return g.node("Gather", [x, positions], [result], axis=axis)


def computed_gather(g: Builder) -> Value:
    """Positions that are computed: from any integers, modulo the extent."""
    x = g.pick(lambda v: v.rank > 0 and v.shape[0].is_static and v.shape[0].number)
    y = g.pick(lambda v: v.dtype == "i8" and v.exact and v.rank <= 2)
    extent = x.shape[0].number
    modulus = g.constant(np.array(extent, np.int64))
    places = g.node("Mod", [y, modulus], [y.like(bound=float(extent))])
    result = x.like(shape=(*y.shape, *x.shape[1:]))
    return g.node("Gather", [x, places], [result], axis=0)


def gather_elements(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 0 and all(e.is_static for e in v.shape))
    axis = g.number(0, x.rank - 1)
    shape = tuple(fixed(g.number(1, 3)) if k == axis else e for k, e in enumerate(x.shape))
    positions = _positions(g, x, axis, shape)
    return g.node("GatherElements", [x, positions], [x.like(shape=shape)], axis=axis)


def gather_tuples(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 0 and all(e.least > 0 and not e.free for e in v.shape))
    depth = g.number(1, x.rank)
    count = g.number(0, 4)
    places = [[g.number(0, e.least - 1) for e in x.shape[:depth]] for _ in range(count)]
    operand = g.constant(np.array(places, np.int64).reshape(count, depth))
    return g.node("GatherND", [x, operand], [x.like(shape=(fixed(count), *x.shape[depth:]))])


def identity(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank == 2 and is_number(v))
    result = x.like(exact=True, whole=True, bound=1.0)
    return g.node("EyeLike", [x], [result], k=g.number(-2, 2))


def suppress(g: Builder) -> Value:
    """Non-maximum suppression of whole boxes, so that no overlap is near the limit by rounding."""
    boxes = g.pick(
        lambda v: (
            v.dtype == "f4" and v.is_exact_whole and v.rank == 2 and v.shape[1] == fixed(4)
            and not v.shape[0].free
        )
    )  # fmt: skip
    count = boxes.shape[0]
    first = g.constant(np.array([0], np.int64))
    boxes = g.node("Unsqueeze", [boxes, first], [boxes.like(shape=(fixed(1), *boxes.shape))])
    classes = g.number(1, 3)
    arrays = [g.numbers((1, classes, n), "f4", True) for n in count.at]
    scores = g.feed((fixed(1), fixed(classes), count), "f4", True, arrays)
    limits = [np.array([g.number(0, 5)]), np.array([0.3], "f4"), np.array([0.5], "f4")]
    most = tuple(classes * n for n in count.at)
    bound = float(max(*count.at, 3))
    result = Value("", "i8", (free(most), fixed(3)), bound=bound)
    return g.node("NonMaxSuppression", [boxes, scores, *map(g.constant, limits)], [result])


def scatter(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 0 and is_number(v))
    if any(e.free for e in x.shape):
        raise Declined
    reduction = g.random.choice(["none", "add", "max", "min"])
    if x.shape[0].least < 1:
        raise Declined
    count = 1 if reduction == "none" else g.number(1, 3)  # what comes last is not defined
    places = np.array([[g.number(0, x.shape[0].least - 1)] for _ in range(count)], np.int64)
    y = g.pick(lambda v: v.dtype == x.dtype and v.shape == x.shape)
    first = [g.constant(np.array([n], np.int64)) for n in (0, 1, 0)]
    part = y.like(shape=(fixed(1), *y.shape[1:]))
    updates = g.node("Slice", [y, *first], [part])
    if count > 1:
        updates = g.node(
            "Concat", [updates] * count, [part.like(shape=(fixed(count), *y.shape[1:]))], axis=0
        )
    exact = x.exact and y.exact and (reduction != "add" or (x.whole and y.whole))
    bound = x.bound + count * y.bound
    whole = x.whole and y.whole
    result = bounded(g, x.like(exact=exact, whole=whole, bound=bound))
    if x.rank == 1 and g.chance(0.5):
        return g.node(
            "ScatterElements", [x, g.constant(places[:, 0]), updates], [result], reduction=reduction
        )
    return g.node("ScatterND", [x, g.constant(places), updates], [result], reduction=reduction)


def top_k(g: Builder) -> Value:
    x = g.pick(lambda v: v.exact and is_number(v) and v.dtype != "u1" and v.rank > 0)
    axis = g.number(0, x.rank - 1)
    extent = x.shape[axis]
    if extent.free:
        raise Declined
    count = extent if g.chance(0.3) else fixed(g.number(0, min(extent.least, 4)))
    if g.chance(0.3):
        count = Extent(tuple(g.number(0, n) for n in extent.at))
    shape = tuple(count if k == axis else e for k, e in enumerate(x.shape))
    places = Value("", "i8", shape, bound=float(max(extent.at) + 1))
    ways = {"axis": axis, "largest": g.number(0, 1)}
    return g.node("TopK", [x, g.sizes([count])], [x.like(shape=shape), places], **ways)


def non_zero(g: Builder) -> Value:
    x = g.pick(lambda v: v.exact and v.rank > 0 and not any(e.free for e in v.shape))
    most = tuple(int(np.prod([e.at[run] for e in x.shape])) for run in range(RUNS))
    bound = float(max(max(e.at) for e in x.shape) + 1)
    return g.node("NonZero", [x], [Value("", "i8", (fixed(x.rank), free(most)), bound=bound)])


def compress(g: Builder) -> Value:
    c = g.pick(lambda v: v.dtype == "b1" and v.rank == 1)
    x = g.pick(lambda v: v.rank > 0 and c.shape[0] in v.shape)
    axis = x.shape.index(c.shape[0])
    shape = tuple(free(e.at) if k == axis else e for k, e in enumerate(x.shape))
    return g.node("Compress", [x, c], [x.like(shape=shape)], axis=axis)


def one_hot(g: Builder) -> Value:
    x = g.pick(lambda v: v.dtype in ("i8", "i4") and v.rank < 4)
    depth = g.number(1, 5)
    axis = g.number(0, x.rank)
    shape = (*x.shape[:axis], fixed(depth), *x.shape[axis:])
    dtype = g.random.choice(["f4", "i8"])
    operands = [x, g.constant(np.array(depth, np.int64)), g.constant(np.array([0, 1], dtype))]
    return g.node("OneHot", operands, [Value("", dtype, shape)], axis=axis)


def reverse_sequence(g: Builder) -> Value:
    x = g.pick(lambda v: v.rank > 1 and v.shape[1].is_static and v.shape[0].least > 0)
    lengths = [g.number(1, x.shape[0].least) for _ in range(x.shape[1].number)]
    operand = g.constant(np.array(lengths, np.int64))
    return g.node("ReverseSequence", [x, operand], [x.like()], time_axis=0, batch_axis=1)


def quantise(g: Builder) -> Value:
    if g.chance(0.5):
        x = g.pick(lambda v: v.dtype == "u1")
        zero = g.constant(np.array(g.number(0, 200), np.uint8))
        scale = g.constant(np.array(g.random.choice([0.25, 0.5]), np.float32))
        result = Value("", "f4", x.shape, True, False, 255.0)
        return g.node("DequantizeLinear", [x, scale, zero], [result])
    x = g.pick(lambda v: v.dtype == "f4" and v.exact)
    zero = g.constant(np.array(g.number(0, 200), np.uint8))
    scale = g.constant(np.array(g.random.choice([0.25, 0.5, 1.0]), np.float32))
    return g.node("QuantizeLinear", [x, scale, zero], [Value("", "u1", x.shape, bound=255.0)])


def recurrent(g: Builder) -> Value:
    x = g.pick(
        lambda v: (
            v.dtype in ("f4", "f8") and v.rank == 3 and v.shape[2].is_static and v.shape[2].number
            and v.shape[0].least and v.bound < 100
        )
    )  # fmt: skip
    kind = g.random.choice(["LSTM", "GRU", "RNN"])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    way = g.random.choice(["forward", "reverse", "bidirectional"])
    directions = 2 if way == "bidirectional" else 1
    hidden, depth = g.number(1, 5), x.shape[2].number
    w = g.weights((directions, gates * hidden, depth), x.dtype, False, 0.5)
    r = g.weights((directions, gates * hidden, hidden), x.dtype, False, 0.5)
    operands = [x, w, r]
    if g.chance(0.6):
        operands.append(g.weights((directions, 2 * gates * hidden), x.dtype, False, 0.5))
    steps, batch = x.shape[:2]
    ways: dict[str, object] = {"hidden_size": hidden, "direction": way}
    if kind == "GRU":
        ways["linear_before_reset"] = g.number(0, 1)
    y = Value("", x.dtype, (steps, fixed(directions), batch, fixed(hidden)), False, False, 1.0)
    last = y.like(shape=y.shape[1:])
    outputs = [y, last]
    if kind == "LSTM":
        outputs.append(last.like(bound=float(max(steps.at) + 1)))
    return g.node(kind, operands, outputs, **ways)


#: Rule, how often.
RULES = [
    (gather, 4), (computed_gather, 2), (gather_elements, 2), (gather_tuples, 2), (identity, 1),
    (suppress, 4), (scatter, 3), (top_k, 3), (non_zero, 2), (compress, 3), (one_hot, 1),
    (reverse_sequence, 1), (quantise, 2), (recurrent, 2),
]  # fmt: skip
