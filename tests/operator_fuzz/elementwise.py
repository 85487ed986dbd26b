"""Operators that compute each element from elements at the same place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.operator_fuzz.draw import Array, Draw, DType, is_float, is_integer, is_signed
from tests.operator_fuzz.instance import Instance, makes
from tests.operator_fuzz.oracle import Use, reference

#: Limits of the argument, where a function has a domain or grows fast.
_DOMAINS: dict[str, tuple[float, float]] = {
    "Acos": (-1, 1), "Asin": (-1, 1), "Atanh": (-0.875, 0.875), "Acosh": (1, 8), "Log": (0, 8),
    "Sqrt": (0, 9), "Exp": (-6, 6), "Sinh": (-6, 6), "Cosh": (-6, 6), "Tan": (-1.25, 1.25),
    "Reciprocal": (0.25, 4),
}  # fmt: skip
#: Attributes that are numbers, with limits.
_NUMBERS: dict[str, tuple[float, float]] = {
    "alpha": (0.125, 2), "gamma": (0.5, 2), "beta": (0, 1), "lambd": (0, 1), "bias": (-1, 1)
}  # fmt: skip


def argument(draw: Draw, shape: list[int], dtype: DType, domain: tuple[float, float]) -> Array:
    """Floats within a domain, most of them not round."""
    if not is_float(dtype):
        return draw.values(shape, dtype, *domain)
    if draw.contents.random() < 0.3:
        return draw.values(shape, dtype, *domain)
    return np.asarray(draw.contents.uniform(*domain, tuple(shape)).astype(dtype))


@makes(
    "Abs Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp HardSigmoid HardSwish "
    "LeakyRelu Log Mish Neg Reciprocal Relu Selu Shrink Sigmoid Sin Sinh Softplus Softsign Sqrt "
    "Swish Tan Tanh ThresholdedRelu"
)
def unary(draw: Draw) -> Instance:
    name = draw.schema.name
    x = argument(draw, draw.shape(), draw.input_type(0), _DOMAINS.get(name, (-8, 8)))
    attributes: dict[str, Any] = {
        a: draw.maybe(draw.number(*_NUMBERS[a])) for a in draw.schema.attributes if a in _NUMBERS
    }
    return Instance([x], attributes)


@makes("Gelu", absolute=8)  # 1 + erf cancels
def gelu_of(draw: Draw) -> Instance:
    x = argument(draw, draw.shape(), draw.input_type(0), (-8, 8))
    return Instance([x], {"approximate": draw.maybe(draw.pick(["none", "tanh"]))})


@makes("Ceil Floor Round Sign IsNaN IsInf", exact=True)
def jumping(draw: Draw) -> Instance:
    x = draw.anything(draw.shape(), draw.input_type(0))
    attributes: dict[str, Any] = {}
    if draw.schema.name == "IsInf":
        attributes["detect_negative"] = draw.maybe(draw.integer(0, 1))
        attributes["detect_positive"] = draw.maybe(draw.integer(0, 1))
    return Instance([x], attributes)


@makes("Not BitwiseNot", exact=True)
def complemented(draw: Draw) -> Instance:
    return Instance([draw.anything(draw.shape(), draw.input_type(0))])


def aligned(draw: Draw) -> tuple[list[int], list[int], dict[str, Any]]:
    """Shapes of two operands, under NumPy's rules or those of `broadcast` and `axis`."""
    if not draw.has_attribute("broadcast"):
        a, b = draw.operands(2, 0, 6)
        return a, b, {}
    a = draw.shape(0, 5)
    if draw.chance(0.3):
        return a, list(a), {"broadcast": draw.maybe(0)}
    first = draw.integer(0, len(a))
    last = draw.integer(first, len(a))
    if draw.chance(0.5):
        return a, a[first:], {"broadcast": 1}
    axis = first - (len(a) if first < len(a) and draw.chance(0.3) else 0)
    return a, a[first:last], {"broadcast": 1, "axis": axis if first < len(a) else None}


def _as_numpy(use: Use, a: Array, b: Array) -> Array:
    """The second operand, reshaped so that NumPy's rules align it."""
    if not use.attributes.get("broadcast") or b.ndim >= a.ndim or not b.ndim:
        return b
    axis = use.attributes.get("axis")
    first = a.ndim - b.ndim if axis is None else axis % a.ndim
    return b.reshape(b.shape + (1,) * (a.ndim - first - b.ndim))


@makes("Add Sub Mul")
def arithmetic(draw: Draw) -> Instance:
    a, b, attributes = aligned(draw)
    kind = draw.anything if not is_float(draw.input_type(0)) else draw.reals
    return Instance([kind(a, draw.input_type(0)), kind(b, draw.input_type(0))], attributes)


@makes("Div")
def division(draw: Draw) -> Instance:
    a, b, attributes = aligned(draw)
    dtype = draw.input_type(0)
    x, y = draw.values(a, dtype, -20, 20), draw.values(b, dtype, 0.25 if is_float(dtype) else 1, 6)
    if is_signed(dtype):
        y = np.where(draw.values(b, np.dtype(bool)), y, -y).astype(dtype)
    return Instance([x, y], attributes)


@makes("And Or Xor BitwiseAnd BitwiseOr BitwiseXor", exact=True)
def bits(draw: Draw) -> Instance:
    a, b, attributes = aligned(draw)
    dtype = draw.input_type(0)
    return Instance([draw.anything(a, dtype), draw.anything(b, dtype)], attributes)


@makes("Equal Greater GreaterOrEqual Less LessOrEqual", exact=True)
def compared(draw: Draw) -> Instance:
    a, b, attributes = aligned(draw)
    dtype = draw.input_type(0)
    kind = draw.anything if draw.chance(0.2) else draw.values
    return Instance([kind(a, dtype), kind(b, dtype)], attributes)


_FORMER = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Less": np.less, "Equal": np.equal,
    "Greater": np.greater, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
    "Pow": np.power,
}  # fmt: skip


@reference("Add Sub Mul Less Equal Greater And Or Xor Pow", until=6)
def former_alignment(use: Use, a: Array, b: Array) -> Array:
    return _FORMER[use.node.op_type](a, _as_numpy(use, a, b))


@reference("Div")
def division_of_both(use: Use, a: Array, b: Array) -> Array:
    """Whole numbers are divided towards zero."""
    b = _as_numpy(use, a, b)
    if not is_integer(a.dtype):
        return a / b
    quotient = np.abs(a.astype(object)) // np.abs(b.astype(object))
    sign = np.where((a < 0) != (b < 0), -1, 1)
    return (quotient * sign).astype(a.dtype)


@makes("Pow")
def power(draw: Draw) -> Instance:
    a, b, attributes = aligned(draw)
    base, exponent = draw.input_type(0), draw.input_type(1)
    if is_float(base) and is_float(exponent):
        return Instance([argument(draw, a, base, (0.125, 4)), draw.reals(b, exponent)], attributes)
    if is_float(exponent):
        return Instance([draw.values(a, base, 0, 5), draw.values(b, exponent, 0, 3)], attributes)
    return Instance([draw.values(a, base, -3, 3), draw.values(b, exponent, 0, 3)], attributes)


@reference("Pow", since=7)
def power_of_both(use: Use, a: Array, b: Array) -> Array:
    """The result is of the base's type."""
    dtype = use.input_types[0]
    if is_integer(dtype):
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(dtype)
    return np.power(a, b.astype(np.float64))


@makes("Mod", exact=True)
def remainder(draw: Draw) -> Instance:
    a, b, _ = aligned(draw)
    dtype = draw.input_type(0)
    fmod = 1 if is_float(dtype) else draw.integer(0, 1)
    x, y = draw.values(a, dtype, -30, 30), draw.values(b, dtype, 0.5 if is_float(dtype) else 1, 7)
    if is_signed(dtype):
        y = np.where(draw.values(b, np.dtype(bool)), y, -y).astype(dtype)
    return Instance([x, y], {"fmod": fmod if fmod else draw.maybe(0)})


@makes("BitShift", exact=True)
def shifted(draw: Draw) -> Instance:
    a, b, _ = aligned(draw)
    dtype = draw.input_type(0)
    places = draw.values(b, dtype, 0, dtype.itemsize * 8 - 1)
    return Instance([draw.anything(a, dtype), places], {"direction": draw.pick(["LEFT", "RIGHT"])})


@makes("Max Min", exact=True)
def extreme(draw: Draw) -> Instance:
    count = draw.integer(1, 4)
    shapes = draw.operands(count, 0, 5)
    if draw.version < 8:
        shapes = [shapes[0]] * count
    dtype = draw.input_type(0)
    return Instance([draw.values(s, dtype, -20, 20) for s in shapes])


@makes("Sum Mean")
def accumulated(draw: Draw) -> Instance:
    count = draw.integer(1, 4)
    shapes = draw.operands(count, 0, 5)
    if draw.version < 8:
        shapes = [shapes[0]] * count
    return Instance([draw.reals(s, draw.input_type(0)) for s in shapes])


@makes("Where", exact=True)
def chosen(draw: Draw) -> Instance:
    shapes = draw.operands(3, 0, 6)
    dtype = draw.type_of("T")
    condition = draw.values(shapes[0], np.dtype(bool))
    return Instance([condition, draw.anything(shapes[1], dtype), draw.anything(shapes[2], dtype)])


@makes("Clip", exact=True)
def clipped(draw: Draw) -> Instance:
    dtype = draw.input_type(0)
    x = draw.values(draw.shape(), dtype, -9, 9)
    low, high = draw.integer(-4, 4), draw.integer(-2, 6)
    low, high = (max(low, 0), max(high, 0)) if not is_signed(dtype) else (low, high)
    if draw.version < 11:
        return Instance(
            [x], {"min": draw.maybe(float(low)), "max": draw.maybe(float(max(low, high)))}
        )
    limits = [draw.maybe(np.asarray(n).astype(dtype)) for n in (low, max(low, high))]
    return Instance([x, *limits])


@makes("PRelu")
def sloped(draw: Draw) -> Instance:
    dtype = draw.input_type(0)
    if draw.version >= 7:
        shape = draw.shape(0, 5)
        slope = draw.broadcast(shape)
    else:
        shape = draw.shape(2, 5)
        slope = draw.pick([[1], [shape[1]]])
    return Instance([draw.values(shape, dtype), draw.values(slope, dtype, 0, 2)])


@reference("PRelu", until=6)
def former_slope(use: Use, x: Array, slope: Array) -> Array:
    """A slope for each channel, or one."""
    slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    return np.where(x < 0, x * slope, x)


@reference("Clip", until=10)
def former_clip(use: Use, x: Array) -> Array:
    low, high = use.attributes.get("min", -np.inf), use.attributes.get("max", np.inf)
    return np.minimum(np.maximum(x, low), high)


@reference("Clip", since=11)
def clip(use: Use, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


@reference("Sum Mean")
def summed(use: Use, *arrays: Array) -> Array:
    total = arrays[0]
    for x in arrays[1:]:
        total = total + x
    return total / len(arrays) if use.node.op_type == "Mean" else total


@reference("Erf")
def error_function(use: Use, x: Array) -> Array:
    found = np.vectorize(math.erf, otypes=[np.float64])(x)
    return found.astype(use.types[0]) if is_integer(use.types[0]) else found


@reference("HardSwish")
def hard_swish(use: Use, x: Array) -> Array:
    return x * np.clip(x / 6 + 0.5, 0, 1)


@reference("Gelu")
def gelu(use: Use, x: Array) -> Array:
    if use.attributes["approximate"] == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


@reference("Selu")
def selu(use: Use, x: Array) -> Array:
    alpha, gamma = use.attributes["alpha"], use.attributes["gamma"]
    return gamma * np.where(x > 0, x, alpha * np.expm1(x))


@reference("Softsign")
def softsign(use: Use, x: Array) -> Array:
    return x / (1 + np.abs(x))
