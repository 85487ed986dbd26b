"""What is rounded to codes, as few operations: sums of numbers times factors that never change.

    round(((float(sum) * s + b) / t + z)  ->  round(float(sum) * (s / t) + b / t) + z

Dequantising, biases, residual sums, ReLU and quantising become one factor for each number that
goes in, and one term; `hoisting` has those computed once. Where the factors are rounded
differently, what is rounded moves by a few units in its last place, so a code may differ by one
step where it was about half-way. Only expressions over integers (codes and their sums) change.

Rounding itself is exact: what is rounded is kept between the ends first, then 1.5 * 2^23 is added,
which leaves the whole number, halves to even, in the low bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from sardonyx.base import dtypes
from sardonyx.base.records import dataclass
from sardonyx.plan.codes import CODES
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import remake
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer
from sardonyx.tensor.traverse import loads_of, parts_of

_ZERO, _ONE = (scalar.constant(value, dtypes.FLOAT) for value in (0.0, 1.0))
#: What float32 holds.
_LARGEST = (2.0 - 2.0**-23) * 2.0**127
#: Floats of its size are whole numbers.
_ROUNDING = scalar.constant(1.5 * 2.0**23, dtypes.FLOAT)


@dataclass(frozen=True, slots=True)
class _Linear:
    """`offset` and the sum of numbers times factors; the latter never change."""

    terms: tuple[tuple[Scalar, Scalar], ...] = ()
    offset: Scalar = _ZERO

    def __add__(self, other: _Linear) -> _Linear:
        return _Linear(self.terms + other.terms, _plus(self.offset, other.offset))

    def times(self, factor: Scalar) -> _Linear:
        """All of it times a number that never changes."""
        terms = tuple((x, _times(f, factor)) for x, f in self.terms)
        return _Linear(terms, _times(self.offset, factor))


def is_fixed(x: Scalar) -> bool:
    """Whether the value is the same in every run."""
    tensors = [load.tensor for load in loads_of(x)]
    return all(isinstance(t, Buffer) and t.constant is not None for t in tensors)


def requantised(x: Scalar) -> Scalar:
    """The expression with everything that is rounded to codes in its shortest form."""
    return _Requantising().visit(x)


class _Requantising:
    """What `requantised` does. A closure that calls itself would be left to the collector."""

    __slots__ = ("_memo",)

    def __init__(self) -> None:
        self._memo: dict[Scalar, Scalar] = {}

    def visit(self, node: Scalar) -> Scalar:
        found = self._memo.get(node)
        if found is None:
            found = self._memo[node] = _code(node, self.visit) or _remade(
                node, tuple(map(self.visit, node.arguments))
            )
        return found


def _remade(node: Scalar, arguments: tuple[Scalar, ...]) -> Scalar:
    same = all(a is b for a, b in zip(arguments, node.arguments, strict=True))
    return node if same else remake(node, arguments)


@dataclass(frozen=True, slots=True)
class _Rounded:
    """`round(number) + zero`, kept between the ends of a type, as a code.

    Attributes:
        number: What is rounded, kept between the ends less the zero point.
        zero: A whole number.
    """

    number: Scalar
    zero: int


def _rounded(node: Scalar, visit: Callable[[Scalar], Scalar]) -> _Rounded | None:
    """What a cast to codes rounds; None where it is something else, or a run decides."""
    if node.op != "cast" or node.dtype not in CODES or node.arguments[0].dtype is not dtypes.FLOAT:
        return None
    (value,) = node.arguments
    zero = 0.0
    if value.op == "add" and value.arguments[1].op == "constant":
        zero = float(value.arguments[1].payload)
        value = value.arguments[0]
    low = -128 if node.dtype is dtypes.INT8 else 0
    if value.op != "round" or not low <= zero <= low + 255 or zero != int(zero):
        return None
    (number,) = value.arguments
    number = _shortest(number, visit) if _has_integers(number) else visit(number)
    for op, end in (("gt", low - zero), ("lt", low + 255 - zero)):
        # Comparison and choice: one instruction, while `max` looks for NaN.
        bound = scalar.constant(end, dtypes.FLOAT)
        number = scalar.select(scalar.compare(op, number, bound), number, bound)
    return _Rounded(number, int(zero))


def _code(node: Scalar, visit: Callable[[Scalar], Scalar]) -> Scalar | None:
    """A cast to codes in its shortest form; None for other expressions."""
    rounded = _rounded(node, visit)
    if rounded is not None:
        word = scalar.bitcast(rounded.number + _ROUNDING, dtypes.INT32)
        return scalar.cast(word + rounded.zero if rounded.zero else word, node.dtype)
    if node.op != "cast" or node.dtype not in CODES or node.arguments[0].dtype is not dtypes.FLOAT:
        return None
    if not _has_integers(node.arguments[0]):
        return None
    return scalar.cast(_shortest(node.arguments[0], visit), node.dtype)


def _has_integers(x: Scalar) -> bool:
    def inside(part: Scalar) -> list[Scalar]:
        return [] if is_integer(part) else [a for a in part.arguments if a.dtype is dtypes.FLOAT]

    def is_integer(part: Scalar) -> bool:
        return part.op == "cast" and part.arguments[0].dtype in (dtypes.INT32, *CODES)

    return any(is_integer(part) and not is_fixed(part) for part in parts_of(x, inside))


# -- linear forms -----------------------------------------------------------------------------


def _folded(x: Scalar) -> Scalar:
    """What is computed from literals alone as one, rounded as its steps would be.

    Layers have the same kernel then, however their scales are written.
    """
    if x.dtype is not dtypes.FLOAT or x.op not in ("mul", "div"):
        return x
    a, b = (_literal(_folded(argument)) for argument in x.arguments)
    if a is None or b is None or (x.op == "div" and b == 0.0):
        return x
    # Rounding the quotient or product of two floats from double to float gives the nearest one.
    exact = a * b if x.op == "mul" else a / b
    if not abs(exact) <= _LARGEST:
        return x
    return scalar.constant(struct.unpack("f", struct.pack("f", exact))[0], dtypes.FLOAT)


def _literal(x: Scalar) -> float | None:
    return float(x.payload) if x.op == "constant" else None


def _times(a: Scalar, b: Scalar) -> Scalar:
    a, b = _folded(a), _folded(b)
    x, y = _literal(a), _literal(b)
    if x is not None and y is not None:
        return scalar.constant(x * y, dtypes.FLOAT)
    if x == 0.0 or y == 0.0:
        return _ZERO
    return b if x == 1.0 else a if y == 1.0 else a * b


def _plus(a: Scalar, b: Scalar) -> Scalar:
    x, y = _literal(a), _literal(b)
    if x is not None and y is not None:
        return scalar.constant(x + y, dtypes.FLOAT)
    return b if x == 0.0 else a if y == 0.0 else a + b


def _inverse(x: Scalar) -> Scalar | None:
    value = _literal(x)
    if value is None:
        return _ONE / x
    return scalar.constant(1.0 / value, dtypes.FLOAT) if value else None


def _linear(x: Scalar, visit: Callable[[Scalar], Scalar]) -> _Linear:
    """A float expression as a linear form; `visit` remakes what is inside its numbers."""
    if is_fixed(x):
        return _Linear(offset=x)
    arguments = x.arguments
    if x.op in ("add", "sub"):
        sign = scalar.constant(-1.0 if x.op == "sub" else 1.0, dtypes.FLOAT)
        return _linear(arguments[0], visit) + _linear(arguments[1], visit).times(sign)
    if x.op == "mul":
        for factor, other in (arguments, reversed(arguments)):
            if is_fixed(factor):
                return _linear(other, visit).times(factor)
    if x.op == "div" and is_fixed(arguments[1]):
        inverse = _inverse(arguments[1])
        if inverse is not None:
            return _linear(arguments[0], visit).times(inverse)
    if x.op == "cast" and arguments[0].dtype is dtypes.INT32:
        return _of_integer(arguments[0], visit)
    inside = tuple(_shortest(a, visit) if a.dtype is dtypes.FLOAT else visit(a) for a in arguments)
    return _Linear(((remake(x, inside) if arguments else x, _ONE),))


def _of_integer(x: Scalar, visit: Callable[[Scalar], Scalar]) -> _Linear:
    """An int32 expression as floats: codes, zero points and biases apart."""
    if is_fixed(x):
        return _Linear(offset=scalar.cast(x, dtypes.FLOAT))
    if x.op in ("add", "sub") and any(map(is_fixed, x.arguments)):
        sign = scalar.constant(-1.0 if x.op == "sub" else 1.0, dtypes.FLOAT)
        first, second = (_of_integer(a, visit) for a in x.arguments)
        return first + second.times(sign)
    if x.op == "cast" and x.arguments[0].dtype in CODES:
        x = x.arguments[0]
        rounded = _rounded(x, visit)
        if rounded is not None:
            whole = scalar.unary("round", rounded.number)
            return _Linear(((whole, _ONE),), scalar.constant(rounded.zero, dtypes.FLOAT))
    return _Linear(((scalar.cast(visit(x), dtypes.FLOAT), _ONE),))


def _shortest(x: Scalar, visit: Callable[[Scalar], Scalar]) -> Scalar:
    """The linear form of a float expression, as an expression."""
    form = _linear(x, visit)
    total = form.offset
    for number, factor in form.terms:
        value = _literal(factor)
        # max(x, c) * f -> max(x * f, c * f) for f > 0
        if number.op in ("max", "min") and value is not None and value > 0.0 and value != 1.0:
            parts = (_shortest(_times(a, factor), lambda a: a) for a in number.arguments)
            number, value = scalar.binary(number.op, *parts), 1.0
        if value == 1.0 or _literal(total) == 0.0:
            total = _plus(_times(number, _ONE if value == 1.0 else factor), total)
        else:
            total = scalar.make_node("fma", dtypes.FLOAT, (number, factor, total))
    return total
