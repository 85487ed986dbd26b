"""Rules for operators that work element by element, and for reductions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import helper

from tests.fuzz.builder import Builder, Declined, bounded
from tests.fuzz.values import (
    FLOATS,
    INTEGERS,
    LIMITS,
    MOST_ELEMENTS,
    WHOLE_LIMITS,
    Value,
    broadcast,
    fixed,
    numpy_dtype,
    volume,
)

#: Operators that move no element by rounding; bound stays.
_EXACT = ("Neg", "Abs", "Relu", "Identity")
#: Smooth operators: largest operand, bound of the result.
_SMOOTH: dict[str, tuple[float, Callable[[float], float]]] = {
    "Sigmoid": (1e9, lambda b: 1.0),
    "Tanh": (1e9, lambda b: 1.0),
    "Erf": (1e9, lambda b: 1.0),
    "Softplus": (1e9, lambda b: b + 1),
    "Softsign": (1e9, lambda b: 1.0),
    "LeakyRelu": (1e9, lambda b: b),
    "Elu": (1e9, lambda b: max(b, 1.0)),
    "Selu": (1e9, lambda b: 2 * max(b, 1.0)),
    "Celu": (1e9, lambda b: max(b, 1.0)),
    "Gelu": (1e9, lambda b: b),
    "HardSigmoid": (1e9, lambda b: 1.0),
    "HardSwish": (1e9, lambda b: b),
    "Mish": (1e9, lambda b: b),
    "Sin": (100.0, lambda b: 1.0),
    "Cos": (100.0, lambda b: 1.0),
    "Atan": (1e9, lambda b: 2.0),
    "Asinh": (1e9, lambda b: math.asinh(b)),
    "Exp": (6.0, math.exp),
    "Sinh": (6.0, math.sinh),
    "Cosh": (6.0, math.cosh),
}
_STEPS = ("Floor", "Ceil", "Round", "Sign")
#: Binary operators: bound of the result.
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "Min": max,
    "Max": max,
    "Mean": max,
    "Sum": lambda a, b: a + b,
}
_COMPARE = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")


def is_float(v: Value) -> bool:
    return v.is_float


def is_number(v: Value) -> bool:
    return v.dtype != "b1"


def is_signed(v: Value) -> bool:
    return v.dtype not in ("b1", "u1")


def unary(g: Builder) -> Value:
    x = g.pick(is_signed)
    if not x.is_float:
        name = g.random.choice(["Neg", "Abs", "Sign", "BitwiseNot", "Identity"])
        return g.node(name, [x], [x.like(bound=x.bound + 1)])
    if g.chance(0.25):
        return g.node(g.random.choice(_EXACT), [x], [x.like()])
    if x.exact and g.chance(0.3):
        return g.node(g.random.choice(_STEPS), [x], [x.like(whole=True, bound=x.bound + 1)])
    name = g.random.choice(list(_SMOOTH))
    most, bound = _SMOOTH[name]
    if x.bound > min(most, LIMITS[x.dtype]):
        raise Declined
    result = bounded(g, x.like(exact=False, whole=False, bound=bound(x.bound)))
    return g.node(name, [x], [result])


def guarded(g: Builder) -> Value:
    """Operators that are steep or undefined somewhere, of operands that are not there."""
    x = g.pick(is_float)
    half = g.constant(np.array(0.5, x.dtype))
    magnitude = g.node("Abs", [x], [x.like()])
    base = magnitude.like(exact=False, whole=False, bound=x.bound + 0.5)
    y = g.node("Add", [magnitude, half], [bounded(g, base)])
    result = y.like(exact=False, whole=False, bound=max(2.0, y.bound))
    kind = g.random.choice(["Log", "Sqrt", "Reciprocal", "Div", "Pow", "Acosh"])
    if kind == "Div":
        other = g.pick(lambda v: v.dtype == x.dtype and broadcast(v.shape, y.shape))
        shape = broadcast(other.shape, y.shape)
        assert shape is not None
        bound = other.bound * 2
        return g.node("Div", [other, y], [bounded(g, result.like(shape=shape, bound=bound))])
    if kind == "Pow":
        exponent = g.random.choice([0.5, 2.0, 3.0, -1.0])
        bound = max(2.0, y.bound**3)
        power = g.constant(np.array(exponent, x.dtype))
        return g.node("Pow", [y, power], [bounded(g, result.like(bound=bound))])
    if kind == "Acosh":
        y = g.node("Add", [y, g.constant(np.array(1, x.dtype))], [result.like(bound=y.bound + 1)])
    return g.node(kind, [y], [result])


def slope(g: Builder) -> Value:
    """PRelu, with slopes that broadcast to the operand."""
    x = g.pick(is_float)
    y = partner(g, x)
    if broadcast(x.shape, y.shape) != x.shape:
        raise Declined
    whole = x.whole and y.whole
    bound = x.bound * max(y.bound, 1.0)
    result = x.like(exact=x.exact and y.exact and whole, whole=whole, bound=bound)
    return g.node("PRelu", [x, y], [bounded(g, result)])


def limited(g: Builder) -> Value:
    """Clip and other operators with limits."""
    x = g.pick(is_number)
    if x.is_float and x.exact and g.chance(0.3):
        name = g.random.choice(["ThresholdedRelu", "Shrink"])
        if name == "Shrink":
            return g.node(name, [x], [x.like()], lambd=1.0, bias=0.0)
        return g.node(name, [x], [x.like()], alpha=1.0)
    low, high = sorted((g.number(-3, 1), g.number(1, 5)))
    low = max(low, 0) if x.dtype == "u1" else low
    ends = [g.constant(np.array(n, x.dtype)) if g.chance(0.8) else None for n in (low, high)]
    if ends == [None, None]:
        raise Declined
    bound = x.bound if None in ends else max(-low, high)
    while ends[-1] is None:
        ends.pop()
    return g.node("Clip", [x, *ends], [x.like(bound=float(max(bound, 5)))])


def partner(g: Builder, x: Value) -> Value:
    """A second operand that broadcasts with `x`, perhaps a constant."""
    if g.chance(0.25):
        shape = tuple(e.number if e.is_static and g.chance(0.7) else 1 for e in x.shape)
        shape = shape[g.number(0, len(shape)) :]
        return g.weights(shape, x.dtype, x.whole and g.chance(0.7))

    def fits(v: Value) -> bool:
        shape = broadcast(v.shape, x.shape) if v.dtype == x.dtype else None
        return shape is not None and volume(shape) <= MOST_ELEMENTS

    if g.chance(0.5):
        return g.pick(fits, lambda v: v.name != x.name)
    return g.pick(fits)


def binary(g: Builder) -> Value:
    x = g.pick(is_number)
    y = partner(g, x)
    if g.chance(0.5):
        x, y = y, x
    name = g.random.choice(list(_ARITHMETIC) if x.is_float else ["Add", "Sub", "Mul", "Min", "Max"])
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        raise Declined
    bound = _ARITHMETIC[name](x.bound, y.bound)
    picks = name in ("Min", "Max")
    whole = x.whole and y.whole and name != "Mean"
    exact = x.exact and y.exact and (picks or whole)
    if x.dtype == "u1":
        bound = min(bound, 255.0)
    result = Value("", x.dtype, shape, exact, whole, bound)
    operands = [x, y]
    if name in ("Sum", "Min", "Max") and g.chance(0.2):
        operands.append(x)
        result = result.like(bound=bound + x.bound)
    return g.node(name, operands, [bounded(g, result)])


def dividing(g: Builder) -> Value:
    """Integer division and remainders."""
    x = g.pick(lambda v: v.dtype in INTEGERS or (v.is_float and v.exact))
    shape = tuple(e.number if e.is_static and g.chance(0.5) else 1 for e in x.shape)
    low = 1 if x.dtype == "u1" else -4
    numbers = g.numbers(shape, "i8", True)
    numbers = np.where(numbers == 0, 2, np.clip(numbers, low, 4))
    if x.is_float:  # what is divided without a rest, and by powers of two, is exact
        result = x.like(whole=False, bound=4.0)
        return g.node("Mod", [x, g.constant(np.abs(numbers).astype(x.dtype))], [result], fmod=1)
    y = g.constant(numbers.astype(x.dtype))
    if g.chance(0.5):
        return g.node("Div", [x, y], [x.like()])
    return g.node("Mod", [x, y], [x.like(bound=4.0)], fmod=g.number(0, 1))


def bits(g: Builder) -> Value:
    x = g.pick(lambda v: v.dtype in INTEGERS)
    if x.dtype == "u1" and g.chance(0.4):
        shift = g.constant(np.array(g.number(0, 9), x.dtype))
        way = g.random.choice(["LEFT", "RIGHT"])
        return g.node("BitShift", [x, shift], [x.like(bound=255.0)], direction=way)
    y = partner(g, x)
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        raise Declined
    name = g.random.choice(["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
    bound = 2 * max(x.bound, y.bound) + 1
    return g.node(name, [x, y], [bounded(g, x.like(shape=shape, bound=bound))])


def compare(g: Builder) -> Value:
    x = g.pick(lambda v: v.exact and is_number(v))
    y = partner(g, x)
    shape = broadcast(x.shape, y.shape)
    if not y.exact or shape is None:
        raise Declined
    return g.node(g.random.choice(_COMPARE), [x, y], [Value("", "b1", shape)])


def logic(g: Builder) -> Value:
    x = g.pick(lambda v: v.dtype == "b1" or v.is_float)
    result = Value("", "b1", x.shape)
    if x.is_float:
        return g.node(g.random.choice(["IsNaN", "IsInf"]), [x], [result])
    if g.chance(0.3):
        return g.node("Not", [x], [result])
    y = partner(g, x)
    shape = broadcast(x.shape, y.shape)
    if shape is None:
        raise Declined
    return g.node(
        g.random.choice(["And", "Or", "Xor", "Equal"]), [x, y], [result.like(shape=shape)]
    )


def where(g: Builder) -> Value:
    c = g.pick(lambda v: v.dtype == "b1")
    x = g.pick(lambda v: broadcast(c.shape, v.shape))
    both = broadcast(c.shape, x.shape)
    y = partner(g, x.like(shape=both))
    shape = broadcast(both, y.shape) if both is not None else None
    if shape is None:
        raise Declined
    result = Value(
        "", x.dtype, shape, x.exact and y.exact, x.whole and y.whole, max(x.bound, y.bound)
    )
    return g.node("Where", [c, x, y], [bounded(g, result)])


def cast(g: Builder) -> Value:
    x = g.pick()
    target = g.random.choice([*FLOATS, *FLOATS, *INTEGERS, "b1"])
    if target not in FLOATS and not x.exact:
        raise Declined
    if target == "u1" and x.is_float or x.bound > LIMITS[target] and target != "b1":
        raise Declined
    exact, whole, bound = x.exact, x.whole or target not in FLOATS, x.bound
    if target in FLOATS:
        exact = exact and (x.whole or x.dtype in FLOATS)
        if WHOLE_LIMITS[target] < x.bound or not x.whole and target == "f2":
            exact, whole = False, False
        if not x.whole and x.dtype == "f8":
            exact = False
    if target == "u1":
        bound = 255.0
    if target == "b1":
        bound = 1.0
    kind = helper.np_dtype_to_tensor_dtype(numpy_dtype(target))
    result = Value("", target, x.shape, exact, whole, bound)
    if g.chance(0.2):
        likes = [v for v in g.values if v.dtype == target]
        if likes:
            return g.node("CastLike", [x, g.random.choice(likes)], [result])
    return g.node("Cast", [x], [result], to=kind)


# -- reductions -----------------------------------------------------------------------------


def some_axes(g: Builder, x: Value, least: int = 0) -> list[int]:
    """Axes without repetition whose sizes are at least so much in every run."""
    axes = [k for k, e in enumerate(x.shape) if e.least >= least]
    chosen = sorted(g.random.sample(axes, g.number(min(1, len(axes)), len(axes))))
    if not chosen:
        raise Declined
    return chosen


def reduce(g: Builder) -> Value:
    x = g.pick(lambda v: is_signed(v) and v.rank > 0)
    names = ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"]
    if x.is_float:
        names += ["ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceSum", "ReduceMean"]
        names += ["ReduceProd"] if x.bound <= 1.5 else []
    name = g.random.choice(names)
    axes = some_axes(g, x, 0 if name in ("ReduceSum", "ReduceL1", "ReduceSumSquare") else 1)
    keep = g.number(0, 1)
    terms = max(math.prod(x.shape[k].at[run] for k in axes) for run in range(3))
    bound = {
        "ReduceSum": x.bound * terms,
        "ReduceL1": x.bound * terms,
        "ReduceSumSquare": x.bound**2 * terms,
        "ReduceL2": x.bound * terms,
        "ReduceLogSumExp": x.bound + terms,
        "ReduceProd": x.bound ** min(terms, 40),
    }.get(name, x.bound)
    picks = name in ("ReduceMax", "ReduceMin")
    rational = name in ("ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceProd")
    whole = x.whole and (not rational or not x.is_float)
    shape = tuple(
        fixed(1) if k in axes else e for k, e in enumerate(x.shape) if keep or k not in axes
    )
    result = Value("", x.dtype, shape, x.exact and (picks or whole), whole, max(bound, 1.0))
    given = [k - x.rank if g.chance(0.3) else k for k in axes]
    operand = g.constant(np.array(given, np.int64))
    return g.node(name, [x, operand], [bounded(g, result)], keepdims=keep)


def log_of_sum(g: Builder) -> Value:
    x = g.pick(lambda v: v.is_float and v.rank > 0)
    axes = some_axes(g, x, 1)
    half = g.constant(np.array(0.5, x.dtype))
    y = x.like(exact=False, whole=False, bound=x.bound + 0.5)
    y = g.node("Add", [g.node("Abs", [x], [x.like()]), half], [bounded(g, y)])
    shape = tuple(e for k, e in enumerate(x.shape) if k not in axes)
    operand = g.constant(np.array(axes, np.int64))
    g.check((), x.bound * volume(x.shape), x.dtype)
    return g.node("ReduceLogSum", [y, operand], [y.like(shape=shape, bound=30.0)], keepdims=0)


def arg_extreme(g: Builder) -> Value:
    x = g.pick(lambda v: v.exact and is_number(v) and v.rank > 0)
    (axis, *_) = some_axes(g, x, 1)
    keep = g.number(0, 1)
    shape = tuple(fixed(1) if k == axis else e for k, e in enumerate(x.shape) if keep or k != axis)
    most = float(max(x.shape[axis].at))
    name = g.random.choice(["ArgMax", "ArgMin"])
    result = Value("", "i8", shape, bound=most)
    last = g.number(0, 1)
    return g.node(name, [x], [result], axis=axis, keepdims=keep, select_last_index=last)


def along(g: Builder) -> Value:
    """Softmax and running sums."""
    x = g.pick(lambda v: v.is_float and v.rank > 0)
    axis = g.number(-x.rank, x.rank - 1)
    name = g.random.choice(["Softmax", "Softmax", "LogSoftmax", "CumSum", "LpNormalization"])
    result = x.like(exact=False, whole=False, bound=max(1.0, 2 * x.bound + 10))
    if name == "CumSum":
        bound = x.bound * max(x.shape[axis].at)
        result = x.like(exact=x.is_exact_whole, bound=max(bound, 1.0))
        place = g.constant(np.array(axis, np.int64))
        ways = {"exclusive": g.number(0, 1), "reverse": g.number(0, 1)}
        return g.node(name, [x, place], [bounded(g, result)], **ways)
    if name == "LpNormalization":
        half = g.constant(np.array(0.5, x.dtype))
        x = g.node("Add", [g.node("Abs", [x], [x.like()]), half], [result])
        return g.node(name, [x], [result.like(bound=1.0)], axis=axis, p=g.number(1, 2))
    if x.exact and g.chance(0.1) and x.shape[axis].least:
        return g.node("Hardmax", [x], [x.like(whole=True, bound=1.0)], axis=axis)
    bound = 1.0 if name == "Softmax" else result.bound
    return g.node(name, [x], [bounded(g, result.like(bound=bound))], axis=axis)


#: Rule, how often.
RULES = [
    (unary, 16), (guarded, 3), (slope, 1), (limited, 2), (binary, 14), (dividing, 2), (bits, 1),
    (compare, 4), (logic, 2), (where, 3), (cast, 5), (reduce, 8), (log_of_sum, 1),
    (arg_extreme, 2), (along, 5),
]  # fmt: skip
